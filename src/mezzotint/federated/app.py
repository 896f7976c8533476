"""Mezzotint's own Flower app, the server's half: one function for `flwr run` on many machines and
for simulation.

[tool.flwr.app.components]
serverapp = "mezzotint.federated.app:server_app"
clientapp = "mezzotint.federated.client_app:client_app"
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from logging import INFO
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from mezzotint.core.arguments import check_choice
from mezzotint.core.errors import ParameterError
from mezzotint.core.files import locked, write_text
from mezzotint.core.records import JsonObject, Record, above, counted
from mezzotint.federated.budgets import Sums, rounds_within
from mezzotint.federated.client_app import PARAMETERS, TOLD, data_here
from mezzotint.federated.encoding import Encoding
from mezzotint.federated.joined import MetricsEncoding, WeightedEncoding
from mezzotint.federated.ledger import NAME, Checkpoint, RunLedger
from mezzotint.federated.local import LocalStrategy
from mezzotint.federated.records import log
from mezzotint.federated.rounds import RoundOptions, RoundStrategy, spending
from mezzotint.federated.secagg import PlanRefused, Roster
from mezzotint.federated.secagg.roster import SAMPLINGS
from mezzotint.federated.settings import RunSettings, Scheme
from mezzotint.federated.strategy import Evaluation, SecureStrategy
from mezzotint.federated.tasks import model_for, optimizer_named
from mezzotint.privacy.claim import Claim, basis
from mezzotint.vectors import RankedCodebook

Evaluate = Callable[[int, npt.NDArray[np.float64]], Mapping[str, float]]
"""A user-defined evaluation: (finished rounds, (d,) parameters) -> numbers by name."""


class Scores(NamedTuple):
    """Scores of one model, on the test data and by the user's evaluation."""

    loss: float
    accuracy: float
    own: dict[str, float]


@final
@dataclass(frozen=True, kw_only=True)
class RunReport(Record):
    """The outcome of a run.

    Arguments:
        accuracy, loss: on public test data, before training and after each round.
        ledger: as plain values.
        claims: the "local" and "central" claims of the client charged most; empty without noise.
            With trust "local" only the first, which holds against the server itself.
        promises: the claims, as records.
        incidents: (round, client, name) of everything that was refused.
        stopped: why the run ended early, if it did.
        bits, report_bits: per coordinate, on the wire and of the report itself; with trust "local"
            per vector.
        mse: of one coordinate of one report, uniform inputs, data units squared; NaN for plain
            rounding.
        seconds: duration of the run.
        metrics: results of the user's evaluation, per round.
        measured: for each sum of clients' metrics the rounds done, the clients, and (value,
            standard error) by metric.
        evaluations: the ledger of these sums, as plain values, and their "incidents".
    """

    accuracy: tuple[float, ...]
    loss: tuple[float, ...]
    ledger: JsonObject
    claims: dict[str, JsonObject]
    incidents: tuple[tuple[int, str, str], ...]
    stopped: str
    bits: int
    report_bits: int
    mse: float
    seconds: float
    metrics: tuple[dict[str, float], ...] = ()
    measured: tuple[JsonObject, ...] = ()
    evaluations: JsonObject = field(default_factory=JsonObject)
    promises: dict[str, Claim] = field(default_factory=dict[str, Claim], repr=False, compare=False)


def _prepare(settings: RunSettings, initial: npt.NDArray[np.float64]) -> Checkpoint:
    """The checkpoint in `out`; for a new run, the first one."""
    fresh = Checkpoint(parameters=initial, done=0, session=os.urandom(16))
    if not settings.out:
        return fresh
    folder = Path(settings.out)
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / NAME).exists():
        return Checkpoint.load(folder)
    write_text(folder / "settings.json", json.dumps(settings.as_dict(), indent=1), overwrite=True)
    fresh.save(folder)
    return fresh


def check_run(settings: RunSettings, scheme: Scheme) -> None:
    """Refuse a run whose rounds no client would answer, before anything starts or is written."""
    if isinstance(scheme, RankedCodebook):
        return
    try:
        prospective_strategy(settings, scheme, 1)
    except PlanRefused as error:
        borne = f"with dropping={settings.dropping:g} and per_round={settings.per_round} no plan is safe ({error.what})"
        remedy = f"{borne}; lower one of the shares, or draw more clients"
        raise ParameterError("colluding", settings.colluding, remedy) from None


