"""A server killed before changes of a file, and within writes: what a client sent is charged for good."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from killing import Runs
from mezzotint.families import discrete_gaussian
from mezzotint.federated.encoding import canonical, noise_encoding
from mezzotint.vectors import ranked_codebook

pytestmark = pytest.mark.slow

CLIENTS, ROUNDS = 4, 2
STRIDE = 3  # a round changes files about thirty times, in one order
SENT = {
    "sum": "mezzotint.federated.secagg.client:Client._sum",
    "local": "mezzotint.vectors.ranked.scheme:RankedSession.answer",
}
"""What a client does when it sends something that depends on its data."""


def _settings(folder: Path, trust: str) -> dict[str, Any]:
    path = folder / "mechanism.json"
    if trust == "local":
        ranked_codebook(650, 8.0, clip_norm=1.0).save(path)
    else:
        noise = noise_encoding(
            lambda deviation: discrete_gaussian(sigma=deviation),
            noise_multiplier=4.0,
            l2_norm=2.0,
            clients=CLIENTS,
            size=650,
        )
        path.write_text(canonical(noise.as_dict()))
    return {
        "clients": CLIENTS, "per_round": CLIENTS, "alpha": 5.0, "mechanism": str(path), "rounds": ROUNDS,
        "minimum": 3, "stage_timeout": 5.0, "trust": trust,
    }  # fmt: skip


@pytest.mark.parametrize("trust", list(SENT))
@pytest.mark.parametrize("torn", [False, True], ids=["before", "within"])
def test_whatever_was_sent_is_charged_and_no_round_is_asked_twice(tmp_path: Path, trust: str, torn: bool) -> None:
    settings, marks = _settings(tmp_path, trust), tmp_path / "marks"
    with Runs.of("federated.killed:serve", counted=SENT[trust], marks=marks) as runs:

        def run(name: object, **moment: Any) -> Any:
            return runs(json.dumps(settings | {"out": str(tmp_path / str(name))}), **moment)

        run("first")  # where nothing was compiled before, it changes files of the compiler's cache as well
        changes = run("whole").changes
        assert marks.stat().st_size == 2 * CLIENTS * ROUNDS
        assert changes > 10
        for at in range(1 + torn, changes + 1, STRIDE):
            before = marks.stat().st_size
            assert run(at, at=at, torn=torn).status is None
            found = run(at)
            assert found.status == 0, found.output
            sent = marks.stat().st_size - before
            charged = json.loads(found.output.rstrip().splitlines()[-1])
            # One round at most was interrupted, and asked its clients for nothing twice.
            assert sent <= sum(charged.values()) <= CLIENTS * (ROUNDS + 1)
            assert sum(charged.values()) >= CLIENTS * ROUNDS
            lines = (tmp_path / str(at) / "ledger.jsonl").read_text().splitlines()
            asked = [line["round"] for line in map(json.loads, lines) if line.get("asked")]
            assert len(asked) == len(set(asked))
