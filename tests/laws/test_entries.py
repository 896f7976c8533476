"""Whatever is given to a public name, it works, or an error of the package names the parameter."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mezzotint as mz
from laws.entries import (
    CALLS,
    UNSEEDED,
    WRONG,
    annotations,
    content,
    degenerate,
    groups,
    outcome,
    public,
    twins,
)
from mezzotint.core.errors import ParameterError
from mezzotint.core.kinds import checked
from mezzotint.families import response

PACKAGES = (
    "families", "privacy", "collect", "design", "vectors", "smoothed", "training", "federated", "report", "datasets",
    "papers",
)  # fmt: skip
FAST = ("families.", "privacy.Release", "privacy.Charge", "federated.Sums", "vectors.Setting")
"""Of the fast part: records and tables, made in no time."""

NOT_A_NUMBER = (
    "NaN",
    "True",
    "'1'",
    "nothing",
    "[]",
    "huge",
    "numpy NaN",
    "complex",
    "[NaN]",
    "{}",
)
"""What no parameter that is annotated as a number takes, whatever its range."""


ANY_SIZE = "privacy.Charge"
"""Prices of other libraries' claims may be integers beyond the floats."""


def _faults(name: str, folder: Path) -> Iterator[str]:
    make = CALLS[name]
    good = make(folder)
    assert outcome(name, good, 60)[0] == "accepted", (name, outcome(name, make(folder), 60))
    kinds = annotations(name)
    for parameter in good:
        if parameter == "self":
            continue
        pieces = set(kinds.get(parameter, "").split(" | "))
        is_number = bool(pieces) and pieces <= {"int", "float", "None"}
        for label, wrong in [*WRONG.items(), *degenerate(good[parameter])]:
            ending, words = outcome(name, {**make(folder), parameter: wrong})
            is_nonsense = is_number and label in NOT_A_NUMBER and name != ANY_SIZE
            if ending == "raw" or (ending == "accepted" and is_nonsense):
                yield f"{name}({parameter}={label}): {ending} {words}"


@pytest.mark.parametrize("name", [name for name in CALLS if name.startswith(FAST)])
def test_tables_and_records_refuse_by_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert list(_faults(name, tmp_path)) == []


def _subfolder(folder: Path, name: str) -> Path:
    subfolder = folder / name
    subfolder.mkdir()
    return subfolder


def _unequal_twins(name: str, folder: Path, step: int = 1) -> Iterator[str]:
    """Values of which every `step`-th other spelling changes the result."""
    make = CALLS[name]
    kinds = annotations(name)
    for parameter in make(folder):
        annotation = kinds.get(parameter, "")
        for index in range(0, len(list(twins(make(folder)[parameter], annotation))), step):
            spelled_values = make(_subfolder(folder, f"{parameter}-{index}"))
            plain_values = make(_subfolder(folder, f"{parameter}-{index}-plain"))
            spelled = list(twins(spelled_values[parameter], annotation))[index][0]
            plain = list(twins(plain_values[parameter], annotation))[index][1]
            ending, result = outcome(name, {**spelled_values, parameter: spelled}, 60)
            plain_ending, plain_result = outcome(name, {**plain_values, parameter: plain}, 60)
            if ending == plain_ending == "accepted" and name not in UNSEEDED:
                is_same = content(result) == content(plain_result)
            else:
                is_same = ending == plain_ending != "raw"
            if not is_same:
                yield f"{name}({parameter}={spelled!r}), not {plain!r}: {ending} {result}"


@pytest.mark.parametrize("name", [name for name in CALLS if name.startswith(FAST)])
def test_tables_and_records_are_the_same_by_every_spelling(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert list(_unequal_twins(name, tmp_path)) == []


def test_every_call_gives_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in CALLS:
        if not name.startswith(("training.", "federated.", "papers.")):
            parameters = inspect.signature(public(name)).parameters
            has_options = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
            assert has_options or CALLS[name](tmp_path).keys() <= parameters.keys(), name


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CALLS if not name.startswith(FAST)])
def test_whatever_is_given_is_refused_by_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for library in ("torch", "flwr"):
        pytest.importorskip(library)
    assert list(_faults(name, tmp_path)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CALLS if not name.startswith(FAST)])
def test_every_spelling_of_a_value_gives_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for library in ("torch", "flwr"):
        pytest.importorskip(library)
    assert list(_unequal_twins(name, tmp_path, step=3)) == []


