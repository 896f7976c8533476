"""A guarantee is a claim with a proof that this exact checker accepts (docs/proofs/kernel.md).

It imports only the standard library and python-flint, searches for nothing, and uses no floating
point.
"""

from mezzotint.kernel.checker import check, read_claim, verdict, write_claim
from mezzotint.kernel.claim import ExactClaim, ExactRelease, words
from mezzotint.kernel.units import Refused, Unfinished, Unreadable

__all__ = [
    "ExactClaim",
    "ExactRelease",
    "Refused",
    "Unfinished",
    "Unreadable",
]
__all__ += ["check", "read_claim", "verdict", "words", "write_claim"]
__dir__ = __all__.copy
