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
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import locked, write_text
from mezzotint.core.records import JsonObject, Record, above, counted
from mezzotint.core.types import FloatArray
from mezzotint.federated.budgets import Sums, rounds_within
from mezzotint.federated.client_app import PARAMETERS, TOLD, data_here
from mezzotint.federated.encoding import Encoding
from mezzotint.federated.flower_records import log
from mezzotint.federated.local_reports import LocalStrategy
from mezzotint.federated.models import model_for
from mezzotint.federated.round_strategy import RoundOptions, RoundStrategy, spending
from mezzotint.federated.run_ledger import NAME, Checkpoint, RunLedger
from mezzotint.federated.secagg import PlanRefused, Roster
from mezzotint.federated.secure_strategy import Evaluation, SecureStrategy
from mezzotint.federated.server_optimizers import optimizer_named
from mezzotint.federated.settings import RunSettings, Scheme
from mezzotint.federated.wrapped_encodings import MetricsEncoding, WeightedEncoding
from mezzotint.privacy.claim import Claim, basis
from mezzotint.vectors import RankedCodebook

Evaluate = Callable[[int, FloatArray], Mapping[str, float]]
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


LEDGER = "ledger.jsonl"


def holds_run(folder: Path) -> bool:
    """Whether a run has begun in a folder: it has a ledger, or finished rounds without one."""
    if (folder / LEDGER).exists():
        return True
    return (folder / NAME).exists() and Checkpoint.load(folder).done > 0


def _prepare(settings: RunSettings, initial: FloatArray) -> Checkpoint:
    """The checkpoint in `out`; for a new run, the first one."""
    first_checkpoint = Checkpoint(parameters=initial, done=0, session=os.urandom(16))
    if not settings.out:
        return first_checkpoint
    folder = Path(settings.out)
    folder.mkdir(parents=True, exist_ok=True)
    if holds_run(folder):
        return Checkpoint.load(folder)
    write_text(folder / "settings.json", json.dumps(settings.as_dict(), indent=1), overwrite=True)
    first_checkpoint.save(folder)
    return first_checkpoint


def check_run(settings: RunSettings, scheme: Scheme) -> None:
    """Refuse a run whose rounds no client would answer, before anything starts or is written."""
    if isinstance(scheme, RankedCodebook):
        return
    try:
        prospective_strategy(settings, scheme, 1)
    except PlanRefused as error:
        raise ParameterError(
            "colluding",
            settings.colluding,
            f"with dropping={settings.dropping:g} and clients_per_round={settings.clients_per_round} no plan is safe "
            f"({error.what}); lower one of the shares, or draw more clients",
        ) from None


def prospective_strategy(
    settings: RunSettings, scheme: Scheme, dimension: int
) -> RoundStrategy[Any]:
    """The strategy of a run that has not begun, with ledgers in memory."""
    first_checkpoint = Checkpoint(parameters=np.zeros(1), done=0, session=bytes(16))
    return _strategy(replace(settings, out=""), scheme, first_checkpoint, dimension)


def _strategy(
    settings: RunSettings, scheme: Scheme, checkpoint: Checkpoint, dimension: int
) -> RoundStrategy[Any]:
    binding = scheme.sha256 if isinstance(scheme, RankedCodebook) else scheme.binding.hex()
    options: RoundOptions = {
        "spare": settings.spare,
        "minimum": settings.minimum or None,
        "sampling": settings.sampling,
        "learning_rate": settings.server_learning_rate,
        "optimizer": optimizer_named(settings.server_optimizer),
        "returns": "update",
        "stage_timeout": settings.stage_timeout,
        "ledger": _ledger(settings, checkpoint, LEDGER, binding, dimension),
        "session": checkpoint.session,
    }
    strategy: RoundStrategy[Any]
    if isinstance(scheme, RankedCodebook):
        if scheme.dimension != dimension:
            raise ParameterError(
                "mechanism", f"{scheme.dimension} coordinates", f"the model has {dimension}"
            )
        strategy = LocalStrategy(
            scheme=scheme, clients_per_round=settings.clients_per_round, **options
        )
    else:
        strategy = SecureStrategy(
            encoding=scheme,
            clients_per_round=settings.clients_per_round,
            roster=Roster.load(settings.roster) if settings.roster else None,
            corrupted=settings.colluding,
            dropped=settings.dropping,
            evaluation=_evaluation(settings, scheme, checkpoint),
            **options,
        )
    strategy.optimizer_state = checkpoint.optimizer
    return strategy


