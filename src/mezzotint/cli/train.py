"""`mezzotint train`."""

from __future__ import annotations

import importlib
import json
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO, cast, final

import typer

import mezzotint as mz
from mezzotint.cli import common, console, messages, progress, tables
from mezzotint.cli.options import OUTPUT, AsJson, Overwrite, ProofOption, argument, option
from mezzotint.cli.runfile import Section, read_document
from mezzotint.core import brought_by
from mezzotint.core.arguments import Neighboring, check_choice, check_count
from mezzotint.core.errors import BudgetError, ParameterError
from mezzotint.core.files import parse_json, parse_object, read_text, replacing
from mezzotint.core.records import JsonObject, above, number, plain

if TYPE_CHECKING:
    from mezzotint.training.models import Task
    from mezzotint.training.noise import Noise
    from mezzotint.training.private import Settings as PrivateSettings
    from mezzotint.training.projection import Projection
    from mezzotint.training.trainer import Levels, Standing, Trainer

EXAMPLE = "mezzotint train run.toml --out model --json"

EXAMPLE_RUN = """\
data = "breast-cancer"                # or {file="t.csv", label="ill", users="person", records_per_user=2}, {folder="mnist"}
model = {kind="logreg"}               # svm, softmax, cnn, transformer, or {kind="module", factory="net.py:Net"}
run = {steps=100, batch_size=32, optimizer={kind="sgd", learning_rate=1.0}}

[budget]                              # target_epsilon, or noise_multiplier, or both: the run then ends at its target
target_epsilon = 1.0
delta = 1e-6

[method]                              # none, dp-sgd, proj-dp-sgd, rqp
kind = "dp-sgd"
clip_norm = 0.45
"""

SIMULATED = " (simulation; not private)"
"""Beside an epsilon whose noise follows from a seed."""

RUN = "Run"

PLAIN_KEYS = {
    "data": "name",
    "model": "kind",
    "run.optimizer": "kind",
    "method": "kind",
    "method.noise": "kind",
}
"""Tables that may be written as one value, and the key that it stands for."""

METHODS: dict[str, tuple[str, ...]] = {
    "none": (),
    "dp-sgd": ("noise", "weights"),
    "proj-dp-sgd": ("noise", "rounding", "bound", "weights"),
    "rqp": ("rounding", "bound", "weights", "q", "mechanism"),
}
"""Keys of a method beside its kind, clip norm and bits."""

OPTIMIZERS, SCHEDULES = ("sgd", "momentum", "adam"), ("constant", "linear", "cosine")

MODELS = ("logreg", "svm", "softmax", "cnn", "transformer")

DEFAULT_CODE_SHARE = 0.99
"""Probability to keep a code under random replacement."""

FAR = 30.0
"""Larger features were not scaled: standardized ones hardly ever exceed it, pixels never."""

File = Path | None


