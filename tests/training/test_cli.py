"""`mezzotint train`: one JSON object, whole log lines, resumption, and errors that name their remedy."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import typer
from pyarrow import csv, parquet

from mezzotint import ParameterError, datasets, families
from mezzotint.cli import train
from mezzotint.cli.application import run
from mezzotint.training import rqp
from mezzotint.training.packed import PackedModel
from tolerances import FEW
from training.flat import run_words

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")
pytest.importorskip("sklearn")

Invoke = Callable[..., Any]


@pytest.fixture
def invoke(capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory) -> Invoke:
    """Runs the verb in this process; returns what it printed as JSON, and standard error."""
    app = typer.Typer()
    app.command()(train.command)

    def call(*arguments: object) -> tuple[Any, str]:
        base = [
            "--data",
            "breast-cancer",
            "--steps",
            "12",
            "--batch-size",
            "20",
            "--every",
            "6",
            "--seed",
            "1",
            "--json",
        ]
        words = run_words(tmp_path_factory.mktemp("run"), *base, *arguments)
        app(args=words, standalone_mode=False)
        printed = capsys.readouterr()
        return json.loads(printed.out), printed.err

    return call


def test_a_run_with_its_own_noise_ends_at_its_budget(invoke: Invoke) -> None:
    given = ["--noise-multiplier", 1.5, "--delta", 1e-5, "--target-epsilon"]
    facts, told = invoke(*given, 1.0, "--steps", 300)
    taken = facts["steps"]
    assert 0 < taken < 300
    assert "would exceed epsilon 1.0" in told
    assert facts["epsilon"] <= 1 < rqp_epsilon(taken + 1)
    whole, told = invoke(*given, 100.0)
    assert whole["steps"] == 12
    assert "exceed" not in told


def rqp_epsilon(steps: int) -> float:
    """By the accountant alone; batches of 20 of the 455 records that train."""
    return rqp.epsilon(1.5, steps=steps, sampling_rate=20 / 455, delta=1e-5).epsilon


def test_dp_sgd_to_a_target(invoke: Invoke, tmp_path: Path) -> None:
    facts, _ = invoke(
        "--target-epsilon", 2, "--delta", 1e-5, "--averaging", 0.5, "--out", tmp_path / "model",
        "--every", 5,
    )  # fmt: skip
    assert 1.99 < facts["epsilon"] <= 2
    assert facts["neighboring"] == "add_or_remove_one"
    assert facts["test_accuracy"] > 0.85
    assert facts["model_bytes"] == 16
    assert facts["float32_bytes"] == 124
    assert "differential privacy" in facts["claim"]
    assert facts["claim"].startswith("Simulation; not private")  # as the run is seeded
    assert facts["seeded"] is True
    assert "not cover" in facts["caveat"]
    model = PackedModel.load(tmp_path / "model" / "model.mz")
    assert model.weights == 31
    assert facts["file_bytes"] == (tmp_path / "model" / "model.mz").stat().st_size > 16
    assert model.note["claim"] == facts["claim"]
    lines = [
        json.loads(line)
        for line in (tmp_path / "model" / "log.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert [line.get("step") for line in lines] == [None, 5, 10, 12, None]
    assert lines[1]["epsilon"] < lines[3]["epsilon"] == facts["epsilon"]
    assert lines[-1]["claim"] == facts["claim"]
    assert all(line["seeded"] for line in lines[1:])


@pytest.mark.slow
def test_random_replacement_warns_and_needs_less_noise(invoke: Invoke) -> None:
    plain, _ = invoke("--method", "proj-dp-sgd", "--target-epsilon", 2)
    facts, err = invoke(
        "--method", "rqp", "--q", 0.9, "--projection", "nearest", "--target-epsilon", 2
    )
    assert facts["kappa"] == pytest.approx(0.936, abs=1e-3)  # three printed decimals
    # Kappa's search.
    assert facts["noise_multiplier"] == pytest.approx(
        plain["noise_multiplier"] * facts["kappa"], rel=1e-6
    )
    assert facts["epsilon"] <= 2
    assert "warning" in err
    assert "kappa" in facts["claim"]


def test_any_table_can_replace_randomized_response(invoke: Invoke, tmp_path: Path) -> None:
    families.k_randomized_response(lower=-1.0, upper=1.0, levels=4, epsilon=4.0).save(
        tmp_path / "m.json"
    )
    facts, _ = invoke(
        "--method", "rqp", "--mechanism", tmp_path / "m.json", "--target-epsilon", 2, "--bits", 2
    )
    assert 0.5 < facts["kappa"] < 1
    assert facts["bits"] == 2
    assert 1.99 < facts["epsilon"] <= 2
    assert f"kappa {facts['kappa']:.6g}" in facts["claim"]


def test_nothing_private(invoke: Invoke) -> None:
    facts, _ = invoke("--method", "none", "--model", "svm")
    assert facts["epsilon"] is None
    assert facts["claim"] == "No privacy is claimed."


def test_the_same_command_goes_on_and_finishes(invoke: Invoke, tmp_path: Path) -> None:
    whole, _ = invoke("--noise-multiplier", 1)
    place = tmp_path / "model"
    first, _ = invoke("--noise-multiplier", 1, "--out", place)
    # As left by a kill between publishing and the last line of the log.
    log = (place / "log.jsonl").read_text().splitlines(keepends=True)
    (place / "log.jsonl").write_text("".join(log[:-1]))
    again, remarks = invoke("--noise-multiplier", 1, "--out", place)
    assert again == first
    assert f"the run in {place} is finished" in remarks
    assert (place / "log.jsonl").read_text().splitlines(keepends=True) == log
    assert again["test_accuracy"] == whole["test_accuracy"]
    assert again["epsilon"] == whole["epsilon"]
    # Steps that the checkpoint lacks were lost with a killed process.
    lost = json.loads(log[-2])
    lost |= {"step": lost["step"] + 1, "test_accuracy": 0.0}
    (place / "log.jsonl").write_text("".join([*log[:-1], json.dumps(lost) + "\n"]))
    assert invoke("--noise-multiplier", 1, "--out", place)[0] == first
    with pytest.raises(
        ParameterError,
        match=r"other settings .*noise_multiplier: 1.0 there, 2.0 here.*another place",
    ):
        invoke("--noise-multiplier", 2, "--out", place)


def test_files_of_a_run_are_written_again_by_it_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    options = ["--data", "breast-cancer", "--steps", 3, "--noise-multiplier", 1]
    options += ["--out", tmp_path / "model"]
    command = ["train", *run_words(tmp_path, *options), "--json", "--proof"]

    def call() -> Any:
        assert run([*command, str(tmp_path / "claim.json")]) == 0
        return json.loads(capsys.readouterr().out)

    first = call()
    # As left by a kill between the proof and the last line of the log.
    log = tmp_path / "model" / "log.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[:-1]))
    assert call() == first
    assert log.read_text() == "".join(lines)
    (tmp_path / "mine.json").write_bytes(b"mine")
    assert run([*command, str(tmp_path / "mine.json")]) == 2
    assert "exists already" in capsys.readouterr().err
    assert (tmp_path / "mine.json").read_bytes() == b"mine"


@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_is_no_run_is_refused_before_the_work(
    invoke: Invoke, tmp_path: Path, what: str
) -> None:
    place = tmp_path / "model"
    if what == "folder":
        place.mkdir()
        place = tmp_path
    else:
        place.write_bytes(b"mine")
    with pytest.raises(ParameterError, match=r"out=.*exists, and"):
        invoke("--method", "none", "--out", place)
    if what == "file":
        assert place.read_bytes() == b"mine"


def test_a_run_whose_budget_is_spent_writes_nothing_over_a_trained_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--data", "breast-cancer", "--steps", 6, "--batch-size", 20, "--target-epsilon", 1]
    place = tmp_path / "model"
    words = ["train", *run_words(tmp_path, *given), "--out", str(place)]
    assert run(words) == 0
    before = {path: path.read_bytes() for path in place.iterdir()}
    capsys.readouterr()
    assert run([*words, "--overwrite"]) == 2
    said = capsys.readouterr().err
    assert "6 steps are spent and one more would exceed epsilon 1.0" in said
    assert "without --overwrite the model that is there goes on" in said
    assert {path: path.read_bytes() for path in place.iterdir()} == before
    # What the message advises: the trained model is written again.
    (place / "model.mz").unlink()
    assert run(words) == 0
    assert {path: path.read_bytes() for path in place.iterdir()} == before


def test_a_budget_below_one_step_trains_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--data", "breast-cancer", "--noise-multiplier", 1, "--target-epsilon", 0.001]
    place = tmp_path / "model"
    words = ["train", *run_words(tmp_path, *given), "--out", str(place)]
    assert run(words) == 2
    assert "0 steps are spent and one more would exceed epsilon 0.001" in capsys.readouterr().err
    assert not place.exists()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [None, 3])
def test_a_killed_run_goes_on(tmp_path: Path, seed: int | None) -> None:
    place = tmp_path / "model"
    log = place / "log.jsonl"
    given = [
        "--data", "breast-cancer", "--noise-multiplier", 1, "--delta", 1e-5, "--steps", 300,
        "--batch-size", 10, "--every", 10, *([] if seed is None else ["--seed", seed]),
    ]  # fmt: skip
    start = [sys.executable, "-c", "from mezzotint.cli import main; main()", "train"]
    command = [*start, *run_words(tmp_path, *given), "--json"]
    with subprocess.Popen(
        [*command, "--out", str(place)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as started:
        while started.poll() is None and (
            not log.exists() or log.read_text(encoding="utf-8").count("\n") < 10
        ):
            time.sleep(0.01)
        started.kill()
    ledger = (place / "run.pt.ledger.jsonl").read_text(encoding="utf-8")
    reserved = json.loads(ledger[: ledger.rfind("\n")].splitlines()[-1])["reserved"]
    assert 30 <= reserved < 300
    done = subprocess.run(
        [*command, "--out", str(place)],
        capture_output=True,
        check=True,
    )
    facts = json.loads(done.stdout)
    steps = [
        line["step"]
        for line in map(json.loads, log.read_text(encoding="utf-8").splitlines())
        if "step" in line
    ]
    assert steps == sorted(steps)
    assert steps[-1] == 300
    if seed is None:
        # Steps that were reserved and lost are paid for; at most one block of them.
        lost = facts["steps"] - 300
        assert 0 <= lost <= 10
        assert (f"the interruption lost {lost} step(s)" in done.stderr.decode()) == (lost > 0)
    else:
        whole = subprocess.run(
            [*command, "--out", str(tmp_path / "whole")], capture_output=True, check=True
        )
        assert {**json.loads(whole.stdout), "out": facts["out"]} == facts


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--method", "magic"], r"method\.kind=magic"),
        ([], "target_epsilon=None"),
        (["--method", "none", "--model", "cnn"], "model=cnn"),
        (["--method", "none", "--data", "nowhere"], "data=nowhere"),
        (["--method", "none", "--bits", "0"], "bits=0"),
        # Keys that the method would ignore.
        (["--method", "none", "--target-epsilon", "1"], "target_epsilon=1"),
        (
            ["--target-epsilon", "1", "--q", "0.9"],
            r"method\.q=0\.9: does not apply to dp-sgd, only to rqp",
        ),
        (["--target-epsilon", "1", "--mechanism", "m.json"], r"method\.mechanism=m\.json"),
        (["--target-epsilon", "1", "--weights", "levels"], r"method\.weights=levels"),
        (
            ["--method", "rqp", "--target-epsilon", "1", "--mechanism", "m.json", "--q", "0.9"],
            r"q=0\.9",
        ),
        (["--target-epsilon", "nan"], "target_epsilon=nan"),
        (["--target-epsilon", "inf"], "target_epsilon=inf"),
        (["--target-epsilon", "0"], "target_epsilon=0"),
        (["--target-epsilon", "one"], r"budget\.target_epsilon=one"),
        (
            ["--target-epsilon", "1", "--set", "run.stepz=3"],
            r"run\.stepz=3: no such key; there are steps",
        ),
        (["--target-epsilon", "1", "--set", "steps"], "set=steps: write table"),
    ],
)
def test_bad_input(invoke: Invoke, arguments: list[str], named: str) -> None:
    with pytest.raises(ParameterError, match=named):
        invoke(*arguments)


@pytest.mark.parametrize("method", ["dp-sgd", "proj-dp-sgd", "rqp"])
def test_master_weights_of_any_method_claim_kappa_1(
    invoke: Invoke, tmp_path: Path, method: str
) -> None:
    facts, _ = invoke(
        "--method", method, "--weights", "master", "--bits", 2, "--target-epsilon", 2, "--steps", 60,
        "--out", tmp_path / "model",
    )  # fmt: skip
    assert facts["weights"] == "master"
    assert "kappa" not in facts["claim"]
    assert 1.99 < facts["epsilon"] <= 2
    assert facts["bits"] == 2
    # Two bits cost this problem a few points of accuracy; a constant answer would cost thirty.
    assert facts["packed_test_accuracy"] == pytest.approx(facts["test_accuracy"], abs=0.1)
    assert facts["test_accuracy"] > 0.8
    packed = PackedModel.load(tmp_path / "model" / "model.mz")
    assert packed.to_module()(torch.zeros(2, 30)).shape == (2, 1)


def test_the_example_is_a_run_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "--example"]) == 0
    (tmp_path / "run.toml").write_text(capsys.readouterr().out)
    assert run(["train", str(tmp_path / "run.toml"), "--set", "run.steps=4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 4
    assert run(["train", str(tmp_path / "absent.toml")]) == 2
    assert "--example prints one" in capsys.readouterr().err
    (tmp_path / "run.toml").write_text("data = {")
    assert run(["train", str(tmp_path / "run.toml")]) == 2
    assert "not a run file" in capsys.readouterr().err


NET = """
import torch


