"""No message shows a value of the data: messages go to logs and tickets, and the value is what the reports protect."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mezzotint import collect, families
from mezzotint.collect.columns import reason_of
from mezzotint.core.errors import MezzotintError

DIGITS = "7731"
"""Every private value below holds these."""

NUMBERS = families.randomized_response(lower=0, upper=1, epsilon=1.0)
LETTERS = families.categorical(categories=["a", "b"], epsilon=1.0)

Content = str | bytes | pa.Table

FILES: dict[str, tuple[str, Content, dict[str, Any]]] = {
    "text for a number": ("a.csv", f"x,y\n0.5,1\nsecret{DIGITS},1\n", {}),
    "a decimal comma": ("a.csv", f"x;y\n0.5;1\n77,{DIGITS};1\n", {}),
    "another mark of missing": ("a.csv", f"x,y\n0.5,1\n-{DIGITS}x,1\n", {"missing_values": ["-9"]}),
    "beyond the range in CSV": ("a.csv", f"x\n0.5\n{DIGITS}\n", {"on_out_of_range": "error"}),
    "beyond the range": (
        "a.parquet",
        pa.table({"x": [0.5, float(DIGITS)]}),
        {"on_out_of_range": "error"},
    ),
    "no category": ("a.csv", f"x\na\nsecret{DIGITS}\n", {"mechanism": LETTERS}),
    "a fraction": ("a.parquet", pa.table({"x": [1.0, 7731.5]}), {"mechanism": LETTERS}),
    "a decimal": ("a.parquet", pa.table({"x": [Decimal("7731.5")]}), {"mechanism": LETTERS}),
    "a fraction in JSON": ("a.jsonl", '{"x": 7731.5}\n', {"mechanism": LETTERS}),
    "text in JSON": ("a.jsonl", f'{{"x": 0.5}}\n{{"x": "secret{DIGITS}"}}\n', {}),
    "a list in JSON": ("a.jsonl", f'{{"x": 0.5}}\n{{"x": [{DIGITS}]}}\n', {}),
    "JSON cut": ("a.jsonl", f'{{"x": 0.5}}\n{{"x": {DIGITS}', {}),
    "a key twice": ("a.jsonl", f'{{"x": 0.5}}\n{{"x": {DIGITS}, "x": 2}}\n', {}),
    "JSON of Latin-1": ("a.jsonl", f'{{"x": 0.5}}\n{{"x": 1, "y": "é{DIGITS}"}}\n'.encode("latin-1"), {"keep": ["y"]}),
    "fields too many": ("a.csv", f"x,y\n0.5,1\n0.5,1,{DIGITS}\n", {}),
    "text behind a quote": ("a.csv", f'x,y\n0.5,"a"{DIGITS}\n', {}),
    "a quote without end": ("a.csv", f'x,y\n0.5,"a{DIGITS}\n', {}),
    "Latin-1": ("a.csv", f"x,y\n0.5,é{DIGITS}\n".encode("latin-1"), {"keep": ["y"]}),
    "no date": ("a.csv", f"x\n2026-10-05\n{DIGITS}-99-99\n", {"column": "x:weekday"}),
    "cut in a page": ("a.parquet", f"PAR1{DIGITS}{DIGITS}PAR1".encode(), {}),
}  # fmt: skip


@pytest.mark.parametrize("case", FILES)
def test_a_refused_file_shows_no_value(tmp_path: Path, case: str) -> None:
    name, content, options = FILES[case]
    source = tmp_path / name
    if isinstance(content, pa.Table):
        pq.write_table(content, source)
    else:
        source.write_bytes(content.encode() if isinstance(content, str) else content)
    chosen = {"column": "x", "mechanism": NUMBERS, **options}
    with pytest.raises(MezzotintError) as refused:
        collect.privatize(source, tmp_path / "o.csv", **chosen)
    assert DIGITS not in str(refused.value)


CALLS: dict[str, Callable[[], Any]] = {
    "beyond the range": lambda: NUMBERS.privatize([0.5, 7731.5], on_out_of_range="error"),
    "float32": lambda: NUMBERS.privatize(np.float32([7731.5]), on_out_of_range="error"),
    "Arrow": lambda: collect.arrow_codes(pa.array([7731.5]), NUMBERS, on_out_of_range="error"),
    "text for numbers": lambda: NUMBERS.privatize(["0.5", f"secret{DIGITS}"]),
    "a mixture": lambda: NUMBERS.privatize([0.5, f"secret{DIGITS}"]),
    "no category": lambda: LETTERS.privatize(["a", f"secret{DIGITS}"]),
    "a fraction": lambda: LETTERS.privatize([7731.5]),
    "a large integer": lambda: LETTERS.privatize([7731 * 10**30]),
}


@pytest.mark.parametrize("case", CALLS)
def test_a_refused_call_shows_no_value(case: str) -> None:
    with pytest.raises(MezzotintError) as refused:
        CALLS[case]()
    assert DIGITS not in str(refused.value)


def test_reasons_of_libraries_keep_their_words_and_lose_what_they_quote() -> None:
    failures: dict[str, Callable[[], Any]] = {
        "could not convert string to float": lambda: float(f"x{DIGITS}"),
        "Expecting value": lambda: json.loads(f'{{"x": secret{DIGITS}}}'),
        "ArrowInvalid": lambda: pa.array([7731.5]).cast(pa.int64()),
        "Failed": lambda: pa.array([f"x{DIGITS}"]).cast(pa.float64()),
    }
    for words, failing in failures.items():
        with pytest.raises(Exception, match=r".") as failed:  # whatever the library raises
            failing()
        reason = reason_of(failed.value)
        assert DIGITS not in reason
        assert reason.startswith((words, "Arrow"))
    assert (
        reason_of(ValueError(f"Could not convert secret{DIGITS} with type str: tried"))
        == "ValueError"
    )
    assert reason_of(ValueError("Parquet magic bytes not found in footer. Either")) == (
        "Parquet magic bytes not found in footer"
    )