def sums_of(strategy: RoundStrategy[Any], settings: RunSettings, size: int) -> Sums:
    """The sums of a run, as claims are about them: of the fewest clients, one round."""
    return Sums(
        size=size,
        clients=strategy.minimum,
        corrupted=settings.corrupted,
        delta=settings.delta,
    )


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
    binding = metrics.binding.hex()
    dimension = len(metrics.names)
    return Evaluation(
        encoding=metrics,
        every=settings.evaluate_every,
        ledger=_ledger(settings, checkpoint, "evaluations.jsonl", binding, dimension),
        most_rounds=settings.evaluations,
    )


def _ledger(
    settings: RunSettings, checkpoint: Checkpoint, name: str, binding: str, dimension: int
) -> RunLedger:
    facts = {"session": checkpoint.session.hex(), "encoding": binding}
    if not settings.out:
        return RunLedger(None, {**facts, "dimension": dimension})
    path = Path(settings.out) / name
    charged = checkpoint.done if name == LEDGER else checkpoint.told.get("measured")
    if charged and not path.exists():
        raise FileFormatError(
            f"{path}: this run's ledger is missing, and all that it charged forgotten; restore it, "
            "or begin another run in another folder"
        )
    return RunLedger(path, {**facts, _dimension_key(path): dimension})


def _dimension_key(path: Path) -> str:
    """How a ledger calls the dimension: one that was begun by an earlier version goes on as it
    is.
    """
    if path.is_file():
        with path.open(encoding="utf-8", errors="replace") as file:
            if '"coordinates"' in file.readline():
                return "coordinates"
    return "dimension"


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
        start = time.perf_counter()
        run = _Run(settings, tell, evaluate)
        run.train(grid)
        return run.report(time.perf_counter() - start)


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


