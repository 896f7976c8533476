"""Decoders whose expected value dominates a function of the inputs, as cone programs of least cost."""

from __future__ import annotations

import math

import numpy as np

from mezzotint.collect.support_points import (
    clarabel,
    cone_program,
)
from mezzotint.core.types import FloatArray


def greatest_expectation(pmf: FloatArray, values: FloatArray, shares: FloatArray) -> float:
    """Greatest E v over all distributions of inputs that give the codes exactly these shares."""
    decoder = dominating(pmf, values, shares, width=0.0)
    return min(float(values.max()), float(decoder @ shares))


def dominating(
    pmf: FloatArray,
    values: FloatArray,
    shares: FloatArray,
    *,
    width: float,
    basis: FloatArray | None = None,
) -> FloatArray:
    """The decoder a, pmf a >= values, of the least shares.a + width * (standard deviation of a
    under the shares).

    Arguments:
        pmf: (J, c) of the inputs that have these (J,) values.
        shares: (c,) >= 0, summing to 1.
        basis: `decoder_basis` of rows that those of the pmf are mixtures of; None for its own.

    Guarantees: pmf a >= values whatever the solver does: its answer is lifted until it holds, with
        a margin for rounding; where it has none the constant max(values) stands in. A failure costs
        width, never validity, and raises nothing.
    """
    top = float(values.max())
    scale = top - float(values.min())
    constant = np.full(shares.size, top)
    if scale == 0:
        return constant
    if width > 0 and basis is None:
        basis = decoder_basis(pmf, shares)
    is_used = pmf.any(axis=0)
    if basis is not None:
        basis = basis[is_used]
    solution = _solve(
        pmf[:, is_used],
        (values - top) / scale,
        shares[is_used],
        width,
        basis,
    )
    if solution is None:
        return constant
    decoder = constant.copy()
    decoder[is_used] += scale * solution
    shortfall = float((values - pmf @ decoder).max())
    decoder += max(0.0, shortfall) + 1e-12 * float(np.abs(decoder).max())
    if _cost(decoder, shares, width) > top:
        return constant
    return decoder


def decoder_basis(rows: FloatArray, shares: FloatArray) -> FloatArray:
    """(c, r) decoders whose combinations are all that their means tell apart, uncorrelated under
    the shares.

    The first is constant, of square 1, the others have mean 0 and variance 1 under the shares, and
    r <= c. No decoder with the same means from all (K, c) rows varies less, as the shares are a
    mixture of the rows.
    """
    root = np.sqrt(np.maximum(shares, 1e-24))
    return np.linalg.qr(np.vstack([root, rows / root]).T)[0] / root[:, None]


def _cost(decoder: FloatArray, shares: FloatArray, width: float) -> float:
    mean_report = float(shares @ decoder)
    return mean_report + width * math.sqrt(max(0.0, float(shares @ (decoder - mean_report) ** 2)))


def _solve(
    pmf: FloatArray,
    values: FloatArray,
    shares: FloatArray,
    width: float,
    basis: FloatArray | None,
) -> FloatArray | None:
    """(c,) the decoder of least cost as the solver finds it, by a linear or a second-order
    cone program; None where it fails.
    """
    cones = [clarabel.NonnegativeConeT(values.size)]
    if basis is None:
        return cone_program(shares, -pmf, -values, cones)
    # By its coordinates y in the basis, a decoder has mean +-y_0 and standard deviation |(y_1,
    # ...)|.
    dimension = basis.shape[1]
    constraints = np.zeros((values.size + dimension, dimension + 1))
    constraints[: values.size, :dimension] = -pmf @ basis
    constraints[values.size, dimension] = -1.0
    constraints[values.size + 1 :, 1:dimension] = -np.identity(dimension - 1)
    right = np.append(-values, np.zeros(dimension))
    cones.append(clarabel.SecondOrderConeT(dimension))
    solution = cone_program(np.append(shares @ basis, width), constraints, right, cones)
    if solution is None:
        return None
    return basis @ solution[:dimension]
