"""Run files of `mezzotint train`: what a run is, read and checked before anything is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

from mezzotint.cli.runfile import Section, read_document
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

PLAIN_KEYS = {
    "data": "name",
    "model": "kind",
    "run.optimizer": "kind",
    "method": "kind",
    "method.noise": "kind",
}
"""Tables that may be written as one value, and the key that it stands for."""

METHODS: dict[str, tuple[str, ...]] = {
    "none": (),
    "dp-sgd": ("noise", "weights"),
    "proj-dp-sgd": ("noise", "rounding", "bound", "weights"),
    "rqp": ("rounding", "bound", "weights", "q", "mechanism"),
}
"""Keys of a method beside its kind, clip norm and bits."""

OPTIMIZERS, SCHEDULES = ("sgd", "momentum", "adam"), ("constant", "linear", "cosine")

MODELS = ("logreg", "svm", "softmax", "cnn", "transformer")

DEFAULT_CODE_SHARE = 0.99
"""Probability to keep a code under random replacement."""


@final
@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a run may cost: `[budget]`."""

    target_epsilon: float | None
    noise_multiplier: float | None
    delta: float
    neighboring: Neighboring | None


@final
@dataclass(frozen=True, kw_only=True)
class Method:
    """How gradients become private: `[method]`."""

    kind: str
    clip_norm: float
    bits: int
    bands: int | Literal["auto"]
    rounding: str | None
    bound: float | None
    master: bool
    q: float | None
    mechanism: Path | None

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

    data: str
    label: str | None
    users: str | None
    records_per_user: int | None
    model: str
    steps: int
    batch_size: int
    step_size: float
    optimizer: str
    schedule: str
    averaging: float
    seed: int | None
    every: int
    budget: Budget
    method: Method

    @property
    def neighboring(self) -> Neighboring:
        """The relation of the claim."""
        return self.budget.neighboring or "add_or_remove_one"


def read_run(path: Path, changes: Sequence[str]) -> RunFile:
    """Reads a run file.

    Raises:
        ParameterError: a key that has no use here, a value of another kind, what is missing.
    """
    document = Section("", read_document(path, changes, verb="train", plain_keys=PLAIN_KEYS))
    data = document.section("data", plain="name")
    model = document.section("model", plain="kind")
    run = document.section("run")
    optimizer = run.section("optimizer", plain="kind")
    users = data.take("users", str)
    described = RunFile(
        data=_data_name(data),
        label=data.take("label", str),
        users=users,
        records_per_user=data.take("records_per_user", int),
        model=_model_name(model),
        steps=run.take("steps", int, 100),
        batch_size=run.take("batch_size", int, 32),
        step_size=optimizer.take("learning_rate", float, 1.0),
        optimizer=optimizer.choose("kind", OPTIMIZERS, "sgd"),
        schedule=run.choose("schedule", SCHEDULES, "constant"),
        averaging=run.take("averaging", float, 0.0),
        seed=run.take("seed", int),
        every=check_count("every", run.take("every", int, 0), least=0),
        budget=_budget(document.section("budget")),
        method=_method(document.section("method", plain="kind"), users=users is not None),
    )
    for section in (optimizer, run, model, data, document):
        section.finish()
    _check(described)
    return described


def _data_name(data: Section) -> str:
    names = [data.take(key, str) for key in ("name", "file", "folder")]
    named = [setting_name for setting_name in names if setting_name is not None]
    if len(named) != 1:
        remedy = 'give data = "breast-cancer", {file="t.csv", label="column"} or {folder="images"}'
        raise ParameterError("data", named or None, remedy)
    return named[0]


def _model_name(model: Section) -> str:
    kind = model.choose("kind", (*MODELS, "module"), "logreg")
    factory = model.take("factory", str)
    if (kind == "module") != (factory is not None):
        remedy = 'write {kind="module", factory="net.py:Net"} for a module of your own'
        raise ParameterError("model", factory or kind, remedy)
    return factory or kind