@final
class _Run:
    """A run from its checkpoint to its report."""

    def __init__(
        self,
        settings: RunSettings,
        tell: Callable[[str], None] | None,
        evaluate: Evaluate | None,
    ) -> None:
        self.settings = settings
        self._listener = tell
        self._evaluate = evaluate
        self.federation = settings.federation()
        self.model = model_for(settings.model, self.federation)
        initial = self.model.initial(settings.seed)
        self.size = initial.size
        scheme = settings.scheme()
        settings.check_room(scheme, self.size)
        # What is refused is refused before a folder holds a run that neither begins nor goes on.
        self.strategy = prospective_strategy(settings, scheme, self.size)
        self.sums = sums_of(self.strategy, settings, self.size)
        most_rounds = None
        if settings.epsilon:
            # Rounds that are interrupted or repeated are charged besides those of the run.
            most_rounds = rounds_within(settings.epsilon, self._cost, 2 * settings.rounds)
        self.checkpoint = _prepare(settings, initial)
        self.strategy = _strategy(settings, scheme, self.checkpoint, self.size)
        self.strategy.most_rounds = most_rounds
        saved_report = self.checkpoint.told
        self.history = [Scores(*scores) for scores in saved_report.get("history", [])]
        self.measured: list[JsonObject] = saved_report.get("measured", [])

    @property
    def _evaluator(self) -> SecureStrategy | None:
        """The strategy that sums what clients measure, if any."""
        if not isinstance(self.strategy, SecureStrategy):
            return None
        return self.strategy.evaluator

    def _cost(self, rounds: int) -> float:
        return self.strategy.cost(replace(self.sums, rounds=rounds))

    def train(self, grid: Grid) -> None:
        """The rounds that are left, or those that the budget allows."""
        settings = self.settings
        if self.checkpoint.done >= settings.rounds:
            rounds = counted(settings.rounds, "round")
            self._tell(f"the run is finished after {rounds}; results are in {settings.out}")
        self._announce()
        if not self.history:
            self.history = [self._scores(self.checkpoint.parameters, self.checkpoint.done)]
        while self.checkpoint.done < settings.rounds and self._train_round(grid):
            time.sleep(settings.pause)

    def _announce(self) -> None:
        """Say what the run will cost and how noisy it will be, before any client is asked."""
        strategy = self.strategy
        if isinstance(strategy, SecureStrategy) and strategy.evaluator is not None:
            self._tell(self._price(strategy, strategy.evaluator))
        strategy.summary()
        if self._listener is not None and isinstance(strategy, SecureStrategy):
            # A simulation shows nothing of Flower's log, to which the summary goes.
            warning = strategy.encoding.noise_warning(strategy.clients_per_round)
            if warning:
                self._listener(f"warning: {warning}")

    def _price(self, strategy: SecureStrategy, evaluator: SecureStrategy) -> str:
        """What clients' metrics will cost, and how accurate they will be."""
        settings = self.settings
        delta = settings.delta / 2
        halved = replace(self.sums, delta=delta)
        assert isinstance(evaluator.encoding, MetricsEncoding)
        cost = 0.0
        if settings.evaluations:
            cost = evaluator.cost(replace(halved, rounds=settings.evaluations))
        rounds = min(strategy.most_rounds or settings.rounds, settings.rounds)
        update_sums = replace(halved, rounds=rounds)
        updates = strategy.encoding.central(update_sums)
        beside = "without a claim of their own"
        if updates is not None:
            beside = f"epsilon {above(updates.epsilon)}"
        deviations = evaluator.encoding.error(settings.clients_per_round)
        errors = ", ".join(f"{metric} {deviation:.2g}" for metric, deviation in deviations.items())
        every = counted(settings.evaluate_every, "round")
        limit = counted(settings.evaluations, "time")
        return (
            f"clients measure every {every}, each at most {limit}: epsilon {above(cost)}, delta {above(delta)}, beside "
            f"updates of {counted(update_sums.rounds, 'round')} ({beside}, delta {above(delta)}), {basis('secure_sum')}; "
            f"standard errors of the noise: {errors}"
        )

    def _scores(self, parameters: FloatArray, done: int) -> Scores:
        """Scores of the model after so many rounds."""
        user_scores: dict[str, float] = {}
        if self._evaluate is not None:
            results = self._evaluate(done, parameters)
            user_scores = {score_name: float(score) for score_name, score in results.items()}
        federation = self.federation
        loss, accuracy = self.model.evaluate(parameters, federation.test_x, federation.test_y)
        return Scores(loss, accuracy, user_scores)

    def _train_round(self, grid: Grid) -> bool:
        """One round, on disk before it is told; False where the budget stops the run."""
        settings = self.settings
        strategy = self.strategy
        checkpoint = self.checkpoint
        finished = checkpoint.done + 1
        parameters = checkpoint.parameters
        model = ArrayRecord({PARAMETERS: Array(parameters.astype(np.float32))})
        config = {setting: getattr(settings, setting) for setting in TOLD}
        trained = strategy.one_round(grid, model, config, left=settings.rounds - finished)
        if strategy.stopped:
            return False
        if strategy.counted:
            parameters = trained[PARAMETERS].numpy().astype(np.float64)
        scores = self._scores(parameters, finished)
        self.history.append(scores)
        metrics_line = self._take_metrics(finished)
        self.checkpoint = replace(
            checkpoint,
            parameters=parameters,
            done=finished,
            optimizer=strategy.optimizer_state,
            told={"history": self.history, "measured": self.measured},
        )
        if settings.out:
            self.checkpoint.save(Path(settings.out))
        claim = strategy.spent(self.sums)
        price_line = spending(claim, strategy.ledger)
        self._tell(f"round {finished}: {_outcome(strategy, scores)}; {price_line}")
        if metrics_line:
            self._tell(metrics_line)
        return True

    def _take_metrics(self, done: int) -> str:
        """Keep what clients measured after this round, and say it in a line; empty where they
        did not.
        """
        strategy = self.strategy
        evaluator = self._evaluator
        if not isinstance(strategy, SecureStrategy) or evaluator is None or not strategy.measured:
            return ""
        clients = evaluator.counted
        averages = strategy.measured
        self.measured.append({"round": done, "clients": clients, **averages})
        values = ", ".join(
            f"{metric} {average.value:.4f} (noise {average.error:.2g})"
            for metric, average in averages.items()
        )
        return f"after round {done}: {counted(clients, 'client')} measured {values}"

    def _tell(self, line: str) -> None:
        log(INFO, "mezzotint: %s", line)
        if self._listener is not None:
            self._listener(line)

    def report(self, seconds: float) -> RunReport:
        """The outcome so far."""
        strategy = self.strategy
        evaluator = self._evaluator
        claims = strategy.claims(self.sums)
        evaluations: JsonObject = {}
        if evaluator is not None:
            evaluations = {**evaluator.ledger.as_dict(), "incidents": _refusals(evaluator)}
        return RunReport(
            accuracy=tuple(scores.accuracy for scores in self.history),
            loss=tuple(scores.loss for scores in self.history),
            metrics=tuple(scores.own for scores in self.history if scores.own),
            measured=tuple(self.measured),
            evaluations=evaluations,
            ledger=strategy.ledger.as_dict(),
            claims={
                view: {**claim.as_dict(), "text": str(claim)} for view, claim in claims.items()
            },
            promises=claims,
            incidents=_refusals(strategy),
            stopped=strategy.stopped,
            bits=strategy.message_bits,
            report_bits=strategy.report_bits,
            mse=strategy.report_mse(),
            seconds=seconds,
        )


