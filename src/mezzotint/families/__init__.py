"""Closed forms: parameters in, a `Mechanism` out. Nothing here is trusted with privacy: the table's
integers are.
"""

from typing import TYPE_CHECKING

from mezzotint.core import on_demand

if TYPE_CHECKING:
    from mezzotint.families.categories import (
        categorical as categorical,
        frequency_variance as frequency_variance,
    )
    from mezzotint.families.hashing import HashedDomain as HashedDomain, hashed as hashed
    from mezzotint.families.noise import (
        IntegerNoise as IntegerNoise,
        discrete_gaussian as discrete_gaussian,
        discrete_laplace as discrete_laplace,
        skellam as skellam,
    )
    from mezzotint.families.numeric import (
        PoissonBinomial as PoissonBinomial,
        erm as erm,
        pbm as pbm,
        pbm_exact as pbm_exact,
        rqm as rqm,
        selection as selection,
    )
    from mezzotint.families.response import (
        k_randomized_response as k_randomized_response,
        randomized_response as randomized_response,
        square_wave as square_wave,
        stochastic_rounding as stochastic_rounding,
    )

__getattr__, __dir__ = on_demand(__name__, __file__)
