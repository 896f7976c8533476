"""Messages speak the words that were typed: every refusal of every verb, whatever option is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mezzotint import families
from mezzotint.cli import application, common, run
from mezzotint.core.errors import InfeasibleError, ParameterError

Invoke = Callable[..., Any]

FAST = """
design --epsilon 1 --levels=-3,3
design --epsilon 1 --categories a,b
design --epsilon 1 --levels 2 --family rqm
privatize in.parquet --column x --mechanism m.json --out o.parquet
estimate both.parquet --column x_code --column y_code
account m.json --view sum --clients 10
ledger l.jsonl
plan --epsilon 1 --levels 2 --people 100
smoothed profile --counts 10,12 --loss-rate 0.002 --epsilon 1
""".strip().splitlines()

SLOW = """
design --epsilon 1 --levels 2
design --epsilon 1 --levels 2 --family mvu
design --epsilon 1 --levels 2 --loss cdf
design --epsilon 1 --levels 2 --family optm
show m.json
privatize in.parquet --column g --domain names.txt --epsilon 1 --out o.parquet
estimate r.parquet
estimate r.parquet --by g
estimate r.parquet --weights w
account m.json
account m.json --view shuffled --clients 100
report names.txt --out o.html
smoothed utility --counts 10,12 --loss-rate 0.002 --threshold 0.51
smoothed expected --n 20 --vertices 0.3 --loss-rate 0.1 --epsilon 1
smoothed elections
smoothed gradients --n 16 --epsilon 1 --draws 2
advise --clients 50 --target-epsilon 4 --dim 10 --trust local
compare --epsilon 1 --bits 1
train run.toml --set data={name="breast-cancer"}
federate nowhere.toml
""".strip().splitlines()

WRONG = {
    "integer": ("-1",),
    "float": ("-1", "nan"),
    "text": ("magic", "-1"),
}
"""Values of options that hardly any verb takes."""

EFFECTS = {
    "as_json",
    "help",
    "app",
    "png",
    "html",
    "plot",
    "tensorboard",
    "example",
    "changes",
    "save_counts",
}
"""Options that write whatever they are told to, or change nothing about what is refused."""

PYTHON = re.compile(r"\b(True|False|None|math\.\w+|Fraction\()|\w=[\"']")


@pytest.fixture
def folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Path:
    """A small file of every kind that the verbs above read."""
    monkeypatch.chdir(tmp_path)
    dice = np.random.default_rng(1)
    columns = {name: dice.uniform(0, 10, 200) for name in "xy"}
    pq.write_table(pa.table({**columns, "g": ["a", "b"] * 100, "w": [1.0] * 200}), "in.parquet")
    families.rqm(lower=0, upper=10, levels=4, extension=5.0, q=0.4).save("m.json")
    Path("names.txt").write_text("a\nb\n")
    Path("run.toml").write_text("run.steps = 1\nbudget.target_epsilon = 1\ndata.label = 'kind'\n")
    Path("missing.csv").write_text("kind,x\n" + "a,1.5\nb,inf\n" * 5)
    private = "privatize in.parquet --mechanism m.json --column x"
    assert (
        run(
            [
                *private.split(),
                *[
                    "--out",
                    "r.parquet",
                    "--keep",
                    "g",
                    "--keep",
                    "w",
                    "--ledger",
                    "l.jsonl",
                    "--budget",
                    "9",
                ],
            ]
        )
        == 0
    )
    assert run([*private.split(), *["--column", "y", "--out", "both.parquet"]]) == 0
    capsys.readouterr()
    return tmp_path


def _verb(words: list[str]) -> Any:
    command: Any = application._command((*application.VERBS, "smoothed"))
    for word in words:
        command = getattr(command, "commands", {}).get(word, command)
    return command


def _wrong(verb: Any, words: list[str]) -> Iterator[list[str]]:
    """The command line with every option of its verb wrong, one at a time."""
    for option in verb.params:
        if (
            option.param_type_name != "option"
            or option.name in EFFECTS
            or (option.name, words[0]) == ("data", "compare")
        ):
            continue
        if option.is_flag:
            yield [*words, option.opts[0]]
            continue
        for value in WRONG.get(option.type.name.split()[0], WRONG["text"]):
            yield [*words, f"{option.opts[0]}={value}"]


def _check(verb: Any, line: str) -> None:
    """A complaint begins with what was typed, and neither Python nor a parameter's name is in it."""
    said = line.removeprefix("mezzotint: ")
    assert said != line, line
    options = {word for option in verb.params for word in option.opts}
    arguments = {
        str(option.name).upper() for option in verb.params if option.param_type_name == "argument"
    }
    head = re.match(r"(-*\w[\w-]*)(\[\d+\])?=", said)
    assert head is None or head[1] in options | arguments, line
    assert not PYTHON.search(said), line
    for option in verb.params:
        if option.param_type_name == "option" and option.name != "epsilon":
            assert not re.search(rf"(?<![-\w]){option.name}=", said), line
        if "_" in option.name:
            assert not re.search(rf"(?<![-\w.]){option.name}(?![\w.])", said), line


