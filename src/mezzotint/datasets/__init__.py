"""Readers of real data: what ships with the package, and the standard files of data sets that a user brings."""

from typing import TYPE_CHECKING

from mezzotint.core import on_demand

if TYPE_CHECKING:
    from mezzotint.datasets.readers import AIR_TIME as AIR_TIME
    from mezzotint.datasets.readers import CARRIER as CARRIER
    from mezzotint.datasets.readers import CLIENT_DATASETS as CLIENT_DATASETS
    from mezzotint.datasets.readers import ORIGIN as ORIGIN
    from mezzotint.datasets.readers import Dataset as Dataset
    from mezzotint.datasets.readers import Election as Election
    from mezzotint.datasets.readers import Federation as Federation
    from mezzotint.datasets.readers import breast_cancer as breast_cancer
    from mezzotint.datasets.readers import dirichlet_split as dirichlet_split
    from mezzotint.datasets.readers import district_elections as district_elections
    from mezzotint.datasets.readers import flights as flights
    from mezzotint.datasets.readers import idx_folder as idx_folder
    from mezzotint.datasets.readers import image_folder as image_folder
    from mezzotint.datasets.readers import load_federation as load_federation
    from mezzotint.datasets.readers import national_elections as national_elections
    from mezzotint.datasets.readers import party_shares as party_shares
    from mezzotint.datasets.readers import read_elections as read_elections
    from mezzotint.datasets.readers import read_idx as read_idx
    from mezzotint.datasets.readers import read_image_set as read_image_set
    from mezzotint.datasets.readers import state_elections as state_elections
    from mezzotint.datasets.readers import table_file as table_file

__getattr__, __dir__ = on_demand(__name__, __file__)
