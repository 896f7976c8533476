"""What reports cost: exact losses of one table, certificates and their independent check, whole
releases."""

from typing import TYPE_CHECKING

from mezzotint.core import on_demand

if TYPE_CHECKING:
    from mezzotint.core.loss import Certificate as Certificate
    from mezzotint.core.loss import delta as delta
    from mezzotint.core.loss import pure_epsilon as pure_epsilon
    from mezzotint.core.loss import renyi as renyi
    from mezzotint.privacy.accounting import account as account
    from mezzotint.privacy.accounting import check_report as check_report
    from mezzotint.privacy.accounting import prove as prove
    from mezzotint.privacy.accounting import report_claim as report_claim
    from mezzotint.privacy.accounting import report_words as report_words
    from mezzotint.privacy.calibration import Calibration as Calibration
    from mezzotint.privacy.calibration import calibrate as calibrate
    from mezzotint.privacy.charges import Charge as Charge
    from mezzotint.privacy.charges import Entry as Entry
    from mezzotint.privacy.charges import Spent as Spent
    from mezzotint.privacy.claim import Claim as Claim
    from mezzotint.privacy.claim import Release as Release
    from mezzotint.privacy.claim import basis as basis
    from mezzotint.privacy.conversion import convert_ledger as convert_ledger
    from mezzotint.privacy.ledger import Ledger as Ledger
    from mezzotint.privacy.profile import Profile as Profile
    from mezzotint.privacy.propose import Outcome as Outcome
    from mezzotint.privacy.tradeoffs import metric_epsilon as metric_epsilon
    from mezzotint.privacy.tradeoffs import tradeoff as tradeoff
    from mezzotint.privacy.tradeoffs import vector_epsilon as vector_epsilon
    from mezzotint.privacy.verification import VerificationReport as VerificationReport
    from mezzotint.privacy.verification import verify as verify

__getattr__, __dir__ = on_demand(__name__, __file__)
