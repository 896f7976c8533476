"""Refusals begin with what was typed: every refusal of every verb, whatever option is wrong."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mezzotint
from mezzotint import families
from mezzotint.cli import application, messages, run
from mezzotint.cli.options import OLD_NAMES, value_kind
from mezzotint.core.errors import InfeasibleError, ParameterError

Invoke = Callable[..., Any]

FAST = """
design --epsilon 1 --levels=-3,3
design --epsilon 1 --categories a,b
design --epsilon 1 --levels 2 --family rqm
privatize in.parquet --column x --mechanism m.json --out o.parquet
estimate both.parquet --column x_code --column y_code
account m.json --observer secure_sum --clients 10
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
account m.json --observer shuffled --clients 100
report names.txt --out o.html
smoothed utility --counts 10,12 --loss-rate 0.002 --threshold 0.51
smoothed expected --n 20 --vertices 0.3 --loss-rate 0.1 --epsilon 1
smoothed elections
smoothed gradients --n 16 --epsilon 1 --draws 2
advise --clients-per-round 50 --epsilon 4 --dimension 10 --observer reports
compare --epsilon 1 --bits 1
train run.toml --set data={name="breast-cancer"}
federate nowhere.toml
""".strip().splitlines()

WRONG = {
    "integer": ("-1",),
    "float": ("-1", "nan"),
    "text": ("magic", "-1"),
    "choice": ("magic",),
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
        for value in WRONG.get(value_kind(option)[0].split()[0], WRONG["text"]):
            yield [*words, f"{option.opts[0]}={value}"]


def _check(verb: Any, line: str) -> None:
    """A complaint begins with what was typed."""
    said = line.removeprefix("mezzotint: ")
    assert said != line, line
    options = {word for option in verb.params for word in option.opts}
    arguments = {
        str(option.name).upper() for option in verb.params if option.param_type_name == "argument"
    }
    head = re.match(r"(-*\w[\w-]*)(\[\d+\])?=", said)
    if head is not None:
        # What the library says of several parameters together names them as it does.
        as_option = f"--{head[1].replace('_', '-')}"
        assert {head[1], as_option} & (options | arguments), line


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


def test_every_option_that_holds_a_parameter_is_one_of_its_verb() -> None:
    for name, aliases in messages.OPTION_OF.items():
        verb = _verb([name] if name in application.VERBS else ["smoothed", name])
        names = {option.name for option in verb.params}
        assert set(aliases.values()) <= names, name


@pytest.mark.parametrize(
    ("error", "line"),
    [
        # Nobody's file name is translated, nor a value that looks like a setting.
        (
            ParameterError("out", "max_level=3/lower=2.json", "its epsilon=1"),
            "--out=max_level=3/lower=2.json: its epsilon 1",
        ),
        (ParameterError("other", True, "no"), "--other: no"),
        (ParameterError("levels[2]", 7.0, "no"), "--levels[2]=7.0: no"),
        (ParameterError("levels", "7", "no"), "--levels=7: no"),
        (ParameterError("max_level", 7.0, "no"), "--max-level=7.0: no"),
        (ParameterError("nothing", 7.0, "no"), "nothing=7.0: no"),
        (ParameterError("prior", None, "name it"), "--prior is not given: name it"),
        (InfeasibleError("epsilon=3: no scheme"), "--epsilon=3: no scheme"),
    ],
)
def test_a_complaint_begins_with_the_option_as_it_is_typed(error: Any, line: str) -> None:
    assert messages.complaint(error, _verb(["design"])) == line


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
    (folder / "run.toml").write_text(
        "[rounds]\nclients_per_round = 10\n[mechanism]\nkind = 'table'\n"
    )
    begun = ["federate", str(folder / "run.toml"), "--out", str(folder / "run")]
    for others, named in (
        (["--set", "training.learning_rate=-1.0"], "training.learning_rate=-1.0: "),
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


TRANSLATED = [
    ("use trust='secure_sum' or leave it out", "use --observer=secure_sum or leave it out"),
    ("or use trust='local'", "or use --observer=reports"),
    ("e.g. clients=1000", "e.g. --clients=1000"),
    ("use overwrite=True (--overwrite)", "use --overwrite"),
    ("with other=True (mezzotint design --other)", "with mezzotint design --other"),
    ("choose corrupted= and clients=", "choose --corrupted and --clients"),
    ("one of (levels=-3,-1,1,3)", "one of (levels -3,-1,1,3)"),
    (
        "raise clip_norm, or sampling_rate (--sampling-rate)",
        "raise --clip-norm, or --sampling-rate",
    ),
    ("the release costs epsilon=2.5 at delta=1e-6", "the release costs epsilon 2.5 at delta 1e-6"),
    ("a/clients=3/x.parquet", "a/clients=3/x.parquet"),
    ('write {kind="module", factory="net.py:Net"}', 'write {kind="module", factory="net.py:Net"}'),
]


@pytest.mark.parametrize(("text", "line"), TRANSLATED)
def test_what_python_calls_an_argument_is_an_option_on_the_command_line(
    text: str, line: str
) -> None:
    assert messages.in_words_of(text, _verb(["account"])) == line


KEYWORD = re.compile(r"(?<![-\w./{])[a-z_][a-z_0-9]*=")


def _sentences() -> Iterator[str]:
    """Texts of the library's errors and warnings that speak of an argument as Python has it."""
    package = Path(messages.__file__).parents[1]
    for file in sorted(package.rglob("*.py")):
        if file.parent.name in ("papers", "report", "training", "secagg"):
            continue  # pages; code of the user's own; messages between machines
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call) or not re.search(r"Error$|warn$", _called(call)):
                continue
            for argument in ast.walk(ast.Module(body=[ast.Expr(call)], type_ignores=[])):
                text = ""
                if isinstance(argument, ast.JoinedStr):
                    for part in argument.values:
                        text += part.value if isinstance(part, ast.Constant) else "1"
                elif isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    text = argument.value
                if KEYWORD.search(text):
                    yield text


