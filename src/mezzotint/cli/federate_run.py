"""Run files of `mezzotint federate`: one record a table, and the mechanism as a table tagged by its
kind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, final

import mezzotint as mz
from mezzotint.cli import common, console
from mezzotint.cli.runfile import RunFormat, read_document, record_of
from mezzotint.core.errors import ParameterError
from mezzotint.core.files import resolved
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import above, counted, exactly
from mezzotint.federated.encoding import Encoding
from mezzotint.federated.settings import RunSettings, Scheme

EXAMPLE_RUN = """\
# A private federated run: mezzotint federate run.toml --out run
model = "softmax"             # the only one: an app of your own trains others

[data]
set = "digits"                # femnist, mnist, cifar10, cifar100: with folder = "..."
population = 100              # parts of a set without clients of its own; 0: all of femnist's
dirichlet = 0.5               # the smaller, the less even

[training]                    # of a client, in its round
steps = 5
learning_rate = 0.5

[rounds]
count = 6
clients_per_round = 100
order = "cyclic"              # all in turn; or "fixed": drawn anew

[privacy]
epsilon = 4.0                 # of the client that takes part most often, against the server; 0: no budget
delta = 1e-6

[mechanism]                   # rounded-gaussian, table, grid, ranked, file
kind = "rounded-gaussian"
clip_norm = 1.0
"""


@final
@dataclass(frozen=True, kw_only=True)
class Data:
    """`[data]`: the data set, its folder or file, and the split of one without clients."""

    set: str = "digits"
    folder: str = ""
    population: int = 100
    dirichlet: float = 0.5
    seed: int = 0


@final
@dataclass(frozen=True, kw_only=True)
class Model:
    """`[model]`."""

    name: str = "softmax"


@final
@dataclass(frozen=True, kw_only=True)
class Training:
    """`[training]`: a client's steps in a round."""

    algorithm: str = "fedavg"
    steps: int = 5
    learning_rate: float = 0.5
    batch: int = 0


@final
@dataclass(frozen=True, kw_only=True)
class Rounds:
    """`[rounds]`: how many, of how many clients."""

    count: int = 6
    clients_per_round: int = 100
    spare: int = 0
    minimum: int = 0
    order: str = "cyclic"


@final
@dataclass(frozen=True, kw_only=True)
class Privacy:
    """`[privacy]`: the budget, and the clients whose noise no claim counts."""

    epsilon: float = 0.0
    delta: float = 1e-6
    corrupted: int = 0


@final
@dataclass(frozen=True, kw_only=True)
class Server:
    """`[server]`: its step, its roster, and what its rounds bear."""

    learning_rate: float = 2.0
    optimizer: str = "fedavg"
    roster: str = ""
    colluding: float = 0.2
    dropping: float = 0.2
    timeout: float = 300.0


@final
@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """`[evaluate]`: sums of what clients measure, every so many rounds."""

    every: int = 0
    noise_multiplier: float = 8.0
    largest_loss: float = 5.0


@final
@dataclass(frozen=True, kw_only=True)
class RoundedGaussian:
    """`kind = "rounded-gaussian"`: clients' noise; without a multiplier, the least that keeps to
    the budget.
    """

    clip_norm: float = 1.0
    noise_multiplier: float = 0.0
    most_examples: int = 0


@final
@dataclass(frozen=True, kw_only=True)
class QuantizedTable:
    """`kind = "table"`: every coordinate through a table, of a family or from a file."""

    family: str = "rqm"
    file: str = ""
    bits: int = 4
    clip: float = 0.4
    report_epsilon: float = 0.0
    clip_norm: float = 0.0
    most_examples: int = 0


@final
@dataclass(frozen=True, kw_only=True)
class Grid:
    """`kind = "grid"`: rounding to 16 bits, without noise: nothing is claimed."""

    clip: float = 0.4
    clip_norm: float = 0.0
    most_examples: int = 0


@final
@dataclass(frozen=True, kw_only=True)
class Ranked:
    """`kind = "ranked"`: nobody is trusted; the server sees one private report of each client."""

    epsilon: float = 4.0
    clip_norm: float = 1.0
    bits: int = 0
    file: str = ""


