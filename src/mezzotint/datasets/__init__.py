"""Readers of real data: what ships with the package, and the standard files of data sets that a
user brings.
"""

from typing import TYPE_CHECKING

from mezzotint.core import on_demand

if TYPE_CHECKING:
    from mezzotint.datasets.federations import CLIENT_DATASETS as CLIENT_DATASETS
    from mezzotint.datasets.federations import Federation as Federation
    from mezzotint.datasets.federations import dirichlet_split as dirichlet_split
    from mezzotint.datasets.federations import load_federation as load_federation
    from mezzotint.datasets.labelled import AIR_TIME as AIR_TIME
    from mezzotint.datasets.labelled import CARRIER as CARRIER
    from mezzotint.datasets.labelled import ORIGIN as ORIGIN
    from mezzotint.datasets.labelled import Dataset as Dataset
    from mezzotint.datasets.labelled import Features as Features
    from mezzotint.datasets.labelled import Labels as Labels
    from mezzotint.datasets.labelled import breast_cancer as breast_cancer
    from mezzotint.datasets.labelled import flights as flights
    from mezzotint.datasets.labelled import idx_folder as idx_folder
    from mezzotint.datasets.labelled import image_folder as image_folder
    from mezzotint.datasets.labelled import read_idx as read_idx
    from mezzotint.datasets.labelled import read_image_set as read_image_set
    from mezzotint.datasets.labelled import table_file as table_file
    from mezzotint.datasets.votes import Election as Election
    from mezzotint.datasets.votes import district_elections as district_elections
    from mezzotint.datasets.votes import national_elections as national_elections
    from mezzotint.datasets.votes import party_shares as party_shares
    from mezzotint.datasets.votes import read_elections as read_elections
    from mezzotint.datasets.votes import state_elections as state_elections

__getattr__, __dir__ = on_demand(__name__, __file__)
