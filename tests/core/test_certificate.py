"""The certificate says what stands in the table, and nothing else."""

from __future__ import annotations

import dataclasses
import json
import math
from fractions import Fraction

import pytest
from hypothesis import given

from mezzotint.core.mechanism import Mechanism
from strategies import random_table, tables


@given(tables())
def test_the_integers_stand_where_it_says(mechanism: Mechanism) -> None:
    certificate = mechanism.certificate()
    assert mechanism.weights[certificate.row_high, certificate.level] == certificate.numerator
    assert mechanism.weights[certificate.row_low, certificate.level] == certificate.denominator
    assert certificate.epsilon == mechanism.epsilon
    assert certificate.max_bias == mechanism.exact_max_bias
    assert certificate.sha256 == mechanism.sha256
    assert (certificate.neighboring, certificate.unit) == ("replace_one", "report")


@given(tables())
def test_it_survives_json(mechanism: Mechanism) -> None:
    certificate = mechanism.certificate()
    plain = json.loads(json.dumps(certificate.as_dict(), allow_nan=False))
    assert plain == certificate.as_dict()
    assert Fraction(plain["max_bias"]) == certificate.max_bias
    assert plain["epsilon"] == ("inf" if math.isinf(certificate.epsilon) else certificate.epsilon)


def test_it_is_frozen_and_speaks() -> None:
    certificate = random_table(3, rows=3, levels=4).certificate()
    with pytest.raises(dataclasses.FrozenInstanceError):
        certificate.level = 0  # pyright: ignore[reportAttributeAccessIssue]
    assert f"log({certificate.numerator}/{certificate.denominator})" in str(certificate)
    assert repr(certificate.epsilon) in str(certificate)


def test_an_unbounded_loss_is_said_to_be_so() -> None:
    weights = [[2**31, 2**31], [2**32, 0]]
    certificate = Mechanism(knots=[0, 1], levels=[0, 1], weights=weights).certificate()
    assert certificate.epsilon == math.inf
    assert (certificate.level, certificate.denominator) == (1, 0)
    assert "no pure epsilon" in str(certificate)
