"""Bad input: exit status 2 and one line on standard error that names parameter, value and remedy."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mezzotint as mz
from mezzotint.core.mechanism import Mechanism

Invoke = Callable[..., object]


@pytest.fixture
def refused(invoke: Invoke) -> Callable[..., None]:
    """Runs a command line that must be refused in one line holding the words."""

    def call(*arguments: object, words: tuple[str, ...]) -> None:
        outcome = invoke(*arguments)
        assert outcome.status == 2, outcome
        assert outcome.out == ""
        lines = [line for line in outcome.err.splitlines() if "warning" not in line]
        assert len(lines) == 1, outcome.err
        assert lines[0].startswith("mezzotint: ")
        for word in words:
            assert word in lines[0]

    return call


def privatize(
    source: Path, mechanism: Path, out: Path, *more: str, column: str = "x"
) -> tuple[object, ...]:
    return ("privatize", source, "--column", column, "--mechanism", mechanism, "--out", out, *more)


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_columns(
    refused: Callable[..., None], tmp_path: Path, mechanism_file: Path, ending: str
) -> None:
    out, source = tmp_path / "out.parquet", tmp_path / f"in{ending}"

    def store(**columns: pa.Array) -> None:
        if ending == ".parquet":
            pq.write_table(pa.table(columns), source)
        else:
            rows = zip(*(column.to_pylist() for column in columns.values()), strict=True)
            lines = [
                ",".join(columns),
                *(",".join("" if v is None else str(v) for v in row) for row in rows),
            ]
            source.write_text("\n".join(lines) + "\n")

    store(x=pa.array([1.0, float("nan")]), y=pa.array([1.0, 2.0]))
    refused(
        *privatize(source, mechanism_file, out),
        words=("column=x", "data row 2 is missing", "--missing drop"),
    )
    store(x=pa.array([1.0, None]), y=pa.array([1.0, 2.0]))
    refused(
        *privatize(source, mechanism_file, out),
        words=("column=x", "data row 2 is missing", "--missing drop"),
    )
    refused(
        *privatize(source, mechanism_file, out, column="z"),
        words=("column=z", "no such column", "x, y"),
    )
    store(x=pa.array([], pa.float64()), y=pa.array([], pa.float64()))
    refused(*privatize(source, mechanism_file, out), words=("column=x", "is empty"))
    store(x=pa.array(["one", "two"]), y=pa.array([1.0, 2.0]))
    refused(*privatize(source, mechanism_file, out), words=("column=x", "not"))
    assert not out.exists()


def test_files(
    refused: Callable[..., None], tmp_path: Path, column_file: Path, mechanism_file: Path
) -> None:
    out = tmp_path / "out.parquet"
    refused(
        *privatize(tmp_path / "no.csv", mechanism_file, out),
        words=("SOURCE=", "no.csv", "no such file"),
    )
    refused(
        *privatize(column_file, tmp_path / "no.json", out),
        words=("mechanism=", "no.json", "mezzotint design"),
    )
    refused(
        *privatize(column_file, mechanism_file, tmp_path / "out.xls"),
        words=("out=", "out.xls", ".parquet"),
    )
    refused(
        *privatize(column_file, mechanism_file, tmp_path / "no" / "o.csv"),
        words=("out=", "does not exist"),
    )
    out.write_text("old")
    refused(
        *privatize(column_file, mechanism_file, out),
        words=("out=", "exists already", "--overwrite"),
    )
    assert out.read_text() == "old"
    refused(
        *privatize(column_file, mechanism_file, Path("-"), "--json"), words=("out=-", "name a file")
    )
    refused("estimate", column_file, words=("contains no mechanism", "--mechanism"))
    refused("verify", tmp_path / "no.json", words=("FILE=", "no such file"))
    refused("verify", "a  certified: 1", words=(r"FILE='a\x20\x20certified:\x201': no such",))
    refused("show", mechanism_file, "--at=1,b", words=("at=1,b", "numbers separated by commas"))


@pytest.mark.parametrize(
    ("edit", "words", "status"),
    [
        (lambda text: text[:100], "truncated", 2),
        (lambda text: text.replace('"version":1', '"version":99'), "version=99", 2),
        (lambda text: text.replace('"levels":[', '"levels":[0.5,'), "levels", 1),
        (lambda text: text.replace('"knots":[0.0', '"knots":[NaN'), "NaN", 2),
        (lambda text: text.replace('"knots":[0.0', '"knots":[-1.0'), "sha256", 1),
        (lambda text: text.replace("mezzotint-mechanism", "something"), "format", 2),
        (lambda text: text.replace('"name":', '"label":'), "keys missing or unknown", 1),
        (lambda _: "", "truncated", 2),
    ],
)
def test_edited_mechanism_files(
    refused: Callable[..., None],
    invoke: Invoke,
    tmp_path: Path,
    column_file: Path,
    mechanism_file: Path,
    edit: Callable[[str], str],
    words: str,
    status: int,
) -> None:
    mechanism_file.write_text(edit(mechanism_file.read_text()))
    refused("show", mechanism_file, words=("mechanism file", words))
    refused(
        *privatize(column_file, mechanism_file, tmp_path / "out.csv"),
        words=("mechanism file", words),
    )
    assert not (tmp_path / "out.csv").exists()
    # `verify` exists to say so: a failed check is not bad input, a file that cannot be read is.
    assert invoke("verify", mechanism_file).status == status
    assert invoke("verify", mechanism_file, "--json").status == status


def test_weights_that_do_not_sum(refused: Callable[..., None], mechanism_file: Path) -> None:
    document = json.loads(mechanism_file.read_text())
    document["weights"][2][0] += 1
    mechanism_file.write_text(json.dumps(document))
    refused("show", mechanism_file, words=("weights=4294967297", "row 2 must sum to exactly 2**32"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("design",), ("--epsilon",)),
        (("design", "--epsilon", "abc"), ("--epsilon", "abc")),
        (("design", "--epsilon", "1", "--levels", "a"), ("levels=a", "--levels=-3,-0.5,0.5,3")),
        (("design", "--epsilon", "1", "--levels", "1,b"), ("levels=1,b", "separated by commas")),
        (
            ("design", "--epsilon", "1", "--family", "magic"),
            ("--family", "magic", "optimal", "rqm"),
        ),
        (("design", "--epsilon", "1", "--prior", "file.csv"), ("prior=file.csv", "FILE:COLUMN")),
        (
            ("design", "--epsilon", "1", "--out", "no/such/m.json"),
            ("out=no/such/m.json", "does not exist"),
        ),
        (("compare", "--epsilon", "1", "--bits", "2", "--levels", "3"), ("bits=2", "not both")),
        (("reproduce", "nothing"), ("NAME=nothing", "use one of")),
        (("estimate",), ("SOURCES", "--help")),
        (("frobnicate",), ("frobnicate", "--help")),
        (("show", "m.json", "--wrong"), ("--wrong", "--help")),
    ],
)
def test_options(
    refused: Callable[..., None], arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    refused(*arguments, words=words)


def test_estimate_options(
    refused: Callable[..., None],
    invoke: Invoke,
    tmp_path: Path,
    column_file: Path,
    mechanism_file: Path,
) -> None:
    reports = tmp_path / "r.csv"
    assert invoke(*privatize(column_file, mechanism_file, reports)).status == 0
    for arguments, words in (
        (("--confidence", "2"), ("confidence=2", "between 0 and 1")),
        (("--method", "magic"), ("--method", "magic", "asymptotic")),
        (("--histogram", "0"), ("--histogram=0", "1 to 1000 bins")),
        (("--quantiles", "0.5,x"), ("quantiles=0.5,x",)),
        (("--quantiles", "1.5"), ("--quantiles=", "between 0 and 1")),
        (("--column", "y"), ("column=y", "x_code")),
    ):
        refused("estimate", reports, *arguments, words=words)


def test_a_full_disk(
    refused: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    column_file: Path,
    mechanism_file: Path,
) -> None:
    def full(*_: object, **__: object) -> object:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("mezzotint.collect.encoder.draw", full)
    out = tmp_path / "out.parquet"
    refused(
        *privatize(column_file, mechanism_file, out),
        words=("No space left on device", "Free some space"),
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.parquet", "m.json"]


def test_a_write_that_the_system_refuses(tmp_path: Path, mechanism_file: Path) -> None:
    (tmp_path / "in.csv").write_text("x\n" + "1\n" * 100_000)
    code = (
        "import resource, signal; from mezzotint.cli import main; from mezzotint import families\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "families.randomized_response(epsilon=1.0).privatize(0.0)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000)); main()"
    )
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
    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1
    assert "File too large" in ran.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "m.json"]


def test_other_errors_are_not_hidden(
    invoke: Invoke, mechanism_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of the program is no user error: it keeps its traceback."""

    def broken(*_: object) -> object:
        raise RuntimeError("a fault")

    monkeypatch.setattr(Mechanism, "load", broken)
    with pytest.raises(RuntimeError, match="a fault"):
        invoke("show", mechanism_file)


