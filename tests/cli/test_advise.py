"""`mezzotint advise`: what it prints, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Invoke = Callable[..., Any]


def test_json_says_everything_and_nothing_else(invoke: Invoke) -> None:
    outcome = invoke("advise", "--clients-per-round", 50, "--epsilon", 1, "--delta", 0, "--json")
    assert outcome.status == 0
    facts = outcome.json
    assert facts["setting"]["clients"] == 50
    names = [option["name"] for option in facts["options"]]
    assert {"one-bit response", "optimal table, 4 even levels", "rounded Gaussian"} <= set(names)
    errors = [option["mse"] for option in facts["options"] if option["feasible"]]
    assert errors == sorted(errors)
    assert all(option["epsilon"] <= 1 for option in facts["options"] if option["feasible"])
    assert all(
        "positive delta" in option["reason"]
        for option in facts["options"]
        if not option["feasible"]
    )


def test_the_table_names_the_best_with_its_claim(invoke: Invoke) -> None:
    outcome = invoke("advise", "--clients-per-round", 50, "--epsilon", 1, "--delta", 0)
    assert outcome.status == 0
    text = " ".join(outcome.out.split())
    assert "answering 0" in text
    assert "least error" in text
    assert "-differential privacy for replacing all data of one client" in text


def test_a_population_takes_turns(invoke: Invoke) -> None:
    command = (
        "advise",
        "--clients-per-round",
        10,
        "--rounds",
        20,
        "--population",
        34,
        "--epsilon",
        1,
        "--delta",
        0,
    )
    assert (
        invoke(*command, "--json").json["setting"]["rounds"] == 6
    )  # 200 seats among 34: nobody needs more than 6


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--clients-per-round", 0, "--epsilon", 1), "clients-per-round=0"),
        (("--clients-per-round", 10, "--epsilon", -1), "epsilon=-1"),
        (("--clients-per-round", 10, "--epsilon", "nan"), "epsilon=nan"),
        (("--clients-per-round", 10, "--epsilon", 1, "--delta", 1), "delta=1"),
        (("--clients-per-round", 10, "--epsilon", 1, "--observer", "server"), "server"),
        (("--clients-per-round", 10, "--epsilon", 1, "--population", 5), "population=5"),
        (("--clients-per-round", 10, "--epsilon", 1, "--bits", 0), "bits=0"),
        (
            ("--clients-per-round", 10, "--epsilon", 1, "--dimension", 10**10),
            "--dimension=10000000000",
        ),
        (("--clients-per-round", 10, "--epsilon", 1, "--corrupted", 10), "corrupted=10"),
        (("--clients-per-round", 10), "--epsilon"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    invoke: Invoke, arguments: tuple[object, ...], named: str
) -> None:
    outcome = invoke("advise", *arguments)
    assert outcome.status == 2
    assert outcome.out == ""
    assert named in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_nothing_to_rank_is_said_and_is_status_1(invoke: Invoke, more: tuple[str, ...]) -> None:
    outcome = invoke("advise", "--clients-per-round", 100, "--epsilon", 1, "--bits", 1, *more)
    assert outcome.status == 1
    assert "bits=1 a value, so nothing is ranked" in " ".join(outcome.out.split())
