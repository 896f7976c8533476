"""A client's own conditions, from a file: it refuses anything weaker, whatever the server asks
for.
"""

from __future__ import annotations

import math
import tomllib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from mezzotint.core.arguments import check_rules, with_keys_of_today, with_old_fields
from mezzotint.core.errors import FileFormatError, MezzotintError, ParameterError, outside
from mezzotint.core.files import read_text
from mezzotint.core.kinds import checked
from mezzotint.core.records import JsonObject, counted, exactly
from mezzotint.core.types import AnyPath
from mezzotint.federated.secagg import Roster, RoundPlan, Trust
from mezzotint.federated.secagg.plan import CORRUPTED
from mezzotint.federated.secagg.roster import DEALINGS, ROUNDS

if TYPE_CHECKING:
    from mezzotint.federated.encoding import Encoding
    from mezzotint.vectors import RankedCodebook


_MULTIPLIER_ROUNDING = 1 + 2.0**-40
"""Float64 errors of a noise multiplier, with room: noise planned for exactly what a policy asks for
is not refused.
"""


def _is_setting(value: object) -> bool:
    """Whether a node's configuration may hold it."""
    return isinstance(value, str | int | float | bool)


class PolicyRefusal(MezzotintError):
    """The server asks for less protection than the client's policy demands.

    Example:
        >>> issubclass(mz.federated.PolicyRefusal, mz.MezzotintError)
        True
    """


