"""Every message of one client, spoilt in every way: what the threat model's table says becomes of the round.

The table in docs/tables/faulty-messages.md is read here, and each of its cells is played through mod and strategy.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from federated.grids import LocalGrid
from federated.rounds import EXCHANGES, apart, card, roster, secret
from mezzotint.federated.client_mod import SecureUpdates
from mezzotint.federated.encoding import FixedPointEncoding
from mezzotint.federated.flower_records import RECORD
from mezzotint.federated.policy import Policy
from mezzotint.federated.run_ledger import RunLedger
from mezzotint.federated.secagg import (
    Client,
    client as client_module,
    messages,
    roster as roster_module,
)
from mezzotint.federated.secagg.masks import sign
from mezzotint.federated.secure_strategy import SecureStrategy

TABLE = Path(__file__).parents[2] / "docs" / "tables" / "faulty-messages.md"
STAGES = ("card", *EXCHANGES)
CLIENTS, COORDINATES = 12, 4
CROOKED = 8
"""Which client it is; drawn third, so a member of the committee."""
EXACT = FixedPointEncoding(clip=8.0, grid_bits=13)
STRANGER = Client(identity=bytes(31) + b"s")
HONEST = {name: getattr(client_module, name) for name in ("checked_integers", "split", "sign")}


def _table() -> dict[tuple[str, str], str]:
    """(what is wrong, stage) -> outcome."""
    outcomes: dict[tuple[str, str], str] = {}
    faults: list[str] = []
    for line in TABLE.read_text(encoding="utf-8").splitlines()[2:]:
        named, stages, outcome = (cell.strip() for cell in line.strip("|").split("|"))
        if named != "the same":
            faults = named.split("; ")
        for place in itertools.product(faults, stages.split(", ")):
            assert place not in outcomes
            outcomes[place] = outcome
    return outcomes


# What can be wrong ----------------------------------------------------------------------------------------------------


class Spoilt:
    """One client's side of a grid: `hand` changes its replies of one stage, `patches` its code while it answers."""

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self.others: dict[str, bytes] = {}
        self.held: list[Message] = []

    def hand(self, message: Message, reply: Message) -> Any:
        stage = str(message.content.config_records[RECORD]["stage"])
        if message.metadata.dst_node_id != 10 + CROOKED:
            answer = reply.content.config_records[RECORD]
            self.others[stage] = answer.get("payload", b"")  # type: ignore[assignment]
            return [reply, *self._late()]
        if stage != self.stage:
            return [reply, *self._late()]
        return self.change(message, reply)

    def _late(self) -> list[Message]:
        held, self.held = self.held, []
        return held

    def change(self, message: Message, reply: Message) -> Any:
        return reply

    def patches(self, patch: pytest.MonkeyPatch) -> None:
        """Of the client's code."""

    def update(self) -> np.ndarray:
        return np.full(COORDINATES, CROOKED / 2)


class _Absent(Spoilt):
    def change(self, message: Message, reply: Message) -> Any:
        return None


class _Late(Spoilt):
    """It arrives with the answers of the next exchange."""

    def hand(self, message: Message, reply: Message) -> Any:
        stage = str(message.content.config_records[RECORD]["stage"])
        if message.metadata.dst_node_id == 10 + CROOKED and stage == self.stage:
            self.held.append(reply)
            return None
        return reply if stage == self.stage else [reply, *self._late()]


class _Twice(Spoilt):
    def change(self, message: Message, reply: Message) -> Any:
        return [reply, reply]


class _Payload(Spoilt):
    """Other bytes."""

    def __init__(self, stage: str, other: Callable[[Spoilt, bytes], bytes]) -> None:
        super().__init__(stage)
        self.other = other

    def change(self, message: Message, reply: Message) -> Any:
        values = reply.content.config_records[RECORD]
        payload = values["payload"]
        assert isinstance(payload, bytes)
        values["payload"] = self.other(self, payload)
        return reply


class _Patched(Spoilt):
    """Another function in the protocol's client."""

    def __init__(self, stage: str, patch: Callable[[pytest.MonkeyPatch], None]) -> None:
        super().__init__(stage)
        self.patch = patch

    def patches(self, patch: pytest.MonkeyPatch) -> None:
        self.patch(patch)


class _Trains(Spoilt):
    """Another train function."""

    def __init__(self, stage: str, train: Callable[[], np.ndarray]) -> None:
        super().__init__(stage)
        self.update = train  # type: ignore[method-assign]


