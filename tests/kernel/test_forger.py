"""The forger finds nothing in the kernel, and finds the kernel's old holes and most of those that are seeded."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from reference import forger, mutants

SECONDS = 60
"""Of the processor's time, for a hunt beside the other tests; `make test-all` hunts ten times as long."""


def _report(seed: int, seconds: int) -> None:
    count, finding = forger.hunt(seed, seconds)
    print(f"seed {seed}: {count} proofs in {seconds} s of processor time")
    assert count > 0
    assert finding is None, (seed, finding)


def test_no_forged_proof_certifies_a_false_claim() -> None:
    """The seed is the date: another hunt every day."""
    _report(int(datetime.now(UTC).strftime("%Y%m%d")), SECONDS)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_no_forged_proof_certifies_a_false_claim_in_ten_minutes(part: int) -> None:
    _report(int(datetime.now(UTC).strftime("%Y%m%d")) * 10 + part, SECONDS)


def test_the_truth_is_that_of_the_definition() -> None:
    """Randomized response of ratio 3: delta 1/2 at epsilon 0; seen with chance 1/2 it is 1/4; of two, 3/4 - 1/16..."""
    quarter = forger.TOTAL // 4
    p, q = (forger.law_of(row) for row in ([3 * quarter, quarter], [quarter, 3 * quarter]))
    assert forger.divergence(p, q, forger.Fraction(1)) == forger.Fraction(1, 2)
    seen = forger.kernel.ExactRelease(
        observer="reports", sampling="public", rate=forger.Fraction(1, 2)
    )
    truth = forger.truth_of(seen, forger.Fraction(0), [(p, q)], [p])
    assert truth == forger.Fraction(1, 4)
    twice = forger.kernel.ExactRelease(observer="reports", rounds=2)
    # P^2 - Q^2 over the outcomes: 9/16 - 1/16 once, and 3/16 - 3/16 twice.
    assert forger.truth_of(twice, forger.Fraction(0), [(p, q)], [p]) == forger.Fraction(1, 2)


@pytest.mark.parametrize("name", ["equal rows are no pair", "row sums"])
def test_old_and_simple_holes_are_found(name: str) -> None:
    found, output = mutants.hunts(name, 1, SECONDS)
    assert found, output


@pytest.mark.slow
def test_nine_of_ten_seeded_holes_are_found_within_a_minute() -> None:
    """Of processor time, so that a busy machine finds as many."""
    found = {name: mutants.hunts(name, 1, SECONDS)[0] for name in mutants.HOLES}
    print(found)
    assert sum(found.values()) >= 0.9 * len(found), found


def test_a_check_that_is_not_there_is_no_hole() -> None:
    """Every edit of a hole changes the source."""
    for name in mutants.HOLES:
        for module, source in mutants.hole(name).items():
            assert source != (mutants.KERNEL / f"{module}.py").read_text(encoding="utf-8")
