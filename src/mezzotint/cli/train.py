"""`mezzotint train`."""

from __future__ import annotations

import importlib
import json
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO, cast, final

import typer

import mezzotint as mz
from mezzotint.cli import common, console, messages, progress, tables
from mezzotint.cli.options import OUTPUT, AsJson, Overwrite, ProofOption, argument, option
from mezzotint.cli.train_run import EXAMPLE_RUN, Data, Method, RunFile, read_run
from mezzotint.core import brought_by
from mezzotint.core.arguments import Neighboring, check_choice
from mezzotint.core.errors import BudgetError, FileFormatError, ParameterError
from mezzotint.core.files import parse_object, read_text
from mezzotint.core.records import JsonObject, above, number, plain

if TYPE_CHECKING:
    from mezzotint.training.models import Task
    from mezzotint.training.noise import Noise
    from mezzotint.training.private import Settings as PrivateSettings
    from mezzotint.training.projection import Projection
    from mezzotint.training.trainer import Levels, Standing, Trainer

EXAMPLE = "mezzotint train run.toml --out model --json"

SIMULATED = " (simulation; not private)"
"""Beside an epsilon whose noise follows from a seed."""

RUN = "Run"

FAR = 30.0
"""Larger features were not scaled: standardized ones hardly ever exceed it, pixels never."""

File = Path | None


@final
@dataclass(frozen=True, kw_only=True)
class Place:
    """The folder of a run, and what is in it."""

    folder: Path

    @property
    def checkpoint(self) -> Path:
        return self.folder / "run.pt"

    @property
    def log(self) -> Path:
        return self.folder / "log.jsonl"

    @property
    def model(self) -> Path:
        return self.folder / "model.mz"

    @property
    def logged(self) -> list[JsonObject]:
        """The lines of the log; none where there is no log."""
        if not self.log.exists():
            return []
        lines = read_text(self.log).splitlines()
        return [parse_object(line, name=self.log.name) for line in lines]