def _called(call: ast.Call) -> str:
    return getattr(call.func, "id", getattr(call.func, "attr", ""))


def test_no_message_speaks_of_an_argument_as_python_has_it() -> None:
    sentences = list(_sentences())
    assert len(sentences) > 20
    for name in application.VERBS:
        verb = _verb([name])
        for sentence in sentences:
            told = messages.in_words_of(sentence, verb)
            outside_tables = re.sub(r"\{[^}]*\}", "", told)
            assert not KEYWORD.search(outside_tables), (name, told)


def test_an_uneven_table_is_named_by_its_file(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = families.erm(lower=0, upper=1, bins=[-1.0, 0.12345678, 0.5, 2.0], gamma=1.0)
    table.save(tmp_path / "uneven.json")
    refused = invoke("account", tmp_path / "uneven.json", "--observer=secure_sum", "--clients=9")
    assert refused.status == 2
    assert refused.err.startswith(
        "mezzotint: FILE: its levels [-1.0, 0.12345678, 0.5, 2.0] are not integer"
    )
    assert refused.err.endswith("or use --observer=reports\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("design", "--epsilon", 1, "--bits", 2), "--levels 4 makes reports of 2 bits"),
        (("estimate", "r.parquet", "--median"), "--quantiles 0.5 estimates the median"),
        (("plan", "--estimand", "share", "--epsilon", 1), "--estimand frequency --categories 2"),
        (
            ("plan", "--estimand", "hitters", "--categories", 9, "--out", "new.json"),
            "privatize --domain makes the table of heavy hitters",
        ),
        (
            ("plan", "--estimand", "frequency", "--categories", 9, "--family", "rqm"),
            "families are tables of numbers",
        ),
        (("show", "r.parquet"), "name a mechanism file (.json)"),
        (("account", "in.parquet"), "name a mechanism file (.json)"),
        (("verify", "r.parquet"), "--proof of privatize"),
        (("verify", "."), "is a folder; a claim stands in a mechanism file"),
    ],
)
def test_what_newcomers_look_for_is_named(
    invoke: Invoke, folder: Path, words: tuple[object, ...], said: str
) -> None:
    outcome = invoke(*words)
    assert outcome.status == 2
    assert said in outcome.err + outcome.out


def test_what_a_suggestion_names_is_an_option_of_its_verb() -> None:
    for name, suggestions in messages.SUGGESTIONS.items():
        options = {typed for option in _verb([name]).params for typed in option.opts}
        for missing, suggestion in suggestions.items():
            assert missing not in options
            assert set(re.findall(r"--[a-z-]+", suggestion)) <= options


OTHERS = {"--errata", "--help", "--no-", "--no-include-code", "--node-config", "--num-supernodes"}
"""Options of other programs that this one names, and the parser's own."""


def _options(command: Any) -> set[str]:
    names = {
        typed
        for option in command.params
        for typed in (*option.opts, *getattr(option, "secondary_opts", ()))
    }
    return names.union(*map(_options, getattr(command, "commands", {}).values()))


def test_options_that_sentences_name_are_options_of_some_verb() -> None:
    mistaken = {word for words in messages.SUGGESTIONS.values() for word in words}
    before = {word for words in OLD_NAMES.values() for word in words}
    program: Any = application._command((*application.VERBS, "smoothed", "roster"))
    options = _options(program) | OTHERS | mistaken | before
    named = re.compile(r"(?<![-\w])--[a-z][a-z0-9-]*")
    unknown = {
        f"{path.name}: {word}"
        for path in Path(mezzotint.__file__).parent.rglob("*.py")
        for word in named.findall(path.read_text(encoding="utf-8"))
        if word not in options and path.name != "pages.py"  # which calls another program
    }
    assert not unknown


def test_booleans_are_told_what_their_categories_are_called(invoke: Invoke, folder: Path) -> None:
    pq.write_table(pa.table({"b": [True, False]}), "b.parquet")
    families.categorical(categories=["yes", "no"], epsilon=1.0).save("yes.json")
    private = ("privatize", "b.parquet", "--column", "b", "--out", "b.csv", "--mechanism")
    refused = invoke(*private, "yes.json")
    assert "mezzotint design --categories true,false" in refused.err
    families.categorical(categories=["true", "false"], epsilon=1.0).save("true.json")
    assert invoke(*private, "true.json").status == 0
