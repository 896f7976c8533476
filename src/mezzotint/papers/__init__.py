"""The papers that this package stands on: their tables and figures beside our numbers, and their formulas as printed.

Nothing here is needed to design, privatize or account; nothing but the command line imports it.
"""

from typing import TYPE_CHECKING

from mezzotint.core import on_demand

if TYPE_CHECKING:
    from mezzotint.papers import errata as errata
    from mezzotint.papers import optm_programs as optm_programs
    from mezzotint.papers import optm_tables as optm_tables
    from mezzotint.papers import reproduction as reproduction
    from mezzotint.papers import rqm as rqm
    from mezzotint.papers import rqm_training as rqm_training
    from mezzotint.papers import rqp as rqp
    from mezzotint.papers import smoothed_tables as smoothed_tables
    from mezzotint.papers.exact_laws import RandomizedQuantization as RandomizedQuantization
    from mezzotint.papers.exact_laws import rqm_exact as rqm_exact
    from mezzotint.papers.optm_programs import optm_as_printed as optm_as_printed
    from mezzotint.papers.optm_programs import optm_exact as optm_exact
    from mezzotint.papers.optm_programs import optm_one_ratio as optm_one_ratio

__getattr__, __dir__ = on_demand(__name__, __file__, extra="torch")
