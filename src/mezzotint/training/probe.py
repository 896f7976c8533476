"""A probe of the premise of DP-SGD: whether a loss is a mean or sum of one loss per record.

Rows that count right may still be wrong: of tensors with time first and as many times as records,
of batch statistics, of losses that weigh a record by the others. The probe takes a few public or
made-up records, replaces one, and compares bit for bit: no other record's gradient may change, nor
anything that a later batch meets.
"""

from __future__ import annotations

import copy
import hashlib
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np

from mezzotint.core.arguments import check_count, check_positive
from mezzotint.core.errors import ParameterError
from mezzotint.training.gradients import PrivateModule
from mezzotint.training.models import Module, Tensor, TorchDispatchMode, reason_of, torch, tree_map
from mezzotint.training.records import (
    name_parameters,
    record_count,
    refuse_layers,
    refuse_private,
    same_bits,
    state_of,
)
from mezzotint.training.splitting import Records, records_of, tensors_of

Loss = Callable[[Module, Any], Tensor]
Rows = dict[str, Tensor]

_SEEDS = (0, 1)
"""Of the perturbed weights: a tie (ReLU at 0, equal maxima) may make one comparison fail."""

_NOISE = 0.01
"""Of the perturbation, relative to a tensor's root mean square."""

_COARSE = 0.05
"""Relative difference that 16-bit arithmetic may make."""

_SMALL = 1e-3
"""Of the largest gradient; tensors with smaller ones are compared with that."""


@final
@dataclass(frozen=True, kw_only=True)
class RecordCheck:
    """What `check_records` compared.

    Arguments:
        records: in the batch.
        replaced: passes in which a record was replaced; all other rows stayed the same bits.
        differences: by tensor, the largest difference of a row from the gradient of its record
            alone, relative to the largest such gradient; empty where the pass draws numbers that
            could not be fixed.
    """

    records: int
    replaced: int
    differences: dict[str, float]

    def __str__(self) -> str:
        table_lines = [
            f"{self.records} records, {self.replaced} replaced one by one: rows are separate"
        ]
        table_lines += [
            f"{name:40} {difference:.1e}" for name, difference in self.differences.items()
        ]
        return "\n".join(table_lines)


def check_records(
    module: Module,
    loss: Loss,
    batch: Any,
    *,
    collate: Callable[[list[Any]], Any] | None = None,
    reduction: Literal["mean", "sum"] = "mean",
    tolerance: float = 1e-3,
) -> RecordCheck:
    """Checks that a loss is a mean or sum over records of a function of each record alone.

    Arguments:
        module: as for `make_private`; it is copied, and not changed.
        loss: called as loss(module, batch), as in the loop; its value is what backward() is called
            of.
        batch: a few records, 6 to 8, public or made up, never private: the verdict is a function of
            them. Labels and lengths should differ. Tensors with records first, in tuples, lists and
            mappings; with `collate`, a list of records.
        collate: makes a batch of a list of records, as the loader's does.
        reduction: of the loss, as for `make_private`.
        tolerance: largest relative difference between a row and the gradient of its record alone.
    Returns: the largest differences, by tensor; prints as a small table.
    Raises:
        ParameterError: naming the module, the tensor and how records are mixed.
    Guarantees: none for other records than these: class weights show only where labels differ,
        means over tokens where lengths do.
    Example:
        >>> module = torch.nn.Linear(3, 2)
        >>> batch = torch.randn(6, 3), torch.tensor([0, 1, 0, 0, 1, 1])
        >>> def loss(module, batch):
        ...     return torch.nn.functional.cross_entropy(module(batch[0]), batch[1])
        >>> check_records(module, loss, batch).records
        6

    Source: docs/proofs/training.md, "One row for each record".
    """
    check_positive("tolerance", tolerance)
    refuse_private(module)
    refuse_layers(module)
    records = records_of(batch, collate)
    check_count("batch", records.count, least=2)
    probe = Probe(module=module, loss=loss, records=records, reduction=reduction)
    with kept_randomness():
        return probe.check(tolerance)


