"""DP-SGD with quantized gradients, and models whose weights stay quantized; soundly accounted.

`rqp`, `packed` and `projection` need nothing but this package; the rest needs the extra: pip install
mezzotint[torch].
"""

import importlib
from typing import TYPE_CHECKING, Any

from mezzotint.core.lazy import LazyModule

if TYPE_CHECKING:
    from mezzotint.training import audit as audit
    from mezzotint.training import batches as batches
    from mezzotint.training import checkpoint as checkpoint
    from mezzotint.training import methods as methods
    from mezzotint.training import models as models
    from mezzotint.training import optimizers as optimizers
    from mezzotint.training import packed as packed
    from mezzotint.training import projection as projection
    from mezzotint.training import rqp as rqp
    from mezzotint.training import trainer as trainer
    from mezzotint.training.private import make_private as make_private
else:
    audit = LazyModule("mezzotint.training.audit")
    batches = LazyModule("mezzotint.training.batches")
    checkpoint = LazyModule("mezzotint.training.checkpoint")
    methods = LazyModule("mezzotint.training.methods")
    models = LazyModule("mezzotint.training.models")
    optimizers = LazyModule("mezzotint.training.optimizers")
    packed = LazyModule("mezzotint.training.packed")
    projection = LazyModule("mezzotint.training.projection")
    rqp = LazyModule("mezzotint.training.rqp")
    trainer = LazyModule("mezzotint.training.trainer")

    def __getattr__(name: str) -> Any:
        if name == "make_private":
            return importlib.import_module("mezzotint.training.private").make_private
        raise AttributeError(name)
