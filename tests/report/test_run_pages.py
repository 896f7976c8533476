"""Pages of training logs, federated runs and smoothed results: their numbers, and what is refused."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path
from typing import Any

import pytest

from mezzotint import privacy, smoothed
from mezzotint.cli import run
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.records import plain
from mezzotint.families import rqm
from mezzotint.federated import TableEncoding, gaussian_encoding
from mezzotint.privacy import account
from mezzotint.report import Figure, Page, html_page, write_png
from mezzotint.report.file_pages import page_of
from mezzotint.report.smoothed_pages import power
from mezzotint.training import rqp
from mezzotint.vectors import ranked_codebook
from tolerances import FEW, MANY

RATE, STEPS, NOISE = 0.0625, 40, 1.5


def _figure(page: Page, key: str) -> Figure:
    return next(figure for figure in page.figures if figure.key == key)


def _text(page: Page) -> str:
    return " ".join(word for section in page.sections for word in section.words)


def _write(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


# Training ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def claim() -> Any:
    phase = rqp.Phase(
        noise_multiplier=NOISE, kappa=1.0, sampling=rqp.Poisson(rate=RATE), steps=STEPS
    )
    return privacy.account(rqp.training_release([phase], delta=1e-5))


@pytest.fixture
def lines(claim: Any) -> list[dict[str, Any]]:
    header = {
        "model": "logreg",
        "data": "toy",
        "method": "noisy-sgd",
        "noise_multiplier": NOISE,
        "steps": STEPS,
    }
    report = {"loss": 0.5, "train_accuracy": 0.75, "test_accuracy": 0.7, "seconds": 1.0}
    end = {
        "method": "dp-sgd",
        "claim": str(claim),
        "sampling_rate": RATE,
        "steps": STEPS,
        "caveat": "toys alone",
    }
    return [
        {**header, "delta": 1e-5, "seed": None},
        {"step": 20, **report, "loss": "nan", "epsilon": claim.epsilon / 2},
        {"step": STEPS, **report, "test_accuracy": 0.8, "epsilon": claim.epsilon},
        {**end, "neighboring": "add_or_remove_one", "packed_test_accuracy": 0.947368},
    ]


def test_the_folder_of_a_training_run_has_the_page_of_its_log(
    lines: list[dict[str, Any]], tmp_path: Path
) -> None:
    """A packed model and a checkpoint lie beside the log; neither is a file of columns."""
    log = _write(tmp_path / "log.jsonl", lines)
    (tmp_path / "model.mz").write_bytes(b"packed")
    assert page_of(tmp_path) == page_of(log)


def test_a_training_log_quotes_its_claim_and_accounts_the_run_again(
    lines: list[dict[str, Any]], claim: Any, tmp_path: Path
) -> None:
    page = page_of(_write(tmp_path / "run.jsonl", lines))
    assert str(claim) in _text(page)
    assert "toys alone" in _text(page)
    assert "dp-sgd" in page.summary
    assert dict(page.sections[0].table.rows)["method"] == "dp-sgd"
    assert page.sections[-1].table.rows[0][1] == "94.74 %"  # to nearest: no privacy number
    (accuracy, _) = _figure(page, "accuracy").curves
    assert accuracy.x == (20.0, 40.0)
    assert accuracy.y == pytest.approx((70.0, 80.0), rel=FEW)
    assert _figure(page, "loss").curves[0].x == (40.0,)  # the loss of no batch yet is left out
    profile = _figure(page, "profile").curves[0]
    assert list(profile.y) == sorted(profile.y)  # the smaller delta, the larger epsilon
    assert dict(zip(profile.x, profile.y, strict=True))[1e-5] == pytest.approx(claim.epsilon)
    # The lines to type give the claim.
    names: dict[str, Any] = {}
    code = [line.removeprefix(">>> ") for line in page.sections[-1].code.splitlines()]
    exec("\n".join(code[:-1]), names)
    assert eval(code[-1].removeprefix("print(").removesuffix(")"), names) == claim
    assert len(html_page(page).encode()) < 150_000
    assert {path.stem for path in write_png(page, tmp_path)} == {
        figure.key for figure in page.figures
    }


def test_a_log_that_is_still_written_a_seeded_one_and_one_without_privacy(
    lines: list[dict[str, Any]], tmp_path: Path
) -> None:
    going = page_of(_write(tmp_path / "going.jsonl", lines[:2]))
    assert "does not hold the run's claim" in _text(going)
    assert "20 of 40 steps" in going.summary
    seeded = page_of(_write(tmp_path / "seeded.jsonl", [{**lines[0], "seed": 3}, *lines[1:]]))
    assert "Simulation; not private" in _text(seeded)
    assert "simulation; not private" in seeded.summary
    open_ = [{**lines[0], "noise_multiplier": 0.0}, {**lines[1], "epsilon": None}]
    assert "nothing is private" in _text(page_of(_write(tmp_path / "open.jsonl", open_)))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "holds no report"),
        ('{"steps": 3}\n', "holds no report"),
        ('{"steps": 3}\n{"step": 1}\n', "lacks or garbles 'loss'"),
        ('{"steps": 3}\nnonsense\n', "line 2"),
        ("[1]\n", "line 1"),
    ],
)
def test_damaged_logs_are_refused(text: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises(FileFormatError, match=complaint):
        page_of(tmp_path / "run.jsonl")


# Federated runs ----------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "run"
    place.mkdir()
    table = rqm(lower=-1, upper=1, levels=4, extension=1.0, q=0.4)
    table.save(place / "mechanism.json")
    claims = {
        "local": account(table, dimension=10, rounds=2, delta=1e-5),
        "central": account(
            table, dimension=10, rounds=2, trust="secure_sum", clients=30, delta=1e-5
        ),
    }
    ledger = {
        "coordinates": 10,
        "rounds": {"1": "released", "2": "failed: TooFewClients", "3": "released"},
        "charges": {str(client): 1 + client % 2 for client in range(30)},
        "smallest_sum": 30,
    }
    report = {
        "accuracy": [0.1, 0.5, 0.6],
        "loss": [2.0, 1.0, 0.9],
        "ledger": ledger,
        "claims": {view: {**claim.as_dict(), "text": str(claim)} for view, claim in claims.items()},
        "incidents": [[2, "7", "Forged"], [2, "8", "Forged"], [2, "", "TooFewClients"]],
        "stopped": "",
        "bits": 7,
        "report_bits": 2,
        "mse": table.mse(),
        "seconds": 3.0,
    }
    (place / "report.json").write_text(json.dumps(report), encoding="utf-8")
    settings = {
        "dataset": "digits",
        "model": "softmax",
        "mechanism": "/somewhere/mechanism.json",
        "out": "/somewhere",
    }
    (place / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    (place / "ledger.jsonl").write_text("{}\n", encoding="utf-8")
    return place


def test_a_federated_run_by_folder_report_or_ledger(folder: Path) -> None:
    page = page_of(folder)
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    for claim in report["claims"].values():
        assert claim["text"] in _text(page)
    assert "2 rounds; accuracy 60 %" in page.summary
    charges = _figure(page, "charges").curves[0]
    assert charges.x == ("1 round", "2 rounds")
    assert charges.y == (15.0, 15.0)
    tables = {section.title: section.table for section in page.sections}
    assert (
        dict(tables["What went over the wire"].rows)[
            "bytes of one client's masked vector, per round"
        ]
        == "9"
    )
    assert tables["What happened"].rows[1] == (
        "2",
        "failed: TooFewClients",
        "Forged x 2, TooFewClients x 1",
    )
    text = html_page(page)
    assert "somewhere" not in text  # paths of the machine that ran it
    assert (
        page_of(folder / "report.json").summary
        == page_of(folder / "ledger.jsonl").summary
        == page.summary
    )


def test_a_page_shows_what_clients_measured_and_offers_no_command_for_another_claim(
    folder: Path,
) -> None:
    """The commands account for one table's sums, whose clients all add noise, and for nothing beside them."""
    path = folder / "report.json"
    report = json.loads(path.read_text(encoding="utf-8"))
    assert "What clients measured" not in {section.title for section in page_of(folder).sections}
    report["measured"] = [
        {"round": 2, "clients": 29, "loss": [1.25, 0.06], "accuracy": [0.5, 0.01]},
    ]
    report["evaluations"] = {
        "rounds": {"1": "released", "2": "interrupted"},
        "charges": {"1": 2, "2": 1},
        "incidents": [[2, "7", "PolicyRefusal"]],
    }
    path.write_text(json.dumps(report), encoding="utf-8")
    sections = {section.title: section for section in page_of(folder).sections}
    measured = sections["What clients measured"]
    assert measured.table is not None
    assert measured.table.rows[0] == ("2", "loss", "1.25", "0.06", "29")
    assert measured.table.rows[1] == ("2", "accuracy", "0.5", "0.01", "29")
    words = " ".join(measured.words)
    assert "is charged for 2" in words
    assert "interrupted: 1, released: 1" in words
    assert "PolicyRefusal x 1" in words
    settings = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
    for beyond in ({"evaluate_every": 1}, {"corrupted": 3}, {"clip_norm": 1.0}):
        (folder / "settings.json").write_text(json.dumps(settings | beyond), encoding="utf-8")
        sections = {section.title: section for section in page_of(folder).sections}
        assert sections["How to verify it"].code == "$ mezzotint ledger ledger.jsonl"


