"""DP-SGD on integers, and models whose weights stay quantized; soundly accounted.

`rqp`, `sampling`, `packed` and `projection` need nothing but this package; the rest needs the
extra: pip install '.[torch]' in the checkout.
"""

from typing import TYPE_CHECKING

from mezzotint.core import on_demand

if TYPE_CHECKING:
    from mezzotint.training import accountant as accountant
    from mezzotint.training import audit as audit
    from mezzotint.training import batches as batches
    from mezzotint.training import clipped as clipped
    from mezzotint.training import contraction as contraction
    from mezzotint.training import engine as engine
    from mezzotint.training import gradients as gradients
    from mezzotint.training import master as master
    from mezzotint.training import models as models
    from mezzotint.training import noise as noise
    from mezzotint.training import optimizers as optimizers
    from mezzotint.training import packed as packed
    from mezzotint.training import positions as positions
    from mezzotint.training import private as private
    from mezzotint.training import probe as probe
    from mezzotint.training import projection as projection
    from mezzotint.training import proposals as proposals
    from mezzotint.training import records as records
    from mezzotint.training import rqp as rqp
    from mezzotint.training import run_settings as run_settings
    from mezzotint.training import sampling as sampling
    from mezzotint.training import splitting as splitting
    from mezzotint.training import trainer as trainer
    from mezzotint.training.engine import PrivacyEngine as PrivacyEngine
    from mezzotint.training.master import quantize_aware as quantize_aware
    from mezzotint.training.noise import Banded as Banded
    from mezzotint.training.noise import Fresh as Fresh
    from mezzotint.training.positions import records_first as records_first
    from mezzotint.training.private import make_private as make_private
    from mezzotint.training.probe import check_records as check_records

__getattr__, __dir__ = on_demand(__name__, __file__, extra="torch")
