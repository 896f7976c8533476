"""The public reports of `cases/reports.py`: each input gives its answer."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

import ways
from collect.cases.reports import CASES, Case
from mezzotint import collect
from mezzotint.core.errors import MezzotintError


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.report)
def test_a_public_report(tmp_path: Path, case: Case) -> None:
    source = tmp_path / "in" / case.name
    source.parent.mkdir(parents=True)
    if isinstance(case.content, bytes):
        source.write_bytes(case.content)
    else:
        case.content(source)
    table = ways.steps() if case.categories is None else ways.table(*case.categories)
    options = {"missing": "drop", "keep": [case.kept] if case.kept else [], **case.options}
    out = tmp_path / "out.parquet"
    if isinstance(case.answer, str):
        with pytest.raises(MezzotintError, match=case.answer):
            collect.privatize(tmp_path / "in", out, column=case.column, mechanism=table, **options)
        assert not out.exists()
        return
    result = collect.privatize(tmp_path / "in", out, column=case.column, mechanism=table, **options)
    found = pq.read_table(out)
    present = [value for value in case.answer if value is not None]
    field = case.kept or next(name for name in found.column_names if name.endswith("_code"))
    assert found[field].to_pylist() == present
    assert (result.reports, result.missing) == (len(present), len(case.answer) - len(present))


def test_each_report_is_told_once() -> None:
    assert len({case.report.partition(" ")[0] for case in CASES}) >= 30
    assert len({case.report for case in CASES}) == len(CASES)
