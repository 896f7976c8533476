"""A signer in a process of its own: rounds through it, and code that a server delivers, which asks it for more."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from federated.grids import LocalGrid
from federated.rounds import card, roster, secret
from mezzotint.core.errors import ParameterError, StorageError
from mezzotint.federated.client_mod import SecureUpdates
from mezzotint.federated.encoding import gaussian_encoding
from mezzotint.federated.encoding_files import packed
from mezzotint.federated.flower_records import RECORD, Key, reply
from mezzotint.federated.lifetime_ledger import LifetimeLedger, begin_lifetime, lifetime_path
from mezzotint.federated.policy import PolicyRefusal
from mezzotint.federated.secagg import Client
from mezzotint.federated.secure_strategy import SecureStrategy
from mezzotint.federated.signer import (
    LARGEST_FRAME,
    RemoteSigner,
    SignerProcess,
    SignerRefusal,
    lasting_signer,
)

CLIENTS, SIZE = 6, 40
ENCODING = gaussian_encoding(noise_multiplier=8.0, clip_norm=1.0, clients=CLIENTS, size=SIZE)
ROSTER = roster(CLIENTS)


class _Machine:
    """The files of a client's own user, and its signer, in a thread of this process."""

    def __init__(self, folder: Path, place: int, policy: str = "") -> None:
        folder.mkdir()
        self.folder, self.place = folder, place
        (folder / "identity.key").write_bytes(secret(place))
        ROSTER.save(folder / "roster.json")
        (folder / "policy.toml").write_text(f"roster = 'roster.json'\nclip_norm = 1.0\n{policy}")
        self.identity = card(place).identity.hex()
        begin_lifetime(folder / "records", self.identity)
        self.said: list[str] = []
        signer = lasting_signer(
            identity=folder / "identity.key",
            records=folder / "records",
            policy=folder / "policy.toml",
            warn=self.said.append,
        )
        self.socket = folder / "signer.sock"
        self.process = SignerProcess(self.socket, signer)
        self._thread = threading.Thread(target=self.process.serve, daemon=True)
        self._thread.start()

    @property
    def config(self) -> dict[str, str]:
        return {"signer": str(self.socket)}

    @property
    def ledger(self) -> LifetimeLedger:
        path = lifetime_path(self.folder / "records", self.identity)
        return LifetimeLedger(path, identity=self.identity)

    def close(self) -> None:
        self.process.close()
        self._thread.join(10)
        assert not self._thread.is_alive()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[list[_Machine]]:
    found = [_Machine(tmp_path / str(place), place) for place in range(CLIENTS)]
    yield found
    for machine in found:
        machine.close()


def _update(place: int) -> np.ndarray:
    return np.eye(SIZE)[place]


def _honest(place: int) -> ClientApp:
    app = ClientApp(mods=[SecureUpdates()])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = ArrayRecord({"a": Array(_update(place))})
        return Message(RecordDict({"arrays": arrays}), reply_to=message)

    return app


def _grid(machines: list[_Machine], apps: list[ClientApp], **others: Any) -> LocalGrid:
    configs = {place: machine.config for place, machine in enumerate(machines)}
    return LocalGrid(apps, configs=configs, **others)


def _run(grid: LocalGrid, **others: Any) -> SecureStrategy:
    strategy = SecureStrategy(
        encoding=ENCODING, clients_per_round=CLIENTS, roster=ROSTER, returns="update", **others
    )
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord({"a": Array(np.zeros(SIZE))}),
        num_rounds=1,
        train_config=ConfigRecord(),
    )
    return strategy


def test_rounds_through_signers_are_those_without(machines: list[_Machine]) -> None:
    """Three rounds, by the same mod; Flower's state holds nothing of the protocol's."""
    grid = _grid(machines, [_honest(place) for place in range(CLIENTS)])
    for number in range(1, 4):
        strategy = _run(grid)
        assert strategy.last_sum is not None
        assert strategy.incidents == []
        assert [machine.ledger.sums for machine in machines] == [number] * CLIENTS
    assert all(RECORD not in context.state for context in grid.contexts.values())


