"""The settings of a run of Mezzotint's own app, checked in one place."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, final

from mezzotint.core.arguments import (
    check_choice,
    check_count,
    check_positive,
    check_probability,
    check_rules,
    with_keys_of_today,
    with_old_fields,
)
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import read_object
from mezzotint.core.kinds import checked
from mezzotint.core.records import JsonObject, Record
from mezzotint.datasets import Federation, load_federation
from mezzotint.federated.encoding import Encoding, FixedPointEncoding
from mezzotint.federated.encoding_files import load_encoding
from mezzotint.federated.models import Algorithm, LocalTraining, model_for
from mezzotint.federated.secagg.plan import CORRUPTED, DROPPED
from mezzotint.federated.secagg.roster import ROUNDS, SAMPLINGS, Sampling, most_participations
from mezzotint.federated.server_optimizers import optimizer_named
from mezzotint.federated.wrapped_encodings import MetricsEncoding
from mezzotint.vectors import RankedCodebook

Scheme = Encoding | RankedCodebook
"""How an update becomes a report: in a secure sum, or one that the server sees."""

_TYPES = {int: "a whole number", float: "a number", str: "text in quotes"}


def _of_type(kind: type, name: str, value: object) -> Any:
    """The value in its field's type, for TOML and JSON write 2.0 as 2; ParameterError if that
    changes it.
    """
    if (
        isinstance(value, str) == (kind is str)
        and isinstance(value, int | float | str)
        and not isinstance(value, bool)
    ):
        with suppress(
            OverflowError, ValueError
        ):  # of infinity and NaN as a whole number, and of 10**400 as a float
            if kind is not int or int(value) == value:
                return kind(value)
    raise ParameterError(name, value, f"need {_TYPES[kind]}")


_OLD_NAMES = {
    "clients": "population",
    "l2_norm": "clip_norm",
    "learning_rate": "server_learning_rate",
    "per_round": "clients_per_round",
    "rate": "client_learning_rate",
    "trust": "observer",
}
_OLD_WORDS = {"trust": {"sum": "secure_sum", "local": "reports"}}
"""Settings as they were called before -> as they are called today, and so their values."""


def settings_of_today(values: JsonObject) -> JsonObject:
    """Settings of a run from a file, whatever version wrote it.

    Raises:
        ParameterError: a key under both names.
    """
    return with_keys_of_today(values, _OLD_NAMES, _OLD_WORDS)


@with_old_fields(_OLD_WORDS, **_OLD_NAMES)
@final
@checked
@dataclass(frozen=True, kw_only=True)
class RunSettings(Record):
    """One federated run.

    Arguments:
        dataset, data, model: data set and model (`mezzotint.datasets`, `.tasks`); `data` is a
            folder or file on the machine that reads it.
        population: number of parts into which a data set without clients of its own is split; of
            femnist the first ones, 0 for all.
        dirichlet: of the Dirichlet split.
        seed: of the split, the initial parameters and batches; of no private noise.
        algorithm, steps, batch: of `LocalTraining`.
        client_learning_rate: of a client's steps.
        observer: what the server sees: "secure_sum", nothing but secure sums; or "reports", every
            report: it is not trusted, and `mechanism` is the file of a ranked codebook.
        mechanism: file of a mechanism, or of an encoding; "" rounds to a fine grid within [-clip,
            clip], without noise.
        clip: used only without a mechanism, which clips to its own range.
        clip_norm: clip the vector to this norm first (and rotate it, for a mechanism's table); 0 does
            not. A file of an encoding has its own.
        server_learning_rate: factor on the server optimizer's step.
        server_optimizer: "fedavg" or "fedavgm" (`mezzotint.federated.server_optimizers`).
        rounds, clients_per_round: number of rounds, and of clients in each.
        minimum: fewest summands; 0 takes half of those drawn + 1, and 1 for single reports.
        spare: extra clients drawn, so that no round waits for its slowest.
        roster: file of the roster of all clients (`Roster`); "" trusts the connected ones to be
            real.
        colluding, dropping: shares of clients colluding with the server, and dropping out, that the
            sums tolerate.
        sampling: "fixed" or "cyclic" (see `SecureStrategy`).
        epsilon: budget of the central claim (of reports: the local one) for the client charged
            most; 0: none.
        delta: of all claims.
        corrupted: clients whose noise the central claim does not count.
        stage_timeout: seconds.
        evaluate_every: rounds after which clients evaluate loss and accuracy on their own records,
            in a secure sum of its own; 0: never.
        evaluate_noise: standard deviation of the noise on that sum, over its norm.
        largest_loss: to which a client's loss is clipped.
        out: folder for checkpoint and ledger; "" keeps nothing.
        pause: seconds between rounds.

    Raises:
        ParameterError: a value out of its range.

    Example:
        >>> settings = mz.federated.RunSettings(dataset="digits", population=20, clients_per_round=10, rounds=2)
        >>> settings.rounds
        2
    """

    # Fields are keys of run configurations; an old name stays in `settings_of_today`.
    dataset: str = "digits"
    data: str = ""
    model: str = "softmax"
    population: int = 100
    dirichlet: float = 0.5
    seed: int = 0
    algorithm: Algorithm = "fedavg"
    steps: int = 5
    client_learning_rate: float = 0.5
    batch: int = 0
    observer: str = "secure_sum"
    mechanism: str = ""
    clip: float = 0.4
    clip_norm: float = 0.0
    server_learning_rate: float = 2.0
    server_optimizer: str = "fedavg"
    rounds: int = 6
    clients_per_round: int = 100
    spare: int = 0
    minimum: int = 0
    roster: str = ""
    colluding: float = CORRUPTED
    dropping: float = DROPPED
    sampling: Sampling = "fixed"
    epsilon: float = 0.0
    delta: float = 1e-6
    corrupted: int = 0
    stage_timeout: float = 300.0
    evaluate_every: int = 0
    evaluate_noise: float = 8.0
    largest_loss: float = 5.0
    out: str = ""
    pause: float = 0.0

    def __post_init__(self) -> None:
        is_local = self.observer == "reports"
        check_rules(
            self,
            (
                "observer",
                self.observer in ("secure_sum", "reports"),
                "use 'secure_sum' or 'reports'",
            ),
            ("rounds", self.rounds >= 1, "need at least one round"),
            (
                "rounds",
                is_local or self.rounds <= ROUNDS,
                f"at most {ROUNDS:,} secure sums in a run: start a second run",
            ),
            (
                "population",
                self.population >= 2 or (self.population == 0 and self.dataset == "femnist"),
                "need at least 2 clients, or 0 for all of femnist's; one alone hides nothing",
            ),
            (
                "clients_per_round",
                self.clients_per_round >= 2,
                "need at least 2 clients in a round",
            ),
            (
                "clip_norm",
                0 <= self.clip_norm < math.inf,
                "need a finite norm above 0, or 0 for no clipping",
            ),
            (
                "minimum",
                self.minimum == 0 or self.minimum >= (1 if is_local else 2),
                "need at least 2 clients in a sum, or 0 for half of those drawn plus one",
            ),
            (
                "epsilon",
                0 <= self.epsilon < math.inf,
                "need a finite budget >= 0; 0 sets none",
            ),
            ("pause", self.pause >= 0, "need seconds >= 0"),
            *(
                (share, 0 <= getattr(self, share) < 1, "need a share of the clients in [0, 1)")
                for share in ("colluding", "dropping")
            ),
        )
        check_probability("delta", self.delta)
        for setting in ("server_learning_rate", "stage_timeout", "evaluate_noise", "largest_loss"):
            check_positive(setting, getattr(self, setting))
        self._check_evaluation()
        self._check_draws()
        optimizer_named(self.server_optimizer)
        _ = self.training  # checks its part

    def _check_evaluation(self) -> None:
        check_rules(
            self,
            (
                "evaluate_every",
                self.evaluate_every >= 0,
                "need a number of rounds, or 0 for no measurements",
            ),
            (
                "evaluate_every",
                not (self.evaluate_every and self.observer == "reports"),
                "needs secure sums; leave it out where the server sees reports",
            ),
        )

    def _check_draws(self) -> None:
        check_choice("sampling", self.sampling, SAMPLINGS)
        check_count("spare", self.spare, least=0)
        if self.dataset == "digits" and self.clients_per_round + self.spare > self.population:
            parameter = (
                "spare" if self.clients_per_round <= self.population else "clients_per_round"
            )
            draw_text = (
                f"a round draws {self.clients_per_round + self.spare} of {self.population} clients"
            )
            raise ParameterError(
                parameter,
                getattr(self, parameter),
                f"with spare={self.spare}, {draw_text}; draw fewer",
            )

    @property
    def training(self) -> LocalTraining:
        """The clients' training."""
        return LocalTraining(
            algorithm=self.algorithm,
            steps=self.steps,
            learning_rate=self.client_learning_rate,
            batch=self.batch,
        )

    def federation(self, folder: str | None = None) -> Federation:
        """The clients' data and the public test data, from `data` or from the folder or file
        given.
        """
        if folder is None:
            folder = self.data
        return load_federation(
            self.dataset,
            folder=folder,
            clients=self.population,
            dirichlet=self.dirichlet,
            seed=self.seed,
        )

    def model_size(self, federation: Federation) -> int:
        """Parameters of the model, for data of these shapes."""
        return model_for(self.model, federation).initial(self.seed).size

    def scheme(self) -> Scheme:
        """How an update becomes a report: `encoding`, or where the server sees it `codebook`."""
        if self.observer == "reports":
            return self.codebook()
        return self.encoding()

    def codebook(self) -> RankedCodebook:
        """The codebook of single reports, for a server that sees them.

        Raises:
            ParameterError: no mechanism is named. FileFormatError: its file is not a ranked
                codebook's.
        """
        if not self.mechanism:
            raise ParameterError(
                "mechanism", "none", "single reports need the file of a ranked codebook"
            )
        return RankedCodebook.load(self.mechanism)

    def encoding(self) -> Encoding:
        """Clipping and mechanism.

        Raises:
            FileFormatError: an invalid mechanism file. ParameterError: a table that cannot be
                summed.
        """
        clip_norm = self.clip_norm or None
        if not self.mechanism:
            return FixedPointEncoding(clip=self.clip, clip_norm=clip_norm)
        return load_encoding(Path(self.mechanism), clip_norm=clip_norm)

    def measuring(self, most_examples: int) -> MetricsEncoding:
        """Loss and accuracy of clients, weighed by up to this many examples; 0 weighs all
        equally.
        """
        ranges = {"loss": (0.0, self.largest_loss), "accuracy": (0.0, 1.0)}
        noise = self.evaluate_noise
        return MetricsEncoding.gaussian(
            ranges,
            noise_multiplier=noise,
            clients=self.clients_per_round,
            most_examples=most_examples,
        )

    def check_room(self, scheme: Scheme, size: int) -> None:
        """Refuse an encoding whose sums of a round's clients, of `size` coordinates each, would
        wrap around.
        """
        if isinstance(scheme, Encoding):
            scheme.check_room(self.clients_per_round + self.spare, size=size)

    @property
    def fewest_summands(self) -> int:
        """The fewest summands of a round."""
        return self.minimum or (self.clients_per_round + self.spare) // 2 + 1

    @property
    def participations(self) -> int:
        """The largest number of rounds that one client is in."""
        return self._participations(self.rounds)

    @property
    def evaluations(self) -> int:
        """The largest number of sums of metrics that one client is in."""
        evaluated_rounds = 0
        if self.evaluate_every:
            evaluated_rounds = self.rounds // self.evaluate_every
        return self._participations(evaluated_rounds)

    @property
    def may_be_exceeded(self) -> bool:
        """Whether `participations` is no limit: draws, of which some take a client more often."""
        return 0 < self.participations < self.rounds and self.sampling != "cyclic"

    def _participations(self, rounds: int) -> int:
        invited = self.clients_per_round + self.spare
        population = self.population or len(self.federation().clients)
        return most_participations(
            self.sampling,
            rounds=rounds,
            clients_per_round=invited,
            population=max(population, invited),
        )

    @classmethod
    def from_config(cls, values: JsonObject) -> RunSettings:
        """From Flower's run configuration, whose keys may use dashes.

        Raises:
            ParameterError: an unknown key, or a value of another type than the field's.
        """
        field_types = {field.name: type(field.default) for field in fields(cls)}
        settings = settings_of_today(
            {key.replace("-", "_"): value for key, value in values.items()}
        )
        unknown = sorted(set(settings) - set(field_types))
        if unknown:
            raise ParameterError(
                "run-config", ", ".join(unknown), f"unknown; use {', '.join(field_types)}"
            )
        return cls(
            **{
                setting_name: _of_type(field_types[setting_name], setting_name, setting)
                for setting_name, setting in settings.items()
            }
        )

    @classmethod
    def load(cls, folder: Path) -> RunSettings:
        """The settings that a run left in its folder, with `out` and the files beside them as they
        are named now.
        """
        try:
            settings = cls.from_config(read_object(folder / "settings.json"))
        except (OSError, ValueError) as error:
            raise FileFormatError(f"{folder.name}: no run to resume there ({error})") from None
        moved_files = {
            setting_name: str(folder.resolve() / Path(file_name).name)
            for setting_name, file_name in (
                ("mechanism", settings.mechanism),
                ("roster", settings.roster),
            )
            if file_name and Path(file_name).parent == Path(settings.out)
        }
        return replace(settings, out=str(folder.resolve()), **moved_files)
