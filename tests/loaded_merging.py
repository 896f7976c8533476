"""Importing this loads the compiled loop that merges people: for processes that fork, and fork again."""

from __future__ import annotations

import numpy as np

from mezzotint.privacy.sorted_records import merged_sums

EMPTY = np.zeros(0, dtype=np.uint64)

merged_sums([(EMPTY, EMPTY, EMPTY)] * 2)
