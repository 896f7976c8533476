"""Differentially private randomized quantization: few bits, unbiased, with certificates a machine can check."""

from typing import TYPE_CHECKING

from mezzotint.core.errors import FileFormatError as FileFormatError
from mezzotint.core.errors import InfeasibleError as InfeasibleError
from mezzotint.core.errors import MezzotintError as MezzotintError
from mezzotint.core.errors import ParameterError as ParameterError
from mezzotint.core.lazy import LazyModule
from mezzotint.core.mechanism import Mechanism as Mechanism

if TYPE_CHECKING:
    from mezzotint import collect as collect
    from mezzotint import design as design
    from mezzotint import families as families
    from mezzotint import kernel as kernel
    from mezzotint import privacy as privacy
    from mezzotint import smoothed as smoothed
    from mezzotint import vectors as vectors
else:
    # The rooms stand on scipy, numba, clarabel...: each is imported when first used.
    collect = LazyModule("mezzotint.collect")
    design = LazyModule("mezzotint.design")
    families = LazyModule("mezzotint.families")
    kernel = LazyModule("mezzotint.kernel")
    privacy = LazyModule("mezzotint.privacy")
    smoothed = LazyModule("mezzotint.smoothed")
    vectors = LazyModule("mezzotint.vectors")

__version__ = "0.1.0"
