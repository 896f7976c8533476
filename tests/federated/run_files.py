"""Run files for tests of `mezzotint federate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def run_file(folder: Path, *, model: str = "softmax", **tables: dict[str, Any]) -> Path:
    """A file in the folder, of these tables; without a mechanism, one without noise in 4 bits."""
    tables.setdefault("mechanism", {"kind": "table", "family": "quantize"})
    lines = [f"model = {json.dumps(model)}"]
    for name, values in tables.items():
        lines.append(f"[{name}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    path = folder / "run.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def federate(folder: Path, *options: str, **tables: Any) -> list[str]:
    """The words of a command."""
    return ["federate", str(run_file(folder, **tables)), *options]
