"""Standard files in tiny: what is read is what was written, whatever is not one is refused by name."""

from __future__ import annotations

import gzip
import json
import math
import pickle
import struct
from pathlib import Path
from typing import Any, final

import numpy as np
import pytest

from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.datasets import dirichlet_split, load_federation
from mezzotint.federated.encoding import FixedPointEncoding
from mezzotint.federated.models import LocalTraining, Model, Softmax, model_for
from mezzotint.federated.rehearsal import Rehearsal
from tolerances import SINGLE


def test_every_record_goes_to_exactly_one_client():
    labels = np.random.default_rng(0).integers(0, 10, 500)
    for dirichlet in (0.05, 0.5, 100.0):
        parts = dirichlet_split(labels, 60, dirichlet, 1)
        assert sorted(np.concatenate(parts).tolist()) == list(range(500))
        assert min(map(len, parts)) >= 1
    for bad in ({"clients": 0}, {"clients": 501}, {"dirichlet": 0.0}, {"dirichlet": np.nan}):
        with pytest.raises(ParameterError, match=next(iter(bad))):
            dirichlet_split(labels, **({"clients": 5, "dirichlet": 1.0, "seed": 0} | bad))


@pytest.mark.parametrize("labels", [[0.0, math.nan], [0, None], ["a", None], [1, "a"]])
def test_a_record_without_a_label_is_no_clients(labels: Any) -> None:
    with pytest.raises(ParameterError, match=r"^labels=.*none missing"):
        dirichlet_split(np.array(labels, dtype=object), 2, 1.0, 0)


def test_the_missing_label_of_pandas_is_refused_by_name() -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(ParameterError, match=r"^labels=.*none missing"):
        dirichlet_split(np.array([0, pandas.NA, 1], dtype=object), 2, 1.0, 0)


def test_a_smaller_parameter_is_less_even():
    labels = np.random.default_rng(0).integers(0, 10, 5000)
    classes = [
        np.mean([len(np.unique(labels[part])) for part in dirichlet_split(labels, 50, a, 0)])
        for a in (0.1, 100.0)
    ]
    assert classes[0] < 6 < 9 < classes[1]


def test_digits_come_without_a_download():
    federation = load_federation("digits", clients=100)
    assert len(federation.clients) == 100
    assert sum(len(y) for _, y in federation.clients) + len(federation.test_y) == 1797
    assert federation.test_x.min() >= 0
    assert federation.test_x.max() == 1


