"""The loop with quantized and with merely clipped gradients: sums of integers, bias, claims, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mezzotint import ParameterError, families
from mezzotint.datasets import Dataset
from mezzotint.training import methods
from reference.training import drawn_codes
from tolerances import MANY, SINGLE
from training.runs import make

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")


def test_quantized_gradients_sum_integers(blobs: Dataset) -> None:
    table = families.k_randomized_response(lower=-1.0, upper=1.0, levels=4, epsilon=3.0)
    run = make(blobs, methods.QuantizedSGD(table=table, clip=0.2), steps=4)
    optimizer = run.optimizer
    rows = torch.tensor([[0.1, -0.5, 0.0], [0.2, 0.05, -0.2]])
    total = optimizer.integer_sum([rows])
    assert total.dtype == np.int64
    # The step is the decoded sum of the codes' integers.
    codes = drawn_codes(table, (rows * 5).numpy(), optimizer.rng())
    np.testing.assert_array_equal(total, codes.astype(int).sum(axis=0))
    np.testing.assert_allclose(
        optimizer.total([rows]).numpy(), 0.2 * table.decode(codes).sum(axis=0), rtol=SINGLE
    )
    run.run()
    claim = run.claim()
    # Honest: 6 coordinates in 4 steps, each seen, of whoever takes part; never one coordinate's epsilon.
    assert claim.dimension == 6
    assert claim.rounds == 4
    assert claim.neighboring == "replace_one"
    assert claim.epsilon > table.epsilon
    assert claim.epsilon <= 24 * table.epsilon * (1 + MANY)
    with pytest.raises(ParameterError, match="neighboring"):
        make(
            blobs, methods.QuantizedSGD(table=table, clip=0.2), neighboring="add_or_remove_one"
        ).claim(1)


def test_quantized_gradients_are_unbiased(blobs: Dataset) -> None:
    table = families.rqm(lower=-1.0, upper=1.0, levels=8, extension=1.0, q=0.42)
    run = make(blobs, methods.QuantizedSGD(table=table, clip=0.5), seed=None)
    rows = torch.tensor([[0.3, -0.5, 0.0, 0.9]]).repeat(40_000, 1)
    # Standard error below 0.5 * 2 / 200 = .005 per coordinate; 6 of them.
    mean = run.optimizer.total([rows]).numpy() / 40_000
    np.testing.assert_allclose(
        mean, [0.3, -0.5, 0.0, 0.5], rtol=0, atol=0.03
    )  # the last is clipped


def test_levels_on_no_lattice_are_counted(blobs: Dataset) -> None:
    uneven = families.erm(lower=-1.0, upper=1.0, bins=[-math.pi, -0.5, 0.5, math.pi], gamma=1.0)
    optimizer = make(blobs, methods.QuantizedSGD(table=uneven, clip=0.1)).optimizer
    rows = torch.tensor([[0.1, -0.05, 0.0], [0.2, 0.05, -0.2]])
    counts = optimizer.integer_sum([rows])
    codes = drawn_codes(uneven, (rows * 10).numpy(), optimizer.rng())
    np.testing.assert_array_equal(counts, [np.bincount(column, minlength=4) for column in codes.T])
    np.testing.assert_allclose(
        optimizer.total([rows]).numpy(), 0.1 * uneven.decode(codes).sum(axis=0), rtol=SINGLE
    )
    assert optimizer.total([rows[:0]]).tolist() == [0.0, 0.0, 0.0]


def test_tables_for_gradients_are_checked(blobs: Dataset) -> None:
    table = families.stochastic_rounding(lower=-1.0, upper=1.0, levels=4)
    lopsided = families.stochastic_rounding(lower=0.0, upper=1.0, levels=4)
    with pytest.raises(ParameterError, match="table"):
        make(blobs, methods.QuantizedSGD(table=lopsided, clip=0.1))
    with pytest.raises(ParameterError, match="clip=0"):
        make(blobs, methods.QuantizedSGD(table=table, clip=0.0))


def test_clipped_only(blobs: Dataset) -> None:
    run = make(blobs, methods.ClippedSGD(clip=0.1))
    rows = torch.tensor([[0.3, -0.5], [0.05, 0.0]])
    np.testing.assert_allclose(run.optimizer.total([rows]).numpy(), [0.15, -0.1], rtol=SINGLE)
    assert run.run().epsilon is None


# Whole gradients as one index -------------------------------------------------------------------------------------
