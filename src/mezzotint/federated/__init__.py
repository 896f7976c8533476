"""Federated learning with few-bit private updates, added up by secure aggregation, or seen one by
one.

`SecureUpdates`, `SecureStrategy`, their local twins and what is built on them need the extra: pip
install '.[flower]' in the checkout.
"""

from typing import TYPE_CHECKING

from mezzotint.core import on_demand

if TYPE_CHECKING:
    from mezzotint.federated.budgets import Sums as Sums
    from mezzotint.federated.encoding import Encoding as Encoding
    from mezzotint.federated.encoding import FixedPointEncoding as FixedPointEncoding
    from mezzotint.federated.encoding import GaussianEncoding as GaussianEncoding
    from mezzotint.federated.encoding import TableEncoding as TableEncoding
    from mezzotint.federated.encoding import gaussian_encoding as gaussian_encoding
    from mezzotint.federated.folder import simulate as simulate
    from mezzotint.federated.joined import MetricsEncoding as MetricsEncoding
    from mezzotint.federated.joined import WeightedEncoding as WeightedEncoding
    from mezzotint.federated.joined import load_encoding as load_encoding
    from mezzotint.federated.ledger import RunLedger as RunLedger
    from mezzotint.federated.lifetime import LifetimeLedger as LifetimeLedger
    from mezzotint.federated.local import LocalStrategy as LocalStrategy
    from mezzotint.federated.local import LocalUpdates as LocalUpdates
    from mezzotint.federated.mod import SecureUpdates as SecureUpdates
    from mezzotint.federated.policy import Policy as Policy
    from mezzotint.federated.policy import PolicyRefusal as PolicyRefusal
    from mezzotint.federated.policy import load_policy as load_policy
    from mezzotint.federated.secagg import Roster as Roster
    from mezzotint.federated.settings import RunSettings as RunSettings
    from mezzotint.federated.strategy import Evaluation as Evaluation
    from mezzotint.federated.strategy import SecureStrategy as SecureStrategy
    from mezzotint.federated.tasks import FedAvg as FedAvg
    from mezzotint.federated.tasks import FedAvgM as FedAvgM
    from mezzotint.federated.tasks import Rehearsal as Rehearsal

__getattr__, __dir__ = on_demand(__name__, __file__, extra="flower")
