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
from dataclasses import dataclass, field
from fractions import Fraction
from typing import final

import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import ParameterError
from mezzotint.core.loss import FloatArray
from mezzotint.core.priors import UniformPrior
from mezzotint.core.records import JsonObject, Progress
from mezzotint.design.floors import ConvergenceError, Cut, cut_at, overhang
from mezzotint.design.problem import Problem
from mezzotint.privacy.propose import bound_document

_CELLS = 480
_POINTS = 40
"""Levels in the program of one box."""

_SCALE = 44
"""Numbers of a proof are integers over 2**44."""

_GAPS = (0.1, 0.05, 0.03, 0.02, 0.01, 0.005, 0.0025, 0.0015, 0.001)
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
    target: float = 0.0

    def __post_init__(self) -> None:
        self.needed = 1 + overhang(self.ratio)
        reach = 2.5 * self.needed + 0.5
        # Its own mirror image to the last bit: the kernel reads mirrored cuts off mirrored cells.
        half = np.append(np.linspace(0, reach, _CELLS // 2 + 1), 1e5)
        self.axis = np.concatenate([-half[:0:-1], half])
        self.constants, self.values = np.zeros(0), np.zeros((0, self.axis.size - 1))
        self.aim(0.0)

    def add(self, cut: Cut) -> float:
        """Keeps a cut and its mirror image; its constant."""
        both = (cut, cut.mirrored())
        self.cuts.extend(both)
        self.constants = np.append(self.constants, [one.constant() for one in both])
        known = len(self.cuts) - 2
        for name in ("values", "after", "before"):
            rows = getattr(self, name)
            if len(rows) < known + 2:  # room for twice as many
                setattr(self, name, np.concatenate([rows, np.zeros((known + 2, rows.shape[1]), dtype=rows.dtype)]))
        # Beyond the axis g only grows: its slope there is that of the outermost quadratics.
        self.values[known : known + 2] = [one.least(self.axis, self.ratio)[0] for one in both]
        self.programs += 1
        self._meet(known)
        return float(self.constants[-1])

    def aim(self, target: float) -> None:
        """Which cells a level of a set below the target may be in."""
        self.target = target
        self.after = np.zeros((len(self.values), self.axis.size), dtype=np.int16)
        self.before = self.after.copy()
        self._meet(0)

    def _meet(self, first: int) -> None:
        """Of each cut from the `first` on, per cell: the next cell that meets it, and one more than the last before."""
        last, target, cells = len(self.cuts), self.target, self.axis.size - 1
        # A float error of a bound is far below 1e-11 of its terms.
        # A loss below the target leaves the floors no more mass than this: "Rare floors" in the proofs.
        share = target / (target + 1 / 3) * (1 + 1e-12)
        values = np.minimum(self.values[first:last], 0.0)
        meets = self.constants[first:, None] + share * values < target + 1e-11 * abs(target)
        index = np.arange(cells)
        after = np.where(meets, index, cells)[:, ::-1]
        self.after[first:last, :-1], self.after[first:last, -1] = np.minimum.accumulate(after, axis=1)[:, ::-1], cells
        self.before[first:last, 1:] = np.maximum.accumulate(np.where(meets, index + 1, 0), axis=1)

    def shrunk(self, box: Box) -> Box | None:
        """The box less what no set of levels below the target can be in; None if nothing is left."""
        count = len(self.cuts)
        low, high = (np.array(side) for side in zip(*box, strict=True))
        while True:
            known = low, high
            low, high = np.maximum.accumulate(low), np.minimum.accumulate(high[::-1])[::-1]
            high[0] = min(high[0], int(np.searchsorted(self.axis, -self.needed, side="right")))
            low[-1] = max(low[-1], int(np.searchsorted(self.axis, self.needed, side="left")) - 1)
            # Of two mirror images the one with y_1 + y_m <= 0 is enough.
            if (low >= high).any() or self.axis[low[0]] + self.axis[low[-1]] > 0:
                return None
            first = self.after[:count, low]
            inside = first < high
            able = inside.sum(axis=1)
            if not able.all():
                return None
            # Where only one level can meet a cut, it lies where it does.
            alone = inside & (able == 1)[:, None]
            low = np.where(alone, first, low).max(axis=0)
            high = np.where(alone, self.before[:count, high], high).min(axis=0)
            if (low == known[0]).all() and (high == known[1]).all():
                return tuple(zip(low.tolist(), high.tolist(), strict=True))

    def program(self, box: Box) -> tuple[FloatArray, FloatArray]:
        """Adds the cut of the best design on levels all over the box; these levels and their floors."""
        spans = sorted(set(box))
        each = max(3, _POINTS // len(spans))
        parts = []
        for low, high in spans:
            start, stop = self.axis[low], self.axis[high]
            if high == self.axis.size - 1:
                parts.append(np.geomspace(max(start, 0.5), 3 * max(start, self.needed), each))
            elif low == 0:
                parts.append(-np.geomspace(max(-stop, 0.5), 3 * max(-stop, self.needed), each))
            else:
                parts.append(np.linspace(start, stop, each))
        levels = np.unique(np.concatenate(parts))
        outer = self.needed * (1 + 1e-9)
        levels = np.unique(np.concatenate([[min(levels[0], -outer)], levels, [max(levels[-1], outer)]]))
        levels = levels[np.concatenate([[True], np.diff(levels) > 1e-6])]
        cut, floors = cut_at(levels, self.ratio, self.problem, doubt=self.target)
        self.add(cut)
        return levels, floors

    def halves(self, box: Box, levels: FloatArray, floors: FloatArray) -> tuple[Box, Box] | None:
        """The box cut in two where the design on it spreads one level most; None if it is one set of cells."""
        best, split = -1.0, None
        for j, (low, high) in enumerate(box):
            if high - low < 2:
                continue
            weights = np.where((levels >= self.axis[low]) & (levels <= self.axis[high]), floors, 0.0) + 1e-12
            mean = float(np.average(levels, weights=weights))
            spread = float(weights @ (levels - mean) ** 2)
            if spread > best:
                best, split = spread, (j, low, high, mean)
        if split is None:
            return None
        j, low, high, mean = split
        middle = int(np.clip(np.searchsorted(self.axis, mean), low + 1, high - 1))
        middle = int(np.clip(middle, low + (high - low) // 4, high - (high - low) // 4))
        one, other = ((*box[:j], side, *box[j + 1 :]) for side in ((low, middle), (middle, high)))
        return one, other

    def proves(self, target: float) -> bool:
        """Whether every box is emptied at this target before the time ends."""
        self.aim(target)
        boxes: list[tuple[Box, float]] = [(((0, self.axis.size - 1),) * self.count, 1.0)]
        done = 0.0
        while boxes:
            if time.monotonic() > self.deadline:
                return False
            box, share = boxes.pop()
            small, solved = self.shrunk(box), (np.zeros(0), np.zeros(0))
            if small is not None:
                with contextlib.suppress(ConvergenceError, np.linalg.LinAlgError):
                    solved = self.program(small)
                small = self.shrunk(small)
            if small is None:
                done += share
                if self.progress is not None:
                    self.progress(done, 1.0)
                continue
            halves = self.halves(small, *solved)
            if halves is None:
                return False
            boxes.extend((half, share / 2) for half in halves)
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
    proof: JsonObject
    programs: int
    seconds: float


def check_provable(problem: Problem) -> None:
    """Refuses a problem that the theorem over all levels does not speak of, before anything is designed.

    Raises:
        ParameterError: it names what would have to go, and what bounds such a problem instead.
    """
    wrong = [
        *([] if problem.is_pure else ["ask for pure epsilon (no delta, alpha, metric)"]),
        *(["allow no bias"] if problem.max_bias else []),
        *([] if problem.loss == "mse" else ["use loss mse"]),
        *([] if isinstance(problem.prior, UniformPrior) else ["leave the prior out"]),
    ]
    if wrong:
        remedy = "or take a bound for any number of levels instead (design.limit; --limit), where there is one"
        about = "proofs over all levels are for pure epsilon, no bias, uniform inputs and loss mse"
        raise ParameterError("prove", True, f"{about}: {', '.join(wrong)}, {remedy}")


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
        problem: see `check_provable`.
        loss: of the best known design, centred units: bounds near it are tried.
        seconds: of wall-clock time.
        least: relative gap below which nothing more is tried.
        progress: called with (share of the boxes emptied, 1) while a target is tried.

    Raises:
        ParameterError: another problem.
    """
    check_provable(problem)
    started = time.monotonic()
    ratio = math.exp(problem.epsilon) * (1 + 2.0**-50)
    prover = Prover(count=count, ratio=ratio, problem=problem, deadline=started + seconds, progress=progress)
    # Dense levels: what no number of levels can beat is a bound too, and the first cut.
    reach = 1.6 * prover.needed + 0.4
    best = prover.add(cut_at(np.linspace(-reach, reach, 161), ratio, problem)[0])
    best += min(0.0, float(prover.values[1].min()))
    needed = 2
    for gap in _GAPS:
        target = loss * (1 - gap)
        if target <= best:
            continue
        if best >= loss * (1 - least):
            break
        if not prover.proves(target):
            break
        best, needed = target, len(prover.cuts)
    return Proven(
        bound=best,
        proof=proof_of(prover, problem.epsilon, best, needed),
        programs=prover.programs,
        seconds=time.monotonic() - started,
    )


def proof_of(prover: Prover, epsilon: float, bound: float, needed: int) -> JsonObject:
    """The claim file of a bound (kind `dual`, docs/proofs/design.md): one of each two mirrored cuts needed, rounded."""

    def whole(values: FloatArray) -> npt.NDArray[np.object_]:
        return np.array([int(one) for one in np.rint(np.ldexp(values, _SCALE)).flat], dtype=object).reshape(
            values.shape
        )

    def cut_of(cut: Cut) -> JsonObject:
        edges, roots = whole(cut.edges), whole(cut.roots)
        wide = np.append(np.diff(edges) > 0, True)
        return {"edges": edges[wide].tolist(), "roots": roots[wide[:-1]].tolist(), "ends": whole(cut.ends).tolist()}

    return bound_document(
        levels=prover.count, epsilon=Fraction(epsilon), scale=_SCALE, axis=whole(prover.axis[1:-1]).tolist(),
        # Rounded cuts and float errors cost far less than this.
        value=f"{bound * (1 - 1e-8):.10f}", cuts=[cut_of(cut) for cut in itertools.islice(prover.cuts, 0, needed, 2)],
    )  # fmt: skip
