"""Optimizers around Opacus: sums of clipped gradients with noise, weights that land on levels after
each step.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, final

import numpy as np

from mezzotint.core.arguments import check_positive
from mezzotint.core.errors import MezzotintError, ParameterError
from mezzotint.core.sampler import GPU, key_from
from mezzotint.core.types import AnyArray, Codes, Seed
from mezzotint.training.batches import Drawn
from mezzotint.training.clipped import (
    ClippedSums,
    Gradients,
    clipped_sum,
    rounded_gaussian,
    scaled,
)
from mezzotint.training.gradients import factored
from mezzotint.training.models import (
    BatchSplittingSampler,
    DPOptimizer,
    Tensor,
    check_unused,
    mark_used,
    torch,
)
from mezzotint.training.noise import CorrelatedNoise
from mezzotint.training.projection import ROUNDINGS, LeftOutWarning, Projection, place
from mezzotint.training.records import record_count, record_rows, refuse_other_rows
from mezzotint.vectors.gaussian import RoundedGaussian
from mezzotint.vectors.rotation import SCALE


@final
class NotFiniteError(MezzotintError, ArithmeticError):
    """A gradient that is infinite or not a number; the step that met it has not been taken."""


# Defaults by name, as optimizers are pickled.


def _private() -> None:
    """Draws from the operating system's entropy."""


def every(parameter: Tensor) -> bool:
    """All parameters are quantized."""
    return True


def uncounted(optimizer: NoisyOptimizer) -> None:
    """No accounting."""


def parameters_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """All parameter tensors, in order of the groups."""
    return [
        parameter
        for parameter_group in optimizer.param_groups
        for parameter in parameter_group["params"]
    ]


class _Wrapper(torch.optim.Optimizer):
    """An optimizer around another one, which holds parameters and state; hooks and copies are its
    own.
    """

    def _become_optimizer(self) -> None:
        # torch's own constructor would make a second set of parameters and state; this makes the
        # tables of hooks.
        torch.optim.Optimizer.__setstate__(self, {})

    def __getstate__(self) -> dict[str, object]:
        # A scheduler's wrapper of `step`, a pass through a loader and the sums of a batch belong to
        # the optimizer that they were made for.
        state = dict(vars(self))
        for name in ("step", "_splitting", "_sums"):
            state.pop(name, None)
        return state

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)


