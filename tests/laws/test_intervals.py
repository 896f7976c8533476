"""Laws of estimates: the other way round, in other units, with counts merged; intervals follow their estimates."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from hypothesis import given, settings, strategies as st

from laws.changes import OFFSET, SCALE, law_tables, mirrored, rescaled, shifted
from laws.registry import judges
from mezzotint import collect, families
from mezzotint.collect.bets import Betting
from mezzotint.collect.intervals import bernstein
from mezzotint.collect.spreads import spread_of
from mezzotint.core.mechanism import Mechanism
from reference.privacy import divergence, rows_of
from strategies import examples
from tolerances import FEW, LOG_UP, MANY

# Ends of intervals are found to 1e-6 of a threshold by solvers that see images in another order; widths are about
# a square root of that where the likelihood is flat, so: a thousandth of the range.
SOLVED = 1e-3


@st.composite
def counted(draw: st.DrawFn) -> collect.CodeCounts:
    mechanism = draw(law_tables(max_rows=4, max_levels=4, jumps=False))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.sampled_from([40, 2, 1000]))
    shares = rng.dirichlet(np.full(mechanism.knots.size, 0.4)) @ mechanism.probabilities
    return collect.CodeCounts(mechanism=mechanism, counts=rng.multinomial(n, shares / shares.sum()))


def image(
    counts: collect.CodeCounts, mechanism: Mechanism, *, back: bool = False
) -> collect.CodeCounts:
    return collect.CodeCounts(
        mechanism=mechanism, counts=counts.counts[::-1] if back else counts.counts
    )


def ends(interval: collect.Interval) -> np.ndarray:
    return np.array([interval.low, interval.value, interval.high])


@judges(
    "collect.intervals.mean_interval",
    "collect.intervals.Target.interval",
    "collect.estimates.estimate",
    "collect.estimates.Estimate.intervals",
)
@settings(max_examples=examples(4))
@given(counts=counted(), method=st.sampled_from(["safe", "asymptotic"]))
def test_the_mean_follows_its_units_and_directions(counts: collect.CodeCounts, method: str) -> None:
    mechanism = counts.mechanism
    scale = max(abs(mechanism.levels).max(), abs(mechanism.knots).max())
    found = ends(_mean(counts, method))
    back = ends(_mean(image(counts, mirrored(mechanism), back=True), method))
    other = ends(_mean(image(counts, rescaled(mechanism)), method))
    # Sums of a handful of floats of the size of levels; the offset's rounding is of the same order.
    np.testing.assert_allclose(-back[::-1], found, rtol=0, atol=10 * FEW * scale)
    np.testing.assert_allclose((other - OFFSET) / SCALE, found, rtol=0, atol=10 * FEW * scale)
    assert found[0] <= found[1] <= found[2]
    n, confidence = counts.n, 0.9
    width = _bernstein(mechanism, n, confidence)
    assert math.isclose(_bernstein(mirrored(mechanism), n, confidence), width, rel_tol=MANY)
    assert math.isclose(_bernstein(rescaled(mechanism), n, confidence), SCALE * width, rel_tol=MANY)
    assert _bernstein(mechanism, n, 0.99) > width > _bernstein(mechanism, 2 * n, confidence)


def _mean(counts: collect.CodeCounts, method: str) -> collect.Interval:
    return collect.estimate(counts, confidence=0.9, method=method).intervals["mean"]  # pyright: ignore[reportArgumentType]


def _bernstein(mechanism: Mechanism, n: int, confidence: float) -> float:
    return bernstein(spread_of(mechanism), n=n, confidence=confidence)


@judges(
    "collect.estimates.estimate",
    "collect.estimates.Estimate.privacy_error",
    "collect.estimates.Estimate.sampling_error",
)
@settings(max_examples=examples(2))
@given(counts=counted())
def test_shares_variances_and_quantiles_follow_theirs(counts: collect.CodeCounts) -> None:
    mechanism = counts.mechanism
    span = mechanism.upper - mechanism.lower
    edges = np.array([mechanism.lower, (mechanism.lower + mechanism.upper) / 2, mechanism.upper])

    def shapes(those: collect.CodeCounts, where: np.ndarray) -> Betting:
        return Betting(those, confidence=0.9, edges=where, deal=7)

    found = shapes(counts, edges)
    back = shapes(image(counts, mirrored(mechanism), back=True), -edges[::-1])
    # The deal of the mirrored reports is the mirrored deal: dealing itself knows no mirror.
    chunks = [
        replace(
            chunk,
            counts=chunk.counts[::-1],
            expected=chunk.expected[::-1],
            centre=-chunk.centre,
        )
        for chunk in found.folds
    ]
    back.__dict__["folds"] = chunks
    other = shapes(image(counts, rescaled(mechanism)), edges * SCALE + OFFSET)
    for result, turned, unit in ((back, True, 1.0), (other, False, SCALE)):
        for low, high in pairwise(range(3)):
            image_edges = result.edges
            assert image_edges is not None
            place = (2 - high, 2 - low) if turned else (low, high)
            ours = found.share(float(edges[low]), float(edges[high]))
            theirs = result.share(float(image_edges[place[0]]), float(image_edges[place[1]]))
            np.testing.assert_allclose(ends(theirs)[::2], ends(ours)[::2], rtol=0, atol=SOLVED)
        np.testing.assert_allclose(
            ends(result.variance())[::2] / unit**2,
            ends(found.variance())[::2],
            atol=SOLVED * span**2,
        )
    plain = collect.estimate(counts, confidence=0.9, method="safe", deal=7)
    scaled = collect.estimate(
        image(counts, rescaled(mechanism)), confidence=0.9, method="safe", deal=7
    )
    for name in ("privacy_error", "sampling_error"):
        np.testing.assert_allclose(
            ends(getattr(scaled, name))[::2] / SCALE,
            ends(getattr(plain, name))[::2],
            atol=math.sqrt(SOLVED) * span,
        )


@settings(max_examples=examples(2))
@given(counts=counted())
def test_what_is_decoded_says_nothing_about_where_inputs_were(counts: collect.CodeCounts) -> None:
    """The likelihood sees codes: other levels leave shares as they were. Halves of the counts merge to the whole."""
    edges = [counts.mechanism.lower, counts.mechanism.upper - 1 / 64, counts.mechanism.upper]
    one, other = (
        collect.estimate(
            image(counts, table), confidence=0.9, method="safe", histogram=edges, deal=7
        )
        for table in (counts.mechanism, shifted(counts.mechanism))
    )
    assert one.histogram is not None
    assert other.histogram is not None
    np.testing.assert_allclose(other.histogram.low, one.histogram.low, atol=SOLVED)
    np.testing.assert_allclose(other.histogram.high, one.histogram.high, atol=SOLVED)
    half = counts.counts // 2
    merged = collect.CodeCounts(mechanism=counts.mechanism, counts=half).merge(
        collect.CodeCounts(mechanism=counts.mechanism, counts=counts.counts - half)
    )
    assert merged.counts.tolist() == counts.counts.tolist()


@judges("collect.estimates.frequencies", "collect.evidence.Evidence.share")
@settings(max_examples=examples(7))
@given(
    counts=st.lists(st.integers(0, 60), min_size=3, max_size=3).filter(
        lambda found: sum(found) > 1
    ),
    order=st.permutations([0, 1, 2]),
    method=st.sampled_from(["asymptotic", "safe"]),
)
def test_frequencies_have_no_first_category(
    counts: list[int], order: list[int], method: str
) -> None:
    names = ["a", "b", "c"]

    def estimated(turn: list[int]) -> dict[str, tuple[float, float, float]]:
        table = families.categorical(categories=[names[i] for i in turn], epsilon=1.5, method="krr")
        found = collect.estimate(
            collect.CodeCounts(mechanism=table, counts=np.array([counts[i] for i in turn])),
            method=method,  # pyright: ignore[reportArgumentType]
        )
        assert isinstance(found, collect.Frequencies)
        assert found.epsilon is None or found.epsilon == table.epsilon
        shares = zip(found.categories, found.shares, strict=True)
        return {str(name): (share.low, share.value, share.high) for name, share in shares}

    here, there = estimated([0, 1, 2]), estimated(order)
    for name in names:
        np.testing.assert_allclose(there[name], here[name], rtol=0, atol=SOLVED)
        assert here[name][0] <= here[name][2]


@judges(
    "collect.runs.privatize", "collect.runs.privatize_columns",
    "collect.folders.FolderRun.execute", "privacy.claim.Claimed.epsilon",
)  # fmt: skip
def test_collected_columns_claim_what_their_tables_cost_together(tmp_path: Path) -> None:
    """In either order, under any name, in other units, and with the same column twice."""
    (tmp_path / "in.csv").write_text("x,y\n" + "0.25,-3\n" * 40)
    tables = {
        "x": families.randomized_response(lower=0, upper=1, epsilon=0.7),
        "y": families.rqm(lower=-7, upper=1, levels=4, extension=1.0, q=0.4),
    }
    total = sum(
        float(divergence(*rows_of(table.weights[[0, -1]]), math.inf)) for table in tables.values()
    )
    for k, names in enumerate((["x", "y"], ["y", "x"])):
        found = collect.privatize_columns(
            tmp_path / "in.csv",
            tmp_path / f"{k}.parquet",
            mechanisms={name: tables[name] for name in names},
        )
        assert found.claim is not None
        assert total <= found.claim.epsilon <= total * (1 + LOG_UP)
    for name, table in tables.items():
        one = collect.privatize(
            tmp_path / "in.csv", tmp_path / f"{name}.csv", column=name, mechanism=table
        )
        assert one.claim is not None
        assert one.claim.epsilon == one.epsilon == table.epsilon
        estimate = collect.estimate(collect.read_counts(tmp_path / f"{name}.csv"))
        assert isinstance(estimate, collect.Estimate)
        assert estimate.epsilon == table.epsilon
