"""Federated learning with few-bit private updates, added up by secure aggregation, or seen one by
one.

`SecureUpdates`, `SecureStrategy`, their local twins and what is built on them need the extra: pip
install '.[flower]' in the checkout.
"""

from typing import TYPE_CHECKING

from mezzotint.core import on_demand

if TYPE_CHECKING:
    from mezzotint.federated.budgets import Sums as Sums
    from mezzotint.federated.client_mod import SecureUpdates as SecureUpdates
    from mezzotint.federated.encoding import (
        Encoding as Encoding,
        FixedPointEncoding as FixedPointEncoding,
        GaussianEncoding as GaussianEncoding,
        TableEncoding as TableEncoding,
        gaussian_encoding as gaussian_encoding,
    )
    from mezzotint.federated.encoding_files import load_encoding as load_encoding
    from mezzotint.federated.lifetime_ledger import LifetimeLedger as LifetimeLedger
    from mezzotint.federated.local_reports import (
        LocalStrategy as LocalStrategy,
        LocalUpdates as LocalUpdates,
    )
    from mezzotint.federated.policy import (
        Policy as Policy,
        PolicyRefusal as PolicyRefusal,
        load_policy as load_policy,
    )
    from mezzotint.federated.rehearsal import Rehearsal as Rehearsal
    from mezzotint.federated.run_ledger import RunLedger as RunLedger
    from mezzotint.federated.secagg import Roster as Roster
    from mezzotint.federated.secure_strategy import (
        Evaluation as Evaluation,
        SecureStrategy as SecureStrategy,
    )
    from mezzotint.federated.server_optimizers import (
        FedAvg as FedAvg,
        FedAvgM as FedAvgM,
    )
    from mezzotint.federated.settings import RunSettings as RunSettings
    from mezzotint.federated.simulation import simulate as simulate
    from mezzotint.federated.wrapped_encodings import (
        MetricsEncoding as MetricsEncoding,
        WeightedEncoding as WeightedEncoding,
    )

__getattr__, __dir__ = on_demand(__name__, __file__, extra="flower")