@final
@dataclass(frozen=True, kw_only=True)
class Described:
    """`kind = "file"`: the encoding in a file."""

    file: str = ""
    clip_norm: float = 0.0


Kind = RoundedGaussian | QuantizedTable | Grid | Ranked | Described
KINDS: Mapping[str, type[Kind]] = {
    "rounded-gaussian": RoundedGaussian,
    "table": QuantizedTable,
    "grid": Grid,
    "ranked": Ranked,
    "file": Described,
}
FAMILIES = ("quantize", "rqm", "pbm", "erm", "optm", "optimal")
_REPORT_EPSILON = 4.0


@final
@dataclass(frozen=True, kw_only=True)
class RunFile:
    """A run as its file describes it."""

    data: Data = field(default_factory=Data)
    model: Model = field(default_factory=Model)
    training: Training = field(default_factory=Training)
    rounds: Rounds = field(default_factory=Rounds)
    privacy: Privacy = field(default_factory=Privacy)
    server: Server = field(default_factory=Server)
    evaluate: Evaluate = field(default_factory=Evaluate)
    mechanism: Kind = field(default_factory=RoundedGaussian)

    @property
    def observer(self) -> str:
        """What the server sees: single reports, or their secure sums."""
        if isinstance(self.mechanism, Ranked):
            return "reports"
        return "secure_sum"

    def settings(self, out: Path | None) -> RunSettings:
        """The settings of the run; its encoding is made apart."""
        norm = self.mechanism.clip_norm
        if isinstance(self.mechanism, RoundedGaussian | Ranked) and not norm > 0:
            raise ParameterError("mechanism.clip_norm", norm, "need a clipping norm > 0")
        out_name = ""
        if out is not None:
            out_name = str(resolved(out, parameter="out"))
        settings: dict[str, Any] = {
            parameter: attrgetter(key)(self) for parameter, key in SETTINGS.items()
        }
        return RunSettings(
            **settings,
            observer=self.observer,
            clip_norm=norm,
            clip=getattr(self.mechanism, "clip", 0.4),
            out=out_name,
        )


SETTINGS = {
    "dataset": "data.set",
    "data": "data.folder",
    "population": "data.population",
    "dirichlet": "data.dirichlet",
    "seed": "data.seed",
    "model": "model.name",
    "algorithm": "training.algorithm",
    "steps": "training.steps",
    "client_learning_rate": "training.learning_rate",
    "batch": "training.batch",
    "rounds": "rounds.count",
    "clients_per_round": "rounds.clients_per_round",
    "spare": "rounds.spare",
    "minimum": "rounds.minimum",
    "sampling": "rounds.order",
    "epsilon": "privacy.epsilon",
    "delta": "privacy.delta",
    "corrupted": "privacy.corrupted",
    "server_learning_rate": "server.learning_rate",
    "server_optimizer": "server.optimizer",
    "roster": "server.roster",
    "colluding": "server.colluding",
    "dropping": "server.dropping",
    "stage_timeout": "server.timeout",
    "evaluate_every": "evaluate.every",
    "evaluate_noise": "evaluate.noise_multiplier",
    "largest_loss": "evaluate.largest_loss",
}
"""Setting of a run -> key of a run file."""

NAMES = SETTINGS | {"learning_rate": "training.learning_rate"}
NAMES |= {
    parameter: f"mechanism.{parameter}"
    for parameter in ("clip_norm", "clip", "noise_multiplier", "most_examples", "bits")
}
"""Parameter of the library -> key of a run file, in errors."""

FORMAT = RunFormat(
    plain_keys={"model": "name", "rounds": "count", "mechanism": "kind"},
    old_keys={
        "data.clients": "data.population",
        "rounds.clients": "rounds.clients_per_round",
        "training.rate": "training.learning_rate",
        "mechanism.l2_norm": "mechanism.clip_norm",
    },
)


def read_run(path: Path, changes: Sequence[str]) -> RunFile:
    """Read a run file.

    Arguments:
        path: of the file.
        changes: "table.key=value", or "table=value" where one value stands for the table; the value
            as in TOML.

    Raises:
        ParameterError: no such file; a table, key or kind that there is not; a value of another
            type.
        FileFormatError: not TOML.
    """
    document = read_document(path, changes, FORMAT)
    mechanism = document.pop("mechanism", None)
    run = record_of(RunFile, "", document, FORMAT)
    if mechanism is None:
        return run
    return replace(run, mechanism=_mechanism_of(mechanism))


