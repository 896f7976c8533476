"""Mutation of the rooms that promise: flips comparisons and drops error terms, and lists what no test notices.

    python tools/mutate.py map tests/privacy tests/kernel tests/laws      which test runs which line (once; resumable)
    python tools/mutate.py run src/mezzotint/privacy --share 0.2          mutants against the tests of their lines
    python tools/mutate.py report                                         survivors, reasons from tools/mutants.toml

Mutants: each comparison with its boundary moved and negated; each factor 1 +- .. and each summand that is made of
rounding constants dropped; nextafter, ceil and the like dropped or turned round; +-1 dropped; max and min swapped.

One process imports everything once and forks for every mutant. The fork puts the mutant's code into the functions that
are already there, wherever they were imported to, and runs the tests of the line, fastest first, until one fails.
What runs at import time (constants, defaults of arguments) is not mutated.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import hashlib
import inspect
import json
import os
import signal
import sys
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
STORE = ROOT / ".mutation"
MAP, RESULTS = STORE / "map.jsonl", STORE / "results.jsonl"
REASONS = ROOT / "tools" / "mutants.toml"
OPTIONS = ["-q", "-x", "-m", "not slow", "-p", "no:xdist", "-p", "no:randomly", "-W", "ignore::pytest.PytestWarning"]

OUTCOMES = {
    0: "survived", 1: "killed", 2: "killed (at collection)", None: "killed (too slow)", 8: "no test", 9: "not applied",
}  # fmt: skip
"""What pytest's exit status says; the last two are this script's own."""

BOUNDARY = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
NEGATED = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
}  # fmt: skip
SWAPPED = {
    "max": "min",
    "min": "max",
    "maximum": "minimum",
    "minimum": "maximum",
    "argmax": "argmin",
    "argmin": "argmax",
}
ROUNDED = {"nextafter", "float_above", "rounded_up", "_upwards", "_raised"}
TURNED = {"ceil": "floor", "floor": "ceil", "ROUND_CEILING": "ROUND_FLOOR"}
CONSTANTS = {"UNIT", "_UP", "TOLERANCE", "slack", "_slack", "EPS", "ULP"}


@dataclass(frozen=True)
class Mutant:
    """One change of one function; `name` stays the same when lines move."""

    name: str
    file: str
    line: int
    function: str
    kind: str
    before: str
    after: str
    start: int
    end: int


# Making mutants -------------------------------------------------------------------------------------------------------


def _is_error_term(node: ast.AST) -> bool:
    """Made of rounding constants and numbers near 0: the term that pays for rounding."""
    names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    powers = [
        inner
        for inner in ast.walk(node)
        if isinstance(inner, ast.BinOp)
        and isinstance(inner.op, ast.Pow)
        and isinstance(inner.left, ast.Constant)
        and isinstance(inner.right, ast.UnaryOp)
    ]
    return bool(names & CONSTANTS) or bool(powers)


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """(kind, replacement) of one expression."""
    if isinstance(node, ast.Compare):
        for table, kind in ((BOUNDARY, "boundary"), (NEGATED, "negated")):
            for i, operator in enumerate(node.ops):
                if type(operator) in table:
                    ops = [*node.ops]
                    ops[i] = table[type(operator)]()
                    yield kind, ast.Compare(node.left, ops, node.comparators)
    elif isinstance(node, ast.BinOp):
        if isinstance(node.op, (ast.Add, ast.Sub)):
            one = isinstance(node.right, ast.Constant) and node.right.value == 1
            if one or _is_error_term(node.right):
                yield "plus one" if one else "error term", node.left
        if isinstance(node.op, (ast.Mult, ast.Div)):
            for side, other in ((node.right, node.left), (node.left, node.right)):
                sum_of_one = isinstance(side, ast.BinOp) and isinstance(side.op, (ast.Add, ast.Sub))
                if sum_of_one and isinstance(side.left, ast.Constant) and side.left.value == 1 and _is_error_term(side):
                    yield "error factor", other
    elif isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in ROUNDED and node.args:
            yield "rounding", ast.Call(ast.Name("float"), [node.args[0]], []) if called != "_raised" else node.args[0]
        swapped = SWAPPED.get(called) or TURNED.get(called)
        if swapped:
            target = (
                ast.Attribute(node.func.value, swapped) if isinstance(node.func, ast.Attribute) else ast.Name(swapped)
            )
            yield "turned" if called in TURNED else "max and min", ast.Call(target, node.args, node.keywords)


def mutants_of(path: Path) -> list[Mutant]:
    """All mutants of the functions of one file."""
    text = path.read_text(encoding="utf-8")
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found: list[Mutant] = []
    seen: Counter[str] = Counter()

    def visit(node: ast.AST, function: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                visit(child, f"{function}.{child.name}" if function else child.name)
                continue
            if function and isinstance(child, ast.expr):
                for kind, replacement in _changes(child):
                    add(child, function, kind, replacement)
            visit(child, function)

    def add(node: ast.expr, function: str, kind: str, replacement: ast.expr) -> None:
        start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        before, after = text.encode()[start:end].decode(), f"({ast.unparse(ast.fix_missing_locations(replacement))})"
        stem = f"{path.relative_to(ROOT).as_posix()} {function} {kind}: {' '.join(before.split())} -> {after}"
        seen[stem] += 1
        name = stem if seen[stem] == 1 else f"{stem} #{seen[stem]}"
        place = path.relative_to(ROOT).as_posix()
        found.append(Mutant(name, place, node.lineno, function, kind, before, after, start, end))

    visit(ast.parse(text), "")
    return [one for one in found if "." in one.function or not one.function[0].isupper()]


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def apply(mutant: Mutant) -> int:
    """Puts the mutant's code into the functions that are loaded; how many were changed."""
    path = ROOT / mutant.file
    source = path.read_bytes()
    changed = source[: mutant.start] + mutant.after.encode() + source[mutant.end :]
    codes = {code.co_qualname: code for code in _codes(compile(changed, str(path), "exec"))}
    count = 0
    for function in [one for one in gc.get_objects() if inspect.isfunction(one)]:
        old = function.__code__
        if old.co_filename == str(path) and old.co_qualname in codes and "<locals>" not in old.co_qualname:
            new = codes[old.co_qualname]
            differs = (new.co_code, new.co_consts, new.co_names) != (old.co_code, old.co_consts, old.co_names)
            if new.co_freevars == old.co_freevars and differs:
                function.__code__ = new
                count += 1
    return count