def _budget(budget: Section) -> Budget:
    read = Budget(
        target_epsilon=budget.take("target_epsilon", float),
        noise_multiplier=budget.take("noise_multiplier", float),
        delta=budget.take("delta", float, 1e-6),
        neighboring=budget.take("neighboring", str),
    )
    budget.finish()
    return read


def _method(method: Section, *, users: bool) -> Method:
    kind = method.choose("kind", tuple(METHODS), "dp-sgd")
    keys = METHODS[kind]
    for key in ("noise", "rounding", "bound", "weights", "q", "mechanism"):
        if key in method and key not in keys:
            taking_methods = [
                setting_name for setting_name, method_keys in METHODS.items() if key in method_keys
            ]
            takers = ", ".join(taking_methods)
            remedy = f"does not apply to {kind}, only to {takers}"
            raise ParameterError(method.parameter(key), method.take_any(key), remedy)
    file = method.take("mechanism", str)
    mechanism = None
    if file is not None:
        mechanism = Path(file)
    plain = "levels"
    if kind in ("none", "dp-sgd"):
        plain = "floats"
    chosen = Method(
        kind=kind,
        clip_norm=method.take("clip_norm", float, 0.45),
        bits=check_count("bits", method.take("bits", int, 4), most=8),
        bands=_bands(method.section("noise", plain="kind"), users=users),
        rounding=method.take("rounding", str),
        bound=method.take("bound", float),
        master=method.choose("weights", (plain, "master"), plain) == "master",
        q=method.take("q", float),
        mechanism=mechanism,
    )
    method.finish()
    return chosen


def _bands(noise: Section, *, users: bool) -> int | Literal["auto"]:
    kind = noise.choose("kind", ("fresh", "banded"), "fresh")
    if kind == "fresh":
        noise.finish()
        return 1
    bands = noise.take_any("bands", "auto")
    noise.finish()
    if users:
        remedy = "a user's records would fall into several parts; use fresh noise with users"
        raise ParameterError("bands", bands, remedy)
    if bands == "auto":
        return "auto"
    return check_count("bands", bands)


def _check(run: RunFile) -> None:
    """Refuses what does not go together."""
    if (run.users is None) != (run.records_per_user is None):
        raise ParameterError(
            "users", run.users, "users and records_per_user go together; give both"
        )
    budget, method = run.budget, run.method
    if run.users is not None and method.kind in ("none", "rqp"):
        remedy = f"does not apply to {method.kind}; use dp-sgd or proj-dp-sgd"
        raise ParameterError("users", run.users, remedy)
    if method.kind == "none":
        for setting_name in ("target_epsilon", "noise_multiplier"):
            if getattr(budget, setting_name) is not None:
                remedy = "does not apply to method none, which adds no noise"
                raise ParameterError(setting_name, getattr(budget, setting_name), remedy)
        return
    if budget.target_epsilon is not None:
        remedy = "need a finite epsilon above 0; a run without noise is of method none"
        check_positive("target_epsilon", budget.target_epsilon, remedy)
    if budget.target_epsilon is None and budget.noise_multiplier is None:
        remedy = "give one of target_epsilon and noise_multiplier in [budget], or both"
        raise ParameterError("target_epsilon", None, remedy)
    if method.bands == "auto" and (budget.target_epsilon is None or budget.noise_multiplier):
        raise ParameterError("bands", "auto", "needs target_epsilon without noise_multiplier")
    for setting_name in ("rounding", "q"):
        if method.mechanism is not None and getattr(method, setting_name) is not None:
            remedy = "the table of mechanism replaces it; leave it out"
            raise ParameterError(setting_name, getattr(method, setting_name), remedy)
    if method.master and method.mechanism is not None:
        remedy = "master weights stand on even levels; leave it out"
        raise ParameterError("mechanism", str(method.mechanism), remedy)
