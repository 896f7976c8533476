"""Noise that is correlated over some steps: much of it cancels in the iterates, and every record pays once for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NoReturn, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import Neighboring
from mezzotint.core.errors import ParameterError
from mezzotint.training.rqp.accounting import noise_multiplier as least_noise
from mezzotint.training.rqp.phases import participations
from mezzotint.vectors.bands import coefficients, last_noise, solved

CHOICES = (1, 2, 4, 8, 16)

NOT_REPLACED = "replaced codes hide nothing of correlated noise; use proj-dp-sgd"


def choose_bands(
    target_epsilon: float, *, batch_size: int, dataset_size: int, steps: int, delta: float, neighboring: Neighboring
) -> int:
    """The number of bands, of 1, 2, 4, 8 and 16, with the least noise in the last iterate of plain SGD.

    Arguments: of the run, as for `make_private`; nothing but these decides, so the choice costs nothing.
    """
    costs: dict[int, float] = {}
    for bands in CHOICES:
        if bands * batch_size <= dataset_size:
            noise = least_noise(
                target_epsilon, sampling_rate=bands * batch_size / dataset_size, steps=participations(steps, bands),
                delta=delta, neighboring=neighboring,
            )  # fmt: skip
            costs[bands] = noise * last_noise(bands, steps)
    return min(costs, key=costs.__getitem__)


@final
class CorrelatedNoise:
    """Mixes integer sums of several steps before the noise, and solves for the steps' sums behind it.

    Arguments:
        bands: how many steps a sum is spread over.
        drawn: how many batches the loader has drawn so far: the records of `bands` batches in a row are disjoint.

    Guarantees: released is C X + N, X the sums of the steps, N independent rounded Gaussian noise of multiplier z in
        units of SCALE clip norms; what `solve` makes of it depends on nothing else. Sums of earlier steps are kept in
        memory alone, and never copied or pickled.
    Source: docs/proofs/training.md, "Correlated noise"; Choquette-Choo et al. 2023.
    """

    def __init__(self, bands: int, drawn: Callable[[], int]) -> None:
        self.integers = coefficients(bands)
        self._drawn, self._last = drawn, 0
        self._settings: tuple[object, ...] | None = None
        self._sums: deque[npt.NDArray[np.int64]] = deque(maxlen=bands - 1)
        self._solved: deque[npt.NDArray[np.float64]] = deque(maxlen=bands - 1)

    def __reduce__(self) -> NoReturn:
        raise ParameterError("optimizer", "bands", "copies would use a record's one part in the noise twice")

    def check(self, *settings: object) -> None:
        """Before a step releases anything: its batch is the next one, and noise and weights are as they were.

        Raises:
            ParameterError: a batch that was left out or is used again, other settings than in the first step.
        """
        drawn = self._drawn()
        if drawn != self._last + 1:
            remedy = "with bands every batch of the loader needs one step, in order; none may be left out or come twice"
            raise ParameterError("loader", f"batch {drawn} after {self._last}", remedy)
        if self._settings not in (None, settings):
            raise ParameterError("optimizer", "changed", "with bands noise, clip norm and weights stay what they were")
        self._last, self._settings = drawn, settings

    def mix(self, summed: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """(D,) C X of this step, from its sum and those kept."""
        mixed = self.integers[0] * summed
        for factor, earlier in zip(self.integers[1:], self._sums, strict=False):
            mixed = mixed + factor * earlier
        if self._sums.maxlen:
            self._sums.appendleft(summed)
        return mixed

    def solve(self, released: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """(D,) the step's sum with its noise, from what was released in this step and before."""
        found = solved(len(self.integers), released, dict(enumerate(self._solved, start=1)))
        if self._solved.maxlen:
            self._solved.appendleft(found)
        return found