@pytest.mark.parametrize(
    ("arguments", "begins"),
    [
        (
            ("smoothed", "profile", "--counts", "1,2", "--loss-rate", "2", "--epsilon", "1"),
            "--loss-rate=2: ",
        ),
        (
            (
                "smoothed",
                "expected",
                "--n",
                "9",
                "--vertices",
                "3",
                "--loss-rate",
                "0.1",
                "--epsilon",
                "1",
            ),
            "--vertices[0]=3",
        ),
        (
            ("advise", "--clients-per-round", "50", "--epsilon", "4", "--dimension", "0"),
            "--dimension=0: ",
        ),
        (("design", "--epsilon", "1", "--levels=-3,3", "--max-level", "9"), "--max-level=9.0: "),
        (("design", "--epsilon", "1", "--levels", "4", "--alpha", "1e23"), "--alpha=1e+23: "),
        (("show", "no-such-file.json"), "FILE=no-such-file.json: "),
    ],
)
def test_messages_begin_with_what_was_typed(
    invoke: Invoke, arguments: tuple[str, ...], begins: str
) -> None:
    outcome = invoke(*arguments)
    assert outcome.status == 2
    assert outcome.err.startswith(f"mezzotint: {begins}")


def test_a_guess_is_offered_once(invoke: Invoke) -> None:
    assert invoke("desing").err.count("Did you mean") == 1
    assert invoke("design", "--epsilonn", "1").err.count("Did you mean") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("compare", "--epsilon", 1, "--bits", 0), ("bits=0", "need an integer >= 1")),
        (("design", "--epsilon", 1, "--seconds", 5), ("--seconds=5.0", "needs --prove")),
        (
            ("compare", "--epsilon", 1, "--png", "x.jpg"),
            ("--figure=x.jpg", "a name that ends in .png"),
        ),
        (
            ("design", "--epsilon", 1, "--out", "x.txt"),
            ("--out=x.txt", "a name that ends in .json"),
        ),
        (("report", ".", "--out", "x.txt"), ("--out=x.txt", "a name that ends in .html")),
        (
            ("reproduce", "tradeoff", "--html", "x.txt"),
            ("--html=x.txt", "a name that ends in .html"),
        ),
        (
            ("design", "--epsilon", 1, "--categories", 1),
            ("--categories=1", "need at least 2 categories"),
        ),
        (
            ("design", "--epsilon", 1, "--alpha", 4, "--delta", 0.1),
            ("--delta, --alpha and --metric are three different guarantees",),
        ),
        (
            ("smoothed", "profile", "--epsilon", 1),
            ("--counts is not given", "--counts and --election"),
        ),
        (
            ("smoothed", "profile", "--counts", "5,5", "--epsilon", 1),
            ("exactly one of --loss-rate and --sampled",),
        ),
        (
            (
                "smoothed",
                "profile",
                "--counts",
                "5,5",
                "--sampled",
                3,
                "--epsilon",
                1,
                "--ratio",
                2,
            ),
            ("exactly one of --epsilon and --ratio (e^epsilon)",),
        ),
        (
            ("smoothed", "gradients", "--n", 100, "--sampled", 200, "--epsilon", 1),
            ("--sampled=200", "use at most"),
        ),
    ],
)
def test_options_without_effect_or_out_of_range(
    refused: Callable[..., None], words: tuple[object, ...], said: tuple[str, ...]
) -> None:
    refused(*words, words=said)


