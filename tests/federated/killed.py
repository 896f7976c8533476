"""A run of the app's server with its clients in one process, as a function of words: what `killing.Runs` forks."""

from __future__ import annotations

import json
from collections.abc import Sequence

from federated.grids import LocalGrid
from mezzotint.federated.app import make_client_app, run_server
from mezzotint.federated.settings import RunSettings


def serve(words: Sequence[str]) -> int:
    """Trains with the settings of one JSON object; prints the ledger's charges."""
    settings = RunSettings(**json.loads(words[0]))
    report = run_server(LocalGrid([make_client_app(trust=settings.trust)] * settings.clients), settings)
    print("\n" + json.dumps(report.ledger["charges"]))
    return 0
