"""The papers that this package stands on: their tables and figures beside our numbers, and their
formulas as printed.

Nothing here is needed to design, privatize or account; nothing but the command line imports it.
"""

from typing import TYPE_CHECKING

from mezzotint.core import on_demand

if TYPE_CHECKING:
    from mezzotint.papers import catalogue as catalogue
    from mezzotint.papers import errata as errata
    from mezzotint.papers import optm_programs as optm_programs
    from mezzotint.papers import optm_tables as optm_tables
    from mezzotint.papers import reproduction as reproduction
    from mezzotint.papers import rqm as rqm
    from mezzotint.papers import rqm_training as rqm_training
    from mezzotint.papers import rqp as rqp
    from mezzotint.papers import rqp_formulas as rqp_formulas
    from mezzotint.papers import rqp_pure as rqp_pure
    from mezzotint.papers import smoothed_tables as smoothed_tables
    from mezzotint.papers.biased import biased_selection as biased_selection
    from mezzotint.papers.exact_laws import RandomizedQuantization as RandomizedQuantization
    from mezzotint.papers.exact_laws import rqm_exact as rqm_exact
    from mezzotint.papers.optm_programs import optm_as_printed as optm_as_printed
    from mezzotint.papers.optm_programs import optm_exact as optm_exact
    from mezzotint.papers.optm_programs import optm_one_ratio as optm_one_ratio
    from mezzotint.papers.published import (
        published_discrete_gaussian_renyi as published_discrete_gaussian_renyi,
    )
    from mezzotint.papers.published import (
        published_discrete_laplace_epsilon as published_discrete_laplace_epsilon,
    )
    from mezzotint.papers.published import published_erm_epsilon as published_erm_epsilon
    from mezzotint.papers.published import published_erm_error as published_erm_error
    from mezzotint.papers.published import published_pbm_mse as published_pbm_mse
    from mezzotint.papers.published import published_rqm_epsilon as published_rqm_epsilon
    from mezzotint.papers.published import published_skellam_renyi as published_skellam_renyi

__getattr__, __dir__ = on_demand(__name__, __file__, extra="torch")
