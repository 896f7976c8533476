"""What the server keeps of a round in files: all of it comes back, none of it is secret or survives the process."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

import numpy as np
import pytest

from federated.rounds import answer, people, plain_sum, plan, random_inputs, roster_of
from mezzotint.core.errors import StorageError
from mezzotint.federated.secagg import STAGES, Blame, RoundPlan, Server, TamperedShare, messages
from mezzotint.federated.secagg import client as protocol
from mezzotint.federated.secagg import server as store
from mezzotint.federated.secagg.masks import SHARE_BYTES, split

CLIENTS, MEMBERS = 25, 20


def _plan() -> RoundPlan:
    return plan(CLIENTS, members=MEMBERS, quorum=11)


@pytest.fixture
def spilt(monkeypatch: pytest.MonkeyPatch) -> list[store.Spill]:
    """All that goes to disk: a block holds two dealings, and little stays in memory."""
    made: list[store.Spill] = []
    begin = store.Spill.__init__

    def __init__(self: store.Spill) -> None:
        begin(self)
        made.append(self)

    monkeypatch.setattr(store, "_BLOCK", 2 * MEMBERS * messages.PORTION_BYTES)
    monkeypatch.setattr(store.Spill, "__init__", __init__)
    return made


def _written(spill: store.Spill) -> bytes:
    spill._file.seek(0)
    return spill._file.read()


def _on_disk(spill: store.Spill) -> os.stat_result:
    return os.fstat(spill._file.fileno())


def _play(
    the_plan, inputs, *, gone=(), crooked=None
) -> tuple[Server, dict[tuple[str, int], bytes]]:
    """A round up to its last answer, and what the server received; `crooked` deals shares of nothing."""
    server, clients = Server(the_plan, roster_of(the_plan)), people(the_plan)
    seen: dict[tuple[str, int], bytes] = {}
    outbox = server.invitations()
    for stage in STAGES:
        for index, message in reversed([*outbox.items()]):  # not in the order of their places
            if stage == "sum" and index in gone:
                continue
            with pytest.MonkeyPatch.context() as patch:
                if (stage, index) == ("deal", crooked):
                    patch.setattr(
                        protocol, "split", lambda one, *others: split(os.urandom(16), *others)
                    )
                seen[stage, index] = answer(clients[index], stage, message, inputs[index])
            server.receive(index, seen[stage, index])
        outbox = server.advance() if stage != "open" else outbox
    return server, seen


def test_a_round_that_waits_in_files_ends_as_any_other(spilt):
    """Three of 25 clients drop out; dealings and shares are in more than ten blocks."""
    the_plan = _plan()
    inputs = random_inputs(the_plan, 3)
    server, seen = _play(the_plan, inputs, gone={0, 17, 24})
    dealings = {index: data for (stage, index), data in seen.items() if stage == "deal"}
    assert {index: server._dealt.message(index) for index in server._dealt} == dealings
    found = server.result()
    np.testing.assert_array_equal(found.values, plain_sum(inputs, found.survivors))
    assert found.dropped == (0, 17, 24)
    assert all(_on_disk(spill).st_size > MEMBERS * messages.PORTION_BYTES for spill in spilt)


def test_files_are_for_their_user_alone_have_no_name_and_hold_no_share_in_the_clear(spilt):
    the_plan = _plan()
    server, seen = _play(the_plan, random_inputs(the_plan, 3))
    texts = [_written(spill) for spill in spilt]
    for index in range(MEMBERS):
        opened = messages.read_shares(seen["open", index], the_plan, range(CLIENTS))
        assert len(opened) == CLIENTS
        assert not any(share in text for share in opened.values() for text in texts)
    assert messages.portion(server._dealt.message(24), 3).sealed in texts[0]
    if os.name == "posix":
        for spill in spilt:
            assert (_on_disk(spill).st_mode & 0o777, _on_disk(spill).st_nlink) == (0o600, 0)


def test_files_are_closed_with_their_round(spilt):
    the_plan = _plan()
    server, _ = _play(the_plan, random_inputs(the_plan, 3))
    files: list[IO[bytes]] = [spill._file for spill in spilt]
    spilt.clear()
    del server
    gc.collect()
    assert all(file.closed for file in files)


def test_proof_against_who_dealt_shares_of_nothing_comes_out_of_the_file(spilt):
    the_plan = _plan()
    server, seen = _play(the_plan, random_inputs(the_plan, 3), crooked=23)
    with pytest.raises(TamperedShare) as caught:
        server.result()
    assert caught.value.culprits == (23,)
    (blame,) = server.blames
    assert isinstance(blame, Blame)
    assert (blame.dealing, blame.identity) == (seen["deal", 23], server.cohort[23].identity)
    blame.check()


def test_small_rounds_write_no_file(monkeypatch):
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda *_, **__: pytest.fail("a file was made"))
    the_plan = plan(12)
    inputs = random_inputs(the_plan, 3)
    server, _ = _play(the_plan, inputs)
    np.testing.assert_array_equal(server.result().values, plain_sum(inputs, tuple(range(12))))


def test_a_folder_without_room_is_named_with_a_remedy(spilt, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    the_plan = _plan()
    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(StorageError, match=r"TMPDIR=.*No space left on device.*folder with room"):
        _play(the_plan, random_inputs(the_plan, 3))


def test_shares_that_were_changed_on_disk_are_noticed(spilt):
    the_plan = _plan()
    server, _ = _play(the_plan, random_inputs(the_plan, 3))
    spill = server._shares._spill
    spill.write(5, bytes([spill.read(5, 1)[0] ^ 1]))
    with pytest.raises(StorageError, match="changed"):
        server.result()


def test_shares_come_back_from_the_members_that_had_them():
    """Those of one member lack one client's."""
    the_plan = plan(9, members=5, quorum=3)
    kept, rng = store.Shares(the_plan), np.random.default_rng(1)
    told = {holder: {owner: rng.bytes(SHARE_BYTES) for owner in range(9) if (holder, owner) != (2, 7)}
            for holder in (4, 2, 0)}  # fmt: skip
    assert kept.of(7) == {}
    for holder, found in told.items():
        kept.add(holder, found)
        assert kept.of(8)[holder] == found[8]
    for owner in range(9):
        expected = {holder: told[holder][owner] for holder in (0, 2, 4) if owner in told[holder]}
        assert kept.of(owner) == expected
        assert kept.counts[owner] == len(expected)


KILLED = """
import os, signal, sys
from mezzotint.federated.secagg.server import Spill
spill = Spill()
spill.write(1 << 20, b"dealt")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(os.name != "posix", reason="kills as POSIX does")
def test_a_killed_process_leaves_no_file(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", KILLED], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False
    )
    assert done.returncode < 0
    assert list(tmp_path.iterdir()) == []
