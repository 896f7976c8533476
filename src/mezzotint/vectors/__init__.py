"""Private vectors: clipping, rotation, tables and integer noise behind one interface, and advice which to use."""

from mezzotint.vectors.clipping import clip as clip
from mezzotint.vectors.noise import summed_noise as summed_noise
from mezzotint.vectors.rotation import Rotation as Rotation
from mezzotint.vectors.scheme import NoiseScheme as NoiseScheme
from mezzotint.vectors.scheme import TableScheme as TableScheme
from mezzotint.vectors.scheme import VectorScheme as VectorScheme