def _outcome(strategy: RoundStrategy[Any], scores: Scores) -> str:
    summands = "sum"
    if isinstance(strategy, LocalStrategy):
        summands = "reports"
    outcome = f"{summands} of {counted(strategy.counted, 'client')}"
    if not strategy.counted and strategy.incidents:
        reason = " ".join(strategy.incidents[-1].what.split())
        outcome = f"nothing was learnt ({reason})"
    line = f"{outcome}, accuracy {scores.accuracy:.4f}, loss {scores.loss:.4f}"
    for score_name, score in scores.own.items():
        line += f", {score_name} {score:.4g}"
    return line


def _refusals(strategy: RoundStrategy[Any]) -> tuple[tuple[int, str, str], ...]:
    return tuple(
        (incident.round, incident.client, incident.name) for incident in strategy.incidents
    )


def _configured(context: Context, folder: Path | None) -> RunSettings:
    """The run configuration with this machine's paths; results go to a folder named after the run
    by default.
    """
    settings = RunSettings.from_config(context.run_config)
    local_files = {"mechanism": settings.mechanism, "roster": settings.roster}
    for setting, file_name in local_files.items():
        if folder is not None and file_name:
            local_files[setting] = str(folder / file_name)
    out = Path(settings.out or f"mezzotint-run-{context.run_id}").resolve()
    log(INFO, "mezzotint: model, ledger and report go to %s", out)
    return replace(settings, **local_files, out=str(out), data=data_here(settings.data))


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
            document = json.dumps(report.as_dict(), default=str)
            write_text(Path(chosen.out) / "report.json", document, overwrite=True)
        if done is not None:
            done(report)

    return app


server_app = make_server_app()
