"""Ways to make a step private, as methods for the trainer, and one call that makes a PyTorch training script private.

Steps add noise to the clipped sum of gradients, with or without projection of the weights, or sum up reports of each
gradient. An accountant counts the steps of a script and claims what they have cost so far.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, final, get_args

from mezzotint.core.arguments import (
    Neighboring,
    check_choice,
    check_count,
    check_neighboring,
    check_positive,
)
from mezzotint.core.errors import MezzotintError, ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject
from mezzotint.core.types import Seed
from mezzotint.privacy.accounting import account
from mezzotint.privacy.claim import Claim
from mezzotint.training.batches import (
    Drawn,
    Draws,
    check_loader,
    first_records,
    poisson_loader,
)
from mezzotint.training.clipped import NOT_REPLACED, CorrelatedNoise, choose_bands
from mezzotint.training.gradients import PrivateModule
from mezzotint.training.models import (
    AbstractGradSampleModule,
    DPOptimizer,
    FSDPModule,
    FullyShardedDataParallel,
    GradSampleModuleFastGradientClipping,
    IAccountant,
    torch,
)
from mezzotint.training.optimizers import (
    ClippedGradientOptimizer,
    NoisyOptimizer,
    ProjectedOptimizer,
    QuantizedGradientOptimizer,
    derived_bound,
    every,
)
from mezzotint.training.phases import Phase, Poisson, participations
from mezzotint.training.projection import Projection, projection, warn_about
from mezzotint.training.records import refuse_layers
from mezzotint.training.rqp import noise_multiplier as least_noise
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


@final
class BudgetSpentError(MezzotintError, RuntimeError):
    """A step beyond the planned ones; it has not been taken."""


@final
class Accountant(IAccountant):
    """Counts steps, and claims what they cost.

    Arguments:
        sampling: how records enter a batch.
        delta: of the claim.
        neighboring: "add_or_remove_one" or "replace_one".
        steps: planned; one more is refused. None for no limit.
        seeded: the run is a simulation, and its claim says so.
        bands: steps that the noise is correlated over.
    Guarantees: a step is counted before its noise is drawn; the claim covers every released iterate, with the noise
        multiplier of each step and the worst contraction that held in any. Deep copies of an optimizer are counted
        here as well. What was pickled makes claims, and counts nothing: the run that it comes from would not know.
    """

    _pickled = False

    def __init__(
        self,
        *,
        sampling: Poisson,
        delta: float,
        neighboring: Neighboring = "add_or_remove_one",
        steps: int | None = None,
        seeded: bool = False,
        bands: int = 1,
    ) -> None:
        self.bands, self._goes_on = bands, False
        self.history: list[tuple[float, float, int]] = []
        self.sampling, self.delta, self.steps, self.seeded = sampling, delta, steps, seeded
        self.neighboring: Neighboring = neighboring
        self.contraction = 0.0

    def record(self, optimizer: NoisyOptimizer) -> None:
        """Counts a step of a `NoisyOptimizer` that is about to release.

        Raises:
            BudgetSpentError: beyond the planned steps.
            ParameterError: an accountant out of a pickle.
        """
        if self._pickled:
            remedy = "the run would not count its steps; call make_private, and load_state_dict of what was saved"
            raise ParameterError("optimizer", "a pickled copy", remedy)
        if self.steps is not None and len(self) >= self.steps:
            raise BudgetSpentError(
                f"all {self.steps} planned steps are taken, and another would cost more than the target; plan more "
                "epochs, or give noise_multiplier instead of target_epsilon"
            )
        self.contraction = max(self.contraction, optimizer.contraction)
        self.step(noise_multiplier=optimizer.noise_multiplier, sample_rate=self.sampling.rate)

    def __deepcopy__(self, _: object) -> Accountant:
        return self

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_pickled": True}

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Counts one step."""
        check_positive("noise_multiplier", noise_multiplier)
        last = self.history[-1] if self.history else None
        if self._goes_on and last is not None and last[:2] == (noise_multiplier, sample_rate):
            self.history[-1] = (noise_multiplier, sample_rate, last[2] + 1)
        else:
            self.history.append((noise_multiplier, sample_rate, 1))
        self._goes_on = True

    def __len__(self) -> int:
        return sum(steps for _, _, steps in self.history)

    def claim(self, delta: float | None = None) -> Claim:
        """What all steps so far cost one record, at the run's delta or another."""
        phases = [
            Phase(
                noise_multiplier=noise, kappa=self.contraction, sampling=replace(self.sampling, rate=rate), steps=steps,
                bands=self.bands,
            )
            for noise, rate, steps in self.history
        ]  # fmt: skip
        delta = self.delta if delta is None else delta
        return account(
            training_release(phases, delta=delta, neighboring=self.neighboring, seeded=self.seeded)
        )

    def get_epsilon(self, delta: float, *_: object, **__: object) -> float:
        """Epsilon of all steps so far; 0 before the first, inf where nothing can be claimed."""
        return self.claim(delta).epsilon

    @classmethod
    def mechanism(cls) -> str:
        """The name that Opacus stores beside an accountant's history."""
        return "mezzotint"

    def state_dict(self, destination: Any = None) -> Any:
        found = super().state_dict(destination)
        found["contraction"], found["bands"] = self.contraction, self.bands
        found["records_per_user"] = self.sampling.records_per_user
        return found

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Goes on from the steps that another accountant counted, or this one did.

        Raises:
            ParameterError: a run of other bands or users; fewer steps than are counted here. To go back to earlier
                weights, load module and optimizer alone: the later ones are released.
        """
        for name, own in (
            ("bands", self.bands),
            ("records_per_user", self.sampling.records_per_user),
        ):
            if int(state_dict.get(name, 1)) != own:
                raise ParameterError(name, own, f"the run so far had {state_dict.get(name, 1)}")
        history = [
            (float(noise), float(rate), int(steps)) for noise, rate, steps in state_dict["history"]
        ]
        if not _counted(self.history) <= _counted(history):
            remedy = "released steps stay counted; to go back to earlier weights, load module and optimizer alone"
            raise ParameterError(
                "state_dict", f"{_counted(history).total()} steps, {len(self)} counted", remedy
            )
        super().load_state_dict(state_dict)
        self.history = history
        self.contraction = max(self.contraction, float(state_dict["contraction"]))
        self._goes_on = False  # a run that goes on begins anew


def _counted(history: list[tuple[float, float, int]]) -> Counter[tuple[float, float]]:
    return sum(
        (Counter({(noise, rate): steps}) for noise, rate, steps in history),
        Counter[tuple[float, float]](),
    )


PrivateMethod = Literal["dp-sgd", "proj-dp-sgd", "rqp"]
METHODS = get_args(PrivateMethod)


def make_private(
    module: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: torch.utils.data.DataLoader[Any],
    *,
    delta: float,
    epochs: int | None = None,
    target_epsilon: float | None = None,
    noise_multiplier: float | None = None,
    bits: int | None = None,
    method: PrivateMethod | None = None,
    max_grad_norm: float = 1.0,
    q: float | None = None,
    bound: float | None = None,
    neighboring: Neighboring = "add_or_remove_one",
    loss_reduction: Literal["mean", "sum"] = "mean",
    bands: int | Literal["auto"] = 1,
    users: Any = None,
    records_per_user: int = 1,
    seed: int | None = None,
) -> tuple[PrivateModule, NoisyOptimizer, torch.utils.data.DataLoader[Any], Accountant]:
    """Makes a training script private; the loop itself stays as it is.

    Arguments:
        module: any module that Opacus can take per-sample gradients of.
        optimizer: of PyTorch, over parameters of the module; it makes the step.
        loader: its batches become Poisson samples of the same expected size, `len(loader)` to an epoch.
        delta: of the claim, in [1e-11, 1).
        epochs: passes through the loader that the budget is planned for; needed with target_epsilon.
        target_epsilon: the noise is chosen so that all epochs cost at most this much; a further step is refused.
        noise_multiplier: the noise itself, instead: noise of the summed gradients over max_grad_norm.
        bits: per weight, for "proj-dp-sgd" and "rqp"; 4 by default.
        method: "dp-sgd" (float weights), "proj-dp-sgd" (weights of two and more dimensions stand on 2^bits levels
            after each step, rounded without bias: free), "rqp" (all weights nearest rounded, then kept with
            probability q or replaced). "dp-sgd" if bits is not given, else "proj-dp-sgd".
        max_grad_norm: L2 norm that a record's gradient is clipped to.
        q: for "rqp"; 0.99 by default.
        bound: weights on levels lie in [-bound, bound]; by default twice the tensor's largest initial weight.
        neighboring: "add_or_remove_one" or "replace_one".
        loss_reduction: of the loss that the loop computes.
        bands: steps that the noise is correlated over; 1 draws it afresh. Records then fall into as many parts, which
            take turns. More bands let noise cancel, and need more of it: "auto" chooses before training, for
            target_epsilon, what leaves least in the last iterate of plain SGD.
        users: whose record each is, in the order of the loader's data; the claim is then about all records of one user.
        records_per_user: with users, the maximum number of each user's records to train on and account for together.
        seed: for a simulation that can be repeated; NOT private, and its claim says so.
    Returns: module, optimizer, loader, and the accountant, whose `claim()` is what all steps so far cost one record.
    Raises:
        ParameterError: what no setting would mend, with what would.
        InfeasibleError: no noise reaches target_epsilon.
    Warns: as `projection.warn_about`, where a projection harms training.
    Guarantees:
        Gradients are clipped and summed as integers, noise and batches come from cryptographic keystreams, and each
        step is counted before its noise is drawn. The claim uses a contraction below 1 only where Theorem A holds.
        In a process group of PyTorch every replica takes part: it gets its own share of the records, sums are added
        up, and all replicas make the same step. Each step needs a batch that the loader has given since the last one,
        and one row of every tensor for each of its records. That they are the same records is the loop's to see to.
    Source: docs/training.md.
    Example:
        >>> records = torch.utils.data.TensorDataset(torch.randn(200, 5), torch.randint(2, (200,)))
        >>> module, data = torch.nn.Linear(5, 2), torch.utils.data.DataLoader(records, batch_size=20, shuffle=True)
        >>> module, optimizer, loader, accountant = make_private(
        ...     module, torch.optim.SGD(module.parameters()), data, target_epsilon=2.0, delta=1e-5, epochs=5, bits=4
        ... )
        >>> for x, y in loader:
        ...     optimizer.zero_grad()
        ...     torch.nn.functional.cross_entropy(module(x), y).backward()
        ...     optimizer.step()
        >>> 0 < accountant.claim().epsilon < 2.0
        True
    """
    chosen = method or ("dp-sgd" if bits is None else "proj-dp-sgd")
    _check(chosen, bits=bits, q=q, neighboring=neighboring, loss_reduction=loss_reduction)
    _check_module(module, optimizer)
    check_loader(loader)
    replicas, rank, world = _replicas(module)
    draws = Draws(seed, replicas=replicas)
    steps = None if epochs is None else check_count("epochs", epochs) * max(1, len(loader))
    kept = _kept(users, records_per_user, loader, chosen, bands)
    banded = _bands(
        bands, loader, chosen, replicas, target_epsilon, steps, delta=delta, neighboring=neighboring
    )
    rng = partial(draws, "batch")
    made, batches = poisson_loader(
        loader, rng=rng, first=rank, every=world, bands=banded, kept=kept
    )
    sampling = replace(batches.sampling, records_per_user=records_per_user)
    inner = (
        optimizer if chosen == "dp-sgd" else _onto_levels(optimizer, chosen, bits, q, bound, draws)
    )
    if (target_epsilon is None) == (noise_multiplier is None):
        raise ParameterError(
            "target_epsilon", target_epsilon, "give one of target_epsilon and noise_multiplier"
        )
    if target_epsilon is None:
        noise = check_positive("noise_multiplier", noise_multiplier)
    elif steps is None:
        raise ParameterError("epochs", None, "the budget is for a number of epochs; give it")
    else:
        count = participations(steps, banded)
        noise = least_noise(
            target_epsilon, sampling=sampling, steps=count, delta=delta, neighboring=neighboring
        )
        # Less where codes that are replaced hide something of the noise.
        noise *= inner.contraction if isinstance(inner, ProjectedOptimizer) else 1.0
    accountant = Accountant(
        sampling=sampling, delta=delta, neighboring=neighboring, steps=None if target_epsilon is None else steps,
        seeded=seed is not None, bands=banded,
    )  # fmt: skip
    expected = batches.batch_size // banded
    if isinstance(inner, ProjectedOptimizer):
        step_size = max(float(group["lr"]) for group in inner.param_groups)
        warn_about(
            inner.projection, bound=max(inner.bounds, default=1.0), step_size=step_size, clip_norm=max_grad_norm,
            weight_noise=step_size * noise * max_grad_norm / expected, steps=steps or len(made),
            contraction=inner.contraction,
        )  # fmt: skip
    sampler: Any = made.batch_sampler
    private = NoisyOptimizer(
        inner, noise_multiplier=noise, clip_norm=max_grad_norm, expected_batch_size=expected, drawn=sampler.drawn,
        rng=partial(draws, "noise"), record=accountant.record, replicas=replicas,
        correlated=CorrelatedNoise(banded, sampler.drawn) if banded > 1 else None,
    )  # fmt: skip
    private.zero_grad()  # gradients from before would be applied as they are, to tensors that are frozen by now
    for parameter in module.parameters():
        # Autograd's own sum is not private: the plain optimizer, called in the middle of a step, must not find it.
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(_forget)
    return (
        PrivateModule(module, loss_reduction=loss_reduction),
        private,
        made,
        accountant,
    )


def _check(
    method: str, *, bits: int | None, q: float | None, neighboring: str, loss_reduction: str
) -> None:
    check_choice("method", method, METHODS)
    if bits is not None and method == "dp-sgd":
        remedy = "weights are floats; pack them into few bits after training, which is free, or use proj-dp-sgd"
        raise ParameterError("bits", bits, remedy)
    if q is not None and method != "rqp":
        raise ParameterError("q", q, f"{method} replaces no codes; use rqp, or leave q out")
    check_neighboring(neighboring)
    check_choice("loss_reduction", loss_reduction, ("mean", "sum"))


def _bands(
    bands: int | str,
    loader: Any,
    method: str,
    replicas: bool,
    target: float | None,
    steps: int | None,
    **claim: Any,
) -> int:
    """How many bands, chosen if that is requested."""
    if bands != 1 and method == "rqp":
        raise ParameterError("bands", bands, NOT_REPLACED)
    if bands != 1 and replicas:
        raise ParameterError(
            "bands", bands, "correlated noise is for one process; use bands=1 with replicas"
        )
    if bands != "auto":
        return check_count("bands", bands)
    if target is None or steps is None:
        raise ParameterError(
            "bands", bands, "it is chosen for target_epsilon and epochs, with batches; give these"
        )
    return choose_bands(
        target, batch_size=loader.batch_size, dataset_size=len(loader.dataset), steps=steps, **claim
    )


def _kept(users: Any, most: int, loader: Any, method: str, bands: int | str) -> Any:
    """Indices of the records that are trained on; None for all."""
    if users is None and most != 1:
        raise ParameterError(
            "records_per_user",
            most,
            "say whose record each is, so that no user has more: users=...",
        )
    if users is None:
        return None
    if bands != 1:
        raise ParameterError(
            "bands", bands, "a user's records would lie in several parts; use bands=1 with users"
        )
    if method == "rqp":
        raise ParameterError(
            "method", method, "replaced codes save nothing for users; use proj-dp-sgd"
        )
    return first_records(users, most, records=len(loader.dataset))


def _check_module(module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    if isinstance(module, AbstractGradSampleModule):
        remedy = "it is private already; give the plain module"
        if isinstance(module, GradSampleModuleFastGradientClipping):
            remedy = "ghost clipping sums floats, sums here are integers of clipped gradients; give the plain module"
        raise ParameterError("module", type(module).__name__, remedy)
    if isinstance(module, torch.nn.parallel.DistributedDataParallel):
        remedy = (
            "give the module inside (module.module): sums over replicas are taken before the noise"
        )
        raise ParameterError("module", type(module).__name__, remedy)
    if any(isinstance(part, FSDPModule | FullyShardedDataParallel) for part in module.modules()):
        remedy = "a record's norm is taken over all weights, which no process has; give a module that is not sharded (DDP)"
        raise ParameterError("module", f"sharded {type(module).__name__}", remedy)
    refuse_layers(module)
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ParameterError(
            "optimizer", "LBFGS", "it looks at a batch several times in a step; use SGD or Adam"
        )
    own = {id(parameter) for parameter in module.parameters()}
    given = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if any(id(parameter) not in own for parameter in given):
        raise ParameterError(
            "optimizer",
            type(optimizer).__name__,
            "leave out parameters that the module does not have",
        )
    if not any(parameter.requires_grad for parameter in given):
        raise ParameterError(
            "optimizer", type(optimizer).__name__, "all its parameters are frozen; unfreeze some"
        )


@torch.no_grad()
def _replicas(module: torch.nn.Module) -> tuple[bool, int, int]:
    """Whether there are replicas, which begin alike then; which one this is, and of how many."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return False, 0, 1
    world = torch.distributed.get_world_size()
    if world > 1:
        for tensor in [*module.parameters(), *module.buffers()]:
            torch.distributed.broadcast(tensor.data, src=0)
    return world > 1, torch.distributed.get_rank(), world


def _forget(parameter: torch.Tensor) -> None:
    parameter.grad = None


def _matrices(parameter: torch.Tensor) -> bool:
    return parameter.dim() >= 2


def _onto_levels(
    optimizer: torch.optim.Optimizer,
    method: str,
    bits: int | None,
    q: float | None,
    bound: float | None,
    draws: Draws,
) -> ProjectedOptimizer:
    """The optimizer, whose weights are put onto levels after each step: all of them, or those of matrices."""
    size, kept = 4 if bits is None else bits, 0.99 if q is None else q
    rqp = method == "rqp"
    return ProjectedOptimizer(
        optimizer,
        projection=projection(bits=size, rounding="nearest", q=kept)
        if rqp
        else projection(bits=size),
        bounds=[
            bound or derived_bound(one)
            for group in optimizer.param_groups
            for one in group["params"]
        ],
        rng=partial(draws, "table"),
        quantize=every if rqp else _matrices,
    )
