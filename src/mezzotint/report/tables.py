"""Tables 1 and 2 of "Privacy-Aware Randomized Quantization via Linear Programming", recomputed: data only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from scipy import stats

from mezzotint import design, families
from mezzotint.core.lazy import LazyModule
from mezzotint.core.mechanism import Mechanism

drawing: Any = LazyModule("mezzotint.report.design_drawing")


@final
@dataclass(frozen=True, kw_only=True)
class Curve:
    """One line of a figure: (x, y) points, optionally with half-widths of an interval, in one panel."""

    panel: str
    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    spread: tuple[float, ...] = ()


@final
@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """A published table or figure beside our numbers.

    Arguments:
        title, note: what it is, and what to know when comparing.
        rows: one mapping per line, the same keys in each.
        curves: what to draw; x_label, y_label name the axes.
    """

    title: str
    note: str
    rows: tuple[Mapping[str, Any], ...]
    curves: tuple[Curve, ...] = ()
    x_label: str = ""
    y_label: str = ""
    y_scale: str = "linear"

    def as_dict(self) -> dict[str, Any]:
        """Title, note and rows as plain values."""
        return {"title": self.title, "note": self.note, "rows": [dict(row) for row in self.rows]}

    def png(self, path: str | Path) -> None:
        """Draws the curves (or the rows, where there are none) into a PNG file."""
        drawing.draw_png(self, path)


def grid_mae(mechanism: Mechanism) -> float:
    """The papers' convention: the mean of E|report - x| over x = -1, -0.96, ..., 1 (51 inputs)."""
    inputs = np.linspace(-1, 1, 51)
    return float((mechanism.pmf(inputs) * np.abs(mechanism.levels - inputs[:, None])).sum(axis=1).mean())


OPTM_BINS = {0.5: (-6.0, -0.4, 0.4, 6.0), 1.0: (-3.0, -0.5, 0.5, 3.0), 1.5: (-3.0, -0.5, 0.5, 3.0)}
MVU_ALPHABETS = {0.5: (-4.34, -3.6, 3.6, 4.34), 1.0: (-2.42, -1.69, 1.69, 2.42), 1.5: (-1.83, -1.11, 1.11, 1.83)}
RQM_SETTINGS = {1.0: (1.7, 0.22), 1.5: (1.6, 0.498)}
ERM_SETTINGS = {1.0: ((-5.1, -0.1, 0.1, 5.1), 0.026), 1.5: ((-2.7, -0.4, 0.4, 2.7), 0.043)}
TABLE1_PAPER = {
    "OPTM": {0.5: 3.904, 1.0: 1.882, 1.5: 1.179},
    "MVU": {0.5: 3.959, 1.0: 1.930, 1.5: 1.254},
    "RQM": {0.5: None, 1.0: 1.993, 1.5: 1.310},
    "ERM": {0.5: None, 1.0: 2.216, 1.5: 1.304},
}


def _published(name: str, epsilon: float) -> tuple[Mechanism, str]:
    """The paper's mechanism with its own hyperparameters, and a remark."""
    if name == "OPTM":
        return design.optm(epsilon, bins=OPTM_BINS[epsilon]).mechanism, "solved anew on the paper's bins"
    if name == "MVU":
        return design.mvu(epsilon, levels=MVU_ALPHABETS[epsilon]).mechanism, "2 input bits, the paper's alphabet"
    if name == "RQM" and epsilon in RQM_SETTINGS:
        extension, q = RQM_SETTINGS[epsilon]
        return families.rqm(levels=4, extension=extension, q=q), f"Delta={extension:g}, q={q:g}"
    if name == "ERM" and epsilon in ERM_SETTINGS:
        bins, gamma = ERM_SETTINGS[epsilon]
        return families.erm(bins=bins, gamma=gamma), f"gamma={gamma:g}"
    found = design.calibrate(name.lower(), epsilon=epsilon, loss="mae")
    return found.mechanism, "N/A in the paper is an artefact of its grid: calibrated by search" + (
        ", gamma < 0" if name == "ERM" else ""
    )


def _row1(name: str, epsilon: float) -> dict[str, Any]:
    mechanism, note = _published(name, epsilon)
    paper = TABLE1_PAPER[name][epsilon]
    row: dict[str, Any] = {"mechanism": name, "epsilon": epsilon, "paper": paper}
    reproduced = grid_mae(mechanism)
    best = design.optimal(epsilon, levels=mechanism.levels, loss="mae").mechanism
    return {
        **row,
        "reproduced": reproduced,
        "difference": None if paper is None else reproduced - paper,
        "exact_mae": mechanism.mae(),
        "exact_mse": mechanism.mse(),
        "certified_epsilon": mechanism.epsilon,
        "optimum_mae": best.mae(),
        "optimum_mse": best.mse(),
        "note": note,
    }


