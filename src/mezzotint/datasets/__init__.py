"""Readers of real data: what ships with the package, and the standard files of data sets that a user brings."""

from mezzotint.core import shown as _shown
from mezzotint.datasets.labelled import CLIENT_DATASETS as CLIENT_DATASETS
from mezzotint.datasets.labelled import Dataset as Dataset
from mezzotint.datasets.labelled import Federation as Federation
from mezzotint.datasets.labelled import breast_cancer as breast_cancer
from mezzotint.datasets.labelled import dirichlet_split as dirichlet_split
from mezzotint.datasets.labelled import idx_folder as idx_folder
from mezzotint.datasets.labelled import image_folder as image_folder
from mezzotint.datasets.labelled import load_federation as load_federation
from mezzotint.datasets.labelled import read_idx as read_idx
from mezzotint.datasets.labelled import read_image_set as read_image_set
from mezzotint.datasets.labelled import table_file as table_file
from mezzotint.datasets.shipped import AIR_TIME as AIR_TIME
from mezzotint.datasets.shipped import CARRIER as CARRIER
from mezzotint.datasets.shipped import ORIGIN as ORIGIN
from mezzotint.datasets.shipped import Election as Election
from mezzotint.datasets.shipped import district_elections as district_elections
from mezzotint.datasets.shipped import flights as flights
from mezzotint.datasets.shipped import national_elections as national_elections
from mezzotint.datasets.shipped import party_shares as party_shares
from mezzotint.datasets.shipped import read_elections as read_elections
from mezzotint.datasets.shipped import state_elections as state_elections

__dir__ = _shown(globals())
