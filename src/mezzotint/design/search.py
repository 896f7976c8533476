"""Searching levels and floors together: windows make a mechanism 2m numbers without constraints.

The affine map of the levels that makes the windows reach exactly from -1 to 1 is applied to whatever is tried, so every
point is feasible. Many starts go downhill together, in one batch.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.linalg import block_diag

from mezzotint.core.laws import Law
from mezzotint.core.loss import FloatArray
from mezzotint.core.search import descend
from mezzotint.design.floors import overhang
from mezzotint.design.windows import Windows, average, make_windows, peaks

_MOST_STARTS = 16
_STEPS = (60, 40, 40)
"""Steps downhill: from all starts, then from around the best; the last round for "minimax" only."""
_AROUND = 4
_NOISE = 0.25
_NEAR = 0.02
_SHARPNESS = (100.0, 2000.0, 30000.0)
"""How closely a smooth maximum follows the largest error over the inputs, in each round."""
_TOO_FAR = 1e3


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Space:
    """Where the search goes: m logits of the floors' shares, one of their sum, m - 1 logarithms of gaps.

    Arguments:
        law, ratio, loss: the problem, "mse", "mae" or "minimax".
        largest: levels farther from the middle than this are penalised.
        sharpness: of the smooth maximum for "minimax".
    """

    count: int
    law: Law
    ratio: float
    loss: str
    largest: float
    sharpness: float

    def unpack(self, points: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Levels up to an affine map, floors, and the derivative of their sum by its logit, relative to the sum."""
        m = self.count
        share = np.exp(points[:, :m] - points[:, :m].max(axis=1, keepdims=True))
        share /= share.sum(axis=1, keepdims=True)
        logistic = 1 / (1 + np.exp(-points[:, m : m + 1]))
        total = 1 / self.ratio + (1 - 1 / self.ratio) * logistic
        gaps = np.exp(np.clip(points[:, m + 1 :], -12, 12))
        levels = np.concatenate([np.zeros((len(points), 1)), np.cumsum(gaps, axis=1)], axis=1)
        return levels, total * share, (1 - 1 / self.ratio) * logistic * (1 - logistic) / total

    def windows(self, points: FloatArray) -> tuple[Windows, Windows, FloatArray]:
        """Windows before and after the affine map, and its (B, 1) slope."""
        levels, floors, _ = self.unpack(points)
        plain = make_windows(levels, floors, self.ratio)
        start, stop = plain.means[:, :1], plain.means[:, -1:]
        slope = 2 / np.maximum(stop - start, 1e-12)
        mapped = make_windows(slope * (levels - start) - 1, floors, self.ratio, split=self.loss == "mae")
        return plain, mapped, slope

    def levels(self, points: FloatArray) -> FloatArray:
        return self.windows(points)[1].levels

    def __call__(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The logarithm of the loss, and its derivatives."""
        plain, mapped, slope = self.windows(points)
        loss, by_level, by_floor = self._loss(mapped)
        beyond = np.clip(np.abs(mapped.levels) - self.largest, 0.0, None)
        factor = 1 + 0.5 * _TOO_FAR * (beyond**2).sum(axis=1)
        by_level = by_level / loss[:, None] + _TOO_FAR * beyond * np.sign(mapped.levels) / factor[:, None]
        loss, by_floor = loss * factor, by_floor / loss[:, None]
        # Through the affine map: both ends of the reach move with levels and floors.
        low, high = plain.rows[:, 0], plain.rows[:, -1]
        index = np.arange(self.count)
        levels, ends = plain.levels, np.cumsum((self.ratio - 1) * plain.floors, axis=1)
        # The rooms in which the first window ends and the last one starts.
        spare = 1 - plain.floors.sum(axis=1, keepdims=True)
        first, last = (
            np.minimum((ends <= place).sum(axis=1, keepdims=True), self.count - 1)
            for place in (spare, ends[:, -1:] - spare)
        )
        low_by_floor = np.where(index < first, self.ratio, 1.0) * (levels - np.take_along_axis(levels, first, axis=1))
        high_by_floor = np.where(index > last, self.ratio, 1.0) * (levels - np.take_along_axis(levels, last, axis=1))
        turn = 0.5 * slope**2 * (by_level * (levels - plain.means[:, :1])).sum(axis=1, keepdims=True)
        shift = slope * by_level.sum(axis=1, keepdims=True)
        by_level = slope * by_level + (turn - shift) * low - turn * high
        by_floor = by_floor + (turn - shift) * low_by_floor - turn * high_by_floor
        _, floors, growth = self.unpack(points)
        total = floors.sum(axis=1, keepdims=True)
        pull = (floors * by_floor).sum(axis=1, keepdims=True)
        after = np.cumsum(by_level[:, ::-1], axis=1)[:, ::-1]
        return np.log(loss), np.concatenate(
            [floors * (by_floor - pull / total), pull * growth, np.diff(levels, axis=1) * after[:, 1:]], axis=1
        )

    def _loss(self, windows: Windows) -> tuple[FloatArray, FloatArray, FloatArray]:
        if self.loss != "minimax":
            value = average(windows, self.law, self.loss)
            return value.loss, value.by_level, value.by_floor
        _, errors, by_level, by_floor = peaks(windows)
        most = errors.max(axis=1, keepdims=True)
        weights = np.exp(self.sharpness * (errors / most - 1))
        total = weights.sum(axis=1, keepdims=True)
        smooth = most[:, 0] * (1 + np.log(total[:, 0] / errors.shape[1]) / self.sharpness)
        weights /= total
        # The sharpness is relative to the largest error, which moves with it.
        top, rows = errors.argmax(axis=1), np.arange(len(errors))
        weights[rows, top] += (smooth - (weights * errors).sum(axis=1)) / most[:, 0]
        weights = weights[:, :, None]
        return smooth, (weights * by_level).sum(axis=1), (weights * by_floor).sum(axis=1)


def _starts(count: int, ratio: float, rng: np.random.Generator) -> FloatArray:
    """Clusters of levels around the two least far ones and in the middle, of all sizes; and noisy copies."""
    far = 1 + overhang(ratio)
    rows = []
    splits = [(low, count - low - high, high) for low, high in itertools.product(range(1, count), repeat=2)]
    splits = [split for split in splits if split[1] >= 0]
    if len(splits) > 60:  # many levels: sizes that differ little
        splits = [split for split in splits if abs(split[0] - split[2]) <= 1][:: max(1, count // 60)]
    for low, middle, high in splits:
        sizes = np.repeat([low, max(middle, 1), high], [low, middle, high])
        share = np.repeat([0.42, 0.16, 0.42], [low, middle, high]) / sizes
        outer = [centre * far * np.linspace(0.65, 1.35, size) for centre, size in ((-1, low), (1, high))]
        levels = np.sort(np.concatenate([outer[0], np.linspace(-0.3, 0.3, middle), outer[1]]))
        gaps = np.maximum(np.diff(levels), 1e-2)
        rows.append(np.concatenate([np.log(share / share.sum()), [0.0], np.log(gaps)]))
    plain = np.array(rows)
    noisy = plain + _NOISE * rng.normal(size=plain.shape)
    # Mirror images too: the search must not prefer a side.
    mirrored = [noisy[:, :count][:, ::-1], noisy[:, count : count + 1], noisy[:, count + 1 :][:, ::-1]]
    return np.concatenate([plain, noisy, np.concatenate(mirrored, axis=1)])


def _mirrored(count: int) -> FloatArray:
    """(2m, n) what makes symmetric points of the numbers of one half."""
    blocks = []
    for size in (count, 1, count - 1):
        fold = np.minimum(np.arange(size), np.arange(size)[::-1])
        blocks.append(np.eye(size)[:, : (size + 1) // 2][fold])
    return np.asarray(block_diag(*blocks))


def search(
    count: int, law: Law, ratio: float, loss: str, *, largest: float = np.inf, symmetric: bool = False
) -> FloatArray:
    """The best `count` levels found (centred units), from all sizes of clusters, symmetric ones and others.

    Arguments:
        largest: distance from the middle beyond which levels are penalised.
        symmetric: whether only levels that are their own mirror image are tried.

    Guarantees: a multistart; it proves nothing. Deterministic; mirrored inputs have mirrored levels.
    """
    law, side = law.leaning_left()
    rng = np.random.default_rng(count)
    best: list[tuple[float, FloatArray]] = []
    shapes = [np.eye(2 * count)] if count < 5 else [np.eye(2 * count), _mirrored(count)]
    for shape in [_mirrored(count)] if symmetric else shapes:
        points = _starts(count, ratio, rng) @ np.linalg.pinv(shape).T
        for steps, sharpness in list(zip(_STEPS, _SHARPNESS, strict=True))[: 3 if loss == "minimax" else 2]:
            space = Space(count=count, law=law, ratio=ratio, loss=loss, largest=largest, sharpness=sharpness)

            def objective(
                at: FloatArray, space: Space = space, shape: FloatArray = shape
            ) -> tuple[FloatArray, FloatArray]:
                values, slopes = space(at @ shape.T)
                return values, slopes @ shape

            values = objective(points)[0]
            order = np.argsort(values)[: _MOST_STARTS if count < 5 else 3 * _MOST_STARTS // 2]
            values, points = descend(objective, points[order], steps)
            order = np.argsort(values)
            near = [points[order[:3]] + _NEAR * rng.normal(size=points[order[:3]].shape) for _ in range(_AROUND)]
            winner = (float(values[order[0]]), space.levels(points[order[:1]] @ shape.T)[0])
            points = np.concatenate([points[order[:3]], *near])
        best.append(winner)
    return side * min(best, key=lambda pair: pair[0])[1][::side]
