"""Modules outside the package: scripts of docs/ and tools/."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def load(path: Path) -> ModuleType:
    """The module in this file."""
    spec = importlib.util.spec_from_file_location(f"of_{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look theirs up
    spec.loader.exec_module(module)
    return module
