"""Each verb on good input: what it prints, what it writes, its exit status."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mezzotint
from mezzotint import families
from mezzotint.cli.application import VERBS
from mezzotint.cli.common import read_prior
from mezzotint.core.mechanism import Mechanism
from tolerances import FEW, MANY

PROGRAM = [sys.executable, "-c", "from mezzotint.cli import main; main()"]
Invoke = Callable[..., object]


def test_the_verbs_are_there() -> None:
    wanted = {
        "demo",
        "design",
        "show",
        "verify",
        "privatize",
        "estimate",
        "compare",
        "account",
        "reproduce",
    }
    assert wanted <= set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_an_example(invoke: Invoke, verb: str) -> None:
    outcome = invoke(verb, "--help")
    assert outcome.status == 0
    assert f"Example: mezzotint {verb}" in " ".join(outcome.out.split())
    assert "--json" in outcome.out


def test_no_verb_prints_the_help_and_version_the_version(invoke: Invoke) -> None:
    assert "privatize" in invoke().out
    assert invoke("--version").out == f"mezzotint {mezzotint.__version__}\n"
    assert invoke("--version").status == 0


def test_the_main_job_end_to_end(
    invoke: Invoke, tmp_path: Path, column_file: Path, mechanism_file: Path
) -> None:
    reports = tmp_path / "reports.parquet"
    choices = ("--column", "x", "--mechanism", mechanism_file, "--out", reports, "--seed", 5)
    written = invoke("privatize", column_file, *choices, "--json")
    assert written.status == 0
    assert written.json["reports"] == 1000
    assert written.json["seeded"] is True
    assert "NOT PRIVATE" in written.err
    assert "not private" in written.json["remark"]
    asked = ("--histogram", 3, "--quantiles", "0.5")
    refused = invoke("estimate", reports, *asked, "--json")
    assert (refused.status, refused.out) == (2, "")
    assert "--allow-seeded" in refused.err
    estimate = invoke("estimate", reports, *asked, "--allow-seeded", "--json")
    assert estimate.status == 0
    facts = estimate.json
    assert facts["seeded"] is True
    assert "epsilon" not in facts
    assert "epsilon" not in written.json
    mechanism = Mechanism.load(mechanism_file)
    decoded = mechanism.decode(pq.read_table(reports)["x_code"].to_numpy())
    assert facts["n"] == 1000
    assert facts["mean"] == pytest.approx(decoded.mean(), rel=FEW)
    assert facts["ci_low"] < facts["mean"] < facts["ci_high"]
    assert facts["confidence"] == 0.95
    assert len(facts["histogram"]["share"]) == 3
    assert facts["quantiles"][0]["probability"] == 0.5
    checked = invoke("verify", mechanism_file, "--json")
    assert checked.status == 0
    assert checked.json["valid"] is True
    assert checked.json["epsilon"] == pytest.approx(mechanism.epsilon, rel=FEW)
    assert checked.json["problems"] == []


def test_reports_files_add_up(
    invoke: Invoke, tmp_path: Path, column_file: Path, mechanism_file: Path
) -> None:
    parts = [tmp_path / "a.csv", tmp_path / "b.csv.gz"]
    for part in parts:
        invoke(
            "privatize", column_file, "--column", "x", "--mechanism", mechanism_file, "--out", part
        )
    both = invoke("estimate", *parts, "--json").json
    alone = [invoke("estimate", part, "--json").json for part in parts]
    assert both["n"] == 2000
    assert both["mean"] == pytest.approx(sum(one["mean"] for one in alone) / 2, rel=FEW)


def test_words_for_people(
    invoke: Invoke, tmp_path: Path, column_file: Path, mechanism_file: Path
) -> None:
    reports = tmp_path / "reports.parquet"
    said = invoke(
        "privatize", column_file, "--column", "x", "--mechanism", mechanism_file, "--out", reports
    ).out
    assert "1,000 reports of 2 bits" in said
    assert "clipped: 0 below, 0 above" in said
    assert "not private" in said
    said = " ".join(invoke("estimate", reports, "--histogram", "--quantiles").out.split())
    for words in ("mean", "variance", "quantile 0.5", "share in", "their squares add up"):
        assert words in said
    said = invoke("show", mechanism_file).out
    assert "█" in said
    claim = " ".join(said.split())
    assert "Certified: (" in claim
    assert "computed" not in claim
    assert "Its epsilon is log(" in claim
    assert "valid: epsilon" in invoke("verify", mechanism_file).out


def test_show_prints_no_rounding_for_a_mean(invoke: Invoke, tmp_path: Path) -> None:
    """A mean of exactly 0 in the integers is no -1e-17, which a sum of products of floats leaves."""
    weights = [2**31, 2**30, 2**30]
    table = Mechanism(knots=[-1.0, 1.0], levels=[-0.2, 0.1, 0.3], weights=[weights, weights])
    assert table.mean(0.0) != 0
    table.save(tmp_path / "m.json")
    said = invoke("show", tmp_path / "m.json", "--at=0").out
    assert re.search(r"│ +0.2500 │ +0 │", said)


def test_options_of_one_column_are_refused_beside_groups_by_name(
    invoke: Invoke, tmp_path: Path, column_file: Path, mechanism_file: Path
) -> None:
    out = tmp_path / "r.parquet"
    words = (
        "privatize",
        column_file,
        "--column",
        "x",
        "--mechanism",
        mechanism_file,
        "--keep",
        "word",
        "--out",
        out,
    )
    assert invoke(*words).status == 0
    for more, name in (
        (("--method", "safe"), "--method=safe: "),
        (("--save-counts", tmp_path / "c.json"), "--save-counts="),
    ):
        outcome = invoke("estimate", out, "--by", "word", *more)
        assert outcome.status == 2
        assert f"mezzotint: {name}" in outcome.err
        assert "does not go with --by" in outcome.err


def test_show_gives_the_pmf_at_any_inputs(invoke: Invoke, mechanism_file: Path) -> None:
    facts = invoke("show", mechanism_file, "--at=-5,2.5", "--json").json
    mechanism = Mechanism.load(mechanism_file)
    assert facts["inputs"] == [-5, 2.5]
    assert facts["pmf"] == mechanism.pmf([-5, 2.5]).tolist()
    assert facts["certificate"]["sha256"] == mechanism.sha256
    assert facts["epsilon"] == mechanism.epsilon


def test_a_table_of_categories_has_no_errors_in_data_units(invoke: Invoke, tmp_path: Path) -> None:
    table = families.categorical(categories=["a", "b", "c"], epsilon=1.0)
    table.save(tmp_path / "c.json")
    facts = invoke("show", tmp_path / "c.json", "--json").json
    assert [facts[name] for name in ("mse", "mae", "max_bias", "variance")] == [None] * 4
    assert facts["certificate"]["max_bias"] is None
    assert invoke("verify", tmp_path / "c.json", "--json").json["max_bias"] is None
    assert "data units" not in str(table.certificate())
    assert "computed" not in str(table.certificate())


def test_an_edited_file_fails_verification_with_status_1(
    invoke: Invoke, mechanism_file: Path
) -> None:
    document = json.loads(mechanism_file.read_text())
    document["certificate"]["epsilon"] /= 2
    mechanism_file.write_text(json.dumps(document))
    outcome = invoke("verify", mechanism_file, "--json")
    assert outcome.status == 1
    assert outcome.json["valid"] is False
    assert outcome.json["problems"]
    assert invoke("verify", mechanism_file).status == 1


def test_json_is_the_only_thing_on_standard_output(
    invoke: Invoke, tmp_path: Path, column_file: Path, mechanism_file: Path
) -> None:
    calls = (
        ("show", mechanism_file),
        ("verify", mechanism_file),
        (
            "privatize",
            column_file,
            "--column",
            "x",
            "--mechanism",
            mechanism_file,
            "--out",
            tmp_path / "o.csv",
        ),
        ("estimate", tmp_path / "o.csv"),
        ("reproduce", "list"),
    )
    for call in calls:
        outcome = invoke(*call, "--json")
        assert outcome.status == 0
        assert isinstance(json.loads(outcome.out), dict)
        assert outcome.out.count("\n") == 1


# In processes of their own ---------------------------------------------------------------------------------------


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    program = " ".join(f"'{part}'" for part in PROGRAM)
    return subprocess.run(
        command.replace("mezzotint", program),
        shell=True,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_help_imports_nothing_heavy() -> None:
    code = "import sys, mezzotint.cli; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    assert "typer" in loaded
    for name in (
        "scipy",
        "numba",
        "pyarrow",
        "clarabel",
        "matplotlib",
        "plotly",
        "torch",
        "polars",
        "dp_accounting",
    ):
        assert name not in loaded


def test_pipes_of_csv(tmp_path: Path, mechanism_file: Path) -> None:
    (tmp_path / "in.csv").write_text("x\n" + "\n".join("1" for _ in range(50_000)) + "\n")
    ran = shell(
        "mezzotint privatize - --column x --mechanism m.json --out - < in.csv | mezzotint estimate - --json",
        tmp_path,
    )
    facts = json.loads(ran.stdout)
    assert facts["n"] == 50_000
    assert facts["ci_low"] - 1 < 1 < facts["ci_high"] + 1
    assert "50,000 reports" in ran.stderr


def test_a_reader_that_leaves_is_no_error(tmp_path: Path, mechanism_file: Path) -> None:
    (tmp_path / "in.csv").write_text("x\n" + "\n".join("1" for _ in range(2_000_000)) + "\n")
    ran = shell(
        "mezzotint privatize in.csv --column x --mechanism m.json --out - | head -n 1 | cut -c 1-12",
        tmp_path,
    )
    assert ran.stdout == "# mezzotint:\n"
    assert "Traceback" not in ran.stderr
    assert "Error" not in ran.stderr


def test_interrupting_gives_130_and_no_file(tmp_path: Path, mechanism_file: Path) -> None:
    code = (
        "import signal, os, threading; from mezzotint.collect import encoder; from mezzotint.cli import main\n"
        "def interrupt(*a, **k): os.kill(os.getpid(), signal.SIGINT); raise AssertionError('not reached')\n"
        "encoder.draw = interrupt\n"
        "main()"
    )
    (tmp_path / "in.csv").write_text("x\n1\n")
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            code,
            "privatize",
            "in.csv",
            "--column",
            "x",
            "--mechanism",
            "m.json",
            "--out",
            "o.csv",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 130
    assert "Traceback" not in ran.stderr
    assert not (tmp_path / "o.csv").exists()


def test_colours_can_be_switched_off(tmp_path: Path, mechanism_file: Path) -> None:
    environment = {**os.environ, "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)

    def shown(*arguments: str, **variables: str) -> str:
        command = [*PROGRAM, *arguments]
        ran = subprocess.run(
            command,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={**environment, **variables},
            check=True,
        )
        return ran.stdout

    coloured = re.compile(r"\x1b\[[0-9;]*3[0-9]m")
    assert coloured.search(shown("verify", "m.json"))
    assert not coloured.search(shown("verify", "m.json", NO_COLOR="1"))
    assert not coloured.search(shown("verify", "m.json", "--no-color"))
    assert not coloured.search(shown("--no-color", "verify", "m.json"))


def test_shell_completion_names_the_verbs(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "_MEZZOTINT_COMPLETE": "complete_bash",
        "COMP_WORDS": "mezzotint pri",
        "COMP_CWORD": "1",
    }
    ran = subprocess.run(PROGRAM, capture_output=True, text=True, env=environment)
    assert ran.stdout.split() == ["privatize"]
    for words, completed in (
        ("mezzotint design --le", "--levels"),
        ("mezzotint smoothed prof", "profile"),
    ):
        asked = {**os.environ, "_MEZZOTINT_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": words}
        assert (
            completed in subprocess.run(PROGRAM, capture_output=True, text=True, env=asked).stdout
        )


def test_no_progress_bar_without_a_terminal(
    invoke: Invoke, tmp_path: Path, column_file: Path, mechanism_file: Path
) -> None:
    outcome = invoke(
        "privatize",
        column_file,
        "--column",
        "x",
        "--mechanism",
        mechanism_file,
        "--out",
        tmp_path / "o.parquet",
    )
    assert outcome.err == ""


def test_priors_come_from_columns(invoke: Invoke, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([1.0, None, 3.0])}), tmp_path / "p.parquet")
    assert read_prior(f"{tmp_path / 'p.parquet'}:a", 0, 5).tolist() == [1.0, 3.0]
    assert read_prior(None, 0, 5) is None


def test_account_prints_the_claim(invoke: Invoke, mechanism_file: Path) -> None:
    outcome = invoke("account", mechanism_file, "--rounds", 2, "--delta", 0, "--json")
    assert outcome.status == 0
    assert outcome.json["epsilon"] == pytest.approx(
        2 * Mechanism.load(mechanism_file).epsilon, rel=MANY
    )
    assert (outcome.json["trust"], outcome.json["delta"], outcome.json["neighboring"]) == (
        "local",
        0,
        "replace_one",
    )
    assert outcome.json["claim"] in " ".join(
        invoke("account", mechanism_file, "--rounds", 2, "--delta", 0).out.split()
    )


def test_a_room_is_listed_without_being_loaded_and_loaded_when_entered() -> None:
    code = (
        "import sys; from mezzotint.cli import run; status = run(sys.argv[1:])\n"
        "print(status, 'mezzotint.cli.smoothed' in sys.modules)"
    )

    def entered(*arguments: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True
        ).stdout

    assert "smoothed" in entered("--help")
    assert entered("--help").endswith("0 False\n")
    assert "profile" in entered("smoothed", "--help")
    assert entered("smoothed", "--help").endswith("0 True\n")


def test_reproductions_are_found_by_name(invoke: Invoke, tmp_path: Path) -> None:
    names = invoke("reproduce", "list", "--json").json["names"]
    assert "smoothed-table1" in names
    assert "smoothed-table1         Table 1: " in invoke("reproduce", "list").out
    outcome = invoke("reproduce", "smoothed-table1", "--png", tmp_path / "t.png", "--json")
    assert outcome.status == 0
    assert set(outcome.json) >= {"name", "title", "rows", "note"}
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")
    assert outcome.json["title"] in " ".join(invoke("reproduce", "smoothed-table1").out.split())


def test_a_table_without_a_pure_epsilon_claims_nothing_and_says_for_which_delta_it_has_one(
    invoke: Invoke, tmp_path: Path
) -> None:
    rounding, rare = tmp_path / "rounding.json", tmp_path / "rare.json"
    families.stochastic_rounding(lower=0, upper=1, levels=4).save(rounding)
    half, mass = 2**31, 400  # of 2**32: 9.3132...e-08
    weights = np.array([[half - mass, half, mass, 0], [half - mass, half, 0, mass]])
    levels = np.array([-1.0, 0.0, 1.0, 2.0])
    Mechanism(knots=np.array([0.0, 1.0]), levels=levels, weights=weights).save(rare)
    for file, words in (
        (rounding, "no epsilon can be claimed at any delta below 1"),
        (rare, "an epsilon can be claimed only at a delta above 9.31323e-08"),
    ):
        outcome = invoke("verify", file)
        assert outcome.status == 0
        assert "nothing private is claimed of a report" in outcome.out
        assert words in outcome.out
        assert "epsilon <=" not in outcome.out
    claimed = invoke("account", rare, "--delta", 1e-7, "--json").json
    # Nothing but rounding: the table leaks in the lost share of chance alone, which delta covers.
    assert claimed["epsilon"] < 1e-6
    assert invoke("account", rare, "--delta", 9e-8, "--json").json["epsilon"] == "inf"
