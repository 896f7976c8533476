"""Design: a problem in, the provably best table out; and the papers' own designs beside it."""

from mezzotint.design.limit import limit as limit
from mezzotint.design.metric import metric_epsilon as metric_epsilon
from mezzotint.design.optimal import optimal as optimal
from mezzotint.design.result import DesignResult as DesignResult