def prospective_strategy(
    settings: RunSettings, scheme: Scheme, coordinates: int
) -> RoundStrategy[Any]:
    """The strategy of a run that has not begun, with ledgers in memory."""
    fresh = Checkpoint(parameters=np.zeros(1), done=0, session=bytes(16))
    return _strategy(replace(settings, out=""), scheme, fresh, coordinates)


def _strategy(
    settings: RunSettings, scheme: Scheme, checkpoint: Checkpoint, coordinates: int
) -> RoundStrategy[Any]:
    binding = scheme.sha256 if isinstance(scheme, RankedCodebook) else scheme.binding.hex()
    options: RoundOptions = {
        "spare": settings.spare,
        "minimum": settings.minimum or None,
        "sampling": check_choice("sampling", settings.sampling, SAMPLINGS),
        "learning_rate": settings.learning_rate,
        "optimizer": optimizer_named(settings.server_optimizer),
        "returns": "update",
        "stage_timeout": settings.stage_timeout,
        "ledger": _ledger(settings, checkpoint, "ledger.jsonl", binding, coordinates),
        "session": checkpoint.session,
    }
    strategy: RoundStrategy[Any]
    if isinstance(scheme, RankedCodebook):
        if scheme.dimension != coordinates:
            remedy = f"the model has {coordinates}"
            raise ParameterError("mechanism", f"{scheme.dimension} coordinates", remedy)
        strategy = LocalStrategy(scheme=scheme, per_round=settings.per_round, **options)
    else:
        strategy = SecureStrategy(
            encoding=scheme,
            per_round=settings.per_round,
            roster=Roster.load(settings.roster) if settings.roster else None,
            corrupted=settings.colluding,
            dropped=settings.dropping,
            evaluation=_evaluation(settings, scheme, checkpoint),
            **options,
        )
    strategy.optimizer_state = checkpoint.optimizer
    return strategy


def _evaluation(
    settings: RunSettings, encoding: Encoding, checkpoint: Checkpoint
) -> Evaluation | None:
    """The sums of what clients measure, if the settings ask for them."""
    if not settings.evaluate_every:
        return None
    most_examples = 0
    if isinstance(encoding, WeightedEncoding):
        most_examples = encoding.most_examples
    metrics = settings.measuring(most_examples)
    binding, coordinates = metrics.binding.hex(), len(metrics.names)
    return Evaluation(
        encoding=metrics,
        every=settings.evaluate_every,
        ledger=_ledger(settings, checkpoint, "evaluations.jsonl", binding, coordinates),
        most_rounds=settings.evaluations,
    )


def _ledger(
    settings: RunSettings, checkpoint: Checkpoint, name: str, binding: str, coordinates: int
) -> RunLedger:
    facts = {"session": checkpoint.session.hex(), "encoding": binding, "coordinates": coordinates}
    if not settings.out:
        return RunLedger(None, facts)
    return RunLedger(Path(settings.out) / name, facts)


def _price(settings: RunSettings, strategy: SecureStrategy, coordinates: int) -> str:
    """What clients' metrics will cost and how accurate they will be, before anybody is asked."""
    evaluator = strategy.evaluator
    assert evaluator is not None
    assert isinstance(evaluator.encoding, MetricsEncoding)
    corrupted, delta = settings.corrupted, settings.delta / 2
    evaluations = settings.evaluations
    rounds = strategy.most_rounds or settings.rounds
    cost = 0.0
    if evaluations:
        cost = evaluator.cost(evaluations, size=coordinates, delta=delta, corrupted=corrupted)
    sums = Sums(
        size=coordinates,
        clients=strategy.minimum,
        rounds=rounds,
        corrupted=corrupted,
        delta=delta,
    )
    updates = strategy.encoding.central(sums)
    beside = "without a claim of their own"
    if updates is not None:
        beside = f"epsilon {above(updates.epsilon)}"
    errors = ", ".join(
        f"{name} {error:.2g}"
        for name, error in evaluator.encoding.error(settings.per_round).items()
    )
    every = counted(settings.evaluate_every, "round")
    often = f"every {every}, each at most {counted(evaluations, 'time')}"
    half = above(delta)
    return (
        f"clients measure {often}: epsilon {above(cost)}, delta {half}, beside updates of {counted(rounds, 'round')} "
        f"({beside}, delta {half}), {basis('secure_sum')}; standard errors of the noise: {errors}"
    )