def table1() -> Reproduction:
    """Table 1: uniform inputs on [-1, 1], four levels, epsilon 0.5, 1, 1.5."""
    return Reproduction(
        title="Table 1: mean absolute error, uniform inputs, m = 4",
        note=(
            "paper: as printed. reproduced: our mechanism in the paper's convention, the mean over 51 inputs. exact: "
            "the integral over the range. optimum: the best table at that row's own levels and epsilon, over all "
            "mechanisms with these levels; MAE and MSE are of that MAE-optimal table."
        ),
        rows=tuple(_row1(name, epsilon) for name in TABLE1_PAPER for epsilon in (0.5, 1.0, 1.5)),
    )


TABLE2_PAPER = {
    "OPTM": {0.1: 1.778, 0.2: 1.836, 0.3: 1.972},
    "MVU": {0.1: 2.053, 0.2: 2.052, 0.3: 2.002},
    "RQM": {0.1: 2.028, 0.2: 2.010, 0.3: 2.000},
}
_PER_OUTPUT = "OPTM, ratio per output"
_TABLE2_NOTES = {
    "OPTM": "the program published with the paper: one ratio for all outputs, coarse boxes; it ends at bins",
    _PER_OUTPUT: "the paper's bins, each output held to a ratio of its own (Theorem 5, corrected), finer boxes",
    "MVU": "the published row fits 2 E|x - y| with y left in units of [0, 1] (column `unscaled`), not the error",
    "RQM": "Delta=1.7, q=0.22",
}


def _unscaled(mechanism: Mechanism, inputs: np.ndarray) -> float:
    """2 E|x - y| with y = (B + 1) / 2: what the published MVU row comes near to."""
    outputs = (mechanism.levels + 1) / 2
    return float(2 * (mechanism.pmf(inputs) * np.abs(outputs - inputs[:, None])).sum(axis=1).mean())


def _mechanism2(name: str, prior: Any) -> Mechanism:
    if name == "OPTM":
        return design.optm_one_ratio(1.0, prior=prior).mechanism
    if name == _PER_OUTPUT:
        return design.optm(1.0, bins=(-4.0, 0.2, 0.6, 4.0), prior=prior).mechanism
    if name == "MVU":
        return design.mvu(1.0, levels=MVU_ALPHABETS[1.0]).mechanism
    return families.rqm(levels=4, extension=1.7, q=0.22)


def _row2(name: str, sigma: float) -> dict[str, Any]:
    prior = stats.norm(0.5, sigma)
    mechanism, note = _mechanism2(name, prior), _TABLE2_NOTES[name]
    if name == "OPTM":
        note += " " + " ".join(f"{level:g}" for level in mechanism.levels)
    best = design.optimal(1.0, levels=mechanism.levels, loss="mae", prior=prior).mechanism
    paper, exact = TABLE2_PAPER.get(name, {}).get(sigma), mechanism.mae(prior)
    quantiles = np.clip(prior.ppf((np.arange(20_000) + 0.5) / 20_000), -1, 1)
    return {
        "mechanism": name,
        "sigma": sigma,
        "paper": paper,
        "reproduced": exact,
        "difference": None if paper is None else exact - paper,
        "unscaled": _unscaled(mechanism, quantiles) if name == "MVU" else None,
        "exact_mse": mechanism.mse(prior),
        "certified_epsilon": mechanism.epsilon,
        "optimum_mae": best.mae(prior),
        "optimum_mse": best.mse(prior),
        "note": note,
    }


def table2() -> Reproduction:
    """Table 2: inputs N(0.5, sigma) clipped to [-1, 1], four levels, epsilon 1."""
    return Reproduction(
        title="Table 2: mean absolute error, clipped Gaussian inputs, m = 4, epsilon = 1",
        note=(
            "reproduced: the exact expectation under the clipped normal distribution of which the paper draws 1000 "
            "samples. optimum: the best table at that row's own levels. OPTM's published program bounds the "
            "probabilities of every output by those of every other: privacy asks for less, and the row below it does "
            "just that. At sigma = 0.3 its bin search ends at -4 -0.2 0.6 4; the paper prints -4 0.2 0.6 4."
        ),
        rows=tuple(_row2(name, sigma) for name in _TABLE2_NOTES for sigma in (0.1, 0.2, 0.3)),
    )


def published_mechanisms(epsilon: float) -> dict[str, Mechanism]:
    """Table 1's mechanisms at this epsilon, and the optimum on OPTM's bins."""
    found: dict[str, Mechanism] = {}
    for name in TABLE1_PAPER:
        if TABLE1_PAPER[name][epsilon] is None:
            continue
        found[name] = _published(name, epsilon)[0]
    found["optimal"] = design.optimal(epsilon, levels=OPTM_BINS[epsilon], loss="mae").mechanism
    return found


REPRODUCTIONS: dict[str, Callable[[], Reproduction]] = {"table1": table1, "table2": table2}
