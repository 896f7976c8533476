"""Answers are taken as they come: from a grid of the test's own, on a clock of the test's own."""

from __future__ import annotations

import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from federated.grids import Clock, name_task
from mezzotint.federated import round_strategy
from mezzotint.federated.round_strategy import arriving


class _Slow:
    """Message i is answered `delays[i]` seconds after it was sent; None: it cannot be sent."""

    def __init__(self, clock: Clock, delays: list[float | None]) -> None:
        self.clock = clock
        self.delays = delays
        self.due: dict[str, tuple[float, Message]] = {}
        self.fetched: list[int] = []

    def push_messages(self, messages):
        numbers = []
        for message in messages:
            number = str(message.metadata.dst_node_id)
            delay = self.delays[int(number) - 10]
            message.metadata.__dict__["_message_id"] = number
            numbers.append(None if delay is None else number)
            if delay is not None:
                self.due[number] = (self.clock.now + delay, Message(RecordDict(), reply_to=message))
        return numbers

    def pull_messages(self, message_ids):
        there = [
            number
            for number in message_ids
            if number in self.due and self.due[number][0] <= self.clock.now
        ]
        self.fetched.append(len(there))
        return [self.due.pop(number)[1] for number in there]


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(round_strategy, "time", found)
    return found


def _messages(count: int) -> list[Message]:
    name_task()
    content = RecordDict({"a": ConfigRecord({"b": 1})})
    return [
        Message(content, message_type="train", dst_node_id=node) for node in range(10, 10 + count)
    ]


def _nodes(found) -> list[int]:
    answers = list(found)
    for node, answer in answers:
        assert str(node) == answer.metadata.reply_to_message_id
    return [node for node, _ in answers]


def test_what_flower_answers_for_a_lost_node_is_that_nodes(clock):
    """Errors come in the name of the SuperLink, node 1: whose message failed is known from the message."""
    grid = _Slow(clock, [0.0, 1.0])
    sent = _messages(2)
    pull = grid.pull_messages

    def failing(message_ids):
        found = pull(message_ids)
        for answer in found:
            answer.metadata.__dict__["_src_node_id"] = 1
        return found

    grid.pull_messages = failing
    assert _nodes(arriving(grid, sent, timeout=10.0)) == [10, 11]


def test_answers_come_in_the_order_in_which_they_are_there_and_the_end_waits_for_nobody_else(clock):
    grid = _Slow(clock, [3.0, 0.0, 1.0])
    assert _nodes(arriving(grid, _messages(3), timeout=600.0)) == [11, 12, 10]
    assert clock.now < 3.0 + 1.0  # the longest pause between two looks


@pytest.mark.parametrize("after", [0.01, 0.3, 1.9, 4.2, 7.7, 19.0, 300.0])
def test_an_answer_is_seen_soon_after_it_came_and_few_looks_are_in_vain(clock, after):
    """A twentieth of the wait later at most, but for 0.05 s; a second if that is less."""
    grid = _Slow(clock, [after])
    assert _nodes(arriving(grid, _messages(1), timeout=600.0)) == [10]
    assert clock.now - after <= min(max(after / 20, 0.05), 1.0) + 1e-9  # sums of pauses are rounded
    assert len(grid.fetched) <= 2 + 20 * 5 + after


def test_what_comes_after_the_deadline_is_not_taken_and_what_came_before_it_is(clock):
    grid = _Slow(clock, [9.9, 10.1, 0.0])
    found = []
    for answer in arriving(grid, _messages(3), timeout=10.0):
        found.append(answer)
        clock.sleep(4.0)  # a reader that takes its time
    assert _nodes(found) == [12, 10]


def test_a_slow_reader_misses_nothing_that_came_in_time(clock):
    grid = _Slow(clock, [0.0, 5.0])
    found = arriving(grid, _messages(2), timeout=10.0)
    assert _nodes([next(found)]) == [10]
    clock.sleep(100.0)
    assert _nodes(found) == [11]


def test_what_could_not_be_sent_is_not_waited_for(clock):
    assert _nodes(arriving(_Slow(clock, [None, 1.0, None]), _messages(3), timeout=600.0)) == [11]
    assert clock.now < 3.0
    assert list(arriving(_Slow(clock, []), [], timeout=600.0)) == []


def test_large_answers_are_fetched_a_few_at_a_time(clock):
    grid = _Slow(clock, [0.0] * 100)
    assert len(list(arriving(grid, _messages(100), timeout=1.0))) == 100
    assert max(grid.fetched) == round_strategy._AT_ONCE
    large = _Slow(clock, [0.0] * 10)
    assert (
        len(
            list(
                arriving(
                    large,
                    _messages(10),
                    timeout=1.0,
                    answer_bytes=round_strategy._FETCHED_BYTES // 2,
                )
            )
        )
        == 10
    )
    assert max(large.fetched) == 2


def test_who_stops_reading_fetches_no_more(clock):
    grid = _Slow(clock, [0.0, 0.0, 50.0])
    for count, _ in enumerate(arriving(grid, _messages(3), timeout=600.0)):
        if count == 1:
            break
    assert list(grid.due) == ["12"]
    assert clock.now < 1.0


def test_who_is_late_is_not_waited_for_twice_and_its_answer_is_taken_when_it_comes(clock):
    grid, late = _Slow(clock, [0.0, 15.0]), dict[str, int]()
    assert _nodes(arriving(grid, _messages(2), timeout=10.0, late=late)) == [10]
    assert late == {"11": 11}
    before = clock.now
    assert _nodes(arriving(grid, [], timeout=10.0, late=late)) == []
    assert clock.now == before
    clock.sleep(5.0)
    assert _nodes(arriving(grid, [], timeout=10.0, late=late)) == [11]
    assert late == {}


def test_a_second_answer_is_that_of_the_node_asked_whoever_sends_it(clock):
    """So that one in another node's name is told from it as the first would be."""
    grid = _Slow(clock, [0.0])
    usual = grid.pull_messages

    def doubled(message_ids):
        return [copy for answer in usual(message_ids) for copy in (answer, answer)]

    grid.pull_messages = doubled
    answers = []
    for node, answer in arriving(grid, _messages(1), timeout=10.0):
        answers.append((node, answer.metadata.src_node_id))
        answer.metadata.__dict__["_src_node_id"] = 99
    assert answers == [(10, 10), (10, 99)]
