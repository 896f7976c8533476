"""Figures 3 and 4a/4b of "Privacy-Aware Randomized Quantization via Linear Programming", and trade-off curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzotint import design
from mezzotint.core.errors import InfeasibleError
from mezzotint.core.mechanism import Mechanism
from mezzotint.report.tables import Curve, Reproduction, published_mechanisms

FloatArray = npt.NDArray[np.float64]

DRAWS = 10_000
FIGURE4_EPSILONS = (1.0, 1.5, 2.0, 2.5, 3.0)
_BINS = (-3.0, -0.5, 0.5, 3.0)
_RQM_BINS = (-3.0, -1.0, 1.0, 3.0)


def figure3() -> Reproduction:
    """Figure 3: the mean absolute error at each input."""
    rows: list[dict[str, Any]] = []
    curves: list[Curve] = []
    inputs = np.linspace(-1, 1, 101)
    for epsilon in (0.5, 1.0, 1.5):
        for name, mechanism in published_mechanisms(epsilon).items():
            errors = (mechanism.pmf(inputs) * np.abs(mechanism.levels - inputs[:, None])).sum(axis=1)
            curves.append(
                Curve(panel=f"epsilon = {epsilon:g}", name=name, x=tuple(inputs.tolist()), y=tuple(errors.tolist()))
            )
            rows += [
                {"epsilon": epsilon, "mechanism": name, "x": x, "mae": error}
                for x, error in zip(inputs[::5].tolist(), errors[::5].tolist(), strict=True)
            ]
    return Reproduction(
        title="Figure 3: E|report - x| at each input, m = 4",
        note="Exact expectations of the tables, no sampling; jumps at bins are those of pair selection.",
        rows=tuple(rows),
        curves=tuple(curves),
        x_label="input",
        y_label="mean absolute error",
    )


def ball(count: int, dimension: int, seed: int) -> FloatArray:
    """(count, dimension) points uniform in the unit L2 ball."""
    # Barthe et al. 2005: Gaussian coordinates over the root of their squares plus an exponential variable.
    rng = np.random.default_rng(seed)
    normal = rng.standard_normal((count, dimension))
    scale = np.sqrt((normal**2).sum(axis=1) + 2 * rng.exponential(size=count))
    return normal / scale[:, None]


def _contenders(epsilon: float, prior: Any) -> dict[str, Callable[[], Mechanism]]:
    return {
        "OPTM": lambda: design.optm(epsilon, bins=_BINS).mechanism,
        "RQM": lambda: design.calibrate("rqm", epsilon=epsilon, levels=_RQM_BINS, loss="mae").mechanism,
        "MVU": lambda: design.mvu(epsilon).mechanism,
        "optimal": lambda: design.optimal(epsilon, levels=4, prior=prior).mechanism,
    }


def _vector_errors(mechanism: Mechanism, vectors: FloatArray, seed: int) -> FloatArray:
    reports = mechanism.decode(mechanism.privatize(vectors, rng=seed))
    return np.sqrt(((reports - vectors) ** 2).sum(axis=1))


def _vectors(title: str, vectors: FloatArray, note: str, prior: Any = None) -> Reproduction:
    rows: list[dict[str, Any]] = []
    for epsilon in FIGURE4_EPSILONS:
        for name, build in _contenders(epsilon, prior).items():
            try:
                mechanism = build()
            except InfeasibleError as error:
                rows.append(_vector_row(epsilon, name, None, None, None, str(error)))
                continue
            errors = _vector_errors(mechanism, vectors, seed=4)
            rows.append(_vector_row(epsilon, name, mechanism, float(errors.mean()), float(errors.std()), ""))
    names = list(_contenders(1.0, prior))
    curves = []
    for name in names:
        drawn = [row for row in rows if row["mechanism"] == name and row["error"] is not None]
        curves.append(
            Curve(
                panel=title,
                name=name,
                x=tuple(row["epsilon"] for row in drawn),
                y=tuple(row["error"] for row in drawn),
                spread=tuple(row["deviation"] for row in drawn),
            )
        )
    return Reproduction(
        title=title,
        note=note,
        rows=tuple(rows),
        curves=tuple(curves),
        x_label="epsilon per coordinate",
        y_label="mean Euclidean error",
    )


def _vector_row(
    epsilon: float, name: str, mechanism: Mechanism | None, error: float | None, deviation: float | None, note: str
) -> dict[str, Any]:
    return {
        "epsilon": epsilon,
        "mechanism": name,
        "error": error,
        "deviation": deviation,
        "standard_error": None if deviation is None else deviation / math.sqrt(DRAWS),
        "certified_epsilon": None if mechanism is None else mechanism.epsilon,
        "note": note,
    }


_SETUP = (
    f"{DRAWS} seeded random vectors, each coordinate reported independently with epsilon per coordinate. OPTM on the "
    "paper's bins +-3, +-0.5; RQM on its bins +-3, +-1 with q calibrated; MVU and the MSE-optimal table (for the "
    "distribution of one coordinate) with their own levels. The paper prints no numbers for this figure and no grid of "
    "epsilon: only the order can be compared. It has OPTM lowest; here OPTM is below RQM, as there, but MVU with an "
    "alphabet of its own at each epsilon is below OPTM, which minimises the MAE and keeps its bins at every epsilon."
)


def figure4a() -> Reproduction:
    """Figure 4a: 10 coordinates uniform in [-1, 1]."""
    vectors = np.random.default_rng(10).uniform(-1, 1, size=(DRAWS, 10))
    return _vectors("Figure 4a: Euclidean error, 10 coordinates uniform in [-1, 1]", vectors, _SETUP)


def figure4b() -> Reproduction:
    """Figure 4b: 100 coordinates, uniform in the unit L2 ball."""
    title = "Figure 4b: Euclidean error, uniform in the unit ball of 100 dimensions"
    # A coordinate of a point in the ball is near 0: the optimum may know that distribution, which depends on no data.
    return _vectors(title, ball(DRAWS, 100, 11), _SETUP, prior=ball(1000, 100, 12)[:, 0])


def tradeoff(
    epsilons: Sequence[float] = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0), bits: Sequence[int] = (1, 2, 3), **options: Any
) -> Reproduction:
    """MSE of the optimal table against epsilon for several bits, and the limit of any number of bits.

    Arguments:
        options: lower, upper, prior, progress, as in `design.tradeoff`.
    """
    points = design.tradeoff(epsilons=epsilons, bits=bits, **options)
    curves = [
        Curve(
            panel="trade-off",
            name=f"{count} bit" + ("s" if count > 1 else ""),
            x=tuple(point["epsilon"] for point in points if point["bits"] == count),
            y=tuple(point["mse"] for point in points if point["bits"] == count),
        )
        for count in bits
    ]
    limits = {point["epsilon"]: point["limit"] for point in points if point["limit"] > 0}
    inputs = "uniform inputs" if options.get("prior") is None else "inputs like the prior"
    curves.append(Curve(panel="trade-off", name="limit", x=tuple(limits), y=tuple(limits.values())))
    return Reproduction(
        title=f"MSE against epsilon, {inputs} on [{options.get('lower', -1.0):g}, {options.get('upper', 1.0):g}]",
        note="optimal tables with searched levels; limit: certified lower bound for any number of bits.",
        rows=tuple(points),
        curves=tuple(curves),
        x_label="epsilon",
        y_label="mean squared error",
        y_scale="log",
    )


REPRODUCTIONS: dict[str, Callable[[], Reproduction]] = {
    "figure3": figure3,
    "figure4a": figure4a,
    "figure4b": figure4b,
    "tradeoff": tradeoff,
}
