"""The report of a reports file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mezzotint import collect, families, privacy
from mezzotint.core.errors import ParameterError
from mezzotint.report.file_pages import page_of
from mezzotint.report.reports_pages import reports_page


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    values = [0.1, 0.2, 0.3, 1.5, -0.5] * 2000 + [None]
    pq.write_table(pa.table({"x": pa.array(values, pa.float64())}), tmp_path / "in.parquet")
    table = families.randomized_response(lower=0, upper=1, epsilon=2.0)
    out = tmp_path / "reports.parquet"
    collect.privatize(
        tmp_path / "in.parquet",
        out,
        column="x",
        mechanism=table,
        missing="drop",
    )
    return out


def test_estimates_are_those_of_collect(reports: Path) -> None:
    page = reports_page(reports)
    estimate = collect.estimate(collect.read_counts(reports), histogram=10)
    (figure,) = page.sections[0].figures
    assert figure.curves[0].y == tuple(estimate.histogram.share.tolist())
    assert all(
        low <= high for low, high in zip(figure.curves[0].low, figure.curves[0].high, strict=True)
    )
    assert page.sections[0].table.rows[0][1] == f"{estimate.mean.value:,.6g}"
    assert "10,000 reports" in page.summary


@pytest.mark.parametrize("kind", ["file", "folder", "csv.gz"])
def test_the_page_names_its_column_and_the_units(reports: Path, tmp_path: Path, kind: str) -> None:
    source = (
        reports
        if kind == "file"
        else tmp_path / ("parts" if kind == "folder" else "reports.csv.gz")
    )
    if kind != "file":
        table = families.randomized_response(lower=0, upper=1, epsilon=2.0)
        collect.privatize(
            tmp_path / "in.parquet", source, column="x", mechanism=table, missing="drop"
        )
    page = page_of(source)
    assert page.title == f"Reports of x in {source.name}"
    (figure,), shown = page.sections[0].figures, page.sections[0].table
    assert figure.x_label == "x (data units)"
    assert shown is not None
    assert shown.headings == ("x, clipped", "estimate", "95 % low", "95 % high")
    assert all("data units)" in row[0] for row in shown.rows)


def test_a_folder_of_parts_and_saved_counts_say_what_one_file_says(
    reports: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "a.parquet").write_bytes(reports.read_bytes())
    (folder / "b.parquet").write_bytes(reports.read_bytes())
    with pytest.raises(ParameterError, match=r"a\.parquet and b\.parquet hold the same reports"):
        page_of(folder)
    again = reports.with_name("again.parquet")
    table = families.randomized_response(lower=0, upper=1, epsilon=2.0)
    collect.privatize(
        reports.with_name("in.parquet"),
        again,
        column="x",
        mechanism=table,
        missing="drop",
    )
    (folder / "b.parquet").write_bytes(again.read_bytes())
    page = page_of(folder)
    assert "20,000 reports" in page.summary
    collect.save_counts(collect.read_counts(folder), tmp_path / "counts.json")
    saved = page_of(tmp_path / "counts.json")
    assert saved.summary == page.summary


def test_several_columns_state_what_a_record_pays(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"x": [0.5, 0.2, 2.0], "y": [-3.0, 0.1, -1.0]}), tmp_path / "in.parquet"
    )
    tables = {
        name: families.randomized_response(lower=0, upper=1, epsilon=e)
        for name, e in (("x", 1.0), ("y", 2.0))
    }
    out = tmp_path / "both.parquet"
    collect.privatize_columns(tmp_path / "in.parquet", out, mechanisms=tables)
    with pytest.raises(ParameterError, match="x_code, y_code"):
        page_of(out)
    page = page_of(out, column="y_code")
    assert page.sections[1].title == "What a record pays"
    claim = privacy.report_claim({"x_code": tables["x"], "y_code": tables["y"]})
    assert str(claim) in page.sections[1].words[0]


@pytest.mark.parametrize("out", ["both.parquet", "both.csv", "both/"])
@pytest.mark.parametrize("column", ["x", "word"])
def test_every_page_says_what_its_rows_are_and_pay(tmp_path: Path, out: str, column: str) -> None:
    """Files and folders, numbers and categories alike."""
    rows = pa.table({"x": [0.5, 0.2] * 20, "word": ["a", "b"] * 20, "id": list("abcd") * 10})
    pq.write_table(rows, tmp_path / "in.parquet")
    tables = {
        "x": families.randomized_response(lower=0, upper=1, epsilon=1.0),
        "word": families.categorical(categories=["a", "b"], epsilon=2.0),
    }
    collect.privatize_columns(
        tmp_path / "in.parquet",
        f"{tmp_path}/{out}",
        mechanisms=tables,
        ledger=tmp_path / "ledger",
        charge_by="id",
        at_most=3,
    )
    page = page_of(tmp_path / out, column=f"{column}_code")
    said = {section.title: " ".join(section.words) for section in page.sections}
    assert "at most 3 rows of each person" in said["Rows and people"]
    claim = privacy.report_claim({f"{name}_code": table for name, table in tables.items()})
    assert said["What a record pays"].endswith(f"pays: {claim}")


@pytest.mark.parametrize("out", ["r.parquet", "r.csv", "folder"])
def test_a_page_about_seeded_reports_states_no_epsilon(tmp_path: Path, out: str) -> None:
    pq.write_table(pa.table({"x": [0.5, 0.2, 0.7]}), tmp_path / "in.parquet")
    table = families.randomized_response(lower=0, upper=1, epsilon=2.0)
    collect.privatize(tmp_path / "in.parquet", tmp_path / out, column="x", mechanism=table, rng=1)
    page = page_of(tmp_path / out)
    assert "NOT private" in page.summary
    assert "epsilon" not in repr(page)
    assert page.sections[0].title == "Not private"


@pytest.mark.parametrize(
    ("confidence", "percentage"), [(0.95, "95 %"), (0.995, "99.5 %"), (0.99999, "99.999 %")]
)
def test_a_confidence_is_shown_with_all_its_digits(
    reports: Path, confidence: float, percentage: str
) -> None:
    """99.999 % is neither 100 % nor "99 %"."""
    page = reports_page(reports, confidence=confidence)
    section = page.sections[0]
    assert f"{percentage} interval" in page.summary
    assert section.figures[0].title.endswith(f"with {percentage} intervals")
    assert section.table is not None
    assert section.table.headings[-2:] == (f"{percentage} low", f"{percentage} high")
