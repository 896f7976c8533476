"""How the noise of a run's steps hangs together: drawn afresh in each, or correlated over some of
them.

Correlated noise cancels in part from step to step; each record then pays once for a block of steps.
"""

from __future__ import annotations

from abc import ABC
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NoReturn, final

from mezzotint.core.arguments import Neighboring, check_count
from mezzotint.core.errors import ParameterError
from mezzotint.core.kinds import checked
from mezzotint.core.records import JsonObject
from mezzotint.core.types import FloatArray, IntArray
from mezzotint.training.batches import PoissonBatches
from mezzotint.training.rqp import noise_multiplier as least_noise
from mezzotint.training.sampling import Phase, Sampling, participations
from mezzotint.vectors.rotation import coefficients, last_noise, solved

NOT_REPLACED = "replaced codes hide nothing of correlated noise; use proj-dp-sgd"

CHOICES = (1, 2, 4, 8, 16)
"""Numbers of steps to correlate noise over that `choose_bands` compares."""


@final
@dataclass(frozen=True, kw_only=True)
class Budget:
    """A planned run, as far as its noise depends on it.

    Arguments:
        target_epsilon, delta, neighboring: of the claim.
        batch_size: expected number of records in a batch.
        dataset_size: number of records.
        steps: planned.
    """

    target_epsilon: float
    delta: float
    neighboring: Neighboring
    batch_size: int
    dataset_size: int
    steps: int


class Noise(ABC):
    """How the noise of a run's steps hangs together; how much of it there is, is the noise
    multiplier.

    `bands` is the number of steps that share noise, "auto" where it is still to be chosen. Records
    fall into as many parts, which take turns.
    """

    bands: int | Literal["auto"]

    @property
    def is_correlated(self) -> bool:
        """Whether steps share noise, so that each batch needs one step, in order, in one
        process.
        """
        return self.bands != 1

    def settled(self, budget: Budget | None) -> Noise:
        """The noise with all that was to be chosen chosen; nothing but the budget decides."""
        if self.bands != "auto":
            return self
        if budget is None:
            raise ParameterError(
                "bands",
                self.bands,
                "it is chosen for target_epsilon and the steps planned; give these",
            )
        return Banded(choose_bands(budget))

    @property
    def steps_shared(self) -> int:
        """Steps that share noise, of noise that is settled."""
        assert self.bands != "auto"
        return self.bands

    def batches(self, *, batch_size: int, dataset_size: int) -> PoissonBatches:
        """How records enter a batch: each at the rate of its own part, in that part's turn.

        Raises:
            ParameterError: more parts than batches.
        """
        bands = self.steps_shared
        if bands * batch_size > dataset_size >= batch_size:
            raise ParameterError(
                "bands",
                bands,
                f"each part needs a batch; {dataset_size // batch_size} is the most here",
            )
        # A part is a share of 1 / bands of the records, and is drawn from in every bands-th step:
        # a record is used as often in all.
        return PoissonBatches(batch_size=bands * batch_size, dataset_size=dataset_size)

    def mixer(self, batches_drawn: Callable[[], int]) -> CorrelatedNoise | None:
        """What mixes sums of several steps; None where each is released by itself."""
        if not self.is_correlated:
            return None
        return CorrelatedNoise(self.steps_shared, batches_drawn)

    def phase(
        self, *, noise_multiplier: float, kappa: float, sampling: Sampling, steps: int
    ) -> Phase:
        """What steps cost that share all settings."""
        return Phase(
            noise_multiplier=noise_multiplier,
            kappa=kappa,
            sampling=sampling,
            steps=steps,
            bands=self.steps_shared,
        )

    def participations(self, steps: int) -> int:
        """How often a record takes part at most."""
        return participations(steps, self.steps_shared)

    def whole_blocks(self, steps: int) -> int:
        """The least number of steps in whole blocks that is not below this one."""
        return self.participations(steps) * self.steps_shared

    @property
    def facts(self) -> JsonObject:
        """Plain values for logs."""
        if not self.is_correlated:
            return {}
        return {"bands": self.steps_shared}


@final
@dataclass(frozen=True)
class Fresh(Noise):
    """Noise that is drawn afresh in each step.

    Example:
        >>> Fresh().participations(100)
        100
    """

    bands = 1


