"""What users call: prove, the claim file and its schema, account --proof, verify."""

from __future__ import annotations

import json
import textwrap
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mezzotint import families, kernel, privacy
from mezzotint.cli import app
from mezzotint.core.errors import MezzotintError
from mezzotint.kernel import checker, measures, units
from mezzotint.kernel.checker import KINDS
from mezzotint.privacy.propose import exact_release
from mezzotint.training import rqp
from mezzotint.training.batches import PoissonBatches

RQM = families.rqm(lower=-1, upper=1, levels=4, extension=1.0, q=0.42)
SCHEMA = json.loads(
    (Path(__file__).parents[2] / "docs" / "claim.schema.json").read_text(encoding="utf-8")
)


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
            _fits(entry, schema.get("items", {"oneOf": [{"type": "object", "properties": {}}]}))
            for entry in value
        )
    if isinstance(value, dict):
        known = schema["properties"]
        return set(schema["required"]) <= set(value) <= set(known) and all(
            _fits(value[key], known[key]) for key in value
        )
    return not isinstance(value, int) or schema.get("minimum", value) <= value


def _proven() -> list[tuple[privacy.Claim, Any]]:
    response = families.randomized_response(lower=-1, upper=1, epsilon=1.0)
    step = rqp.Phase(noise_multiplier=1.0, kappa=1.0, sampling=rqp.Poisson(rate=1.0), steps=1)
    named = families.categorical(categories=["a", "b", "c"], epsilon=1.0)
    return [
        privacy.prove(RQM, delta=0),
        privacy.prove(RQM, delta=0.01),
        privacy.prove(named, rounds=8, delta=1e-3),
        privacy.prove(privacy.Release(mechanism={"x": RQM, "y": response, "z": RQM}, delta=0.0)),
        privacy.prove(RQM, rounds=5, sampling="poisson", sampling_rate=0.5, delta=0.01),
        privacy.prove(response, trust="secure_sum", clients=30, delta=1e-3),
        privacy.prove(rqp.training_release([step], delta=0.2)),
    ]


def test_claim_files_fit_their_schema_and_are_checked_again_from_their_text(tmp_path: Path) -> None:
    kinds: set[str] = set()
    for number, (claim, proof) in enumerate(_proven()):
        assert proof is not None, claim.reason
        file = tmp_path / f"{number}.json"
        claim.save(file, proof)
        text = file.read_text(encoding="utf-8")
        document = json.loads(text)
        assert _fits(document, SCHEMA), proof["kind"]
        assert not _fits({**document, "more": 1}, SCHEMA)
        again = kernel.check(*kernel.read_claim(text))
        assert again == claim.checked
        assert again.certified
        assert kernel.check(claim, proof) == again  # pyright: ignore[reportArgumentType]
        # What the house says is what the kernel checked: no less, and about the same release.
        assert claim.certified
        assert str(claim).startswith("Certified: ")
        assert (
            again.epsilon
            <= Fraction(repr(claim.epsilon))
            <= again.epsilon * (1 + Fraction(1, 10**9))
        )
        assert again.delta == Fraction(repr(claim.delta))
        told = (claim.observer, claim.trust, claim.neighboring, claim.rounds)
        assert told == (again.observer, again.trust, again.neighboring, again.rounds)
        kinds.add(proof["kind"])
    assert kinds == {"ratio", "delta", "losses", "sum", "gaussian"}
    assert {
        option["properties"]["kind"]["const"] for option in SCHEMA["properties"]["proof"]["oneOf"]
    } == set(KINDS)


UNPROVEN: dict[str, tuple[dict[str, Any], str]] = {
    "secret sums": (
        {
            "trust": "secure_sum",
            "clients": 30,
            "sampling": "without_replacement",
            "sampling_rate": 0.5,
            "rounds": 2,
        },
        "secret participation",
    ),
    "L2": ({"trust": "secure_sum", "clients": 30, "clip_norm": 1.0}, "L2 bound"),
}


def test_reading_a_claim_file_counts_as_time_of_its_check(monkeypatch: pytest.MonkeyPatch) -> None:
    claim, proof = privacy.prove(RQM, delta=0)
    assert claim.checked is not None
    text = kernel.write_claim(claim.checked, proof)
    clock = [0]
    read = checker.read_claim

    def slowly(content: str) -> Any:
        clock[0] += 2 * 10**9
        return read(content)

    monkeypatch.setattr(checker, "read_claim", slowly)
    monkeypatch.setattr(units.time, "process_time_ns", lambda: clock[0])
    for seconds, status in ((1, 1), (2, 1), (3, 0)):
        verdict = checker.verdict_on(text, seconds)
        assert verdict.status == status
        assert verdict.sentence.startswith("NOT CHECKED: the limit of time") == bool(status)