class Net(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Flatten(), torch.nn.Linear(INPUTS, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 2))


def wide():
    return torch.nn.Linear(INPUTS, 3)


def narrow():
    return torch.nn.Linear(INPUTS - 1, 2)


def asking(inputs):
    return torch.nn.Linear(inputs, 2)


class Two(torch.nn.Linear):
    def __init__(self):
        super().__init__(INPUTS, 2)

    def forward(self, x):
        return super().forward(x), x


def tokens():
    return torch.nn.Embedding(INPUTS, 2)


mixed = lambda: torch.nn.Sequential(torch.nn.Linear(INPUTS, 2), torch.nn.BatchNorm1d(2))
number = 3
"""


@pytest.mark.parametrize("ending", ["csv", pytest.param("parquet", marks=pytest.mark.slow)])
def test_tables_modules_of_one_s_own_and_other_optimizers(
    invoke: Invoke, tmp_path: Path, ending: str
) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 300)
    columns = {f"x{i}": rng.normal(size=300) + 2 * labels for i in range(3)}
    table = pa.table({**columns, "kind": np.where(labels == 1, "yes", "no")})
    file = tmp_path / f"data.{ending}"
    (csv.write_csv if ending == "csv" else parquet.write_table)(table, file)
    (tmp_path / "net.py").write_text(NET.replace("INPUTS", "3"))
    facts, _ = invoke(
        "--data", file, "--label", "kind", "--model", f"{tmp_path}/net.py:Net", "--target-epsilon", 3,
        "--optimizer", "adam", "--schedule", "cosine", "--step-size", 0.1,
        "--tensorboard", tmp_path / "board", "--out", tmp_path / "model",
        "--steps", 30, "--every", 10,
    )  # fmt: skip
    assert facts["test_accuracy"] > 0.85
    assert facts["packed_test_accuracy"] > 0.85
    assert 2.99 < facts["epsilon"] <= 3
    trained = len(datasets.table_file(file, label="kind").train_x)
    assert facts["sampling_rate"] == pytest.approx(20 / trained, rel=FEW)
    assert "names of the 2 classes" in facts["caveat"]
    with pytest.raises(ParameterError, match="how it is built"):
        PackedModel.load(tmp_path / "model" / "model.mz").to_module()
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    seen = events.EventAccumulator(str(tmp_path / "board")).Reload()
    assert [event.step for event in seen.Scalars("accuracy/test")] == [10, 20, 30]
    (spent,) = [name for name in seen.Tags()["scalars"] if name.startswith("epsilon")]
    assert "not private" in spent
    assert seen.Scalars(spent)[-1].value == pytest.approx(
        facts["epsilon"], rel=1e-6
    )  # TensorBoard keeps 32 bits


def test_images_in_folders(invoke: Invoke, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for name, level in (("dark", 60), ("light", 180)):
        (tmp_path / "set" / name).mkdir(parents=True)
        for i in range(60):
            pixels = np.clip(rng.normal(level, 30, size=(6, 5)), 0, 255).astype(np.uint8)
            image.fromarray(pixels).save(tmp_path / "set" / name / f"{i:03}.png")
    facts, _ = invoke(
        "--data",
        tmp_path / "set",
        "--model",
        "softmax",
        "--noise-multiplier",
        1,
        "--optimizer",
        "momentum",
    )
    assert facts["test_accuracy"] > 0.9
    assert facts["data"] == "set"


@pytest.mark.parametrize(
    ("model", "named"),
    [
        ("gone.py:Net", "no such file"),
        ("net.py:Nothing", "nothing to call"),
        ("net.py:number", "nothing to call"),
        ("net.py:wide", r"not \(2, 2\)"),
        ("net.py:narrow", r"model=.*have shape \(30,\), which it does not take: mat1 and mat2"),
        ("net.py:asking", "without arguments"),
        ("net.py:Two", r"gave tuple, not \(2, 2\)"),
        ("net.py:tokens", r"model=.*does not take"),
        ("net.py:mixed", "ModuleValidator"),
        ("net.py:torch.nn", "nothing to call"),
    ],
)
def test_modules_that_do_not_fit(invoke: Invoke, tmp_path: Path, model: str, named: str) -> None:
    (tmp_path / "net.py").write_text(NET.replace("INPUTS", "30"))
    given = ["--noise-multiplier", 1, "--model", f"{tmp_path}/{model}"]
    with pytest.raises(ParameterError, match=named):
        invoke(*given, "--out", tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("labels", "values", "named"),
    [
        ([1.5, float("nan")] * 20, range(40), "label=kind: some rows hold no finite number"),
        (list(range(40)), range(40), "label=kind: it has 40 values in 40 rows"),
        ([1] * 40, range(40), "train_y=1|data=1"),
        ([0, 1] * 20, [float("nan"), *range(39)], "data=not finite"),
    ],
    ids=["no number", "not classes", "one class", "no feature"],
)
def test_tables_that_nothing_is_learned_from(
    invoke: Invoke, tmp_path: Path, labels: list[float], values: Any, named: str
) -> None:
    file = tmp_path / "data.parquet"
    parquet.write_table(pa.table({"x": [float(x) for x in values], "kind": labels}), file)
    given = ["--data", file, "--label", "kind", "--model", "softmax", "--noise-multiplier", 1]
    with pytest.raises(ParameterError, match=named):
        invoke(*given, "--out", tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_options_that_data_have_no_use_for(invoke: Invoke, tmp_path: Path) -> None:
    for arguments, named in (
        (["--label", "x"], "label=x"),
        (["--data", tmp_path / "t.csv"], "label=None"),
        (["--optimizer", "lion"], r"optimizer\.kind=lion"),
        (["--schedule", "steps"], r"schedule=steps"),
    ):
        with pytest.raises(ParameterError, match=named):
            invoke("--method", "none", *arguments)


def test_around_adam_replaced_codes_save_no_noise(invoke: Invoke) -> None:
    settings = ["--method", "rqp", "--q", 0.9, "--target-epsilon", 2]
    plain, _ = invoke(*settings)
    adam, _ = invoke(*settings, "--optimizer", "adam", "--step-size", 0.05)
    assert plain["noise_multiplier"] < 0.95 * adam["noise_multiplier"]
    assert 1.99 < adam["epsilon"] <= 2
    assert adam["stopped"] == ""
