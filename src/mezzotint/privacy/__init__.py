"""What reports cost: exact losses of one table, certificates and their independent check, whole
releases."""

from typing import TYPE_CHECKING

from mezzotint.core import on_demand

if TYPE_CHECKING:
    from mezzotint.core.loss import (
        Certificate as Certificate,
        delta as delta,
        pure_epsilon as pure_epsilon,
        renyi as renyi,
    )
    from mezzotint.privacy.accounting import (
        account as account,
        check_report as check_report,
        prove as prove,
        report_claim as report_claim,
        report_words as report_words,
    )
    from mezzotint.privacy.calibration import Calibration as Calibration, calibrate as calibrate
    from mezzotint.privacy.charges import Charge as Charge, Entry as Entry, Spent as Spent
    from mezzotint.privacy.claim import Claim as Claim, Release as Release, basis as basis
    from mezzotint.privacy.conversion import convert_ledger as convert_ledger
    from mezzotint.privacy.ledger import Ledger as Ledger
    from mezzotint.privacy.profile import Profile as Profile
    from mezzotint.privacy.propose import Outcome as Outcome
    from mezzotint.privacy.tradeoffs import (
        metric_epsilon as metric_epsilon,
        tradeoff as tradeoff,
        vector_epsilon as vector_epsilon,
    )
    from mezzotint.privacy.verification import (
        VerificationReport as VerificationReport,
        verify as verify,
    )

__getattr__, __dir__ = on_demand(__name__, __file__)
