"""`mezzotint federate` itself: trains to 85 %, is killed, goes on, and its ledger only ever grows."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from federated.run_files import run_file

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

ROUNDS = 6


def _federate(*arguments: str) -> subprocess.Popen:
    program = str(Path(sys.executable).parent / "mezzotint")
    return subprocess.Popen(
        [program, "federate", "--json", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "FLWR_TELEMETRY_ENABLED": "0"},
    )


def _kill(process: subprocess.Popen) -> None:
    """kill -9 of the server and of the workers that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdout, process.stderr):
        stream.close()


def _engines(group: int) -> list[int]:
    """The processes of this group that are Ray's."""
    engines = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, fields = (folder / "stat").read_text().rsplit(")", 1)
        except OSError:  # it has ended
            continue
        if name.endswith("(raylet") and int(fields.split()[2]) == group:
            engines.append(int(folder.name))
    return engines


def test_kill_and_resume(tmp_path):
    """100 clients of scikit-learn's digits, 4-bit quantization without noise; killed in the third round."""
    run = tmp_path / "run"
    ledger = run / "ledger.jsonl"
    file = run_file(tmp_path, rounds={"count": ROUNDS})
    first = _federate(str(file), "--out", str(run))
    try:
        deadline = time.monotonic() + 500
        # Announced with its clients: masked inputs may be on their way.
        while not ledger.exists() or b'"round":3,"asked":["' not in ledger.read_bytes():
            assert first.poll() is None, first.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        _kill(first)
    before = ledger.read_bytes()
    second = _federate("--resume", "--out", str(run))
    try:
        out, err = second.communicate(timeout=900)
    finally:
        _kill(second)
    assert second.returncode == 0, err
    report = json.loads(out)
    assert report["accuracy"] >= 0.85
    assert (report["bits"], report["wire_bits"]) == (4, 11)
    whole = before[: before.rfind(b"\n") + 1]
    assert ledger.read_bytes().startswith(whole)
    rounds = report["ledger"]["rounds"]
    # The interrupted round is charged to those asked, unless its last line made it to the disk; its number is not
    # used again.
    third = "released" if b'"round":3,"released"' in whole else "interrupted"
    assert rounds["3"] == third
    # Numbers that clients had dealt in are not used again either; nobody is charged for them.
    assert set(rounds.values()) <= {"released", "interrupted", "not announced"}
    charged = len([outcome for outcome in rounds.values() if outcome != "not announced"])
    assert charged in (ROUNDS, ROUNDS + 1)
    assert set(report["ledger"]["charges"].values()) == {charged}
    assert len(report["ledger"]["charges"]) == 100
    assert len(report["history"]) >= 2
    # A new run does not overwrite this one.
    third_run = _federate(str(file), "--out", str(run))
    _, complaint = third_run.communicate(timeout=120)
    assert third_run.returncode == 2
    assert "--resume" in complaint


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_and_what_it_started(
    tmp_path: Path, number: int, status: int
) -> None:
    """Ctrl-C, twice, reaches all processes of the group, SIGTERM the verb alone; the run goes on where it was."""
    run = tmp_path / "run"
    file = run_file(
        tmp_path,
        data={"population": 20},
        rounds={"count": 3, "clients_per_round": 10, "order": "fixed"},
        mechanism={"kind": "rounded-gaussian", "noise_multiplier": 1.0},
    )
    process = _federate(str(file), "--out", str(run))
    try:
        while "round 1:" not in (line := process.stderr.readline()):
            assert line, process.communicate()
        if number == signal.SIGTERM:
            process.terminate()
        else:
            for _ in range(2):
                os.killpg(process.pid, number)
                time.sleep(0.2)
        # The stages' time-outs are 300 seconds.
        out, err = process.communicate(timeout=120)
        assert (process.returncode, out) == (status, "")
        assert "--resume" in " ".join(err.split())
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                os.killpg(process.pid, 0)
            except ProcessLookupError:
                break  # nothing of the group lives
            time.sleep(0.2)
        else:
            pytest.fail("the engine outlived the run")
    finally:
        if process.poll() is None:
            _kill(process)
    second = _federate("--resume", "--out", str(run))
    out, err = second.communicate(timeout=900)
    assert second.returncode == 0, err
    assert max(map(int, json.loads(out)["ledger"]["rounds"])) >= 3


def test_an_engine_that_dies_ends_the_run(tmp_path: Path) -> None:
    """Rounds of nobody are no rounds: the run says what happened, and goes on where it was."""
    run = tmp_path / "run"
    file = run_file(
        tmp_path,
        data={"population": 20},
        rounds={"count": 80, "clients_per_round": 10, "order": "fixed"},
        mechanism={"kind": "rounded-gaussian", "noise_multiplier": 1.0},
    )
    process = _federate(str(file), "--out", str(run))
    try:
        while "round 1:" not in (line := process.stderr.readline()):
            assert line, process.communicate()
        engines = _engines(process.pid)
        assert len(engines) == 1
        os.kill(
            engines[0], signal.SIGKILL
        )  # its workers go on until Ray finds out, some seconds later
        _, err = process.communicate(timeout=120)
    finally:
        if process.poll() is None:
            _kill(process)
    assert process.returncode == 2, err
    assert "its engine, Ray, has ended" in " ".join(err.split())
    second = _federate("--resume", "--out", str(run))
    out, err = second.communicate(timeout=900)
    assert second.returncode == 0, err
    report = json.loads(out)
    assert "failed" not in " ".join(report["ledger"]["rounds"].values())
    assert report["ledger"]["smallest_sum"] >= 6  # more than half, while workers died