def _mechanism_of(values: object) -> Kind:
    table: dict[str, Any] = {"kind": values}
    if isinstance(values, dict):
        table = dict(values)
    kind = str(table.pop("kind", None))
    if kind not in KINDS:
        raise ParameterError("mechanism.kind", kind, f"use one of {', '.join(KINDS)}")
    return record_of(KINDS[kind], f"mechanism, of kind {kind}", table, FORMAT)


# Mechanisms ----------------------------------------------------------------------------------------------------------


def make_scheme(run: RunFile, settings: RunSettings, *, size: int) -> Scheme:
    """How an update of `size` coordinates becomes a report.

    Raises:
        ParameterError: values out of their ranges, a file that is not there, a table that cannot be
            summed, sums that would wrap around.
        InfeasibleError: no noise keeps to the budget.
    """
    scheme = _made(run, settings, size=size)
    settings.check_room(scheme, size)
    return scheme


def _made(run: RunFile, settings: RunSettings, *, size: int) -> Scheme:
    """As `make_scheme`, of whatever room for sums."""
    mechanism = run.mechanism
    if isinstance(mechanism, Ranked):
        return _ranked(mechanism, size)
    if isinstance(mechanism, Described):
        return _from_file(mechanism.file, mechanism.clip_norm)
    if mechanism.most_examples < 0:
        raise ParameterError(
            "mechanism.most_examples", mechanism.most_examples, "need a count, or 0: equal weights"
        )
    if isinstance(mechanism, RoundedGaussian):
        encoding = _gaussian(run, mechanism, settings, size)
    elif isinstance(mechanism, Grid):
        encoding = mz.federated.FixedPointEncoding(
            clip=mechanism.clip, clip_norm=mechanism.clip_norm or None
        )
    else:
        encoding = _table(mechanism)
    if not mechanism.most_examples:
        return encoding
    return mz.federated.WeightedEncoding(inner=encoding, most_examples=mechanism.most_examples)


def _ranked(mechanism: Ranked, size: int) -> mz.vectors.RankedCodebook:
    """The codebook of single reports: made for the model, or from a file."""
    if mechanism.file:
        return mz.vectors.RankedCodebook.load(mechanism.file)
    return mz.vectors.ranked_codebook(
        size,
        mechanism.epsilon,
        mechanism.bits or None,
        clip_norm=mechanism.clip_norm,
    )


def _table(mechanism: QuantizedTable) -> Encoding:
    if mechanism.file:
        return _from_file(mechanism.file, mechanism.clip_norm)
    if not 1 <= mechanism.bits <= 12:
        raise ParameterError("mechanism.bits", mechanism.bits, "need 1 to 12")
    if not 0 < mechanism.clip < math.inf:
        raise ParameterError("mechanism.clip", mechanism.clip, "need a finite clipping range > 0")
    if not 0 <= mechanism.report_epsilon < math.inf:
        remedy = "need an epsilon > 0, or 0 for the default"
        raise ParameterError("mechanism.report_epsilon", mechanism.report_epsilon, remedy)
    return mz.federated.TableEncoding(
        mechanism=_named(mechanism), clip_norm=mechanism.clip_norm or None
    )


def _from_file(file: str, clip_norm: float) -> Encoding:
    if not Path(file).is_file():
        raise ParameterError("mechanism.file", file, "no such file; check the path")
    try:
        return mz.federated.load_encoding(Path(file), clip_norm=clip_norm or None)
    except ParameterError as error:
        if error.parameter != "levels":
            raise
        remedy = (
            "its levels are not integer multiples of a step, so sums of codes do not decode to "
            "sums of values; design it on an even grid (--levels=-3,-1,1,3)"
        )
        raise ParameterError("mechanism.file", file, remedy) from error


