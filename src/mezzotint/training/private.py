"""One call that makes a PyTorch training script private."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
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
from mezzotint.training.accountant import Accountant
from mezzotint.training.batches import (
    Draws,
    PoissonBatches,
    check_loader,
    first_records,
    poisson_loader,
    template_of,
)
from mezzotint.training.clipped import NOT_REPLACED, CorrelatedNoise, choose_bands
from mezzotint.training.gradients import GradSampleMode, PrivateModule
from mezzotint.training.models import (
    AbstractGradSampleModule,
    FSDPModule,
    FullyShardedDataParallel,
    GradSampleModuleFastGradientClipping,
    torch,
    tree_map,
)
from mezzotint.training.optimizers import (
    NoisyOptimizer,
    ProjectedOptimizer,
    derived_bound,
    every,
)
from mezzotint.training.phases import participations
from mezzotint.training.probe import Loss, Probe, kept_randomness
from mezzotint.training.projection import TrainingWarning, projection, warn_about
from mezzotint.training.records import refuse_layers
from mezzotint.training.rqp import noise_multiplier as least_noise
from mezzotint.training.splitting import made_up_batch, records_of, tensors_of

PrivateMethod = Literal["dp-sgd", "proj-dp-sgd", "rqp"]
METHODS = get_args(PrivateMethod)

Private = tuple[PrivateModule, NoisyOptimizer, torch.utils.data.DataLoader[Any], Accountant]
"""What a script goes on with: module, optimizer, loader, and what counts its steps."""


def make_private(
    module: torch.nn.Module,
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
    bands: int | Literal["auto"] = 1,
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
        epochs: passes through the loader that the budget is planned for; needed with target_epsilon.
        target_epsilon: the noise is chosen so that all epochs cost at most this much; a further step
            is refused.
        noise_multiplier: the noise itself, instead: noise of the summed gradients over max_grad_norm.
        bits: per weight, for "proj-dp-sgd" and "rqp"; 4 by default.
        method: "dp-sgd" (float weights), "proj-dp-sgd" (weights of two and more dimensions stand on
            2^bits levels after each step, rounded without bias: free), "rqp" (all weights nearest
            rounded, then kept with probability q or replaced). "dp-sgd" if bits is not given, else
            "proj-dp-sgd".
        max_grad_norm: L2 norm that a record's gradient is clipped to.
        q: for "rqp"; 0.99 by default.
        bound: weights on levels lie in [-bound, bound]; by default twice the tensor's largest initial
            weight.
        neighboring: "add_or_remove_one" or "replace_one".
        loss_reduction: of the loss that the loop computes: a mean or sum over records of a function
            of each record alone (`check_records` finds others). "sum" where gradients have 16 bits.
        bands: steps that the noise is correlated over; 1 draws it afresh. Records then fall into as
            many parts, which take turns. More bands let noise cancel, and need more of it: "auto"
            chooses before training, for target_epsilon, what leaves least in the last iterate of
            plain SGD.
        users: whose record each is, in the order of the loader's data; the claim is then about all
            records of one user.
        records_per_user: with users, the maximum number of each user's records to train on and
            account for together.
        seed: for a simulation that can be repeated; NOT private, and its claim says so.
        grad_sample_mode: "hooks" for loss.backward(); "vmap" for `PrivateModule.backward`, which takes
            modules that hooks refuse (nn.LSTM, nn.MultiheadAttention, layers given one row for all).
    Returns: module, optimizer, loader, and the accountant, whose `claim()` is what all steps so far
        cost one record.
    Raises:
        ParameterError: what no setting would mend, with what would; a module that mixes made-up
            records; batches of which nobody knows what they look like without records.
        InfeasibleError: no noise reaches target_epsilon.
    Warns: as `projection.warn_about`, where a projection harms training; of activations in place,
        which are set to be not.
    Guarantees:
        Gradients are clipped and summed as integers, noise and batches come from cryptographic
        keystreams, and each step is counted before its noise is drawn. The claim uses a contraction
        below 1 only where Theorem A holds. In a process group of PyTorch every replica takes part: it
        gets its own share of the records, sums are added up, and all replicas make the same step.
        Each step needs a batch that the loader has given since the last one, and one row of every
        tensor for each of its records. That they are the same records is the loop's to see to.
    Source: docs/training.md.
    Example:
        >>> records = torch.utils.data.TensorDataset(torch.randn(200, 5), torch.randint(2, (200,)))
        >>> module, data = torch.nn.Linear(5, 2), torch.utils.data.DataLoader(records, batch_size=20)
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
    settings = Settings(
        delta=delta,
        epochs=epochs,
        target_epsilon=target_epsilon,
        noise_multiplier=noise_multiplier,
        bits=bits,
        method=method or ("dp-sgd" if bits is None else "proj-dp-sgd"),
        max_grad_norm=max_grad_norm,
        q=q,
        bound=bound,
        neighboring=neighboring,
        loss_reduction=loss_reduction,
        bands=bands,
        users=users,
        records_per_user=records_per_user,
        seed=seed,
        grad_sample_mode=grad_sample_mode,
    )
    return made_private(module, optimizer, _single(loader, data_loader), settings)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Settings:
    """How a script is made private; arguments of `make_private`. Without delta each claim names its own.

    Raises:
        ParameterError: naming the parameter, its value and the remedy.
    """

    delta: float | None
    epochs: int | None = None
    target_epsilon: float | None = None
    noise_multiplier: float | None = None
    bits: int | None = None
    method: PrivateMethod = "dp-sgd"
    max_grad_norm: float = 1.0
    q: float | None = None
    bound: float | None = None
    neighboring: Neighboring = "add_or_remove_one"
    loss_reduction: Literal["mean", "sum"] = "mean"
    batch_first: bool = True
    bands: int | Literal["auto"] = 1
    users: Any = None
    records_per_user: int = 1
    seed: int | None = None
    grad_sample_mode: GradSampleMode = "hooks"

    def __post_init__(self) -> None:
        check_choice("method", self.method, METHODS)
        if self.bits is not None and self.method == "dp-sgd":
            remedy = (
                "weights are floats; pack them into few bits after training, which is free, or use "
                "proj-dp-sgd"
            )
            raise ParameterError("bits", self.bits, remedy)
        if self.q is not None and self.method != "rqp":
            remedy = f"{self.method} replaces no codes; use rqp, or leave q out"
            raise ParameterError("q", self.q, remedy)
        check_neighboring(self.neighboring)
        check_choice("loss_reduction", self.loss_reduction, ("mean", "sum"))
        check_choice("grad_sample_mode", self.grad_sample_mode, get_args(GradSampleMode))
        if (self.target_epsilon is None) == (self.noise_multiplier is None):
            remedy = "give one of target_epsilon and noise_multiplier"
            raise ParameterError("target_epsilon", self.target_epsilon, remedy)
        if self.noise_multiplier is not None:
            check_positive("noise_multiplier", self.noise_multiplier)
        elif self.epochs is None:
            remedy = "the budget is for a number of epochs; give it"
            raise ParameterError("epochs", None, remedy)
        if self.epochs is not None:
            check_count("epochs", self.epochs)
        self._check_users()
        self._check_bands()

    def _check_users(self) -> None:
        if self.users is None:
            if self.records_per_user != 1:
                remedy = "say whose record each is, so that no user has more: users=..."
                raise ParameterError("records_per_user", self.records_per_user, remedy)
            return
        if self.bands != 1:
            remedy = "a user's records would lie in several parts; use bands=1 with users"
            raise ParameterError("bands", self.bands, remedy)
        if self.method == "rqp":
            remedy = "replaced codes save nothing for users; use proj-dp-sgd"
            raise ParameterError("method", self.method, remedy)

    def _check_bands(self) -> None:
        if self.bands != 1 and self.method == "rqp":
            raise ParameterError("bands", self.bands, NOT_REPLACED)
        if self.bands != "auto":
            check_count("bands", self.bands)
        elif self.target_epsilon is None:
            remedy = "it is chosen for target_epsilon and epochs, with batches; give these"
            raise ParameterError("bands", self.bands, remedy)

    def steps(self, loader: Any) -> int | None:
        """Steps that are planned."""
        return None if self.epochs is None else self.epochs * max(1, len(loader))


def made_private(
    module: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: torch.utils.data.DataLoader[Any],
    settings: Settings,
) -> Private:
    """What `make_private` returns, for settings that are a record."""
    _check_module(module, optimizer, settings.grad_sample_mode)
    loader = getattr(loader, "mezzotint_plain", loader)
    check_loader(loader)
    replicas, rank, world = _replicas(module)
    template = template_of(loader)
    _settle_activations(module)
    steady = _probed(module, template, settings)
    draws = Draws(settings.seed, replicas=replicas)
    kept = None
    if settings.users is not None:
        kept = first_records(
            settings.users,
            settings.records_per_user,
            records=len(loader.dataset),  # type: ignore[arg-type]
        )
    bands = _bands(settings, loader, replicas)
    made, batches = poisson_loader(
        loader,
        template=template,
        rng=partial(draws, "batch"),
        first=rank,
        every=world,
        bands=bands,
        kept=kept,
    )
    inner = optimizer
    if settings.method != "dp-sgd":
        inner = _onto_levels(optimizer, settings, draws)
    noise = _noise(settings, loader, batches, inner, bands)
    sampling = replace(batches.sampling, records_per_user=settings.records_per_user)
    accountant = Accountant(
        sampling=sampling,
        delta=settings.delta,
        neighboring=settings.neighboring,
        steps=settings.steps(loader) if settings.target_epsilon is not None else None,
        seeded=settings.seed is not None,
        bands=bands,
    )
    expected = batches.batch_size // bands
    _warn(
        settings, inner, noise=noise, batch_size=expected, steps=settings.steps(loader) or len(made)
    )
    sampler: Any = made.batch_sampler
    private = NoisyOptimizer(
        inner,
        noise_multiplier=noise,
        clip_norm=settings.max_grad_norm,
        expected_batch_size=expected,
        drawn=sampler.drawn,
        rng=partial(draws, "noise"),
        record=accountant.record,
        replicas=replicas,
        correlated=CorrelatedNoise(bands, sampler.drawn) if bands > 1 else None,
    )
    private.zero_grad()  # gradients from before would be applied as they are
    for parameter in module.parameters():
        # Autograd's own sum is not private: the plain optimizer, called in the middle of a step,
        # must not find it.
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(_forget)
    private_module = PrivateModule(
        module,
        loss_reduction=settings.loss_reduction,
        batch_first=settings.batch_first,
        steady=steady,
        mode=settings.grad_sample_mode,
    )
    return private_module, private, made, accountant


def _single(loader: Any, data_loader: Any) -> Any:
    if (loader is None) == (data_loader is None):
        raise ParameterError("loader", loader, "give one loader, as loader or as data_loader")
    return data_loader if loader is None else loader


def _noise(
    settings: Settings,
    loader: Any,
    batches: PoissonBatches,
    inner: torch.optim.Optimizer,
    bands: int,
) -> float:
    """The noise multiplier, found for the target if there is one."""
    if settings.target_epsilon is None:
        return check_positive("noise_multiplier", settings.noise_multiplier)
    assert settings.delta is not None
    steps = settings.steps(loader)
    assert steps is not None
    noise = least_noise(
        settings.target_epsilon,
        sampling=replace(batches.sampling, records_per_user=settings.records_per_user),
        steps=participations(steps, bands),
        delta=settings.delta,
        neighboring=settings.neighboring,
    )
    # Less where codes that are replaced hide something of the noise.
    return noise * (inner.contraction if isinstance(inner, ProjectedOptimizer) else 1.0)


def _warn(
    settings: Settings, inner: torch.optim.Optimizer, *, noise: float, batch_size: int, steps: int
) -> None:
    if not isinstance(inner, ProjectedOptimizer):
        return
    step_size = max(float(group["lr"]) for group in inner.param_groups)
    warn_about(
        inner.projection,
        bound=max(inner.bounds, default=1.0),
        step_size=step_size,
        clip_norm=settings.max_grad_norm,
        weight_noise=step_size * noise * settings.max_grad_norm / batch_size,
        steps=steps,
        contraction=inner.contraction,
        stacklevel=5,
    )


def _bands(settings: Settings, loader: Any, replicas: bool) -> int:
    """How many bands, chosen if that is requested."""
    if settings.bands != 1 and replicas:
        remedy = "correlated noise is for one process; use bands=1 with replicas"
        raise ParameterError("bands", settings.bands, remedy)
    if settings.bands != "auto":
        return settings.bands
    steps = settings.steps(loader)
    assert settings.target_epsilon is not None
    assert settings.delta is not None
    assert steps is not None
    return choose_bands(
        settings.target_epsilon,
        batch_size=loader.batch_size,
        dataset_size=len(loader.dataset),
        steps=steps,
        delta=settings.delta,
        neighboring=settings.neighboring,
    )


def _check_module(
    module: torch.nn.Module, optimizer: torch.optim.Optimizer, mode: GradSampleMode
) -> None:
    if isinstance(module, AbstractGradSampleModule):
        remedy = "it is private already; give the plain module"
        if isinstance(module, GradSampleModuleFastGradientClipping):
            remedy = (
                "ghost clipping sums floats, sums here are integers of clipped gradients; give the "
                "plain module"
            )
        raise ParameterError("module", type(module).__name__, remedy)
    if isinstance(module, torch.nn.parallel.DistributedDataParallel):
        remedy = (
            "give the module inside (module.module): sums over replicas are taken before the noise"
        )
        raise ParameterError("module", type(module).__name__, remedy)
    if any(isinstance(part, FSDPModule | FullyShardedDataParallel) for part in module.modules()):
        remedy = (
            "a record's norm is taken over all weights, which no process has; give a module that is "
            "not sharded (DDP)"
        )
        raise ParameterError("module", f"sharded {type(module).__name__}", remedy)
    refuse_layers(module, hooks=mode == "hooks")
    _check_optimizer(module, optimizer)


def _check_optimizer(module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    kind = type(optimizer).__name__
    if isinstance(optimizer, NoisyOptimizer):
        remedy = "it is private already; give the plain optimizer"
        raise ParameterError("optimizer", kind, remedy)
    if isinstance(optimizer, torch.optim.LBFGS):
        remedy = "it looks at a batch several times in a step; use SGD or Adam"
        raise ParameterError("optimizer", kind, remedy)
    present = {id(parameter) for parameter in module.parameters()}
    optimized = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if any(id(parameter) not in present for parameter in optimized):
        remedy = (
            "leave out parameters that the module does not have; after ModuleValidator.fix(module) "
            "make the optimizer anew, as fixed layers have parameters of their own"
        )
        raise ParameterError("optimizer", kind, remedy)
    if not any(parameter.requires_grad for parameter in optimized):
        raise ParameterError("optimizer", kind, "all its parameters are frozen; unfreeze some")


def _settle_activations(module: torch.nn.Module) -> None:
    """Sets activations to be not in place: hooks hand out views, which may not be written to."""
    in_place = [layer for layer in module.modules() if getattr(layer, "inplace", False) is True]
    for layer in in_place:
        layer.inplace = False  # type: ignore[assignment]
    if in_place:
        kinds = ", ".join(sorted({type(layer).__name__ for layer in in_place}))
        warnings.warn(
            f"inplace=True of {kinds} is set to False: per-record gradients need inputs as they were",
            TrainingWarning,
            stacklevel=4,
        )


MOST_PROBED = 5_000_000
"""Weights of the largest module that is probed on made-up records."""

_PROBED = (0, 4)
"""Positions of the records that are replaced."""


def _probed(module: torch.nn.Module, template: Any, settings: Settings) -> frozenset[str]:
    """Probes a module on made-up records where it takes them; names of state that it may change.

    Nothing here depends on private records but the shapes and types of a batch.
    """
    weights = sum(parameter.numel() for parameter in module.parameters())
    batch = made_up_batch(template, torch.Generator().manual_seed(0))
    if weights > MOST_PROBED or batch is None or not tensors_of(batch):
        return frozenset()
    if settings.grad_sample_mode != "hooks" or not settings.batch_first:
        return frozenset()
    device = next(module.parameters()).device
    inputs = _first_input(batch)
    with kept_randomness():
        loss = _made_up_loss(module, inputs, device)
        if loss is None:
            return frozenset()
        probe = Probe(module=module, loss=loss, records=records_of(inputs, None), reduction="sum")
        probe.replace_each(_PROBED)
        return probe.steady_state()


def _first_input(batch: Any) -> Any:
    return batch[0] if isinstance(batch, list | tuple) else batch


def _made_up_loss(module: torch.nn.Module, inputs: Any, device: Any) -> Loss | None:
    """A sum over records of a fixed function of a record's outputs.

    Returns: None where the module does not take such records, or gives nothing that has a row for
        each of them.
    """

    def called(private: torch.nn.Module, batch: Any) -> list[torch.Tensor]:
        moved = tree_map(
            lambda value: value.to(device) if isinstance(value, torch.Tensor) else value, batch
        )
        outputs = private(**moved) if isinstance(moved, dict) else private(moved)
        count = len(tensors_of(batch)[0])
        return [
            tensor
            for tensor in tensors_of(outputs)
            if tensor.requires_grad and tensor.dim() and len(tensor) == count
        ]

    def loss(private: torch.nn.Module, batch: Any) -> torch.Tensor:
        total = torch.zeros((), device=device)
        for tensor in called(private, batch):
            flat = tensor.float().flatten(1)
            weights = torch.cos(torch.arange(flat.shape[1], device=device) + 1.0)
            total = total + (flat * weights).sum() + (flat.square() * weights).sum()
        return total

    try:
        found = called(copy.deepcopy(module), inputs)
    except Exception:
        return None
    return loss if found else None


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
    optimizer: torch.optim.Optimizer, settings: Settings, draws: Draws
) -> ProjectedOptimizer:
    """The optimizer, with weights put onto levels after each step: all, or those of matrices."""
    bits = 4 if settings.bits is None else settings.bits
    bounds = [settings.bound or derived_bound(one) for one in _parameters_of(optimizer)]
    rng = partial(draws, "table")
    if settings.method == "rqp":
        q = 0.99 if settings.q is None else settings.q
        replaced = projection(bits=bits, rounding="nearest", q=q)
        return ProjectedOptimizer(
            optimizer, projection=replaced, bounds=bounds, rng=rng, quantize=every
        )
    rounded = projection(bits=bits)
    return ProjectedOptimizer(
        optimizer, projection=rounded, bounds=bounds, rng=rng, quantize=_matrices
    )


def _parameters_of(optimizer: torch.optim.Optimizer) -> Sequence[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
