"""Estimates of ranked codebooks are unbiased and as noisy as predicted: simulations with fixed seeds.

Each check has a false alarm rate of at most 2e-5 (4.3 standard errors of a normal, or that quantile of chi-squared),
and about 200 checks are made: 4e-3 in all, had the seeds not been fixed.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from mezzotint.vectors import RankedCodebook, codewords as codebook, ranked_codebook
from mezzotint.vectors.rank_table import rank_table

RATE = 2e-5
SIGMAS = float(stats.norm.isf(RATE / 2))


def inputs(dimension):
    def unit(values):
        vector = np.zeros(dimension)
        vector[: len(values)] = values
        return vector / np.linalg.norm(vector)

    return {
        "e_1": unit([1]),
        "two equal": unit([1, 1]),
        "uneven": unit([0.9, 0.436]),
        "eight equal": unit([1] * 8),
        "flat": unit([1] * dimension),
        "Gaussian": unit(np.random.default_rng(1).normal(size=dimension)),
    }


def simulate(scheme, vector, runs):
    """(runs, d) estimates; 200 reports share a round's signs."""
    seeds = np.array([(i // 200 << 32) + i for i in range(runs)], dtype=np.uint64)
    reports = scheme.encode(np.tile(vector, (runs, 1)), seeds, rng=12)
    pairs = zip(reports.tolist(), seeds.tolist(), strict=True)
    return np.array([scheme.decode(report, seed) for report, seed in pairs])


def problems(scheme, vector, runs):
    """What is wrong with the estimates of a vector: along it, across it, or their mean squared error."""
    found = simulate(scheme, vector, runs)
    norm = np.linalg.norm(vector)
    direction = vector / norm if norm else np.eye(vector.size)[0]
    along = found @ direction
    off = along.mean() - norm
    wrong = []
    share = 0.0 if scheme.subspace is None else 0.75 / scheme.subspace
    if abs(off) > share * norm + SIGMAS * along.std() / math.sqrt(runs):
        wrong.append(f"along: {along.mean():.4f} instead of {norm:.4f}")
    across = found - along[:, None] * direction
    spread = (across**2).sum() / runs / (vector.size - 1)
    statistic = runs * (across.mean(axis=0) ** 2).sum() / spread
    bias = scheme.bias * norm
    # The noise of a direction is not quite Gaussian: its own share of the squared mean concentrates all the same.
    if statistic > stats.chi2.isf(RATE, vector.size - 1) + 2 * runs * bias**2 / spread:
        wrong.append(f"across: {statistic:.1f} of {vector.size - 1}")
    errors = ((found - vector) ** 2).sum(axis=1)
    expected = scheme.error(norm)
    if (
        abs(errors.mean() - expected)
        > (SIGMAS * errors.std() / math.sqrt(runs)) + 2 * scheme.bias * expected
    ):
        wrong.append(f"error: {errors.mean():.3f} instead of {expected:.3f}")
    return wrong


def structured(**more):
    table = rank_table(codewords=32, top=2, epsilon=4.0)
    return RankedCodebook(table=table, kind="GX", dimension=256, norms="unit", subspace=64, **more)


def test_a_coordinate_vector_is_estimated_without_bias():
    assert problems(structured(), inputs(256)["e_1"], 3000) == []


def test_ranking_the_transform_itself_is_biased_and_seen(monkeypatch):
    """The mutant: codewords are the chosen coordinates of the Hadamard transform, a "randomly rotated cross-polytope".

    Its estimate is scaled as for truly rotated ones. All coordinates of a transformed e_1 are alike but for their
    signs, so the order of those with one sign says nothing.
    """
    width = 64
    identity = np.eye(16, width)
    monkeypatch.setattr(
        codebook, "normal_products", lambda key, count, vector: identity[:count] @ vector
    )
    monkeypatch.setattr(
        codebook, "normal_rows", lambda key, first, count, size: identity[first : first + count]
    )
    mutant = structured()
    # The moments of a rotated cross-polytope in the same subspace.
    rotated = RankedCodebook(table=mutant.table, kind="X", dimension=width, norms="unit")
    monkeypatch.setitem(mutant.__dict__, "_moments", rotated._moments)
    assert any(text.startswith("along") for text in problems(mutant, inputs(256)["e_1"], 3000))
    assert any(
        text.startswith("along") for text in problems(mutant, inputs(256)["eight equal"], 3000)
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", list(inputs(8)))
@pytest.mark.parametrize("kind", ["structured", "S", "X", "G", "GX", "G in a subspace"])
def test_no_input_is_estimated_with_bias(kind, name):
    dimension = 256 if kind == "structured" else 32
    if kind == "structured":
        scheme = structured()
    elif kind == "G in a subspace":
        scheme = ranked_codebook(32, 2.0, 4, codebook="G", norms="unit", subspace=16)
    else:
        scheme = ranked_codebook(32, 2.0, 4, codebook=kind, norms="unit")
    assert problems(scheme, inputs(dimension)[name], 6000) == []


@pytest.mark.slow
@pytest.mark.parametrize("norm", [0.0, 0.2, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("norms", ["slack", "null"])
@pytest.mark.parametrize("kind", ["S", "GX"])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_no_norm_is_estimated_with_bias(norms, kind, epsilon, norm):
    scheme = ranked_codebook(24, epsilon, 4, codebook=kind, norms=norms, clip_norm=2.0)
    vector = 2 * norm * inputs(24)["uneven"]
    assert problems(scheme, vector, 6000) == []


@pytest.mark.slow
def test_reports_of_several_indices_are_unbiased_and_as_noisy_as_predicted():
    scheme = ranked_codebook(24, 16.0, 12)
    table = rank_table(codewords=16, top=1, epsilon=5.0)
    three = RankedCodebook(table=table, kind="GX", dimension=24, norms="slack", indices=3)
    for one in (scheme, three):
        for norm in (0.3, 1.0):
            assert problems(one, norm * inputs(24)["two equal"], 4000) == []


def test_short_vectors_are_better_off_with_a_null_output():
    null, slack = (ranked_codebook(1000, 4.0, 8, norms=norms) for norms in ("null", "slack"))
    assert null.mse / slack.mse == pytest.approx(
        1.0146, abs=2e-3
    )  # as printed, rounded by the design's own tolerance
    assert null.error(0.0) / slack.error(0.0) == pytest.approx(0.2225, abs=3e-3)  # as above
    zero = ranked_codebook(1000, 8.0, 10, norms="null").error(0.0)
    # Three printed decimals.
    assert zero / ranked_codebook(1000, 8.0, 10, norms="slack").error(0.0) == pytest.approx(
        0.079, abs=1e-3
    )
