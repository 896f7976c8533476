"""From clients' real vectors to integers that are summed, and from the sum back to the mean."""

from mezzotint.federated.encoding.base import Encoding as Encoding
from mezzotint.federated.encoding.base import Integers as Integers
from mezzotint.federated.encoding.base import Vector as Vector
from mezzotint.federated.encoding.base import canonical as canonical
from mezzotint.federated.encoding.files import encoding_from as encoding_from
from mezzotint.federated.encoding.files import load_encoding as load_encoding
from mezzotint.federated.encoding.files import packed as packed
from mezzotint.federated.encoding.files import unpacked as unpacked
from mezzotint.federated.encoding.fixed import FixedPointEncoding as FixedPointEncoding
from mezzotint.federated.encoding.noise import NoiseEncoding as NoiseEncoding
from mezzotint.federated.encoding.noise import noise_encoding as noise_encoding
from mezzotint.federated.encoding.table import TableEncoding as TableEncoding
