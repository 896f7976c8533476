"""One call that makes a PyTorch training script private."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, final, get_args

from mezzotint.core.arguments import (
    Neighboring,
    check_choice,
    check_count,
    check_neighboring,
    check_positive,
)
from mezzotint.core.errors import ParameterError
from mezzotint.core.sampler import key_from
from mezzotint.core.types import IntArray
from mezzotint.training.accountant import Accountant
from mezzotint.training.batches import (
    Draws,
    Parts,
    PoissonBatchSampler,
    check_loader,
    expected_batch_size,
    first_records,
    poisson_loader,
    template_of,
)
from mezzotint.training.gradients import GradSampleMode, PrivateModule
from mezzotint.training.models import FSDPModule, FullyShardedDataParallel, Module, Tensor, torch
from mezzotint.training.noise import NOT_REPLACED, Budget, Fresh, Noise
from mezzotint.training.optimizers import (
    NoisyOptimizer,
    ProjectedOptimizer,
    derived_bound,
    every,
    parameters_of,
    uncounted,
)
from mezzotint.training.probe import kept_randomness, made_up_probe
from mezzotint.training.projection import projection, warn_about
from mezzotint.training.records import refuse_layers, refuse_private
from mezzotint.training.rqp import noise_multiplier as least_noise
from mezzotint.training.sampling import Poisson
from mezzotint.training.splitting import made_up_batch, tensors_of

PrivateMethod = Literal["dp-sgd", "proj-dp-sgd", "rqp"]
METHODS = get_args(PrivateMethod)

FRESH = Fresh()

DEFAULT_BITS, DEFAULT_Q = 4, 0.99
"""Of methods with levels, and of "rqp"."""

Private = tuple[PrivateModule, NoisyOptimizer, torch.utils.data.DataLoader[Any], Accountant]
"""What a script goes on with: module, optimizer, loader, and what counts its steps."""


def make_private(
    module: Module,
    optimizer: torch.optim.Optimizer,
    loader: torch.utils.data.DataLoader[Any] | None = None,
    *,
    delta: float,
    data_loader: torch.utils.data.DataLoader[Any] | None = None,
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
    noise: Noise = FRESH,
    users: Any = None,
    records_per_user: int = 1,
    seed: int | None = None,
    grad_sample_mode: GradSampleMode = "hooks",
) -> Private:
    """Makes a training script private; the loop itself stays as it is.

    Arguments:
        module: any module that Opacus can take per-sample gradients of.
        optimizer: of PyTorch, over parameters of the module; it makes the step.
        loader: its batches become Poisson samples of the same expected size, `len(loader)` to an
            epoch. One that an earlier call returned stands for the loader given there.
        delta: of the claim, in [1e-11, 1).
        data_loader: the same as loader, by Opacus's name.
        epochs: passes through the loader that the budget is planned for; needed with
            target_epsilon.
        target_epsilon: the noise is chosen so that all epochs cost at most this much; a further
            step is refused.
        noise_multiplier: the noise itself, instead: noise of the summed gradients over
            max_grad_norm.
        bits: per weight, for "proj-dp-sgd" and "rqp"; 4 by default.
        method: "dp-sgd" (float weights), "proj-dp-sgd" (weights of two and more dimensions stand on
            2^bits levels after each step, rounded without bias: free), "rqp" (all weights nearest
            rounded, then kept with probability q or replaced). "dp-sgd" if bits is not given, else
            "proj-dp-sgd".
        max_grad_norm: L2 norm that a record's gradient is clipped to.
        q: for "rqp"; 0.99 by default.
        bound: weights on levels lie in [-bound, bound]; by default twice the tensor's largest
            initial weight.
        neighboring: "add_or_remove_one" or "replace_one".
        loss_reduction: of the loss that the loop computes: a mean or sum over records of a function
            of each record alone (`check_records` finds others). "sum" where gradients have 16 bits;
            a step is divided by the expected batch size in either case.
        noise: how the noise of the steps hangs together: `Fresh()`, or `Banded(8)`, correlated over
            8 steps, which lets much of it cancel in the iterates; `Banded()` chooses for
            target_epsilon.
        users: whose record each is, in the order of the loader's data; the claim is then about all
            records of one user.
        records_per_user: with users, the maximum number of each user's records to train on and
            account for together.
        seed: for a simulation that can be repeated; NOT private, and its claim says so.
        grad_sample_mode: "hooks" for loss.backward(); "vmap" for `PrivateModule.backward`, which
            takes modules that hooks refuse (nn.LSTM, nn.MultiheadAttention, layers given one row
            for all).
    Returns: module, optimizer, loader, and the accountant, whose `claim()` is what all steps so far
        cost one record.
    Raises:
        ParameterError: what no setting would mend, with what would; a module that mixes made-up
            records; batches of which nobody knows what they look like without records.
        InfeasibleError: no noise reaches target_epsilon.
    Warns: as `projection.warn_about`, where a projection harms training.
    Guarantees:
        Gradients are clipped and summed as integers, noise and batches come from cryptographic
        keystreams, and each step is counted before its noise is drawn. The claim uses a contraction
        below 1 only where Theorem A holds. In a process group of PyTorch every replica takes part:
        it gets its own share of the records, sums are added up, and all replicas make the same
        step. Each step needs a batch that the loader has given since the last one, and one row of
        every tensor for each of its records. That they are the same records is the loop's to see
        to.
    Source: docs/training.md.
    Example:
        >>> records = torch.utils.data.TensorDataset(torch.randn(200, 5), torch.randint(2, (200,)))
        >>> module = torch.nn.Linear(5, 2)
        >>> data = torch.utils.data.DataLoader(records, batch_size=20)
        >>> module, optimizer, loader, accountant = make_private(
        ...     module, torch.optim.SGD(module.parameters()), data, target_epsilon=2.0, delta=1e-5,
        ...     epochs=5, bits=4,
        ... )
        >>> for x, y in loader:
        ...     optimizer.zero_grad()
        ...     torch.nn.functional.cross_entropy(module(x), y).backward()
        ...     optimizer.step()
        >>> 0 < accountant.claim().epsilon < 2.0
        True
    """
    if method is None:
        method = "dp-sgd" if bits is None else "proj-dp-sgd"
    settings = Settings(
        delta=delta,
        epochs=epochs,
        target_epsilon=target_epsilon,
        noise_multiplier=noise_multiplier,
        bits=bits,
        method=method,
        max_grad_norm=max_grad_norm,
        q=q,
        bound=bound,
        neighboring=neighboring,
        loss_reduction=loss_reduction,
        noise=noise,
        users=users,
        records_per_user=records_per_user,
        seed=seed,
        grad_sample_mode=grad_sample_mode,
    )
    return made_private(module, optimizer, _single(loader, data_loader), settings)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Settings:
    """How a script is made private; arguments of `make_private`.

    Arguments:
        delta: without it each claim names its own.
        planned_steps: in place of epochs.
        noiseless: adds no noise and claims nothing, to compare with; without target and multiplier.
    Raises:
        ParameterError: naming the parameter, its value and the remedy.
    """

    delta: float | None
    epochs: int | None = None
    planned_steps: int | None = None
    target_epsilon: float | None = None
    noise_multiplier: float | None = None
    noiseless: bool = False
    bits: int | None = None
    method: PrivateMethod = "dp-sgd"
    max_grad_norm: float = 1.0
    q: float | None = None
    bound: float | None = None
    neighboring: Neighboring = "add_or_remove_one"
    loss_reduction: Literal["mean", "sum"] = "mean"
    noise: Noise = FRESH
    users: Any = None
    records_per_user: int = 1
    seed: int | None = None
    grad_sample_mode: GradSampleMode = "hooks"

    def __post_init__(self) -> None:
        check_choice("method", self.method, METHODS)
        if self.bits is not None and self.method == "dp-sgd":
            remedy = (
                "weights are floats; pack them into few bits after training, which is free, or "
                "use proj-dp-sgd"
            )
            raise ParameterError("bits", self.bits, remedy)
        if self.q is not None and self.method != "rqp":
            raise ParameterError(
                "q", self.q, f"{self.method} replaces no codes; use rqp, or leave q out"
            )
        check_neighboring(self.neighboring)
        check_choice("loss_reduction", self.loss_reduction, ("mean", "sum"))
        check_choice("grad_sample_mode", self.grad_sample_mode, get_args(GradSampleMode))
        for name in ("epochs", "planned_steps"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        self._check_noise()
        self._check_users()

    def _check_noise(self) -> None:
        """Raises ParameterError unless one amount of noise is stated, or none of a noiseless run,
        and its kind goes with the other settings.
        """
        amounts = [self.target_epsilon, self.noise_multiplier]
        stated = [amount for amount in amounts if amount is not None]
        if len(stated) != int(not self.noiseless):
            raise ParameterError(
                "target_epsilon",
                self.target_epsilon,
                "give one of target_epsilon and noise_multiplier",
            )
        if self.noise_multiplier is not None:
            check_positive("noise_multiplier", self.noise_multiplier)
        if self.target_epsilon is not None:
            self._check_target()
        if not isinstance(self.noise, Noise):
            raise ParameterError("noise", self.noise, "give training.Fresh() or training.Banded()")
        if self.noise.bands == "auto" and self.target_epsilon is None:
            raise ParameterError(
                "bands",
                self.noise.bands,
                "it is chosen for target_epsilon and epochs, with batches; give these",
            )
        if self.noise.is_correlated and self.method == "rqp":
            raise ParameterError("bands", self.noise.bands, NOT_REPLACED)

    def _check_target(self) -> None:
        check_positive("target_epsilon", self.target_epsilon)
        if self.delta is None:
            raise ParameterError("delta", None, "the budget is for a delta; name it")
        if self.epochs is None and self.planned_steps is None:
            raise ParameterError("epochs", None, "the budget is for a number of epochs; give it")

    def _check_users(self) -> None:
        """Raises ParameterError for claims about users that nothing proves: of several records
        without users, with correlated noise, with replaced codes.
        """
        if self.users is None:
            if self.records_per_user != 1:
                raise ParameterError(
                    "records_per_user",
                    self.records_per_user,
                    "say whose record each is, so that no user has more: users=...",
                )
            return
        if self.noise.is_correlated:
            raise ParameterError(
                "bands",
                self.noise.bands,
                "a user's records would lie in several parts; use fresh noise with users",
            )
        if self.method == "rqp":
            raise ParameterError(
                "method", self.method, "replaced codes save nothing for users; use proj-dp-sgd"
            )

    def steps(self, loader: Any) -> int | None:
        """Steps that are planned."""
        if self.planned_steps is not None:
            return self.planned_steps
        if self.epochs is None:
            return None
        return self.epochs * max(1, len(loader))

    def budget(self, loader: Any, *, batch_size: int, records: int) -> Budget | None:
        """What noise is chosen for; None without a target."""
        steps = self.steps(loader)
        if self.target_epsilon is None or self.delta is None or steps is None:
            return None
        return Budget(
            target_epsilon=self.target_epsilon,
            delta=self.delta,
            neighboring=self.neighboring,
            batch_size=batch_size,
            dataset_size=records,
            steps=steps,
        )


def made_private(
    module: Module,
    optimizer: torch.optim.Optimizer,
    loader: torch.utils.data.DataLoader[Any],
    settings: Settings,
    *,
    draws: Draws | None = None,
) -> Private:
    """What `make_private` returns, for settings that are a record.

    Arguments:
        draws: whom keys are asked of; None for a new one.
    """
    _check_module(module, optimizer, settings.grad_sample_mode)
    loader = getattr(loader, "mezzotint_plain", loader)
    check_loader(loader)
    replicas = _replicas(module)
    _check_correlated(settings, loader, replicas)
    template = template_of(loader)
    steady = _probed(module, template, settings)
    draws = draws or Draws(settings.seed, replicas=replicas.several)
    run_plan = _plan(settings, loader, replicas, draws)
    inner_optimizer = _onto_levels(optimizer, settings, draws)
    _check_replacement(settings, inner_optimizer)
    multiplier = _noise_multiplier(settings, run_plan, inner_optimizer)
    _warn(settings, run_plan, inner_optimizer, multiplier)
    accountant = _accountant(settings, run_plan)
    record = accountant.record
    if settings.noiseless:
        record = uncounted
    private_optimizer = NoisyOptimizer(
        inner_optimizer,
        noise_multiplier=multiplier,
        clip_norm=settings.max_grad_norm,
        expected_batch_size=run_plan.batch_size,
        drawn=run_plan.sampler.drawn,
        rng=partial(draws, "noise"),
        record=record,
        replicas=replicas.several,
        mixer=run_plan.noise.mixer(run_plan.sampler.drawn),
    )
    private_optimizer.zero_grad()  # gradients from before would be applied as they are
    private_module = _private_module(module, settings, steady)
    private_loader = poisson_loader(
        loader, template=template, sampler=run_plan.sampler, kept=run_plan.kept_records
    )
    return private_module, private_optimizer, private_loader, accountant


def _accountant(settings: Settings, plan: _Plan) -> Accountant:
    """The accountant of a run; it limits the steps only where epsilon is a target."""
    planned_steps = None
    if settings.target_epsilon is not None:
        planned_steps = plan.steps
    return Accountant(
        sampling=plan.sampling,
        delta=settings.delta,
        neighboring=settings.neighboring,
        steps=planned_steps,
        seeded=settings.seed is not None,
        noise=plan.noise,
    )


def _private_module(module: Module, settings: Settings, steady: frozenset[str]) -> PrivateModule:
    _forget_sums_of_autograd(module)
    return PrivateModule(
        module,
        loss_reduction=settings.loss_reduction,
        steady=steady,
        mode=settings.grad_sample_mode,
    )


def _single(loader: Any, data_loader: Any) -> Any:
    if (loader is None) == (data_loader is None):
        raise ParameterError("loader", loader, "give one loader, as loader or as data_loader")
    if loader is None:
        return data_loader
    return loader


@final
@dataclass(frozen=True, kw_only=True)
class _Replicas:
    """The processes that train together: whether there are several, which this one is, how many."""

    several: bool = False
    rank: int = 0
    count: int = 1


@final
@dataclass(frozen=True, kw_only=True)
class _Plan:
    """How records enter the batches of a run.

    Arguments:
        noise: settled.
        sampler: of the batches.
        sampling: the rule that claims are made for.
        batch_size: expected records of a batch, over all replicas.
        kept_records: indices of the records that are drawn from; None for all.
        steps: planned; those of one pass where no number is planned.
        budget: what noise is chosen for; None without a target.
    """

    noise: Noise
    sampler: PoissonBatchSampler
    sampling: Poisson
    batch_size: int
    kept_records: IntArray | None
    steps: int
    budget: Budget | None


def _plan(settings: Settings, loader: Any, replicas: _Replicas, draws: Draws) -> _Plan:
    """How records come into batches: of each user the first ones, at the rate of the expected
    batch, and in parts where noise is correlated.
    """
    kept_records = None
    records = len(loader.dataset)
    if settings.users is not None:
        records_per_user = settings.records_per_user
        kept_records = first_records(settings.users, records_per_user, records=records)
        records = len(kept_records)
    batch_size = expected_batch_size(loader)
    budget = settings.budget(loader, batch_size=batch_size, records=records)
    noise = settings.noise.settled(budget)
    batches = noise.batches(batch_size=batch_size, dataset_size=records)
    rng = partial(draws, "batch")
    parts = None
    if noise.is_correlated:
        parts = Parts(noise.steps_shared, records=records, key=key_from(rng()))
    steps_of_pass = max(1, len(loader))
    sampler = PoissonBatchSampler(
        batches,
        steps=steps_of_pass,
        rng=rng,
        first=replicas.rank,
        every=replicas.count,
        parts=parts,
        ahead=loader.num_workers > 0,
    )
    return _Plan(
        noise=noise,
        sampler=sampler,
        sampling=replace(batches.sampling, records_per_user=settings.records_per_user),
        batch_size=batch_size,
        kept_records=kept_records,
        steps=settings.steps(loader) or steps_of_pass,
        budget=budget,
    )


def _noise_multiplier(settings: Settings, plan: _Plan, inner: torch.optim.Optimizer) -> float:
    """The noise multiplier, found for the target if there is one."""
    if settings.noiseless:
        return 0.0
    if plan.budget is None:
        return check_positive("noise_multiplier", settings.noise_multiplier)
    multiplier = least_noise(
        plan.budget.target_epsilon,
        sampling=plan.sampling,
        steps=plan.noise.participations(plan.budget.steps),
        delta=plan.budget.delta,
        neighboring=plan.budget.neighboring,
    )
    if isinstance(inner, ProjectedOptimizer):
        # Less where codes that are replaced hide something of the noise.
        return multiplier * inner.contraction
    return multiplier


def _check_correlated(settings: Settings, loader: Any, replicas: _Replicas) -> None:
    """Refuses correlated noise where batches may come out of order, or to several processes."""
    if not settings.noise.is_correlated:
        return
    if replicas.several:
        raise ParameterError(
            "bands",
            settings.noise.bands,
            "correlated noise is for one process; use fresh noise with replicas",
        )
    if loader.num_workers:
        raise ParameterError(
            "loader", loader.num_workers, "with bands batches are drawn in step; num_workers=0"
        )


def _check_replacement(settings: Settings, inner: torch.optim.Optimizer) -> None:
    """Refuses codes that are replaced at random where that is not accounted for, whoever wrapped
    them.
    """
    if not isinstance(inner, ProjectedOptimizer) or inner.projection.kappa == 1:
        return
    if settings.noise.is_correlated:
        raise ParameterError("bands", settings.noise.bands, NOT_REPLACED)
    if settings.users is not None:
        raise ParameterError(
            "users",
            "with replaced codes",
            "replaced codes save nothing for users; project without replacing",
        )


def _forget_sums_of_autograd(module: Module) -> None:
    """Drops autograd's own sums, which are not private, before a plain optimizer could read
    them.
    """
    for parameter in module.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(_forget)


def _warn(
    settings: Settings, plan: _Plan, inner: torch.optim.Optimizer, noise_multiplier: float
) -> None:
    if not isinstance(inner, ProjectedOptimizer):
        return
    step_size = max(float(parameter_group["lr"]) for parameter_group in inner.param_groups)
    weight_noise = step_size * noise_multiplier * settings.max_grad_norm / plan.batch_size
    warn_about(
        inner.projection,
        bound=max(inner.bounds, default=1.0),
        step_size=step_size,
        clip_norm=settings.max_grad_norm,
        weight_noise=weight_noise,
        steps=plan.steps,
        contraction=inner.contraction,
    )


def _check_module(module: Module, optimizer: torch.optim.Optimizer, mode: GradSampleMode) -> None:
    refuse_private(module)
    if isinstance(module, torch.nn.parallel.DistributedDataParallel):
        remedy = (
            "give the module inside (module.module): sums over replicas are taken before the noise"
        )
        raise ParameterError("module", type(module).__name__, remedy)
    if any(isinstance(layer, FSDPModule | FullyShardedDataParallel) for layer in module.modules()):
        remedy = (
            "a record's norm is taken over all weights, which no process has; give a module that "
            "is not sharded (DDP)"
        )
        raise ParameterError("module", f"sharded {type(module).__name__}", remedy)
    refuse_layers(module, hooks=mode == "hooks")
    _check_optimizer(module, optimizer)


def _check_optimizer(module: Module, optimizer: torch.optim.Optimizer) -> None:
    kind = type(optimizer).__name__
    if isinstance(optimizer, NoisyOptimizer):
        raise ParameterError("optimizer", kind, "it is private already; give the plain optimizer")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ParameterError(
            "optimizer", kind, "it looks at a batch several times in a step; use SGD or Adam"
        )
    present = {id(parameter) for parameter in module.parameters()}
    optimized = parameters_of(optimizer)
    if any(id(parameter) not in present for parameter in optimized):
        remedy = (
            "leave out parameters that the module does not have; after ModuleValidator.fix(module) "
            "make the optimizer anew, as fixed layers have parameters of their own"
        )
        raise ParameterError("optimizer", kind, remedy)
    if not any(parameter.requires_grad for parameter in optimized):
        raise ParameterError("optimizer", kind, "all its parameters are frozen; unfreeze some")


MOST_PROBED = 5_000_000
"""Weights of the largest module that is probed on made-up records."""

_PROBED = (0, 4)
"""Positions of the records that are replaced."""


def _probed(module: Module, template: Any, settings: Settings) -> frozenset[str]:
    """Probes a module on made-up records where it takes them; names of state that it may change.

    Nothing here depends on private records but the shapes and types of a batch.
    """
    weights = sum(parameter.numel() for parameter in module.parameters())
    batch = made_up_batch(template, torch.Generator().manual_seed(0))
    if weights > MOST_PROBED or batch is None or not tensors_of(batch):
        return frozenset()
    if settings.grad_sample_mode != "hooks":
        return frozenset()
    device = next(module.parameters()).device
    with kept_randomness():
        record_probe = made_up_probe(module, batch, device)
        if record_probe is None:
            return frozenset()
        record_probe.replace_each(_PROBED)
        return record_probe.steady_state()


@torch.no_grad()
def _replicas(module: Module) -> _Replicas:
    """The processes of PyTorch's default group, whose modules begin alike then."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return _Replicas()
    process_count = torch.distributed.get_world_size()
    if process_count > 1:
        for tensor in [*module.parameters(), *module.buffers()]:
            torch.distributed.broadcast(tensor.data, src=0)
    return _Replicas(
        several=process_count > 1, rank=torch.distributed.get_rank(), count=process_count
    )


def _forget(parameter: Tensor) -> None:
    parameter.grad = None


def _onto_levels(
    optimizer: torch.optim.Optimizer, settings: Settings, draws: Draws
) -> torch.optim.Optimizer:
    """The optimizer, with weights put onto levels after each step if the method has levels.

    All weights, or with rounding those of matrices.
    """
    if settings.method == "dp-sgd":
        return optimizer
    bits = settings.bits
    q = settings.q
    if bits is None:
        bits = DEFAULT_BITS
    if q is None:
        q = DEFAULT_Q
    if settings.method == "rqp":
        levels = projection(bits=bits, rounding="nearest", q=q)
        quantize = every
    else:
        levels = projection(bits=bits)
        quantize = _is_matrix
    parameters = parameters_of(optimizer)
    return ProjectedOptimizer(
        optimizer,
        projection=levels,
        bounds=[settings.bound or derived_bound(parameter) for parameter in parameters],
        rng=partial(draws, "table"),
        quantize=quantize,
    )


def _is_matrix(parameter: Tensor) -> bool:
    return parameter.dim() >= 2
