"""What training needs of its extra, and the models that the command line trains; any torch module
works as well.
"""

from __future__ import annotations

import copy
import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

from mezzotint.core import brought_by
from mezzotint.core.errors import ParameterError

with brought_by("torch"):
    import torch as torch
    from opacus import GradSampleModule as GradSampleModule
    from opacus.accountants import IAccountant as IAccountant
    from opacus.grad_sample import (
        GradSampleModuleFastGradientClipping as GradSampleModuleFastGradientClipping,
    )
    from opacus.grad_sample.functorch import prepare_layer as prepare_layer
    from opacus.grad_sample.gsm_base import AbstractGradSampleModule as AbstractGradSampleModule
    from opacus.layers.dp_rnn import DPRNNBase as DPRNNBase, RNNLinear as RNNLinear
    from opacus.optimizers import DPOptimizer as DPOptimizer
    from opacus.optimizers.optimizer import _check_processed_flag, _mark_as_processed
    from opacus.utils.batch_memory_manager import BatchSplittingSampler as BatchSplittingSampler
    from opacus.validators import ModuleValidator as ModuleValidator
    from torch import nn as nn
    from torch.distributed.fsdp import (
        FSDPModule as FSDPModule,
        FullyShardedDataParallel as FullyShardedDataParallel,
    )
    from torch.nn.utils import parametrize as parametrize
    from torch.utils import _pytree as pytree
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode

check_unused = _check_processed_flag
"""Raises ValueError for gradients that a step has used already."""

mark_used = _mark_as_processed

tree_flatten = pytree.tree_flatten
tree_map = pytree.tree_map

Tensor = torch.Tensor
Module = nn.Module


def reason_of(error: Exception) -> str:
    """The first line of an error, or its name where it says nothing."""
    lines = str(error).splitlines()
    if not lines:
        return type(error).__name__
    return lines[0]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """A module with its loss and its decision.

    Arguments:
        module: maps (n, ...) features to outputs.
        losses: (outputs, labels) to (n,) losses, one per record.
        decide: outputs to (n,) labels.
    """

    module: Module
    losses: Callable[[Tensor, Tensor], Tensor]
    decide: Callable[[Tensor], Tensor]


_MARGIN_LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "logreg": lambda margins: nn.functional.softplus(-margins),
    "svm": lambda margins: torch.relu(1 - margins),
}


def _linear(features: int, outputs: int) -> Module:
    linear_layer = nn.Linear(features, outputs)
    nn.init.zeros_(linear_layer.weight)
    nn.init.zeros_(linear_layer.bias)
    return nn.Sequential(nn.Flatten(), linear_layer)


def _convolutional(rows: int, columns: int, classes: int) -> Module:
    # Two convolutions and two dense layers, bounded activations: what small private image models
    # use.
    convolutions = nn.Sequential(
        nn.Unflatten(1, (1, rows)),
        nn.Conv2d(1, 16, 8, stride=2, padding=3),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
    )
    single_image = torch.zeros(1, rows, columns)
    with torch.no_grad():
        _, features = convolutions(single_image).shape
    hidden_layer = nn.Linear(features, 32)
    last_layer = nn.Linear(32, classes)
    return nn.Sequential(convolutions, hidden_layer, nn.Tanh(), last_layer)


@final
class _Block(Module):
    """Attention over all tokens, then two dense layers on each; both added to what came, after a
    norm.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before = nn.LayerNorm(width)
        self.between = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.before(x)
        query = self._by_head(self.query(normed))
        key = self._by_head(self.key(normed))
        value = self._by_head(self.value(normed))
        attended = nn.functional.scaled_dot_product_attention(query, key, value)
        joined_heads = attended.transpose(1, 2).flatten(2)
        x = x + self.out(joined_heads)
        normed = self.between(x)
        hidden = nn.functional.gelu(self.up(normed))
        return x + self.down(hidden)

    def _by_head(self, x: Tensor) -> Tensor:
        """(n, heads, tokens, width / heads) of (n, tokens, width)."""
        by_head = x.unflatten(-1, (self.heads, -1))
        return by_head.transpose(1, 2)


@final
class _Transformer(Module):
    """An encoder of a record's rows, each a token; its mean decides."""

    def __init__(
        self, tokens: int, features: int, classes: int, *, width: int = 64, heads: int = 4
    ) -> None:
        super().__init__()
        self.into = nn.Linear(features, width)
        self.place = nn.Embedding(tokens, width)
        self.blocks = nn.Sequential(_Block(width, heads), _Block(width, heads))
        self.norm = nn.LayerNorm(width)
        self.classes = nn.Linear(width, classes)
        self.register_buffer("places", torch.arange(tokens), persistent=False)
        nn.init.normal_(self.place.weight, std=0.1)

    def forward(self, x: Tensor) -> Tensor:
        places = self.get_buffer("places")
        # Per-record gradients want records first; exporters take len(x) for a fixed number.
        places = places.expand(x.shape[0], -1)
        tokens = self.into(x) + self.place(places)
        tokens = self.norm(self.blocks(tokens))
        record = tokens.mean(dim=1)
        return self.classes(record)