def run_server(
    grid: Grid,
    settings: RunSettings,
    tell: Callable[[str], None] | None = None,
    *,
    evaluate: Evaluate | None = None,
) -> RunReport:
    """Train round by round; every finished round is on disk before the next begins.

    Arguments:
        grid: Flower's.
        settings: of the run, which resumes from the checkpoint in `out` if there is one.
        tell: called with one line per round.
        evaluate: called with the number of finished rounds and the (d,) parameters, before the
            first round and after each; its results go into the log and the report. It uses the
            server's own data and releases nothing.

    Raises:
        StorageError: another process is working on the run in `out`, or the ledger cannot be
            written.
    """
    with _alone(settings.out):
        return _trained(grid, settings, tell, evaluate)


@contextmanager
def _alone(out: str) -> Generator[None]:
    """Lock the folder: the charges of two processes would add up, but each would overwrite the
    other's model.
    """
    if not out:
        yield
        return
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    busy = "holds a run that another process is at; wait for its end"
    with (
        (folder / ".lock").open("ab") as file,
        locked(file.fileno(), folder, wait=0.0, parameter="out", busy=busy),
    ):
        yield


def _trained(
    grid: Grid, settings: RunSettings, tell: Callable[[str], None] | None, evaluate: Evaluate | None
) -> RunReport:
    start = time.perf_counter()
    federation = settings.federation()
    model = model_for(settings.model, federation)
    checkpoint = _prepare(settings, model.initial(settings.seed))
    size = checkpoint.parameters.size
    strategy = _strategy(settings, settings.scheme(), checkpoint, size)
    delta, corrupted = settings.delta, settings.corrupted

    def cost(rounds: int) -> float:
        return strategy.cost(rounds, size=size, delta=delta, corrupted=corrupted)

    if settings.epsilon:
        strategy.most_rounds = rounds_within(settings.epsilon, cost, settings.rounds)
    if checkpoint.done >= settings.rounds:
        _tell(
            tell,
            f"the run is finished after {counted(settings.rounds, 'round')}; results are in {settings.out}",
        )

    def scored(parameters: npt.NDArray[np.float64], done: int) -> Scores:
        user_scores = (
            {}
            if evaluate is None
            else {name: float(value) for name, value in evaluate(done, parameters).items()}
        )
        return Scores(
            *model.evaluate(parameters, federation.test_x, federation.test_y),
            user_scores,
        )

    if isinstance(strategy, SecureStrategy) and strategy.evaluator is not None:
        _tell(tell, _price(settings, strategy, size))
    strategy.summary()
    if tell is not None and isinstance(strategy, SecureStrategy):
        # A simulation shows nothing of Flower's log, to which the summary goes.
        warning = strategy.encoding.noise_warning(strategy.per_round)
        if warning:
            tell(f"warning: {warning}")
    history = [Scores(*scores) for scores in checkpoint.told.get("history", [])]
    measured: list[JsonObject] = checkpoint.told.get("measured", [])
    if not history:
        history = [scored(checkpoint.parameters, checkpoint.done)]
    for done in range(checkpoint.done, settings.rounds):
        arrays = ArrayRecord({PARAMETERS: Array(checkpoint.parameters.astype(np.float32))})
        config = {key: getattr(settings, key) for key in TOLD}
        arrays = strategy.one_round(grid, arrays, config, left=settings.rounds - done - 1)
        if strategy.stopped:
            break
        parameters = checkpoint.parameters
        if strategy.counted:
            parameters = arrays[PARAMETERS].numpy().astype(np.float64)
        history.append(scored(parameters, done + 1))
        lines: list[str] = []
        if (
            isinstance(strategy, SecureStrategy)
            and strategy.evaluator is not None
            and strategy.measured
        ):
            clients, means = strategy.evaluator.counted, strategy.measured
            measured.append({"round": done + 1, "clients": clients, **means})
            means_text = ", ".join(
                f"{name} {scores.value:.4f} (noise {scores.error:.2g})"
                for name, scores in means.items()
            )
            lines = [f"after round {done + 1}: {clients} clients measured {means_text}"]
        checkpoint = replace(
            checkpoint, parameters=parameters, done=done + 1, optimizer=strategy.optimizer_state,
            told={"history": history, "measured": measured},
        )  # fmt: skip
        if settings.out:
            checkpoint.save(Path(settings.out))
        claim = strategy.spent(size=size, delta=delta, corrupted=corrupted)
        spending_text = spending(claim, strategy.ledger)
        for line in (
            f"round {done + 1}: {_outcome(strategy, history[-1])}; {spending_text}",
            *lines,
        ):
            _tell(tell, line)
        time.sleep(settings.pause)
    return _report(settings, strategy, history, measured, size, time.perf_counter() - start)