@final
@checked
@dataclass(frozen=True)
class Banded(Noise):
    """Noise that is correlated over some steps; records fall into as many parts, which take turns.

    More bands let more noise cancel, and need more of it.

    Arguments:
        bands: steps that share noise, 1 to 64; "auto" chooses, before training and for a target
            epsilon, what leaves least noise in the last iterate of plain SGD.
    Raises:
        ParameterError: a number outside that range.
    Source: docs/proofs/training.md, "Correlated noise"; Choquette-Choo et al. 2023.
    Example:
        >>> Banded(8).participations(100)
        13
    """

    bands: int | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        if self.bands != "auto":
            coefficients(check_count("bands", self.bands))


def choose_bands(budget: Budget) -> int:
    """The number of bands, of 1, 2, 4, 8 and 16, with the least noise in the last iterate of plain
    SGD.

    Nothing but the budget decides, so the choice costs nothing.
    """
    noise_by_bands: dict[int, float] = {}
    for bands in CHOICES:
        if bands * budget.batch_size > budget.dataset_size:
            continue
        noise_multiplier = least_noise(
            budget.target_epsilon,
            sampling_rate=bands * budget.batch_size / budget.dataset_size,
            steps=participations(budget.steps, bands),
            delta=budget.delta,
            neighboring=budget.neighboring,
        )
        noise_by_bands[bands] = noise_multiplier * last_noise(bands, budget.steps)
    return min(noise_by_bands, key=noise_by_bands.__getitem__)


@final
class CorrelatedNoise:
    """Mixes integer sums of several steps before the noise, and solves for the steps' sums behind
    it.

    Arguments:
        bands: how many steps a sum is spread over.
        batches_drawn: how many batches the loader has drawn so far: the records of `bands` batches
            in a row are disjoint.
    Guarantees: released is C X + N, X the sums of the steps, N independent rounded Gaussian noise
        of multiplier z in units of SCALE clip norms; what `solve` makes of it depends on nothing
        else. Sums of earlier steps are kept in memory alone, and never copied or pickled.
    Source: docs/proofs/training.md, "Correlated noise"; Choquette-Choo et al. 2023.
    """

    def __init__(self, bands: int, batches_drawn: Callable[[], int]) -> None:
        self.integers = coefficients(bands)
        self._batches_drawn = batches_drawn
        self._last_batch = 0
        self._settings: tuple[object, ...] | None = None
        self._sums: deque[IntArray] = deque(maxlen=bands - 1)
        self._solved: deque[FloatArray] = deque(maxlen=bands - 1)

    def __reduce__(self) -> NoReturn:
        raise ParameterError(
            "optimizer", "bands", "copies would use a record's one part in the noise twice"
        )

    def check(self, *settings: object) -> None:
        """Checks, before a step releases anything, that its batch is the next and nothing has
        changed.

        Arguments:
            settings: noise, clip norm and weights.
        Raises:
            ParameterError: a batch that was left out or is used again, other settings than in the
                first step.
        """
        batch_number = self._batches_drawn()
        if batch_number != self._last_batch + 1:
            remedy = (
                "with bands every batch of the loader needs one step, in order; none may be left "
                "out or come twice"
            )
            raise ParameterError("loader", f"batch {batch_number} after {self._last_batch}", remedy)
        if self._settings not in (None, settings):
            raise ParameterError(
                "optimizer",
                "changed",
                "with bands noise, clip norm and weights stay what they were",
            )
        self._last_batch = batch_number
        self._settings = settings

    def mix(self, summed: IntArray) -> IntArray:
        """(D,) C X of this step, from its sum and those kept."""
        mixed_sums = self.integers[0] * summed
        for factor, earlier in zip(self.integers[1:], self._sums, strict=False):
            mixed_sums = mixed_sums + factor * earlier
        self._sums.appendleft(summed)
        return mixed_sums

    def solve(self, released: IntArray) -> FloatArray:
        """(D,) the step's sum with its noise, from what was released in this step and before."""
        solution = solved(len(self.integers), released, dict(enumerate(self._solved, start=1)))
        self._solved.appendleft(solution)
        return solution