@with_old_fields(l2_norm="clip_norm")
@final
@checked
@dataclass(frozen=True, kw_only=True)
class Policy:
    """A client's conditions.

    Arguments:
        minimum: fewest summands of a round.
        corrupted: largest share of all clients that may collude with the server; they count towards
            `minimum`, but their noise does not count towards `noise_multiplier`.
        roster: all clients (in a file: the path of one, relative to the policy's folder); None
            trusts the server not to invent any.
        report_epsilon: largest pure epsilon of one report (about a coordinate, or a ranked one
            about a whole vector), seen alone; inf allows noise-free tables.
        budget: largest total epsilon of this client's ranked reports, or of its secure sums, in its
            own ledger of all runs. Sums require a file of the identity, a folder of records and a
            roster: their cost counts the noise of others, whom a server could invent.
        delta: of that budget, for secure sums.
        mechanisms: SHA-256 of the tables allowed (`Encoding.sha256`; for clients' noise, of the
            noise and its steps in the norm); None allows all that meet report_epsilon.
        noise_multiplier: least noise in the smallest allowed sum, as a standard deviation over the
            clipping norm. Only the rounded Gaussian counts, for the deviation of a table proves
            nothing: use `budget` there. 0 requires none.
        largest_value: largest clipping range of a coordinate, data units.
        clip_norm: largest clipping norm of the vector; None allows any.
        rounds: most rounds that this client answers in one session. The more, the more partners and
            shareholders a plan must have: a server could look ahead for the round whose draw suits
            it.
        dealings: most rounds that this client deals in, of all sessions; dealing costs no budget,
            but shows coins, and a server may let any number of rounds fail until the coins suit it.
        evaluate_noise_multiplier: as `noise_multiplier`, for sums of this client's metrics; inf,
            the default, refuses these sums. They count towards `budget` and `rounds`; their ranges
            are the plan's, to which `clip_norm` and `largest_value` do not apply.
        evaluate: whether evaluate and query messages reach the app's own functions, whose answers
            are released as they are, outside every claim.
        rehearse: settings of the node (such as {"data": "made-up.npz"}) with which the app is first
            run once, on made-up data: if it fails there, the client refuses, unpaid. None does not
            rehearse; for apps that take their data from the node's configuration.

    Raises:
        ParameterError: invalid values; `minimum` or `noise_multiplier` without a roster, for a
            server that invents clients fills any sum with them.

    Example:
        >>> policy = mz.federated.Policy(report_epsilon=2.0, largest_value=1.0)
        >>> policy.report_epsilon
        2.0
    """

    # Fields are keys of policy files; an old name stays in `_policy_of_today`.
    minimum: int = 2
    corrupted: float = CORRUPTED
    roster: Roster | None = None
    report_epsilon: float = math.inf
    budget: float = math.inf
    delta: float = 1e-6
    mechanisms: tuple[str, ...] | None = None
    noise_multiplier: float = 0.0
    largest_value: float = math.inf
    clip_norm: float | None = None
    rounds: int = ROUNDS
    dealings: int = DEALINGS
    evaluate_noise_multiplier: float = math.inf
    evaluate: bool = False
    rehearse: Mapping[str, str | int | float | bool] | None = None

    def __post_init__(self) -> None:
        self._check_types()
        positive = "need a number > 0, or leave it out"
        norm_limit = math.inf if self.clip_norm is None else self.clip_norm
        has_roster = self.roster is not None
        remedy = "name the roster of all clients, too: a server that invents clients fills any sum with them"
        check_rules(
            self,
            ("largest_value", self.largest_value > 0, positive),
            ("clip_norm", norm_limit > 0, positive),
        )
        _ = self.trust  # checks its part
        check_rules(
            self,
            ("noise_multiplier", 0 <= self.noise_multiplier < math.inf, "need a number >= 0"),
            (
                "evaluate_noise_multiplier",
                self.evaluate_noise_multiplier >= 0,
                "need a number >= 0, or leave it out",
            ),
            ("report_epsilon", self.report_epsilon > 0, positive),
            ("budget", self.budget > 0, "need an epsilon > 0, or leave it out"),
            ("delta", 0 < self.delta < 1, "need a probability in (0, 1)"),
            ("minimum", has_roster or self.minimum <= 2, remedy),
            ("noise_multiplier", has_roster or self.noise_multiplier == 0, remedy),
            (
                "evaluate_noise_multiplier",
                has_roster or self.evaluate_noise_multiplier in (0, math.inf),
                remedy,
            ),
        )

    def _check_types(self) -> None:
        """A value in quotes, or NaN, would pass for one that allows everything."""
        settings = self.rehearse
        rehearsal_fits = settings is None or (
            isinstance(settings, Mapping) and all(map(_is_setting, settings.values()))
        )
        check_rules(
            self,
            (
                "rehearse",
                rehearsal_fits,
                "need a table of node settings, such as {data = 'made-up.npz'}",
            ),
        )

    @property
    def trust(self) -> Trust:
        """The conditions that the protocol checks."""
        return Trust(
            roster=self.roster,
            corrupted=self.corrupted,
            minimum=self.minimum,
            rounds=self.rounds,
            dealings=self.dealings,
        )

    def check(self, encoding: Encoding, plan: RoundPlan) -> None:
        """Refuse an encoding or plan that protects less than this policy, or that do not match each
        other.

        Raises:
            PolicyRefusal: naming what was requested and what is allowed.
        """
        if plan.binding != encoding.binding:
            raise PolicyRefusal("mechanism: the plan was made for another table than the one sent")
        if (plan.span, plan.overflow) != (encoding.span, encoding.overflow):
            raise PolicyRefusal(
                f"span={plan.span}: the mechanism sends integers up to {encoding.span}"
            )
        if plan.bits != encoding.bits(plan.clients):
            # A larger modulus than the encoding's would tell without noise how many values are
            # negative.
            raise PolicyRefusal(
                f"bits={plan.bits}: sums of this mechanism are modulo 2**{encoding.bits(plan.clients)}"
            )
        if plan.round > self.rounds:
            raise PolicyRefusal(
                f"rounds={plan.round}: this client answers at most {counted(self.rounds, 'round')} of a session"
            )
        if self.roster is None and self.budget < math.inf:
            raise PolicyRefusal(
                "budget: a sum's cost counts others' noise; without a roster they may be invented"
            )
        if plan.purpose != encoding.purpose:
            raise PolicyRefusal(
                f"purpose={plan.purpose}: the encoding is one to {encoding.purpose} with"
            )
        norm = encoding.norm
        largest = encoding.largest
        if encoding.purpose == "evaluate":  # what clients measure has no norm in data units
            norm = largest = 0.0
        self._check_mechanism(
            encoding.sha256,
            epsilon=encoding.report_epsilon,
            allowed=self.report_epsilon,
            norm=norm,
            largest=largest,
        )
        rule = "noise_multiplier"
        required = self.noise_multiplier
        if plan.purpose == "evaluate":
            rule = "evaluate_noise_multiplier"
            required = self.evaluate_noise_multiplier
        multiplier = encoding.noise_multiplier(max(0, plan.minimum - self.trust.corrupted_of(plan)))
        if not required <= multiplier * _MULTIPLIER_ROUNDING < math.inf:
            wanted = (
                f"wants {exactly(required)}"
                if required < math.inf
                else "answers no sums of what it measures"
            )
            raise PolicyRefusal(
                f"{rule}={exactly(multiplier)} in the smallest sum: this client {wanted}"
            )

    def check_report(self, scheme: RankedCodebook) -> None:
        """Refuse single reports if this client requires sums or more protection.

        Raises:
            PolicyRefusal: as `check`.
        """
        if self.roster is not None:
            raise PolicyRefusal(
                "trust: reports seen one by one, but this client wants its update hidden in a sum"
            )
        self._check_mechanism(
            scheme.sha256,
            epsilon=scheme.epsilon,
            allowed=min(self.report_epsilon, self.budget),
            norm=scheme.clip_norm,
            largest=0.0,
        )
        if scheme.clip_norm > self.largest_value:
            raise PolicyRefusal(
                f"clip_norm={exactly(scheme.clip_norm)}: this client allows at most "
                f"{exactly(self.largest_value)}"
            )

    def _check_mechanism(
        self, sha256: str, *, epsilon: float, allowed: float, norm: float | None, largest: float
    ) -> None:
        if epsilon > allowed:
            raise PolicyRefusal(
                f"epsilon={exactly(epsilon)} per report: this client allows {exactly(allowed)}"
            )
        if self.mechanisms is not None and sha256 not in self.mechanisms:
            raise PolicyRefusal(f"mechanism={sha256}: not among the tables that this client allows")
        if self.clip_norm is not None and (norm is None or norm > self.clip_norm):
            raise PolicyRefusal(
                f"clip_norm={norm}: this client allows at most {exactly(self.clip_norm)}"
            )
        if largest > self.largest_value:
            raise PolicyRefusal(
                f"clip={exactly(largest)}: this client allows {exactly(self.largest_value)}"
            )