@pytest.mark.parametrize("stage", ["note", "charge"])
def test_a_signer_whose_disk_is_full_says_so_to_its_own_log_alone(
    machines: list[_Machine], monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    """It answers nothing in that round, and the next one as ever."""
    ledger = machines[2].process.signer.ledger
    assert ledger is not None
    ledger_type = type(ledger)
    usual = getattr(ledger_type, stage)

    def full(self: LifetimeLedger, *values: Any, **options: Any) -> Any:
        if self is ledger:
            raise StorageError("path", "its.ledger", "cannot be written (No space left on device)")
        return usual(self, *values, **options)

    grid = _grid(machines, [_honest(place) for place in range(CLIENTS)])
    with monkeypatch.context() as patch:
        patch.setattr(ledger_type, stage, full)
        strategy = _run(grid)
    assert strategy.last_sum is not None
    incidents = [incident for incident in strategy.incidents if incident.client]
    assert {incident.name for incident in incidents} == {"ClientFault"}
    assert not [incident for incident in incidents if "its.ledger" in incident.what]
    assert any("its.ledger" in line for line in machines[2].said)
    assert machines[2].ledger.sums == 0
    strategy = _run(grid)
    assert strategy.incidents == []
    assert [machine.ledger.sums for machine in machines].count(2) == CLIENTS - 1


def test_a_signer_that_died_in_a_round_is_a_drop_out(
    machines: list[_Machine], tmp_path: Path
) -> None:
    """Its round is forgotten, its ledger not: the others are summed, and the next round has it again."""

    def hand(message: Message, answer: Message) -> Message:
        record = message.content.config_records[RECORD]
        if record[Key.STAGE] == "deal" and message.metadata.dst_node_id == 12:
            dealing = answer.content.config_records[RECORD][Key.PAYLOAD]
            machines[2].process.signer.abandon(dealing)
        return answer

    strategy = _run(_grid(machines, [_honest(place) for place in range(CLIENTS)], hand=hand))
    assert strategy.last_sum is not None
    assert len(strategy.last_sum.survivors) == CLIENTS - 1
    assert _run(_grid(machines, [_honest(place) for place in range(CLIENTS)])).counted == CLIENTS


# Delivered code ------------------------------------------------------------------------------------------------------


def _thief(loot: dict[str, Any]) -> ClientApp:
    """An app of the same name without the mod, as a server may deliver it: it sends all it can get, and asks for more."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        loot["config"] = dict(context.node_config)
        loot["state"] = context.state
        signer = RemoteSigner(path=Path(str(context.node_config["signer"])))
        record = message.content.config_records[RECORD]
        stage, payload = str(record[Key.STAGE]), bytes(record[Key.PAYLOAD])  # type: ignore[arg-type]
        answers: dict[str, object] = {}
        attempts = loot.setdefault("attempts", [])
        if stage == "card":
            for call in ("save", "secret", "seed", "client", "policy", "ledger", "sign", "unseal"):
                with contextlib.suppress(PolicyRefusal, ParameterError):
                    attempts.append((call, signer.ask(call)))  # type: ignore[arg-type]
            identity = signer.ask("identity").hex()
            answers = {Key.PAYLOAD: signer.ask("card", payload), Key.NAME: identity}
        elif stage == "deal":
            encoding = bytes(record[Key.ENCODING])  # type: ignore[arg-type]
            answers = {Key.PAYLOAD: signer.ask("deal", payload, encoding, kind="train")}
        elif stage == "sum":
            first = signer.ask("sum", payload, np.full(SIZE, 1e9).tobytes(), parameters=SIZE)
            try:
                loot["second"] = signer.ask("sum", payload, bytes(8 * SIZE), parameters=SIZE)
            except SignerRefusal as error:
                loot["second"] = error.name
            answers = {Key.PAYLOAD: first}
        else:
            answers = {Key.PAYLOAD: signer.ask("member", payload, stage=stage)}
        return reply(message, answers)

    return app


def test_delivered_code_takes_neither_keys_nor_a_second_answer_nor_an_update_without_noise(
    machines: list[_Machine],
) -> None:
    """One node runs the thief, the others are honest: what it has is public or masked, and its update is clipped."""
    loot: dict[str, Any] = {}
    apps = [_thief(loot) if place == 0 else _honest(place) for place in range(CLIENTS)]
    answers: list[bytes] = []

    def hand(message: Message, answer: Message) -> Message:
        if answer.has_content():
            payload = answer.content.config_records[RECORD].get(Key.PAYLOAD)
            assert isinstance(payload, bytes)
            answers.append(payload)
        return answer

    strategy = _run(_grid(machines, apps, hand=hand))
    assert strategy.last_sum is not None
    # Its second question ended its round: as a member it has nothing to say.
    assert {one.name for one in strategy.incidents} <= {"ClientError"}
    assert loot["attempts"] == []
    assert loot["second"] == "WrongStage"
    assert set(loot["config"]) == {"partition-id", "signer"}
    private = secret(0)
    assert all(private not in payload for payload in answers)
    assert machines[0].ledger.sums == 1
    # Clipped to norm 1: what it wanted to add, 1e9 a coordinate, is not in the mean.
    mean = ENCODING.decode(np.asarray(strategy.last_sum.values), count=CLIENTS, size=SIZE)
    bound = 1.0 + 8 * 8.0 / CLIENTS * SIZE**0.5
    assert np.linalg.norm(mean) < bound


@pytest.mark.parametrize("parameters", [1, SIZE - 1, 1.0 * SIZE, str(SIZE), True, -1])
def test_delivered_code_cannot_have_fewer_parameters_charged_than_are_summed(
    machines: list[_Machine], parameters: Any
) -> None:
    """A table's sums cost by the coordinate."""
    honest = SecureUpdates()

    def mod(message: Message, context: Context, call_next: Any) -> Message:
        record = message.content.config_records[RECORD]
        if record[Key.STAGE] != "sum":
            return honest(message, context, call_next)
        signer = RemoteSigner(path=machines[0].socket)
        payload = bytes(record[Key.PAYLOAD])  # type: ignore[arg-type]
        update = np.zeros(SIZE).tobytes()
        masked = signer.ask("sum", payload, update, parameters=parameters)
        return reply(message, {Key.PAYLOAD: masked})

    thief = ClientApp(mods=[mod])
    thief.train()(lambda message, context: message)
    strategy = _run(_grid(machines, [thief, *map(_honest, range(1, CLIENTS))]))
    assert strategy.counted == CLIENTS - 1
    assert machines[0].ledger.sums == 0


def test_delivered_code_that_asks_in_many_threads_gets_one_sum(machines: list[_Machine]) -> None:
    honest, sums = SecureUpdates(), []

    def mod(message: Message, context: Context, call_next: Any) -> Message:
        record = message.content.config_records[RECORD]
        if record[Key.STAGE] != "sum":
            return honest(message, context, call_next)
        payload = bytes(record[Key.PAYLOAD])  # type: ignore[arg-type]

        def ask(update: bytes) -> None:
            signer = RemoteSigner(path=machines[0].socket)
            with contextlib.suppress(SignerRefusal):
                sums.append(signer.ask("sum", payload, update, parameters=SIZE))

        threads = [
            threading.Thread(target=ask, args=(np.full(SIZE, float(number)).tobytes(),))
            for number in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return reply(message, {Key.PAYLOAD: sums[0]})

    thief = ClientApp(mods=[mod])
    thief.train()(lambda message, context: message)
    strategy = _run(_grid(machines, [thief, *map(_honest, range(1, CLIENTS))]))
    assert strategy.counted == CLIENTS
    assert len(sums) == machines[0].ledger.sums == 1


def test_the_files_of_a_signer_are_for_its_user_alone(machines: list[_Machine]) -> None:
    for machine in machines[:1]:
        records = machine.folder / "records"
        assert stat.S_IMODE(records.stat().st_mode) & 0o077 == 0
        for file in records.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0
        assert stat.S_IMODE(machine.socket.stat().st_mode) == 0o660


def test_a_policy_is_the_signers_and_not_the_apps(tmp_path: Path) -> None:
    """The mod is without conditions; the signer refuses, under the policy's words, and charges nothing."""
    machines = [
        _Machine(tmp_path / str(place), place, "noise_multiplier = 100.0\nminimum = 4\n")
        for place in range(CLIENTS)
    ]
    try:
        strategy = _run(_grid(machines, [_honest(place) for place in range(CLIENTS)]))
        assert strategy.last_sum is None
        named = {one.name for one in strategy.incidents if one.client}
        assert named == {"PolicyRefusal"}
        assert all("noise_multiplier" in one.what for one in strategy.incidents if one.client)
        assert [machine.ledger.sums for machine in machines] == [0] * CLIENTS
    finally:
        for machine in machines:
            machine.close()


@pytest.mark.parametrize(
    ("condition", "name"),
    [("minimum = 6", "PlanRefused"), ("corrupted = 0.7", "PlanRefused"), ("", "")],
)
def test_a_policy_that_became_stricter_counts_for_rounds_dealt_before(
    machines: list[_Machine], condition: str, name: str
) -> None:
    """Its `minimum`, and what it asks of the committee, also of rounds that were dealt ahead."""

    def hand(message: Message, answer: Message) -> Message:
        record = message.content.config_records[RECORD]
        if record[Key.STAGE] == "deal" and message.metadata.dst_node_id == 12:
            path = machines[2].folder / "policy.toml"
            path.write_text(f"roster = 'roster.json'\nclip_norm = 1.0\n{condition}\n")
        return answer

    strategy = _run(_grid(machines, [_honest(place) for place in range(CLIENTS)], hand=hand))
    refused = [one.name for one in strategy.incidents if one.client]
    assert refused == [name] * bool(name)
    assert machines[2].ledger.sums == (not name)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\xff" * 8,
        struct.pack("<Q", 4) + b"{}{}",
        struct.pack("<Q", 2) + b"{}",
        struct.pack("<Q", 30) + b'{"call":"sum","sizes":[999999]}'[:30],
        struct.pack("<Q", 31) + b'{"call":"card","sizes":["many"]}'[:31],
        struct.pack("<Q", 46)
        + f'{{"call":"card","sizes":[{LARGEST_FRAME + 1}]}}      '.encode()[:46],
    ],
    ids=["empty", "long head", "no json", "no sizes", "cut", "no number", "too large"],
)
def test_a_frame_that_is_none_ends_its_connection_alone(
    machines: list[_Machine], frame: bytes
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.connect(str(machines[0].socket))
        link.sendall(frame)
    assert RemoteSigner(path=machines[0].socket).ask("identity") == card(0).identity


@pytest.mark.parametrize("reason", ["clients " + "9, " * 100_000, "a \ud800 mark"])
def test_a_refusal_of_any_length_arrives(machines: list[_Machine], reason: str) -> None:
    def conditions() -> Any:
        raise PolicyRefusal(reason)

    machines[0].process.signer.policy = conditions
    with pytest.raises(SignerRefusal) as caught:
        RemoteSigner(path=machines[0].socket).ask("deal", b"", b"", kind="train")
    assert str(caught.value) == reason.encode(errors="backslashreplace").decode()


def test_a_stage_of_any_length_is_refused_by_name(machines: list[_Machine]) -> None:
    """As by a signer in the mod's own process; the next message is answered."""
    grid = _grid(machines, [_honest(place) for place in range(CLIENTS)])
    record = ConfigRecord({Key.STAGE: "x" * 10_000, Key.PAYLOAD: b""})
    message = Message(RecordDict({RECORD: record}), message_type="train", dst_node_id=10)
    (answer,) = grid.send_and_receive([message])
    assert answer.content.config_records[RECORD][Key.REFUSED] == "PolicyRefusal"
    assert RemoteSigner(path=machines[0].socket).ask("identity") == card(0).identity


@pytest.mark.parametrize("call", ["deal", "sum", "expect", "card", "member"])
def test_calls_without_what_they_need_are_faults_without_words(
    machines: list[_Machine], call: str
) -> None:
    """No text of a foreign error leaves: it could be about data."""
    remote = RemoteSigner(path=machines[0].socket)
    with pytest.raises((ParameterError, SignerRefusal)) as caught:
        remote.ask(call)  # type: ignore[arg-type]
    assert "index" not in str(caught.value)
    assert "list" not in str(caught.value)


def test_an_update_that_cannot_be_encoded_is_noise_alone(machines: list[_Machine]) -> None:
    """NaN, or another size, may be a fact about the data: the answer looks like every other."""
    sizes = []
    for place, update in enumerate((np.full(SIZE, np.nan), np.zeros(3), None, _update(3))):
        app = ClientApp(mods=[SecureUpdates()])

        @app.train()
        def train(message: Message, context: Context, update: Any = update) -> Message:
            if update is None:
                raise RuntimeError("a value of 42 in my data")
            arrays = ArrayRecord({"a": Array(update)})
            return Message(RecordDict({"arrays": arrays}), reply_to=message)

        apps = [app if one == place else _honest(one) for one in range(CLIENTS)]
        strategy = _run(_grid(machines, apps))
        assert strategy.incidents == []
        sizes.append(strategy.counted)
    assert sizes == [CLIENTS] * 4


def test_a_socket_that_is_there_is_not_taken_over(machines: list[_Machine]) -> None:
    with pytest.raises(ParameterError, match="socket"):
        SignerProcess(machines[0].socket, machines[0].process.signer)


def test_another_user_is_not_answered(
    machines: list[_Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who connects is what the kernel says, not what a frame says."""
    machines[0].process.users.clear()
    with pytest.raises(ParameterError, match="does not answer"):
        RemoteSigner(path=machines[0].socket).ask("identity")


@pytest.mark.slow
def test_the_command_holds_keys_in_a_process_of_its_own(tmp_path: Path) -> None:
    """`mezzotint roster identity`, `roster signer`; a round with five others, and a kill between two rounds."""
    program = str(Path(sys.executable).parent / "mezzotint")
    key, records, path = (str(tmp_path / name) for name in ("k.key", "records", "s.sock"))
    made = subprocess.run(
        [program, "roster", "identity", key, "--records", records], capture_output=True, check=True
    )
    assert len(made.stdout.strip()) == 256
    words = [program, "roster", "signer", key, "--records", records, "--socket", path]
    for _ in range(2):
        with subprocess.Popen(words, stderr=subprocess.PIPE, env=os.environ) as process:
            deadline = time.monotonic() + 60
            while not Path(path).exists():
                assert time.monotonic() < deadline
                time.sleep(0.1)
            remote = RemoteSigner(path=Path(path))
            assert remote.ask("identity") == Client(identity=Path(key).read_bytes()).identity
            with pytest.raises(SignerRefusal):
                remote.ask("deal", b"no invitation", packed(ENCODING), kind="train")
            process.kill()
        Path(path).unlink()
