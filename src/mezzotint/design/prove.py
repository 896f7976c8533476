"""What no mechanism with m levels can beat, wherever the levels are: global cuts, and a search that they must empty.

One solved design gives a bound for all sets of levels at once: a set Y can have a loss below tau only if some level of
it lies where a function g of the level is below a number (a cut). So tau is a lower bound once no m points meet every
cut. docs/proofs/design.md, "Any m levels".
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import ParameterError
from mezzotint.core.priors import UniformPrior
from mezzotint.design.cuts import Cut, cut_at
from mezzotint.design.floors import ConvergenceError, overhang
from mezzotint.design.problem import Problem
from mezzotint.privacy.propose import bound_document

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Progress = Callable[[float, float], None]

_CELLS = 480
_POINTS = 40
"""Levels in the program of one box."""

_SCALE = 44
"""Numbers of a proof are integers over 2**44."""

_GAPS = (0.2, 0.1, 0.05, 0.03, 0.02, 0.015, 0.01, 0.0075, 0.005, 0.0035, 0.0025, 0.0015, 0.001)
"""Relative gaps tried one after another: each is proven or the time ends."""


Box = tuple[tuple[int, int], ...]


@final
@dataclass(kw_only=True, eq=False)
class Prover:
    """Boxes of levels (cells of an axis), emptied by cuts; depth first, for one target after another.

    Arguments:
        count: number of levels.
        ratio: a float at or above e**epsilon.
    """

    count: int
    ratio: float
    problem: Problem
    deadline: float
    progress: Progress | None = None
    cuts: list[Cut] = field(default_factory=list[Cut])
    programs: int = 0

    def __post_init__(self) -> None:
        self.needed = 1 + overhang(self.ratio)
        reach = 2.5 * self.needed + 0.5
        # Its own mirror image to the last bit: the kernel reads mirrored cuts off mirrored cells.
        half = np.append(np.linspace(0, reach, _CELLS // 2 + 1), 1e5)
        self.axis = np.concatenate([-half[:0:-1], half])
        self.constants = np.zeros(0)
        self.values = np.zeros((0, self.axis.size - 1))

    def add(self, cut: Cut) -> float:
        """Keeps a cut and its mirror image; its constant."""
        for one in (cut, cut.mirrored()):
            self.cuts.append(one)
            self.constants = np.append(self.constants, one.constant())
            # Beyond the axis g only grows: its slope there is that of the outermost quadratics.
            self.values = np.concatenate([self.values, one.least(self.axis, self.ratio)[0][None]])
        self.programs += 1
        return float(self.constants[-1])

    def hits(self, target: float) -> IntArray:
        """(cuts, cells + 1) how many of the first cells a level below the target may be in."""
        # A float error of a bound is far below 1e-11 of its terms.
        # A loss below the target leaves the floors no more mass than this: "Rare floors" in the proofs.
        share = target / (target + 1 / 3) * (1 + 1e-12)
        below = self.constants[:, None] + share * np.minimum(self.values, 0.0) < target + 1e-11 * abs(target)
        return np.concatenate(
            [np.zeros((len(below), 1), dtype=np.int64), np.cumsum(below, axis=1, dtype=np.int64)], axis=1
        )

    def shrunk(self, box: Box, hits: IntArray) -> Box | None:
        """The box less what no set of levels below the target can be in; None if nothing is left."""
        while True:
            low, high = (np.array(side) for side in zip(*box, strict=True))
            low, high = np.maximum.accumulate(low), np.minimum.accumulate(high[::-1])[::-1]
            high[0] = min(high[0], int(np.searchsorted(self.axis, -self.needed, side="right")))
            low[-1] = max(low[-1], int(np.searchsorted(self.axis, self.needed, side="left")) - 1)
            # Of two mirror images the one with y_1 + y_m <= 0 is enough.
            if (low >= high).any() or self.axis[low[0]] + self.axis[low[-1]] > 0:
                return None
            inside = hits[:, high] - hits[:, low] > 0
            able = inside.sum(axis=1)
            if (able == 0).any():
                return None
            new = list(zip(low.tolist(), high.tolist(), strict=True))
            for cut in np.flatnonzero(able == 1).tolist():
                # Only one level can meet this cut: it lies where it does.
                j = int(np.argmax(inside[cut]))
                start, stop = new[j]
                row = hits[cut]
                first = int(np.searchsorted(row, row[start], side="right")) - 1
                last = int(np.searchsorted(row, row[stop], side="left"))
                new[j] = (max(start, first), min(stop, last))
                if new[j][0] >= new[j][1]:
                    return None
            if tuple(new) == tuple(box):
                return tuple(new)
            box = tuple(new)

    def program(self, box: Box) -> float:
        """The cut of the best design on levels all over the box."""
        spans = sorted(set(box))
        each = max(3, _POINTS // len(spans))
        parts = []
        for low, high in spans:
            start, stop = self.axis[low], self.axis[high]
            if high == self.axis.size - 1:
                parts.append(np.geomspace(max(start, 0.5), 40 * self.needed, each))
            elif low == 0:
                parts.append(-np.geomspace(max(-stop, 0.5), 40 * self.needed, each))
            else:
                parts.append(np.linspace(start, stop, each))
        levels = np.unique(np.concatenate(parts))
        outer = self.needed * (1 + 1e-9)
        levels = np.unique(np.concatenate([[min(levels[0], -outer)], levels, [max(levels[-1], outer)]]))
        levels = levels[np.concatenate([[True], np.diff(levels) > 1e-6])]
        return self.add(cut_at(levels, self.ratio, self.problem)[0])

    def proves(self, target: float) -> bool:
        """Whether every box is emptied at this target before the time ends."""
        whole = (0, self.axis.size - 1)
        boxes: list[tuple[Box, float]] = [(tuple([whole] * self.count), 1.0)]
        done, hits = 0.0, self.hits(target)
        while boxes:
            if time.monotonic() > self.deadline:
                return False
            box, share = boxes.pop()
            small = self.shrunk(box, hits)
            if small is None:
                done += share
                if self.progress is not None:
                    self.progress(done, 1.0)
                continue
            known = len(self.cuts)
            with contextlib.suppress(ConvergenceError, np.linalg.LinAlgError):
                self.program(small)
            if len(self.cuts) > known:
                hits = self.hits(target)
                small = self.shrunk(small, hits)
                if small is None:
                    done += share
                    continue
            j = int(np.argmax([high - low for low, high in small]))
            low, high = small[j]
            if high - low < 2:
                return False
            middle = (low + high) // 2
            sides = ((low, middle), (middle, high))
            boxes.extend(((*small[:j], side, *small[j + 1 :]), share / 2) for side in sides)
        return True


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Proven:
    """A lower bound for every mechanism with so many levels, with what checks it.

    Arguments:
        bound: on the loss, centred units.
        proof: the claim file's document, for `mezzotint verify` (docs/proofs/design.md, "A proof on paper").
        programs, seconds: what it took.
    """

    bound: float
    proof: dict[str, Any]
    programs: int
    seconds: float


def prove(
    problem: Problem,
    count: int,
    loss: float,
    *,
    seconds: float,
    progress: Progress | None = None,
    least: float = 0.0,
) -> Proven:
    """The largest lower bound found in the time, for all mechanisms with `count` levels.

    Arguments:
        problem: pure epsilon, unbiased, uniform inputs, squared error.
        loss: of the best known design, centred units: bounds near it are tried.
        seconds: of wall-clock time.
        least: relative gap below which nothing more is tried.
        progress: called with (share of the boxes emptied, 1) while a target is tried.

    Raises:
        ParameterError: another problem.
    """
    if not (
        problem.is_pure and problem.max_bias == 0 and problem.loss == "mse" and isinstance(problem.prior, UniformPrior)
    ):
        raise ParameterError("prove", True, "proofs over all levels are for pure epsilon, uniform inputs and loss mse")
    started = time.monotonic()
    ratio = math.exp(problem.epsilon) * (1 + 2.0**-50)
    prover = Prover(count=count, ratio=ratio, problem=problem, deadline=started + seconds, progress=progress)
    # Dense levels: what no number of levels can beat is a bound too, and the first cut.
    reach = 1.6 * prover.needed + 0.4
    best = prover.add(cut_at(np.linspace(-reach, reach, 161), ratio, problem)[0])
    best += min(0.0, float(prover.values[-1].min()))
    for gap in _GAPS:
        target = loss * (1 - gap)
        if target <= best:
            continue
        if best >= loss * (1 - least):
            break
        if not prover.proves(target):
            break
        best = target
    return Proven(
        bound=best,
        proof=proof_of(prover, problem.epsilon, best),
        programs=prover.programs,
        seconds=time.monotonic() - started,
    )


def proof_of(prover: Prover, epsilon: float, bound: float) -> dict[str, Any]:
    """The claim file of a bound (kind `dual`, docs/proofs/design.md): one cut of each two mirror images, rounded."""

    def whole(values: FloatArray) -> Any:
        return np.array([int(one) for one in np.rint(np.ldexp(values, _SCALE)).flat], dtype=object).reshape(
            values.shape
        )

    def cut_of(cut: Cut) -> dict[str, Any]:
        edges, roots = whole(cut.edges), whole(cut.roots)
        wide = np.append(np.diff(edges) > 0, True)
        return {"edges": edges[wide].tolist(), "roots": roots[wide[:-1]].tolist(), "ends": whole(cut.ends).tolist()}

    return bound_document(
        levels=prover.count, epsilon=Fraction(epsilon), scale=_SCALE, axis=whole(prover.axis[1:-1]).tolist(),
        # Rounded cuts and float errors cost far less than this.
        value=f"{bound * (1 - 1e-8):.10f}", cuts=[cut_of(cut) for cut in itertools.islice(prover.cuts, 0, None, 2)],
    )  # fmt: skip
