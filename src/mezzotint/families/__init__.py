"""Closed forms: parameters in, a `Mechanism` out. Nothing here is trusted with privacy: the table's
integers are.
"""

from typing import TYPE_CHECKING

from mezzotint.core import on_demand

if TYPE_CHECKING:
    from mezzotint.families.categories import categorical as categorical
    from mezzotint.families.categories import frequency_variance as frequency_variance
    from mezzotint.families.hashing import HashedDomain as HashedDomain
    from mezzotint.families.hashing import hashed as hashed
    from mezzotint.families.noise import IntegerNoise as IntegerNoise
    from mezzotint.families.noise import discrete_gaussian as discrete_gaussian
    from mezzotint.families.noise import discrete_laplace as discrete_laplace
    from mezzotint.families.noise import skellam as skellam
    from mezzotint.families.numeric import PoissonBinomial as PoissonBinomial
    from mezzotint.families.numeric import erm as erm
    from mezzotint.families.numeric import pbm as pbm
    from mezzotint.families.numeric import pbm_exact as pbm_exact
    from mezzotint.families.numeric import rqm as rqm
    from mezzotint.families.numeric import selection as selection
    from mezzotint.families.response import k_randomized_response as k_randomized_response
    from mezzotint.families.response import randomized_response as randomized_response
    from mezzotint.families.response import square_wave as square_wave
    from mezzotint.families.response import stochastic_rounding as stochastic_rounding

__getattr__, __dir__ = on_demand(__name__, __file__)
