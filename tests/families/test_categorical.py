"""Tables for categories: formulas of the literature, exact certificates, and linear algebra by another route."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint import FileFormatError, Mechanism, ParameterError
from mezzotint.core.table import MISSING, OTHER
from mezzotint.core.types import TOTAL
from mezzotint.families import categorical
from mezzotint.families.categories import frequency_variance
from mezzotint.privacy import verify
from tolerances import MANY

METHODS = ("krr", "subset", "hadamard", "projective", "affine")


def names(k: int) -> list[str]:
    return [f"c{i}" for i in range(k)]


def least_variance(k: int, epsilon: float) -> float:
    """Sum of n Var over the categories at equal frequencies, of subset selection with the best size (Ye and Barg)."""
    odds, found = math.exp(epsilon), []
    for w in range(1, k):
        total = odds * w + k - w
        own, others = odds * w / total, w * (odds * (w - 1) + k - w) / ((k - 1) * total)
        seen = own / k + (1 - 1 / k) * others
        found.append(k * seen * (1 - seen) / (own - others) ** 2)
    return min(found)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize(
    ("k", "slack"),
    [
        (2, 1e-6),
        (4, 1e-6),
        (16, 0.005),
        (128, 0.035),
        pytest.param(1000, 0.03, marks=pytest.mark.slow),
    ],
)
def test_the_best_table_is_near_the_best_formula(k: int, slack: float, epsilon: float) -> None:
    table = categorical(categories=names(k), epsilon=epsilon)
    # A unit of 2^-32 over the probability of a report from outside: 4e-5 at most here.
    assert epsilon - 1e-4 <= table.epsilon <= epsilon
    ratio = frequency_variance(table) / least_variance(k, epsilon)
    # Below 1 by the integers alone: no table of this epsilon does better than the optimum of the literature.
    assert 1 - 1e-6 <= ratio <= 1 + slack


@pytest.mark.parametrize(
    ("method", "k", "epsilon", "expected"),
    [("krr", 16, 1.0, 99.684), ("hadamard", 63, 1.0, 299.7 * 63 / 64), ("subset", 16, 2.0, 10.2)],
)
def test_variances_of_the_reference(method: Any, k: int, epsilon: float, expected: float) -> None:
    table = categorical(categories=names(k), epsilon=epsilon, method=method)
    # Figures as printed, of two or three digits; Hadamard's for 64 categories.
    assert frequency_variance(table) == pytest.approx(
        expected, rel=0.03 if method == "hadamard" else 5e-3
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("k", [2, 3, 5, 12])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_certificates_are_verified_and_frequencies_unbiased(
    method: Any, k: int, epsilon: float
) -> None:
    table = categorical(categories=names(k), epsilon=epsilon, method=method)
    report = verify(table)
    assert report.valid, report
    assert report.epsilon_upper <= table.epsilon <= epsilon
    assert (table.weights.sum(axis=1) == TOTAL).all()
    # K decoders of size up to 1e4 times a rounding.
    assert table.probabilities @ table.frequency_decoders == pytest.approx(np.eye(k), abs=1e-8)
    worst = max(
        Fraction(int(column.max()), int(column.min())) for column in table.weights.T if column.any()
    )
    assert math.log(worst) <= epsilon


def test_the_decoder_is_the_best_linear_unbiased_one() -> None:
    """Against a general least-squares solution: any other decoder differs by something orthogonal."""
    table = categorical(categories=names(5), epsilon=1.0, method="hadamard")
    shares = table.probabilities.mean(axis=0)
    root = np.sqrt(shares)
    slow = (np.linalg.pinv(table.probabilities / root) / root[:, None]).copy()
    assert table.frequency_decoders == pytest.approx(slow, abs=MANY)


@pytest.mark.parametrize("k", [5, 100])
def test_any_two_points_share_equally_many_hyperplanes(k: int) -> None:
    sets = categorical(categories=names(k), epsilon=2.0, method="projective").weights
    inside = (sets > sets.min(axis=0)).astype(int)
    together = inside @ inside.T
    assert np.unique(np.diag(together)).size == 1
    assert np.unique(together[~np.eye(k, dtype=bool)]).size == 1


def test_labels_stand_for_inputs() -> None:
    table = categorical(categories=["a", 7, True], epsilon=3.0, other=True, missing=True)
    assert table.categories == ("a", "7", "true", OTHER, MISSING)
    assert table.numbers(["a", "7", "true", "b", None]).tolist() == [0, 1, 2, 3, 4]
    assert table.numbers([7, 8, None]).tolist() == [1, 3, 4]
    assert table.numbers([True, False]).tolist() == [2, 3]
    with pytest.raises(ParameterError, match="several kinds"):
        table.numbers(["7", 7])
    codes = table.privatize(["a"] * 40_000, rng=1)
    seen = np.bincount(codes, minlength=table.levels.size) / codes.size
    assert seen == pytest.approx(table.probabilities[0], abs=5 * math.sqrt(0.25 / codes.size))
    plain = categorical(categories=["a", "b"], epsilon=1.0)
    with pytest.raises(
        ParameterError, match=r"value 1 holds a value that is no category.*other=True"
    ):
        plain.privatize(["a", "c"])
    with pytest.raises(ParameterError, match=r"x=value 1: is missing.*missing=True"):
        plain.privatize(["a", None])
    with pytest.raises(ParameterError, match="about numbers"):
        Mechanism(knots=[0, 1], levels=[0, 1], weights=[[TOTAL // 2] * 2] * 2).numbers(["a"])


@pytest.mark.parametrize("dtype", ["<U5", ">U5", "O", "StringDType"])
def test_labels_may_be_text_of_every_type(dtype: str) -> None:
    table = categorical(categories=["red", "green"], epsilon=1.0)
    if dtype == "StringDType":
        if not hasattr(np.dtypes, "StringDType"):
            pytest.skip("NumPy has it as of 2.0")
        labels = np.array(["green", "red"], np.dtypes.StringDType())
    else:
        labels = np.array(["green", "red"], dtype)
    assert table.numbers(labels).tolist() == table.numbers(["green", "red"]).tolist()


def test_categories_are_part_of_the_file_and_of_its_hash(tmp_path: Path) -> None:
    table = categorical(categories=["a", "b"], epsilon=1.0)
    table.save(tmp_path / "cat.json")
    assert Mechanism.load(tmp_path / "cat.json").categories == ("a", "b")
    assert verify(tmp_path / "cat.json").valid
    other = categorical(categories=["b", "a"], epsilon=1.0)
    assert other.weights.tolist() == table.weights.tolist()
    assert other != table
    for was, now, words in (
        ('["a","b"]', '["b","a"]', "sha256"),
        ('["a","b"]', '["a","a"]', "distinct|twice"),
        ('["a","b"]', '["a"]', "category i|knots are not"),
        ('["a","b"]', '"ab"', "categories"),
        ('["a","b"]', '["a",2]', "distinct text|not text"),
    ):
        text = table.to_json()
        assert was in text
        (tmp_path / "edited.json").write_text(text.replace(was, now))
        with pytest.raises(FileFormatError, match=words):
            Mechanism.load(tmp_path / "edited.json")
        assert not verify(tmp_path / "edited.json").valid


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"categories": ["a"]}, "need 2 to 1024"),
        ({"categories": ["a", "a"]}, "need 2 to 1024 different"),
        ({"categories": ["1", 1]}, "different"),
        ({"categories": names(1025)}, "need 2 to 1024"),
        ({"categories": ["a", 0.5]}, r"categories\[1\]=0.5: need text"),
        ({"categories": ["a", "(missing)"]}, "missing="),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": 1e-12}, "too small"),
        ({"method": "magic"}, "method=magic"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        categorical(**{"categories": ["a", "b"], "epsilon": 1.0, **changes})
