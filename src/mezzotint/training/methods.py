"""Ways to make a step private, as methods for the trainer.

Steps add noise to the clipped sum of gradients, with or without projection of the weights, or sum up reports of each
gradient.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple, final

from mezzotint.core.arguments import Neighboring, check_positive
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject
from mezzotint.core.types import Seed
from mezzotint.privacy.accounting import account
from mezzotint.privacy.claim import Claim
from mezzotint.training.batches import Drawn
from mezzotint.training.clipped import NOT_REPLACED, CorrelatedNoise
from mezzotint.training.gradients import PrivateModule
from mezzotint.training.models import DPOptimizer, torch
from mezzotint.training.optimizers import (
    ClippedGradientOptimizer,
    NoisyOptimizer,
    ProjectedOptimizer,
    QuantizedGradientOptimizer,
)
from mezzotint.training.phases import Phase, Poisson
from mezzotint.training.projection import Projection, warn_about
from mezzotint.training.rqp import training_release
from mezzotint.vectors.rotation import coefficients

Rng = Callable[[str], Seed]
"""Called once per draw with its purpose ("noise", "table"): None for private draws, else a seed or a Generator."""


class Course(NamedTuple):
    """What a run does as far as its cost goes; arguments of `Method.claim`."""

    steps: int
    sampling_rate: float
    coordinates: int
    delta: float
    neighboring: Neighboring
    contraction: float
    records_per_user: int


class Method(ABC):
    """How records' gradients become a step, and what that costs."""

    relation: ClassVar[Neighboring] = "add_or_remove_one"
    """The neighbouring relation of claims, unless another is requested."""

    factored: ClassVar[bool] = False
    """Whether the optimizer reads gradients of dense layers as factors."""

    bands: int = 1
    """Steps that the noise is correlated over; records then fall into as many parts, which take turns."""

    @abstractmethod
    def optimizer(
        self, inner: torch.optim.Optimizer, *, batch_size: int, rng: Rng, drawn: Drawn
    ) -> DPOptimizer:
        """The Opacus optimizer around `inner`, which makes the step.

        Arguments:
            batch_size: expected number of records in a batch, which sums are divided by.
            drawn: the batches that the loop has drawn.
        """

    def wrap(self, module: torch.nn.Module) -> PrivateModule:
        """The module that makes the per-sample gradients of a sum of losses which the optimizer reads."""
        return PrivateModule(module, loss_reduction="sum", factored=self.factored)

    def claim(
        self,
        *,
        steps: int,
        sampling_rate: float,
        coordinates: int,
        delta: float,
        neighboring: Neighboring,
        contraction: float,
        records_per_user: int = 1,
    ) -> Claim | None:
        """What `steps` Poisson-sampled steps on `coordinates` weights cost one record; None if there is no limit.

        Arguments:
            contraction: what follows the noise leaves this share of its privacy loss, as the optimizer says
                (`ProjectedOptimizer.contraction`); 1 where nothing is projected.
            records_per_user: more than 1 for a claim about all records of one user, at most this many.
        Raises:
            ParameterError: reports about users; reports of gradients under add-or-remove-one. A report is drawn from
                the same codes whatever the record is, but a record that is absent sends nothing: it hides what was
                sent, not that it was.
        """
        if self.relation == "replace_one" != neighboring:
            raise ParameterError(
                "neighboring",
                neighboring,
                "reports of gradients hide replacement only: replace_one",
            )
        if self.relation == "replace_one" and records_per_user > 1:
            raise ParameterError(
                "records_per_user", records_per_user, "reports are accounted record by record: 1"
            )
        return self._claim(
            Course(
                steps, sampling_rate, coordinates, delta, neighboring, contraction, records_per_user
            )
        )

    @abstractmethod
    def _claim(self, run: Course) -> Claim | None: ...

    def warn(self, *, step_size: float, batch_size: int, steps: int) -> None:  # noqa: B027 - most have nothing to say
        """Warns about settings that harm training."""

    @abstractmethod
    def describe(self) -> JsonObject:
        """The settings as plain values, for logs and checkpoints."""

    def codes(self, optimizer: DPOptimizer) -> ProjectedOptimizer | None:
        """The projecting optimizer whose levels the weights stand on, if they do."""
        inner = optimizer.original_optimizer
        return inner if isinstance(inner, ProjectedOptimizer) else None