@final
@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a run may cost: `[budget]`."""

    target_epsilon: float | None
    noise_multiplier: float | None
    delta: float
    neighboring: Neighboring | None


@final
@dataclass(frozen=True, kw_only=True)
class Chosen:
    """How gradients become private: `[method]`."""

    kind: str
    clip_norm: float
    bits: int
    bands: int | Literal["auto"]
    rounding: str | None
    bound: float | None
    master: bool
    q: float | None
    mechanism: Path | None

    @property
    def code_share(self) -> float:
        """Probability to keep a code: 1 but for random replacement."""
        if self.kind != "rqp":
            return 1.0
        if self.q is None:
            return DEFAULT_CODE_SHARE
        return self.q


@final
@dataclass(frozen=True, kw_only=True)
class RunFile:
    """A run, as its file describes it."""

    data: str
    label: str | None
    users: str | None
    records_per_user: int | None
    model: str
    steps: int
    batch_size: int
    step_size: float
    optimizer: str
    schedule: str
    averaging: float
    seed: int | None
    every: int
    budget: Budget
    method: Chosen

    @property
    def neighboring(self) -> Neighboring:
        """The relation of the claim."""
        return self.budget.neighboring or "add_or_remove_one"


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
    plot: Annotated[File, option("Plot accuracy against epsilon (.png).", panel=OUTPUT)] = None,
    overwrite: Overwrite = False,
    example: Annotated[
        bool, option("Print a run file and nothing else.", "--example", panel=RUN)
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train a private model with few bits per weight, showing loss, accuracy and epsilon spent as it runs.

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
    outputs = Outputs(place=place, tensorboard=tensorboard, proof=proof, plot=plot)
    replaces = overwrite or outputs.are_of_the_run()
    common.refuse_outputs(".png", overwrite=replaces, plot=plot)
    common.refuse_outputs(".json", overwrite=replaces, proof=proof)
    with _warnings_as_lines():
        trainer = prepare(described, place, overwrite=overwrite)
        _refuse_without_steps(trainer, described, place)
        if trainer.taken >= described.steps:
            console.note(f"the run in {out} is finished: no step is left to take")
        history = _run(trainer, described, outputs, resumed=trainer.taken > 0)
        facts = finish(trainer, history, described, outputs)
        facts |= _proven(trainer, proof, overwrite=replaces)
    if place is not None and _unfinished(place):
        with place.log.open("a", encoding="utf-8") as file:
            _line(file, facts)  # what mezzotint report quotes
    console.show(facts, as_json, lambda: [_summary(facts), facts["claim"]])
    if facts["caveat"] and not as_json:
        console.warn(facts["caveat"])


@final
@dataclass(frozen=True, kw_only=True)
class Outputs:
    """What a run writes."""

    place: Place | None
    tensorboard: Path | None
    proof: Path | None
    plot: Path | None

    @property
    def names(self) -> list[str]:
        """Files beside the folder of the run."""
        return [str(file.resolve()) for file in (self.proof, self.plot) if file is not None]

    def are_of_the_run(self) -> bool:
        """Whether the run in the folder has been told of these files: it may write them again."""
        if self.place is None or not self.place.log.exists():
            return False
        logged_names: set[str] = set()
        for line in read_text(self.place.log).splitlines():
            entry = parse_object(line, name=self.place.log.name)
            logged_names.update(entry.get("outputs", []))
        return set(self.names) <= logged_names


def read_run(path: Path, changes: Sequence[str]) -> RunFile:
    """Reads a run file.

    Raises:
        ParameterError: a key that has no use here, a value of another kind, what is missing.
    """
    document = Section("", read_document(path, changes, verb="train", plain_keys=PLAIN_KEYS))
    data = document.section("data", plain="name")
    model = document.section("model", plain="kind")
    run = document.section("run")
    optimizer = run.section("optimizer", plain="kind")
    users = data.take("users", str)
    described = RunFile(
        data=_data_name(data),
        label=data.take("label", str),
        users=users,
        records_per_user=data.take("records_per_user", int),
        model=_model_name(model),
        steps=run.take("steps", int, 100),
        batch_size=run.take("batch_size", int, 32),
        step_size=optimizer.take("learning_rate", float, 1.0),
        optimizer=optimizer.choose("kind", OPTIMIZERS, "sgd"),
        schedule=run.choose("schedule", SCHEDULES, "constant"),
        averaging=run.take("averaging", float, 0.0),
        seed=run.take("seed", int),
        every=check_count("every", run.take("every", int, 0), least=0),
        budget=_budget(document.section("budget")),
        method=_method(document.section("method", plain="kind"), users=users is not None),
    )
    for section in (optimizer, run, model, data, document):
        section.finish()
    _check(described)
    return described


def _data_name(data: Section) -> str:
    names = [data.take(key, str) for key in ("name", "file", "folder")]
    named = [name for name in names if name is not None]
    if len(named) != 1:
        remedy = 'give data = "breast-cancer", {file="t.csv", label="column"} or {folder="images"}'
        raise ParameterError("data", named or None, remedy)
    return named[0]


def _model_name(model: Section) -> str:
    kind = model.choose("kind", (*MODELS, "module"), "logreg")
    factory = model.take("factory", str)
    if (kind == "module") != (factory is not None):
        remedy = 'write {kind="module", factory="net.py:Net"} for a module of your own'
        raise ParameterError("model", factory or kind, remedy)
    return factory or kind


def _budget(budget: Section) -> Budget:
    read = Budget(
        target_epsilon=budget.take("target_epsilon", float),
        noise_multiplier=budget.take("noise_multiplier", float),
        delta=budget.take("delta", float, 1e-6),
        neighboring=budget.take("neighboring", str),
    )
    budget.finish()
    return read


def _method(method: Section, *, users: bool) -> Chosen:
    kind = method.choose("kind", tuple(METHODS), "dp-sgd")
    keys = METHODS[kind]
    for key in ("noise", "rounding", "bound", "weights", "q", "mechanism"):
        if key in method and key not in keys:
            taking_methods = [name for name, method_keys in METHODS.items() if key in method_keys]
            takers = ", ".join(taking_methods)
            remedy = f"does not apply to {kind}, only to {takers}"
            raise ParameterError(method.parameter(key), method.take_any(key), remedy)
    file = method.take("mechanism", str)
    mechanism = None
    if file is not None:
        mechanism = Path(file)
    plain = "levels"
    if kind in ("none", "dp-sgd"):
        plain = "floats"
    chosen = Chosen(
        kind=kind,
        clip_norm=method.take("clip_norm", float, 0.45),
        bits=check_count("bits", method.take("bits", int, 4), most=8),
        bands=_bands(method.section("noise", plain="kind"), users=users),
        rounding=method.take("rounding", str),
        bound=method.take("bound", float),
        master=method.choose("weights", (plain, "master"), plain) == "master",
        q=method.take("q", float),
        mechanism=mechanism,
    )
    method.finish()
    return chosen


def _bands(noise: Section, *, users: bool) -> int | Literal["auto"]:
    kind = noise.choose("kind", ("fresh", "banded"), "fresh")
    if kind == "fresh":
        noise.finish()
        return 1
    bands = noise.take_any("bands", "auto")
    noise.finish()
    if users:
        remedy = "a user's records would fall into several parts; use fresh noise with users"
        raise ParameterError("bands", bands, remedy)
    if bands == "auto":
        return "auto"
    return check_count("bands", bands)


def _check(run: RunFile) -> None:
    """Refuses what does not go together."""
    if (run.users is None) != (run.records_per_user is None):
        raise ParameterError(
            "users", run.users, "users and records_per_user go together; give both"
        )
    budget, method = run.budget, run.method
    if run.users is not None and method.kind in ("none", "rqp"):
        remedy = f"does not apply to {method.kind}; use dp-sgd or proj-dp-sgd"
        raise ParameterError("users", run.users, remedy)
    if method.kind == "none":
        for name in ("target_epsilon", "noise_multiplier"):
            if getattr(budget, name) is not None:
                remedy = "does not apply to method none, which adds no noise"
                raise ParameterError(name, getattr(budget, name), remedy)
        return
    if budget.target_epsilon is None and budget.noise_multiplier is None:
        remedy = "give one of target_epsilon and noise_multiplier in [budget], or both"
        raise ParameterError("target_epsilon", None, remedy)
    if method.bands == "auto" and (budget.target_epsilon is None or budget.noise_multiplier):
        raise ParameterError("bands", "auto", "needs target_epsilon without noise_multiplier")
    for name in ("rounding", "q"):
        if method.mechanism is not None and getattr(method, name) is not None:
            remedy = "the table of mechanism replaces it; leave it out"
            raise ParameterError(name, getattr(method, name), remedy)
    if method.master and method.mechanism is not None:
        remedy = "master weights stand on even levels; leave it out"
        raise ParameterError("mechanism", str(method.mechanism), remedy)


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
    """The trainer of a run, where its folder left off."""
    with messages.renamed(dict.fromkeys(("train_x", "train_y", "test_x", "test_y"), "data")):
        data = _data(described.data, described.label, described.users, described.neighboring)
    data = mz.training.trainer.of_users(data, described.records_per_user)
    if abs(data.train_x).max() > FAR:
        console.warn(
            "some features lie far from [-1, 1]: they dominate the clipped gradients, and little is learned from "
            "the others; scale all of them by public bounds (bounds read from private data are a release of their own)"
        )
    task = mz.training.models.task(
        described.model, shape=data.train_x.shape[1:], classes=data.classes
    )
    if described.method.master:
        _onto_master_weights(task, described)
    settings = mz.training.trainer.TrainingSettings(
        steps=described.steps,
        batch_size=described.batch_size,
        step_size=described.step_size,
        averaging=described.averaging,
        optimizer=described.optimizer,
        schedule=described.schedule,
        records_per_user=described.records_per_user,
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
    if bound is None and described.model in LINEAR:
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


def _data(
    name: str, label: str | None, users: str | None, neighboring: Neighboring
) -> mz.datasets.Dataset:
    place = Path(name)
    if place.suffix in (".csv", ".parquet"):
        if label is None:
            raise ParameterError("label", None, "name the column to predict, in [data]")
        return mz.datasets.table_file(place, label=label, users=users, neighboring=neighboring)
    for parameter, column in (("label", label), ("users", users)):
        if column is not None:
            raise ParameterError(
                parameter, column, "only tables (.csv, .parquet) have columns; leave it out"
            )
    if name == "breast-cancer":
        return mz.datasets.breast_cancer()
    if not place.is_dir():
        remedy = "give breast-cancer, a .csv or .parquet file, or a folder of IDX files or of images by class"
        raise ParameterError("data", name, remedy)
    if any(place.glob("*-ubyte*")):
        return mz.datasets.idx_folder(name)
    return mz.datasets.image_folder(name, neighboring=neighboring)


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
        planned_steps=described.steps,
        target_epsilon=target,
        noise_multiplier=budget.noise_multiplier,
        noiseless=method.kind == "none",
        max_grad_norm=method.clip_norm,
        neighboring=described.neighboring,
        noise=_noise(method.bands),
        seed=described.seed,
    )


def _noise(bands: int | Literal["auto"]) -> Noise:
    if bands == 1:
        return mz.training.Fresh()
    return mz.training.Banded(bands)


def _levels(described: RunFile, task: Task) -> Levels | None:
    """What all weights are put onto after each step; None for floats and master weights."""
    method = described.method
    if method.master or method.kind not in ("proj-dp-sgd", "rqp"):
        return None
    return mz.training.trainer.Levels(
        projection=_projection(method), bounds=_bounds(described, task)
    )


def _projection(method: Chosen) -> Projection:
    if method.mechanism is not None:
        return mz.training.projection.projection_from(common.load_mechanism(method.mechanism))
    rounding = check_choice("rounding", method.rounding or "stochastic", ("stochastic", "nearest"))
    return mz.training.projection.projection(
        bits=method.bits,
        rounding=cast(Literal["stochastic", "nearest"], rounding),
        q=method.code_share,
    )


def _bounds(described: RunFile, task: Task) -> float | tuple[float, ...]:
    if described.method.bound is not None:
        return described.method.bound
    if described.model in LINEAR:
        return LINEAR_BOUND
    # Twice the largest initial weight of each tensor: public, as the initial weights are.
    return tuple(
        mz.training.optimizers.derived_bound(parameter) for parameter in task.module.parameters()
    )


def _run(run: Trainer, described: RunFile, outputs: Outputs, *, resumed: bool) -> list[Standing]:
    """Takes the steps; returns what was reported, before an interruption as well."""
    place = outputs.place
    history: list[Standing] = []
    if place is not None and resumed:
        history = _earlier(run, place)
    every = described.every or max(1, described.steps // 20)
    with ExitStack() as opened:
        reports = [history.append, opened.enter_context(_live(described.steps))]
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
    return history or [run.standing()]


def _refuse_without_steps(run: Trainer, described: RunFile, place: Place | None) -> None:
    """Refuses a run whose budget allows no step, before a file is touched: its model would be the initial weights."""
    checkpoint = None
    if place is not None and mz.training.trainer.ledger_path(place.checkpoint).exists():
        checkpoint = place.checkpoint
    ledger = mz.training.trainer.StepLedger(run, checkpoint)
    target = described.budget.target_epsilon
    if not run.taken and not ledger.affordable(1, target_epsilon=target):
        raise _nothing_left(run, described)


def _nothing_left(run: Trainer, described: RunFile) -> BudgetError:
    return BudgetError(
        f"{run.spent} steps are spent and one more would exceed epsilon {described.budget.target_epsilon}: "
        "no step of this model can be taken, and none is written; without --overwrite the model that is there goes "
        "on, and a higher target_epsilon allows steps"
    )


def _earlier(run: Trainer, place: Place) -> list[Standing]:
    """What the log says of the steps that the checkpoint has."""
    if not place.log.exists():
        return []
    standings: list[Standing] = []
    for line in read_text(place.log).splitlines():
        entry = cast(JsonObject, parse_json(line, name=place.log.name))
        if not 0 < entry.get("step", 0) <= run.taken:
            continue
        for field_name, value in entry.items():
            if isinstance(value, str):  # an infinity or NaN, which JSON lacks
                entry[field_name] = float(value)
        standings.append(mz.training.trainer.Standing(**entry))
    return standings


def _unfinished(place: Place) -> bool:
    """Whether the log lacks its last line, which states the claim."""
    lines = read_text(place.log).splitlines()
    return not lines or "claim" not in parse_object(lines[-1], name=place.log.name)


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
                "model": described.model,
                "data": run.data.name,
                "method": described.method.kind,
                **run.describe(),
            }
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


def _line(file: TextIO, facts: JsonObject) -> None:
    file.write(json.dumps(plain(facts), allow_nan=False) + "\n")
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


def finish(
    run: Trainer, history: list[Standing], described: RunFile, outputs: Outputs
) -> JsonObject:
    """Writes the model and the plot; says what was reached and what it cost."""
    claim, sentence, last = run.claim(), run.sentence(), history[-1]
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
    if outputs.plot is not None:
        with replacing(outputs.plot, overwrite=True, parameter="plot") as temporary:
            mz.report.sheet([mz.report.history_figure(history)]).savefig(temporary, format="png")
    return {
        "data": run.data.name,
        "model": described.model,
        **run.privacy_facts,
        "method": described.method.kind,
        "weights": _weights(described.method),
        **{name: costs.get(name) for name in cost_names},
        "steps": run.spent,
        **common.picked(run, "stopped", "sampling_rate"),
        **common.picked(last, "loss", "train_accuracy", "test_accuracy"),
        "packed_test_accuracy": run.packed_accuracy(packed),
        "bits": packed.bits,
        "model_bytes": packed.packed_bytes,
        "float32_bytes": packed.float_bytes,
        "seed": described.seed,
        "seeded": run.seeded,
        "claim": sentence,
        "caveat": run.data.note,
        "file_bytes": file_bytes,
        "out": folder,
    }


def _weights(method: Chosen) -> str:
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
        "model": described.model,
        "caveat": run.data.note,
    }
    if described.model in MODELS:  # modules of the user's are not in the package
        shape, classes = list(run.data.train_x.shape[1:]), run.data.classes
        note["architecture"] = {"model": described.model, "shape": shape, "classes": classes}
    return note


def _summary(facts: JsonObject) -> tables.TerminalTable:
    from mezzotint.privacy import claim as claims

    private = ""
    epsilon = "none"
    if facts["epsilon"] is not None:
        private = f"; epsilon {claims.basis(facts['observer'], certified=facts['certified'])}"
        epsilon = facts["epsilon"]
        if not isinstance(epsilon, str):
            epsilon = above(epsilon)
    if facts["seeded"]:
        epsilon += SIMULATED
    cells = {
        "test accuracy": f"{facts['test_accuracy']:.2%}",
        "with packed weights": f"{facts['packed_test_accuracy']:.2%}",
        "epsilon": epsilon,
        "delta": number(facts["delta"]),
    }
    counts = {
        "steps": "steps",
        "bits": "bits",
        "bytes": "model_bytes",
        "float32 bytes": "float32_bytes",
    }
    cells |= {heading: str(facts[name]) for heading, name in counts.items()}
    title = f"{facts['model']} on {facts['data']}, {facts['method']}{private}"
    return tables.TerminalTable(cells, [tuple(cells.values())], left=(), title=title)
