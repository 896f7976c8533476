"""Mutation of the subpackages that promise: flips comparisons and drops error terms, and lists what no test notices.

    python tools/mutate.py map tests/kernel tests/privacy tests/laws      which test runs which line; resumable
    python tools/mutate.py run src/mezzotint/kernel --only comparisons    mutants against the tests of their lines
    python tools/mutate.py run src/mezzotint/kernel --again               survivors without a reason once more
    python tools/mutate.py report                                         survivors, to .mutation/report.md

Mutants: each comparison with its boundary moved and negated; each factor 1 +- .. and each summand that is made of
rounding constants dropped; nextafter, ceil and the like dropped or turned round; +-1 dropped; max and min swapped.

One process imports and collects everything once and forks for every mutant. The fork puts the mutant's code into the
functions that are already there, wherever they were imported to, and runs the tests of the line: those that killed
another mutant of the function first, then the fastest and narrowest, until one fails or the seconds allowed are spent.
A test that fails without a mutant kills nothing. What runs at import time (constants, defaults of arguments) is not
mutated.
Results are kept in .mutation/ and hold as long as the function that was changed stays as it is.
"""

from __future__ import annotations

import argparse
import ast
import gc
import hashlib
import importlib
import inspect
import json
import os
import resource
import signal
import sys
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
STORE = ROOT / ".mutation"
MAP, RESULTS = STORE / "map.jsonl", STORE / "results.jsonl"
REASONS = STORE / "reasons.toml"
"""Why survivors live on: entries `[[survivor]]` of `name` and `reason`, where somebody has looked."""
REPORT = STORE / "report.md"
OPTIONS = [
    "-q",
    "-m",
    "not slow",
    "-p",
    "no:xdist",
    "-p",
    "no:randomly",
    "-W",
    "ignore::pytest.PytestWarning",
]
SLOW = 8
"""Seconds after which a test is too slow to be mapped."""

OUTCOMES = {0: "survived", 1: "killed", 4: "unsure", 8: "no test", 9: "not applied"}
"""What the exit status of a fork says: 4 where a test fails without a mutant too."""

BOUNDARY = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
NEGATED = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
SWAPPED = {
    "max": "min",
    "min": "max",
    "maximum": "minimum",
    "minimum": "maximum",
    "argmax": "argmin",
    "argmin": "argmax",
}
ROUNDED = {"nextafter", "float_above", "rounded_up", "_upwards"}
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
    digest: str
    """Of the outermost function's text: a result holds until it changes."""


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
                if (
                    sum_of_one
                    and isinstance(side.left, ast.Constant)
                    and side.left.value == 1
                    and _is_error_term(side)
                ):
                    yield "error factor", other
    elif isinstance(node, ast.Call):
        called = (
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        )
        if called in ROUNDED and node.args:
            yield "rounding", ast.Call(ast.Name("float"), [node.args[0]], [])
        swapped = SWAPPED.get(called) or TURNED.get(called)
        if swapped:
            target = (
                ast.Attribute(node.func.value, swapped)
                if isinstance(node.func, ast.Attribute)
                else ast.Name(swapped)
            )
            yield (
                "turned" if called in TURNED else "max and min",
                ast.Call(target, node.args, node.keywords),
            )


SOURCES: dict[Path, bytes] = {}
"""What was imported, whatever is edited since."""