@final
class ProjectedOptimizer(_Wrapper):
    """Wraps the optimizer that Opacus calls after clipping and noise, and projects every weight
    after its step.

    Give it to `opacus.PrivacyEngine.make_private` or `DPOptimizer` in place of the plain optimizer.

    Arguments:
        inner: the optimizer that makes the step.
        projection: what each weight goes through.
        bounds: one bound per parameter tensor, in order of the parameter groups; weights are
            divided by it before the table and multiplied by it afterwards. A single number serves
            all tensors.
        rng: called once per step; None for private draws of the system's entropy, an integer or
            numpy Generator for reproducible ones, which are NOT private.
        quantize: which parameter tensors are projected; all by default. Frozen ones never are.
    Raises:
        ParameterError: a bound that is not positive, or a wrong number of them.
    Guarantees:
        Between steps every projected weight is one of the levels of its tensor, and `codes` says
        which. `contraction` is below 1 only where Theorem A holds: around a stateless inner
        optimizer.
    """

    def __init__(
        self,
        inner: torch.optim.Optimizer,
        *,
        projection: Projection,
        bounds: float | Iterable[float],
        rng: Callable[[], Seed] = _private,
        quantize: Callable[[Tensor], bool] = every,
    ) -> None:
        self.inner = inner
        self.projection = projection
        self.rng = rng
        self.quantize = quantize
        self._contracted = 0.0
        self._become_optimizer()
        count = len(parameters_of(self.inner))
        self._common: float | None = None
        if isinstance(bounds, int | float):
            self._common = float(bounds)
            self._bounds = [self._common] * count
        else:
            self._bounds = [float(bound) for bound in bounds]
        self._check_bounds()
        self.project()

    def _check_bounds(self) -> None:
        count = len(parameters_of(self.inner))
        are_positive = all(0 < bound < math.inf for bound in self._bounds)
        if len(self._bounds) != count or not are_positive:
            raise ParameterError(
                "bounds", self._bounds, f"need one positive number, or {count} of them"
            )

    def _projected(self) -> list[tuple[Tensor, float]]:
        """The tensors that are projected, and their bounds."""
        return [
            (parameter, bound)
            for parameter, bound in zip(parameters_of(self.inner), self._bounds, strict=True)
            if parameter.requires_grad and self.quantize(parameter)
        ]

    @property
    def parameters(self) -> list[Tensor]:
        """The parameter tensors that are projected, in order of the groups."""
        return [parameter for parameter, _ in self._projected()]

    @property
    def bounds(self) -> list[float]:
        """Their bounds."""
        return [bound for _, bound in self._projected()]

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self.inner.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.inner.param_groups = groups

    @property
    def state(self) -> Any:
        return self.inner.state

    @state.setter
    def state(self, state: Any) -> None:
        self.inner.state = state

    @property
    def defaults(self) -> dict[str, Any]:
        return self.inner.defaults

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds tensors; their bound is the common one if there is one, else twice their largest
        weight (or 1).
        """
        self.inner.add_param_group(param_group)
        for parameter in self.inner.param_groups[-1]["params"]:
            self._bounds.append(self._common or derived_bound(parameter))
        self._check_bounds()
        self.project()

    def __repr__(self) -> str:
        return repr(self.inner)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.inner.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        return self.inner.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.inner.load_state_dict(state_dict)

    @property
    def contraction(self) -> float:
        """Share of the noise's privacy loss that may be claimed to survive, worst over the steps so
        far.

        The projection's kappa while the inner optimizer is known to be stateless and every trained
        weight is projected, else 1: momentum carries noisy gradients past the random replacement,
        and each step reads them again through fresh coins. Whatever is not known (other classes,
        subclasses, hooks, a `step` that was wrapped) counts as stateful.
        """
        is_stateless = _is_stateless(self.inner)
        is_plain = not _has_hooks(self) and not _is_replaced(self)
        trained = sum(parameter.requires_grad for parameter in parameters_of(self.inner))
        present = 1.0
        if is_stateless and is_plain and trained == len(self._projected()):
            present = self.projection.kappa
        return max(self._contracted, present)

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        self._contracted = self.contraction
        gradients: list[Any] = []
        if self.projection.kappa < 1:
            gradients = [parameter.grad for parameter in self.parameters]
        for gradient in gradients:
            # Noise that two projections read tells more than noise that one has read.
            check_unused(gradient)
        if closure is None:
            loss = self.inner.step()
        else:
            loss = self.inner.step(closure)
        for gradient in gradients:
            mark_used(gradient)
        self.project()
        return loss

    @torch.no_grad()
    def project(self) -> None:
        """Puts every weight onto a level; also called once at the start, so that the first iterate
        is one too.
        """
        projected = self._projected()
        if not projected:
            return
        devices = {parameter.device.type for parameter, _ in projected}
        if self.projection.rounding in ROUNDINGS and devices == {"cpu"}:
            self._project_in_place(projected)
        else:
            self._project_together(projected)

    def _project_in_place(self, projected: list[tuple[Tensor, float]]) -> None:
        flat_tensors = [
            parameter.detach().to(torch.float32).contiguous().flatten()
            for parameter, _ in projected
        ]
        arrays = [flat_weights.numpy() for flat_weights in flat_tensors]
        bounds = [bound for _, bound in projected]
        if place(arrays, bounds, self.projection, key_from(self.rng())):
            raise NotFiniteError("a weight is not a number")
        for (parameter, _), flat_weights in zip(projected, flat_tensors, strict=True):
            if flat_weights.data_ptr() != parameter.data_ptr():
                parameter.copy_(flat_weights.view_as(parameter))

    def _project_together(self, projected: list[tuple[Tensor, float]]) -> None:
        # One draw for all tensors, where the first of them lies, and few operations on each: the
        # time goes into these.
        device = projected[0][0].device
        relative = [
            (parameter.detach().to(device, torch.float32) / bound).flatten()
            for parameter, bound in projected
        ]
        level_codes = self.projection.table.privatize(torch.cat(relative), self.rng())
        levels = self.projection.table.levels
        tensor_sizes = [parameter.numel() for parameter, _ in projected]
        for (parameter, bound), tensor_codes in zip(
            projected, level_codes.split(tensor_sizes), strict=True
        ):
            values = torch.tensor(levels * bound, dtype=torch.float32, device=device)
            parameter.copy_(values.index_select(0, tensor_codes.int()).view_as(parameter))

    @property
    def codes(self) -> list[Codes]:
        """Which level each weight stands on, tensor by tensor; uint8."""
        levels = self.projection.table.levels
        middles = (levels[1:] + levels[:-1]) / 2
        level_codes: list[Codes] = []
        for parameter, bound in self._projected():
            relative = (parameter.detach().float() / bound).cpu().numpy()
            level_codes.append(np.searchsorted(middles, relative).astype(np.uint8))
        return level_codes


def derived_bound(parameter: Tensor) -> float:
    """Twice the largest weight of a tensor that is public, as initial weights are; 1 if all are
    0.
    """
    if not parameter.numel() or not bool(parameter.any()):
        return 1.0
    return 2 * float(parameter.detach().abs().max())


def _has_hooks(optimizer: torch.optim.Optimizer) -> bool:
    return bool(optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks)


def _is_replaced(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a method was put in place of the class's own; a learning rate scheduler's counter
    around `step` may.
    """
    return any(
        callable(getattr(type(optimizer), name, None))
        and not (name == "step" and hasattr(method, "_wrapped_by_lr_sched"))
        for name, method in vars(optimizer).items()
    )


