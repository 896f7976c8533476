"""Secure aggregation without a transport: messages in, messages out, the sum at the end.

Every client masks for partners that it picks itself (Bell et al. 2020, section 4), shares its
secrets with a committee drawn from the roster (Ma et al. 2023), and the committee opens one set of
survivors that a quorum of it has signed.
"""

from mezzotint.federated.secagg.client import Client as Client
from mezzotint.federated.secagg.messages import STAGES as STAGES
from mezzotint.federated.secagg.plan import RoundPlan as RoundPlan
from mezzotint.federated.secagg.plan import SumParameters as SumParameters
from mezzotint.federated.secagg.plan import bits_needed as bits_needed
from mezzotint.federated.secagg.plan import corrupted_in as corrupted_in
from mezzotint.federated.secagg.plan import plan_sum as plan_sum
from mezzotint.federated.secagg.roster import Card as Card
from mezzotint.federated.secagg.roster import Challenge as Challenge
from mezzotint.federated.secagg.roster import Roster as Roster
from mezzotint.federated.secagg.roster import Trust as Trust
from mezzotint.federated.secagg.roster import read_introduction as read_introduction
from mezzotint.federated.secagg.server import Blame as Blame
from mezzotint.federated.secagg.server import SecureSum as SecureSum
from mezzotint.federated.secagg.server import Server as Server
from mezzotint.federated.secagg.wire import DuplicateAnswer as DuplicateAnswer
from mezzotint.federated.secagg.wire import InconsistentLists as InconsistentLists
from mezzotint.federated.secagg.wire import MalformedMessage as MalformedMessage
from mezzotint.federated.secagg.wire import OutOfRangeInteger as OutOfRangeInteger
from mezzotint.federated.secagg.wire import PlanRefused as PlanRefused
from mezzotint.federated.secagg.wire import ProtocolError as ProtocolError
from mezzotint.federated.secagg.wire import ReplayedRound as ReplayedRound
from mezzotint.federated.secagg.wire import SwappedKey as SwappedKey
from mezzotint.federated.secagg.wire import TamperedShare as TamperedShare
from mezzotint.federated.secagg.wire import TooFewClients as TooFewClients
from mezzotint.federated.secagg.wire import UnknownSender as UnknownSender
from mezzotint.federated.secagg.wire import WrongStage as WrongStage
