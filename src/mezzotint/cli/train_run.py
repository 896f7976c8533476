"""Run files of `mezzotint train`: what a run is, read and checked before anything is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, final

from mezzotint.cli.runfile import RunFormat, read_document, record_of
from mezzotint.core.arguments import Neighboring, check_count, check_positive
from mezzotint.core.errors import ParameterError

EXAMPLE_RUN = """\
data = "breast-cancer"                # or {file="t.csv", label="ill", users="person", records_per_user=2}, {folder="mnist"}
model = {kind="logreg"}               # svm, softmax, cnn, transformer, or {kind="module", factory="net.py:Net"}
run = {steps=100, batch_size=32, optimizer={kind="sgd", learning_rate=1.0}}

[budget]                              # target_epsilon, or noise_multiplier, or both: the run then ends at its target
target_epsilon = 1.0
delta = 1e-6

[method]                              # none, dp-sgd, proj-dp-sgd, rqp
kind = "dp-sgd"
clip_norm = 0.45
"""

FORMAT = RunFormat(
    plain_keys={
        "data": "name",
        "model": "kind",
        "run.optimizer": "kind",
        "method": "kind",
        "method.noise": "kind",
    },
    old_keys={"run.optimizer.lr": "run.optimizer.learning_rate"},
    alternatives={"data": ("name", "file", "folder")},
)

METHODS: dict[str, tuple[str, ...]] = {
    "none": (),
    "dp-sgd": ("noise", "weights"),
    "proj-dp-sgd": ("noise", "rounding", "bound", "weights"),
    "rqp": ("rounding", "bound", "weights", "q", "mechanism"),
}
"""Keys of a method beside its kind, clip norm and bits."""

DEFAULT_CODE_SHARE = 0.99
"""Probability to keep a code under random replacement."""


@final
@dataclass(frozen=True, kw_only=True)
class Data:
    """`[data]`: a set by its name, a table in a file, or a folder."""

    name: str | None = None
    file: str | None = None
    folder: str | None = None
    label: str | None = None
    users: str | None = None
    records_per_user: int | None = None

    def __post_init__(self) -> None:
        if len(self._sources) != 1:
            remedy = (
                'give data = "breast-cancer", {file="t.csv", label="column"} or {folder="images"}'
            )
            raise ParameterError("data", self._sources or None, remedy)
        if (self.users is None) != (self.records_per_user is None):
            remedy = "users and records_per_user go together; give both"
            raise ParameterError("users", self.users, remedy)

    @property
    def _sources(self) -> list[str]:
        sources = (self.name, self.file, self.folder)
        return [source for source in sources if source is not None]

    @property
    def source(self) -> str:
        """The name, the file or the folder."""
        return self._sources[0]


@final
@dataclass(frozen=True, kw_only=True)
class Model:
    """`[model]`: a model by its name, or a module of the user's."""

    kind: Literal["logreg", "svm", "softmax", "cnn", "transformer", "module"] = "logreg"
    factory: str | None = None

    def __post_init__(self) -> None:
        if (self.kind == "module") != (self.factory is not None):
            remedy = 'write {kind="module", factory="net.py:Net"} for a module of your own'
            raise ParameterError("model", self.name, remedy)

    @property
    def name(self) -> str:
        """The factory of a module, or the kind."""
        return self.factory or self.kind


@final
@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """`[run.optimizer]`."""

    kind: Literal["sgd", "momentum", "adam"] = "sgd"
    learning_rate: float = 1.0


@final
@dataclass(frozen=True, kw_only=True)
class Run:
    """`[run]`: steps and batches."""

    steps: int = 100
    batch_size: int = 32
    optimizer: Optimizer = field(default_factory=Optimizer)
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    averaging: float = 0.0
    seed: int | None = None
    every: int = 0

    def __post_init__(self) -> None:
        check_count("every", self.every, least=0)


