"""The ledger: nothing that was released is ever forgotten."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from mezzotint import FileFormatError, ParameterError
from mezzotint.privacy.ledger import GLOBAL, Ledger, Release, compose_releases


def release(name: str, epsilon: float = 0.5, client: str = GLOBAL, delta: float = 1e-7) -> Release:
    return Release(identity=name, client=client, epsilon=epsilon, delta=delta, description='line\nbreak, "quotes"')


def test_charges_are_there_after_reading_again(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path=path)
    ledger.charge(release("a"))
    ledger.charge(release("b", math.inf, client="ann"))
    again = Ledger(path=path)
    assert again.releases == ledger.releases
    assert again.spent().epsilon == pytest.approx(0.5)
    assert math.isinf(again.spent("ann").epsilon)
    again.charge(release("a"))  # the same charge twice is one
    assert len(Ledger(path=path).releases) == 2


def test_killed_at_any_byte_it_charges_at_least_what_was_released(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path=path)
    synced = []
    for number in range(25):
        ledger.charge(release(f"r{number}", 0.1 * (number + 1), client=f"c{number % 3}"))
        synced.append((path.stat().st_size, ledger.releases))
    raw = path.read_bytes()
    rng = np.random.default_rng(11)
    cut = tmp_path / "cut.jsonl"
    # 200 different points all over the file, its ends among them.
    inner = rng.choice(np.arange(1, len(raw)), 198, replace=False)
    for point in [0, *sorted(inner.tolist()), len(raw)]:
        cut.write_bytes(raw[:point])
        loaded = Ledger(path=cut)
        released = max((kept for size, kept in synced if size <= point), key=len, default=())
        assert loaded.releases[: len(released)] == released
        for client in ("c0", "c1", "c2"):
            due = math.fsum(r.epsilon for r in released if r.client == client)
            assert loaded.spent(client).epsilon >= due
        # Loading twice changes nothing more, and the ledger goes on.
        assert Ledger(path=cut).releases == loaded.releases
        loaded.charge(release("later"))
        assert Ledger(path=cut).releases[-1].identity == "later"


def test_a_torn_record_is_charged_as_announced_and_a_torn_announcement_in_full(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path=path)
    ledger.charge(release("a"))
    before = path.stat().st_size
    ledger.charge(release("b", 2.0))
    raw = path.read_bytes()
    announced = before + raw[before:].index(b"\n") + 1
    for point in (announced, announced + 1, len(raw) - 1):
        path.write_bytes(raw[:point])
        assert Ledger(path=path).releases[-1] == release("b", 2.0)
    path.write_bytes(raw[: announced - 1])
    assert math.isinf(Ledger(path=path).spent().epsilon)


def test_damage_elsewhere_is_an_error(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path=path)
    for name in "abc":
        ledger.charge(release(name))
    lines = path.read_bytes().split(b"\n")
    for spoiled in (
        [lines[0], lines[1][:-2], *lines[2:]],
        [b'{"format":"other"}', *lines[1:]],
        [lines[0], *lines[2:]],
        [lines[0], lines[1], lines[1], *lines[2:]],
        [lines[0], lines[1], lines[2].replace(b"0.5", b"0.1"), *lines[3:]],
    ):
        path.write_bytes(b"\n".join(spoiled))
        with pytest.raises(FileFormatError, match="ledger"):
            Ledger(path=path)
    path.write_bytes(b"not a ledger")
    with pytest.raises(FileFormatError, match="other file"):
        Ledger(path=path)


def test_another_writer_is_noticed(tmp_path):
    path = tmp_path / "ledger.jsonl"
    first = Ledger(path=path)
    second = Ledger(path=path)
    second.charge(release("theirs"))
    before = path.read_bytes()
    with pytest.raises(ParameterError, match="read it again"):
        first.charge(release("ours"))
    assert path.read_bytes() == before
    assert first.releases == ()
    again = Ledger(path=path)
    again.charge(release("ours"))
    assert [r.identity for r in Ledger(path=path).releases] == ["theirs", "ours"]


def test_a_write_that_fails_half_way_blocks_the_ledger_until_it_is_read_again(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path=path)
    ledger.charge(release("a"))
    path.write_bytes(path.read_bytes() + b'{"announce":{"ident')  # as a full disk leaves it
    with pytest.raises(ParameterError, match="read it again"):
        ledger.charge(release("b"))
    assert math.isinf(Ledger(path=path).spent().epsilon)


def test_a_process_that_is_killed_forgets_no_charge(tmp_path):
    path = tmp_path / "ledger.jsonl"
    script = (
        "import os, sys; from pathlib import Path; from mezzotint.privacy.ledger import Ledger, Release\n"
        "ledger = Ledger(path=Path(sys.argv[1]))\n"
        "for i in range(10**6):\n"
        "    ledger.charge(Release(identity=str(i), client='c', epsilon=1.0, delta=0.0))\n"
        "    os.write(1, b'.')\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process:
        seen = len(process.stdout.read(20))
        process.kill()
        seen += len(process.stdout.read())
    loaded = Ledger(path=path)
    assert seen >= 20
    assert loaded.spent("c").epsilon >= seen
    assert [r.identity for r in loaded.releases][:seen] == [str(i) for i in range(seen)]


def test_budgets():
    ledger = Ledger()
    ledger.charge(release("a", 1.0, client="ann", delta=1e-6))
    ledger.charge(release("b", 0.5))
    assert not ledger.would_exceed(1.6, 1e-5, client="ann")
    assert ledger.would_exceed(1.4, 1e-5, client="ann")
    assert not ledger.would_exceed(1.4, 1e-5)
    assert ledger.would_exceed(1.6, 1e-7, client="ann")
    assert ledger.would_exceed(1.6, 1e-5, client="ann", release=release("c", 0.2))
    assert ledger.would_exceed(0.0, 0.0)
    assert not Ledger().would_exceed(0.0, 0.0)
    assert ledger.worst().epsilon == pytest.approx(1.5)
    with pytest.raises(ParameterError, match="budget"):
        ledger.would_exceed(-1.0, 0.0)


def test_shards_merge_once(tmp_path):
    first, second = Ledger(path=tmp_path / "m.jsonl"), Ledger()
    first.charge(release("a"))
    second.charge(release("a"))
    second.charge(release("b", client="ann"))
    first.merge(second)
    first.merge(second)
    assert [r.identity for r in Ledger(path=tmp_path / "m.jsonl").releases] == ["a", "b"]
    other = Ledger()
    other.charge(release("a", 9.0))
    with pytest.raises(ParameterError, match="different amounts"):
        first.merge(other)


def test_totals_are_sums_or_better_but_never_below_the_exact_cost():
    # Exact: k-fold randomized response, sum over the number of worse answers (binomial).
    epsilon, count, slack = 0.1, 200, 1e-6
    total = compose_releases([release(str(i), epsilon, delta=0.0) for i in range(count)], slack=slack)
    assert total.method == "advanced composition"
    assert total.epsilon < count * epsilon
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    exact = sum(
        math.comb(count, k)
        * max(0.0, p**k * (1 - p) ** (count - k) - math.exp(total.epsilon) * (1 - p) ** k * p ** (count - k))
        for k in range(count + 1)
    )
    assert exact <= total.delta
    assert compose_releases([]).epsilon == 0.0
    assert math.isinf(compose_releases([release("a", math.inf)], slack=0.1).epsilon)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"delta": 2.0}, "delta"),
        ({"identity": ""}, "identity"),
        ({"client": ""}, "identity"),
    ],
)
def test_bad_releases_are_named(arguments, match):
    with pytest.raises(ParameterError, match=match):
        Release(**{"identity": "a", "client": "b", "epsilon": 1.0, "delta": 0.0, **arguments})


def test_bad_paths_and_repeats_are_named(tmp_path):
    with pytest.raises(ParameterError, match="folder"):
        Ledger(path=tmp_path / "no" / "l.jsonl")
    ledger = Ledger()
    ledger.charge(release("a"))
    with pytest.raises(ParameterError, match="charged before"):
        ledger.charge(release("a", 3.0))
    with pytest.raises(ParameterError, match="slack"):
        Ledger(slack=1.0)
