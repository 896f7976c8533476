"""DP-SGD on integers, and models whose weights stay quantized; soundly accounted.

`rqp`, `sampling`, `packed` and `projection` need nothing but this package; the rest needs the
extra: pip install '.[torch]' in the checkout.
"""

from typing import TYPE_CHECKING

from mezzotint.core import on_demand

if TYPE_CHECKING:
    from mezzotint.training import (
        accountant as accountant,
        audit as audit,
        batches as batches,
        clipped as clipped,
        contraction as contraction,
        engine as engine,
        gradients as gradients,
        master as master,
        models as models,
        noise as noise,
        optimizers as optimizers,
        packed as packed,
        positions as positions,
        private as private,
        probe as probe,
        projection as projection,
        proposals as proposals,
        records as records,
        rqp as rqp,
        run_settings as run_settings,
        sampling as sampling,
        splitting as splitting,
        trainer as trainer,
    )
    from mezzotint.training.engine import PrivacyEngine as PrivacyEngine
    from mezzotint.training.master import quantize_aware as quantize_aware
    from mezzotint.training.noise import (
        Banded as Banded,
        Fresh as Fresh,
    )
    from mezzotint.training.positions import records_first as records_first
    from mezzotint.training.private import make_private as make_private
    from mezzotint.training.probe import check_records as check_records

__getattr__, __dir__ = on_demand(__name__, __file__, extra="torch")
