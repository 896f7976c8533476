"""Laws of claims with proofs: what the kernel has accepted does not hang on directions, labels or doubled rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from laws.changes import ROWS, SAME_ROWS, Change, law_tables
from laws.registry import judges
from mezzotint import families, kernel, privacy
from mezzotint.core.mechanism import Mechanism
from mezzotint.federated.budgets import Sums
from mezzotint.federated.encoding import FixedPointEncoding, gaussian_encoding
from mezzotint.privacy.accounting import check_report, report_claim
from mezzotint.privacy.sums import lattice_rows
from mezzotint.training import rqp
from mezzotint.vectors import ranked_codebook
from reference.privacy import rows_of, worst_divergence, worst_hockey_stick
from reference.sums import exact_delta
from strategies import examples

DELTA = 1e-3
UNIT = 2.0**-53

# Quality, not soundness: the float claim is raised until a check passes, to within a few parts in ten thousand
# of what suffices, and the grid of losses starts at another row.
RAISED = 2e-2

FINER = 2e-3
"""A proof may begin at a finer grid of losses than the accountant's, or stand on one Renyi order; it is then below
the accountant's number by less than this (at most 4.3e-4 in benchmarks/kernel.py), and still never below the truth.
"""


def again(claim: Any, proof: Any) -> None:
    """Accepts the claim once more, from the text of its file."""
    assert proof is not None, claim.reason
    stated = claim if isinstance(claim, kernel.ExactClaim) else claim.checked
    assert kernel.check(*kernel.read_claim(kernel.write_claim(stated, proof))).certified


def proved(release: Any, **options: Any) -> float:
    """A certified epsilon, checked once more from its own text; never far below the float one."""
    claim, proof = privacy.prove(release, **options)
    assert claim.epsilon >= privacy.account(release, **options).epsilon * (1 - FINER)
    again(claim, proof)
    return float(claim.epsilon)


@judges("privacy.accounting.prove", "privacy.propose.propose_local", "privacy.propose.accepted",
        "privacy.propose.beyond_pure", "kernel.checker.check", "kernel.checker.read_claim")  # fmt: skip
@settings(max_examples=examples(4))
@given(mechanism=law_tables(max_rows=3, max_levels=3), change=st.sampled_from(ROWS))
def test_proofs_about_reports_know_no_labels(mechanism: Mechanism, change: Change) -> None:
    rows = rows_of(mechanism.weights)
    pure = worst_divergence(rows, math.inf)
    assume(math.isfinite(float(pure)) and float(pure) < 20)
    image = change(mechanism)
    assert proved(image, delta=0.0) >= pure
    one = proved(image, delta=DELTA)
    assert worst_hockey_stick(rows, one) <= DELTA
    two = [proved(which, dimension=2, delta=DELTA) for which in (mechanism, image)]
    assert math.isclose(
        *two, rel_tol=RAISED, abs_tol=1e-6
    )  # RAISED says how proofs round; a bisection ends at 1e-6


@judges("privacy.sums.proposals.propose_sum")
@settings(max_examples=examples(2))
@given(
    mechanism=law_tables(max_rows=3, max_levels=3),
    clients=st.integers(2, 4),
    change=st.sampled_from(SAME_ROWS),
)
def test_proofs_about_sums_bound_every_data_set(
    mechanism: Mechanism, clients: int, change: Change
) -> None:
    image = change(mechanism)
    assume(math.isfinite(mechanism.epsilon) and mechanism.epsilon < 20)
    epsilon = proved(image, trust="secure_sum", clients=clients, delta=DELTA)
    rows, _ = lattice_rows(mechanism)
    # At most 4 convolutions of at most 8 floats each: 64 roundings of numbers below 1, over e^epsilon.
    assert exact_delta(rows, clients, epsilon) <= DELTA + 64 * UNIT * (1 + math.exp(epsilon))


@judges(
    "training.proposals.propose_training",
    "training.rqp.training_release",
    "training.rqp.Steps.claim",
    "training.rqp.Steps.propose",
    "privacy.claim.Accountable.account",
    "privacy.propose.Provable.propose",
    "kernel.gaussian.gaussian_curve",
)
@pytest.mark.parametrize("steps", [1, 3])
def test_a_proof_about_one_full_step_is_above_the_closed_form(steps: int) -> None:
    """Steps of a Gaussian compose to a Gaussian: of the shift sqrt(steps) / z, whose delta is in closed form."""
    phase = rqp.Phase(noise_multiplier=2.0, kappa=1.0, sampling=rqp.Poisson(rate=1.0), steps=steps)
    release = rqp.training_release([phase], delta=DELTA)
    epsilon, shift = proved(release), math.sqrt(steps) / 2.0
    tail: Callable[[float], float] = lambda x: 0.5 * math.erfc(x / math.sqrt(2))  # noqa: E731
    exact = tail(epsilon / shift - shift / 2) - math.exp(epsilon) * tail(
        epsilon / shift + shift / 2
    )
    assert exact <= DELTA
    assert epsilon <= privacy.account(release).epsilon * (1 + RAISED)


@judges("privacy.propose.propose_ranks", "vectors.ranked.RankedCodebook.prove",
        "vectors.ranked.RankedCodebook.claim", "vectors.ranked.RankedCodebook.epsilon",
        "vectors.ranked.RankedCodebook.account", "vectors.ranked.RankedCodebook.propose",
        "vectors.rank_table.rank_table", "vectors.ranked_design.ranked_codebook")  # fmt: skip
@pytest.mark.parametrize("kind", ["S", "G"])
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_ranked_codebooks_do_not_know_which_codeword_is_where(kind: Any, epsilon: float) -> None:
    """Any order of the codewords gives the same integers in another order: the largest ratio of any two entries."""
    scheme = ranked_codebook(12, epsilon, 3, codebook=kind)
    ranked, *zero = scheme.table.rows()
    places = ranked[: scheme.table.codewords]
    orders = [np.roll(way, turn) for way in (places, places[::-1]) for turn in range(places.size)]
    rows = np.array(
        [[*order, *ranked[places.size :]] for order in orders] + [list(row) for row in zero]
    )
    ratio = scheme.indices * max(
        math.log(one / other) for one, other in zip(rows.max(axis=0), rows.min(axis=0), strict=True)
    )
    assert ratio <= scheme.epsilon * (1 + 4 * UNIT) <= epsilon * (1 + 4 * UNIT)
    for rounds in (1, 3):
        claim = scheme.claim(rounds=rounds)
        assert rounds * ratio <= claim.epsilon * (1 + 4 * UNIT)
        assert proved(
            privacy.Release(mechanism=scheme, rounds=rounds, delta=0.0)
        ) >= rounds * ratio * (1 - 4 * UNIT)
        outcome = scheme.prove(rounds=rounds)
        again(outcome.claim, outcome.proof)


@judges("privacy.accounting.report_claim")
@settings(max_examples=examples(5))
@given(mechanism=law_tables(max_rows=3, max_levels=3), change=st.sampled_from(ROWS))
def test_reports_of_several_columns_are_certified_in_any_order(
    mechanism: Mechanism, change: Change
) -> None:
    image = change(mechanism)
    claim = report_claim(image)
    assert claim.epsilon == mechanism.epsilon
    assume(0 < mechanism.epsilon < 20)
    assert claim.certified
    assert check_report(image, "ratio", epsilon=mechanism.epsilon, delta=0.0)
    assert not check_report(image, "ratio", epsilon=mechanism.epsilon * (1 - 2.0**-40), delta=0.0)
    there, back = (
        report_claim(dict(zip("xy", tables, strict=True)))
        for tables in ((mechanism, image), (image, mechanism))
    )
    assert there.epsilon == back.epsilon >= 2 * mechanism.epsilon
    assert there.certified
    assert back.certified


@judges(
    "federated.encoding.FixedPointEncoding.claims",
)  # fmt: skip
def test_what_tells_some_inputs_apart_has_no_finite_epsilon() -> None:
    fixed = FixedPointEncoding(clip=1.0, grid_bits=8, clip_norm=1.0)
    assert math.isinf(fixed.report_epsilon)
    assert fixed.claims(Sums(rounds=1, clients=5, size=2, delta=1e-4)) == {}
    one, other = (fixed.encode([x]) for x in (-1.0, 1.0))
    assert (one != other).all()  # no randomness: the report is the input
    noisy = gaussian_encoding(noise_multiplier=2.0, clip_norm=1.0, clients=9, size=1)
    assert math.isinf(noisy.report_epsilon)


def _run(noise_multiplier: float) -> privacy.Release:
    sampling = rqp.Poisson(rate=1.0)
    phase = rqp.Phase(noise_multiplier=noise_multiplier, kappa=1.0, sampling=sampling, steps=2)
    return rqp.training_release([phase], delta=1e-5)


_STRONG, _WEAK = (families.randomized_response(epsilon=value) for value in (0.5, 2.0))
_SUM: dict[str, Any] = {"trust": "secure_sum", "clients": 5, "delta": DELTA}

OTHERS: dict[str, tuple[privacy.Release, privacy.Release]] = {
    "tables": tuple(privacy.Release(mechanism=table, delta=0.0) for table in (_STRONG, _WEAK)),
    "composed": tuple(
        privacy.Release(mechanism=table, rounds=20, delta=DELTA) for table in (_STRONG, _WEAK)
    ),
    "memoised": tuple(
        privacy.Release(mechanism=_STRONG, rounds=9, distinct=distinct, delta=0.0)
        for distinct in (2, 3)
    ),
    "columns": tuple(
        privacy.Release(mechanism={"a": _STRONG, "b": table}, delta=0.0)
        for table in (_STRONG, _WEAK)
    ),
    "sums": tuple(privacy.Release(mechanism=table, **_SUM) for table in (_STRONG, _WEAK)),
    "ranks": tuple(
        privacy.Release(mechanism=ranked_codebook(12, epsilon, 3), delta=0.0)
        for epsilon in (0.5, 2.0)
    ),
    "training": (_run(4.0), _run(2.0)),
}  # pyright: ignore[reportAssignmentType]


@pytest.mark.parametrize("name", OTHERS)
def test_what_was_checked_about_other_tables_or_less_noise_certifies_nothing(name: str) -> None:
    """The kernel's claim about the stronger release of a pair, beside the claim about the weaker."""
    (strong, _), (weak, proof) = (privacy.prove(release) for release in OTHERS[name])
    assert strong.certified
    assert weak.certified
    assert strong.checked is not None
    assert strong.epsilon < weak.epsilon
    assert not replace(weak, checked=strong.checked).certified
    assert replace(weak, epsilon=2 * weak.epsilon).certified
    again(weak, proof)
