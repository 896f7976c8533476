"""Closed forms: parameters in, a `Mechanism` out. Nothing here is trusted with privacy: the table's integers are."""

from mezzotint.families.erm import erm as erm
from mezzotint.families.erm import published_erm_epsilon as published_erm_epsilon
from mezzotint.families.erm import published_erm_error as published_erm_error
from mezzotint.families.response import k_randomized_response as k_randomized_response
from mezzotint.families.response import randomized_response as randomized_response
from mezzotint.families.response import stochastic_rounding as stochastic_rounding
from mezzotint.families.rqm import published_rqm_epsilon as published_rqm_epsilon
from mezzotint.families.rqm import rqm as rqm
from mezzotint.families.selection import biased_selection as biased_selection
from mezzotint.families.selection import selection as selection