def load_policy(path: AnyPath) -> Policy:
    """Load a policy from a TOML file whose keys are the fields of `Policy`.

    Arguments:
        path: of the TOML file.

    Returns: the policy, checked.

    Raises:
        FileFormatError: no such file, not TOML, an unknown key, one under its old name and its new
            one.

    Warns:
        FutureWarning: naming the file and each key that has the name of before.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("policy.toml").write_text("report_epsilon = 2.0\\nlargest_value = 1.0\\n")
        >>> mz.federated.load_policy("policy.toml").report_epsilon
        2.0
    """
    try:
        values: JsonObject = tomllib.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"policy {Path(path).name}: {error}") from None
    values = _policy_of_today(values, Path(path).name)
    unknown = sorted(set(values) - {field.name for field in fields(Policy)})
    if unknown:
        raise FileFormatError(
            f"policy {Path(path).name}: unknown keys {unknown}; a typo would protect nobody"
        )
    settings: dict[str, Any] = {}
    for field_name, setting in values.items():
        settings[field_name] = setting
        if isinstance(setting, list):
            settings[field_name] = tuple(setting)
    if "roster" in settings:
        settings["roster"] = Roster.load(Path(path).parent / str(settings["roster"]))
    return Policy(**settings)


_OLD_KEYS = {"l2_norm": "clip_norm"}
"""Keys of a policy as files of before have them -> as they are called today."""


def _policy_of_today(values: JsonObject, file_name: str) -> JsonObject:
    """The values of a policy's file; each old name is told with the file that has it."""
    try:
        renamed = with_keys_of_today(values, _OLD_KEYS)
    except ParameterError as error:
        raise FileFormatError(f"policy {file_name}: {error.parameter} {error.remedy}") from None
    for old_key, current_key in _OLD_KEYS.items():
        if old_key in values:
            warnings.warn(
                f"policy {file_name}: {old_key} is now called {current_key}; rename the key",
                FutureWarning,
                stacklevel=outside(),
            )
    return renamed
