"""Files that are either whole or absent."""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from mezzotint.core.errors import ParameterError


def refuse_existing(path: str | os.PathLike[str], *, overwrite: bool = False, parameter: str = "out") -> Path:
    """The path, checked: its folder exists, and nothing is there yet unless `overwrite`."""
    target = Path(path)
    if not target.parent.is_dir():
        raise ParameterError(parameter, str(target), f"folder {str(target.parent)!r} does not exist; create it first")
    if target.is_dir():
        raise ParameterError(parameter, str(target), "is a folder; name a file")
    if target.exists() and not overwrite:
        raise ParameterError(parameter, str(target), "exists already; name another file or allow overwriting")
    return target


@contextmanager
def replacing(path: str | os.PathLike[str], *, overwrite: bool = False, parameter: str = "out") -> Generator[Path]:
    """A temporary path beside `path`; renamed to it when the block ends well, removed when it does not.

    Guarantees: a reader sees the old file or the whole new one, never a part; a kill leaves at most a hidden
    temporary file, never a half-written `path`.
    """
    target = refuse_existing(path, overwrite=overwrite, parameter=parameter)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.partial")
    try:
        yield temporary
        with temporary.open("rb") as handle:
            os.fsync(handle.fileno())
        refuse_existing(target, overwrite=overwrite, parameter=parameter)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
