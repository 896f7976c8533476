"""Sums and noise in plain torch, as on a GPU: bit for bit what the compiled kernels make of the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mezzotint import training
from mezzotint.core import gpu
from mezzotint.datasets import Dataset
from mezzotint.vectors.compiled import draw
from mezzotint.vectors.gaussian import RoundedGaussian, quantiles
from mezzotint.vectors.octaves import UNDECIDED

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")
clipped = pytest.importorskip("mezzotint.training.clipped")
optimizers = pytest.importorskip("mezzotint.training.optimizers")

from mezzotint.training.clipped import Gradients  # noqa: E402

F32 = np.float32
CPU = torch.device("cpu")


@pytest.mark.parametrize("sigma", [0.3, 72_000.0, 2.0**28])
def test_words_lead_to_the_draws_of_the_kernel(sigma: float) -> None:
    words = np.random.default_rng(1).integers(0, 2**64, 200_000, dtype=np.uint64)
    words[:8] = [0, 2**38, 2**38 - 1, 2**63 - 1, 2**63, 2**64 - 1, 2**62, 2**63 + 1]
    law, expected = RoundedGaussian(sigma=sigma), np.empty(words.size, dtype=np.int64)
    draw(words, np.zeros(1), quantiles(), sigma, law.margin, expected)
    found = clipped.decide(
        torch.from_numpy(words.view(np.int64)), torch.from_numpy(quantiles()), law
    )
    np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.parametrize("margin", [None, 0.3])
def test_each_coordinate_takes_its_own_word(
    margin: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With a wide margin most draws look closer, and come to the same.
    monkeypatch.setattr(gpu, "CHUNK", 64)
    law, key, size = RoundedGaussian(sigma=1000.0), bytes(range(32)), 300
    words = (
        gpu.halves(gpu.key_on(key, CPU), 0, 38)
        .contiguous()
        .view(torch.int64)
        .flatten()[:size]
        .numpy()
    )
    expected = np.empty(size, dtype=np.int64)
    assert (
        draw(words.view(np.uint64), np.zeros(1), quantiles(), law.sigma, law.margin, expected) == 0
    )
    if margin is not None:
        monkeypatch.setattr(RoundedGaussian, "margin", property(lambda self: margin))
    found = clipped.rounded_gaussian(law, key, size, CPU)
    assert (found != UNDECIDED).all()
    np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.parametrize("coordinates", [32, 10**6])
def test_sums_are_those_of_the_kernel(coordinates: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    shapes = ((9, 3), (5, 1))
    arrays = [
        (rng.standard_t(1, (7, w)).astype(F32), rng.normal(size=(7, r)).astype(F32))
        for w, r in shapes
    ]
    arrays[0][0][2, 3], arrays[1][0][4, 1], arrays[0][1][5, 0] = np.nan, np.inf, 3e38
    sums = clipped.ClippedSums(clip_norm=0.5, coordinates=32 if coordinates == 32 else coordinates)
    kernel = clipped.ClippedSums(clip_norm=0.5, coordinates=32)
    monkeypatch.setattr(clipped, "AT_ONCE", 60)  # records in groups, of two and of twelve
    if coordinates > 32:  # the finer grid, on as few coordinates
        monkeypatch.setattr(clipped.ClippedSums, "units", property(lambda self: 2**20))
    given = [Gradients(rows=rows, gains=gains) for rows, gains in arrays]
    pairs = [(torch.from_numpy(gains), torch.from_numpy(rows)) for rows, gains in arrays]
    factors = kernel.factors(given)
    expected, squares = kernel._added(given, factors)
    found, also = clipped._added(pairs, sums, torch.from_numpy(factors))
    np.testing.assert_array_equal(found.numpy(), expected)
    np.testing.assert_array_equal(also.numpy(), squares)
    total, left_out = clipped.clipped_sum(pairs, sums)
    assert left_out == kernel(given)[1] == 2
    # Norms are summed in another order: a factor may differ in its last bit, and an integer by one for each record.
    assert np.abs(total.numpy() - expected).max() <= 7 * max(1, 2.0**-22 * sums.units)


@pytest.mark.parametrize(("share", "survivors"), [(1 - 2.0**-10, 8), (0.25, 0)])
def test_floats_that_lie_about_the_norm_change_nothing(
    share: float, survivors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = torch.from_numpy(np.random.default_rng(3).normal(size=(8, 20)).astype(F32))
    sums, pairs = clipped.ClippedSums(clip_norm=0.1, coordinates=20), [(torch.ones(8, 1), rows)]
    monkeypatch.setattr(clipped, "_SCALED_NORM", clipped._SCALED_NORM / share**0.5)
    seen: list[Any] = []
    added = clipped._added
    monkeypatch.setattr(clipped, "_added", lambda *given: seen.append(added(*given)) or seen[-1])
    _, left_out = clipped.clipped_sum(pairs, sums)
    assert left_out == 8 - survivors
    assert len(seen) > 1
    assert seen[-1][1].max() <= sums.units**2


@pytest.mark.parametrize("bits", [None, 4])
def test_a_script_on_a_device(
    blobs: Dataset, bits: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizers, "GPU", ("cpu",))
    torch.manual_seed(3)
    module = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    records = torch.utils.data.TensorDataset(
        torch.from_numpy(blobs.train_x), torch.from_numpy(blobs.train_y)
    )
    made, optimizer, loader, accountant = training.make_private(
        module, torch.optim.SGD(module.parameters(), lr=0.5), torch.utils.data.DataLoader(records, batch_size=50),
        noise_multiplier=1.0, delta=1e-5, bits=bits, seed=1,
    )  # fmt: skip
    for _ in range(4):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.softplus(-made(x).squeeze(1) * (2 * y - 1)).mean().backward()
            optimizer.step()
            # What is released stands on the grid of the clip norm, divided by the batch.
            for parameter in module.parameters():
                units = parameter.grad.double() * 50 * 2**16
                # Eight roundings of 32-bit floats, 2^-24 of the largest each.
                assert (units - units.round()).abs().max() < 2.0**-7 * units.abs().max().clamp(
                    min=1
                ) / 2**14
    assert len(accountant) == 16
    with torch.no_grad():
        assert (
            (module(torch.from_numpy(blobs.test_x)).squeeze(1) > 0).numpy() == blobs.test_y
        ).mean() > 0.9