def _femnist(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    path = folder / "femnist.npz"
    np.savez(
        path,
        x=rng.integers(0, 256, (40, 28, 28), dtype=np.uint8),
        y=np.arange(40) % 5,
        writer=np.repeat(np.arange(8), 5),
        split=np.tile([0, 0, 0, 0, 1], 8),
    )
    return path


def test_femnist_is_split_by_writer(tmp_path):
    path = _femnist(tmp_path)
    federation = load_federation("femnist", folder=str(path), clients=0)
    assert [len(y) for _, y in federation.clients] == [4] * 8
    assert len(federation.test_y) == 8
    with np.load(path) as file:
        np.testing.assert_allclose(
            federation.clients[2][0][1], 1 - file["x"][11] / 255, atol=SINGLE
        )
    assert len(load_federation("femnist", folder=str(path), clients=3).clients) == 3
    with np.load(path) as file:
        arrays = dict(file)
    for name, wrong in {
        "x": arrays["x"][:, :27],
        "y": arrays["y"] + 0.5,
        "writer": arrays["writer"][:-1],
        "split": arrays["split"].reshape(2, -1),
    }.items():
        load_federation.cache_clear()
        np.savez(tmp_path / "bad.npz", **{**arrays, name: wrong})
        with pytest.raises(FileFormatError, match=r"^bad\.npz: need x"):
            load_federation("femnist", folder=str(tmp_path / "bad.npz"))
    (tmp_path / "bad.npz").write_bytes(b"nothing")
    with pytest.raises(FileFormatError, match="not a readable npz"):
        load_federation("femnist", folder=str(tmp_path / "bad.npz"))


def test_leaf_folders_are_read(tmp_path):
    for part, count in (("train", 3), ("test", 1)):
        (tmp_path / part).mkdir()
        users = {
            name: {"x": [[0.25] * 784] * count, "y": list(range(count))} for name in ("a", "b")
        }
        (tmp_path / part / "one.json").write_text(
            json.dumps({"users": ["a", "b"], "user_data": users})
        )
    federation = load_federation("femnist", folder=str(tmp_path), clients=0)
    assert [y.tolist() for _, y in federation.clients] == [[0, 1, 2]] * 2
    assert federation.test_x.shape == (2, 28, 28)
    assert (federation.test_x == 0.75).all()
    for wrong in (
        {"x": [[0.25] * 784]},
        {"x": [[0.25] * 783], "y": [1]},
        {"x": [[0.25] * 784], "y": [1, 2]},
        {"x": [[0.25] * 784], "y": [1.5]},
        {"x": [[0.25] * 784], "y": ["1"]},
        {"x": [[0.25] * 784], "y": [62]},
        {"x": [["0.25"] * 784], "y": [1]},
        [],
    ):
        load_federation.cache_clear()
        (tmp_path / "test" / "one.json").write_text(json.dumps({"user_data": {"a": wrong}}))
        with pytest.raises(FileFormatError, match=r"^one\.json: "):
            load_federation("femnist", folder=str(tmp_path), clients=0)
    (tmp_path / "none").mkdir()
    with pytest.raises(ParameterError, match="train"):
        load_federation("femnist", folder=str(tmp_path / "none"))


def _idx(values: np.ndarray) -> bytes:
    return (
        bytes([0, 0, 8, values.ndim])
        + struct.pack(f">{values.ndim}I", *values.shape)
        + values.tobytes()
    )


def test_mnist_files_are_read_packed_or_not(tmp_path):
    rng = np.random.default_rng(1)
    for name, count in (("train", 20), ("t10k", 4)):
        images, labels = (
            rng.integers(0, 256, (count, 28, 28), dtype=np.uint8),
            np.arange(count, dtype=np.uint8) % 10,
        )
        (tmp_path / f"{name}-images-idx3-ubyte.gz").write_bytes(gzip.compress(_idx(images)))
        (tmp_path / f"{name}-labels-idx1-ubyte").write_bytes(_idx(labels))
    federation = load_federation("mnist", folder=str(tmp_path), clients=3, dirichlet=5.0)
    np.testing.assert_allclose(federation.test_x, images / 255, atol=SINGLE)
    assert sum(len(y) for _, y in federation.clients) == 20
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(_idx(labels)[:-1])
    with pytest.raises(FileFormatError, match="header says"):
        load_federation("mnist", folder=str(tmp_path), clients=2, dirichlet=5.0)
    with pytest.raises(ParameterError, match="MNIST"):
        load_federation("mnist", folder=str(tmp_path / "nowhere"), clients=2)
    with pytest.raises(ParameterError, match="name the folder that holds mnist"):
        load_federation("mnist", clients=2)


def test_cifar_pickles_are_read_and_other_pickles_are_not(tmp_path):
    rng = np.random.default_rng(2)
    data = rng.integers(0, 256, (5, 3072), dtype=np.uint8)
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        (tmp_path / name).write_bytes(
            pickle.dumps({b"data": data, b"labels": [0, 1, 2, 3, 4]}, protocol=3)
        )
    federation = load_federation("cifar10", folder=str(tmp_path), clients=4, dirichlet=5.0)
    assert federation.test_x.shape == (5, 32, 32, 3)
    # Planes of red, green and blue become channels.
    assert federation.test_x[0, 0, 1, 2] == pytest.approx(data[0, 2 * 1024 + 1] / 255)
    for name in ("train", "test"):
        (tmp_path / name).write_bytes(
            pickle.dumps({b"data": data, b"fine_labels": [0, 1, 2, 3, 99]}, protocol=3)
        )
    assert (
        load_federation("cifar100", folder=str(tmp_path), clients=2, dirichlet=5.0).test_y.max()
        == 99
    )
    (tmp_path / "test_batch").write_bytes(pickle.dumps({b"data": print}, protocol=3))
    with pytest.raises(FileFormatError, match="refused"):
        load_federation("cifar10", folder=str(tmp_path), clients=3, dirichlet=5.0)


def test_an_unknown_data_set_or_model_is_refused():
    with pytest.raises(ParameterError, match="digits, femnist"):
        load_federation("imagenet")
    with pytest.raises(ParameterError, match="softmax"):
        model_for("transformer", load_federation("digits", clients=100))


def test_softmax_gradients_are_those_of_finite_differences():
    rng = np.random.default_rng(3)
    model = Softmax(features=6, classes=4)
    x, y = rng.normal(size=(9, 6)), rng.integers(0, 4, 9)
    at = rng.normal(size=28)
    found = model.gradient(at, x, y)
    step = 1e-6
    for place in range(28):
        other = at.copy()
        other[place] += step
        slope = (model.evaluate(other, x, y)[0] - model.evaluate(at, x, y)[0]) / step
        # Far above a forward difference's own error, a step times curvatures below 1.
        assert slope == pytest.approx(found[place], abs=1e-4)


def test_fedsgd_is_minus_the_gradient():
    rng = np.random.default_rng(4)
    model = Softmax(features=3, classes=2)
    x, y, at = rng.normal(size=(5, 3)), rng.integers(0, 2, 5), rng.normal(size=8)
    found = LocalTraining(algorithm="fedsgd").update(model, at, x, y, seed=0)
    np.testing.assert_array_equal(found, -model.gradient(at, x, y))
    some = LocalTraining(algorithm="fedsgd", batch=2)
    assert not np.array_equal(some.update(model, at, x, y, seed=0), found)
    for bad in ({"steps": 0}, {"learning_rate": 0.0}, {"batch": -1}, {"algorithm": "adam"}):
        with pytest.raises(ParameterError):
            LocalTraining(**bad)


def test_a_rehearsal_that_makes_no_sense_is_refused():
    federation = load_federation("digits", clients=100)
    model = model_for("softmax", federation)
    good = {
        "federation": federation,
        "model": model,
        "clients_per_round": 5,
        "learning_rate": 1.0,
        "rounds": 1,
        "every": 1,
    }
    bads: tuple[dict[str, Any], ...] = (
        {"clients_per_round": 0}, {"clients_per_round": 101}, {"rounds": 0}, {"every": 0}, {"learning_rate": 0.0},
        {"sampling": "poisson"}, {"sampling": "some"},
    )  # fmt: skip
    for bad in bads:
        with pytest.raises(ParameterError, match=next(iter(bad))):
            Rehearsal(**(good | bad))


@final
class _Noting(Model):
    """Has no gradient, and notes whose records it is asked about."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def initial(self, seed: int) -> Any:
        return np.zeros(2)

    def gradient(self, parameters: Any, x: Any, y: Any) -> Any:
        self.asked.append(id(x))
        return np.zeros(2)

    def evaluate(self, parameters: Any, x: Any, y: Any) -> tuple[float, float]:
        return 0.0, 0.0


@pytest.mark.parametrize("seed", [0, 1])
def test_clients_of_a_rehearsal_take_turns(seed):
    """20 clients, 6 a round: in 10 rounds each is asked 3 times, and never within 20 / 6 rounds, rounded down."""
    federation = load_federation("digits", clients=20)
    model = _Noting()
    run = Rehearsal(
        federation=federation,
        model=model,
        clients_per_round=6,
        learning_rate=1.0,
        rounds=10,
        every=10,
        sampling="cyclic",
    )
    run.run(FixedPointEncoding(clip=1.0), seed=seed)
    turns = {
        id(x): [place // 6 for place, one in enumerate(model.asked) if one == id(x)]
        for x, _ in federation.clients
    }
    assert {len(found) for found in turns.values()} == {3}
    assert min(np.diff(found).min() for found in turns.values()) >= 3


def test_a_label_without_any_chance_costs_a_finite_loss():
    model = Softmax(features=1, classes=2)
    surely_not = np.array([0.0, 0.0, 1000.0, 0.0])  # one row of weights, then the biases
    loss, accuracy = model.evaluate(surely_not, np.zeros((1, 1), dtype=np.float32), np.array([1]))
    assert (80 < loss < 100, accuracy) == (True, 0.0)  # log of float32's least normal number: 87.3


def test_the_images_of_cifars_package_are_read_and_others_are_refused(tmp_path):
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(4)
    sizes = {f"data_batch_{i}": 6 for i in range(1, 6)} | {"test_batch": 4}
    pixels = {name: rng.integers(0, 256, (n, 1024, 3), dtype=np.uint8) for name, n in sizes.items()}
    for name, rows in pixels.items():
        image.fromarray(rows).save(tmp_path / f"{name}.png")
    labels = {"train_lables": rng.integers(0, 10, 30), "test_lables": rng.integers(0, 10, 4)}
    for name, values in labels.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(values.tolist()))
    federation = load_federation("cifar10", folder=str(tmp_path), clients=3, dirichlet=50.0)
    expected = pixels["test_batch"].reshape(4, 32, 32, 3) / np.float32(255)
    np.testing.assert_array_equal(federation.test_x, expected.astype(np.float32))
    np.testing.assert_array_equal(federation.test_y, labels["test_lables"])
    assert sum(len(y) for _, y in federation.clients) == 30
    (tmp_path / "train_lables.json").write_text("[1, 2]")
    with pytest.raises(FileFormatError, match="need a list of 30 labels"):
        load_federation("cifar10", folder=str(tmp_path), clients=2, dirichlet=50.0)
    (tmp_path / "data_batch_1.png").write_bytes(b"no image")
    with pytest.raises(FileFormatError, match="data_batch_1"):
        load_federation("cifar10", folder=str(tmp_path), clients=4, dirichlet=50.0)
