"""The papers that this package stands on: their tables and figures beside our numbers, and their
formulas as printed.

Nothing here is needed to design, privatize or account; nothing but the command line imports it.
"""

from typing import TYPE_CHECKING

from mezzotint.core import on_demand

if TYPE_CHECKING:
    from mezzotint.papers import (
        catalogue as catalogue,
        errata as errata,
        optm_programs as optm_programs,
        optm_tables as optm_tables,
        reproduction as reproduction,
        rqm as rqm,
        rqm_training as rqm_training,
        rqp as rqp,
        rqp_formulas as rqp_formulas,
        rqp_pure as rqp_pure,
        smoothed_tables as smoothed_tables,
    )
    from mezzotint.papers.biased import biased_selection as biased_selection
    from mezzotint.papers.exact_laws import (
        RandomizedQuantization as RandomizedQuantization,
        rqm_exact as rqm_exact,
    )
    from mezzotint.papers.optm_programs import (
        optm_as_printed as optm_as_printed,
        optm_exact as optm_exact,
        optm_one_ratio as optm_one_ratio,
    )
    from mezzotint.papers.published import (
        published_discrete_gaussian_renyi as published_discrete_gaussian_renyi,
        published_discrete_laplace_epsilon as published_discrete_laplace_epsilon,
        published_erm_epsilon as published_erm_epsilon,
        published_erm_error as published_erm_error,
        published_pbm_mse as published_pbm_mse,
        published_rqm_epsilon as published_rqm_epsilon,
        published_skellam_renyi as published_skellam_renyi,
    )

__getattr__, __dir__ = on_demand(__name__, __file__, extra="torch")
