"""Where a stored result came from: which sources ran, on which data, with which libraries; and whether it still holds."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import final

import mezzotint
from mezzotint.core.records import JsonObject
from mezzotint.papers.reproduction import Part

SOURCE = Path(mezzotint.__file__).parent
SCAFFOLD = ("papers/catalogue.py", "papers/reproduction.py")
"""Sources that find and hold results and compute none."""
PLACES = ("data", "keep")
"""Settings that say where files lie on a machine: they are not kept."""
LIBRARIES = ("numpy", "scipy", "numba", "torch", "scikit-learn")
DATA_ENDINGS = (".npz", ".gz", ".csv", ".parquet", ".png")
_DIGITS = 16


def source_hash(path: Path) -> str:
    """Hash of a file's syntax tree without docstrings: what it does, whatever is said about it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            continue
        node.body = [part for part in node.body if not _is_text(part)] or [ast.Pass()]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:_DIGITS]


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


@final
@dataclass(kw_only=True)
class Trace:
    """Files of this package that ran, and files of data that were read, within `traced`."""

    sources: set[Path] = field(default_factory=set)
    data: set[Path] = field(default_factory=set)


_traces: list[Trace] = []


def _on_open(event: str, arguments: tuple[object, ...]) -> None:
    """Audit hook: notes the data files that are opened; hooks cannot be removed, so it stays and does little."""
    if event != "open" or not _traces or not isinstance(arguments[0], str):
        return
    path = Path(arguments[0])
    if path.suffix in DATA_ENDINGS and path.is_file():
        _traces[-1].data.add(path)


@contextmanager
def traced() -> Iterator[Trace]:
    """Notes what runs and what is read inside the block. Compiled kernels do not show: their modules are added."""
    trace = Trace()
    seen: set[str] = set()
    prefix = str(SOURCE)

    def note(frame: FrameType, event: str, argument: object) -> None:
        name = frame.f_code.co_filename
        if name not in seen:
            seen.add(name)
            if name.startswith(prefix):
                trace.sources.add(Path(name))

    if not getattr(sys, "_mezzotint_audited", False):
        sys.addaudithook(_on_open)
        sys._mezzotint_audited = True  # type: ignore[attr-defined]
    _traces.append(trace)
    sys.setprofile(note)
    threading.setprofile(note)
    try:
        yield trace
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        _traces.pop()
        trace.sources |= _compiled_of(trace.sources)


def _compiled_of(sources: set[Path]) -> set[Path]:
    """Files whose compiled functions the files that ran hold: hooks do not see these run."""
    loaded = {
        module.__name__: Path(module.__file__)
        for module in list(sys.modules.values())
        if module.__name__.startswith("mezzotint.") and getattr(module, "__file__", None)
    }
    found: set[Path] = set()
    for name, path in loaded.items():
        if path not in sources:
            continue
        for value in vars(sys.modules[name]).values():
            owner = getattr(getattr(value, "py_func", None), "__module__", None)
            if owner in loaded:
                found.add(loaded[owner])
    return found


def record(trace: Trace, settings: Mapping[str, object], seconds: float) -> JsonObject:
    """What a stored result keeps about itself: sources, data, settings, libraries, platform, time."""
    return {
        "settings": {name: str(value) for name, value in settings.items() if name not in PLACES},
        "sources": {
            str(path.relative_to(SOURCE)): source_hash(path)
            for path in sorted(trace.sources)
            if str(path.relative_to(SOURCE)) not in SCAFFOLD
        },
        "data": {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()[:_DIGITS]
            for path in sorted(trace.data)
            if SOURCE not in path.parents
        },
        "libraries": {name: _version(name) for name in LIBRARIES},
        "platform": f"Python {platform.python_version()}, {platform.system()} {platform.machine()}",
        "seconds": round(seconds),
        "computed": time.strftime("%Y-%m-%d", time.gmtime()),
        "version": mezzotint.__version__,
    }


def _version(library: str) -> str | None:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


def changed_sources(made: JsonObject) -> tuple[str, ...]:
    """Sources that ran for a stored result and do something else today, or are gone."""
    changed: list[str] = []
    for name, stored in made["sources"].items():
        path = SOURCE / name
        if not path.is_file() or source_hash(path) != stored:
            changed.append(name)
    return tuple(changed)


@final
@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a check of stored results found.

    Arguments:
        problems: differences between what is stored and what is computed now.
        checked: names of the parts that were computed; seconds: how long it took.
    """

    problems: tuple[str, ...]
    checked: tuple[str, ...]
    seconds: float


def check(
    name: str,
    stored: JsonObject,
    parts: Sequence[Part],
    *,
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> Verdict:
    """Recomputes parts of a stored result: the cheapest first, then others by turns while the time lasts.

    Arguments:
        name: of the reproduction; stored: its rows, and its provenance under "made".
        parts: of the reproduction, those that can run here.
        seconds: when no further part is begun; the cheapest is computed in any case.

    Returns: the differences, and what was computed.
    """
    begun = clock()
    cheap = sorted(parts, key=lambda part: part.seconds)
    turn = int(time.time() // 86_400) % max(1, len(cheap))
    order = [*cheap[:1], *cheap[1:][turn:], *cheap[1:][:turn]]
    problems: list[str] = []
    checked: list[str] = []
    for part in order:
        if checked and clock() - begun + part.seconds > seconds:
            continue
        problems += [f"{name}: {difference}" for difference in part.differences(stored["rows"])]
        checked.append(part.key)
    return Verdict(problems=tuple(problems), checked=tuple(checked), seconds=clock() - begun)
