"""Verbs on the file of a ranked codebook."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mezzotint.vectors import ranked_codebook

Invoke = Callable[..., Any]


@pytest.fixture
def ranked_file(tmp_path: Path) -> Path:
    ranked_codebook(200, 4.0, 8).save(tmp_path / "ranks.json")
    return tmp_path / "ranks.json"


def test_it_is_verified_shown_and_accounted(invoke: Invoke, ranked_file: Path) -> None:
    epsilon = ranked_codebook(200, 4.0, 8).epsilon
    verified = invoke("verify", ranked_file, "--json").json
    assert verified["valid"]
    assert verified["epsilon"] == epsilon
    shown = invoke("show", ranked_file, "--json").json
    assert shown["epsilon"] == epsilon
    assert shown["table"]["M"] == 254
    assert "PrivUnitG" in invoke("show", ranked_file).out
    once = invoke("account", ranked_file, "--delta", 0, "--json").json
    assert once["epsilon"] == epsilon
    many = invoke("account", ranked_file, "--rounds", 500, "--delta", "1e-6", "--json").json
    assert epsilon < many["epsilon"] < 500 * epsilon
    assert many["rounds"] == 500
    assert many["claim"] in " ".join(
        invoke("account", ranked_file, "--rounds", 500, "--delta", "1e-6").out.split()
    )


def test_what_it_is_not_for_is_refused(invoke: Invoke, ranked_file: Path) -> None:
    for arguments in [
        ("account", ranked_file, "--observer", "secure_sum", "--clients", 10),
        ("account", ranked_file, "--dimension", 3),
        ("account", ranked_file, "--sampling", "poisson", "--sampling-rate", 0.5),
    ]:
        refused = invoke(*arguments)
        assert refused.status == 2
        assert "ranked codebook" in refused.err
    text = ranked_file.read_text()
    ranked_file.write_text(text.replace('"k":', '"k":1'))
    assert invoke("verify", ranked_file).status == 1
    assert invoke("show", ranked_file).status == 2
    ranked_file.write_text(text)
    (ranked_file.parent / "x.csv").write_text("x\n1\n")
    out = ranked_file.parent / "out.csv"
    arguments = (
        "privatize",
        ranked_file.parent / "x.csv",
        "--column",
        "x",
        "--mechanism",
        ranked_file,
        "--out",
        out,
    )
    assert "RankedCodebook.load" in invoke(*arguments).err


def test_advice_for_vectors_in_the_local_view_puts_it_first(invoke: Invoke) -> None:
    command = (
        "advise",
        "--clients",
        10_000,
        "--dimension",
        100,
        "--observer",
        "reports",
        "--epsilon",
        4,
        "--delta",
        0,
    )
    options = invoke(*command, "--json").json["options"]
    assert options[0]["name"] == "ranked codebook"
    assert options[0]["client_bits"] <= 8
    others = [option["mse"] for option in options[1:] if option["feasible"]]
    assert min(others) > 10 * options[0]["mse"]
