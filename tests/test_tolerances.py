"""Every tolerance of a test is a name from `tolerances`, or a comment beside it says where it comes from."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent

WORDS = {"rel", "abs", "rtol", "atol", "rel_tol", "abs_tol"}
"""What takes a tolerance, in `CLOSE`."""

CLOSE = {"approx", "assert_allclose", "allclose", "isclose"}

SMALL = 0.01
"""A literal below it that is compared with is taken for a tolerance."""


def numbers(node: ast.AST) -> Iterator[float]:
    """Floats, and powers with negative exponents, that an expression is made of; what it gives to calls is theirs."""
    if isinstance(node, ast.Constant) and isinstance(node.value, float):
        yield abs(node.value)
    elif (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Pow)
        and isinstance(node.right, ast.UnaryOp)
    ):
        yield 0.5 * SMALL
    elif isinstance(node, (ast.BinOp, ast.UnaryOp, ast.IfExp)):
        for child in ast.iter_child_nodes(node):
            yield from numbers(child)
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"max", "min"}
    ):
        for argument in node.args:
            yield from numbers(argument)


def numbers_near(test: ast.Compare) -> Iterator[float]:
    """Numbers of a comparison, but for a number alone that something must exceed or be: that is no tolerance."""
    sides = [test.left, *test.comparators]
    for operator, left, right in zip(test.ops, sides, sides[1:], strict=False):
        low, high = (right, left) if isinstance(operator, (ast.Gt, ast.GtE)) else (left, right)
        if not (isinstance(operator, (ast.Eq, ast.NotEq)) and isinstance(high, ast.Constant)):
            yield from numbers(high)
        if not isinstance(low, ast.Constant):
            yield from numbers(low)


def bare(tree: ast.AST) -> Iterator[ast.expr]:
    """Comparisons whose tolerance is written as a number, or left to a library's default."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and getattr(node.func, "attr", getattr(node.func, "id", "")) in CLOSE
        ):
            given = [word.value for word in node.keywords if word.arg in WORDS]
            if not given or any(number > 0 for value in given for number in numbers(value)):
                yield node
        elif isinstance(node, ast.Assert):
            for test in ast.walk(node.test):
                if isinstance(test, ast.Compare) and any(
                    0 < number < SMALL for number in numbers_near(test)
                ):
                    yield test


def commented(source: str) -> set[int]:
    """Lines that hold a comment."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0] for token in tokens if token.type == tokenize.COMMENT}


def unexplained(source: str) -> list[int]:
    """Lines of tolerances that no comment stands beside, or right above."""
    tree, lines = ast.parse(source), commented(source)
    # A comment that the formatter moved to the end of a statement stands beside all of it.
    spans = {
        inner: (node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Assert, ast.Expr, ast.Assign, ast.Return))
        for inner in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    found = set()
    for node in bare(tree):
        own = (node.lineno, node.end_lineno or node.lineno)
        first, last = spans.get(node.lineno, own)
        if not lines & set(range(first - 1, last + 1)):
            found.add(node.lineno)
    return sorted(found)


@pytest.mark.parametrize(
    "path", sorted(TESTS.rglob("*.py")), ids=lambda path: str(path.relative_to(TESTS))
)
def test_every_tolerance_has_a_name_or_a_reason(path: Path) -> None:
    assert not unexplained(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("assert a == pytest.approx(b)", True),
        ("assert a == pytest.approx(b, rel=1e-9)", True),
        ("assert a == pytest.approx(b, rel=FEW)", False),
        ("assert a == pytest.approx(b, rel=3 * FEW)", False),
        ("assert a == pytest.approx(b, abs=1e-9)  # nine roundings", False),
        ("np.testing.assert_allclose(a, b)", True),
        ("np.testing.assert_allclose(a, b, rtol=0, atol=GRAIN)", False),
        ("assert abs(a - b) < 1e-9", True),
        ("assert b <= a * (1 + 2.0**-40)", True),
        ("assert a <= claim(delta=1e-6)", False),
        ("assert a <= 0.95", False),
        ("assert pvalue > 1e-9", False),
        ("assert claim.delta == 1e-9", False),
    ],
)
def test_what_counts_as_a_bare_tolerance(line: str, seen: bool) -> None:
    assert bool(unexplained(line)) == seen
    assert not unexplained(f"# A reason.\n{line}")
