"""`mezzotint train`."""

from __future__ import annotations

import importlib
import json
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO, cast

import mezzotint as mz
from mezzotint.cli import common
from mezzotint.cli.common import AsJson, Options, Overwrite, ProofOption, option
from mezzotint.core import brought_by
from mezzotint.core.arguments import Neighboring, check_choice, check_count
from mezzotint.core.errors import BudgetError, ParameterError
from mezzotint.core.files import parse_json, read_text, replacing
from mezzotint.core.records import JsonObject, above, number, plain

if TYPE_CHECKING:
    from mezzotint.training.methods import Method
    from mezzotint.training.models import Task
    from mezzotint.training.projection import Projection
    from mezzotint.training.trainer import Standing, Trainer

EXAMPLE = "mezzotint train --data breast-cancer --model logreg --method dp-sgd --target-epsilon 1 --bits 4 --json"

_NOISE, _USERS = ("target_epsilon", "noise_multiplier"), ("users", "records_per_user")
# Options without a default, and which methods use them. The others refuse them: whoever gives one expects an effect.
USES = {
    "none": ("clip_norm",),
    "dp-sgd": (*_NOISE, *_USERS, "clip_norm", "bands"),
    "proj-dp-sgd": (*_NOISE, *_USERS, "clip_norm", "bands", "projection", "bound"),
    "rqp": (*_NOISE, "clip_norm", "projection", "bound", "q", "mechanism"),
    "quantized-gradient": ("mechanism", "clip"),
}
METHODS = tuple(USES)
REPORTING = ("quantized-gradient",)
"""Methods that report each gradient, which hides that a record is replaced, not that it is there."""

FAR = 30.0
"""Larger features were not scaled: standardized ones hardly ever exceed it, pixels never."""

Number = float | None
File = Path | None


