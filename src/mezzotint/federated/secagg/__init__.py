"""Secure aggregation without a transport: messages in, messages out, the sum at the end.

Every client masks for partners that it picks itself (Bell et al. 2020, section 4), shares its
secrets with a committee drawn from the roster (Ma et al. 2023), and the committee opens one set of
survivors that a quorum of it has signed.
"""

from mezzotint.federated.secagg.blame import Blame as Blame
from mezzotint.federated.secagg.client import Client as Client
from mezzotint.federated.secagg.messages import STAGES as STAGES
from mezzotint.federated.secagg.plan import (
    RoundPlan as RoundPlan,
    SumParameters as SumParameters,
    bits_needed as bits_needed,
    corrupted_in as corrupted_in,
    plan_sum as plan_sum,
)
from mezzotint.federated.secagg.roster import (
    Card as Card,
    Challenge as Challenge,
    Roster as Roster,
    Trust as Trust,
    read_introduction as read_introduction,
)
from mezzotint.federated.secagg.server import SecureSum as SecureSum, Server as Server
from mezzotint.federated.secagg.wire import (
    DuplicateAnswer as DuplicateAnswer,
    InconsistentLists as InconsistentLists,
    MalformedMessage as MalformedMessage,
    OutOfRangeInteger as OutOfRangeInteger,
    PlanRefused as PlanRefused,
    ProtocolError as ProtocolError,
    ReplayedRound as ReplayedRound,
    SwappedKey as SwappedKey,
    TamperedShare as TamperedShare,
    TooFewClients as TooFewClients,
    UnknownSender as UnknownSender,
    WrongStage as WrongStage,
)