def _tell(tell: Callable[[str], None] | None, line: str) -> None:
    log(INFO, "mezzotint: %s", line)
    if tell is not None:
        tell(line)


def _outcome(strategy: RoundStrategy[Any], scores: Scores) -> str:
    outcome = f"{'reports' if isinstance(strategy, LocalStrategy) else 'sum'} of {strategy.counted} clients"
    if not strategy.counted and strategy.incidents:
        outcome = f"nothing was learnt ({' '.join(strategy.incidents[-1].what.split())})"
    line = f"{outcome}, accuracy {scores.accuracy:.4f}, loss {scores.loss:.4f}"
    return line + "".join(f", {name} {value:.4g}" for name, value in scores.own.items())


def _report(
    settings: RunSettings,
    strategy: RoundStrategy[Any],
    history: list[Scores],
    measured: list[JsonObject],
    coordinates: int,
    seconds: float,
) -> RunReport:
    evaluator = strategy.evaluator if isinstance(strategy, SecureStrategy) else None
    claims = strategy.claims(size=coordinates, delta=settings.delta, corrupted=settings.corrupted)
    return RunReport(
        accuracy=tuple(scores.accuracy for scores in history),
        loss=tuple(scores.loss for scores in history),
        metrics=tuple(scores.own for scores in history if scores.own),
        measured=tuple(measured),
        evaluations={}
        if evaluator is None
        else {**evaluator.ledger.as_dict(), "incidents": _refusals(evaluator)},
        ledger=strategy.ledger.as_dict(),
        claims={view: {**claim.as_dict(), "text": str(claim)} for view, claim in claims.items()},
        promises=claims,
        incidents=_refusals(strategy),
        stopped=strategy.stopped,
        bits=strategy.message_bits,
        report_bits=strategy.report_bits,
        mse=strategy.report_mse(),
        seconds=seconds,
    )


def _refusals(strategy: RoundStrategy[Any]) -> tuple[tuple[int, str, str], ...]:
    return tuple(
        (incident.round, incident.client, incident.name) for incident in strategy.incidents
    )


def _configured(context: Context, folder: Path | None) -> RunSettings:
    """The run configuration with this machine's paths; results go to a folder named after the run
    by default.
    """
    settings = RunSettings.from_config(context.run_config)
    files = {"mechanism": settings.mechanism, "roster": settings.roster}
    here = {
        key: str(folder / name) if folder is not None and name else name
        for key, name in files.items()
    }
    out = Path(settings.out or f"mezzotint-run-{context.run_id}").resolve()
    log(INFO, "mezzotint: model, ledger and report go to %s", out)
    return replace(settings, **here, out=str(out), data=data_here(settings.data))


def make_server_app(
    settings: RunSettings | None = None,
    done: Callable[[RunReport], None] | None = None,
    *,
    folder: Path | None = None,
    **others: Any,
) -> ServerApp:
    """The server app; without settings, those of Flower's run configuration and the files in
    `folder`.

    `done` is called with the report; `others` are arguments of `run_server`.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        chosen = _configured(context, folder) if settings is None else settings
        report = run_server(grid, chosen, **others)
        if chosen.out:
            text = json.dumps(report.as_dict(), default=str)
            write_text(Path(chosen.out) / "report.json", text, overwrite=True)
        if done is not None:
            done(report)

    return app


server_app = make_server_app()