@final
@dataclass(frozen=True, kw_only=True)
class NoisySGD(Method):
    """DP-SGD: clip each record's gradient to an L2 norm, add Gaussian noise to the sum; project the weights, or not.

    Arguments:
        noise_multiplier: z >= 0, noise of the sum over the clip norm; 0 is not private.
        clip_norm: rho > 0.
        projection: what every weight goes through after every step; None keeps float weights.
        bound: weights lie in [-bound, bound]; one number, or one per parameter tensor. Needed with a projection.
        bands: steps that the noise is correlated over, as in `make_private`; 1 where codes are replaced at random.
    Raises:
        ParameterError: naming the parameter, its value and the remedy.
    """

    factored: ClassVar[bool] = True

    noise_multiplier: float
    clip_norm: float
    projection: Projection | None = None
    bound: float | tuple[float, ...] = 1.0
    bands: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.noise_multiplier < math.inf:
            raise ParameterError(
                "noise_multiplier", self.noise_multiplier, "need a finite number >= 0"
            )
        check_positive("clip_norm", self.clip_norm)
        coefficients(self.bands)
        if self.bands > 1 and self.projection is not None and self.projection.kappa < 1:
            raise ParameterError("bands", self.bands, NOT_REPLACED)

    def optimizer(
        self, inner: torch.optim.Optimizer, *, batch_size: int, rng: Rng, drawn: Drawn
    ) -> DPOptimizer:
        if self.projection is not None:
            inner = ProjectedOptimizer(
                inner, projection=self.projection, bounds=self.bound, rng=partial(rng, "table")
            )
        return NoisyOptimizer(
            inner,
            noise_multiplier=self.noise_multiplier,
            clip_norm=self.clip_norm,
            expected_batch_size=batch_size,
            rng=partial(rng, "noise"),
            correlated=CorrelatedNoise(self.bands, drawn) if self.bands > 1 else None,
            drawn=drawn,
        )

    def _claim(self, run: Course) -> Claim | None:
        if self.noise_multiplier == 0:
            return None
        phase = Phase(
            noise_multiplier=self.noise_multiplier,
            kappa=run.contraction,
            sampling=Poisson(rate=run.sampling_rate, records_per_user=run.records_per_user),
            steps=run.steps,
            bands=self.bands,
        )
        return account(training_release([phase], delta=run.delta, neighboring=run.neighboring))

    def warn(self, *, step_size: float, batch_size: int, steps: int) -> None:
        if self.projection is None:
            return
        bounds = self.bound if isinstance(self.bound, tuple) else (self.bound,)
        warn_about(
            self.projection,
            bound=max(bounds),
            step_size=step_size,
            clip_norm=self.clip_norm,
            weight_noise=step_size * self.noise_multiplier * self.clip_norm / batch_size,
            steps=steps,
        )

    def describe(self) -> JsonObject:
        found: JsonObject = {
            "method": "noisy-sgd",
            "noise_multiplier": self.noise_multiplier,
            "clip_norm": self.clip_norm,
            **({"bands": self.bands} if self.bands > 1 else {}),
        }
        if self.projection is not None:
            bound = list(self.bound) if isinstance(self.bound, tuple) else self.bound
            found |= {
                "projection": self.projection.table.name,
                "bits": self.projection.bits,
                "q": self.projection.q,
                "kappa": self.projection.kappa,
                "bound": bound,
                "table": self.projection.table.sha256,
            }
        return found


@final
@dataclass(frozen=True, kw_only=True)
class QuantizedSGD(Method):
    """Each coordinate of each record's clipped gradient goes through a table; integers are summed.

    Arguments:
        table: symmetric range; its upper end stands for a coordinate of size `clip`.
        clip: largest coordinate of a record's gradient.
        max_grad_norm: L2 norm a record's gradient is scaled down to first; inf for none.
    Guarantees: the claim counts every coordinate of every step; never a single coordinate's epsilon.
    """

    relation: ClassVar[Neighboring] = "replace_one"
    factored: ClassVar[bool] = True

    table: Mechanism
    clip: float
    max_grad_norm: float = math.inf

    def optimizer(
        self, inner: torch.optim.Optimizer, *, batch_size: int, rng: Rng, drawn: Drawn
    ) -> DPOptimizer:
        return QuantizedGradientOptimizer(
            inner,
            table=self.table,
            clip=self.clip,
            max_grad_norm=self.max_grad_norm,
            expected_batch_size=batch_size,
            rng=partial(rng, "table"),
            drawn=drawn,
        )

    def _claim(self, run: Course) -> Claim | None:
        if run.steps == 0:
            return None
        return account(
            self.table,
            dimension=run.coordinates,
            rounds=run.steps,
            sampling_rate=run.sampling_rate,
            delta=run.delta,
        )

    def describe(self) -> JsonObject:
        return {
            "method": "quantized-gradient",
            "table": self.table.sha256,
            "name": self.table.name,
            "clip": self.clip,
            "max_grad_norm": self.max_grad_norm,
        }


@final
@dataclass(frozen=True, kw_only=True)
class ClippedSGD(Method):
    """Coordinates are clipped and summed, nothing more: the yardstick for quantized gradients. Not private.

    Arguments:
        clip: largest coordinate of a record's gradient.
    """

    clip: float

    def optimizer(
        self, inner: torch.optim.Optimizer, *, batch_size: int, rng: Rng, drawn: Drawn
    ) -> DPOptimizer:
        return ClippedGradientOptimizer(
            inner, clip=self.clip, expected_batch_size=batch_size, drawn=drawn
        )

    def _claim(self, run: Course) -> Claim | None:
        return None

    def describe(self) -> JsonObject:
        return {"method": "clipped", "clip": self.clip}
