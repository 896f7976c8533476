"""A federation on one machine: Flower's simulation runtime on Ray."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable
from typing import Any

from mezzotint.core.errors import MezzotintError, ParameterError
from mezzotint.core.lazy import LazyModule
from mezzotint.datasets import load_federation
from mezzotint.federated.app import RunReport, make_client_app, make_server_app
from mezzotint.federated.settings import RunSettings

flower: Any = LazyModule("flwr.simulation")

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")


def simulate(
    settings: RunSettings,
    *,
    tell: Callable[[str], None] | None = None,
    mod: Any = None,
    cpus_per_client: float = 1.0,
) -> RunReport:
    """Runs the whole federation here, every client in Ray's workers.

    Arguments:
        settings: of the run; when `out` holds a checkpoint, the run goes on from it.
        tell: called with one line per round.
        mod: stands in for the client mod, in tests.
        cpus_per_client: share of a core that one client is given; decides how many run at a time.

    Raises:
        ParameterError: more clients in a round than there are. MezzotintError: whatever ended the server.

    `flwr.simulation.run_simulation` is deprecated in favour of `flwr run`, which starts a SuperLink that outlives the
    command and installs dependencies from a registry; until it can run in one process, this is the lighter way.
    """
    federation = load_federation(
        settings.dataset, folder=settings.data, clients=settings.clients, alpha=settings.alpha, seed=settings.seed
    )
    population = len(federation.clients)
    if settings.per_round > population:
        raise ParameterError("per_round", settings.per_round, f"the data set has only {population} clients")
    # A mechanism that cannot be used is refused before anything starts.
    _ = settings.codebook() if settings.trust == "local" else settings.encoding()
    reports: list[RunReport] = []
    failures: list[MezzotintError] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.getLogger("flwr").setLevel(logging.ERROR)
        try:
            flower.run_simulation(
                server_app=make_server_app(settings, reports.append, tell=tell),
                client_app=make_client_app(mod, trust=settings.trust),
                num_supernodes=population,
                backend_config={
                    "client_resources": {"num_cpus": cpus_per_client, "num_gpus": 0.0},
                    "init_args": {"num_cpus": len(os.sched_getaffinity(0)), "log_to_driver": False},
                },
            )
        except MezzotintError as error:
            failures.append(error)
    if failures:
        raise failures[0]
    if not reports:
        raise MezzotintError("simulation: the server ended without a report; see the log above")
    return reports[0]
