"""Design: a problem in, the provably best table out; and the papers' own designs beside it."""

from typing import TYPE_CHECKING

from mezzotint.core import on_demand

if TYPE_CHECKING:
    from mezzotint.design.calibration import calibrate as calibrate
    from mezzotint.design.cdf import for_shape as for_shape
    from mezzotint.design.cdf import interpolated as interpolated
    from mezzotint.design.cdf import shape_error as shape_error
    from mezzotint.design.levels import UnboundedLevelsWarning as UnboundedLevelsWarning
    from mezzotint.design.limits import limit as limit
    from mezzotint.design.optimum import Row as Row
    from mezzotint.design.optimum import cache as cache
    from mezzotint.design.optimum import clear_cache as clear_cache
    from mezzotint.design.optimum import compare as compare
    from mezzotint.design.optimum import imvu as imvu
    from mezzotint.design.optimum import mvu as mvu
    from mezzotint.design.optimum import optimal as optimal
    from mezzotint.design.optimum import tradeoff as tradeoff
    from mezzotint.design.optimum import vector as vector
    from mezzotint.design.pair_selection import optm as optm
    from mezzotint.design.problem import DesignResult as DesignResult
    from mezzotint.privacy.tradeoffs import metric_epsilon as metric_epsilon
    from mezzotint.privacy.tradeoffs import vector_epsilon as vector_epsilon

__getattr__, __dir__ = on_demand(__name__, __file__)