@final
@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a run may cost: `[budget]`."""

    target_epsilon: float | None = None
    noise_multiplier: float | None = None
    delta: float = 1e-6
    neighboring: Neighboring = "add_or_remove_one"


@final
@dataclass(frozen=True, kw_only=True)
class Noise:
    """`[method.noise]`."""

    kind: Literal["fresh", "banded"] = "fresh"
    bands: int | str | None = None

    def __post_init__(self) -> None:
        if self.bands is None:
            return
        if self.kind == "fresh":
            remedy = "fresh noise has no bands; use banded, or leave it out"
            raise ParameterError("method.noise.bands", self.bands, remedy)
        if self.bands != "auto":
            check_count("bands", self.bands)


@final
@dataclass(frozen=True, kw_only=True)
class Method:
    """How gradients become private: `[method]`; None where a key was not given."""

    kind: Literal["none", "dp-sgd", "proj-dp-sgd", "rqp"] = "dp-sgd"
    clip_norm: float = 0.45
    bits: int = 4
    noise: Noise | None = None
    rounding: str | None = None
    bound: float | None = None
    weights: str | None = None
    q: float | None = None
    mechanism: str | None = None

    def __post_init__(self) -> None:
        check_count("bits", self.bits, most=8)
        for key in ("noise", "rounding", "bound", "weights", "q", "mechanism"):
            value = getattr(self, key)
            if value is not None and key not in METHODS[self.kind]:
                methods = [method for method, keys in METHODS.items() if key in keys]
                remedy = f"does not apply to {self.kind}, only to {', '.join(methods)}"
                raise ParameterError(f"method.{key}", getattr(value, "kind", value), remedy)
        allowed_weights = (self.plain_weights, "master")
        if self.weights is not None and self.weights not in allowed_weights:
            remedy = f"use one of {', '.join(allowed_weights)}"
            raise ParameterError("method.weights", self.weights, remedy)
        for key in ("rounding", "q"):
            if self.mechanism is not None and getattr(self, key) is not None:
                remedy = "the table of mechanism replaces it; leave it out"
                raise ParameterError(key, getattr(self, key), remedy)
        if self.master and self.mechanism is not None:
            remedy = "master weights stand on even levels; leave it out"
            raise ParameterError("mechanism", self.mechanism, remedy)

    @property
    def plain_weights(self) -> str:
        """What weights are but for master weights."""
        if self.kind in ("none", "dp-sgd"):
            return "floats"
        return "levels"

    @property
    def master(self) -> bool:
        """Whether weights in floats stand behind those in levels."""
        return self.weights == "master"

    @property
    def bands(self) -> int | str:
        """Bands of the noise; 1 where it is fresh."""
        if self.noise is None or self.noise.kind == "fresh":
            return 1
        return self.noise.bands or "auto"

    @property
    def code_share(self) -> float:
        """Probability to keep a code: 1 but for random replacement."""
        if self.kind != "rqp":
            return 1.0
        if self.q is None:
            return DEFAULT_CODE_SHARE
        return self.q


@final
@dataclass(frozen=True, kw_only=True)
class RunFile:
    """A run, as its file describes it."""

    data: Data = field(default_factory=Data)
    model: Model = field(default_factory=Model)
    run: Run = field(default_factory=Run)
    budget: Budget = field(default_factory=Budget)
    method: Method = field(default_factory=Method)

    def __post_init__(self) -> None:
        """Refuses what does not go together."""
        budget, method = self.budget, self.method
        if self.data.users is not None and method.bands != 1:
            remedy = "a user's records would fall into several parts; use fresh noise with users"
            raise ParameterError("bands", method.bands, remedy)
        if self.data.users is not None and method.kind in ("none", "rqp"):
            remedy = f"does not apply to {method.kind}; use dp-sgd or proj-dp-sgd"
            raise ParameterError("users", self.data.users, remedy)
        if method.kind == "none":
            for key in ("target_epsilon", "noise_multiplier"):
                if getattr(budget, key) is not None:
                    remedy = "does not apply to method none, which adds no noise"
                    raise ParameterError(key, getattr(budget, key), remedy)
            return
        if budget.target_epsilon is not None:
            remedy = "need a finite epsilon above 0; a run without noise is of method none"
            check_positive("target_epsilon", budget.target_epsilon, remedy)
        if budget.target_epsilon is None and budget.noise_multiplier is None:
            remedy = "give one of target_epsilon and noise_multiplier in [budget], or both"
            raise ParameterError("target_epsilon", None, remedy)
        if method.bands == "auto" and (budget.target_epsilon is None or budget.noise_multiplier):
            raise ParameterError("bands", "auto", "needs target_epsilon without noise_multiplier")


def read_run(path: Path, changes: Sequence[str]) -> RunFile:
    """Reads a run file.

    Raises:
        ParameterError: a key that has no use here, a value of another kind, what is missing.
    """
    return record_of(RunFile, "", read_document(path, changes, FORMAT), FORMAT)