@final
@dataclass(frozen=True, kw_only=True)
class _Replacement:
    """A record that another one takes the place of.

    Arguments:
        position: of the record.
        extreme: whether the other one has extreme values.
    """

    position: int
    extreme: bool


@final
@dataclass(frozen=True, kw_only=True)
class _Comparison:
    """Rows beside the gradients of single records.

    Arguments:
        differences: by tensor, the largest relative difference of a row.
        permuted: whether the rows are in another order than the records.
    """

    differences: dict[str, float]
    permuted: bool


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Probe:
    """Passes of copies of a module over variants of a few records.

    Arguments: as of `check_records`.
    """

    module: Module
    loss: Loss
    records: Records
    reduction: Literal["mean", "sum"]

    def check(self, tolerance: float) -> RecordCheck:
        """All comparisons; arguments and errors are those of `check_records`."""
        record_count = self.records.count
        positions = range(record_count)
        try:
            replaced = self.replace_each(positions)
            comparison = self._compare_with_each_alone(tolerance)
        except _MixedError as mixed:
            # Records in another order, common to all tensors, are as good; but sums over them are
            # rounded in other places, so that bits are no longer the same.
            try:
                comparison = self._compare_with_each_alone(tolerance)
            except ParameterError:
                raise mixed from None
            if not comparison.permuted:
                raise mixed from None
            replaced = self.replace_each(positions, exact=False)
        differences = comparison.differences
        return RecordCheck(records=record_count, replaced=replaced, differences=differences)

    def replace_each(self, positions: Sequence[int], *, exact: bool = True) -> int:
        """Replaces a record by another, twice at each position; returns the number of passes.

        Raises:
            ParameterError: rows of more than one record changed, or state, or what comes next.
        """
        before = self._trace(None)
        for position in positions:
            for extreme in (False, True):
                replacement = _Replacement(position=position, extreme=extreme)
                after = self._trace(replacement)
                self._compare(before, after, exact=exact)
        return 2 * len(positions)

    def steady_state(self) -> frozenset[str]:
        """Names of parameters and buffers that a pass changes, alike for any records."""
        before = state_of(self.module)
        trace = self._trace(None)
        changed_names: set[str] = set()
        for name, after in trace.state.items():
            if not same_bits(before[name], after):
                changed_names.add(name)
        return frozenset(changed_names)

    def _compare_with_each_alone(self, tolerance: float) -> _Comparison:
        """Compares rows with the gradients of single records, of slightly perturbed weights.

        Raises:
            ParameterError: a gradient without rows, rows with a common factor, or other rows.
        """
        problem = self._refusal("")
        for seed in _SEEDS:
            perturbed_module = _perturbed(self.module, seed)
            try:
                return self._compared(perturbed_module, tolerance)
            except ParameterError as error:
                problem = error
        raise problem

    def _compared(self, start: Module, tolerance: float) -> _Comparison:
        rows, draw_mode = self._fixed_rows(start, seed=0)
        again, _ = self._fixed_rows(start, seed=1)
        alone = [self._alone(start, position) for position in range(self.records.count)]
        self._check_seen(rows, alone)
        for name, gradient_rows in rows.items():
            if not same_bits(gradient_rows, again[name]):
                # Numbers that cannot be fixed, of which other passes draw others.
                return _Comparison(differences={}, permuted=False)
        limit = tolerance
        if draw_mode.sixteen_bits:
            limit = max(tolerance, _COARSE)
        expected: Rows = {}
        for name in rows:
            expected[name] = torch.stack([single[name] for single in alone])
        differences = _differences(rows, expected)
        if _largest(differences) <= limit:
            self._check_copies(start, expected, limit)
            return _Comparison(differences=differences, permuted=False)
        reordered_rows = _nearest(rows, expected)
        reordered_differences = _differences(reordered_rows, expected)
        if _largest(reordered_differences) <= limit:
            self._check_copies(start, expected, limit)
            return _Comparison(differences=reordered_differences, permuted=True)
        raise self._refusal_of(rows, expected, differences, limit)

    def _check_copies(self, start: Module, expected: Rows, limit: float) -> None:
        """Raises ParameterError where copies of one record in a batch do not all have its gradient.

        A place that is taken, a rank or a count over the batch shows where records crowd.
        """
        count = self.records.count
        for position in range(count):
            _seed(0)
            copy_positions = [position] * count
            with FixedDraws():
                private = _private(start, self.reduction)
                rows = self._rows(private, self.records.batch(copy_positions))
            self._check_reached(expected, rows)
            copies = _reordered(expected, copy_positions)
            differences = _differences(rows, copies, scales=_scales(expected))
            worst_name = max(differences, key=differences.__getitem__)
            if differences[worst_name] > limit:
                remedy = (
                    f"{count} copies of one record have rows of {worst_name} that differ from its "
                    f"gradient by {differences[worst_name]:.2g}: records are mixed (a capacity, a "
                    "rank or a count over the batch); treat each as if it were alone"
                )
                raise self._refusal(remedy)

    def _refusal(self, remedy: str) -> ParameterError:
        return ParameterError("module", type(self.module).__name__, remedy)

    def _refusal_of(
        self, rows: Rows, expected: Rows, differences: dict[str, float], limit: float
    ) -> ParameterError:
        factor = _common_factor(rows, expected)
        if factor > 0 and abs(factor - 1) > limit:
            scaled = {name: gradient_rows / factor for name, gradient_rows in rows.items()}
            scaled_differences = _differences(scaled, expected)
            if _largest(scaled_differences) <= limit:
                remedy = (
                    f"rows are {factor:.3g} times the gradients of single records: the loss is "
                    "not the mean or sum that it is said to be"
                )
                return ParameterError("reduction", self.reduction, remedy)
        worst_name = max(differences, key=differences.__getitem__)
        remedy = (
            f"rows of {worst_name} differ from the gradients of single records by "
            f"{differences[worst_name]:.2g}: the loss must be a mean or sum of one loss per "
            "record, "
            "with no part that is not of a record (a penalty of weights belongs into the optimizer)"
        )
        return self._refusal(remedy)

    def _check_seen(self, rows: Rows, alone: list[Rows]) -> None:
        for name in alone[0]:
            if name not in rows:
                remedy = (
                    f"{name} has a gradient but no rows: it is used outside of its layer's "
                    "forward; call the layer itself"
                )
                raise self._refusal(remedy)
        for single in alone:
            self._check_reached(rows, single)

    def _check_reached(self, expected: Rows, present: Rows) -> None:
        """Raises ParameterError where some batches leave out a layer that others reach.

        A step after such a batch is refused, which says what its records are.
        """
        for name in expected:
            if name not in present:
                remedy = (
                    f"{name} is reached by some records alone: a batch without them has no rows of "
                    "it; call every layer for all records, and multiply by 0 where it shall not count"
                )
                raise self._refusal(remedy)

    def _fixed_rows(self, start: Module, *, seed: int) -> tuple[Rows, FixedDraws]:
        _seed(seed)
        with FixedDraws() as draw_mode:
            private = _private(start, self.reduction)
            rows = self._rows(private, self.records.batch())
        return rows, draw_mode

    def _alone(self, start: Module, position: int) -> Rows:
        """The gradient of one record by plain autograd."""
        module = copy.deepcopy(start)
        _seed(0)
        with FixedDraws():
            self._backward_of_one(module, self.records.batch([position]))
        gradients: Rows = {}
        for name, parameter in module.named_parameters():
            if parameter.grad is not None:
                gradients[name] = _dense(parameter.grad)
        return gradients

    def _backward_of_one(self, module: Module, batch: Any) -> None:
        try:
            self.loss(module, batch).backward()
        except (ValueError, RuntimeError, IndexError) as error:
            remedy = (
                f"a batch of one record fails ({reason_of(error)}); the loss must be one loss per "
                "record"
            )
            raise ParameterError("loss", type(self.module).__name__, remedy) from error

    def _rows(self, private: PrivateModule, batch: Any) -> Rows:
        """Rows of every tensor that a backward pass reached."""
        parameters: dict[str, Any] = dict(private._module.named_parameters())
        private.zero_grad()
        self.loss(private, batch).backward()
        rows: Rows = {}
        for name, parameter in parameters.items():
            grad_sample = getattr(parameter, "grad_sample", None)
            if grad_sample is not None:
                rows[name] = grad_sample.detach()
        if not rows:
            remedy = (
                "no tensor has rows; the loss must be computed by the module it is given, with a "
                "backward pass to every forward pass (put others under torch.no_grad())"
            )
            raise ParameterError("loss", type(self.module).__name__, remedy)
        with_rows = [parameters[name] for name in rows]
        count = record_count(with_rows, list(rows.values()))
        if count != self.records.count:
            counts = f"{count} rows of {self.records.count} records"
            raise ParameterError("module", counts, "put records first in every tensor")
        return rows

    def _trace(self, replacement: _Replacement | None) -> _Trace:
        """What two passes lead to, the first one with a record replaced."""
        private = _private(self.module, self.reduction)
        _seed(0)
        batch = self._batch_with(replacement)
        rows = self._rows(private, batch)
        state: dict[str, Tensor] = {}
        for name, tensor in state_of(private._module).items():
            state[name] = _dense(tensor).clone()
        _seed(1)
        positions = reversed(range(self.records.count))
        reversed_batch = self.records.batch(list(positions))
        later_rows = self._rows(private, reversed_batch)
        return _Trace(rows=rows, state=state, later=later_rows)

    def _batch_with(self, replacement: _Replacement | None) -> Any:
        """All records in order, but for one that the next takes the place of."""
        if replacement is None:
            return self.records.batch()
        record_count = self.records.count
        position = replacement.position
        positions = list(range(record_count))
        positions[position] = (position + 1) % record_count
        if replacement.extreme:
            return self.records.batch(positions, extreme=position)
        return self.records.batch(positions)

    def _compare(self, before: _Trace, after: _Trace, *, exact: bool) -> None:
        changed = _distant_rows
        if exact:
            changed = _changed_rows
        if changed(before.rows, after.rows) > 1:
            raise self._mixed(before.rows, after.rows)
        for name, tensor in before.state.items():
            if not same_bits(tensor, after.state[name]):
                remedy = (
                    f"a forward pass writes into {name} what depends on records, and it is "
                    "released without noise; keep no statistics of records"
                )
                raise self._refusal(remedy)
        if changed(before.later, after.later):
            remedy = (
                "what a batch leaves behind changes the gradients of the next one; keep nothing "
                "of records between batches"
            )
            raise self._refusal(remedy)

    def _mixed(self, before: Rows, after: Rows) -> _MixedError:
        counts: dict[str, int] = {}
        for name in before:
            counts[name] = _changed_rows({name: before[name]}, {name: after[name]})
        worst_name = max(counts, key=counts.__getitem__)
        changed_count = max(counts[worst_name], 2)
        remedy = (
            f"replacing one record changes {changed_count} of {self.records.count} rows of "
            f"{worst_name}: records are mixed (statistics of the batch, time before records, a loss "
            "that weighs records by others); the loss must be a mean or sum of one loss per record"
        )
        return _MixedError("module", type(self.module).__name__, remedy)