RECORDS = ("privacy.Release", "federated.Sums", "vectors.Setting", "collect.Lot", "collect.Memo")


@pytest.mark.parametrize("name", RECORDS)
def test_a_field_that_is_missing_is_named(name: str) -> None:
    record = public(name)
    required = [
        field.name
        for field in dataclasses.fields(record)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    assert required
    with pytest.raises(ParameterError, match=f"^{required[0]}=None: is missing; "):
        record()


def test_the_error_for_a_missing_delta_says_what_is_needed() -> None:
    table = mz.families.randomized_response(epsilon=1.0)
    with pytest.raises(
        ParameterError, match=r"^delta=None: is missing; Release needs mechanism, d"
    ):
        mz.privacy.Release(mechanism=table)  # pyright: ignore[reportCallIssue]


# The check itself ---------------------------------------------------------------------------------


@checked
def _example(
    count: int,
    share: float | None = None,
    *,
    words: list[str] | None = None,
    pair: tuple[int, float] = (1, 1.0),
    key: bytes = b"",
    unknown: Unseen = 0,  # noqa: F821  # pyright: ignore  # as of a library that is not there
) -> int:
    return count


@checked
def _pair(pair: tuple[int, float]) -> tuple[int, float]:
    return pair


@checked
def _number_or_fraction(value: int | float | Fraction) -> float | Fraction:
    return value


@checked
def _fraction_or_number(value: Fraction | float) -> float | Fraction:
    return value


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"count": 1.5}, r"^count=1\.5: need an integer$"),
        ({"count": True}, r"^count=True: need an integer$"),
        ({"count": 1, "share": "0.5"}, r"^share='0\.5': need a number$"),
        ({"count": 1, "share": 10**400}, "^share=10+.*: need a number$"),
        ({"count": 1, "words": "abc"}, "^words=abc: need a sequence, each text$"),
        ({"count": 1, "words": ["a", 1]}, r"^words\[1\]=1: need text$"),
        ({"count": 1, "pair": (1, 2, 3)}, "^pair=tuple: need a sequence"),
        ({"count": 1, "key": "secret"}, "^key=str: need bytes$"),
        ({}, "^count=None: is missing; _example needs count$"),
    ],
)
def test_the_error_names_parameter_value_and_remedy(arguments: Any, words: str) -> None:
    with pytest.raises(ParameterError, match=words) as refused:
        _example(**arguments)
    assert "secret" not in str(refused.value)


def test_what_is_of_its_kind_passes_and_numbers_become_plain() -> None:
    numbers: dict[str, Any] = {"count": np.int64(3), "share": np.float32(0.5)}
    count = _example(**numbers, words=["a"], pair=(1, 2), unknown=object())
    assert count == 3
    assert type(count) is int
    assert inspect.signature(_example).parameters.keys() >= {"count", "share"}


def test_a_whole_number_counts_however_it_is_written() -> None:
    pair_of_counts = mz.smoothed.profile(counts=[1e4, 3], sampled=Decimal(5), epsilon=1.0)
    assert pair_of_counts == mz.smoothed.profile(counts=[10_000, 3], sampled=5, epsilon=1.0)
    for wrong in (2.0**53, 0.5, float("inf"), Fraction(1, 2), np.datetime64(3, "s"), np.bool_(1)):
        with pytest.raises(ParameterError, match=r"^count=.*: need an integer$"):
            _example(wrong)  # pyright: ignore[reportArgumentType]


def test_elements_of_arrays_and_frames_are_checked_and_become_plain() -> None:
    vertices = [[0.25, 0.75], [0.5, 0.5]]
    options: dict[str, Any] = {"n": 6, "sampled": 3, "epsilon": 1.0}
    expected = content(mz.smoothed.expected(vertices=vertices, **options))
    pandas = pytest.importorskip("pandas")
    for spelled in (
        np.array(vertices),
        pandas.DataFrame(vertices),
        (iter(row) for row in vertices),
    ):
        assert content(mz.smoothed.expected(vertices=spelled, **options)) == expected
    masked: Any = np.ma.array([3, 4], mask=[True, False])
    with pytest.raises(ParameterError, match=r"^counts\[0\]=.*: need an integer$"):
        mz.smoothed.profile(counts=masked, sampled=3, epsilon=1.0)