def command(
    run: Annotated[File, argument("Run file; --example prints one.", metavar="RUN.TOML")] = None,
    changes: Annotated[
        list[str] | None,
        option(
            "Change a value, as in run.steps=3; repeatable.",
            "--set",
            metavar="KEY=VALUE",
            panel=RUN,
        ),
    ] = None,
    out: Annotated[
        File, option("Folder of the run: model.mz, log.jsonl, checkpoint.", panel=OUTPUT)
    ] = None,
    tensorboard: Annotated[
        File, option("Folder for event files: loss, accuracy, epsilon.", panel=OUTPUT)
    ] = None,
    proof: ProofOption = None,
    overwrite: Overwrite = False,
    example: Annotated[
        bool, option("Print a run file and nothing else.", "--example", panel=RUN)
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train a private model with few bits per weight, showing loss, accuracy and epsilon spent as
    it runs.

    The same command goes on with a run that was interrupted, from what is in --out.
    """
    if example:
        typer.echo(EXAMPLE_RUN, nl=False)
        return
    if run is None:
        raise ParameterError("run", None, "name a run file; --example prints one")
    described = read_run(run, changes or ())
    place = None
    if out is not None:
        place = Place(folder=out)
    outputs = Outputs(place=place, tensorboard=tensorboard, proof=proof)
    replaces = overwrite or outputs.are_of_the_run()
    common.refuse_outputs(".json", overwrite=replaces, proof=proof)
    with _warnings_as_lines():
        trainer = prepare(described, place, overwrite=overwrite)
        _refuse_without_steps(trainer, described, place)
        if trainer.taken >= described.run.steps:
            console.note(f"the run in {out} is finished: no step is left to take")
        last = _run(trainer, described, outputs, resumed=trainer.taken > 0)
        json_fields = finish(trainer, last, described, outputs)
        json_fields |= _proven(trainer, proof, overwrite=replaces)
    if place is not None and not any("claim" in entry for entry in place.logged[-1:]):
        with place.log.open("a", encoding="utf-8") as file:
            _line(file, json_fields)  # what mezzotint report quotes
    console.show(json_fields, as_json, lambda: [_summary(json_fields), json_fields["claim"]])
    if json_fields["caveat"] and not as_json:
        console.warn(json_fields["caveat"])


@final
@dataclass(frozen=True, kw_only=True)
class Outputs:
    """What a run writes."""

    place: Place | None
    tensorboard: Path | None
    proof: Path | None

    @property
    def names(self) -> list[str]:
        """Files beside the folder of the run."""
        if self.proof is None:
            return []
        return [str(self.proof.resolve())]

    def are_of_the_run(self) -> bool:
        """Whether the run in the folder has been told of these files: it may write them again."""
        if self.place is None or not self.place.log.exists():
            return False
        logged_names: set[str] = set()
        for entry in self.place.logged:
            logged_names.update(entry.get("outputs", []))
        return set(self.names) <= logged_names


def _proven(run: Trainer, proof: Path | None, *, overwrite: bool) -> JsonObject:
    """Writes the claim with its proof, if asked to; what changes about the claim."""
    claim = run.claim()
    if proof is None:
        return {}
    if claim is None or claim.seeded:
        remedy = "a run that is not private has no claim to prove"
        raise ParameterError("proof", str(proof), remedy)
    release = cast(mz.privacy.Release, claim.release)
    proved = common.write_proof(release, proof, overwrite=overwrite)
    return {
        "epsilon": proved.as_dict()["epsilon"],
        "certified": proved.certified,
        "claim": str(proved),
    }


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    from mezzotint.training.projection import TrainingWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", TrainingWarning)
        # At once: whoever reads that the settings are bad can stop the run.
        warnings.showwarning = lambda message, *_: console.warn(str(message))
        yield


def prepare(described: RunFile, place: Place | None, *, overwrite: bool) -> Trainer:
    """The trainer of a run, where its folder left off.

    What it says of the data is for the operator alone: no claim covers it (`Dataset`).
    """
    with messages.renamed(dict.fromkeys(("train_x", "train_y", "test_x", "test_y"), "data")):
        data = _data(described.data, described.budget.neighboring)
    if abs(data.train_x).max() > FAR:
        console.warn(
            "some features lie far from [-1, 1]: they dominate the clipped gradients, and little "
            "is learned from the others; scale all of them by public bounds (bounds read from "
            "private data are a release of their own)"
        )
    task = mz.training.models.task(
        described.model.name, shape=data.train_x.shape[1:], classes=data.classes
    )
    if described.method.master:
        _onto_master_weights(task, described)
    settings = mz.training.trainer.TrainingSettings(
        steps=described.run.steps,
        batch_size=described.run.batch_size,
        step_size=described.run.optimizer.learning_rate,
        averaging=described.run.averaging,
        optimizer=described.run.optimizer.kind,
        schedule=described.run.schedule,
        records_per_user=described.data.records_per_user,
    )
    _probe(task, data)
    with messages.renamed({"max_grad_norm": "clip_norm"}):
        run = mz.training.trainer.Trainer(
            data=data,
            task=task,
            settings=settings,
            private=_private_settings(described),
            levels=_levels(described, task),
        )
    if place is not None:
        _resume(run, described, place, overwrite=overwrite)
    return run


def _resume(run: Trainer, described: RunFile, place: Place, *, overwrite: bool) -> None:
    """Puts a run where its folder left off; a folder of anything else is refused."""
    folder = place.folder
    if folder.exists() and not folder.is_dir():
        raise ParameterError("out", str(folder), "exists, and is no folder")
    present: set[str] = set()
    if folder.is_dir():
        present = {path.name for path in folder.iterdir()}
    ledger = mz.training.trainer.ledger_path(place.checkpoint)
    if present and not present & {place.checkpoint.name, ledger.name, place.log.name}:
        raise ParameterError("out", str(folder), "exists, and holds no run; choose another folder")
    if overwrite or not place.checkpoint.exists():
        return
    with messages.renamed({"checkpoint": "out"}):
        mz.training.trainer.restore(run, place.checkpoint)
    lost = run.spent - run.taken
    if lost:
        end = "the run ends earlier"
        if described.budget.target_epsilon is None:
            end = "epsilon ends higher than planned"
        console.warn(f"the interruption lost {lost} step(s), which still count, so {end}")


def _onto_master_weights(task: Task, described: RunFile) -> None:
    method = described.method
    bound = method.bound
    if bound is None and described.model.kind in LINEAR:
        bound = LINEAR_BOUND
    mz.training.quantize_aware(task.module, bits=method.bits, bound=bound, q=method.code_share)


def _probe(task: Task, data: mz.datasets.Dataset) -> None:
    """Probes a module of the user's on made-up records of all classes: nothing is spent yet."""
    torch = mz.training.models.torch
    count = max(6, min(2 * data.classes, 20))
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(count, *data.train_x.shape[1:], generator=generator)
    labels = torch.arange(count) % data.classes

    def loss(module: Any, batch: Any) -> Any:
        return task.losses(module(batch[0]), batch[1]).sum()

    mz.training.check_records(task.module, loss, (features, labels), reduction="sum")


def _data(described: Data, neighboring: Neighboring) -> mz.datasets.Dataset:
    source = described.source
    path = Path(source)
    if path.suffix in (".csv", ".parquet"):
        if described.label is None:
            raise ParameterError("label", None, "name the column to predict, in [data]")
        return mz.datasets.table_file(
            path, label=described.label, users=described.users, neighboring=neighboring
        )
    remedy = "only tables (.csv, .parquet) have columns; leave it out"
    common.refuse_given(common.picked(described, "label", "users"), remedy)
    if source == "breast-cancer":
        return mz.datasets.breast_cancer()
    if not path.is_dir():
        remedy = (
            "give breast-cancer, a .csv or .parquet file, or a folder of IDX files or of images by "
            "class"
        )
        raise ParameterError("data", source, remedy)
    if any(path.glob("*-ubyte*")):
        return mz.datasets.idx_folder(source)
    return mz.datasets.image_folder(source, neighboring=neighboring)


LINEAR, LINEAR_BOUND = ("logreg", "svm", "softmax"), 0.3
"""Models whose weights begin at 0, and what bounds them unless a run says otherwise."""


def _private_settings(described: RunFile) -> PrivateSettings:
    """How gradients become private."""
    budget, method = described.budget, described.method
    target = None
    if budget.noise_multiplier is None and method.kind != "none":
        target = budget.target_epsilon
    return mz.training.private.Settings(
        delta=budget.delta,
        planned_steps=described.run.steps,
        target_epsilon=target,
        noise_multiplier=budget.noise_multiplier,
        noiseless=method.kind == "none",
        max_grad_norm=method.clip_norm,
        neighboring=budget.neighboring,
        noise=_noise(method.bands),
        seed=described.run.seed,
    )


def _noise(bands: int | str) -> Noise:
    if bands == 1:
        return mz.training.Fresh()
    return mz.training.Banded(cast('int | Literal["auto"]', bands))


def _levels(described: RunFile, task: Task) -> Levels | None:
    """What all weights are put onto after each step; None for floats and master weights."""
    method = described.method
    if method.master or method.kind not in ("proj-dp-sgd", "rqp"):
        return None
    return mz.training.trainer.Levels(
        projection=_projection(method), bounds=_bounds(described, task)
    )


def _projection(method: Method) -> Projection:
    if method.mechanism is not None:
        return mz.training.projection.projection_from(common.load_mechanism(Path(method.mechanism)))
    rounding = check_choice("rounding", method.rounding or "stochastic", ("stochastic", "nearest"))
    return mz.training.projection.projection(
        bits=method.bits,
        rounding=cast(Literal["stochastic", "nearest"], rounding),
        q=method.code_share,
    )


def _bounds(described: RunFile, task: Task) -> float | tuple[float, ...]:
    if described.method.bound is not None:
        return described.method.bound
    if described.model.kind in LINEAR:
        return LINEAR_BOUND
    # Twice the largest initial weight of each tensor: public, as the initial weights are.
    return tuple(
        mz.training.optimizers.derived_bound(parameter) for parameter in task.module.parameters()
    )


def _run(run: Trainer, described: RunFile, outputs: Outputs, *, resumed: bool) -> Standing:
    """Takes the steps; returns what was reported last, before an interruption where none is left."""
    place = outputs.place
    last = None
    if place is not None and resumed:
        last = _last_logged(run, place)
    taken = run.taken
    every = described.run.every or max(1, described.run.steps // 20)
    with ExitStack() as opened:
        reports = [opened.enter_context(_live(described.run.steps))]
        if place is not None:
            place.folder.mkdir(parents=True, exist_ok=True)
            reports.append(opened.enter_context(_lines(run, described, outputs, resumed=resumed)))
        if outputs.tensorboard is not None:
            reports.append(opened.enter_context(_scalars(outputs.tensorboard)))

        def tell(*_: float) -> None:
            for report in reports:
                report(run.last)

        checkpoint = None
        if place is not None:
            checkpoint = place.checkpoint
        target = described.budget.target_epsilon
        try:
            run.run(every=every, progress=tell, checkpoint=checkpoint, target_epsilon=target)
        except (KeyboardInterrupt, SystemExit):
            consequence = "nothing is kept without --out"
            if checkpoint is not None and checkpoint.exists():
                consequence = "the same command goes on"
            console.note(f"ended early; {consequence}")
            raise
        if run.stopped:
            console.warn(f"stopped: {run.stopped}")
    if run.stopped and not run.taken:  # another process took what was left
        raise _nothing_left(run, described)
    if run.taken > taken:
        return run.last
    return last or run.standing()


def _refuse_without_steps(run: Trainer, described: RunFile, place: Place | None) -> None:
    """Refuses a run whose budget allows no step, before a file is touched: its model would be the
    initial weights.
    """
    checkpoint = None
    if place is not None and mz.training.trainer.ledger_path(place.checkpoint).exists():
        checkpoint = place.checkpoint
    ledger = mz.training.trainer.StepLedger(run, checkpoint)
    target = described.budget.target_epsilon
    if not run.taken and not ledger.affordable(1, target_epsilon=target):
        raise _nothing_left(run, described)


def _nothing_left(run: Trainer, described: RunFile) -> BudgetError:
    return BudgetError(
        f"{run.spent} steps are spent and one more would exceed epsilon "
        f"{described.budget.target_epsilon}: no step of this model can be taken, and none is "
        "written; without --overwrite the model that is there goes on, and a higher target_epsilon "
        "allows steps"
    )


def _last_logged(run: Trainer, place: Place) -> Standing | None:
    """What the log says last of the steps that the checkpoint has.

    A run that was killed goes on from its checkpoint: later lines of the log may be about earlier
    steps. Its epsilon does not go down again, unless it has a seed (`StepLedger`).
    """
    last = None
    for entry in place.logged:
        try:
            if not 0 < entry.get("step", 0) <= run.taken:
                continue
            for field_name, value in entry.items():
                if isinstance(value, str):  # an infinity or NaN, which JSON lacks
                    entry[field_name] = float(value)
            last = mz.training.trainer.Standing(**entry)
        except (ValueError, TypeError):
            message = "holds a line that no run has written; restore it, or name another --out"
            raise FileFormatError(f"{place.log.name}: {message}") from None
    return last


@contextmanager
def _lines(
    run: Trainer, described: RunFile, outputs: Outputs, *, resumed: bool
) -> Iterator[Callable[[Standing], None]]:
    assert outputs.place is not None
    mode = "w"
    if resumed:
        mode = "a"
    with outputs.place.log.open(mode, encoding="utf-8") as file:
        if not (resumed and run.taken >= run.settings.steps):
            header: JsonObject = {
                "model": described.model.name,
                "data": run.data.name,
                "method": described.method.kind,
                **run.describe(),
            }
            header["learning_rate"] = header.pop("step_size")
            if outputs.names:
                header["outputs"] = outputs.names
            _line(file, header)
        yield lambda last: _line(file, asdict(last))


@contextmanager
def _scalars(folder: Path) -> Iterator[Callable[[Standing], None]]:
    """Event files that TensorBoard shows."""
    from mezzotint.privacy import claim as claims

    with brought_by("tensorboard"):
        board: Any = importlib.import_module("torch.utils.tensorboard")
    with board.SummaryWriter(str(folder)) as writer:

        def draw(last: Standing) -> None:
            # Whoever opens the page sees what kind of number epsilon is.
            epsilon_label = f"epsilon ({claims.basis('model')})"
            if last.seeded:
                epsilon_label = "epsilon (simulation, not private)"
            scalars = {"loss": last.loss, "accuracy/train": last.train_accuracy}
            scalars |= {"accuracy/test": last.test_accuracy, epsilon_label: last.epsilon}
            for label, value in scalars.items():
                if value is not None and math.isfinite(value):
                    writer.add_scalar(label, value, last.step)

        yield draw


def _line(file: TextIO, json_fields: JsonObject) -> None:
    file.write(json.dumps(plain(json_fields), allow_nan=False) + "\n")
    file.flush()  # a run that is killed leaves whole lines


@contextmanager
def _live(steps: int) -> Iterator[Callable[[Standing], None]]:
    from rich import progress as progress_bars

    from mezzotint.privacy import claim as claims

    columns = (
        progress_bars.BarColumn(),
        progress_bars.MofNCompleteColumn(),
        progress_bars.TimeRemainingColumn(),
    )
    with progress.live(*columns) as bars:
        bar = bars.add_task("training", total=steps)

        def show(last: Standing) -> None:
            epsilon = "none"
            if last.epsilon is not None:
                epsilon = f"{above(last.epsilon, 4)} ({claims.basis('model')})"
            if last.seeded:
                epsilon += SIMULATED
            accuracy = f"accuracy {last.test_accuracy:.2%}"
            description = f"loss {last.loss:.4f}  {accuracy}  epsilon {epsilon}"
            bars.update(bar, completed=last.step, description=description)

        # Through the bar's own console, which puts lines above the bar.
        former = warnings.showwarning
        warnings.showwarning = lambda message, *_: console.say(
            f"mezzotint: warning: {message}", on=bars.console
        )
        try:
            yield show
        finally:
            warnings.showwarning = former


def finish(run: Trainer, last: Standing, described: RunFile, outputs: Outputs) -> JsonObject:
    """Writes the model; says what was reached and what it cost."""
    claim, sentence = run.claim(), run.sentence()
    costs: JsonObject = {}
    cost_names = ["epsilon", "delta", "neighboring"]
    if claim is not None:
        costs = claim.as_dict()
        cost_names += ["observer", "trust", "certified"]
    packed = run.packed(bits=described.method.bits, note=_note(run, described, sentence))
    file_bytes = None
    folder = None
    if outputs.place is not None:
        file_bytes = packed.save(outputs.place.model, overwrite=True)
        folder = str(outputs.place.folder)
    return {
        "data": run.data.name,
        "model": described.model.name,
        **run.privacy_facts,
        "method": described.method.kind,
        "weights": _weights(described.method),
        **{field_name: costs.get(field_name) for field_name in cost_names},
        "steps": run.spent,
        **common.picked(run, "stopped", "sampling_rate"),
        **common.picked(last, "loss", "train_accuracy", "test_accuracy"),
        "packed_test_accuracy": run.packed_accuracy(packed),
        "bits": packed.bits,
        "model_bytes": packed.packed_bytes,
        "float32_bytes": packed.float_bytes,
        "seed": described.run.seed,
        "seeded": run.seeded,
        "claim": sentence,
        "caveat": run.data.note,
        "file_bytes": file_bytes,
        "out": folder,
    }


def _weights(method: Method) -> str:
    if method.master:
        return "master"
    if method.kind in ("proj-dp-sgd", "rqp"):
        return "levels"
    return "floats"


def _note(run: Trainer, described: RunFile, sentence: str) -> JsonObject:
    """What the packed model says of itself."""
    note: JsonObject = {
        "claim": sentence,
        "data": run.data.name,
        "model": described.model.name,
        "caveat": run.data.note,
    }
    if described.model.factory is None:  # modules of the user's are not in the package
        shape, classes = list(run.data.train_x.shape[1:]), run.data.classes
        note["architecture"] = {"model": described.model.kind, "shape": shape, "classes": classes}
    return note


def _summary(json_fields: JsonObject) -> tables.TerminalTable:
    from mezzotint.privacy import claim as claims

    private = ""
    epsilon = "none"
    if json_fields["epsilon"] is not None:
        private = (
            f"; epsilon {claims.basis(json_fields['observer'], certified=json_fields['certified'])}"
        )
        epsilon = json_fields["epsilon"]
        if not isinstance(epsilon, str):
            epsilon = above(epsilon)
    if json_fields["seeded"]:
        epsilon += SIMULATED
    cells = {
        "test accuracy": f"{json_fields['test_accuracy']:.2%}",
        "with packed weights": f"{json_fields['packed_test_accuracy']:.2%}",
        "epsilon": epsilon,
        "delta": number(json_fields["delta"]),
    }
    counts = {
        "steps": "steps",
        "bits": "bits",
        "bytes": "model_bytes",
        "float32 bytes": "float32_bytes",
    }
    cells |= {heading: str(json_fields[field_name]) for heading, field_name in counts.items()}
    title = f"{json_fields['model']} on {json_fields['data']}, {json_fields['method']}{private}"
    return tables.TerminalTable(cells, [tuple(cells.values())], left=(), title=title)