# Running --------------------------------------------------------------------------------------------------------------


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _append(path: Path, record: dict[str, Any]) -> None:
    STORE.mkdir(exist_ok=True)
    with path.open("a") as handle:
        handle.write(json.dumps(record) + "\n")


def _digest(place: str) -> str:
    return hashlib.sha256((ROOT / place).read_bytes()).hexdigest()


def _child(work: Any, seconds: float) -> int | None:
    """Exit status of `work` in a fork; None when it took too long."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        status = 3
        try:
            status = int(work())
        finally:
            os._exit(status)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def warm() -> None:
    """Loads what all tests load, once."""
    import hypothesis  # noqa: F401
    import mpmath  # noqa: F401
    import numpy  # noqa: F401
    import pytest  # noqa: F401
    import scipy.optimize
    import scipy.stats  # noqa: F401

    sys.path.insert(0, str(ROOT / "tests"))
    for package in ("privacy", "privacy.sums.account", "privacy.propose", "privacy.sums.propose", "kernel.check"):
        with contextlib.suppress(ImportError):
            __import__(f"mezzotint.{package}")
    import laws.test_tables  # noqa: F401


class _Lines:
    """Tells coverage which test runs, and notes how long each takes."""

    def __init__(self, coverage: Any) -> None:
        self.coverage = coverage
        self.seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration


def _map_file(file: Path) -> int:
    import coverage
    import pytest

    data = STORE / f"{file.stem}.coverage"
    recorder = coverage.Coverage(data_file=str(data), source=[str(ROOT / "src" / "mezzotint")], config_file=False)
    plugin = _Lines(recorder)
    recorder.start()
    status = pytest.main([*[o for o in OPTIONS if o != "-x"], str(file)], plugins=[plugin])
    recorder.stop()
    found = recorder.get_data()
    lines: dict[str, dict[str, list[int]]] = defaultdict(dict)
    for measured in found.measured_files():
        place = Path(measured).relative_to(ROOT).as_posix()
        for line, contexts in found.contexts_by_lineno(measured).items():
            for context in contexts:
                if context:
                    lines[context].setdefault(place, []).append(line)
    for test, places in lines.items():
        record = {"file": str(file.relative_to(ROOT)), "test": test, "seconds": plugin.seconds[test], "lines": places}
        _append(MAP, record | {"sources": {place: _digest(place) for place in places}})
    return int(status)


def _files(places: Iterable[str], pattern: str) -> list[Path]:
    """Files named, and all of the folders named."""
    return [
        f
        for place in places
        for f in ([ROOT / place] if place.endswith(".py") else sorted((ROOT / place).rglob(pattern)))
    ]


def map_tests(places: Iterable[str], limit: float) -> None:
    """Which test of these files and folders runs which line; files that are mapped already are passed over."""
    done = {record["file"] for record in _read(MAP)}
    files = _files(places, "test_*.py")
    warm()
    for file in files:
        if str(file.relative_to(ROOT)) not in done:
            begun = time.monotonic()
            status = _child(lambda file=file: _map_file(file), limit)
            print(f"{file.relative_to(ROOT)}: status {status}, {time.monotonic() - begun:.0f} s", flush=True)


def _tests_of(mutant: Mutant, table: list[dict[str, Any]], seconds: float) -> list[str]:
    """Tests of the line, fastest first, as many as the time allows; at least one.

    Where the file has changed since it was mapped, lines mean nothing any more: all tests of the file.
    """
    chosen, total = [], 0.0
    span, digest = range(mutant.line, mutant.line + mutant.before.count("\n") + 1), _digest(mutant.file)
    hits = [
        one
        for one in table
        if set(span) & set(one["lines"].get(mutant.file, ()))
        or (mutant.file in one["lines"] and one.get("sources", {}).get(mutant.file) != digest)
    ]
    for one in sorted(hits, key=lambda one: one["seconds"]):
        if chosen and total + one["seconds"] > seconds:
            break
        chosen.append(one["test"])
        total += one["seconds"]
    return chosen


def _try(mutant: Mutant, tests: Sequence[str]) -> int:
    import pytest

    os.chdir(ROOT)
    if apply(mutant) == 0:
        return 9
    return int(pytest.main([*OPTIONS, *tests]))


def run(places: Iterable[str], share: float, seed: int, seconds: float, until: float, again: bool) -> None:
    """A share of the mutants of these files and folders, in a random but fixed order; known results are passed over."""
    files = _files(places, "*.py")
    everything = [mutant for file in files for mutant in mutants_of(file)]
    # By name, so that a larger share holds the smaller one and a changed file keeps its choice.
    key = {m.name: hashlib.sha256(f"{seed} {m.name}".encode()).hexdigest() for m in everything}
    chosen = sorted(everything, key=lambda mutant: key[mutant.name])[: round(share * len(everything))]
    known = {record["name"]: record["outcome"] for record in _read(RESULTS)}
    done = {name for name, outcome in known.items() if not (again and outcome in ("survived", "no test"))}
    chosen = [mutant for mutant in chosen if mutant.name in known] if again else chosen
    table = _read(MAP)
    warm()
    begun = time.monotonic()
    for i, mutant in enumerate(chosen):
        if mutant.name in done or time.monotonic() - begun > until:
            continue
        tests = _tests_of(mutant, table, seconds)
        started = time.monotonic()
        status = _child(lambda mutant=mutant, tests=tests: _try(mutant, tests), 10 * seconds + 60) if tests else 8
        outcome = OUTCOMES.get(status, "killed (crash)" if status is not None and status < 0 else "error")
        record = asdict(mutant) | {"outcome": outcome, "status": status, "tests": len(tests)}
        _append(RESULTS, record | {"seconds": round(time.monotonic() - started, 2)})
        print(f"{i + 1}/{len(chosen)} {outcome}: {mutant.name}", flush=True)


def report() -> str:
    """A page: what was run, and the survivors with their reasons."""
    reasons = tomllib.loads(REASONS.read_text()) if REASONS.exists() else {}
    known = {one["name"]: one["reason"] for one in reasons.get("survivor", [])}
    results = {record["name"]: record for record in _read(RESULTS)}
    rooms: dict[str, Counter[str]] = defaultdict(Counter)
    for record in results.values():
        rooms["/".join(Path(record["file"]).parts[2:-1])][record["outcome"].split(" (")[0]] += 1
    lines = ["| room | mutants run | killed | survived | no test |", "|---|---|---|---|---|"]
    for room, counts in sorted(rooms.items()):
        lines.append(f"| {room} | {counts.total()} | {counts['killed']} | {counts['survived']} | {counts['no test']} |")
    lines += ["", "| survivor | reason |", "|---|---|"]
    for record in sorted(results.values(), key=lambda one: one["name"]):
        if record["outcome"] in ("survived", "no test"):
            name = record["name"].replace("|", "\\|")
            lines.append(f"| `{name}` | {known.get(record['name'], 'open')} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    mapping = verbs.add_parser("map")
    mapping.add_argument("places", nargs="+")
    mapping.add_argument("--limit", type=float, default=900.0, help="seconds for one file of tests")
    running = verbs.add_parser("run")
    running.add_argument("places", nargs="+")
    running.add_argument("--share", type=float, default=1.0, help="of all mutants")
    running.add_argument("--seed", type=int, default=0)
    running.add_argument("--seconds", type=float, default=10.0, help="of tests per mutant, by their recorded times")
    running.add_argument("--until", type=float, default=1e9, help="seconds in all")
    running.add_argument("--again", action="store_true", help="only those that survived, with more --seconds")
    verbs.add_parser("report")
    counting = verbs.add_parser("count")
    counting.add_argument("places", nargs="+")
    given = parser.parse_args()
    if given.verb == "map":
        map_tests(given.places, given.limit)
    elif given.verb == "run":
        run(given.places, given.share, given.seed, given.seconds, given.until, given.again)
    elif given.verb == "report":
        print(report())
    else:
        for file in _files(given.places, "*.py"):
            print(len(mutants_of(file)), file.relative_to(ROOT))


if __name__ == "__main__":
    main()
