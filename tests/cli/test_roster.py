"""`mezzotint roster`: an identity per client, a card per identity, one list of all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mezzotint.cli.application import run
from mezzotint.federated.lifetime_ledger import lifetime_path
from mezzotint.federated.policy import load_policy
from mezzotint.federated.secagg import Client, Roster


def _identity(folder: Path, name: str) -> list[str]:
    """The words that make an identity."""
    return ["roster", "identity", str(folder / name), "--records", str(folder / "records")]


def _cards(folder: Path, capsys: pytest.CaptureFixture[str], count: int = 3) -> list[str]:
    cards: list[str] = []
    for place in range(count):
        assert run(_identity(folder, f"{place}.key")) == 0
        cards.append(capsys.readouterr().out.strip())
    return cards


def test_identities_become_a_roster_that_a_policy_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cards = _cards(tmp_path, capsys)
    for place, card in enumerate(cards):
        key = tmp_path / f"{place}.key"
        ledger = lifetime_path(tmp_path / "records", card[:64])
        for private in (key, ledger, ledger.parent):
            assert private.stat().st_mode & 0o077 == 0  # nobody else reads it
        assert Client(identity=key.read_bytes()).card().hex() == card
    assert run(["roster", "card", str(tmp_path / "0.key"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"card": cards[0]}
    (tmp_path / "cards.txt").write_text("\n".join(cards) + "\n")
    assert (
        run(
            [
                "roster",
                "make",
                str(tmp_path / "cards.txt"),
                "--out",
                str(tmp_path / "roster.json"),
                "--json",
            ]
        )
        == 0
    )
    said = json.loads(capsys.readouterr().out)
    roster = Roster.load(tmp_path / "roster.json")
    assert (said["members"], said["sha256"]) == (3, roster.digest.hex())
    assert {card.identity for card in roster.members} == {
        bytes.fromhex(card)[:32] for card in cards
    }
    # What a client compares, and that it is listed itself; of the file's own hash nobody speaks.
    key = str(tmp_path / "1.key")
    assert run(["roster", "check", str(tmp_path / "roster.json"), "--identity", key, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"members": 3, "sha256": roster.digest.hex()}
    assert run(["roster", "check", str(tmp_path / "roster.json")]) == 0
    assert roster.digest.hex() in capsys.readouterr().out
    assert run(_identity(tmp_path, "stranger")) == 0
    assert (
        run(
            [
                "roster",
                "check",
                str(tmp_path / "roster.json"),
                "--identity",
                str(tmp_path / "stranger"),
            ]
        )
        == 2
    )
    assert "does not list its card" in capsys.readouterr().err
    (tmp_path / "policy.toml").write_text("minimum = 3\nroster = 'roster.json'\n")
    assert load_policy(tmp_path / "policy.toml").roster == roster


def test_nothing_is_overwritten_and_cards_are_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cards = _cards(tmp_path, capsys)
    before = (tmp_path / "0.key").read_bytes()
    capsys.readouterr()
    assert run(_identity(tmp_path, "0.key")) == 2
    told = capsys.readouterr().err
    assert "name another file" in told
    assert "overwrite" not in told
    assert (tmp_path / "0.key").read_bytes() == before
    file, out = tmp_path / "cards.txt", tmp_path / "roster.json"
    for bad in ("no card", cards[0][:-2], cards[0][:64] + cards[1][64:]):
        file.write_text(f"{cards[2]}\n{bad}\n")
        assert run(["roster", "make", str(file), "--out", str(out)]) == 2
        assert "cards.txt, line 2" in capsys.readouterr().err
    file.write_text("\n".join([cards[0], cards[0]]))
    assert run(["roster", "make", str(file), "--out", str(out)]) == 2
    assert not out.exists()
    (tmp_path / "short").write_bytes(b"x")
    assert run(["roster", "card", str(tmp_path / "short")]) == 2


def test_cards_that_are_no_text_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cards.txt").write_bytes(b"\xff\xfe")
    assert (
        run(["roster", "make", str(tmp_path / "cards.txt"), "--out", str(tmp_path / "roster.json")])
        == 2
    )
    assert "not a text file" in capsys.readouterr().err


def _run_file(folder: Path, clients: int) -> str:
    text = f"[rounds]\nclients = {clients}\n[server]\nroster = '{folder / 'roster.json'}'\n"
    (folder / "run.toml").write_text(f"{text}[mechanism]\nkind = 'grid'\n")
    return str(folder / "run.toml")


def test_a_roster_is_for_apps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["federate", _run_file(tmp_path, 10)]) == 2
    assert "--app" in capsys.readouterr().err


def test_rounds_of_more_clients_than_the_roster_has_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cards.txt").write_text("\n".join(_cards(tmp_path, capsys)) + "\n")
    assert (
        run(["roster", "make", str(tmp_path / "cards.txt"), "--out", str(tmp_path / "roster.json")])
        == 0
    )
    app = tmp_path / "app"
    assert run(["federate", _run_file(tmp_path, 4), "--app", str(app)]) == 2
    said = capsys.readouterr().err
    assert "rounds.clients_per_round" in said
    assert "the roster has 3 members" in said
    assert not app.exists()
    assert run(["federate", _run_file(tmp_path, 3), "--app", str(app)]) == 0


@pytest.mark.parametrize("verb", [["card"], ["check"], ["blame"], ["make"]])
def test_files_that_are_not_there_are_named_once_with_a_remedy_for_readers(
    verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "nope.key")
    out = ["--out", str(tmp_path / "out.json")] if verb == ["make"] else []
    assert run(["roster", *verb, missing, *out]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert told.count("nope.key") == 1
    assert "check the path" in told
    assert "half-written" not in told


@pytest.mark.parametrize("count", [0, 1])
def test_a_roster_of_too_few_cards_names_their_file(
    count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "few.txt"
    file.write_text("\n".join(_cards(tmp_path, capsys, count)))
    assert run(["roster", "make", str(file), "--out", str(tmp_path / "roster.json")]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert f"lists {count} client" in told
    assert "needs at least 2" in told
    assert "roster card" in told
    assert not (tmp_path / "roster.json").exists()


def test_files_of_another_format_are_no_roster_and_are_named_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other.json").write_text('{"format": "another"}')
    assert run(["roster", "check", str(tmp_path / "other.json")]) == 2
    assert capsys.readouterr().err.count("other.json") == 1