def _law(base: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = base.split()
    verb, refused = _verb(words), 0
    for arguments in _wrong(verb, words):
        status = run(arguments)
        err = capsys.readouterr().err
        assert status in (0, 1, 2), arguments
        for name in ("o.parquet", "o.html"):
            Path(name).unlink(missing_ok=True)
        lines = [line for line in err.splitlines() if "Try: mezzotint" not in line]
        assert status != 2 or lines or "Try: mezzotint" in err, arguments
        refused += status == 2
        for line in lines:
            _check(verb, line)
    assert refused


@pytest.mark.parametrize("base", FAST)
def test_what_is_refused_is_named_as_it_was_typed(
    base: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _law(base, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("base", SLOW)
def test_what_slow_verbs_refuse(
    base: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _law(base, capsys)


def test_every_alias_is_an_option_of_its_verb() -> None:
    for name, aliases in common.ALIASES.items():
        verb = _verb([name] if name in application.VERBS else ["smoothed", name])
        names = {option.name for option in verb.params}
        assert set(aliases.values()) <= names, name


@pytest.mark.parametrize(
    ("words", "said", "typed"),
    [
        ("design", "set max_level, or use loss='mse'", "set --max-level, or use --loss=mse"),
        ("design", "ask for it with other= or missing=", "ask for it with --other or --missing"),
        ("design", "use other=True", "use --other"),
        ("account", "use trust='secure_sum'", "use --view=sum"),
        (
            "privatize",
            'missing="drop" (--missing drop) leaves such rows out',
            "--missing drop leaves such rows out",
        ),
        (
            "privatize",
            "name another file, or overwrite=True (--overwrite)",
            "name another file, or --overwrite",
        ),
        ("estimate", "a=100,b=250; x_code; replace_one", "a=100,b=250; x_code; replace_one"),
        ("advise", "epsilon=3: no scheme", "--target-epsilon=3: no scheme"),
        ("train", "q=1, or batch_size/2 of clip_norm", "q=1, or batch_size/2 of clip_norm"),
    ],
)
def test_words_of_the_library_are_translated(words: str, said: str, typed: str) -> None:
    with common.command_line(_verb([]), [words]):
        assert common.typed(said) == typed
        assert common.complaint(InfeasibleError(said)) == typed


def test_values_stand_as_they_were_given() -> None:
    """Nobody's file name is translated, nor a value that looks like a setting."""
    with common.command_line(_verb([]), ["design"]):
        given = common.complaint(ParameterError("out", "max_level=3/lower=2.json", "its epsilon=1"))
        assert given == "--out=max_level=3/lower=2.json: its --epsilon=1"
        assert common.complaint(ParameterError("other", True, "no")) == "--other: no"
        assert common.complaint(ParameterError("levels[2]", 7.0, "no")) == "--levels[2]=7.0: no"
        assert common.complaint(ParameterError("levels", "7", "no")) == "--levels=7: no"
        assert common.complaint(ParameterError("nothing", 7.0, "no")) == "nothing=7.0: no"
        assert (
            common.complaint(ParameterError("prior", None, "name it"))
            == "--prior is not given: name it"
        )


@pytest.mark.parametrize(
    ("line", "begins"),
    [
        ("train", "RUN is not given: "),
    ],
)
def test_an_option_is_named_that_is_missing_or_goes_by_another_name(
    line: str, begins: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("flwr" if line.startswith("federate") else "torch")
    assert run(line.split()) == 2
    assert capsys.readouterr().err.removeprefix("mezzotint: ").startswith(begins)


def test_a_folder_that_holds_a_run_hides_no_other_error(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("flwr")
    (folder / "run").mkdir()
    (folder / "run" / "ledger.jsonl").touch()
    (folder / "run.toml").write_text("[rounds]\nclients = 10\n[mechanism]\nkind = 'table'\n")
    begun = ["federate", str(folder / "run.toml"), "--out", str(folder / "run")]
    for others, named in (
        (["--set", "training.rate=-1.0"], "training.rate=-1.0: "),
        (["--set", "mechanism.bits=20"], "mechanism.bits=20: "),
        ([], "--out="),
    ):
        assert run([*begun, *others]) == 2
        assert capsys.readouterr().err.removeprefix("mezzotint: ").startswith(named)
    assert [file.name for file in (folder / "run").iterdir()] == ["ledger.jsonl"]


@pytest.mark.parametrize(
    ("words", "begins"),
    [
        (
            ("design", "--epsilon", 1, "--prior", "in.parquet:z"),
            "--prior=in.parquet:z: no such column",
        ),
        (
            ("design", "--epsilon", 1, "--prior", "none.parquet:z"),
            "--prior=none.parquet:z: no such file",
        ),
        (("report", "r.parquet", "--column", "z"), "--column=z: "),
        (("estimate", "r.parquet", "r.parquet"), "SOURCES="),
        (
            ("train", "run.toml", "--set", "data.file=missing.csv"),
            "data=not finite: ",
        ),
    ],
)
def test_what_stands_in_files_is_named_by_the_option_of_the_file(
    invoke: Invoke, folder: Path, words: tuple[object, ...], begins: str
) -> None:
    outcome = invoke(*words)
    assert outcome.status == 2
    assert outcome.err.splitlines()[-1].startswith(f"mezzotint: {begins}"), outcome.err