def test_the_commands_of_a_federated_page_give_its_claims(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    code = next(
        section.code for section in page_of(folder).sections if section.title == "How to verify it"
    )
    for line in code.splitlines():
        assert run(line.removeprefix("$ mezzotint ").split()) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for claim in json.loads((folder / "report.json").read_text(encoding="utf-8"))[
        "claims"
    ].values():
        assert claim["text"] in printed


def test_a_run_without_a_table_names_its_noise_and_no_file_that_is_not_there(folder: Path) -> None:
    def parts() -> tuple[dict[str, str], str]:
        sections = {section.title: section for section in page_of(folder).sections}
        return dict(sections["What was learnt"].table.rows), sections["How to verify it"].code

    (folder / "mechanism.json").unlink()
    settings = json.loads((folder / "settings.json").read_text(encoding="utf-8")) | {
        "clip": 0.4,
        "clip_norm": 0.0,
    }
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    facts, code = parts()
    assert code == "$ mezzotint ledger ledger.jsonl"
    assert (
        not {"clip", "clip norm", "mechanism"} & facts.keys()
    )  # an encoding clipped, which is elsewhere
    noise = gaussian_encoding(noise_multiplier=8.0, clip_norm=0.5, clients=30, size=10)
    (folder / "encoding.json").write_text(json.dumps(noise.as_dict()), encoding="utf-8")
    facts, code = parts()
    assert facts["mechanism"] == "rounded Gaussian"
    assert (facts["clip norm"], facts["noise multiplier of the smallest sum"]) == ("0.5", "7.99999")
    assert code == "$ mezzotint ledger ledger.jsonl"
    table = TableEncoding(mechanism=rqm(lower=-1, upper=1, levels=4, extension=1.0, q=0.4))
    (folder / "encoding.json").write_text(json.dumps(table.as_dict()), encoding="utf-8")
    assert parts()[0]["clipped to"] == "-1 to 1"
    (folder / "ledger.jsonl").unlink()
    assert not parts()[1]
    # A ranked codebook's own file gives the claim.
    (folder / "settings.json").write_text(
        json.dumps(settings | {"observer": "reports"}), encoding="utf-8"
    )
    (folder / "encoding.json").write_text(ranked_codebook(10, 8.0).to_json(), encoding="utf-8")
    facts, code = parts()
    assert (facts["mechanism"], facts["clip norm"]) == ("ranked codebook", "1.0")
    for line in code.splitlines():
        assert (
            run(
                [
                    word.replace("encoding.json", str(folder / "encoding.json"))
                    for word in line.split()[2:]
                ]
            )
            == 0
        )


def test_a_run_without_a_claim_or_an_end(folder: Path) -> None:
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    (folder / "report.json").write_text(
        json.dumps({**report, "claims": {}, "mse": plain(math.nan)}), encoding="utf-8"
    )
    assert "No epsilon can be claimed" in _text(page_of(folder))
    (folder / "report.json").write_text(
        json.dumps({"accuracy": [], "ledger": {}}), encoding="utf-8"
    )
    with pytest.raises(FileFormatError, match="lacks loss, claims"):
        page_of(folder)
    (folder / "report.json").write_text("{", encoding="utf-8")
    with pytest.raises(FileFormatError, match="not valid JSON"):
        page_of(folder)
    (folder / "report.json").unlink()
    with pytest.raises(FileFormatError, match="--resume"):
        page_of(folder)


# Smoothed results --------------------------------------------------------------------------------------------


def _printed(capsys: pytest.CaptureFixture[str], path: Path, *words: str) -> Path:
    assert run(["smoothed", *words, "--json"]) == 0
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    return path


def test_the_profile_of_two_records_is_the_closed_form(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    # One of (2, 2) records without replacement: A is seen with chance 1/2, or 1/4 next to (1, 3); delta is the larger
    # of 1/2 - E/4 and 3/4 - E/2, as long as it is positive.
    file = _printed(
        capsys,
        tmp_path / "p.json",
        "profile",
        "--counts",
        "2,2",
        "--sampled",
        "1",
        "--epsilon",
        "0.2",
    )
    page = page_of(file)
    curve = _figure(page, "profile").curves[0]
    assert len(curve.x) > 10
    for epsilon, height in zip(curve.x, curve.y, strict=True):
        ratio = math.exp(float(epsilon))
        assert 10**height == pytest.approx(max(0.5 - ratio / 4, 0.75 - ratio / 2), rel=MANY)
    assert "4 records" in page.summary
    names: dict[str, Any] = {}
    code = [line.removeprefix(">>> ") for line in page.sections[-1].code.splitlines()]
    exec(code[0], names)
    assert eval(code[1], names) == smoothed.profile((2, 2), sampled=1, epsilon=0.2)


@pytest.mark.parametrize(
    ("words", "title", "figures"),
    [
        ("utility --counts 40,60 --loss-rate 1/10 --threshold 0.6", "The adversary's utility", 1),
        (
            "expected --n 40 --vertices 0.4 --sampled 30 --epsilon 1",
            "Smoothed differential privacy",
            1,
        ),
        (
            "own --mechanism plurality --n 6 --vertices 0.3,0.6 --sampled 4 --ratio 2",
            "Smoothed differential privacy",
            0,
        ),
        ("gradients --n 16 --epsilon 1 --draws 2", "Smoothed differential privacy", 0),
        ("elections --set national", "Smoothed privacy of elections", 1),
        (
            "profile --counts 40,60 --loss-rate 1/10 --ratio 3/2 --poisson",
            "Smoothed privacy of one database",
            1,
        ),
    ],
)
def test_every_smoothed_verb_has_its_page(
    words: str,
    title: str,
    figures: int,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "mezzotint.report.smoothed_pages.SECONDS", 1e9
    )  # a slow machine leaves figures out
    page = page_of(_printed(capsys, tmp_path / "s.json", *words.split()))
    assert page.title == title
    assert len(page.figures) == figures
    assert all(curve.y for figure in page.figures for curve in figure.curves)
    assert len(html_page(page).encode()) < 150_000


@pytest.mark.parametrize(
    "words",
    [
        "--mechanism plurality --n 6 --vertices 0.3,0.6 --sampled 4 --ratio 2",
        "--mechanism f.py:f --n 4 --vertices 0.5,0.3,0.2;0.4,0.4,0.2 --epsilon 0.5",
        "--mechanism borda --ballots abc,bca,cab --n 4 --vertices 0.5,0.3,0.2 --epsilon 0.5",
    ],
)
def test_a_page_about_a_mechanism_of_ones_own_gives_its_command(
    words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.py").write_text("def f(histogram):\n    return {histogram: 1}\n")
    stored = _printed(capsys, tmp_path / "own.json", "own", *words.split())
    page = page_of(stored)
    assert f"of them seen by {words.split()[1]}: " in page.summary
    command = shlex.split(page.sections[-1].code)
    assert command[:3] == ["mezzotint", "smoothed", "own"]
    again = json.loads(_printed(capsys, tmp_path / "again.json", *command[2:]).read_text())
    before = json.loads(stored.read_text())
    del again["seconds"], before["seconds"]
    assert again == before


def test_a_page_about_a_poisson_sample_names_no_number_of_records(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = "--mechanism threshold:3 --n 6 --vertices 0.3 --loss-rate 1/3 --ratio 2"
    stored = _printed(capsys, tmp_path / "own.json", "own", *words.split(), "--sampling", "poisson")
    assert "model, each lost with chance 1/3 or seen by threshold:3: " in page_of(stored).summary


def test_powers_of_ten_are_rounded_up() -> None:
    assert power("-inf") == "0"
    assert power(-31.9218) == "10^-31.92"
    assert power(-31.9282) == "10^-31.92"
    assert power(-0.0008) == "1"


# Everything else ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("x.json", '{"verb": "dance"}', "not a result of mezzotint smoothed"),
        ("x.json", '{"verb": "profile", "epsilon": 1, "records": 4}', "lacks or garbles 'asked'"),
        ("x.json", "[]", "not a whole JSON object"),
    ],
)
def test_other_files_are_refused(name: str, text: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(FileFormatError, match=complaint):
        page_of(tmp_path / name)


def test_claims_and_codebooks_name_the_verbs_that_show_them(tmp_path: Path) -> None:
    ranked_codebook(dimension=8, epsilon=4.0, bits=3).save(tmp_path / "code.json")
    release = privacy.Release(mechanism=rqm(levels=4, extension=1.0, q=0.4), delta=1e-6)
    proved, proof = privacy.prove(release)
    proved.save(tmp_path / "claim.json", proof)
    with pytest.raises(
        FileFormatError, match="has no page; mezzotint show describes it, mezzotint"
    ):
        page_of(tmp_path / "code.json")
    with pytest.raises(FileFormatError, match="has no page; mezzotint verify checks it"):
        page_of(tmp_path / "claim.json")


def test_only_reports_have_columns(folder: Path) -> None:
    with pytest.raises(ParameterError, match="only reports have columns"):
        page_of(folder, column="x")


def test_a_run_of_single_reports_says_what_it_costs_and_speaks_of_no_sum(folder: Path) -> None:
    report = json.loads((folder / "report.json").read_text())
    del report["claims"]["central"]
    (folder / "report.json").write_text(json.dumps(report))
    settings = json.loads((folder / "settings.json").read_text())
    (folder / "settings.json").write_text(json.dumps({**settings, "observer": "reports"}))
    page = page_of(folder)
    words = (
        f"{page.summary} {' '.join(word for section in page.sections for word in section.words)}"
    )
    words += " ".join(
        name for section in page.sections if section.table for name, *_ in section.table.rows
    )
    assert "every single report" in page.summary
    assert not [
        word
        for word in ("no privacy", "masked", "sum of all", "aggregation", "per coordinate and")
        if word in words
    ]
