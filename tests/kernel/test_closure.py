"""The kernel is small, stands alone, and keeps the rules of its code."""

from __future__ import annotations

import ast
import importlib
import io
import re
import shutil
import subprocess
import sys
import tokenize
from pathlib import Path

import flint
import pytest

import mezzotint
from mezzotint import kernel
from mezzotint.families import rqm
from mezzotint.kernel.checker import KINDS
from reference.kernel import claim, release, sealed

FOLDER = Path(mezzotint.__file__).parent / "kernel"
FILES = sorted(FOLDER.glob("*.py"))
TREES = {path.name: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}


def _tokens(path: Path) -> tuple[int, int]:
    """Words, numbers and signs of the code, without comments and docstrings; and the lines that hold any."""
    source = path.read_text(encoding="utf-8")
    documented = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    layout = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    lines = [
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in layout | {tokenize.ENDMARKER} and token.start[0] not in documented
    ]
    return len(lines), len(set(lines))


def test_the_kernel_is_short_and_its_lines_are() -> None:
    counts = [_tokens(path) for path in FILES]
    tokens, lines = (sum(count) for count in zip(*counts, strict=True))
    assert tokens <= 17_500
    assert tokens <= 8.0 * lines


def test_it_imports_the_standard_library_and_flint_only() -> None:
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                modules = [str(node.module)]
            for module in modules:
                top = module.split(".")[0]
                own = module == "mezzotint.kernel" or module.startswith("mezzotint.kernel.")
                assert own or top == "flint" or top in sys.stdlib_module_names, (
                    f"{name} imports {module}"
                )
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"__import__", "eval", "exec", "import_module"}, (
                    f"{name} calls {node.func.id}"
                )


def _functions_with_floats(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for function in ast.walk(tree):
        if isinstance(function, (ast.FunctionDef, ast.Module)):
            for node in (
                ast.walk(function) if isinstance(function, ast.FunctionDef) else function.body
            ):
                constant = isinstance(node, ast.Constant) and isinstance(node.value, float)
                named = isinstance(node, ast.Name) and node.id == "float"
                if constant or named:
                    found.add(getattr(function, "name", "module"))
    return found


def test_there_are_no_floats() -> None:
    assert not {
        (name, user) for name, tree in TREES.items() for user in _functions_with_floats(tree)
    }
    for name, tree in TREES.items():
        divisions = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and node.attr in {"fsum", "isclose"}
        ]
        assert not divisions, name
        imported = {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        assert not imported & {"math", "cmath", "random", "statistics"}, name


def test_nothing_is_refused_by_a_comparison_that_an_undecided_ball_would_pass() -> None:
    """`if x > y: raise` passes when the balls overlap. Rejections go through `require`, or stand after `not`."""
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.If) or not any(
                isinstance(inner, ast.Raise) for inner in node.body
            ):
                continue
            bare = [
                compare
                for compare in ast.walk(node.test)
                if isinstance(compare, ast.Compare)
                and any(isinstance(op, (ast.Lt, ast.Gt, ast.LtE, ast.GtE)) for op in compare.ops)
            ]
            negated = {
                id(inner)
                for outer in ast.walk(node.test)
                if isinstance(outer, ast.UnaryOp) and isinstance(outer.op, ast.Not)
                for inner in ast.walk(outer)
            }
            lengths = [
                c
                for c in bare
                if isinstance(c.left, ast.Call) and getattr(c.left.func, "id", "") == "len"
            ]
            assert all(id(compare) in negated or compare in lengths for compare in bare), (
                f"{name}:{node.lineno}"
            )


def test_require_refuses_what_is_undecided() -> None:
    wide = flint.arb("1 +/- 0.1")
    with pytest.raises(kernel.Refused):
        kernel.units.require(wide <= flint.arb(1), "step", "undecided")
    with pytest.raises(kernel.Refused):
        kernel.units.require(flint.arb.nan() <= flint.arb(1), "step", "not a number")


