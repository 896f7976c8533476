"""The independent check: agrees with the fast path on good files, and lets no bad one pass."""

from __future__ import annotations

import ast
import json
import math
import random
import re
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import pytest
from hypothesis import given, strategies as st

from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import TOTAL
from mezzotint.privacy import Release, account, prove, verification, verify
from strategies import random_table, tables
from tolerances import FEW, LOG_UP


@pytest.fixture
def document() -> dict[str, Any]:
    return json.loads(random_table(5, rows=4, levels=5).to_json())


def check(tmp_path: Path, content: Any) -> Any:
    path = tmp_path / "m.json"
    text = (
        content
        if isinstance(content, bytes)
        else (content if isinstance(content, str) else json.dumps(content)).encode()
    )
    path.write_bytes(text)
    return verify(path)


@given(tables())
def test_good_mechanisms_are_valid_and_agree_with_the_fast_path(mechanism: Mechanism) -> None:
    report = verify(mechanism)
    assert report.problems == ()
    assert report.valid
    assert report.max_bias == mechanism.exact_max_bias
    assert report.sha256 == mechanism.sha256
    if math.isinf(mechanism.epsilon):
        assert report.epsilon_upper == math.inf
    else:
        assert report.epsilon_upper <= mechanism.epsilon <= report.epsilon_upper * (1 + LOG_UP)


def test_a_saved_file_is_valid(tmp_path: Path) -> None:
    mechanism = random_table(5, rows=4, levels=5)
    mechanism.save(tmp_path / "m.json")
    report = verify(tmp_path / "m.json")
    assert report.valid
    shown = re.search(r"epsilon <= (\S+) per report", str(report))
    assert shown is not None
    assert (
        0
        <= Fraction(shown[1]) - Fraction(report.epsilon_upper)
        <= Fraction(report.epsilon_upper) / 10**11
    )
    assert verify(str(tmp_path / "m.json")) == report


@given(st.fractions(min_value=1, max_value=TOTAL, max_denominator=TOTAL), st.integers(1, 64))
def test_the_logarithm_is_bounded_from_above_and_closely(ratio: Fraction, power: int) -> None:
    above = verification.log_above(ratio**power)
    with mpmath.workdps(80):
        exact = power * mpmath.log(mpmath.mpf(ratio.numerator) / ratio.denominator)
        # 160 bits, of numbers below 2^2048 whose logarithm is a multiple of one of 2^-160 by the power.
        assert (
            exact <= mpmath.mpf(above.numerator) / above.denominator < exact + mpmath.mpf(2) ** -158
        )


def test_the_logarithm_of_one_is_zero_and_of_two_to_the_32_is_close() -> None:
    assert verification.log_above(Fraction(1)) == 0
    assert float(verification.log_above(Fraction(TOTAL))) == pytest.approx(
        32 * math.log(2), rel=FEW
    )
    assert verification.log_above(Fraction(TOTAL, TOTAL - 1)) > Fraction(1, TOTAL)


def test_it_shares_no_code_with_the_package_but_the_kernel() -> None:
    tree = ast.parse(Path(verification.__file__ or "").read_text(encoding="utf-8"))
    top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = [alias.name for node in top if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in top if isinstance(node, ast.ImportFrom)]
    foreign = [
        name for name in names if name.split(".")[0] not in {*sys.stdlib_module_names, "flint"}
    ]
    assert foreign
    assert all(name.startswith("mezzotint.kernel.") for name in foreign)


def _move_unit(row: list[int]) -> None:
    row[0], row[1] = row[0] + 1, row[1] - 1