def _module_from(name: str, shape: tuple[int, ...], classes: int, seed: int) -> Module:
    """The module that a user's file makes."""
    factory = _factory_from(name)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        try:
            module = factory()
        except TypeError as error:
            raise ParameterError(
                "model",
                name,
                f"it must be called without arguments ({error}); name a function that is",
            ) from error
    if not isinstance(module, Module):
        raise ParameterError(
            "model", name, f"makes {type(module).__name__}, no torch.nn.Module; return one"
        )
    records = torch.zeros(2, *shape)
    outputs = _outputs_of(module, records, name)
    output_sizes: object = type(outputs).__name__
    if isinstance(outputs, Tensor):
        output_sizes = tuple(outputs.shape)
    if output_sizes != (2, classes):
        remedy = (
            f"two records of shape {shape} gave {output_sizes}, not (2, {classes}), one for each "
            "class"
        )
        raise ParameterError("model", name, remedy)
    return module


@torch.no_grad()
def _outputs_of(module: Module, features: Tensor, name: str) -> object:
    """What a copy of a module makes of records; what fails is refused by the model's name."""
    try:
        return copy.deepcopy(module).eval()(features)
    except Exception as error:
        shape = tuple(features.shape[1:])
        remedy = (
            f"records of the data have shape {shape}, which it does not take: {reason_of(error)}"
        )
        raise ParameterError("model", name, remedy) from error


def check_task(task: Task, *, shape: tuple[int, ...], classes: int) -> None:
    """Refuses a task that does not fit its data, before anything is spent on it.

    Arguments:
        shape: of one record's features.
        classes: number of labels.
    Raises:
        ParameterError: a module that does not take such records, or whose outputs have not one loss
            and one decision for each of them.
    """
    name = type(task.module).__name__
    labels = torch.arange(classes)
    records = torch.zeros(classes, *shape)
    outputs: Any = _outputs_of(task.module, records, name)
    results: dict[str, object] = {}
    try:
        results["losses"] = task.losses(outputs, labels)
        results["decide"] = task.decide(outputs)
    except Exception as error:
        raise ParameterError(
            "task",
            name,
            f"its outputs do not fit the {classes} classes of the data: {reason_of(error)}",
        ) from error
    for parameter, result in results.items():
        if not isinstance(result, Tensor) or result.shape != labels.shape:
            raise ParameterError(parameter, name, "need one number for each record")


def _factory_from(name: str) -> Callable[[], object]:
    """What "file.py:Net" names; running the file is the user's wish."""
    file, attribute = name.rsplit(":", 1)
    path = Path(file)
    module_spec = importlib.util.spec_from_file_location(path.stem, file)
    if module_spec is None or module_spec.loader is None or not path.is_file():
        raise ParameterError("model", name, f"no such file: {file}; write file.py:Net")
    user_module = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(user_module)
    factory = getattr(user_module, attribute, None)
    if not callable(factory):
        raise ParameterError("model", name, f"{path.name} has nothing to call by that name")
    return factory


def _classifier(module: Module) -> Task:
    losses = partial(nn.functional.cross_entropy, reduction="none")
    decide = partial(torch.argmax, dim=1)
    return Task(module=module, losses=losses, decide=decide)


MODELS = ("logreg", "svm", "softmax", "cnn", "transformer")


def task(model: str, *, shape: tuple[int, ...], classes: int, seed: int = 0) -> Task:
    """One of the five models for features of a shape, or a user's module.

    Arguments:
        model: "logreg" or "svm" (two classes, one output), "softmax", "cnn" (images), or
            "transformer" (records of rows, each a token); or "file.py:Net", the file and what to
            call in it, without arguments, for a module with one output for each class.
        shape: of one record's features.
        classes: number of labels.
        seed: of the initial weights of "cnn", "transformer" and modules; the linear models start at
            zero.
    Raises:
        ParameterError: an unknown model, two-class models with more classes, a CNN on anything but
            images, a transformer on records without rows; a file or a module that is not there,
            layers that mix records, outputs of another shape.
    """
    if ".py:" in model:
        return _classifier(_module_from(model, shape, classes, seed))
    if model not in MODELS:
        raise ParameterError(
            "model",
            model,
            f"use one of {', '.join(MODELS)}, or file.py:Net for a module of your own",
        )
    features = math.prod(shape)
    if model in _MARGIN_LOSSES:
        return _margin_task(model, features, classes)
    if model == "softmax":
        return _classifier(_linear(features, classes))
    network = _of_rows
    if model == "cnn":
        network = _of_images
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return _classifier(network(shape, classes))


def _margin_task(model: str, features: int, classes: int) -> Task:
    """Two classes, told apart by the sign of one output."""
    if classes != 2:
        raise ParameterError(
            "model", model, f"it tells 2 classes apart, the data has {classes}; use softmax"
        )
    margin_loss = _MARGIN_LOSSES[model]

    def losses(outputs: Tensor, labels: Tensor) -> Tensor:
        signs = 2 * labels - 1
        margins = outputs.squeeze(1) * signs
        return margin_loss(margins)

    def decide(outputs: Tensor) -> Tensor:
        is_positive = outputs.squeeze(1) > 0
        return is_positive.long()

    module = _linear(features, 1)
    return Task(module=module, losses=losses, decide=decide)


LEAST_SIDE = 20
"""Pixels of an image's side that the two convolutions need."""


def _of_images(shape: tuple[int, ...], classes: int) -> Module:
    if len(shape) != 2 or min(shape) < LEAST_SIDE:
        remedy = (
            f"needs images of at least {LEAST_SIDE} x {LEAST_SIDE}, got records of shape {shape}"
        )
        raise ParameterError("model", "cnn", remedy)
    return _convolutional(*shape, classes)


def _of_rows(shape: tuple[int, ...], classes: int) -> Module:
    if len(shape) != 2:
        raise ParameterError(
            "model",
            "transformer",
            f"needs rows of features, a token each, got records of shape {shape}",
        )
    return _Transformer(*shape, classes)