def mutants_of(path: Path) -> list[Mutant]:
    """All mutants of the functions of one file."""
    SOURCES[path] = path.read_bytes()
    text = SOURCES[path].decode()
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found: list[Mutant] = []
    seen: Counter[str] = Counter()

    def visit(node: ast.AST, function: str, digest: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                own = hashlib.sha256(ast.unparse(child).encode()).hexdigest()[:12]
                inside = digest if isinstance(node, ast.FunctionDef) else own
                visit(child, f"{function}.{child.name}" if function else child.name, inside)
                continue
            if function and isinstance(child, ast.expr):
                for kind, replacement in _changes(child):
                    add(child, function, digest, kind, replacement)
            visit(child, function, digest)

    def add(node: ast.expr, function: str, digest: str, kind: str, replacement: ast.expr) -> None:
        start, end = (
            starts[node.lineno - 1] + node.col_offset,
            starts[node.end_lineno - 1] + node.end_col_offset,
        )
        before, after = (
            text.encode()[start:end].decode(),
            f"({ast.unparse(ast.fix_missing_locations(replacement))})",
        )
        stem = f"{path.relative_to(ROOT).as_posix()} {function} {kind}: {' '.join(before.split())} -> {after}"
        seen[stem] += 1
        name = stem if seen[stem] == 1 else f"{stem} #{seen[stem]}"
        place = path.relative_to(ROOT).as_posix()
        found.append(
            Mutant(name, place, node.lineno, function, kind, before, after, start, end, digest)
        )

    visit(ast.parse(text), "", "")
    return [one for one in found if "." in one.function or not one.function[0].isupper()]


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def functions_of(paths: Iterable[Path]) -> dict[str, list[FunctionType]]:
    """All functions that these files have defined so far."""
    found: dict[str, list[FunctionType]] = {str(path): [] for path in paths}
    gc.unfreeze()  # what is frozen is not listed
    for function in gc.get_objects():
        if inspect.isfunction(function) and function.__code__.co_filename in found:
            found[function.__code__.co_filename].append(function)
    return found


def apply(mutant: Mutant, functions: dict[str, list[FunctionType]]) -> int:
    """Puts the mutant's code into the functions that are loaded; how many were changed."""
    path = ROOT / mutant.file
    source = SOURCES[path]
    changed = source[: mutant.start] + mutant.after.encode() + source[mutant.end :]
    codes = {code.co_qualname: code for code in _codes(compile(changed, str(path), "exec"))}
    count = 0
    for function in functions[str(path)]:
        old = function.__code__
        if old.co_qualname in codes and "<locals>" not in old.co_qualname:
            new = codes[old.co_qualname]
            differs = (new.co_code, new.co_consts, new.co_names) != (
                old.co_code,
                old.co_consts,
                old.co_names,
            )
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
    return hashlib.sha256((ROOT / place).read_bytes()).hexdigest()[:12]


def _files(places: Iterable[str], pattern: str) -> list[Path]:
    """Files named, and all of the folders named."""
    return [
        f
        for place in places
        for f in (
            [ROOT / place] if place.endswith(".py") else sorted((ROOT / place).rglob(pattern))
        )
    ]


class _Forks:
    """So many forks at a time; `then` is told how each ended: exit status (None: too slow), its words, seconds."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.running: dict[int, tuple[Callable[..., None], float, float, int]] = {}

    def start(
        self, work: Callable[[int], int], processor: float, then: Callable[..., None]
    ) -> None:
        """Forks for `work`, which may write to the descriptor it is given, when fewer than so many are running."""
        while len(self.running) >= self.jobs:
            self.step()
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), 1)
                os.dup2(nowhere.fileno(), 2)
            resource.setrlimit(resource.RLIMIT_CPU, (int(processor) + 1, int(processor) + 2))
            status = 3
            try:
                status = int(work(write))
            finally:
                os._exit(status)
        os.close(write)
        begun = time.monotonic()
        self.running[child] = then, begun, begun + 6 * processor + 60, read

    def step(self) -> None:
        """Waits for one of them to end."""
        while True:
            for child, (then, begun, deadline, read) in self.running.items():
                late = time.monotonic() > deadline
                if late:
                    os.kill(child, signal.SIGKILL)
                done, status = os.waitpid(child, 0 if late else os.WNOHANG)
                if done:
                    del self.running[child]
                    said = os.read(read, 4096).decode()
                    os.close(read)
                    code = os.waitstatus_to_exitcode(status)
                    slow = late or code in (-signal.SIGXCPU, -signal.SIGKILL)
                    then(None if slow else code, said, time.monotonic() - begun)
                    return
            time.sleep(0.01)

    def finish(self) -> None:
        """Waits for all of them."""
        while self.running:
            self.step()


def warm(paths: Iterable[Path]) -> None:
    """Loads what all tests load, and these files."""
    import hypothesis.internal.conjecture.engine as engine

    # A mutant is dead when an example fails, however long the example is.
    engine.ConjectureRunner.shrink_interesting_examples = lambda self: None  # type: ignore[method-assign]
    sys.path.insert(0, str(ROOT / "tests"))
    for path in paths:
        module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(
            ".__init__"
        )
        importlib.import_module(module)


class _Lines:
    """Tells coverage which test runs, stops slow ones, and notes how long each takes and whether it passes."""

    def __init__(self, coverage: Any, known: set[str]) -> None:
        self.coverage, self.known = coverage, known
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed: set[str] = set()

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if item.nodeid not in self.known]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.coverage.switch_context(nodeid)

        def stop(*_: object) -> None:
            raise TimeoutError("too slow to be mapped")

        signal.signal(signal.SIGVTALRM, stop)
        signal.setitimer(signal.ITIMER_VIRTUAL, SLOW)

    def pytest_runtest_logfinish(self) -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration
        if not report.passed:
            self.failed.add(report.nodeid)


def _map_file(file: Path) -> int:
    import coverage
    import pytest

    data = STORE / f"{file.stem}.{os.getpid()}.coverage"
    recorder = coverage.Coverage(
        data_file=str(data), source=[str(ROOT / "src" / "mezzotint")], config_file=False
    )
    plugin = _Lines(recorder, {record["test"] for record in _read(MAP)})
    sources = {
        str(path.relative_to(ROOT)): _digest(str(path)) for path in (ROOT / "src").rglob("*.py")
    }
    recorder.start()
    status = pytest.main([*OPTIONS, str(file)], plugins=[plugin])
    recorder.stop()
    found = recorder.get_data()
    lines: dict[str, dict[str, list[int]]] = defaultdict(dict)
    for measured in found.measured_files():
        place = Path(measured).relative_to(ROOT).as_posix()
        for line, contexts in found.contexts_by_lineno(measured).items():
            for context in contexts:
                if context and context not in plugin.failed:
                    lines[context].setdefault(place, []).append(line)
    record = {"file": str(file.relative_to(ROOT)), "digest": _digest(str(file.relative_to(ROOT)))}
    for test in ["", *plugin.failed]:
        _append(MAP, record | {"test": test, "seconds": 0, "lines": {}})
    for test, places in lines.items():
        functions = {
            place: sorted(_functions_at(ROOT / place, found)) for place, found in places.items()
        }
        seconds = round(plugin.seconds[test], 3)
        more: dict[str, Any] = {"sources": {place: sources[place] for place in places}}
        more |= {"test": test, "seconds": seconds, "lines": places, "functions": functions}
        _append(MAP, record | more)
    return int(status)


def _functions_at(path: Path, lines: Iterable[int]) -> set[str]:
    """Names of the functions that hold these lines."""
    found: set[str] = set()
    wanted = set(lines)

    def visit(node: ast.AST, name: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                inner = f"{name}.{child.name}" if name else child.name
                if wanted & set(range(child.lineno, (child.end_lineno or child.lineno) + 1)):
                    found.add(inner)
                    visit(child, inner)
            else:
                visit(child, name)

    visit(ast.parse(path.read_text(encoding="utf-8")), "")
    return found


def _table() -> list[dict[str, Any]]:
    """The map: the last record of each test. Where a test has changed since, it may miss some of its lines."""
    return list({(record["file"], record["test"]): record for record in _read(MAP)}.values())


def map_tests(places: Iterable[str], limit: float, jobs: int) -> None:
    """Which test of these files and folders runs which line; tests that are mapped are passed over."""
    done = {
        record["file"]
        for record in _read(MAP)
        if (ROOT / record["file"]).exists() and record["digest"] == _digest(record["file"])
    }
    STORE.mkdir(exist_ok=True)
    warm(sorted((ROOT / "src/mezzotint/privacy").rglob("*.py")))
    forks = _Forks(jobs)
    for file in _files(places, "test_*.py"):
        name = str(file.relative_to(ROOT))
        if name not in done:

            def told(status: int | None, said: str, seconds: float, name: str = name) -> None:
                print(f"{name}: status {status}, {seconds:.0f} s", flush=True)

            forks.start(lambda _, file=file: _map_file(file), limit, told)
    forks.finish()


def _tests_of(
    mutant: Mutant,
    table: list[dict[str, Any]],
    killers: Counter[tuple[str, str, str]],
    seconds: float,
) -> list[dict[str, Any]]:
    """Tests of the line, as many as the time allows; at least one.

    Where the file has changed since it was mapped, lines mean nothing any more: all tests of the function.
    """
    span, digest = (
        set(range(mutant.line, mutant.line + mutant.before.count("\n") + 1)),
        _digest(mutant.file),
    )
    hits: list[dict[str, Any]] = []
    for one in table:
        if mutant.file in one["lines"]:
            same = one["sources"][mutant.file] == digest
            if (
                span & set(one["lines"][mutant.file])
                if same
                else mutant.function in one["functions"][mutant.file]
            ):
                hits.append(one)
    # A short test that runs few lines is about this one.
    worth = {one["test"]: one["seconds"] * sum(map(len, one["lines"].values())) for one in hits}
    hits.sort(
        key=lambda one: (-killers[mutant.file, mutant.function, one["test"]], worth[one["test"]])
    )
    chosen, total = list[dict[str, Any]](), 0.0
    for one in hits:
        if not chosen or total + one["seconds"] <= seconds:
            chosen.append(one)
            total += one["seconds"]
    return chosen


def _outcomes() -> defaultdict[tuple[str, str], list[str]]:
    """What came of each mutant of a function as it is now, every time it was run."""
    found: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for record in _read(RESULTS):
        found[record["name"], record["digest"]].append(record["outcome"])
    return found


class _Mutation:
    """Instead of pytest's own loop: collects once, then a fork for each mutant."""

    def __init__(self, mutants: list[Mutant], seconds: float, until: float, jobs: int) -> None:
        self.mutants, self.seconds, self.until, self.jobs = mutants, seconds, until, jobs
        self.failure: Callable[[str], None] = lambda test: None
        self.healthy: dict[str, bool] = {}
        self.killers: Counter[tuple[str, str, str]] = Counter()

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failure(report.nodeid)

    def pytest_runtestloop(self, session: Any) -> bool:
        items = {item.nodeid: item for item in session.items}
        table = [record for record in _table() if record["test"] in items]
        paths = {ROOT / mutant.file for mutant in self.mutants}
        for path in paths:  # rooms import their files only when a name is used
            importlib.import_module(".".join(path.relative_to(ROOT / "src").with_suffix("").parts))
        functions = functions_of(paths)
        gc.collect()
        gc.freeze()
        forks, begun, left, before = (
            _Forks(self.jobs),
            time.monotonic(),
            len(self.mutants),
            _outcomes(),
        )
        for mutant in self.mutants:
            left -= 1
            if time.monotonic() - begun > self.until:
                break
            if len(_outcomes()[mutant.name, mutant.digest]) > len(
                before[mutant.name, mutant.digest]
            ):
                continue  # another process of this script was faster
            tests = _tests_of(mutant, table, self.killers, self.seconds)

            def told(
                status: int | None, said: str, seconds: float, mutant: Mutant = mutant, left: int = left,
                tests: list[dict[str, Any]] = tests,
            ) -> None:  # fmt: skip
                outcome = "killed (by time)" if status is None else OUTCOMES.get(status, "error")
                outcome = "killed (crash)" if status is not None and status < 0 else outcome
                if outcome == "killed":
                    self.killers[mutant.file, mutant.function, said] += 1
                    outcome = "killed" if self._passes(items, said) else "unsure"
                record = asdict(mutant) | {"outcome": outcome, "by": said, "tests": len(tests)}
                _append(RESULTS, record | {"seconds": round(seconds, 2)})
                print(f"{left} left, {outcome} ({seconds:.1f} s): {mutant.name}", flush=True)

            if not tests:
                told(8, "", 0.0)
                continue

            def work(
                write: int, mutant: Mutant = mutant, tests: list[dict[str, Any]] = tests
            ) -> int:
                if apply(mutant, functions) == 0:
                    return 9
                return self._run([items[one["test"]] for one in tests], write)

            forks.start(work, 2 * sum(one["seconds"] for one in tests) + 5, told)
        forks.finish()
        return True

    def _run(self, items: list[Any], write: int) -> int:
        """1 at the first failure."""

        def failed(test: str) -> None:
            os.write(write, test.encode())
            os._exit(1)

        self.failure = failed
        for item in items:
            item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
        return 0

    def _passes(self, items: dict[str, Any], test: str) -> bool:
        """Whether the test passes without a mutant, here."""
        if test not in self.healthy:
            alone = _Forks(1)

            def told(status: int | None, said: str, seconds: float) -> None:
                self.healthy[test] = status == 0

            alone.start(lambda write: self._run([items[test]], write), 300, told)
            alone.finish()
        return self.healthy[test]


def run(
    places: Iterable[str],
    only: str,
    seconds: float,
    until: float,
    again: bool,
    backwards: bool,
    jobs: int,
    collected: Iterable[str] = (),
) -> None:
    """The mutants of these files and folders; known results are passed over."""
    import pytest

    files = _files(places, "*.py")
    mutants = [mutant for file in files for mutant in mutants_of(file)]
    if only:
        mutants = [
            mutant
            for mutant in mutants
            if (mutant.kind in ("boundary", "negated")) == (only == "comparisons")
        ]
    known = _outcomes()
    wanted = ("survived", "no test", "unsure", "error") if again else ("", "unsure", "error")
    chosen = [m for m in mutants if (known[m.name, m.digest] or [""])[-1] in wanted]
    excused = _reasons() if again else {}
    chosen = [m for m in chosen if m.name not in excused]
    chosen = chosen[::-1] if backwards else chosen
    os.chdir(ROOT)
    warm(files)
    mapped = {record["file"] for record in _table()}
    tests = sorted(file for file in mapped & set(collected or mapped) if (ROOT / file).exists())
    pytest.main([*OPTIONS, "-s", *tests], plugins=[_Mutation(chosen, seconds, until, jobs)])


def _current() -> dict[str, list[tuple[Mutant, str]]]:
    """By file: its mutants and what came of each; "" where it was not run as it is now."""
    found: dict[str, list[tuple[Mutant, str]]] = {}
    known = _outcomes()
    for file in sorted({record["file"] for record in _read(RESULTS)}):
        if (ROOT / file).exists():
            found[file] = [
                (m, (known[m.name, m.digest] or [""])[-1]) for m in mutants_of(ROOT / file)
            ]
    return found


def _reasons() -> dict[str, str]:
    reasons = tomllib.loads(REASONS.read_text()) if REASONS.exists() else {}
    return {one["name"]: one["reason"] for one in reasons.get("survivor", [])}


def report() -> str:
    """A page: what was run, and the survivors with their reasons."""
    known = _reasons()
    lines = [
        "| file | comparisons | killed | survived | other mutants | killed | survived | not run |",
        "|---|---|---|---|---|---|---|---|",
    ]
    sums: Counter[str] = Counter()
    survivors: list[Mutant] = []
    for file, results in _current().items():
        counts: Counter[str] = Counter()
        for mutant, outcome in results:
            group = "comparison" if mutant.kind in ("boundary", "negated") else "other"
            end = outcome.split(" (")[0] if outcome.startswith(("killed", "survived")) else ""
            end = "survived" if outcome == "no test" else end or "not run"
            counts[f"{group} {end}"] += 1
            counts[group] += 1
            if end == "survived":
                survivors.append(mutant)
        lines.append(_row(file.removeprefix("src/mezzotint/"), counts))
        sums += counts
    lines += [_row("all", sums), "", "| survivor | reason |", "|---|---|"]
    for mutant in sorted(survivors, key=lambda one: one.name):
        name = mutant.name.removeprefix("src/mezzotint/").replace("|", "\\|")
        lines.append(f"| `{name}` | {known.get(mutant.name, 'open')} |")
    unused = sorted(set(known) - {mutant.name for mutant in survivors})
    print(
        f"{sum(m.name not in known for m in survivors)} open, {len(unused)} reasons without survivor",
        file=sys.stderr,
    )
    return "\n".join(lines)


def _row(name: str, counts: Counter[str]) -> str:
    ends = [counts["comparison"], counts["comparison killed"], counts["comparison survived"]]
    ends += [counts["other"], counts["other killed"], counts["other survived"]]
    ends += [counts["comparison not run"] + counts["other not run"]]
    return f"| {name} | " + " | ".join(map(str, ends)) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    mapping = verbs.add_parser("map")
    mapping.add_argument("places", nargs="+")
    mapping.add_argument(
        "--limit", type=float, default=900.0, help="seconds of processor time for one file of tests"
    )
    mapping.add_argument("--jobs", type=int, default=1)
    running = verbs.add_parser("run")
    running.add_argument("places", nargs="+")
    running.add_argument("--only", choices=("comparisons", "others"), default="")
    running.add_argument(
        "--seconds", type=float, default=10.0, help="of tests per mutant, by their recorded times"
    )
    running.add_argument("--until", type=float, default=1e9, help="seconds in all")
    running.add_argument(
        "--again", action="store_true", help="only those that survived without a reason"
    )
    running.add_argument(
        "--backwards", action="store_true", help="the last first: a second process beside another"
    )
    running.add_argument("--jobs", type=int, default=1)
    running.add_argument(
        "--tests", nargs="+", default=[], help="collect these mapped files alone, such as a new one"
    )
    verbs.add_parser("report")
    counting = verbs.add_parser("count")
    counting.add_argument("places", nargs="+")
    given = parser.parse_args()
    if given.verb == "map":
        map_tests(given.places, given.limit, given.jobs)
    elif given.verb == "run":
        options = given.only, given.seconds, given.until, given.again, given.backwards, given.jobs
        run(given.places, *options, given.tests)
    elif given.verb == "report":
        STORE.mkdir(exist_ok=True)
        REPORT.write_text(report() + "\n", encoding="utf-8")
        print(REPORT.relative_to(ROOT))
    else:
        for file in _files(given.places, "*.py"):
            print(len(mutants_of(file)), file.relative_to(ROOT))


if __name__ == "__main__":
    main()