EDITS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "weight moved": lambda d: d["weights"][0].__setitem__(
        slice(0, 2), [d["weights"][0][0] + 1, d["weights"][0][1] - 1]
    ),
    "row sum": lambda d: d["weights"][1].__setitem__(0, d["weights"][1][0] + 1),
    "negative": lambda d: d["weights"][1].__setitem__(
        slice(0, 2), [-1, sum(d["weights"][1][:2]) + 1]
    ),
    "float weight": lambda d: d["weights"][1].__setitem__(0, float(d["weights"][1][0])),
    "bool weight": lambda d: d["weights"][1].__setitem__(0, True),
    "huge weight": lambda d: d["weights"][1].__setitem__(0, 10**400),
    "short row": lambda d: d["weights"][2].pop(),
    "row gone": lambda d: d["weights"].pop(),
    "knot moved": lambda d: d["knots"].__setitem__(0, d["knots"][0] - 1),
    "knots swapped": lambda d: d["knots"].reverse(),
    "triple knot": lambda d: d["knots"].__setitem__(slice(0, 3), [d["knots"][0]] * 3),
    "huge knot": lambda d: d["knots"].__setitem__(3, 10**400),
    "text knot": lambda d: d["knots"].__setitem__(3, "1"),
    "level moved": lambda d: d["levels"].__setitem__(0, d["levels"][0] - 1),
    "levels equal": lambda d: d["levels"].__setitem__(0, d["levels"][1]),
    "levels text": lambda d: d.__setitem__("levels", "many"),
    "hash": lambda d: d.__setitem__("sha256", "0" * 64),
    "hash gone": lambda d: d.pop("sha256"),
    "format": lambda d: d.__setitem__("format", "other"),
    "version": lambda d: d.__setitem__("version", 2),
    "version true": lambda d: d.__setitem__("version", True),
    "name": lambda d: d.__setitem__("name", 7),
    "extra key": lambda d: d.__setitem__("comment", "trust me"),
    "no certificate": lambda d: d.__setitem__("certificate", None),
    "certificate without epsilon": lambda d: d["certificate"].pop("epsilon"),
    "certificate key": lambda d: d["certificate"].__setitem__("unit", "report"),
    "epsilon lower": lambda d: d["certificate"].__setitem__(
        "epsilon", d["certificate"]["epsilon"] / 2
    ),
    "epsilon higher": lambda d: d["certificate"].__setitem__(
        "epsilon", d["certificate"]["epsilon"] * 2
    ),
    "epsilon one ulp under": lambda d: d["certificate"].__setitem__(
        "epsilon", math.nextafter(verify(Mechanism.from_json(json.dumps(d))).epsilon_upper, 0)
    ),
    "epsilon inf": lambda d: d["certificate"].__setitem__("epsilon", "inf"),
    "epsilon true": lambda d: d["certificate"].__setitem__("epsilon", True),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_every_edit_is_caught(
    tmp_path: Path, document: dict[str, Any], edit: Callable[[dict[str, Any]], Any]
) -> None:
    assert check(tmp_path, document).valid
    edit(document)
    report = check(tmp_path, document)
    assert not report.valid
    assert all(problem for problem in report.problems)
    assert str(report).startswith("UNREADABLE: " if report.unreadable else "NOT VALID: ")


def test_a_table_rehashed_and_recertified_by_hand_must_still_be_right(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    other = json.loads(random_table(6, rows=4, levels=5).to_json())
    document["certificate"] = other["certificate"]
    assert not check(tmp_path, document).valid


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe\x00",
        b"PAR1",
        b"[" * 100_000,
        b'{"format": "mezzotint-mechanism", "version": 1, "knots": [NaN, 1]}',
        b'{"format": "mezzotint-mechanism", "version": 1, "knots": [1e999, 1]}',
        b'{"format": "mezzotint-mechanism", "version": ' + b"9" * 5000 + b"}",
        b'{"format": "mezzotint-mechanism", "format": "mezzotint-mechanism"}',
    ],
    ids=lambda content: content[:40].decode("latin-1"),
)
def test_what_is_no_mechanism_file_is_a_problem_not_an_error(
    tmp_path: Path, content: bytes
) -> None:
    report = check(tmp_path, content)
    assert not report.valid
    assert report.epsilon_upper == math.inf
    assert report.max_bias is None


@pytest.mark.parametrize(
    "thing", [None, 3, b"m.json", object(), "", "no/such/file.json", ".", "nul\0byte"]
)
def test_what_is_no_path_is_a_problem_not_an_error(thing: Any) -> None:
    assert not verify(thing).valid


def test_truncation_anywhere_is_caught(tmp_path: Path) -> None:
    text = random_table(5, rows=2, levels=3).to_json().rstrip()
    for length in range(0, len(text), 7):
        assert not check(tmp_path, text[:length]).valid, length