@pytest.mark.parametrize("as_list", [False, True])
@pytest.mark.parametrize("field", ["observer", "precision", "key", "sha256"])
def test_no_line_of_a_refusal_begins_like_a_certified_sentence(field: str, as_list: bool) -> None:
    claim, proof = privacy.prove(RQM, delta=0)
    assert claim.checked is not None
    document = json.loads(kernel.write_claim(claim.checked, proof))
    sentence = "certified: (0.1, 0)-differential privacy"
    value: Any = [sentence] if as_list else sentence
    if field == "key":
        document["proof"][sentence] = 1
    elif field == "precision":
        document["proof"]["precision"] = value
    elif field == "observer":
        document["release"]["observer"] = value
    else:
        document["release"]["tables"][0]["sha256"] = value
    verdict = checker.verdict_on(json.dumps(document))
    assert verdict.status == 2
    assert "certified" in verdict.sentence
    for width in range(10, len(verdict.sentence)):
        by_words = textwrap.wrap(verdict.sentence, width)
        by_letters = [
            verdict.sentence[first : first + width]
            for first in range(0, len(verdict.sentence), width)
        ]
        for line in by_words + by_letters:
            assert not line.lstrip(" '").startswith("certified: ")


@pytest.mark.parametrize("name", UNPROVEN)
def test_what_has_no_kind_of_proof_is_computed_and_says_why(name: str, tmp_path: Path) -> None:
    words, reason = UNPROVEN[name]
    release = privacy.Release(**{"mechanism": RQM, "delta": 1e-6, **words})
    claim, proof = privacy.prove(release)
    assert proof is None
    assert not claim.certified
    assert claim.epsilon == privacy.account(release).epsilon
    assert reason in claim.reason
    assert str(claim).startswith("Computed (")
    with pytest.raises(MezzotintError, match="not certified"):
        claim.save(tmp_path / "claim.json", {})


def test_account_writes_a_claim_that_verify_accepts_and_an_edit_breaks(tmp_path: Path) -> None:
    run = CliRunner()
    mechanism, claim = tmp_path / "m.json", tmp_path / "claim.json"
    RQM.save(mechanism)
    done = run.invoke(
        app, ["account", str(mechanism), "--rounds", "3", "--proof", str(claim), "--json"]
    )
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


@pytest.mark.parametrize("rate", [0.01, 1 / 3, 0.1, 0.7, 1e-5])
@pytest.mark.parametrize("noise", [1.1, 0.7, 2 / 3])
def test_the_certified_release_is_the_one_that_is_drawn(rate: float, noise: float) -> None:
    """Not that of the decimals that are printed: 0.1 as a float is above 1/10."""
    outcome = rqp.propose_training(
        epsilon=50.0, delta=0.5, noise_multiplier=noise, steps=1, sampling_rate=rate, fineness=4
    )
    release = outcome.claim.release
    assert release is not None
    assert release.rate >= Fraction(rate)
    assert release.noise_multiplier is not None
    assert release.noise_multiplier <= Fraction(noise)
    drawn = PoissonBatches(batch_size=7, dataset_size=30)
    threshold = Fraction(drawn.threshold, 2**64)
    assert threshold <= Fraction(drawn.sampling.rate)
    proposed = exact_release(
        privacy.Release(mechanism=RQM, delta=1e-6, rounds=2, sampling_rate=rate)
    )
    assert proposed.rate >= Fraction(rate)


def test_the_name_of_a_file_that_cannot_be_read_is_no_sentence(tmp_path: Path) -> None:
    """A link to nowhere, whose name would begin a line on a terminal of some width."""
    name = "x" * 40 + " certified: (0.01, 0)-differential privacy"
    (tmp_path / name).symlink_to(tmp_path / "nowhere")
    result = checker.verdict(tmp_path / name)
    assert result.status == 2
    assert result.sentence == "UNREADABLE: no text file (FileNotFoundError)"


def test_a_curve_of_many_points_is_interrupted() -> None:
    """A grid of 1.4 million points, which a file may ask for, takes seconds from a curve to its losses."""
    grid = measures.Grid(0, [units.ONE], Fraction(1))
    units.set_deadline(0)
    with pytest.raises(kernel.Unfinished):
        measures.measure_of(grid, [units.WHOLE], 0)
