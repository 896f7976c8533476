"""Changes of a table that must leave what is promised about it as it was, and the tables that are changed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import TOTAL
from strategies import random_weights

Change = Callable[[Mechanism], Mechanism]

_SPREADS = (1.0, 4.0, 0.3, 12.0, 0.0)


@st.composite
def law_tables(
    draw: st.DrawFn, *, max_rows: int = 4, max_levels: int = 4, jumps: bool = True
) -> Mechanism:
    """Small asymmetric tables with zero weights, worst rows inside and jumps.

    Knots and levels are small dyadic numbers and weights are even, so that every change below is exact in floats.
    Levels lie on a lattice, unevenly.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows, levels = draw(st.integers(2, max_rows)), draw(st.integers(2, max_levels))
    knots = np.sort(rng.choice(np.arange(-16, 17), rows, replace=False)) / 8.0
    if jumps and rows > 3 and draw(st.booleans()):
        knots[1] = knots[2]
    weights = random_weights(
        rng,
        rows,
        levels,
        draw(st.sampled_from(_SPREADS)),
        draw(st.sampled_from([0.0, 0.0, 0.0, 0.3])),
    )
    if rows > 2 and draw(st.booleans()):  # the worst row inside
        mild = random_weights(rng, rows, levels, 0.1)
        weights = np.where(np.arange(rows)[:, None] == 1, weights, mild)
    weights = weights // 2 * 2
    if (weights > 0).any(axis=0).sum() == 1:  # a table that says nothing cannot be summed
        weights[0, (int(weights[0].argmax()) + 1) % levels] = 2
    weights[np.arange(rows), weights.argmax(axis=1)] += TOTAL - weights.sum(axis=1)
    values = np.cumsum(rng.integers(1, 3, levels)) / 2 - 1.0
    return Mechanism(knots=knots, levels=values, weights=weights, name="law")


def _with(
    mechanism: Mechanism, knots: object = None, levels: object = None, weights: object = None
) -> Mechanism:
    parts = {"knots": knots, "levels": levels, "weights": weights}
    chosen = {
        name: getattr(mechanism, name) if value is None else value for name, value in parts.items()
    }
    return Mechanism(**chosen, name=mechanism.name)  # pyright: ignore[reportArgumentType]


def mirrored(mechanism: Mechanism) -> Mechanism:
    """x -> -x, and reports with it."""
    return _with(
        mechanism, -mechanism.knots[::-1], -mechanism.levels[::-1], mechanism.weights[::-1, ::-1]
    )


SCALE, OFFSET = 4.0, -3.0


def rescaled(mechanism: Mechanism) -> Mechanism:
    """Other units: x -> 4 x - 3, and reports with it."""
    return _with(mechanism, mechanism.knots * SCALE + OFFSET, mechanism.levels * SCALE + OFFSET)


def shifted(mechanism: Mechanism) -> Mechanism:
    """Reports decoded to other numbers on a lattice of the same kind; inputs as they were."""
    return _with(mechanism, levels=mechanism.levels * 2 + 5)


def relabelled(mechanism: Mechanism) -> Mechanism:
    """Levels in another order: what is decoded says nothing about what was seen."""
    order = np.roll(np.arange(mechanism.levels.size)[::-1], 1)
    return _with(mechanism, weights=mechanism.weights[:, order])


def reordered(mechanism: Mechanism) -> Mechanism:
    """The same rows at other inputs."""
    order = np.roll(np.arange(mechanism.knots.size), 1)
    return _with(mechanism, np.arange(order.size) * 1.0, weights=mechanism.weights[order])


def repeated(mechanism: Mechanism) -> Mechanism:
    """A row stands twice: once more in the middle of the widest segment."""
    k = int(np.diff(mechanism.knots).argmax())
    middle = (mechanism.knots[k] + mechanism.knots[k + 1]) / 2
    return _with(
        mechanism,
        np.insert(mechanism.knots, k + 1, middle),
        weights=np.insert(mechanism.weights, k + 1, mechanism.weights[k], axis=0),
    )


def refined(mechanism: Mechanism) -> Mechanism:
    """A knot in the middle of the widest segment with the mixture that stood there (weights are even: exact)."""
    k = int(np.diff(mechanism.knots).argmax())
    middle = (mechanism.knots[k] + mechanism.knots[k + 1]) / 2
    return _with(
        mechanism,
        np.insert(mechanism.knots, k + 1, middle),
        weights=np.insert(
            mechanism.weights, k + 1, mechanism.weights[k : k + 2].sum(axis=0) // 2, axis=0
        ),
    )


def jumping_nowhere(mechanism: Mechanism) -> Mechanism:
    """As `refined`, and the new knot stands twice: a jump between equal rows."""
    finer = refined(mechanism)
    k = int(np.flatnonzero(~np.isin(finer.knots, mechanism.knots))[0])
    return _with(
        finer,
        np.insert(finer.knots, k, finer.knots[k]),
        weights=np.insert(finer.weights, k, finer.weights[k], axis=0),
    )


def split(mechanism: Mechanism) -> Mechanism:
    """The first level becomes two, a fair coin between them: nothing more is learnt."""
    half = mechanism.weights[:, :1] // 2
    weights = np.concatenate([half, half, mechanism.weights[:, 1:]], axis=1)
    return _with(
        mechanism, levels=np.insert(mechanism.levels, 0, mechanism.levels[0] - 0.5), weights=weights
    )


ROWS: tuple[Change, ...] = (
    mirrored, rescaled, shifted, relabelled, reordered, repeated, refined, jumping_nowhere, split,
)  # fmt: skip
"""Changes for numbers that are a worst case over pairs of inputs whose single reports are seen."""

SUMS: tuple[Change, ...] = (
    mirrored,
    rescaled,
    shifted,
    reordered,
    repeated,
    refined,
    jumping_nowhere,
)
"""Changes for numbers about sums of reports, over all inputs in the range."""

SAME_ROWS: tuple[Change, ...] = (mirrored, rescaled, shifted, reordered, repeated)
"""Those of `SUMS` that leave the set of rows as it is: a search for common noise that sees more rows may find less."""

DISTANCES: tuple[Change, ...] = (mirrored, refined, jumping_nowhere)
"""Changes for numbers about inputs at a distance; `rescaled` besides, where the distance is rescaled with them."""
