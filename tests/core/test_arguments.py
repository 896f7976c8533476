"""What errors about arguments show: the element, text as text, and how a value is given by name."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import mezzotint as mz
from mezzotint.core.arguments import _warn_of, check_options
from mezzotint.core.errors import ParameterError


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("1", "'1'"),
        ("1e-6", "'1e-6'"),
        ("", "''"),
        ("nan", "'nan'"),
        ("word", "word"),
        (1.5, "1.5"),
        (None, "None"),
    ],
)
def test_text_that_reads_as_a_number_is_quoted(value: object, shown: str) -> None:
    assert (
        str(ParameterError("epsilon", value, "need a number")) == f"epsilon={shown}: need a number"
    )


def test_an_epsilon_given_as_text_is_seen_to_be_text() -> None:
    with pytest.raises(ParameterError, match=r"^epsilon='1': need a number$"):
        mz.design.optimal(epsilon="1")  # pyright: ignore[reportArgumentType]


def test_a_script_without_a_name_hears_warnings() -> None:
    """Code that `exec` runs in a namespace of its own has none."""
    script = "warn('l2_norm', 'clip_norm')"
    with pytest.warns(FutureWarning, match="is now called"):
        exec(script, {"warn": _warn_of})


def numbers(*given: float | None) -> Any:
    return list(given)


TABLE = {"knots": [0, 1], "levels": [0, 1], "weights": [[2**32, 0], [0, 2**32]]}


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"knots": [0, None]}, r"knots\[1\]=None"),
        ({"levels": [None, 1]}, r"levels\[0\]=None"),
        ({"weights": [[2**32, 0], [None, 2**32]]}, r"weights\[1, 0\]=None"),
    ],
)
def test_a_missing_number_of_a_table_is_named_by_its_place(
    changed: dict[str, object], named: str
) -> None:
    with pytest.raises(ParameterError, match=f"^{named}: "):
        mz.Mechanism(**{**TABLE, **changed})  # pyright: ignore[reportArgumentType]


def test_a_missing_input_code_or_count_is_named_by_its_place() -> None:
    mechanism = mz.families.rqm(levels=4)
    noise = mz.families.discrete_laplace(scale=2.0)
    for given, named in (
        (lambda: mechanism.privatize(numbers(0.5, None)), r"x\[1\]=None"),
        (lambda: mechanism.decode(numbers(0, None)), r"codes\[1\]=None"),
        (lambda: noise.privatize(numbers(5, None)), r"x\[1\]=None"),
        (
            lambda: mz.collect.CodeCounts(mechanism=mechanism, counts=np.array([1, 2, None, 4])),
            r"counts\[2\]=None",
        ),
    ):
        with pytest.raises(ParameterError, match=f"^{named}: "):
            given()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (lambda: mz.design.optimal(levels=numbers(-3, None, 3)), r"levels\[1\]=None"),
        (lambda: mz.design.optimal(knots=numbers(-1, None, 1)), r"knots\[1\]=None"),
        (lambda: mz.design.optimal(prior=numbers(0.5, None)), r"prior\[1\]=None"),
        (lambda: mz.families.erm(bins=numbers(-2, None, 2)), r"bins\[1\]=None"),
        (lambda: mz.families.rqm(levels=4).pmf(numbers(0.5, None)), r"x\[1\]=None"),
    ],
)
def test_a_missing_number_is_not_read_as_nan(given: Callable[[], object], named: str) -> None:
    with pytest.raises(ParameterError, match=f"^{named}: "):
        given()


def test_an_input_that_is_no_number_is_named_by_its_place_and_type_alone() -> None:
    with pytest.raises(ParameterError, match=r"^x\[1\]=tuple: ") as refused:
        mz.families.rqm(levels=4).privatize(np.array([0.5, ("secret",)], dtype=object))
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("value", [None, "none", [1.0]])
def test_a_number_that_is_none_is_refused_by_name(value: Any) -> None:
    table = mz.families.rqm(levels=4)
    for parameter, given in (
        ("epsilon", lambda: table.delta(value)),
        ("alpha", lambda: table.renyi(value)),
        ("max_bias", lambda: mz.design.optimal(max_bias=value)),
    ):
        with pytest.raises(ParameterError, match=f"^{parameter}="):
            given()


def test_a_range_given_by_place_is_refused_by_its_name() -> None:
    for design in (
        mz.design.optimal,
        mz.design.limit,
        mz.design.mvu,
        mz.design.imvu,
        mz.design.optm,
    ):
        with pytest.raises(ParameterError, match=r"^lower=0: give it by name: lower=0, upper=100$"):
            design(1.0, 0, 100)  # pyright: ignore


@pytest.mark.parametrize("name", ["epsilon", "lower"])
def test_numbers_beyond_the_floats_are_refused_and_fractions_are_read(name: str) -> None:
    given = {"epsilon": 1.0, "lower": -2.0}
    with pytest.raises(ParameterError, match=f"^{name}=1000"):
        mz.families.randomized_response(upper=1.0, **{**given, name: 10**400})
    read = mz.families.randomized_response(upper=1.0, **{**given, name: Fraction(1, 2)})
    assert read == mz.families.randomized_response(upper=1.0, **{**given, name: 0.5})


RESPONSE = mz.families.randomized_response(epsilon=1.0)
SCHEME = {"size": 4, "clip_norm": 1.0, "granularity": 0.1}
SUM = {"mechanism": RESPONSE, "delta": 0.1, "trust": "secure_sum", "clients": 5}
SMOOTHED = {"loss_rate": 0.2, "epsilon": 1.0}

REFUSED: list[tuple[str, Callable[[], object]]] = [
    (
        "delta",
        lambda: mz.privacy.Release(mechanism=RESPONSE, delta=1e-320, trust="secure_sum", clients=5),
    ),
    ("clip_norm", lambda: mz.privacy.Release(**SUM, clip_norm="1")),  # pyright: ignore
    ("mechanism", lambda: mz.privacy.Release(mechanism=None, delta=0.1)),  # pyright: ignore
    ("mechanism", lambda: mz.design.metric_epsilon(None, "absolute")),  # pyright: ignore
    ("mechanism", lambda: mz.design.vector_epsilon(None, dimension=2, l2_distance=1.0)),  # pyright: ignore
    ("l2_distance", lambda: mz.design.vector_epsilon(RESPONSE, dimension=2, l2_distance="1")),  # pyright: ignore
    ("max_bias", lambda: mz.design.optimal(1.0, levels=[-3, 0, 3], knots=3, max_bias=5e-324)),
    ("knots", lambda: mz.design.optimal(1.0, levels=[-3, 0, 3], knots=10**400)),
    ("knots", lambda: mz.design.optimal(1.0, levels=[-3, 0, 3], knots=10**12)),
    ("levels", lambda: mz.design.optimal(1.0, levels=[[1, 2], [3]])),
    ("epsilon", lambda: mz.families.square_wave(outputs=4, epsilon=710.0)),
    ("outputs", lambda: mz.families.square_wave(outputs=None, epsilon=1.0)),  # pyright: ignore
    ("extension", lambda: mz.families.rqm(levels=4, extension=1e308)),
    ("strength", lambda: mz.vectors.one_bit(0.0, 1.0)),
    (
        "modulus_bits",
        lambda: mz.vectors.GaussianScheme(modulus_bits=None, deviation=10.0, **SCHEME),
    ),  # pyright: ignore
    ("norm", lambda: mz.vectors.ranked_codebook(10, 2.0, 3).error(math.nan)),
    ("counts", lambda: mz.smoothed.profile(None, **SMOOTHED)),  # pyright: ignore
    ("vertices", lambda: mz.smoothed.expected(n=10, vertices=None, **SMOOTHED)),  # pyright: ignore
    ("points", lambda: mz.smoothed.hull_vertices([])),
    ("cells", lambda: RESPONSE.cdf_error(0)),
    ("cells", lambda: RESPONSE.cdf_error("2")),  # pyright: ignore
]


@pytest.mark.parametrize(("name", "given"), REFUSED)
def test_what_cannot_be_used_is_refused_by_the_name_of_its_parameter(
    name: str, given: Callable[[], object]
) -> None:
    with pytest.raises(ParameterError, match=f"^{name}="):
        given()


def test_numbers_of_other_libraries_and_lists_are_read() -> None:
    found, same = (
        mz.vectors.ranked_codebook(kind(10), 2.0, kind(3)).table for kind in (np.int64, int)
    )
    assert found == same
    assert mz.privacy.pure_epsilon(RESPONSE.weights.tolist()) == RESPONSE.epsilon
    asked = {"counts": [5, 3], "loss_rate": 0.2}
    assert mz.smoothed.profile(**asked, ratio=np.int64(3)) == mz.smoothed.profile(**asked, ratio=3)
    whole = mz.smoothed.expected(n=10, vertices=[0, 1], **SMOOTHED)
    assert (
        mz.smoothed.expected(n=10, vertices=np.array([0, 1]), **SMOOTHED).log10_delta
        == whole.log10_delta
    )
    assert (
        mz.design.optm(Fraction(1, 2), bins=[-5, -1, 1, 5]).loss
        == mz.design.optm(0.5, bins=[-5, -1, 1, 5]).loss
    )
    assert (
        mz.smoothed.utility(
            [5, 3, 2], loss_rate=0.2, threshold=1 - Fraction(1, 10**400)
        ).log10_upper
        > -0.21
    )


def test_values_that_are_no_column_are_named_by_the_first_at_fault_and_never_shown() -> None:
    table = mz.families.rqm(levels=4)
    names = mz.families.categorical(categories=["a", "b"], epsilon=1.0)
    for mechanism, values, named in (
        (table, np.array([2.5, "secret"], dtype=object), r"^x\[1\]=str: "),
        (table, np.array([[0.5], ["secret"]], dtype=object), r"^x\[1\]=str: "),
        (names, ["a", "b", 7.25, "secret"], r"^x\[2\]=float: "),
        (names, ["secret", {"secret": 7.25}], r"^x\[1\]=dict: "),
        (names, np.array([1 + 7.25j]), r"^x\[0\]=complex128: "),
        (names, np.array([], dtype=complex), "^x=ndarray: "),
        (names, "secret \ud800", r"^x\[0\]=str: "),
    ):
        with pytest.raises(ParameterError, match=named) as refused:
            mechanism.privatize(values)
        assert "secret" not in str(refused.value)
        assert "7.25" not in str(refused.value)


@pytest.mark.parametrize(
    "values",
    [
        ["1", "2"],
        [b"1", 2],
        [1 + 0j, 2],
        np.array([1j, 2]),
        np.array(["0.5", "1"], dtype=object),
        np.array(["2020-01-01", "2021-01-01"], dtype="M8[D]"),
        np.ma.masked_array([1.0, 2.0], mask=[False, True]),
    ],
)
def test_what_is_no_real_number_is_not_made_one(values: Any) -> None:
    """Numpy reads text as numbers, drops imaginary parts, and looks behind masks."""
    table = mz.families.rqm(lower=-1, upper=1, levels=4, extension=1.0, q=0.42)
    scheme = mz.vectors.TableScheme(mechanism=table, size=2, clients=3, clip_norm=1.0)
    for use in (
        scheme.encode,
        lambda vector: mz.vectors.clip(vector, norm="l2", bound=1.0),
        table.pmf,
        table.privatize,
        lambda knots: mz.design.optimal(epsilon=1.0, knots=knots),
        lambda sample: mz.design.optimal(epsilon=1.0, prior=sample),
    ):
        with pytest.raises(ParameterError):
            use(values)


def test_options_that_are_passed_on_are_refused_by_name_with_the_remedy() -> None:
    def receiver(*, rounds: int = 1, trust: str = "local") -> None: ...

    check_options({"rounds": 3}, receiver, trust="these are sums")
    with pytest.raises(ParameterError, match=r"^trust=central: leave it out: these are sums$"):
        check_options({"trust": "central"}, receiver, trust="these are sums")
    with pytest.raises(ParameterError, match=r"^round=3: use rounds, trust$"):
        check_options({"round": 3}, receiver)
    with pytest.raises(ParameterError, match="no such option"):
        check_options({"round": 3}, lambda values: values)