class _MixedError(ParameterError):
    """Rows of more records changed than the one that was replaced."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class _Trace:
    """Rows of a pass, parameters and buffers after it, and rows of a second pass."""

    rows: Rows
    state: dict[str, Tensor]
    later: Rows


def _private(module: Module, reduction: Literal["mean", "sum"]) -> PrivateModule:
    """A private copy that may change its state: what it writes is compared here."""
    return PrivateModule(
        copy.deepcopy(module),
        loss_reduction=reduction,
        factored=False,
        steady=frozenset(state_of(module)),
    )


def _dense(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    return tensor.detach()


def _changed_rows(before: Rows, after: Rows) -> int:
    """How many rows of a pass are not among those of another, bit for bit."""
    changed = _fingerprints(before) - _fingerprints(after)
    return changed.total()


_CLOSE = 1e-5
"""Relative distance of rows that differ in the order of additions alone."""


def _distant_rows(before: Rows, after: Rows) -> int:
    """How many rows of a pass are near none of another."""
    rows = _flat(before)
    distances = torch.cdist(rows, _flat(after))
    nearest = distances.amin(dim=1)
    largest_norm = rows.norm(dim=1).max()
    is_distant = nearest > _CLOSE * largest_norm
    return int(is_distant.sum())


def _fingerprints(rows: Rows) -> Counter[bytes]:
    tensors = [_flat_tensor(tensor).cpu().numpy() for tensor in rows.values()]
    fingerprints = Counter[bytes]()
    for parts in zip(*tensors, strict=True):
        digest = hashlib.sha256()
        for row_part in parts:
            without_negative_zeros = row_part + np.float32(0)
            digest.update(without_negative_zeros.tobytes())
        fingerprints[digest.digest()] += 1
    return fingerprints


def _scales(expected: Rows) -> dict[str, float]:
    """By tensor, what differences are relative to: the largest gradient of a record."""
    norms = {name: _norms(tensor) for name, tensor in expected.items()}
    record_norms = torch.stack(list(norms.values())).norm(dim=0)
    smallest_scale = _SMALL * float(record_norms.max())
    scales: dict[str, float] = {}
    for name, tensor_norms in norms.items():
        largest_gradient = float(tensor_norms.max())
        scales[name] = max(largest_gradient, smallest_scale, 1e-30)
    return scales


def _differences(
    rows: Rows, expected: Rows, scales: dict[str, float] | None = None
) -> dict[str, float]:
    """By tensor, the largest distance of a row, relative to its scale or the expected rows'."""
    scales = scales or _scales(expected)
    differences: dict[str, float] = {}
    for name, tensor in expected.items():
        distances = _norms(rows[name].float() - tensor.float())
        largest_distance = float(distances.max())
        differences[name] = largest_distance / scales[name]
    return differences


