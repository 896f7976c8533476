"""The measures of `tools/density.py` on sources whose numbers are counted by hand, and its ratchet."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from modules import load

ROOT = Path(__file__).parents[2]
density = load(ROOT / "tools" / "density.py")

SOURCE = '''"""A module."""

LIMIT = 3
"""The text beside a constant is no code."""


def half(number: int) -> int:
    """Halve a number."""
    # A comment is no code.
    found = number // 2
    return found if found < LIMIT else LIMIT
'''


def test_tokens_lines_and_names_are_counted_outside_texts() -> None:
    result = density.measure([SOURCE])
    # `LIMIT = 3` has 3 tokens, the signature 10, the assignment 5 and the return 8, on four lines.
    assert result.tokens_per_line == (3 + 10 + 5 + 8) / 4
    assert result.conditionals == 1000 / 4
    assert result.nested_conditionals == 0
    assert result.missing_letters == density.LONG_NAME - len("found")
    assert result.pronouns == 100
    assert result.wide_lines == 0
    assert result.longest_function == 4
    assert result.longest_file == len(SOURCE.splitlines())


@pytest.mark.parametrize(
    ("expression", "nested"),
    [
        ("a if b else c", 0),
        ("a if b else (c if d else e)", 1),
        ("[a if b else c for b in d]", 1),
        ("[b for b in (a if c else d)]", 1),
        ("f(a if b else c, d if e else g)", 0),
        ("a if b else (lambda: c if d else e)", 0),
    ],
)
def test_conditionals_within_others_and_within_comprehensions_are_seen(
    expression: str, nested: int
) -> None:
    assert density.measure([f"value = {expression}\n"]).nested_conditionals == nested


def test_the_ratchet_refuses_more_and_only_falls() -> None:
    sparse = density.measure([SOURCE])
    dense = replace(sparse, tokens_per_line=sparse.tokens_per_line + 1, longest_file=99)
    ceilings = density.tightened({"one": sparse}, {})
    assert density.faults({"one": sparse}, ceilings) == []
    messages = density.faults({"one": dense}, ceilings)
    assert [message.split()[1] for message in messages] == ["tokens_per_line", "longest_file"]
    assert density.faults({"two": sparse}, ceilings)
    assert density.tightened({"one": dense}, ceilings) == ceilings
    assert density.tightened({"one": sparse}, density.tightened({"one": dense}, {})) == ceilings


def test_small_sound_changes_pass_and_growth_does_not() -> None:
    ceilings = {"one": asdict(density.measure([SOURCE]))}
    base = density.Density(**ceilings["one"])
    assert density.SLACK.keys() == ceilings["one"].keys()
    for key, slack in density.SLACK.items():
        ceiling = ceilings["one"][key]
        allowance = max(slack, density.RELATIVE_SLACK * ceiling) if slack else 0
        within = replace(base, **{key: ceiling + allowance})
        beyond = replace(base, **{key: ceiling + allowance + 0.02})
        assert density.faults({"one": within}, ceilings) == []
        assert len(density.faults({"one": beyond}, ceilings)) == 1


def test_every_subpackage_has_ceilings() -> None:
    names = {folder.parent.name for folder in (ROOT / "src" / "mezzotint").glob("*/__init__.py")}
    assert names <= set(density.read_ceilings())
