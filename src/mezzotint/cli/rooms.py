"""The rooms that verbs call, each imported when a verb first uses it: `mezzotint --help` needs none of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mezzotint.core.lazy import LazyModule

if TYPE_CHECKING:
    from mezzotint import collect as collect
    from mezzotint import datasets as datasets
    from mezzotint import design as design
    from mezzotint import families as families
    from mezzotint import kernel as kernel
    from mezzotint import privacy as privacy
    from mezzotint import smoothed as smoothed
    from mezzotint import training as training
    from mezzotint import vectors as vectors
else:
    collect = LazyModule("mezzotint.collect")
    datasets = LazyModule("mezzotint.datasets")
    design = LazyModule("mezzotint.design")
    families = LazyModule("mezzotint.families")
    kernel = LazyModule("mezzotint.kernel")
    privacy = LazyModule("mezzotint.privacy")
    smoothed = LazyModule("mezzotint.smoothed")
    training = LazyModule("mezzotint.training")
    vectors = LazyModule("mezzotint.vectors")