def _largest(differences: dict[str, float]) -> float:
    return max(differences.values(), default=0.0)


def _norms(rows: Tensor) -> Tensor:
    """(n,) L2 norms of a tensor's rows."""
    return _flat_tensor(rows).norm(dim=1)


def _flat_tensor(rows: Tensor) -> Tensor:
    """(n, width) float32 rows."""
    return rows.float().flatten(1)


def _flat(rows: Rows) -> Tensor:
    """(n, width) float32 rows of all tensors, side by side."""
    flat_tensors = map(_flat_tensor, rows.values())
    return torch.cat(list(flat_tensors), dim=1)


def _nearest(rows: Rows, expected: Rows) -> Rows:
    """Rows in the order of the gradients that they are nearest to, if that is an order."""
    distances = torch.cdist(_flat(expected), _flat(rows))
    positions: list[int] = distances.argmin(dim=1).tolist()
    if len(set(positions)) < len(positions):
        return rows
    return _reordered(rows, positions)


def _reordered(rows: Rows, positions: list[int]) -> Rows:
    """The rows at positions of every tensor."""
    return {name: gradient_rows[positions] for name, gradient_rows in rows.items()}


def _common_factor(rows: Rows, expected: Rows) -> float:
    """The factor that brings gradients of single records nearest to the rows."""
    wanted = _flat(expected)
    present = _flat(rows)
    product = (wanted * present).sum()
    square = (wanted * wanted).sum()
    return float(product / square.clamp(min=1e-30))


