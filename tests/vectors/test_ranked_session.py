"""The seed rule: one answer per round and slot, whatever is asked, charged before it leaves."""

from __future__ import annotations

import numpy as np
import pytest

from mezzotint import families
from mezzotint.core.errors import BudgetError, FileFormatError, ParameterError, StorageError
from mezzotint.privacy import Ledger
from mezzotint.vectors import RankedSession, TableScheme, ranked_codebook, round_seeds
from tolerances import FEW

SCHEME = ranked_codebook(20, 1.0, 8)


def vector(seed):
    return np.random.default_rng(seed).normal(size=20)


def test_seeds_are_made_of_rounds_and_slots():
    assert round_seeds(3, [0, 5, 2**32 - 1]).tolist() == [3 << 32, (3 << 32) + 5, (4 << 32) - 1]
    for round_number, slot in [(-1, 0), (0, -1), (2**32, 0), (0, 2**32), (0.5, 0), (True, 0)]:
        with pytest.raises(ParameterError):
            round_seeds(round_number, [slot])


def test_the_same_question_gets_the_same_answer_and_costs_once(tmp_path):
    # 40 rounds, each asked five times about different vectors: by chance alike with probability 2**-300 or so.
    ledger = Ledger(tmp_path / "ledger.jsonl")
    session = RankedSession(
        SCHEME, client="ann", ledger=ledger, budget=(40.0, 0.0), path=tmp_path / "answers.jsonl"
    )
    first = [session.answer(vector(i), round_number=i, slot=7) for i in range(40)]
    assert len(set(first)) > 10
    for attempt in range(4):
        if attempt % 2:  # another process, after a restart
            ledger = Ledger(tmp_path / "ledger.jsonl")
            session = RankedSession(
                SCHEME,
                client="ann",
                ledger=ledger,
                budget=(40.0, 0.0),
                path=tmp_path / "answers.jsonl",
            )
        assert [session.answer(-vector(i), round_number=i, slot=7) for i in range(40)] == first
    assert ledger.spent("ann").releases == 40
    assert ledger.spent("ann").epsilon == pytest.approx(40 * SCHEME.epsilon, rel=FEW)


def test_a_round_is_answered_under_one_slot_only():
    ledger = Ledger()
    session = RankedSession(SCHEME, client="ann", ledger=ledger, budget=(10.0, 0.0))
    session.answer(vector(0), round_number=0, slot=1)
    with pytest.raises(ParameterError, match="another slot"):
        session.answer(vector(0), round_number=0, slot=2)
    assert ledger.spent("ann").releases == 1


def test_nothing_leaves_beyond_the_budget():
    ledger = Ledger()
    session = RankedSession(SCHEME, client="ann", ledger=ledger, budget=(2.0, 0.0))
    for i in range(2):
        session.answer(vector(i), round_number=i, slot=0)
    for _ in range(2):
        with pytest.raises(BudgetError):
            session.answer(vector(2), round_number=2, slot=0)
    assert ledger.spent("ann").epsilon <= 2.0
    assert session.answer(vector(0), round_number=0, slot=0) >= 0  # a repetition costs nothing


class Failing:
    """A ledger on a full disk."""

    def reserve(self, release, *, budget):
        raise StorageError("path", "ledger", "no space is left")


def test_an_answer_that_could_not_be_charged_does_not_leave_and_is_not_drawn_again(tmp_path):
    path = tmp_path / "answers.jsonl"
    broken = RankedSession(SCHEME, client="ann", ledger=Ledger(), budget=(9.0, 0.0), path=path)
    broken._ledger = Failing()  # type: ignore[assignment]
    with pytest.raises(StorageError):
        broken.answer(vector(0), round_number=0, slot=0)
    stored = path.read_text()
    ledger = Ledger()
    session = RankedSession(SCHEME, client="ann", ledger=ledger, budget=(9.0, 0.0), path=path)
    report = session.answer(-vector(0), round_number=0, slot=0)
    assert f'"report":{report}' in stored.replace(" ", "")
    assert ledger.spent("ann").releases == 1