@pytest.mark.parametrize("unordered", [{"a": 0, "b": 1}, {"a", "b"}])
def test_what_has_no_order_is_no_sequence(unordered: Any) -> None:
    with pytest.raises(ParameterError, match=r"^categories=.*make a list, in the order"):
        mz.families.categorical(categories=unordered, epsilon=1.0)
    with pytest.raises(ParameterError, match=r"^pair=.*make a list, in the order"):
        _pair({1, 2})  # type: ignore[arg-type]


def test_a_pair_is_a_tuple_however_it_is_written() -> None:
    for pair in ([1, 2], np.array([1, 2]), (1.0, 2), range(1, 3), iter([1, 2])):
        assert _pair(pair) == (1, 2)  # type: ignore[arg-type]


def test_fractions_stay_exact_beside_numbers_in_any_order() -> None:
    third = Fraction(1, 3)
    for function in (_number_or_fraction, _fraction_or_number):
        assert (function(third), function(0.5), function(3)) == (third, 0.5, 3)
        assert function(Decimal("0.1")) == Fraction(1, 10)  # type: ignore[arg-type]


def test_a_limit_of_time_need_not_be_whole() -> None:
    release = mz.privacy.Release(mechanism=mz.families.randomized_response(epsilon=1.0), delta=0.0)
    assert mz.privacy.prove(release, seconds=5.5) == mz.privacy.prove(release, seconds=6)
    for seconds in (5.5, float("inf")):
        assert mz.privacy.verify(release.mechanism, seconds=seconds).valid


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_integers_of_arrays_without_a_dimension_count(library: str) -> None:
    make: Any = np.array if library == "numpy" else pytest.importorskip("torch").tensor
    assert type(_example(make(3))) is int
    assert mz.families.rqm(levels=make(4)).levels.size == 4
    for wrong in (make(True), make(3.5), make([3])):
        with pytest.raises(ParameterError, match=r"^count="):
            _example(wrong)


def test_whole_numbers_are_fractions_too() -> None:
    corners: Any = ((Fraction(1, 4), Fraction(3, 4)), (1, 0))
    assert mz.smoothed.hull_vertices(corners) == corners
    with pytest.raises(ParameterError, match=r"^points\[0\]\[0\]=0\.25: need a fraction$"):
        mz.smoothed.hull_vertices([(0.25, 0.75)])  # pyright: ignore[reportArgumentType]


def test_what_is_taken_by_name_alone_is_not_taken_by_place() -> None:
    with pytest.raises(ParameterError, match=r"^words=list: give it by name: words=\.\.\.$"):
        _example(1, 0.5, ["a"])  # type: ignore[misc]


def test_public_functions_check_and_can_be_sent_to_other_processes() -> None:
    function = mz.families.randomized_response
    assert pickle.loads(pickle.dumps(function)) is function
    assert inspect.unwrap(function) is response.randomized_response
    with pytest.raises(ParameterError, match=r"^epsilon='1': need a number$"):
        function(epsilon="1")  # type: ignore[arg-type]


TINY_OR_HUGE = {
    "published_discrete_gaussian_renyi": ("sigma", {"alpha": 2.0}),
    "published_discrete_laplace_epsilon": ("scale", {}),
    "published_skellam_renyi": ("variance", {"alpha": 2.0}),
    "published_pbm_mse": ("theta", {"lower": -1, "upper": 1, "trials": 3}),
}


@pytest.mark.parametrize("name", TINY_OR_HUGE)
@pytest.mark.parametrize("value", [1e-300, 1e300])
def test_formulas_refuse_what_their_squares_do_not_hold(name: str, value: float) -> None:
    parameter, options = TINY_OR_HUGE[name]
    with pytest.raises(ParameterError, match=f"^{parameter}=1e[-+]300: .*1e-50"):
        getattr(mz.papers, name)(**{parameter: value}, **options)


def test_sizes_beyond_the_floats_together_are_refused() -> None:
    parts = {name: mz.collect.parts_of(group)["mean"] for name, group in groups().items()}
    with pytest.raises(ParameterError, match="beyond the floats together"):
        mz.collect.stratified(parts, dict.fromkeys(parts, 1e308))


@pytest.mark.parametrize("other", [{"y": (1.0,)}, {"low": (0.0, 1.0)}, {"high": (2.0,)}])
def test_a_curve_has_a_height_for_each_position(other: dict[str, Any]) -> None:
    curve: dict[str, Any] = {"name": "error", "x": (1.0, 2.0), "y": (4.0, 0.8)}
    with pytest.raises(ParameterError, match="need one for each of 2 positions"):
        mz.report.Curve(**{**curve, **other})