def test_a_changed_digit_anywhere_is_caught(tmp_path: Path) -> None:
    text = random_table(5, rows=3, levels=3).to_json()
    draw = random.Random(1)
    digits = [
        i for i, character in enumerate(text) if character.isdigit() and i > text.index('"knots"')
    ]
    epsilon = range(text.index('"epsilon":'), text.rindex("}}"))
    for i in draw.sample(digits, 150):
        edited = text[:i] + str((int(text[i]) + draw.randint(1, 9)) % 10) + text[i + 1 :]
        report = check(tmp_path, edited)
        # The last digits of a float may name the same double, or an epsilon overstated by less than 2**-48.
        same = _same_numbers(edited, text) or i in epsilon
        assert same or not report.valid, edited[max(0, i - 20) : i + 20]


def _same_numbers(edited: str, text: str) -> bool:
    try:
        return json.loads(edited) == json.loads(text)
    except ValueError:
        return False


def test_an_object_whose_fast_path_lies_is_caught() -> None:
    class Liar:
        def to_json(self) -> str:
            honest, other = (
                json.loads(random_table(seed, rows=4, levels=5).to_json()) for seed in (5, 6)
            )
            return json.dumps({**honest, "certificate": other["certificate"]})

    report = verify(Liar())  # pyright: ignore[reportArgumentType]
    assert not report.valid


# Every rounding and every rule by itself: what a mutation of the file would otherwise survive.


@given(st.fractions(min_value=0, max_value=100))
def test_floats_are_rounded_up(value: Fraction) -> None:
    above = verification._least_float_above(value)
    assert Fraction(above) >= value
    assert above == 0 or Fraction(math.nextafter(above, -math.inf)) < value


RULES: dict[str, Callable[[dict[str, Any]], object]] = {
    "weights[1] holds -1, not an integer from 0 to 2**256": lambda d: d["weights"].__setitem__(
        1, [-1, TOTAL + 1, *d["weights"][1][2:]]
    ),
    f"table: row 2 does not sum to 2**32 (have {TOTAL + 1}, want {TOTAL})": lambda d: d["weights"][
        2
    ].__setitem__(0, d["weights"][2][0] + 1),
    "table: row 3 has not one weight per level": lambda d: d["weights"][3].pop(),
    "levels do not increase strictly": lambda d: d["levels"].__setitem__(1, d["levels"][0]),
    "knots are not sorted": lambda d: d["knots"].__setitem__(1, d["knots"][2] + 0.5),
    "a jump at the first or last knot": lambda d: d["knots"].__setitem__(1, d["knots"][0]),
    "a knot stands more than twice": lambda d: d["knots"].__setitem__(
        slice(1, 4), [d["knots"][1]] * 3
    ),
}


@pytest.mark.parametrize("problem", RULES)
def test_each_rule_is_named(tmp_path: Path, problem: str) -> None:
    document = json.loads(random_table(5, rows=6, levels=5).to_json())
    RULES[problem](document)
    assert problem in check(tmp_path, document).problems


CATEGORIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "a category occurs twice": lambda d: d["categories"].__setitem__(1, d["categories"][0]),
    "categories holds something that is not text": lambda d: d["categories"].__setitem__(1, 1),
    "knots are not the numbers of the categories": lambda d: d["knots"].__setitem__(2, 2.5),
    "sha256 is not that of the table: it was edited or damaged": lambda d: d.pop("categories"),
}


def _categorical() -> Mechanism:
    table = random_table(5, rows=3, levels=4)
    return Mechanism(
        knots=[0.0, 1.0, 2.0],
        levels=table.levels,
        weights=table.weights,
        categories=["a", "b", "c"],
    )  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("problem", CATEGORIES)
def test_categories_are_part_of_the_table_and_have_rules(tmp_path: Path, problem: str) -> None:
    document = json.loads(_categorical().to_json())
    assert check(tmp_path, document).valid
    assert verify(_categorical()).valid
    CATEGORIES[problem](document)
    assert problem in check(tmp_path, document).problems


def test_codes_have_16_bits(tmp_path: Path) -> None:
    def problems(levels: int) -> list[str]:
        row = [TOTAL - levels + 1] + [1] * (levels - 1)
        document = {**made, "levels": [float(k) for k in range(levels)], "weights": [row, row]}
        return [
            one
            for one in check(tmp_path, document).problems
            if not one.startswith(("certificate", "sha256"))
        ]

    made = json.loads(random_table(5, rows=2, levels=2).to_json())
    assert problems(2**16) == []
    assert problems(2**16 + 1) == ["levels is not a list of at most 65536 values"]


