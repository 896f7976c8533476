"""What the explorer advises: never above the epsilon asked, never worse than one bit, and typed as it stands."""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mezzotint import design
from mezzotint.cli import run
from mezzotint.core.errors import ParameterError
from mezzotint.privacy.sums import lattice_rows
from tolerances import FEW

pytest.importorskip("dash", reason="the extra `explore` is not installed")

from mezzotint.report.dashboard import (
    Question,
    advise,
    claim,
    commands,
    even_levels,
    python_lines,
    summary,
)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("bits", [1, 2, 4])
@pytest.mark.parametrize("loss", ["mse", "mae"])
def test_epsilon_holds_and_one_bit_is_never_better(epsilon: float, bits: int, loss: Any) -> None:
    question = Question(epsilon=epsilon, bits=bits, loss=loss, lower=2.0, upper=5.0)
    advice = advise(question)
    assert advice.mechanism.epsilon <= epsilon
    assert advice.mechanism.bits <= bits
    assert (advice.mse if loss == "mse" else advice.mae) <= advice.one_bit
    assert advice.mechanism.max_bias < 1e-6  # some thousand units of 2^-32
    # One-bit response: coth(eps/2)^2 - 1/3 in half ranges squared; both of its losses are bounded by that bit's.
    if loss == "mse":
        # KEPT of epsilon, and levels by 2^-32 of a probability over it.
        assert advice.one_bit == pytest.approx(
            1.5**2 * (1 / math.tanh(epsilon / 2) ** 2 - 1 / 3), rel=1e-5
        )


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_within_five_percent_of_the_searched_optimum(epsilon: float) -> None:
    best = design.optimal(epsilon, levels=8).loss
    assert advise(Question(epsilon=epsilon, bits=3)).mse <= 1.05 * best


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 3.0, 5.0])
def test_two_bits_are_within_four_percent_of_the_searched_optimum(epsilon: float) -> None:
    best = design.optimal(epsilon, levels=4).loss
    advice = advise(Question(epsilon=epsilon, bits=2, lower=0.0, upper=10.0))
    assert advice.mse / 25 <= 1.04 * best  # half the range is 5


@pytest.mark.parametrize(
    ("lower", "upper"), [(-1.0, 1.0), (20.0, 700.0), (1e-6, 3e-6), (-1e6, 1e5)]
)
@pytest.mark.parametrize("count", [4, 8, 16, 64])
def test_levels_are_an_even_grid_around_the_range(lower: float, upper: float, count: int) -> None:
    levels = np.array(even_levels(1.0, count, lower, upper, 1.0))
    half = (upper - lower) / 2 / math.tanh(0.5)
    assert levels[-1] - levels[0] >= 2 * half  # unbiased reports need this much
    assert levels[-1] - levels[0] <= 2 * half * (1 + 1e-5)
    # Levels are shown to seven digits of their span.
    np.testing.assert_allclose(np.diff(levels), np.diff(levels)[0], rtol=1e-6)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_sums_decode(epsilon: float) -> None:
    advice = advise(Question(epsilon=epsilon, bits=3, lower=20, upper=700, view="sum"))
    lattice_rows(advice.mechanism)  # raises where levels stand on no lattice
    assert any("evenly spaced" in reason for reason in advice.reasons)


@pytest.mark.parametrize(
    "question",
    [
        Question(),
        Question(epsilon=0.5, bits=1),
        Question(
            epsilon=2.0,
            bits=3,
            lower=-5.0,
            upper=20.0,
            loss="mae",
            coordinates=3,
            rounds=2,
            delta=1e-5,
        ),
        Question(bits=2, view="sum", clients=20),
    ],
)
def test_the_printed_commands_and_lines_give_the_numbers_shown(
    question: Question,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    advice = advise(question)
    make, account = commands(question, advice)
    assert run([*shlex.split(make)[1:], "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["sha256"] == advice.mechanism.sha256
    assert made["mse"] == pytest.approx(advice.mse, rel=FEW)
    assert made["mae"] == pytest.approx(advice.mae, rel=FEW)
    assert run([*shlex.split(account)[1:], "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    shown = claim(question, advice)
    assert told["epsilon"] == pytest.approx(shown.epsilon, rel=FEW)
    names: dict[str, Any] = {}
    exec(python_lines(question, advice), names)
    assert names["mechanism"] == advice.mechanism
    assert capsys.readouterr().out.strip() == str(shown)


def test_a_prior_is_read_named_in_the_commands_and_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "public data.parquet"
    pq.write_table(pa.table({"x": np.full(100, 0.9)}), file)
    question = Question(epsilon=3.0, bits=3, prior=f"{file}:x")
    advice = advise(question)
    assert advice.mse < advise(replace(question, prior="")).mechanism.mse(np.full(100, 0.9))
    assert shlex.split(commands(question, advice)[0])[-3] == f"{file}:x"
    assert any("not covered" in reason for reason in advice.reasons)


def test_bytes_are_packed_bits_of_every_round() -> None:
    question = Question(epsilon=3.0, bits=3, coordinates=1001, rounds=7)
    advice = advise(question)
    assert advice.mechanism.bits == 3
    assert advice.bytes_per_client == 376 * 7  # 1001 * 3 bits = 375.4 bytes
    assert dict(summary(question, advice))["bytes per client, all rounds"] == "2,632"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epsilon", 0.0),
        ("epsilon", math.nan),
        ("bits", 0),
        ("bits", 7),
        ("bits", 2.5),
        ("upper", -1.0),
        ("lower", math.inf),
        ("clients", 0),
        ("coordinates", -1),
        ("rounds", True),
        ("delta", 0.0),
        ("delta", 1.0),
        ("loss", "huber"),
        ("view", "nobody"),
    ],
)
def test_bad_questions_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ParameterError) as caught:
        replace(Question(), **{name: value})
    assert caught.value.parameter == name


def test_a_prior_without_a_column_is_refused() -> None:
    with pytest.raises(ParameterError, match="FILE:COLUMN"):
        advise(Question(prior="nothing"))
