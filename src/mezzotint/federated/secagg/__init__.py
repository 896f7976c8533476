"""Secure aggregation without a transport: messages in, messages out, the sum at the end.

Bonawitz et al. 2017 (pairwise and own masks, Shamir shares, drop-outs at every stage) on the sparse graph of Bell et
al. 2020, with signed keys and signed lists of survivors.
"""

from mezzotint.federated.secagg.client import Client as Client
from mezzotint.federated.secagg.client import Trust as Trust
from mezzotint.federated.secagg.errors import DuplicateAnswer as DuplicateAnswer
from mezzotint.federated.secagg.errors import InconsistentLists as InconsistentLists
from mezzotint.federated.secagg.errors import MalformedMessage as MalformedMessage
from mezzotint.federated.secagg.errors import OutOfRangeInteger as OutOfRangeInteger
from mezzotint.federated.secagg.errors import OverlappingLists as OverlappingLists
from mezzotint.federated.secagg.errors import PlanRefused as PlanRefused
from mezzotint.federated.secagg.errors import ProtocolError as ProtocolError
from mezzotint.federated.secagg.errors import ReplayedRound as ReplayedRound
from mezzotint.federated.secagg.errors import SwappedKey as SwappedKey
from mezzotint.federated.secagg.errors import TamperedShare as TamperedShare
from mezzotint.federated.secagg.errors import TooFewClients as TooFewClients
from mezzotint.federated.secagg.errors import UnknownSender as UnknownSender
from mezzotint.federated.secagg.errors import WrongStage as WrongStage
from mezzotint.federated.secagg.messages import STAGES as STAGES
from mezzotint.federated.secagg.plan import GraphPlan as GraphPlan
from mezzotint.federated.secagg.plan import RoundPlan as RoundPlan
from mezzotint.federated.secagg.plan import bits_needed as bits_needed
from mezzotint.federated.secagg.plan import plan_graph as plan_graph
from mezzotint.federated.secagg.plan import safe_threshold as safe_threshold
from mezzotint.federated.secagg.server import SecureSum as SecureSum
from mezzotint.federated.secagg.server import Server as Server
