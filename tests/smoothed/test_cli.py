"""The verbs of `mezzotint smoothed`, alone and below the central command."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mezzotint.cli.application import run
from mezzotint.cli.smoothed import app
from mezzotint.core.errors import ParameterError

RUNNER = CliRunner()


def _json(*arguments: str) -> dict:
    result = RUNNER.invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    lines = result.stdout.strip().splitlines()
    assert len(lines) == 1
    return json.loads(lines[0])


def test_profile_of_an_election_as_json() -> None:
    facts = _json("profile", "--election", "2020", "--loss-rate", "0.002", "--ratio", "51/49")
    assert round(facts["log10_delta"], 2) == -31.92
    assert facts["log10_upper"] >= facts["log10_delta"]
    assert facts["status"] == "closed"
    assert facts["records"] == 155_507_476


def test_the_schemes_of_sampling_and_noise() -> None:
    base = ("profile", "--counts", "5,6,7", "--epsilon", "1", "--loss-rate", "1/2")
    values = [
        _json(*base, *extra)["log10_delta"] for extra in ((), ("--replacement",), ("--poisson",))
    ]
    assert len(set(values)) == 3
    noisy = _json(*base, "--noise-ratio", "0.7")
    assert noisy["log10_delta"] == "-inf" or noisy["log10_delta"] < min(values)


def test_utility_expected_gradients_and_elections_as_json() -> None:
    assert (
        round(
            _json("utility", "--election", "2020", "--loss-rate", "0.002", "--threshold", "0.51")[
                "log10"
            ],
            2,
        )
        == -31.95
    )
    facts = _json(
        "expected",
        "--n",
        "1000000",
        "--vertices",
        "0.0554",
        "--loss-rate",
        "0.002",
        "--epsilon",
        "1",
    )
    assert round(facts["log10_delta"], 3) == -15.468
    assert (facts["status"], facts["certified"]) == ("closed", False)
    many = _json(
        "expected",
        "--n",
        "12",
        "--vertices",
        "0.5,0.3,0.2;0.2,0.2,0.6",
        "--sampled",
        "9",
        "--epsilon",
        "1",
    )
    assert many["method"] == "enumeration"
    one = _json(
        "expected", "--n", "12", "--vertices", "0.5,0.3,0.2", "--sampled", "9", "--epsilon", "1"
    )
    assert one["split"] == [12]
    shares = _json(
        "expected", "--n", "12", "--vertices", "0.5,0.3,0.4", "--sampled", "9", "--epsilon", "1"
    )
    assert len(shares["split"]) == 2
    step = _json(
        "gradients",
        "--n",
        "30",
        "--epsilon",
        "1",
        "--draws",
        "2",
        "--distribution",
        "laplace:0:0.1",
    )
    assert step["sampled"] == 6
    table = _json("elections", "--set", "states")
    assert len(table["elections"]) == 51
    assert {"election", "records", "log10_delta", "log10_utility", "log10_worst_case"} <= set(
        table["elections"][0]
    )


def test_elections_from_a_file_and_from_standard_input(tmp_path) -> None:
    text = "town,ann,bob,cy\nOslo,1000,2000,30\n"
    path = tmp_path / "votes.csv"
    path.write_text(text)
    named = ("--columns", "ann,bob,cy")
    answer = _json(
        "elections", str(path), *named, "--top", "3", "--epsilon", "0.5", "--loss-rate", "0.1"
    )
    assert [row["records"] for row in answer["elections"]] == [3030]
    assert answer["columns"] == ["ann", "bob", "cy"]
    piped = RUNNER.invoke(
        app, ["elections", "-", *named, "--json", "--loss-rate", "0.1"], input=text
    )
    assert json.loads(piped.stdout)["elections"][0]["records"] == 3000
    printed = RUNNER.invoke(
        app, ["elections", "-", "--loss-rate", "0.1"], input="town,ann,bob\nOslo,1000,2000\n"
    )
    assert "Columns of counts: ann, bob" in printed.stdout
    asks = RUNNER.invoke(app, ["elections", "-", "--loss-rate", "0.1"], input=text)
    assert isinstance(asks.exception, ParameterError)
    assert "--columns" in str(asks.exception)


def test_tables_for_people() -> None:
    for arguments, expected in (
        (["profile", "--counts", "40,60", "--sampled", "90", "--epsilon", "1"], "log10_delta"),
        (["elections", "--set", "districts"], "NE-3"),
        (
            ["profile", "--counts", "40,60", "--loss-rate", "0", "--epsilon", "1"],
            "No record is lost",
        ),
    ):
        result = RUNNER.invoke(app, arguments)
        assert result.exit_code == 0
        assert expected in result.stdout


@pytest.mark.parametrize("verb", ["profile", "utility", "expected", "elections", "gradients"])
def test_help_has_an_example_that_runs(verb: str) -> None:
    result = RUNNER.invoke(app, [verb, "--help"], env={"COLUMNS": "400", "TERM": "dumb"})
    assert result.exit_code == 0
    # An example longer than a line goes on in the next, up to a blank line.
    example = result.stdout.split("Example: mezzotint smoothed")[1].split("\n\n")[0]
    words = example.replace("│", "").split()
    assert words[0] == verb
    if verb == "gradients":
        words[words.index("--n") + 1] = "36"
    assert RUNNER.invoke(app, words).exit_code == 0


def test_a_failed_check_exits_1_and_still_prints_the_object() -> None:
    arguments = [
        "profile",
        "--election",
        "2020",
        "--loss-rate",
        "0.002",
        "--ratio",
        "51/49",
        "--json",
        "--at-most",
    ]
    good, bad = RUNNER.invoke(app, [*arguments, "-30"]), RUNNER.invoke(app, [*arguments, "-40"])
    assert (good.exit_code, bad.exit_code) == (0, 1)
    assert json.loads(bad.stdout)["status"] == "closed"
    assert "exceeds" in bad.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["profile", "--counts", "5,-6", "--sampled", "3", "--epsilon", "1"], "counts[1]=-6"),
        (["profile", "--counts", "5,x", "--sampled", "3", "--epsilon", "1"], "whole numbers"),
        (["profile", "--sampled", "3", "--epsilon", "1"], "exactly one of --counts"),
        (["profile", "--election", "1919", "--sampled", "3", "--epsilon", "1"], "election=1919"),
        (["profile", "--counts", "5,6", "--loss-rate", "1", "--epsilon", "1"], "--loss-rate=1"),
        (["utility", "--counts", "5,6", "--loss-rate", "0.1", "--threshold", "2"], "threshold=2"),
        (
            ["expected", "--n", "10", "--vertices", "1.5", "--sampled", "3", "--epsilon", "1"],
            "vertices[0]",
        ),
        (
            ["expected", "--n", "10", "--vertices", "0.5", "--sampled", "11", "--epsilon", "1"],
            "more than the 10",
        ),
        (["elections", "nowhere.csv"], "no such file"),
        (["elections", "--set", "moon"], "'moon' is not one of"),
        (["elections", "--top", "1"], "at least two"),
        (
            ["gradients", "--n", "10", "--epsilon", "1", "--distribution", "cauchy:0:1"],
            "distribution=cauchy",
        ),
        (
            ["gradients", "--n", "10", "--epsilon", "1", "--distribution", "gaussian:0:-1"],
            "deviation",
        ),
        (["profile", "--bogus"], "bogus"),
    ],
)
def test_bad_input_is_one_line_on_standard_error_and_exit_2(arguments, message, capsys) -> None:
    assert run(["smoothed", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.strip().splitlines()) == 1
    assert message in captured.err


def test_infinities_are_text_in_json() -> None:
    facts = _json(
        "profile", "--counts", "1000,1500", "--sampled", "10", "--epsilon", "0.02", "--replacement"
    )
    assert facts["log10_delta"] == "-inf"
    assert not math.isnan(facts["log10_worst_case"])


def test_options_that_an_election_would_ignore_are_refused(tmp_path: Path) -> None:
    votes = tmp_path / "votes.csv"
    votes.write_text("ann,bob\n30,20\n")
    for arguments, option in (
        (("elections", "--columns", "ann,bob"), "columns"),
        (("elections", str(votes), "--set", "states"), "set"),
    ):
        with pytest.raises(ParameterError, match=option):
            CliRunner().invoke(app, list(arguments), catch_exceptions=False)


def _printed(*arguments: str) -> str:
    result = RUNNER.invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ("profile", "--counts", "5,3", "--sampled", "2", "--epsilon", "3"),
        ("profile", "--counts", "5,3", "--sampled", "2", "--epsilon", ".5", "--noise-ratio", ".9"),
        ("utility", "--counts", "5,3", "--sampled", "1", "--threshold", "0.6"),
    ],
)
def test_what_is_exactly_0_is_not_called_unbounded(arguments: tuple[str, ...]) -> None:
    words = _printed(*arguments)
    assert "unbounded" not in words
    assert "-infinity: exactly 0" in words


def test_bounds_hold_as_printed() -> None:
    """Upper bounds are rounded up, lower ones down; 0 has no sign."""
    arguments = ("expected", "--n", "10", "--vertices", "0.3,0.6", "--sampled", "5")
    for epsilon in ("0.5", "1", "1.5", "2"):
        facts = _json(*arguments, "--epsilon", epsilon)
        words = _printed(*arguments, "--epsilon", epsilon).split()
        printed = {
            name: float(words[words.index(name) + 2]) for name in ("log10_lower", "log10_upper")
        }
        assert printed["log10_lower"] <= facts["log10_lower"]
        assert facts["log10_upper"] <= printed["log10_upper"]
        # Eight digits of numbers below 10 are printed, each bound half a unit off at most.
        assert printed["log10_upper"] - printed["log10_lower"] < 2e-7
    published = _printed("profile", "--counts", "5,3", "--sampled", "8", "--epsilon", "3")
    assert "-0 " not in published


def test_a_mean_of_draws_is_called_an_estimate() -> None:
    sampled = ("expected", "--n", "12", "--vertices", "0.5,0.3,0.2", "--sampled", "5")
    estimate = ("--epsilon", "1", "--method", "monte_carlo", "--draws", "20")
    assert "is an estimate from random draws, its 99 % interval" in _printed(*sampled, *estimate)
    assert "estimate" not in _printed(*sampled, "--epsilon", "1", "--method", "bracket")


def test_thirds_are_one_distribution_of_three_types_in_any_spelling() -> None:
    base = ("expected", "--n", "9", "--loss-rate", "1/3", "--epsilon", "1", "--vertices")
    facts = _json(*base, "1/3,1/3,1/3")
    assert facts["vertices"] == [[1 / 3] * 3]
    assert _json(*base, "1/3,1/3,1/3;1/3,1/3,1/3")["vertices"] == [[1 / 3] * 3]
    with pytest.raises(ParameterError, match="summing to 1 exactly"):
        RUNNER.invoke(app, [*base, "0.3333,0.3333,0.3333"], catch_exceptions=False)


def test_options_that_a_method_ignores_are_refused() -> None:
    base = ("expected", "--n", "9", "--loss-rate", "1/3", "--epsilon", "1", "--vertices", "0.3")
    with pytest.raises(ParameterError, match="draws=7"):
        RUNNER.invoke(app, [*base, "--draws", "7"], catch_exceptions=False)
    asked = _json(*base)["asked"]
    assert set(asked) == {
        *("n", "vertices", "loss_rate", "sampled", "epsilon", "ratio", "method", "draws", "seed"),
    }
