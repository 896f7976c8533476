"""The demonstration data: minutes in the air of New York's 2013 departures (CC0)."""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib import resources
from pathlib import Path

AIR_TIME = "air_time"
"""Minutes, int16, missing values included; 336,776 rows."""


def flights() -> AbstractContextManager[Path]:
    """The Parquet file as a path, for a `with` block; its licence stands beside it."""
    return resources.as_file(resources.files("mezzotint").joinpath("data", "flights", "air_time.parquet"))
