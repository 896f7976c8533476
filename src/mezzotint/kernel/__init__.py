"""A guarantee is a claim with a proof that this small exact checker accepts (docs/proofs/kernel.md).

It imports the standard library and python-flint, nothing else; it searches for nothing and uses no floating point.
"""

from mezzotint.kernel.check import check as check
from mezzotint.kernel.check import read_claim as read_claim
from mezzotint.kernel.check import write_claim as write_claim
from mezzotint.kernel.claim import Claim as Claim
from mezzotint.kernel.claim import Release as Release
from mezzotint.kernel.claim import words as words
from mezzotint.kernel.units import Refused as Refused
from mezzotint.kernel.units import Unfinished as Unfinished
from mezzotint.kernel.units import Unreadable as Unreadable