class _SmallOrder(Spoilt):
    """Keys of small order, signed by their owner all the same."""

    def change(self, message: Message, reply: Message) -> Any:
        values = reply.content.config_records[RECORD]
        payload = values["payload"]
        assert isinstance(payload, bytes)
        private = Client(identity=secret(CROOKED))._identity
        if self.stage == "card":
            keys = card(CROOKED).identity + bytes(32)
            values["payload"] = keys + sign(private, roster_module._CARD + keys) + payload[128:]
            return reply
        plan, _, _ = messages.read_invitation(message.content.config_records[RECORD]["payload"])  # type: ignore[arg-type]
        deal, _ = messages.read_dealing(payload, plan)
        start = len(messages.header("deal", plan)) + len(deal.to_bytes())
        forged = dataclasses.replace(deal, mask=bytes(32))
        forged = dataclasses.replace(forged, signature=sign(private, forged.statement(plan)))
        values["payload"] = messages.dealing(plan, forged, payload[start:])
        return reply


def _exits() -> np.ndarray:
    raise SystemExit(3)


def _by_a_stranger(patch: pytest.MonkeyPatch) -> None:
    for module in (client_module, roster_module):
        patch.setattr(module, "sign", lambda identity, text: sign(STRANGER._identity, text))


def _adding(number: int) -> Callable[[pytest.MonkeyPatch], None]:
    """Whatever the client has, it adds this to every coordinate, modulo the modulus."""

    def patch_with(patch: pytest.MonkeyPatch) -> None:
        def other(values: Any, **sizes: Any) -> Any:
            total = HONEST["checked_integers"](values, **sizes)
            total[:] = number % 2 ** sizes["bits"]
            return total

        patch.setattr(client_module, "checked_integers", other)

    return patch_with


def _shares(of: Callable[[bytes, int, int], list[bytes]]) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(client_module, "split", of)


def _flipped(payload: bytes) -> bytes:
    return payload[:-2] + bytes([payload[-2] ^ 1]) + payload[-1:]


