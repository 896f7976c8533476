"""Design: a problem in, the provably best table out; and the papers' own designs beside it."""

from typing import TYPE_CHECKING

from mezzotint.core import on_demand

if TYPE_CHECKING:
    from mezzotint.design.calibration import calibrate as calibrate
    from mezzotint.design.comparison import Row as Row, compare as compare, tradeoff as tradeoff
    from mezzotint.design.distribution_shapes import (
        for_shape as for_shape,
        interpolated as interpolated,
        shape_error as shape_error,
    )
    from mezzotint.design.levels import UnboundedLevelsWarning as UnboundedLevelsWarning
    from mezzotint.design.limits import limit as limit
    from mezzotint.design.minimum_variance import imvu as imvu, mvu as mvu
    from mezzotint.design.optimum import optimal as optimal
    from mezzotint.design.pair_selection import optm as optm
    from mezzotint.design.problem import DesignResult as DesignResult
    from mezzotint.design.vector_design import vector as vector
    from mezzotint.privacy.tradeoffs import (
        metric_epsilon as metric_epsilon,
        vector_epsilon as vector_epsilon,
    )

__getattr__, __dir__ = on_demand(__name__, __file__)
