"""One person, one id: the same in ledgers, limits, lots and memoised reports, whatever brings it."""

from __future__ import annotations

import decimal
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from mezzotint import collect, families, privacy
from mezzotint.core.errors import ParameterError
from mezzotint.core.values import identities
from tolerances import FEW

TABLE = families.randomized_response(lower=0, upper=1, epsilon=0.5)

SEVENS = [
    pa.array([7]),
    pa.array([7], pa.uint8()),
    pa.array(["7"]),
    pa.array(["7"], pa.large_string()),
    pa.array(["7"]).dictionary_encode(),
    pa.array([7.0]),
    pa.array([7.0], pa.float32()),
    pa.array([decimal.Decimal("7")]),
    pa.array([decimal.Decimal("7.00")]),
]

REFUSED = [
    ([" 7"], "blanks"),
    (["7\u00a0"], "blanks"),
    (["7\t"], "blanks"),
    (["7.0"], "blanks"),
    (["+7."], "blanks"),
    ([7.5], "fraction"),
    ([2.0**60], "fraction"),
    ([decimal.Decimal("7.5")], "fraction"),
    ([float("nan")], "no id"),
    ([None], "no id"),
    ([" "], "no id"),
    ([True], "integers or text"),
    ([b"7"], "integers or text"),
    ([datetime(2020, 1, 1)], "integers or text"),
    ([[7]], "integers or text"),
    ([{"id": 7}], "integers or text"),
]


def charged(ids: pa.Array, folder: Path) -> collect.PrivatizeResult:
    path = folder / "in.parquet"
    pq.write_table(pa.table({"x": [0.5] * len(ids), "id": ids}), path)
    out = folder / f"{len(list(folder.iterdir()))}.parquet"
    options = {"column": "x", "mechanism": TABLE, "ledger": folder / "ledger"}
    return collect.privatize(path, out, charge_by="id", **options)


def test_one_person_pays_for_all_spellings(tmp_path: Path) -> None:
    for ids in SEVENS:
        charged(ids, tmp_path)
    ledger = privacy.Ledger(tmp_path / "ledger")
    assert ledger.persons == 1
    assert ledger.worst().epsilon == pytest.approx(len(SEVENS) * TABLE.epsilon, rel=FEW)


@pytest.mark.parametrize(("values", "words"), REFUSED)
def test_other_ids_are_refused_and_nobody_is_charged(
    tmp_path: Path, values: list[Any], words: str
) -> None:
    """In every place that takes ids: ledgers, limits, lots and memoised reports."""
    ids = pa.array(values)
    with pytest.raises(ParameterError, match=words):
        charged(ids, tmp_path)
    assert not privacy.Ledger(tmp_path / "ledger").people
    assert not list(tmp_path.glob("[0-9].parquet"))
    with pytest.raises(ParameterError):
        collect.question_of(ids, questions=2, name="spring")
    with pytest.raises(ParameterError):
        collect.memoised([0.5], ids, mechanism=TABLE, key=bytes(32), column="x")
    lot = collect.Lot(people="id", question=1, questions=1, name="spring")
    for options in ({"charge_by": "id", "at_most": 1, "ledger": tmp_path / "ledger"}, {"lot": lot}):
        with pytest.raises(ParameterError, match=words):
            collect.privatize(
                tmp_path / "in.parquet",
                tmp_path / "out.parquet",
                column="x",
                mechanism=TABLE,
                **options,
            )


def test_ids_of_lots_and_memoised_reports_have_one_spelling_too() -> None:
    asked = [collect.question_of(ids, questions=1000, name="a")[0] for ids in SEVENS]
    assert len(set(asked)) == 1
    tables = {"mechanism": families.stochastic_rounding(lower=0, upper=1, levels=2), "column": "x"}
    inputs = np.linspace(0, 1, 64)
    composed = unicodedata.normalize("NFC", "é")
    for spellings in (SEVENS, [pa.array([composed]), pa.array(["e\u0301"])]):
        codes = set()
        for ids in spellings:
            users = pa.concat_arrays([ids.cast(ids.type)] * 64)
            codes.add(collect.memoised(inputs, users, key=bytes(32), **tables).tobytes())
        assert len(codes) == 1


TEXTS = st.text("a7.0 +\u00a0é\t-", max_size=4)


@given(st.lists(TEXTS, min_size=1, max_size=8), st.integers(0, 3))
def test_what_is_refused_is_what_one_text_after_the_other_says(texts: list[str], cut: int) -> None:
    """The fast search of suspicious texts against each of them alone, also in slices of arrays."""

    def misspelled(text: str) -> bool:
        whole, point, zeros = text.partition(".")
        digits = whole[1:] if whole[:1] in ("+", "-") else whole
        is_float = bool(point) and digits.isdigit() and zeros.strip("0") == ""
        return text != text.strip() or is_float

    refused: list[int | None] = []

    def refuse(index: int | None, words: str) -> ParameterError:
        refused.append(index)
        return ParameterError("ids", "given", words)

    ids = pa.array(texts).slice(cut)
    missing = [index for index, text in enumerate(texts[cut:]) if not text.strip()]
    wrong = [index for index, text in enumerate(texts[cut:]) if misspelled(text)]
    expected = (missing or wrong)[:1]
    with suppress(ParameterError):
        assert identities(ids, refuse).equals(ids)
    assert refused == expected


@pytest.mark.parametrize("parameter", ["charge_by", "per", "lot", "memo"])
@pytest.mark.parametrize("column", ["born", "born:year"])
def test_ids_and_periods_are_not_read_off_private_columns(
    tmp_path: Path, parameter: str, column: str
) -> None:
    rows = pa.table({"born": ["2001-02-03", "2001-02-04"], "id": ["a", "b"]})
    pq.write_table(rows, tmp_path / "in.parquet")
    days = families.categorical(categories=["2001-02-03", "2001-02-04"], epsilon=1.0)
    options: dict[str, dict[str, Any]] = {
        "charge_by": {"charge_by": column},
        "per": {"charge_by": "id", "at_most": 1, "per": column},
        "lot": {"lot": collect.Lot(people=column, question=1, questions=2, name="a")},
        "memo": {"memo": collect.Memo(users=column, key=bytes(32))},
    }
    if parameter in ("charge_by", "per"):
        options[parameter]["ledger"] = tmp_path / "ledger"
    privatize: Callable[..., object] = collect.privatize
    source, out = tmp_path / "in.parquet", tmp_path / "out.parquet"
    with pytest.raises(ParameterError, match="privatized itself"):
        privatize(source, out, column="born", mechanism=days, **options[parameter])
    with pytest.raises(ParameterError, match="reveal"):
        privatize(source, out, column="born", mechanism=days, keep=[column])
    assert not out.exists()
    assert not (tmp_path / "ledger").exists()