WRONGS: dict[str, Callable[[str], Spoilt]] = {
    "nothing arrives": _Absent,
    "it arrives too late": _Late,
    "it arrives twice": _Twice,
    "its last byte is missing": lambda stage: _Payload(stage, lambda self, payload: payload[:-1]),
    "no byte is left": lambda stage: _Payload(stage, lambda self, payload: b""),
    "it is ten times as long": lambda stage: _Payload(stage, lambda self, payload: 10 * payload),
    "it is another client's": lambda stage: _Payload(
        stage, lambda self, payload: self.others[stage]
    ),
    "a stranger signed it": lambda stage: _Patched(stage, _by_a_stranger),
    "a key has small order": _SmallOrder,
    "shares of another secret": lambda stage: _Patched(
        stage,
        _shares(lambda one, holders, threshold: HONEST["split"](bytes(16), holders, threshold)),
    ),
    "shares that fit no polynomial": lambda stage: _Patched(
        stage,
        _shares(
            lambda one, holders, threshold: [bytes([i + 1]) * 16 + b"\0" for i in range(holders)]
        ),
    ),
    "a revealed share is wrong": lambda stage: _Payload(
        stage, lambda self, payload: _flipped(payload)
    ),
    "integers above the range": lambda stage: _Patched(stage, _adding(CLIENTS // 2 * EXACT.span)),
    "training gives NaN": lambda stage: _Trains(stage, lambda: np.full(COORDINATES, np.nan)),
    "training raises": lambda stage: _Trains(stage, lambda: np.array([1 / 0])),
    "training ends the process": lambda stage: _Trains(stage, _exits),
}


# The round ------------------------------------------------------------------------------------------------------------


def _app(place: int, spoilt: Spoilt) -> ClientApp:
    honest = SecureUpdates(Policy(roster=roster(CLIENTS)))

    def mod(message: Message, context: Any, call_next: Any) -> Message:
        if place != CROOKED or str(message.content.config_records[RECORD]["stage"]) != spoilt.stage:
            return honest(message, context, call_next)
        with pytest.MonkeyPatch.context() as patch:
            spoilt.patches(patch)
            return honest(message, context, call_next)

    app = ClientApp(mods=[mod])

    @app.train()
    def train(message: Message, context: Any) -> Message:
        update = spoilt.update() if place == CROOKED else np.full(COORDINATES, place / 2)
        return Message(RecordDict({"arrays": ArrayRecord({"a": Array(update)})}), reply_to=message)

    return app


def _grid(folder: Path, spoilt: Spoilt) -> LocalGrid:
    configs = {}
    for place in range(CLIENTS):
        (folder / f"key-{place}").write_bytes(secret(place))
        configs[place] = {"identity": str(folder / f"key-{place}"), "records": str(folder)}
    return LocalGrid(
        [_app(place, spoilt) for place in range(CLIENTS)], configs=configs, hand=spoilt.hand
    )


@pytest.mark.parametrize(
    ("what", "stage"), [pytest.param(*cell, id=" ".join(cell)) for cell in _table()]
)
def test_one_spoilt_message_costs_its_sender_at_most_and_a_round_where_the_table_says_so(
    tmp_path, monkeypatch, what, stage
):
    outcome = _table()[what, stage]
    apart(monkeypatch, stage)
    grid = _grid(tmp_path, WRONGS[what](stage))
    strategy = SecureStrategy(
        encoding=EXACT, clients_per_round=CLIENTS, roster=roster(CLIENTS), returns="update",
        ledger=RunLedger(tmp_path / "ledger.jsonl", {"run": "x"}),
    )  # fmt: skip
    start = ArrayRecord({"a": Array(np.zeros(COORDINATES))})
    arrays = strategy.start(
        grid=grid, initial_arrays=start, num_rounds=1, train_config=ConfigRecord()
    ).arrays
    identities = {place: card(place).identity.hex() for place in range(CLIENTS)}
    inside = {place for place in range(CLIENTS) if place != CROOKED or outcome in ("in", "zero")}
    rounds = {"in": {1: "released"}, "zero": {1: "released"}, "out": {1: "released"}, "lost": {1: "interrupted"},
              "repeated": {1: "interrupted", 2: "released"}}  # fmt: skip
    assert strategy.ledger.rounds == rounds[outcome]
    if outcome == "lost":
        assert not arrays
        inside = set(range(CLIENTS))
    else:
        mean = np.mean(
            [0 if (place, outcome) == (CROOKED, "zero") else place / 2 for place in inside]
        )
        # An update is rounded to a step of the grid, and so is their mean.
        np.testing.assert_allclose(arrays["a"].numpy(), mean, atol=2 * EXACT.step)
    assert set(strategy.ledger.charges) == {identities[place] for place in inside} | (
        {identities[CROOKED]} if outcome == "repeated" else set()
    )
    honest = {
        strategy.ledger.charges[identities[place]] for place in range(CLIENTS) if place != CROOKED
    }
    assert honest == {len(strategy.ledger.rounds)}
    # Nobody else is named, left out or blamed.
    assert {one.client for one in strategy.incidents} <= {
        identities[CROOKED],
        str(10 + CROOKED),
        "",
    }
    assert strategy.excluded == ({card(CROOKED).identity} if outcome == "repeated" else set())
    assert {blame.identity for blame in strategy.blames} == strategy.excluded
    for blame in strategy.blames:
        blame.check()


MOST = CLIENTS * EXACT.span
"""The largest sum that honest clients can have."""


@pytest.mark.parametrize("wanted", [0, 1, MOST // 3, MOST, MOST + 1, -1])
def test_one_client_moves_a_sum_to_any_value_that_clients_could_have_and_to_no_other(
    tmp_path, wanted
):
    """It knows what the others send here; their integers are those of halves, which the grid holds exactly."""

    def summed(spoilt: Spoilt) -> SecureStrategy:
        strategy = SecureStrategy(
            encoding=EXACT, clients_per_round=CLIENTS, roster=roster(CLIENTS), returns="update"
        )
        start = ArrayRecord({"a": Array(np.zeros(COORDINATES))})
        grid = _grid(tmp_path, spoilt)
        strategy.start(grid=grid, initial_arrays=start, num_rounds=1, train_config=ConfigRecord())
        return strategy

    nothing = summed(_Patched("sum", _adding(0))).last_sum
    assert nothing is not None
    others = int(nothing.values[0])
    assert others > EXACT.span
    moved = summed(_Patched("sum", _adding(wanted - others)))
    if 0 <= wanted <= MOST:
        assert moved.last_sum is not None
        assert moved.last_sum.values.tolist() == [wanted] * COORDINATES
    else:
        assert moved.last_sum is None
        assert [one.name for one in moved.incidents] == ["OutOfRangeInteger"]


def test_the_table_has_every_way_and_every_message():
    assert {what for what, _ in _table()} == set(WRONGS)
    assert {stage for _, stage in _table()} == set(STAGES)
    # Whatever is sent can be withheld, late, doubled, cut, too long and somebody else's.
    everywhere = [what for what in WRONGS if sum(one == what for one, _ in _table()) == len(STAGES)]
    assert everywhere == list(WRONGS)[:7]


def test_the_crooked_client_is_a_member_of_the_committee():
    plan = SecureStrategy(encoding=EXACT, clients_per_round=CLIENTS, roster=roster(CLIENTS)).plan(
        CLIENTS, 1, COORDINATES
    )
    assert card(CROOKED) in roster(CLIENTS).cohort(1, CLIENTS)[: plan.members]
