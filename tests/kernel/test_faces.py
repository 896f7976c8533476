"""What users call: prove, the claim file and its schema, account --proof, verify."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mezzotint import families, kernel, privacy
from mezzotint.cli import app
from mezzotint.core.errors import ParameterError
from mezzotint.kernel.check import KINDS
from mezzotint.privacy.propose import Outcome
from mezzotint.training.rqp.propose import propose_training

RQM = families.rqm(lower=-1, upper=1, levels=4, extension=1.0, q=0.42)
SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "claim.schema.json").read_text(encoding="utf-8"))


def _fits(value: Any, schema: dict[str, Any]) -> bool:
    """As much of JSON Schema as the claim file's uses."""
    if "$ref" in schema:
        return _fits(value, SCHEMA["$defs"][schema["$ref"].rsplit("/", 1)[1]])
    if "oneOf" in schema:
        return sum(_fits(value, option) for option in schema["oneOf"]) == 1
    if "const" in schema or "enum" in schema:
        return value in schema.get("enum", [schema.get("const")])
    kinds = {"object": dict, "array": list, "string": str, "integer": int}
    if not isinstance(value, kinds[schema["type"]]):
        return False
    if isinstance(value, list):
        return all(
            _fits(entry, schema.get("items", {"oneOf": [{"type": "object", "properties": {}}]})) for entry in value
        )
    if isinstance(value, dict):
        known = schema["properties"]
        return set(schema["required"]) <= set(value) <= set(known) and all(
            _fits(value[key], known[key]) for key in value
        )
    return not isinstance(value, int) or schema.get("minimum", value) <= value


def _outcomes() -> list[Outcome]:
    response = families.randomized_response(lower=-1, upper=1, epsilon=1.0)
    return [
        privacy.prove(RQM, delta=0),
        privacy.prove(RQM),
        privacy.prove(RQM, rounds=5, sampling="poisson", sampling_rate=0.5),
        privacy.prove(response, view="sum", clients=30, delta=1e-3),
        propose_training(epsilon=1.5, delta=0.2, noise_multiplier=1.0, steps=1, fineness=64),
    ]


def test_claim_files_fit_their_schema_and_are_checked_again_from_their_text() -> None:
    kinds: set[str] = set()
    for outcome in _outcomes():
        assert outcome.proof is not None, outcome.reason
        document = json.loads(str(outcome.text))
        assert _fits(document, SCHEMA), outcome.proof["kind"]
        assert not _fits({**document, "more": 1}, SCHEMA)
        again = kernel.check(*kernel.read_claim(str(outcome.text)))
        assert again == outcome.claim
        assert str(outcome).startswith("certified: ")
        kinds.add(outcome.proof["kind"])
    assert kinds == {"ratio", "delta", "losses", "sum", "gaussian"}
    assert {option["properties"]["kind"]["const"] for option in SCHEMA["properties"]["proof"]["oneOf"]} == set(KINDS)


def test_secret_participation_in_sums_is_refused_with_a_remedy() -> None:
    with pytest.raises(ParameterError, match="use account"):
        privacy.prove(RQM, view="sum", clients=30, sampling="without_replacement", sampling_rate=0.5)


def test_account_writes_a_claim_that_verify_accepts_and_an_edit_breaks(tmp_path: Path) -> None:
    run = CliRunner()
    mechanism, claim = tmp_path / "m.json", tmp_path / "claim.json"
    RQM.save(mechanism)
    done = run.invoke(app, ["account", str(mechanism), "--rounds", "3", "--proof", str(claim), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["certified"] is True
    done = run.invoke(app, ["verify", str(claim)])
    assert done.exit_code == 0
    assert done.stdout.startswith("certified: ")
    document = json.loads(claim.read_text())
    document["statement"]["epsilon"] = "1"
    claim.write_text(json.dumps(document))
    assert run.invoke(app, ["verify", str(claim)]).exit_code == 1
    claim.write_text(claim.read_text()[:-9])
    done = run.invoke(app, ["verify", str(claim), "--json"])
    assert done.exit_code == 2
    assert json.loads(done.stdout)["valid"] is False
