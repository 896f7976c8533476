"""Private vectors: clipping, rotation, tables and integer noise behind one interface, and advice
which to use."""

from typing import TYPE_CHECKING

from mezzotint.core import on_demand

if TYPE_CHECKING:
    from mezzotint.vectors.advice import (
        Advice as Advice,
        Option as Option,
        advise as advise,
        one_bit as one_bit,
    )
    from mezzotint.vectors.calibration import Family as Family
    from mezzotint.vectors.gaussian import GaussianScheme as GaussianScheme
    from mezzotint.vectors.ranked import RankedCodebook as RankedCodebook
    from mezzotint.vectors.ranked_design import ranked_codebook as ranked_codebook
    from mezzotint.vectors.ranked_session import RankedSession as RankedSession
    from mezzotint.vectors.rotation import Rotation as Rotation, clip as clip
    from mezzotint.vectors.seeds import own_seeds as own_seeds, round_seeds as round_seeds
    from mezzotint.vectors.setting import Setting as Setting
    from mezzotint.vectors.tables import TableScheme as TableScheme, VectorScheme as VectorScheme

__getattr__, __dir__ = on_demand(__name__, __file__)
