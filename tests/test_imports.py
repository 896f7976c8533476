"""The house's plan: which room may import which, and how light the front door is."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import mezzotint

SOURCE = Path(__file__).resolve().parents[1] / "src" / "mezzotint"

# A room imports only from the rooms in its set (and from itself). `core` holds the errors that all rooms raise.
ALLOWED: dict[str, set[str]] = {
    "kernel": set(),
    "core": {"kernel"},
    "families": {"core"},
    "datasets": {"core"},
    "privacy": {"core", "kernel"},
    "design": {"core", "families", "privacy"},
    "vectors": {"core", "kernel", "privacy"},
    "smoothed": {"core"},
    "training": {"core", "datasets", "kernel", "vectors", "privacy"},
    "federated": {"core", "datasets", "families", "vectors", "privacy"},
    "collect": {"core", "design", "families", "privacy"},
}
ALLOWED["report"] = {*ALLOWED}
ALLOWED["papers"] = {*ALLOWED}
ALLOWED["cli"] = {*ALLOWED}


def _imported(tree: ast.AST) -> list[str]:
    """Every mezzotint module that a file names in an import, and every room that it asks of the package, `mz`."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert all(alias.asname == "mz" for alias in node.names if alias.name == "mezzotint")
            names += [alias.name for alias in node.names if alias.name != "mezzotint"]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports inside the package are absolute"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "mz"
            and node.attr != "__version__"
        ):
            names.append(f"mezzotint.{node.attr}")
    return [name for name in names if name.split(".")[0] == "mezzotint"]


def _files() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE)


