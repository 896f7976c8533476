"""A Flower app folder for `flwr run`: the same run on a deployment of many machines."""

from __future__ import annotations

import importlib.metadata
import json
import logging
import os
import shutil
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast, final

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

import mezzotint as mz
from mezzotint.core.errors import MezzotintError, ParameterError
from mezzotint.core.files import refuse_existing, write_text
from mezzotint.core.records import JsonObject
from mezzotint.federated.app import RunReport, check_run, make_server_app
from mezzotint.federated.client_app import make_client_app
from mezzotint.federated.encoding import canonical
from mezzotint.federated.mod import SecureUpdates
from mezzotint.federated.policy import Policy
from mezzotint.federated.secagg import Roster
from mezzotint.federated.settings import RunSettings, Scheme
from mezzotint.vectors import RankedCodebook

PACKAGE = "mezzotint_run"
ENCODING = "encoding.json"
ROSTER = "roster.json"

_HEAD = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "mezzotint-federated-run"
version = "1.0.0"
description = "Federated learning with few-bit private updates through secure aggregation"
license = "Apache-2.0"
{dependencies}

[tool.hatch.build.targets.wheel]
packages = ["mezzotint_run"]

[tool.flwr.app]
publisher = "mezzotint"

[tool.flwr.app.components]
serverapp = "mezzotint_run.server:server_app"
clientapp = "mezzotint_run.client:client_app"

[tool.flwr.app.config]
"""

_MODULES = {
    "__init__": '''"""The apps of the installed mezzotint, with the files beside this one."""

import mezzotint

WRITTEN_BY = "{version}"

if mezzotint.__version__ != WRITTEN_BY:
    raise ImportError(
        f"this app was written by mezzotint {{WRITTEN_BY}}, but {{mezzotint.__version__}} runs here; install "
        "that version, or write the app anew with this one"
    )
''',
    # Flower looks for assignments in these files, without running them.
    "server": '''"""What the SuperLink runs."""

from pathlib import Path

from mezzotint.federated.app import make_server_app

server_app = make_server_app(folder=Path(__file__).parent)
''',
    "client": '''"""What nodes run, in a process for each message: nothing of the server's is loaded here."""

from mezzotint.federated.client_app import make_client_app

client_app = make_client_app(observer={observer!r})
''',
}


def requirement() -> str:
    """A pip requirement for this version of mezzotint; "" if it was installed from a folder or an
    archive (PEP 610).
    """
    distribution = importlib.metadata.distribution("mezzotint")
    recorded = distribution.read_text("direct_url.json")
    if recorded is None:
        return f"mezzotint[flower]=={distribution.version}"
    origin = json.loads(recorded)
    if "vcs_info" not in origin:
        return ""
    system, commit = (origin["vcs_info"][key] for key in ("vcs", "commit_id"))
    return f"mezzotint[flower] @ {system}+{origin['url']}@{commit}"


def described(encoding: Scheme) -> str:
    """The text of the file that `RunSettings.mechanism` names."""
    return (
        encoding.to_json()
        if isinstance(encoding, RankedCodebook)
        else canonical(encoding.as_dict())
    )


def _dependencies() -> str:
    needed = requirement()
    if needed:
        return f"dependencies = [{json.dumps(needed)}]"
    return (
        f"# mezzotint {mz.__version__} was installed from a folder, not from a package index: install the same\n"
        "# version on every machine of the federation, in a checkout: pip install '.[flower]'\n"
        "dependencies = []"
    )


def write_app(folder: Path, settings: RunSettings, encoding: Scheme | None = None) -> None:
    """Write a Flower app that contains everything but the data; `flwr run FOLDER` then runs these
    settings.

    The folder can be moved to another machine: no path in it is absolute. Results go to
    `settings.out` if that is a relative path, else to a new folder per run, both below the
    directory in which the SuperLink was started. Each machine has its own path of the data: nodes
    name it in their `--node-config 'data="/path"'`, the SuperLink's machine in the environment
    variable MEZZOTINT_DATA. `settings.mechanism` is ignored; without an encoding, updates are
    rounded to the fine grid of `settings.clip`. ParameterError if the folder holds an app already.
    """
    check_run(settings, encoding or replace(settings, mechanism="").encoding())
    is_new = not folder.is_dir()
    if is_new:
        refuse_existing(folder, overwrite=None, parameter="app")
        folder.mkdir()
    try:
        _write(folder, settings, encoding)
    except BaseException:
        if is_new:
            shutil.rmtree(folder)
        raise


def _write(folder: Path, settings: RunSettings, encoding: Scheme | None) -> None:
    target = refuse_existing(folder / "pyproject.toml", overwrite=None, parameter="app")
    roster = Roster.load(settings.roster) if settings.roster else None
    if roster is not None:
        roster.check_drawn(
            settings.clients_per_round + settings.spare, parameter="clients_per_round"
        )
    relative_out = "" if Path(settings.out).is_absolute() else settings.out
    relative_data = "" if Path(settings.data).is_absolute() else settings.data
    file_names = {
        "mechanism": "" if encoding is None else ENCODING,
        "roster": ROSTER if settings.roster else "",
    }
    portable = replace(settings, **file_names, out=relative_out, data=relative_data)
    config_lines = [
        f"{setting.replace('_', '-')} = {json.dumps(value)}"
        for setting, value in portable.as_dict().items()
    ]
    package = folder / PACKAGE
    package.mkdir(exist_ok=True)
    # Not the installed metadata's version, which in an editable install stays behind its code.
    placeholders = {"version": mz.__version__, "observer": settings.observer}
    files = {
        package / f"{module_name}.py": contents.format(**placeholders)
        for module_name, contents in _MODULES.items()
    }
    if encoding is not None:
        files[package / ENCODING] = described(encoding)
    if roster is not None:
        files[package / ROSTER] = roster.to_json()
    # The project file comes last: without it, the folder is not an app.
    files[target] = _HEAD.format(dependencies=_dependencies()) + "\n".join(config_lines) + "\n"
    for path, contents in files.items():
        write_text(path, contents, overwrite=True)


os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")


@final
class _Link:
    """Flower's grid until the run is over; after that, a thread that uses it ends silently."""

    def __init__(self, grid: Grid, over: threading.Event) -> None:
        self._grid, self._over = grid, over

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
            f"the data set has only {population} clients",
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
    has_ended, linked_server = threading.Event(), ServerApp()

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