def test_equal_rows_have_epsilon_zero_exactly(tmp_path: Path) -> None:
    row = [TOTAL // 4, 3 * (TOTAL // 4)]
    equal = Mechanism(knots=[0.0, 1.0], levels=[0.0, 1.0], weights=[row, row])  # pyright: ignore[reportArgumentType]
    assert verify(equal).epsilon_upper == 0
    document = json.loads(equal.to_json())
    assert check(tmp_path, document).problems == ()
    document["certificate"]["epsilon"] = 5e-324
    assert "not the 0.0 of its table" in " ".join(check(tmp_path, document).problems)


def test_a_jump_in_the_middle_breaks_no_rule(tmp_path: Path) -> None:
    table = random_table(5, rows=4, levels=5)
    knots = [*table.knots[:2], table.knots[1], table.knots[3]]
    assert check(
        tmp_path, Mechanism(knots=knots, levels=table.levels, weights=table.weights).to_json()
    ).valid  # pyright: ignore[reportArgumentType]


def test_two_knots_and_two_levels_are_a_table(tmp_path: Path) -> None:
    assert check(tmp_path, random_table(5, rows=2, levels=2).to_json()).valid


def _claim(tmp_path: Path) -> Path:
    claim, proof = prove(
        Release(mechanism=random_table(5, rows=3, levels=3), rounds=30, delta=1e-6)
    )
    assert proof is not None
    claim.save(tmp_path / "claim.json", proof)
    return tmp_path / "claim.json"


def test_a_proof_is_asked_for_by_name(tmp_path: Path) -> None:
    release = Release(mechanism=random_table(5, rows=3, levels=3), rounds=2, delta=1e-6)
    assert not account(release).certified
    claim, proof = prove(release)
    assert claim.certified
    claim.save(tmp_path / "claim.json", proof)
    assert verify(tmp_path / "claim.json").valid
    with pytest.raises(TypeError):
        tuple(account(release))


def test_a_claim_file_is_checked_by_its_proof(tmp_path: Path) -> None:
    path = _claim(tmp_path)
    report = verify(path)
    assert report.valid
    assert report.subject == "claim"
    assert report.claim is not None
    assert report.claim.certified
    assert (
        Fraction(report.epsilon_upper)
        >= report.claim.epsilon
        > Fraction(math.nextafter(report.epsilon_upper, 0))
    )
    assert report.sha256 == report.claim.sha256
    assert str(report).startswith("certified: (")


def test_a_claim_that_is_not_shown_is_not_valid_and_has_no_epsilon(tmp_path: Path) -> None:
    path = _claim(tmp_path)
    document = json.loads(path.read_text())
    document["statement"]["epsilon"] = "0.001"
    path.write_text(json.dumps(document))
    report = verify(path)
    assert not report.valid
    assert report.epsilon_upper == math.inf
    assert report.claim is not None
    assert not report.claim.certified
    assert "REFUSED at proof" in str(report)
    assert not verify(_claim_of_text(tmp_path, json.dumps(document)[:-9])).valid
    assert verify(_claim_of_text(tmp_path, json.dumps(document)[:-9])).claim is None


def _claim_of_text(tmp_path: Path, text: str) -> Path:
    (tmp_path / "text.json").write_text(text)
    return tmp_path / "text.json"


def test_a_claim_whose_check_is_stopped_is_not_valid(tmp_path: Path) -> None:
    report = verify(_claim(tmp_path), seconds=0)
    assert not report.valid
    assert "NOT CHECKED" in report.problems[0]


@pytest.mark.parametrize(
    "content",
    [b"PAR1\xff\xfe", b"x_code\n0\n1\n", b'{"a": 1}\n{"b": 2}\n', b'{"settings": 1}'],
    ids=["Parquet", "CSV", "lines of JSON", "other JSON"],
)
def test_what_holds_no_claim_says_which_files_do(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "reports"
    file.write_bytes(content)
    report = verify(file)
    assert report.unreadable
    assert "mezzotint design --out" in str(report)
    assert "--proof of privatize" in str(report)


def test_a_damaged_mechanism_is_called_damaged(tmp_path: Path, document: dict[str, Any]) -> None:
    (tmp_path / "cut.json").write_text(json.dumps(document)[:-20])
    report = verify(tmp_path / "cut.json")
    assert report.unreadable
    assert "--proof" not in str(report)
