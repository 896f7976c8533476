"""Readers of real data: what ships with the package, and the standard files of data sets that a
user brings.
"""

from typing import TYPE_CHECKING

from mezzotint.core import on_demand

if TYPE_CHECKING:
    from mezzotint.datasets.federations import (
        CLIENT_DATASETS as CLIENT_DATASETS,
        Federation as Federation,
        dirichlet_split as dirichlet_split,
        load_federation as load_federation,
    )
    from mezzotint.datasets.labelled import (
        AIR_TIME as AIR_TIME,
        CARRIER as CARRIER,
        ORIGIN as ORIGIN,
        Dataset as Dataset,
        Features as Features,
        Labels as Labels,
        breast_cancer as breast_cancer,
        flights as flights,
        idx_folder as idx_folder,
        image_folder as image_folder,
        read_idx as read_idx,
        read_image_set as read_image_set,
        table_file as table_file,
    )
    from mezzotint.datasets.votes import (
        Election as Election,
        district_elections as district_elections,
        national_elections as national_elections,
        party_shares as party_shares,
        read_elections as read_elections,
        state_elections as state_elections,
    )

__getattr__, __dir__ = on_demand(__name__, __file__)