def _perturbed(module: Module, seed: int) -> Module:
    """A copy whose weights are moved a little, off ties and zeros."""
    perturbed = copy.deepcopy(module)
    name_parameters(perturbed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in perturbed.parameters():
            if not parameter.is_floating_point():
                continue
            mean_square = parameter.float().square().mean()
            root_mean_square = float(mean_square.sqrt())
            spread = root_mean_square * _NOISE or _NOISE
            normals = torch.randn(parameter.shape, generator=generator)
            noise = normals * spread
            parameter.add_(noise.to(parameter.device, parameter.dtype))
    return perturbed


def _seed(number: int) -> None:
    torch.manual_seed(number)
    np.random.seed(number)  # noqa: NPY002 - what a user's code may draw from
    random.seed(number)


def made_up_probe(module: Module, batch: Any, device: Any) -> Probe | None:
    """A probe of a module's outputs for made-up records.

    Arguments:
        batch: inputs, or inputs and labels.
        device: of the module.
    Returns: None where the module does not take such records, or gives nothing that has a row for
        each of them.
    """
    inputs = batch
    if isinstance(batch, list | tuple):
        inputs = batch[0]
    loss = _made_up_loss(module, inputs, device)
    if loss is None:
        return None
    records = records_of(inputs, None)
    return Probe(module=module, loss=loss, records=records, reduction="sum")


def _made_up_loss(module: Module, inputs: Any, device: Any) -> Loss | None:
    """A sum over records of a fixed function of a record's outputs.

    Returns: None where the module does not take such records, or gives nothing that has a row for
        each of them.
    """

    def moved(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.to(device)
        return value

    def outputs_by_record(private: Module, batch: Any) -> list[Tensor]:
        arguments = tree_map(moved, batch)
        if isinstance(arguments, dict):
            outputs = private(**arguments)
        else:
            outputs = private(arguments)
        record_count = len(tensors_of(batch)[0])
        return [
            tensor
            for tensor in tensors_of(outputs)
            if tensor.requires_grad and tensor.dim() and len(tensor) == record_count
        ]

    def loss(private: Module, batch: Any) -> Tensor:
        summed_loss = torch.zeros((), device=device)
        for tensor in outputs_by_record(private, batch):
            flat_outputs = _flat_tensor(tensor)
            _, width = flat_outputs.shape
            numbers = torch.arange(width, device=device)
            weights = torch.cos(numbers + 1.0)
            linear_terms = flat_outputs * weights
            square_terms = flat_outputs.square() * weights
            summed_loss = summed_loss + linear_terms.sum() + square_terms.sum()
        return summed_loss

    try:
        outputs = outputs_by_record(copy.deepcopy(module), inputs)
    except Exception:
        return None
    if not outputs:
        return None
    return loss


@contextmanager
def kept_randomness() -> Iterator[None]:
    """Leaves the generators of the process as they were, and warns of nothing."""
    legacy = np.random.get_state()  # noqa: NPY002
    python_state = random.getstate()
    try:
        with torch.random.fork_rng(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        np.random.set_state(legacy)  # noqa: NPY002
        random.setstate(python_state)


@final
class FixedDraws(TorchDispatchMode):
    """Gives constants for random draws: rows then do not depend on how many records draw before.

    Bernoulli draws are 1, permutations shift by one (the identity would hide mixing), integers are
    the least, all else is 0.37. `sixteen_bits` says whether any value had 16 bits.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sixteen_bits = False

    def __torch_dispatch__(
        self, operation: Any, _: Any, arguments: Any = (), settings: Any = None
    ) -> Any:
        settings = settings or {}
        result = operation(*arguments, **settings)
        if isinstance(result, Tensor) and result.dtype in (torch.bfloat16, torch.float16):
            self.sixteen_bits = True
        if torch.Tag.nondeterministic_seeded in operation.tags:
            return _fixed(operation, arguments, result)
        return result


def _fixed(operation: Any, arguments: Any, result: Any) -> Any:
    name = operation.name()
    if "native_dropout" in name:
        values = arguments[0]
        return values.clone(), torch.ones_like(values, dtype=torch.bool)
    if not isinstance(result, Tensor):
        return result
    if "randperm" in name:
        return result.copy_(torch.arange(result.numel()).roll(1))
    if "bernoulli" in name:
        return result.fill_(1)
    if result.is_floating_point():
        return result.fill_(0.37)
    if "randint.low" in name:
        return result.fill_(arguments[0])
    return result.fill_(0)
