"""numba's disk cache does not notice edits of files that a kernel calls into: drop what is older than any kernel."""

from __future__ import annotations

from pathlib import Path

KERNELS = Path(__file__).resolve().parents[2] / "src" / "mezzotint" / "smoothed" / "kernels"


def _drop_stale_kernels() -> None:
    newest = max(path.stat().st_mtime for path in KERNELS.glob("*.py"))
    for cached in (KERNELS / "__pycache__").glob("*.nb[ci]"):
        if cached.stat().st_mtime < newest:
            cached.unlink(missing_ok=True)


_drop_stale_kernels()
