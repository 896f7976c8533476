"""Expected loss as a linear form of the table: one matrix serves evaluation and design alike (T6)."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import ParameterError
from mezzotint.core.priors import Prior

FloatArray = npt.NDArray[np.float64]


def cost_matrix(*, knots: FloatArray, levels: FloatArray, prior: Prior, loss: Literal["mse", "mae"]) -> FloatArray:
    """(K+1, m) matrix C with expected loss = sum(C * P) for every table P of row probabilities on these knots.

    Arguments:
        knots: (K+1,) sorted, repeated at jumps.
        levels: (m,) increasing.
        prior: distribution of the clipped input.
        loss: "mse" (squared data units) or "mae" (data units).

    Guarantees: exact up to the prior's moments (closed form for uniform and sample priors).
    """
    if loss not in ("mse", "mae"):
        raise ParameterError("loss", loss, 'use "mse" or "mae"')
    inner = levels[(levels > knots[0]) & (levels < knots[-1])] if loss == "mae" else levels[:0]
    edges = np.unique(np.concatenate([knots, inner]))
    moments = prior.moments(edges)
    left = edges[:-1]
    segment = np.searchsorted(knots, left, side="right") - 1
    width = knots[segment + 1] - knots[segment]
    position = (left - knots[segment]) / width

    # With y = x - left the loss is a polynomial in y on each piece: (d - y)^2, or +-(d - y) as no level is inside.
    distance = levels - left[:, None]
    if loss == "mse":
        terms = np.stack([distance**2, -2 * distance, np.ones_like(distance)])
    else:
        sign = np.where(levels >= edges[1:, None], 1.0, -1.0)
        terms = np.stack([sign * distance, -sign, np.zeros_like(distance)])
    plain = np.einsum("opi,po->pi", terms, moments[:, :3])  # integral of loss
    tilted = np.einsum("opi,po->pi", terms, moments[:, 1:])  # integral of loss * y

    # Row k+1 is drawn with probability t(y) = position + y / width, row k with the rest.
    to_right = position[:, None] * plain + tilted / width[:, None]
    result = np.zeros((knots.size, levels.size))
    np.add.at(result, segment + 1, to_right)
    np.add.at(result, segment, plain - to_right)
    return result