@pytest.mark.parametrize("path", _files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_rooms_import_only_what_the_plan_allows(path: Path) -> None:
    room = path.relative_to(SOURCE).parts[0]
    file = path.relative_to(SOURCE).as_posix()
    for name in _imported(ast.parse(path.read_text(encoding="utf-8"))):
        other = [*name.split("."), ""][1]
        permitted = other == room or other in ALLOWED[room]
        assert permitted, f"{file} imports {name}, which room {room!r} may not"


def _at_run_time(path: Path) -> set[str]:
    """Files of the package that a file imports when it is imported, not for type checkers alone and not on demand."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    body = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = _imported(ast.Module(body=list(body), type_ignores=[]))
    places = [name.split(".")[1:] for name in names]
    return {"/".join(place[:end]) + ".py" for place in places for end in range(1, len(place) + 1)}


def test_the_walks_of_a_newcomer_never_go_back_up() -> None:
    text = (SOURCE.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.split("two tours for newcomers")[1].split("## ")[0]
    walks = [re.findall(r"`(\w+/[\w/]+\.py)`", walk) for walk in section.split("\n- ")[1:]]
    assert [walk[0] for walk in walks] == ["cli/privatize.py", "cli/design.py"]
    for walk in walks:
        assert 4 <= len(walk) <= 8
        for index, stop in enumerate(walk):
            assert not _at_run_time(SOURCE / stop) & set(walk[:index]), stop


def _anywhere(path: Path) -> set[str]:
    """Files of the package that a file imports: at once, on demand or for type checkers."""
    names = _imported(ast.parse(path.read_text(encoding="utf-8")))
    parts = [name.split(".")[1:] for name in names]
    return {"/".join(part[:end]) + ".py" for part in parts for end in range(1, len(part) + 1)}


def test_no_file_imports_what_imports_it() -> None:
    """No circle, neither of subpackages nor of files: each can be read before those that import it.

    Imports inside functions and for type checkers count: a reader needs what they name, too. The
    list of a subpackage's public names (`__init__.py`) is a map, which no file of it may use.
    """
    paths = {path.relative_to(SOURCE).as_posix(): path for path in _files()}
    modules = {file: path for file, path in paths.items() if path.name != "__init__.py"}
    graph = {file: _anywhere(path) & modules.keys() - {file} for file, path in modules.items()}
    assert sum(map(len, graph.values())) > 500
    for imports in (graph, {room: others - {room} for room, others in ALLOWED.items()}):
        TopologicalSorter(imports).prepare()  # raises CycleError, which names the circle


def test_no_module_has_the_name_of_a_public_name_of_its_room() -> None:
    """Importing a module sets its name in the room, where it would hide a function of that name."""
    for file in SOURCE.rglob("__init__.py"):
        modules = {
            path.stem
            for path in file.parent.iterdir()
            if path.suffix == ".py" or any(path.glob("*.py"))
        }
        imports = [
            node
            for node in ast.walk(ast.parse(file.read_text("utf-8")))
            if isinstance(node, ast.ImportFrom)
        ]
        elsewhere = [
            node for node in imports if str(node.module).split(".")[-1] != file.parent.name
        ]
        names = {alias.asname or alias.name for node in elsewhere for alias in node.names}
        assert not names & modules, file


def test_the_plan_names_every_room() -> None:
    rooms = {path.name for path in SOURCE.iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    assert rooms <= set(ALLOWED)


def _fresh(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout


def test_importing_the_package_loads_numpy_and_little_of_the_standard_library() -> None:
    code = "import json, sys, numpy; a = {*sys.modules}; import mezzotint; print(json.dumps([*({*sys.modules} - a)]))"
    loaded = json.loads(_fresh(code))
    others = {name.split(".")[0] for name in loaded} - {"mezzotint", "numpy"}
    assert others <= sys.stdlib_module_names
    assert len(loaded) <= 50  # 38 on Python 3.11


@pytest.mark.parametrize(
    "room", ["collect", "datasets", "design", "families", "kernel", "privacy", "vectors"]
)
def test_rooms_load_scipy_with_a_name_that_needs_it_and_leave_the_compiler_to_the_first_draw(
    room: str,
) -> None:
    code = f"import sys, mezzotint.{room} as room; light = 'scipy' not in sys.modules"
    names = "[getattr(room, name) for name in dir(room)]"
    assert _fresh(f"{code}; {names}; print(light, 'numba' not in sys.modules)").split() == [
        "True",
        "True",
    ]


def test_the_public_names_resolve() -> None:
    code = "import mezzotint as mz; print(mz.Mechanism, mz.families.rqm, mz.privacy.verify, mz.__version__)"
    assert "rqm" in _fresh(code)


@pytest.mark.parametrize(
    ("room", "extra"), [("federated", "flwr"), ("papers", "torch"), ("training", "torch")]
)
def test_every_name_that_a_room_offers_on_demand_is_there(room: str, extra: str) -> None:
    pytest.importorskip(extra)
    package = getattr(mezzotint, room)
    assert [name for name in dir(package) if not getattr(package, name).__doc__] == []
    with pytest.raises(AttributeError, match=f"mezzotint.{room}"):
        package.absent  # noqa: B018


@pytest.mark.parametrize(
    "file", sorted(SOURCE.glob("*/__init__.py")), ids=lambda file: file.parent.name
)
def test_every_name_that_a_package_lists_is_offered(file: Path) -> None:
    """However its line is broken: a formatter may put a long import into parentheses."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    listed = {alias.asname for node in imports for alias in node.names if alias.asname}
    offered = _fresh(f"import mezzotint.{file.parent.name} as package; print(*dir(package))")
    assert listed <= set(offered.split())


def test_every_room_is_there_after_one_import_and_can_be_looked_into():
    """Tab completion and help work in a fresh session, and nothing but public names shows."""
    code = (
        "import json, sys, mezzotint as mz\n"
        "names = dir(mz)\n"
        "rooms = {name: dir(getattr(mz, name)) for name in names if name.islower() and not name.startswith('_')}\n"
        "documented = [name for name in rooms if (getattr(mz, name).__doc__ or '').strip()]\n"
        "inside = {r: [n for n in rooms[r] if hasattr(vars(getattr(mz, r)).get(n), '__path__') or n[0] == '_'"
        " or vars(getattr(mz, r)).get(n) is sys.modules.get(f'mezzotint.{r}.{n}', 0)] for r in rooms}\n"
        "print(json.dumps([names, rooms, documented, inside]))"
    )
    names, rooms, documented, inside = json.loads(_fresh(code))
    expected = {path.name for path in SOURCE.iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    assert set(rooms) == expected - {"core", "cli"}
    assert sorted(documented) == sorted(rooms)
    assert {room: found for room, found in inside.items() if found} == {}
    assert set(rooms["kernel"]) == set(mezzotint.kernel.__all__)
    assert {"optimal", "limit", "compare"} <= set(rooms["design"])
    assert {"SecureUpdates", "SecureStrategy"} <= set(rooms["federated"])
    assert "Mechanism" in names
    assert not {"LazyModule", "TYPE_CHECKING", "annotations"} & set(names)
    assert all(
        len([one for one in found if not one.startswith("_")]) > 3 for found in rooms.values()
    )


@pytest.mark.parametrize("room", ["design", "privacy", "vectors", "smoothed", "report"])
def test_a_star_imports_the_public_names(room: str) -> None:
    code = f"import mezzotint as mz; old = {{*dir()}}; from mezzotint.{room} import *"
    assert (
        _fresh(
            f"{code}; print(*sorted({{*dir()}} - old - {{'old'}} ^ {{*dir(mz.{room})}}))"
        ).strip()
        == ""
    )


def test_modules_that_texts_and_commands_name_are_there() -> None:
    """Programs inside strings, which no checker of types reads, import what exists."""
    root = SOURCE.parents[1]
    named = re.compile(r"(?:\bimport|\bfrom|-m) +(mezzotint(?:\.\w+)+)")
    found = {
        name: path.relative_to(root).as_posix()
        for folder in ("src", "tests", "benchmarks", "tools", "docs")
        for path in (root / folder).rglob("*")
        if path.suffix in (".py", ".md", ".ipynb", ".toml")
        for name in named.findall(path.read_text(encoding="utf-8"))
    }
    assert len(found) > 100
    files = {name: SOURCE.parent.joinpath(*name.split(".")) for name in found}
    missing = [
        name
        for name, file in files.items()
        if not (file.is_dir() or file.with_suffix(".py").is_file())
    ]
    assert {name: found[name] for name in missing} == {}
