"""RQP-SGD accounted soundly: quantized weights, Gaussian noise, random replacement. Works without torch."""

from mezzotint.training.rqp.accounting import PublishedValue as PublishedValue
from mezzotint.training.rqp.accounting import RQPSettings as RQPSettings
from mezzotint.training.rqp.accounting import Steps as Steps
from mezzotint.training.rqp.accounting import epsilon as epsilon
from mezzotint.training.rqp.accounting import from_event as from_event
from mezzotint.training.rqp.accounting import noise_multiplier as noise_multiplier
from mezzotint.training.rqp.accounting import published_epsilon as published_epsilon
from mezzotint.training.rqp.accounting import published_q as published_q
from mezzotint.training.rqp.accounting import published_utility_bound as published_utility_bound
from mezzotint.training.rqp.accounting import pure_epsilon as pure_epsilon
from mezzotint.training.rqp.accounting import to_event as to_event
from mezzotint.training.rqp.accounting import training_release as training_release
from mezzotint.training.rqp.accounting import utility_bound as utility_bound
from mezzotint.training.rqp.phases import Phase as Phase
from mezzotint.training.rqp.phases import Poisson as Poisson
from mezzotint.training.rqp.phases import WithReplacement as WithReplacement
from mezzotint.training.rqp.phases import contraction as contraction
from mezzotint.training.rqp.phases import table_contraction as table_contraction