def test_options_that_need_another_one(
    refused: Callable[..., None], tmp_path: Path, column_file: Path, mechanism_file: Path
) -> None:
    out = tmp_path / "out.parquet"
    refused(
        *privatize(column_file, mechanism_file, out, "--epsilon", "1"),
        words=("--epsilon=1.0", "needs --domain"),
    )
    refused("estimate", out, "--top", 3, words=("--top=3", "needs --domain"))
    refused(
        "estimate", out, "--save-counts", "n.txt", words=("--save-counts=n.txt", "ends in .json")
    )
    refused("account", mechanism_file, "--clip-norm", 1, words=("--clip-norm=1.0", "secure_sum"))


def test_reports_without_hashes_need_no_domain(
    invoke: Invoke,
    refused: Callable[..., None],
    tmp_path: Path,
    column_file: Path,
    mechanism_file: Path,
) -> None:
    out, names = tmp_path / "out.parquet", tmp_path / "names.txt"
    invoke(*privatize(column_file, mechanism_file, out))
    names.write_text("a\nb\n")
    refused("estimate", out, "--domain", names, words=(f"SOURCES={out}", "leave out --domain"))


def test_pages_are_made_of_what_mezzotint_writes(
    refused: Callable[..., None], tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    for file in (tmp_path / "text.txt", tmp_path / "other.json"):
        file.write_text("{}")
        refused(
            "report",
            file,
            "--out",
            page,
            words=(f"{file.name}: not a file with a page", "report --help"),
        )
    refused(
        "report",
        tmp_path / "run.jsonl",
        "--out",
        page,
        words=("FILE=", "no such file; check the path"),
    )
    refused(
        "report",
        tmp_path,
        "--out",
        page,
        words=(f"FILE={tmp_path}", "other.json in it is not a file of columns"),
    )


def test_steps_between_log_lines_cannot_be_negative(
    refused: Callable[..., None], tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "run.toml").write_text('data = "breast-cancer"\nrun.every = -1\n')
    refused("train", tmp_path / "run.toml", words=("every=-1", "need an integer >= 0"))


def test_a_federated_run_is_no_file(refused: Callable[..., None], mechanism_file: Path) -> None:
    pytest.importorskip("flwr")
    file = mechanism_file.parent / "run.toml"
    file.write_text("[mechanism]\nkind = 'grid'\n")
    words = ("--out=", "is a file, not a folder")
    refused("federate", file, "--out", mechanism_file, words=words)


def test_inputs_that_are_clipped_are_named(
    invoke: Callable[..., Any], mechanism_file: Path
) -> None:
    assert "50 is clipped to 10" in invoke("show", mechanism_file, "--at", "5,50").err


def test_a_client_that_no_release_names(
    refused: Callable[..., None],
    invoke: Callable[..., Any],
    tmp_path: Path,
    column_file: Path,
    mechanism_file: Path,
) -> None:
    book = tmp_path / "spent.jsonl"
    line = privatize(column_file, mechanism_file, tmp_path / "out.parquet", "--ledger", str(book))
    assert invoke(*line).status == 0
    assert (
        "no release is charged to nobody alone" in invoke("ledger", book, "--client", "nobody").err
    )
    refused("ledger", book, "--delta", 2, words=("--delta=2.0", "ledger of releases"))


def test_utility_is_compared_with_utility(invoke: Callable[..., Any]) -> None:
    assert "log10 utility" in " ".join(invoke("smoothed", "utility", "--help").out.split())


def test_a_column_that_is_missing_is_named_by_its_option(
    refused: Callable[..., None],
    invoke: Callable[..., Any],
    tmp_path: Path,
    column_file: Path,
    mechanism_file: Path,
) -> None:
    out = tmp_path / "out.parquet"
    assert invoke(*privatize(column_file, mechanism_file, out)).status == 0
    refused("estimate", out, "--weights", "zz", words=("--weights=zz", "no such column"))
    refused("estimate", out, "--by", "zz", words=("--by=zz", "no such column"))


def test_levels_that_do_not_add_up_are_named_by_their_file(
    refused: Callable[..., None], tmp_path: Path
) -> None:
    pytest.importorskip("flwr")
    file = tmp_path / "m.json"
    mz.design.optimal(epsilon=1.0, levels=[-3.0, -0.5, 2**-0.5, 3.1]).mechanism.save(file)
    run = tmp_path / "run.toml"
    run.write_text(f"[mechanism]\nkind = 'file'\nfile = '{file}'\n")
    refused("federate", run, words=(f"mechanism.file={file}", "integer multiples of a step"))