def _is_stateless(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a step is known to depend on the present gradients and weights alone, coordinate by
    coordinate.
    """
    of_all_optimizers = vars(sys.modules[torch.optim.Optimizer.__module__])
    if of_all_optimizers["_global_optimizer_pre_hooks"]:
        return False
    if of_all_optimizers["_global_optimizer_post_hooks"] or _has_hooks(optimizer):
        return False
    if type(optimizer) is not torch.optim.SGD or "step" in vars(optimizer) or optimizer.state:
        return False
    return not any(
        parameter_group["momentum"] or parameter_group["dampening"] or parameter_group["nesterov"]
        for parameter_group in optimizer.param_groups
    )


@final
class NoisyOptimizer(_Wrapper, DPOptimizer):
    """DP-SGD on integers: clips each record's gradient, adds up on a public grid, adds rounded
    Gaussian noise.

    Arguments:
        inner: the optimizer that makes the step.
        noise_multiplier: z >= 0, noise of the sum over the clip norm; 0 adds none and is not
            private.
        clip_norm: C > 0, L2 norm of a record's gradient in all tensors.
        expected_batch_size: what the sum is divided by.
        rng: as in `ProjectedOptimizer`, for the noise.
        record: called with this optimizer before each release, for accounting; what it raises stops
            the step.
        replicas: the processes of PyTorch's default group each hold part of a batch: their integer
            sums are added up, and all must draw the same noise.
        mixer: spreads every sum and its noise over several steps; None for noise that is drawn
            afresh.
        drawn: what counts the batches that the loader gives: each step needs one of its own, and
            one row of every tensor for each of its records. None if nobody counts.
    Raises:
        ParameterError: clip_norm not positive, noise_multiplier negative or too large for the grid;
            from a step, one that no batch was drawn for, or rows that are not the records of the
            batch.
    Warns:
        LeftOutWarning: once, when a record's gradient is not finite, or no shortening brings it
            within the clip norm. It then counts as zero: a run that stopped for it would tell,
            without noise, that it was there.
    Guarantees:
        What is released is the rounded output of the Gaussian mechanism of noise multiplier z,
        exactly: a record changes the integer sum by an L2 norm of at most one clip norm, and the
        noise is drawn without error.
    Source: docs/proofs/training.md, "Noise".
    """

    _step_supports_amp_scaling = True
    """So that a GradScaler calls `step`, which refuses it, instead of leaving steps out by itself.
    """

    _splitting: Any = None
    """The pass of Opacus's memory manager that batches are split by."""

    expected_batch_size: Any

    _sums: Tensor | None = None
    """(D,) integers: the records' clipped gradients in all tensors, in units of the grid, added
    up.
    """

    _records = 0
    """Records that are in the sums."""

    _warned = False
    """Whether records left out were warned of. What a batch changes has its first value on the
    class, which objects that were pickled before it existed have, too.
    """

    def __init__(
        self,
        inner: torch.optim.Optimizer,
        *,
        noise_multiplier: float,
        clip_norm: float,
        expected_batch_size: int,
        rng: Callable[[], Seed] = _private,
        record: Callable[[NoisyOptimizer], None] = uncounted,
        replicas: bool = False,
        mixer: CorrelatedNoise | None = None,
        drawn: Drawn | None = None,
    ) -> None:
        DPOptimizer.__init__(
            self,
            inner,
            noise_multiplier=noise_multiplier,
            max_grad_norm=check_positive("clip_norm", clip_norm),
            expected_batch_size=expected_batch_size,
        )
        self._become_optimizer()
        self.record = record
        self.replicas = replicas
        self.mixer = mixer
        self.drawn = drawn
        if not 0 <= noise_multiplier < math.inf:
            raise ParameterError("noise_multiplier", noise_multiplier, "need a finite number >= 0")
        self.rng = rng
        self._law_of_noise()

    @property
    def params(self) -> list[Any]:
        """The trained tensors, which Opacus hangs gradients onto."""
        return super().params

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self.original_optimizer.add_param_group(param_group)

    @property
    def contraction(self) -> float:
        """Share of the noise's privacy loss that may be claimed: `ProjectedOptimizer.contraction`,
        1 without one.

        Also 1 where hooks on this optimizer, or methods put in place of its own, may keep noisy
        gradients.
        """
        inner = self.original_optimizer
        if not isinstance(inner, ProjectedOptimizer):
            return 1.0
        if _has_hooks(self) or _is_replaced(self) or self.step_hook is not None:
            return 1.0
        return inner.contraction

    def _grid(self) -> ClippedSums:
        # The clip norm may be changed between steps, as Opacus's schedulers do; the noise
        # multiplier as well.
        coordinates = sum(parameter.numel() for parameter in self.params)
        return ClippedSums(clip_norm=self.max_grad_norm, coordinates=coordinates)

    def _law_of_noise(self) -> RoundedGaussian | None:
        """The noise of a sum, in units of the grid; None where there is none."""
        if self.noise_multiplier == 0:
            return None
        sigma = self.noise_multiplier * self._grid().units
        if self.mixer is not None:
            sigma *= SCALE
        return _noise_of(sigma)

    # Batches that Opacus's memory manager splits

    def signal_skip_step(self, do_skip: bool = True) -> None:
        """What Opacus's memory manager calls where it splits a batch; refused to everybody else.

        Parts of one batch hold different records. Batches of several draws may share records, so
        that a sum over them is changed by more than one clip norm, and by more often than the
        accountant counts.

        Raises:
            ParameterError: any other caller; a part that no step was taken for.
        """
        caller = sys._getframe(1)
        if caller.f_code is not BatchSplittingSampler.__iter__.__code__:
            remedy = (
                "only Opacus's BatchMemoryManager may split a batch; for larger batches give the "
                "loader a larger size"
            )
            raise ParameterError("signal_skip_step", caller.f_code.co_name, remedy)
        if caller is not self._splitting:
            # The pass before may have ended in the middle of a batch, whose parts are dropped.
            self._splitting = caller
            self._is_last_step_skipped = False
            self._step_skip_queue.clear()
            self._forget_sums()
        elif self._step_skip_queue:
            remedy = (
                "every part of a batch needs one step, in order; and no worker processes, which "
                "draw in advance"
            )
            raise ParameterError("signal_skip_step", len(self._step_skip_queue), remedy)
        super().signal_skip_step(do_skip)

    # Sums of clipped gradients

    def pre_step(self, closure: Any = None) -> bool:
        """What Opacus calls before the inner optimizer's step.

        Returns: whether that step is to be made.
        """
        if not self.params:
            return True
        self.clip_and_accumulate()
        if self._check_skip_next_step():
            self._is_last_step_skipped = True
            return False
        self.add_noise()
        if self.step_hook:
            self.step_hook(self)
        self._is_last_step_skipped = False
        return True

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops all gradients; the sums of a batch that is split stay until its last part."""
        for parameter in self.params:
            parameter.grad_sample = None
        if not self._is_last_step_skipped:
            self._forget_sums()
        self.original_optimizer.zero_grad(set_to_none)

    def _forget_sums(self) -> None:
        self._records = 0
        self._sums = None

    def _samples(self) -> list[Tensor]:
        """Per-record gradients of every tensor; refuses those scaled by their own size."""
        if hasattr(self, "found_inf"):
            remedy = (
                "its scale follows overflows in gradients that are not released; use autocast "
                "without it, in bfloat16 where float16 loses too much"
            )
            raise ParameterError("optimizer", "GradScaler", remedy)
        return [record_rows(parameter) for parameter in self.params]

    @torch.no_grad()
    def clip_and_accumulate(self) -> None:
        """What Opacus calls to clip and sum."""
        samples = self._samples()
        is_later_part = self._step_skip_queue and self._is_last_step_skipped
        if not is_later_part:
            self._forget_sums()
        self._records += record_count(self.params, samples)
        summed = self._clipped_sum(samples)
        if self._sums is not None:
            summed = self._sums + summed
        self._sums = summed
        for parameter in self.params:
            mark_used(parameter.grad_sample)

    def _split(self, together: Tensor) -> list[Tensor]:
        """(D,) coordinates, cut into the shape of each tensor."""
        pieces = together.split([parameter.numel() for parameter in self.params])
        return [
            tensor_piece.view_as(parameter)
            for parameter, tensor_piece in zip(self.params, pieces, strict=True)
        ]

    def _clipped_sum(self, samples: list[Tensor]) -> Tensor:
        """(D,) integers: the sum over the records of their clipped gradients, in units of the
        grid.
        """
        if samples[0].device.type in GPU:
            summed, left_out = clipped_sum([factored(sample) for sample in samples], self._grid())
        else:
            gradients = [Gradients.of_tensors(*factored(sample)) for sample in samples]
            integers, left_out = self._grid()(gradients)
            summed = torch.from_numpy(integers)
        if left_out and not self._warned:
            self._warned = True
            warnings.warn(
                f"{left_out} record(s) count as zero: their gradients are not finite, or too long to "
                "be clipped; lower the step size, or look for overflowing features (said once)",
                LeftOutWarning,
                stacklevel=2,
            )
        return summed

    # Noise

    @torch.no_grad()
    def add_noise(self) -> None:
        """What Opacus calls to make the sum private; also divides it by the batch's size.

        Raises:
            NotFiniteError: the step counts all the same.
        """
        summed = self._sums
        self._sums = None
        if summed is None:
            raise ParameterError(
                "gradients", "no sum", "each release needs sums of its own; call step()"
            )
        self._check_batch()
        self._count()
        released = self._released(summed)
        for parameter, gradient in zip(self.params, self._split(released), strict=True):
            parameter.grad = gradient.to(parameter.dtype)

    def scale_grad(self) -> None:
        """Nothing: gradients are divided all together, where their noise is added."""

    def _check_batch(self) -> None:
        """Whether the loader gave a batch since the last step, and the sum is of its records."""
        if self.drawn is None:
            return
        if self.drawn.used >= self.drawn():
            remedy = (
                "each step needs a batch of its own, drawn by the loader that make_private has "
                "returned"
            )
            raise ParameterError("loader", f"no batch since {self.drawn.used}", remedy)
        if self._records != self.drawn.size:
            raise refuse_other_rows(self.params[0], self._records)

    def _count(self) -> None:
        """Counts a step before anything of it is released; what is raised here stops the step."""
        if self.mixer is not None:
            weights = [id(parameter) for parameter in self.params]
            self.mixer.check(self.noise_multiplier, self.max_grad_norm, weights)
        self.record(self)
        if self.drawn is not None:
            self.drawn.used = self.drawn()

    def _released(self, summed: Tensor) -> Tensor:
        """(D,) gradient that the step is made with, from the sum of integers."""
        device = self.params[0].device
        if self.replicas:
            # Integers: the sum does not depend on the order of the replicas.
            summed = summed.to(device)
            torch.distributed.all_reduce(summed)
        if self.mixer is None and summed.device.type in GPU:
            return self._released_on_device(summed)
        integers: AnyArray = summed.cpu().numpy()
        if self.mixer is not None:
            integers = self.mixer.mix(integers)
        noise_law = self._law_of_noise()
        if noise_law is not None:
            noisy_sums = noise_law.draw(key_from(self.rng()), integers.size)
            noisy_sums += integers
            integers = noisy_sums
        if self.mixer is not None:
            integers = self.mixer.solve(integers)
        gradient, is_finite = scaled(integers, self._grid().unit, self.expected_batch_size)
        if not is_finite:
            raise NotFiniteError(_NOT_FINITE)
        return torch.from_numpy(gradient).to(device)

    def _released_on_device(self, summed: Tensor) -> Tensor:
        noise_law = self._law_of_noise()
        if noise_law is not None:
            noise_key = key_from(self.rng())
            summed = summed + rounded_gaussian(noise_law, noise_key, summed.numel(), summed.device)
        gradient = (summed.double() * self._grid().unit).float() / self.expected_batch_size
        if not gradient.isfinite().all():
            raise NotFiniteError(_NOT_FINITE)
        return gradient


_NOT_FINITE = "its gradient is not finite"


@lru_cache(maxsize=16)
def _noise_of(sigma: float) -> RoundedGaussian:
    return RoundedGaussian(sigma=sigma)
