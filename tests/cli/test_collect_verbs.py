"""`privatize` and `estimate` on several columns and on folders."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mezzotint import families
from mezzotint.collect.folders import PartWriter
from tolerances import FEW


@pytest.fixture
def two_columns(tmp_path: Path, mechanism_file: Path) -> tuple[Path, Path, Path]:
    """A file of two columns, and a mechanism file for each."""
    values = np.random.default_rng(1).uniform(0, 10, (2, 1000))
    pq.write_table(
        pa.table({"x": values[0], "y": values[1]}), tmp_path / "two.parquet", row_group_size=300
    )
    families.randomized_response(lower=0, upper=10, epsilon=0.5).save(tmp_path / "n.json")
    return tmp_path / "two.parquet", mechanism_file, tmp_path / "n.json"


def test_several_columns_state_the_claim_of_a_record(
    invoke: Callable[..., Any], two_columns: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    source, one, two = two_columns
    arguments = ["--column", "x", "--column", "y", "--mechanism", one, "--mechanism", two, "--out"]
    ran = invoke("privatize", source, *arguments, tmp_path / "o.parquet")
    assert ran.status == 0
    assert "one report per column (x " in ran.out
    ran = invoke("privatize", source, *arguments, tmp_path / "p.parquet", "--json")
    claim = ran.json["claim"]
    assert claim["epsilon"] >= sum(claim["parts"].values()) * (1 - FEW)
    assert ran.json["reports"] == 1000
    ran = invoke("estimate", tmp_path / "o.parquet", "--column", "y_code", "--json")
    assert ran.json["n"] == 1000
    for changed, word in (
        (["--column", "x"], "twice"),
        (["--mechanism", one], "3 files for 2 columns"),
    ):
        ran = invoke("privatize", source, *changed, *arguments, tmp_path / "q.parquet")
        assert ran.status != 0
        assert word in ran.err


def test_folders_are_written_resumed_and_estimated(
    invoke: Callable[..., Any],
    column_file: Path,
    mechanism_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arguments = ["--column", "x", "--mechanism", mechanism_file, "--out", f"{tmp_path}/out/"]
    with monkeypatch.context() as patched:

        def stop(*_: object, **__: object) -> None:
            raise OSError("the disk is gone")

        patched.setattr(PartWriter, "write", stop)
        assert invoke("privatize", column_file, *arguments).status == 2
    assert not (tmp_path / "out").exists()  # a run that drew nothing is no run
    ran = invoke("privatize", column_file, *arguments, "--json")
    assert ran.json["reports"] == 1000
    whole = invoke("estimate", tmp_path / "out", "--json", "--save-counts", tmp_path / "c.json")
    assert whole.json["n"] == 1000
    assert invoke("estimate", tmp_path / "c.json", "--json").json == whole.json
    twice = invoke("estimate", tmp_path / "c.json", f"{tmp_path}/out/*.parquet", "--json")
    assert (twice.status, twice.out) == (2, "")
    assert "its reports would count twice" in twice.err
    done = invoke("privatize", column_file, *arguments, "--resume", "--json")
    assert (done.status, done.json["reports"], done.json["resumed"]) == (
        0,
        1000,
        done.json["blocks"],
    )
    said = invoke("privatize", column_file, *arguments, "--resume").out
    assert f"the run in {tmp_path / 'out'} is finished" in said
    assert "nothing was drawn" in said
    again = invoke("estimate", tmp_path / "out", "--save-counts", tmp_path / "c.json")
    assert again.status == 2
    assert "exists already" in again.err
    (tmp_path / "c.json").write_text("{}")
    assert "mezzotint-counts" in invoke("estimate", tmp_path / "c.json").err


def test_memoised_reports_need_a_secret_key_file(
    invoke: Callable[..., Any], column_file: Path, mechanism_file: Path, tmp_path: Path
) -> None:
    def run(out: str, *more: object) -> Any:
        arguments = ["--column", "x", "--mechanism", mechanism_file, "--out", tmp_path / out, *more]
        return invoke("privatize", column_file, *arguments)

    key = tmp_path / "memo.key"
    memoised = ["--memoise-by", "id", "--key-file", key]
    for more, words in (
        (memoised, "--key-file=.*no such file.*--new-key"),
        (memoised[:2], "--memoise-by=id: needs the secret key"),
        (memoised[2:], "name the column of users with --memoise-by"),
        ([*memoised, "--new-key", "--seed", "3"], "--seed=a seed: memoised reports"),
        (["--memoise-by", "word", "--key-file", key, "--new-key"], "--key-file=.*exists already"),
        (["--memoise-by", "nobody", "--key-file", key], "--memoise-by=nobody: no such column"),
        (["--engine", "spark"], "'--engine': 'spark' is not one of"),
        (["--address", "auto"], "address=auto"),
        (["--threads", "0"], "threads=0"),
    ):
        ran = run("o.csv", *more)
        assert ran.status == 2
        assert re.search(words, ran.err), ran.err
    assert run("a.csv", *memoised).status == run("b.csv", *memoised).status == 0
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    assert run("c.csv").status == 0
    assert (tmp_path / "a.csv").read_bytes() != (tmp_path / "c.csv").read_bytes()


def test_the_most_frequent_of_a_large_domain(invoke: Callable[..., Any], tmp_path: Path) -> None:
    names = [f"w{i}" for i in range(200)]
    values = ["w3"] * 6000 + ["w7"] * 3000 + names * 5 + ["unheard"] * 500
    pq.write_table(pa.table({"word": values}), tmp_path / "in.parquet")
    domain, out = tmp_path / "domain.txt", tmp_path / "r.parquet"
    domain.write_text("\n".join(names) + "\n")
    asked = ("privatize", tmp_path / "in.parquet", "--column", "word", "--domain", domain)
    assert invoke(*asked, "--out", out, "--epsilon", 2, "--json").json["epsilon"] <= 2
    listed = ("estimate", out, "--domain", domain, "--top", 2)
    found = invoke(*listed, "--json").json
    assert [one["category"] for one in found["heavy_hitters"]] == ["w3", "w7"]
    assert found["simultaneous"] is True
    assert "No other category has a share above" in invoke(*listed).out
    (tmp_path / "short.txt").write_text("a\nb\n")
    for arguments, message in (
        (("estimate", out, "--domain", tmp_path / "short.txt"), "another order"),
        ((*asked, "--out", tmp_path / "n.csv"), "epsilon"),
        ((*asked, "--out", tmp_path / "n.csv", "--mechanism", "m.json"), "replaces --mechanism"),
        (
            ("privatize", tmp_path / "in.parquet", "--column", "word", "--out", tmp_path / "n.csv"),
            "mechanism",
        ),
    ):
        outcome = invoke(*arguments)
        assert outcome.status == 2
        assert message in " ".join(outcome.err.split())


@pytest.mark.parametrize(
    ("asked", "least"),
    [(("--histogram", 4), 4.0), (("--quantiles",), 1.5)],
    ids=["shares", "quantiles"],
)
def test_where_the_table_is_to_blame_a_better_one_is_named(
    invoke: Callable[..., Any], tmp_path: Path, asked: tuple[object, ...], least: float
) -> None:
    """The command that estimate names makes a table whose intervals are that many times narrower."""
    x = np.random.default_rng(2).beta(2, 5, 40_000)
    pq.write_table(pa.table({"x": x}), tmp_path / "in.parquet")
    families.k_randomized_response(lower=0, upper=1, levels=3, epsilon=4.0).save(
        tmp_path / "m.json"
    )
    shown = _estimated(invoke, tmp_path, "m", *asked)
    words = re.search(
        r"mezzotint (design --loss cdf .*) --out shares.json", " ".join(shown.out.split())
    )
    assert words is not None
    assert invoke(*words[1].split(), "--out", tmp_path / "shares.json").status == 0
    better = _estimated(invoke, tmp_path, "shares", *asked)
    assert "hardly narrow" not in better.out
    assert _width(better.json) < _width(shown.json) / least


def test_design_names_the_table_for_shares(invoke: Callable[..., Any], tmp_path: Path) -> None:
    """Its shares and quantiles are narrower than those of the table for means that was asked for."""
    x = np.random.default_rng(3).beta(2, 5, 40_000)
    pq.write_table(pa.table({"x": x}), tmp_path / "in.parquet")
    designed = invoke(
        "design", "--epsilon", 4, "--lower", 0, "--upper", 1, "--out", tmp_path / "m.json", "--json"
    ).json
    words = (
        designed["for_shares"].removeprefix("mezzotint ").replace("--out shares.json", "").split()
    )
    assert invoke(*words, "--out", tmp_path / "shares.json").status == 0
    for asked, least in ((("--histogram",), 4.0), (("--quantiles",), 2.0)):
        widths = [
            _width(_estimated(invoke, tmp_path, name, *asked).json) for name in ("m", "shares")
        ]
        assert widths[1] < widths[0] / least
    for others in (("--loss", "cdf", "--levels", 8), ("--delta", 1e-3, "--levels=-1,2")):
        assert (
            "for_shares"
            not in invoke(
                "design", "--epsilon", 4, "--lower", 0, "--upper", 1, *others, "--json"
            ).json
        )


def _estimated(invoke: Callable[..., Any], folder: Path, name: str, *asked: object) -> Any:
    """What estimate shows of reports of the table m.json or shares.json, and, as `json`, what it says."""
    reports = folder / f"{name}.parquet"
    words = (
        "privatize",
        folder / "in.parquet",
        "--column",
        "x",
        "--mechanism",
        folder / f"{name}.json",
    )
    assert invoke(*words, "--out", reports, "--overwrite").status == 0
    shown, told = invoke("estimate", reports, *asked), invoke("estimate", reports, *asked, "--json")
    return SimpleNamespace(out=shown.out, json=told.json)


def _width(told: dict[str, Any]) -> float:
    """Of all shares, or of all quantiles."""
    if "histogram" in told:
        return sum(told["histogram"]["high"]) - sum(told["histogram"]["low"])
    return sum(one["high"] - one["low"] for one in told["quantiles"])


def test_the_cost_of_a_row_stands_beside_the_estimate_of_a_column(
    invoke: Callable[..., SimpleNamespace], two_columns: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    source, first, second = two_columns
    out = tmp_path / "r.parquet"
    words = ["--column", "x", "--column", "y", "--mechanism", first, "--mechanism", second]
    ran = invoke("privatize", source, *words, "--out", out, "--json")
    whole = ran.json["claim"]["epsilon"]
    one = invoke("estimate", out, "--column", "y_code", "--json")
    assert one.json["epsilon_of_row"] == whole > one.json["epsilon"]
    assert "a complete row of these reports, all columns together, costs epsilon" in one.err
    assert (
        "epsilon_of_row"
        not in invoke("estimate", out, "--column", "x_code", "--column", "y_code", "--json").json
    )