def _named(mechanism: QuantizedTable) -> Mechanism:
    clip, levels, epsilon = mechanism.clip, 2**mechanism.bits, mechanism.report_epsilon
    family = mechanism.family
    if family not in FAMILIES:
        raise ParameterError("mechanism.family", family, f"use one of {', '.join(FAMILIES)}")
    if family == "quantize":
        return mz.families.stochastic_rounding(lower=-clip, upper=clip, levels=levels)
    if family == "rqm" and epsilon == 0:
        return mz.families.rqm(lower=-clip, upper=clip, levels=levels, extension=clip, q=0.42)
    if family == "pbm" and epsilon == 0:
        return mz.families.pbm(lower=-clip, upper=clip, trials=levels - 1, theta=0.25)
    epsilon = epsilon or _REPORT_EPSILON
    if family in ("rqm", "pbm"):
        return mz.design.calibrate(
            family, epsilon=epsilon, lower=-clip, upper=clip, levels=levels
        ).mechanism
    return _on_even_levels(family, levels, clip, epsilon)


def _on_even_levels(family: str, levels: int, clip: float, epsilon: float) -> Mechanism:
    """Sums need even levels: the best of nine ranges, from the least that unbiased reports
    allow.
    """
    if family == "optm" and levels > 4:
        remedy = "OPTM searches boxes of probabilities, too many beyond 4 levels: use 2, or optimal"
        raise ParameterError("mechanism.bits", (levels - 1).bit_length(), remedy)
    reaches = [clip * 1.02 * 1.18**step / math.tanh(epsilon / 2) for step in range(9)]
    problem: dict[str, Any] = {"epsilon": epsilon, "lower": -clip, "upper": clip}

    def design(even: list[float]) -> mz.design.DesignResult:
        if family == "optimal":
            return mz.design.optimal(levels=even, knots=9, **problem)
        if family == "erm":
            return mz.design.calibrate("erm", levels=even, **problem)
        return mz.design.optm(bins=even, boxes=9, **problem)

    return common.best_on_even_levels(levels, reaches, design)


def _gaussian(
    run: RunFile, mechanism: RoundedGaussian, settings: RunSettings, updates: int
) -> Encoding:
    """Clients' noise: as named, or the least that keeps to the budget."""

    size = updates + (mechanism.most_examples > 0)
    shape: dict[str, Any] = {
        "clip_norm": mechanism.clip_norm,
        "clients": run.rounds.clients_per_round,
        "size": size,
    }
    if mechanism.noise_multiplier:
        return mz.federated.gaussian_encoding(noise_multiplier=mechanism.noise_multiplier, **shape)
    if not settings.epsilon:
        remedy = "name it, or a budget: privacy.epsilon"
        raise ParameterError("mechanism.noise_multiplier", 0.0, remedy)
    rounds = settings.participations
    fewest_clients = settings.fewest_summands
    epsilon, delta = left_for_updates(settings)
    from mezzotint.federated.budgets import noise_within

    def make(multiplier: float) -> mz.federated.GaussianEncoding:
        return mz.federated.gaussian_encoding(noise_multiplier=multiplier, **shape)

    sums = mz.federated.Sums(
        size=size, clients=fewest_clients, rounds=rounds, corrupted=settings.corrupted, delta=delta
    )
    multiplier, encoding = noise_within(epsilon, make, sums)
    participation = (
        f"clients in {rounds} of {counted(settings.rounds, 'round')} (sums of {fewest_clients} or "
        "more)"
    )
    console.note(
        f"a noise multiplier of {above(multiplier)} keeps {participation} within epsilon "
        f"{exactly(settings.epsilon)}"
    )
    return encoding


def left_for_updates(settings: RunSettings) -> tuple[float, float]:
    """Epsilon and delta of the budget without what clients measure."""
    if not settings.evaluations:
        return settings.epsilon, settings.delta
    measures = settings.measuring(0)
    sums = mz.federated.Sums(
        size=len(measures.names),
        clients=settings.fewest_summands,
        rounds=settings.evaluations,
        corrupted=settings.corrupted,
        delta=settings.delta / 2,
    )
    claim = measures.central(sums)
    cost = math.inf
    if claim is not None:
        cost = claim.epsilon
    if cost >= settings.epsilon:
        remedy = (
            f"what clients measure alone costs {above(cost)}: use more evaluate.noise_multiplier, or "
            "ask less often"
        )
        raise ParameterError("privacy.epsilon", settings.epsilon, remedy)
    return settings.epsilon - cost, settings.delta / 2