def command(
    data: Annotated[
        str,
        option(
            "breast-cancer, a .csv or .parquet file, or a folder: MNIST's IDX files, or images by class."
        ),
    ],
    label: Annotated[str | None, option("Column to predict, in a .csv or .parquet file.")] = None,
    users: Annotated[
        str | None, option("Column that identifies each row's user, for a claim about users.")
    ] = None,
    records_per_user: Annotated[
        int | None, option("--users: use at most this many rows per user, the first.")
    ] = None,
    model: Annotated[
        str, option("logreg, svm, softmax, cnn, transformer, or your own: file.py:Net.")
    ] = "logreg",
    method: Annotated[str, option(f"One of {', '.join(METHODS)}.")] = "dp-sgd",
    target_epsilon: Annotated[
        Number, option("Epsilon of the run: sets the noise or, with --noise-multiplier, stops it.")
    ] = None,
    noise_multiplier: Annotated[
        Number,
        option("Standard deviation of the noise on the summed gradients, divided by --clip-norm."),
    ] = None,
    delta: Annotated[float, option("Delta of the claim.")] = 1e-6,
    steps: Annotated[int, option("Steps of the run.")] = 100,
    batch_size: Annotated[int, option("Expected records per (Poisson) batch.")] = 32,
    step_size: Annotated[float, option("Learning rate.")] = 1.0,
    optimizer: Annotated[str, option("sgd, momentum or adam.")] = "sgd",
    schedule: Annotated[
        str, option("Schedule of the learning rate: constant, linear or cosine.")
    ] = "constant",
    clip_norm: Annotated[
        Number, option("Bound on the L2 norm of a record's gradient; default: 0.45.")
    ] = None,
    clip: Annotated[
        Number, option("quantized-gradient: bound on each coordinate; default: 0.45.")
    ] = None,
    bands: Annotated[
        str | None, option("Steps over which noise is correlated; auto: for --target-epsilon.")
    ] = None,
    bits: Annotated[
        int, option("Bits per weight, during training (proj-dp-sgd, rqp) and in --out.")
    ] = 4,
    projection: Annotated[
        str | None, option("Rounding of weights: stochastic (default) or nearest.")
    ] = None,
    q: Annotated[Number, option("rqp: probability that a code is kept; default: 0.99.")] = None,
    bound: Annotated[
        Number, option("Largest absolute weight; default: 0.3 if linear, else per tensor.")
    ] = None,
    mechanism: Annotated[
        File, option("Mechanism file, for quantized-gradient, or rqp without --q.")
    ] = None,
    averaging: Annotated[
        float, option("Fraction of the last steps whose weights are averaged, in [0, 1].")
    ] = 0.0,
    neighboring: Annotated[
        str | None, option("Neighbouring relation: add_or_remove_one or replace_one.")
    ] = None,
    seed: Annotated[int | None, option("Seed for tests; the run is NOT PRIVATE.")] = None,
    every: Annotated[
        int, option("Steps between log lines and checkpoints; 0: about twenty in the run.")
    ] = 0,
    log: Annotated[File, option("Log file (.jsonl, .log), one line every --every steps.")] = None,
    tensorboard: Annotated[
        File, option("Folder for TensorBoard event files: loss, accuracy, epsilon.")
    ] = None,
    checkpoint: Annotated[File, option("Checkpoint file; its ledger is kept next to it.")] = None,
    resume: Annotated[bool, option("Resume from --checkpoint.", "--resume")] = False,
    out: Annotated[File, option("Packed model to write.")] = None,
    proof: ProofOption = None,
    plot: Annotated[File, option("Plot accuracy against epsilon to this PNG file.")] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Train a private model with few bits per weight, showing loss, accuracy and epsilon spent as it runs."""
    options = dict(locals())
    if not resume:
        common.refuse_outputs(".jsonl", ".log", overwrite=overwrite, log=log)
        common.refuse_outputs(overwrite=overwrite, checkpoint=checkpoint)
    common.refuse_outputs(overwrite=overwrite, out=out)
    common.refuse_outputs(".png", overwrite=overwrite, plot=plot)
    common.refuse_outputs(".json", overwrite=overwrite, proof=proof)
    with _warnings_as_lines():
        run = prepare(options)
        _refuse_without_steps(run, options)
        history = _run(run, options)
        facts = finish(run, history, options) | _proven(run, options)
    if log is not None:
        with log.open("a", encoding="utf-8") as file:
            _line(file, facts)  # what mezzotint report quotes
    common.show(facts, as_json, lambda: [_summary(facts), facts["claim"]])
    if facts["caveat"] and not as_json:
        common.warn(facts["caveat"])


def _proven(run: Trainer, options: Options) -> JsonObject:
    """Writes the claim with its proof, if asked to; what changes about the claim."""
    claim = run.claim()
    if options["proof"] is None:
        return {}
    if claim is None or claim.seeded:
        raise ParameterError(
            "proof", str(options["proof"]), "a run that is not private has no claim to prove"
        )
    found = common.write_proof(
        cast(mz.privacy.Release, claim.release), options["proof"], overwrite=options["overwrite"]
    )
    return {
        "epsilon": found.as_dict()["epsilon"],
        "certified": found.certified,
        "claim": str(found),
    }


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    from mezzotint.training.projection import TrainingWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", TrainingWarning)
        # At once: whoever reads that the settings are bad can stop the run.
        warnings.showwarning = lambda message, *_: common.warn(str(message))
        yield


def prepare(options: Options) -> Trainer:
    """The trainer that the options describe, resumed if they say so."""
    _check(options)
    if options["resume"] and options["checkpoint"] is None:
        raise ParameterError(
            "resume", "True", "name the checkpoint to resume from: --checkpoint FILE"
        )
    relation = "replace_one" if options["method"] in REPORTING else _neighboring(options)
    data = _data(options["data"], options["label"], options["users"], relation)
    data = mz.training.trainer.of_users(data, options["records_per_user"])
    if abs(data.train_x).max() > FAR:
        common.warn(
            "some features lie far from [-1, 1]: they dominate the clipped gradients, and little is learned from "
            "the others; scale all of them by public bounds (bounds read from private data are a release of their own)"
        )
    task = mz.training.models.task(
        options["model"], shape=data.train_x.shape[1:], classes=data.classes
    )
    known = fields(mz.training.trainer.TrainingSettings)
    settings = mz.training.trainer.TrainingSettings(
        **{field.name: options[field.name] for field in known}
    )
    chosen = choose_method(options, task, records=len(data.train_x))
    run = mz.training.trainer.Trainer(data=data, task=task, method=chosen, settings=settings)
    if options["resume"]:
        mz.training.trainer.restore(run, options["checkpoint"])
        lost = run.spent - run.taken
        if lost:
            end = (
                "epsilon ends higher than planned"
                if options["target_epsilon"] is None
                else "the run ends earlier"
            )
            common.warn(f"the interruption lost {lost} step(s), which still count, so {end}")
    return run


def _check(options: Options) -> None:
    """Refuses what no method knows and what the chosen one would ignore."""
    method = options["method"]
    check_choice("method", method, METHODS)
    for name in dict.fromkeys(name for used in USES.values() for name in used):
        if options[name] is not None and name not in USES[method]:
            takers = [other for other, used in USES.items() if name in used]
            raise ParameterError(
                name,
                options[name],
                f"does not apply to --method {method}, only to {', '.join(takers)}",
            )
    if (options["users"] is None) != (options["records_per_user"] is None):
        given = next(name for name in _USERS if options[name] is not None)
        raise ParameterError(
            given, options[given], "--users and --records-per-user go together; give both"
        )
    check_count("bits", options["bits"], most=8)
    check_count("every", options["every"], least=0)


def _data(
    name: str, label: str | None, users: str | None, neighboring: Neighboring
) -> mz.datasets.Dataset:
    place = Path(name)
    if place.suffix in (".csv", ".parquet"):
        if label is None:
            raise ParameterError("label", None, "name the column to predict: --label COLUMN")
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


def choose_method(options: Options, task: Task, *, records: int) -> Method:
    """The training method that the options describe, its noise calibrated to --target-epsilon if given."""
    name, clip_norm = options["method"], _or(options["clip_norm"], 0.45)
    if name == "quantized-gradient":
        if options["mechanism"] is None:
            raise ParameterError(
                "mechanism", None, "name the table's file; make one with: mezzotint design"
            )
        return mz.training.methods.QuantizedSGD(
            table=common.load_mechanism(options["mechanism"]), clip=_or(options["clip"], 0.45)
        )
    projected = _projection(options) if name in ("proj-dp-sgd", "rqp") else None
    bands = _bands(options, records)
    return mz.training.methods.NoisySGD(
        noise_multiplier=0.0
        if name == "none"
        else _noise(options, projected, records=records, bands=bands),
        clip_norm=clip_norm,
        projection=projected,
        bound=_bound(options, task),
        bands=bands,
    )


def _or(given: float | None, otherwise: float) -> float:
    return otherwise if given is None else given


def _bands(options: Options, records: int) -> int:
    given = options["bands"]
    if given is not None and options["users"] is not None:
        raise ParameterError(
            "bands", given, "a user's records would fall into several parts; omit it with --users"
        )
    if given != "auto":
        try:
            return int(given or 1)
        except ValueError:
            raise ParameterError(
                "bands", given, "give a number of steps, such as 8, or auto"
            ) from None
    if options["target_epsilon"] is None or options["noise_multiplier"] is not None:
        raise ParameterError(
            "bands", given, "auto needs --target-epsilon without --noise-multiplier"
        )
    return mz.training.clipped.choose_bands(
        options["target_epsilon"], batch_size=options["batch_size"], dataset_size=records, steps=options["steps"],
        delta=options["delta"], neighboring=_neighboring(options),
    )  # fmt: skip


def _neighboring(options: Options) -> Literal["add_or_remove_one", "replace_one"]:
    return options["neighboring"] or "add_or_remove_one"


def _projection(options: Options) -> Projection:
    if options["mechanism"] is not None:
        for other in ("projection", "q"):
            if options[other] is not None:
                raise ParameterError(
                    other, options[other], "the table of --mechanism replaces it; omit it"
                )
        return mz.training.projection.projection_from(common.load_mechanism(options["mechanism"]))
    kept = _or(options["q"], 0.99) if options["method"] == "rqp" else 1.0
    rounding = options["projection"] or "stochastic"
    return mz.training.projection.projection(bits=options["bits"], rounding=rounding, q=kept)


def _noise(options: Options, projected: Projection | None, *, records: int, bands: int) -> float:
    target, noise = options["target_epsilon"], options["noise_multiplier"]
    if noise is not None:
        return noise
    if target is None:
        raise ParameterError(
            "target_epsilon", None, "give one of --target-epsilon and --noise-multiplier, or both"
        )
    batches = mz.training.batches.PoissonBatches.of_parts(
        bands, batch_size=options["batch_size"], dataset_size=records
    )
    least = mz.training.rqp.noise_multiplier(
        target,
        sampling=replace(batches.sampling, records_per_user=options["records_per_user"] or 1),
        steps=mz.training.clipped.participations(options["steps"], bands),
        delta=options["delta"],
        neighboring=_neighboring(options),
    )
    # Codes that are replaced hide something of the noise only where no optimizer remembers it.
    return (
        least * projected.kappa
        if projected is not None and options["optimizer"] == "sgd"
        else least
    )


def _bound(options: Options, task: Task) -> float | tuple[float, ...]:
    if options["bound"] is not None:
        return options["bound"]
    if options["model"] in ("logreg", "svm", "softmax"):
        return 0.3
    # Twice the largest initial weight of each tensor: public, as the initial weights are.
    return tuple(
        mz.training.optimizers.derived_bound(parameter) for parameter in task.module.parameters()
    )


def _run(run: Trainer, options: Options) -> list[Standing]:
    """Takes the steps; returns what was reported, before an interruption as well."""
    history = _earlier(run, options)
    every = options["every"] or max(1, options["steps"] // 20)
    with ExitStack() as opened:
        told = [history.append, opened.enter_context(_live(options["steps"]))]
        if options["log"] is not None:
            told.append(opened.enter_context(_lines(run, options)))
        if options["tensorboard"] is not None:
            told.append(opened.enter_context(_scalars(options["tensorboard"])))

        def tell(*_: float) -> None:
            for report in told:
                report(run.last)

        target, place = options["target_epsilon"], options["checkpoint"]
        try:
            run.run(every=every, progress=tell, checkpoint=place, target_epsilon=target)
        except (KeyboardInterrupt, SystemExit):
            kept = place is not None and Path(place).exists()
            how = f"checkpoint kept; give --checkpoint {place} --resume to continue"
            common.note(f"ended early; {how if kept else 'nothing is kept without a --checkpoint'}")
            raise
        if run.stopped:
            common.warn(f"stopped: {run.stopped}")
    if run.stopped and not run.taken:  # another process took what was left
        raise _nothing_left(run, options)
    return history or [run.standing()]


def _refuse_without_steps(run: Trainer, options: Options) -> None:
    """Refuses a run whose budget allows no step, before a file is touched: its model would be the initial weights."""
    place, target = options["checkpoint"], options["target_epsilon"]
    known = place is not None and mz.training.trainer.ledger_path(place).exists()
    ledger = mz.training.trainer.StepLedger(run, place if known else None)
    if not run.taken and not ledger.affordable(1, target_epsilon=target):
        raise _nothing_left(run, options)


def _nothing_left(run: Trainer, options: Options) -> BudgetError:
    kept = (
        options["checkpoint"] is not None
        and options["checkpoint"].exists()
        and not options["resume"]
    )
    remedy = (
        "--resume goes on with the model in --checkpoint"
        if kept
        else "a higher --target-epsilon allows steps"
    )
    return BudgetError(
        f"{run.spent} steps are spent and one more would exceed epsilon {options['target_epsilon']}: "
        f"no step of this model can be taken, and none is written; {remedy}"
    )


def _earlier(run: Trainer, options: Options) -> list[Standing]:
    log = options["log"]
    if not options["resume"] or log is None or not log.exists():
        return []
    lines = [
        cast(JsonObject, parse_json(line, name=log.name)) for line in read_text(log).splitlines()
    ]
    numbers: list[JsonObject] = [
        {name: float(value) if isinstance(value, str) else value for name, value in line.items()}
        for line in lines
        if 0 < line.get("step", 0) <= run.taken
    ]
    return [mz.training.trainer.Standing(**line) for line in numbers]


@contextmanager
def _lines(run: Trainer, options: Options) -> Iterator[Callable[[Standing], None]]:
    with Path(options["log"]).open("a" if options["resume"] else "w", encoding="utf-8") as file:
        _line(
            file,
            {
                "model": options["model"],
                "data": run.data.name,
                **run.method.describe(),
                **asdict(run.settings),
            },
        )
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
            spent = (
                "epsilon (simulation, not private)"
                if last.seeded
                else f"epsilon ({claims.basis('model')})"
            )
            named = {"loss": last.loss, "accuracy/train": last.train_accuracy}
            named |= {"accuracy/test": last.test_accuracy, spent: last.epsilon}
            for name, value in named.items():
                if value is not None and math.isfinite(value):
                    writer.add_scalar(name, value, last.step)

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
    with common.live(*columns) as bars:
        bar = bars.add_task("training", total=steps)

        def show(last: Standing) -> None:
            spent = (
                "none"
                if last.epsilon is None
                else f"{above(last.epsilon, 4)} ({claims.basis('model')})"
            )
            spent += " (simulation; not private)" if last.seeded else ""
            text = f"loss {last.loss:.4f}  accuracy {last.test_accuracy:.2%}  epsilon {spent}"
            bars.update(bar, completed=last.step, description=text)

        # Through the bar's own console, which puts lines above the bar.
        former, warnings.showwarning = (
            warnings.showwarning,
            lambda message, *_: common.say(
                f"mezzotint: warning: {common.typed(str(message))}", on=bars.console
            ),
        )
        try:
            yield show
        finally:
            warnings.showwarning = former


def finish(run: Trainer, history: list[Standing], options: Options) -> JsonObject:
    """Writes the model and the plot; says what was reached and what it cost."""
    claim, sentence, last = run.claim(), run.sentence(), history[-1]
    costs: JsonObject = {} if claim is None else claim.as_dict()
    stated = () if claim is None else ("observer", "trust", "certified")
    shape, classes = list(run.data.train_x.shape[1:]), run.data.classes
    note = {
        "claim": sentence,
        "data": run.data.name,
        "model": options["model"],
        "caveat": run.data.note,
    }
    if (
        options["model"] in mz.training.models.MODELS
    ):  # modules of the user's are not in the package
        note["architecture"] = {"model": options["model"], "shape": shape, "classes": classes}
    packed = run.packed(bits=options["bits"], note=note)
    size = (
        None
        if options["out"] is None
        else packed.save(options["out"], overwrite=options["overwrite"])
    )
    if options["plot"] is not None:
        with replacing(
            options["plot"], overwrite=options["overwrite"], parameter="plot"
        ) as temporary:
            mz.report.sheet([mz.report.history_figure(history)]).savefig(temporary, format="png")
    return {
        "data": run.data.name,
        "model": options["model"],
        **run.method.describe(),
        "method": options["method"],
        **{name: costs.get(name) for name in ("epsilon", "delta", "neighboring", *stated)},
        "steps": run.spent,
        **common.picked(run, "stopped", "sampling_rate"),
        **common.picked(last, "loss", "train_accuracy", "test_accuracy"),
        "packed_test_accuracy": run.accuracy(run.data.test_x, run.data.test_y, packed.values()),
        "bits": packed.bits,
        "model_bytes": packed.packed_bytes,
        "float32_bytes": packed.float_bytes,
        "seed": options["seed"],
        "seeded": run.seeded,
        "claim": sentence,
        "caveat": run.data.note,
        "file_bytes": size,
        "out": None if options["out"] is None else str(options["out"]),
    }


def _summary(facts: JsonObject) -> common.TerminalTable:
    from mezzotint.privacy import claim as claims

    private, epsilon = "", "none"
    if facts["epsilon"] is not None:
        private = f"; epsilon {claims.basis(facts['observer'], certified=facts['certified'])}"
        epsilon = facts["epsilon"] if isinstance(facts["epsilon"], str) else above(facts["epsilon"])
    cells = {
        "test accuracy": f"{facts['test_accuracy']:.2%}",
        "with packed weights": f"{facts['packed_test_accuracy']:.2%}",
        "epsilon": epsilon + (" (simulation; not private)" if facts["seeded"] else ""),
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
    return common.TerminalTable(cells, [tuple(cells.values())], left=(), title=title)