def test_a_stranger_with_flint_alone_checks_a_claim(tmp_path: Path) -> None:
    """A folder with the kernel and python-flint, an isolated interpreter: the page's recipe (docs/recheck.md)."""
    room = tmp_path / "mezzotint"
    shutil.copytree(FOLDER, room / "kernel", ignore=shutil.ignore_patterns("__pycache__"))
    (room / "__init__.py").touch()
    site = Path(flint.__file__).parent
    (tmp_path / "flint").symlink_to(site)
    for extra in site.parent.glob("python_flint*"):
        (tmp_path / extra.name).symlink_to(extra)
    mechanism = rqm(lower=-1, upper=1, levels=4, extension=1.0, q=0.42)
    said = claim(release(mechanism), "1.81")
    proof = sealed(said, "ratio", tables=[mechanism.canonical()])
    (tmp_path / "claim.json").write_text(kernel.write_claim(said, proof))
    (tmp_path / "false.json").write_text(kernel.write_claim(said, {**proof, "claim_sha256": "0"}))
    (tmp_path / "cut.json").write_text(kernel.write_claim(said, proof)[:-20])
    code = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); import mezzotint.kernel.__main__ as k;"
        "status = k.main(sys.argv[1:]); heavy = [m for m in ('numpy', 'scipy') if m in sys.modules];"
        "assert not heavy; sys.exit(status)"
    )
    for name, status in (("claim.json", 0), ("false.json", 1), ("cut.json", 2)):
        command = [sys.executable, "-I", "-S", "-c", code, str(tmp_path), str(tmp_path / name)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stdout + done.stderr
    assert "UNREADABLE" in done.stdout


def test_proof_pages_name_kernel_functions_that_exist_and_every_check_is_named() -> None:
    """Theorem by theorem: `module.function` in docs/proofs after "Relied on by"."""
    pages = sorted((Path(__file__).parents[2] / "docs" / "proofs").glob("*.md"))
    modules = {path.stem for path in FILES}
    named: set[str] = set()
    for page in pages:
        for passage in re.findall(
            r"Relied on by(?: the kernel)?:(.*?)(?:\n\n|\n#|\Z)", page.read_text(), re.DOTALL
        ):
            found = [
                name for name in re.findall(r"`([\w.]+)`", passage) if name.split(".")[0] in modules
            ]
            assert found, (page.name, passage)
            named |= set(found)
    for name in named:
        module, *path = name.split(".")
        target = importlib.import_module(f"mezzotint.kernel.{module}")
        for part in path:
            target = getattr(target, part)
    checks = {f"{check.__module__.rsplit('.', 1)[1]}.{check.__name__}" for check in KINDS.values()}
    assert checks <= named
    # Statements with a number or a name, and the functions that stand on them.
    text = (pages[0].parent / "kernel.md").read_text()
    sections = [
        part
        for part in text.split("\n## ")[1:]
        if not part.startswith(("Independent review", "What relies on no", "Premises"))
    ]
    assert [part.splitlines()[0] for part in sections if "Relied on by" not in part] == []


def test_every_function_of_the_kernel_is_named_on_a_page_of_proofs_and_every_name_there_exists() -> (
    None
):
    pages = sorted((Path(__file__).parents[2] / "docs" / "proofs").glob("*.md"))
    text = "\n".join(path.read_text(encoding="utf-8") for path in pages)
    own = {
        f"{name.removesuffix('.py')}.{node.name}"
        for name, tree in TREES.items()
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    }
    modules = "|".join(path.stem for path in FILES)
    named = set(re.findall(rf"`((?:{modules})\.\w+)", text))
    assert own - named == set()
    # Modules of other subpackages have the same names: what is named on the kernel's own page is here.
    page = next(path for path in pages if path.name == "kernel.md").read_text(encoding="utf-8")
    here = set(re.findall(rf"`((?:{modules})\.\w+)", page))
    assert {name for name in here - own if not hasattr(kernel, name.split(".")[1])} == set()
