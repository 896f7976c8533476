"""A whole federation on this machine, in Flower's simulation."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any, cast, final

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from mezzotint.core.errors import MezzotintError, ParameterError
from mezzotint.core.records import JsonObject, counted
from mezzotint.federated.app import RunReport, check_run, make_server_app
from mezzotint.federated.client_app import make_client_app
from mezzotint.federated.client_mod import SecureUpdates
from mezzotint.federated.policy import Policy
from mezzotint.federated.settings import RunSettings

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")


@final
class _Link:
    """Flower's grid until the run is over; after that, a thread that uses it ends silently."""

    def __init__(self, grid: Grid, over: threading.Event) -> None:
        self._grid = grid
        self._over = over

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Pull messages. Flower answers for clients that cannot run; if the engine has died, the
        run must end.

        Raises:
            MezzotintError: naming the engine.
        """
        replies = list(self.__getattr__("pull_messages")(message_ids))
        if any(message.has_error() for message in replies) and not _engine_runs():
            raise MezzotintError(
                "simulation: its engine, Ray, has ended, and no client runs any more; finished rounds are in the "
                "folder of --out, if one was named, and --resume goes on from them"
            )
        return replies

    def __getattr__(self, name: str) -> Any:
        if self._over.is_set():
            raise SystemExit
        return getattr(self._grid, name)


def _engine_runs() -> bool:
    import ray
    from ray.exceptions import RayError

    try:
        return any(node["Alive"] for node in ray.nodes())
    except (RuntimeError, ConnectionError, RayError):
        return False


@contextmanager
def _ending(over: threading.Event) -> Generator[None]:
    """Set `over` at the end, whatever its cause. The first Ctrl-C or SIGTERM ends the run; later
    ones are ignored.
    """

    def end(number: int, _frame: object) -> None:
        if not over.is_set():
            over.set()
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    in_main_thread = threading.current_thread() is threading.main_thread()
    before = {
        number: signal.signal(number, end)
        for number in (signal.SIGINT, signal.SIGTERM)
        if in_main_thread
    }
    try:
        yield
    finally:
        over.set()
        for number, handler in before.items():
            signal.signal(number, handler)


def _start_engine() -> None:
    """Start Ray as Flower would, but earlier: it installs a SIGTERM handler, which ours has to
    replace.

    Raises:
        MezzotintError: Ray does not start, as on a machine that is busy or short of memory.
    """
    import ray

    if ray.is_initialized():
        return
    search_path = os.pathsep.join([*sys.path, os.environ.get("PYTHONPATH", "")])
    quiet_options: JsonObject = {
        "include_dashboard": False,
        "log_to_driver": False,
        "logging_level": logging.ERROR,
    }
    environment = {"env_vars": {"PYTHONPATH": search_path}}
    processors = len(os.sched_getaffinity(0))
    try:
        ray.init("local", num_cpus=processors, runtime_env=environment, **quiet_options)
    except Exception as error:  # Ray raises a bare Exception where its start takes too long
        ray.shutdown()
        reason = " ".join(str(error).split()).partition(". ")[0].rstrip(".")
        raise MezzotintError(
            f"simulation: its engine, Ray, does not start ({type(error).__name__}: {reason}), and nothing was done; end "
            "other work on this machine and try again, or write an app with --app for a SuperLink on another one"
        ) from None


def simulate(
    settings: RunSettings,
    *,
    tell: Callable[[str], None] | None = None,
    mod: Any = None,
) -> RunReport:
    """Run the whole federation on this machine, with clients in Ray's workers.

    Arguments:
        settings: of the run, which resumes from the checkpoint in `out` if there is one.
        tell: called with one line per round.
        mod: replaces the client mod, in tests. Clients of a simulation allow any sum of their
            metrics.

    Returns: what `mezzotint federate` writes as report.json.

    Raises:
        ParameterError: more clients in a round than there are.
        MezzotintError: the engine does not start, or whatever ended the server.
        KeyboardInterrupt, SystemExit: Ctrl-C, SIGTERM. The engine has ended; finished rounds are in
            `out`.

    `flwr.simulation.run_simulation` is deprecated in favour of `flwr run`, whose SuperLink outlives
    the command and installs dependencies from a registry; until it can run in one process, this is
    the lighter way.

    Example:
        >>> settings = mz.federated.RunSettings(dataset="digits", population=20, clients_per_round=10, rounds=2)
        >>> report = mz.federated.simulate(settings, tell=print)  # doctest: +SKIP
    """
    population = len(settings.federation().clients)
    if settings.clients_per_round + settings.spare > population:
        raise ParameterError(
            "clients_per_round",
            settings.clients_per_round,
            f"the data set has only {counted(population, 'client')}",
        )
    check_run(settings, settings.scheme())  # before anything starts
    if mod is None and settings.evaluate_every:
        mod = SecureUpdates(Policy(evaluate_noise_multiplier=0.0))
    reports: list[RunReport] = []
    server = make_server_app(settings, reports.append, tell=tell)
    _run_engine(server, make_client_app(mod, observer=settings.observer), population)
    if not reports:
        raise MezzotintError("simulation: the server ended without a report; see the log above")
    return reports[0]


@contextmanager
def _quiet() -> Generator[None]:
    """Neither Flower's log below errors nor warnings."""
    logger = logging.getLogger("flwr")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _run_engine(server: ServerApp, clients: ClientApp, population: int) -> None:
    """Run both apps in Flower's simulation, which ends with the server, or with a signal."""
    has_ended = threading.Event()
    linked_server = ServerApp()

    @linked_server.main()
    def main(grid: Grid, context: Context) -> None:
        server(cast(Grid, _Link(grid, has_ended)), context)

    with _quiet():
        from flwr import simulation as flower

        _start_engine()
        resources: JsonObject = {"client_resources": {"num_cpus": 1.0, "num_gpus": 0.0}}
        with _ending(has_ended):
            flower.run_simulation(
                server_app=linked_server,
                client_app=clients,
                num_supernodes=population,
                backend_config=resources,
            )
