"""Text from outside is parsed by one reader, which refuses what two readers could read differently."""

from __future__ import annotations

import ast
import copy
import json
import math
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import mezzotint as mz
from mezzotint.core import files
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import AppendLog, parse_json, parse_object
from mezzotint.federated.lifetime_ledger import LifetimeLedger
from mezzotint.federated.run_ledger import RunLedger

SOURCE = Path(mz.__file__).parent
READERS = {
    "core/files.py": "the reader",
    "kernel/units.py": "the kernel shares no code with what it checks; it refuses the same",
    "collect/json_lines.py": "rows of data, whose numbers keep their spelling; it refuses the same",
}
PARSERS = {("json", "loads"), ("json", "load"), ("json", "JSONDecoder"), ("pickle", "load"), ("pickle", "loads")}  # fmt: skip
UNPICKLERS = {"datasets/federations.py": "CIFAR's files; builds arrays alone, whatever they name"}


def _uses(tree: ast.AST) -> Iterator[str]:
    """The parsers that a module names, however it imports them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if (node.value.id, node.attr) in PARSERS:
                yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.ImportFrom):
            for imported in node.names:
                if (node.module, imported.name) in PARSERS:
                    yield f"{node.module}.{imported.name}"
        elif isinstance(node, ast.Import):
            for imported in node.names:
                if imported.name in ("json", "pickle") and imported.asname is not None:
                    yield f"{imported.name} as {imported.asname}"


def test_nothing_else_parses_json() -> None:
    found = {
        file.relative_to(SOURCE).as_posix(): sorted(_uses(ast.parse(file.read_text("utf-8"))))
        for file in SOURCE.rglob("*.py")
    }
    parsing = {name for name, uses in found.items() if uses}
    assert parsing == READERS.keys(), {name: found[name] for name in parsing - READERS.keys()}
    unpickling = {
        file.relative_to(SOURCE).as_posix()
        for file in SOURCE.rglob("*.py")
        if "Unpickler" in file.read_text("utf-8")
    }
    assert unpickling == UNPICKLERS.keys()


@pytest.mark.parametrize(
    ("source", "uses"),
    [
        ("import json\njson.loads('1')", ["json.loads"]),
        ("from json import loads", ["json.loads"]),
        ("import json as j", ["json as j"]),
        ("import pickle\npickle.load(file)", ["pickle.load"]),
        ("import json\njson.dumps(1)", []),
    ],
)
def test_the_walk_sees_a_parser(source: str, uses: list[str]) -> None:
    assert list(_uses(ast.parse(source))) == uses


AMBIGUOUS = {
    "a key occurs twice": '{"code": 1, "code": 2}',
    "a key occurs twice within": '{"a": [{"code": 1, "code": 1}]}',
    "NaN": '{"a": NaN}',
    "an infinity": "[-Infinity]",
    "cut": '{"a": ',
    "two documents": "{} {}",
    "too deep": "[" * 100_000,
    "too long a number": "1" * 10_000,
    "no text": b"\xff\xfe{\x00}\x00",
    "empty": "",
}


@pytest.mark.parametrize("text", AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
def test_the_reader_refuses_under_the_name_of_the_file(text: str | bytes) -> None:
    for parse in (parse_json, parse_object):
        with pytest.raises(FileFormatError, match=r"^m\.json: "):
            parse(text, name="m.json")


def test_files_of_our_own_keep_infinite_losses_and_nothing_else() -> None:
    assert parse_json("[Infinity, NaN]", name="own", finite=False)[0] == math.inf
    with pytest.raises(FileFormatError, match="twice"):
        parse_json('{"a": 1, "a": 1}', name="own", finite=False)


def test_a_line_of_a_log_with_a_key_twice_is_damaged(tmp_path: Path) -> None:
    """Anyone can compute its checksum."""
    path = tmp_path / "log"
    log = AppendLog(path, header={"format": "x"}, take=lambda line: None)
    with log.transaction() as append:
        append({"a": 1})
    chain = json.loads(path.read_bytes().splitlines()[-1])["chain"]
    for body, is_refused in ((b'{"a":1,"b":2}', False), (b'{"a":1,"a":2}', True)):
        checksum = files._checksum(chain, body)
        with path.open("ab") as file:
            file.write(body[:-1] + files._CHAIN_KEY + checksum.encode() + b'"}\n')
        chain = checksum
        if not is_refused:
            AppendLog(path, header={"format": "x"}, take=lambda line: None)
    with pytest.raises(FileFormatError, match="edited or damaged"):
        AppendLog(path, header={"format": "x"}, take=lambda line: None)


TABLE = mz.families.randomized_response(epsilon=1.0)
OPEN_LOGS: dict[str, Callable[[Path], object]] = {
    "counter": lambda path: mz.collect.Counter(TABLE, log=path),
    "counter in memory": lambda path: mz.collect.Counter(TABLE),
    "ledger": mz.privacy.Ledger,
    "run ledger": lambda path: RunLedger(path, {}),
    "lifetime ledger": lambda path: LifetimeLedger(path, identity="ab"),
}


@pytest.mark.parametrize("kind", OPEN_LOGS)
@pytest.mark.parametrize("spread", [pickle.dumps, copy.deepcopy])
def test_an_open_log_is_not_copied(
    tmp_path: Path, kind: str, spread: Callable[[object], object]
) -> None:
    """Two copies of one counter would each count a part; a copy of a ledger would allow more."""
    with pytest.raises(ParameterError, match="open it again"):
        spread(OPEN_LOGS[kind](tmp_path / "log"))