def test_a_file_of_answers_belongs_to_one_scheme_and_client(tmp_path):
    path = tmp_path / "answers.jsonl"
    RankedSession(SCHEME, client="ann", ledger=Ledger(), budget=(9.0, 0.0), path=path)
    for scheme, client in [(SCHEME, "bob"), (ranked_codebook(20, 1.0, 8, beacon="other"), "ann")]:
        with pytest.raises(FileFormatError):
            RankedSession(scheme, client=client, ledger=Ledger(), budget=(9.0, 0.0), path=path)


def test_a_second_draw_is_charged_whatever_its_bits():
    """Six objects that do not share answers draw six times; of one bit each, some must agree."""
    coarse, ledger = ranked_codebook(3, 1.0, 1), Ledger()
    for attempt in range(1, 7):
        session = RankedSession(coarse, client="ann", ledger=ledger, budget=(6.0, 0.0))
        session.answer([1.0, 0.0, 0.0], round_number=0, slot=0)
        assert ledger.spent("ann").epsilon == pytest.approx(attempt * coarse.epsilon, rel=FEW)


def test_a_refusal_tells_nothing_of_a_second_draw():
    coarse = ranked_codebook(3, 1.0, 1)
    for _ in range(20):  # a refusal that depended on the bits would be missing in half of them
        ledger = Ledger()
        first, second = (
            RankedSession(coarse, client="ann", ledger=ledger, budget=(1.0, 0.0)) for _ in range(2)
        )
        first.answer([1.0, 0.0, 0.0], round_number=0, slot=0)
        with pytest.raises(BudgetError):
            second.answer([-1.0, 0.0, 0.0], round_number=0, slot=0)


def test_answers_that_a_caller_kept_are_charged_once():
    ledger = Ledger()
    first = RankedSession(SCHEME, client="ann", ledger=ledger, budget=(9.0, 0.0))
    report = first.answer(vector(0), round_number=0, slot=3)
    later = RankedSession(
        SCHEME, client="ann", ledger=ledger, budget=(9.0, 0.0), answers=first.answers
    )
    assert later.answer(-vector(0), round_number=0, slot=3) == report
    assert ledger.spent("ann").releases == 1


def test_rounds_and_slots_are_the_same_in_every_type_of_integer(tmp_path):
    """numpy's integers ended in a traceback of the file's writer."""
    path = tmp_path / "answers.jsonl"
    session = RankedSession(SCHEME, client="ann", ledger=Ledger(), budget=(9.0, 0.0), path=path)
    first = session.answer(vector(1), round_number=np.int64(1), slot=np.uint8(2))
    assert session.answer(vector(2), round_number=1, slot=2) == first
    again = RankedSession(SCHEME, client="ann", ledger=Ledger(), budget=(9.0, 0.0), path=path)
    assert again.answers == session.answers
    assert again.answer(vector(3), round_number=np.int8(1), slot=np.int32(2)) == first


@pytest.mark.parametrize(
    "reports",
    [
        [1.0],
        [[1]],
        1,
        "1",
        ["1"],
        [None],
        [],
        [True],
        np.array([1 + 0j]),
        np.ma.array([1], mask=[1]),
    ],
)
def test_reports_are_integers_in_one_row(reports):
    with pytest.raises(ParameterError, match="reports"):
        SCHEME.mean(reports, [1])


def test_masked_entries_are_no_numbers():
    """numpy forgets masks: what is behind them would be reported, or counted."""
    hidden = np.ma.array(np.zeros(20), mask=[1] + 19 * [0])
    session = RankedSession(SCHEME, client="ann", ledger=Ledger(), budget=(9.0, 0.0))
    table = families.randomized_response(epsilon=1.0)
    added = TableScheme(mechanism=table, size=20, clients=5)
    for refusing in (
        lambda: SCHEME.encode(hidden, 1),
        lambda: session.answer(hidden, round_number=1, slot=1),
        lambda: added.encode(hidden),
        lambda: added.decode_sum(hidden.astype(int), 5),
    ):
        with pytest.raises(ParameterError):
            refusing()
    assert session.answers == {}


@pytest.mark.parametrize("weights", [[1j], ["a"], [[1.0]], [None], [float("nan")], [0.0], 1.0])
def test_weights_are_numbers_one_per_report(weights):
    with pytest.raises(ParameterError, match="weights"):
        SCHEME.mean([1], [1], weights=weights)
