"""Shared by all tests: derandomized Hypothesis, processes for those that need one, reference data, progress by file."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "mezzotint",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)
settings.load_profile("mezzotint")

# Stored results of training are those of one thread: more of them add up in another order.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

os.environ.pop("COLUMNS", None)  # complaints in one line, whatever terminal or xdist says


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of reference data beside the checkout; tests that need it are skipped where it is absent."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"reference data folder {folder.name!r} is not beside this checkout")
    return folder


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What imports make stays: looking through it for garbage again and again takes each worker seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


# Tests marked `own_process` ------------------------------------------------------------------------------------------

ALONE = "MEZZOTINT_TEST_ALONE"
LIMIT = 300  # seconds


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Runs a marked test in a pytest of its own: Ray ends the process that it is dissatisfied with, silently."""
    if item.get_closest_marker("own_process") is None or ALONE in os.environ:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    call = pytest.CallInfo.from_call(lambda: _run_alone(item), "call")
    item.ihook.pytest_runtest_logreport(
        report=item.ihook.pytest_runtest_makereport(item=item, call=call)
    )
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _run_alone(item: pytest.Item) -> None:
    """Passes, skips or fails as the test does there; whatever the process started ends with it."""
    quiet = ["-W", "ignore:unclosed:ResourceWarning"]  # what Ray leaves open
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:xdist",
            "-rs",
            "--tb=short",
            *quiet,
            item.nodeid,
        ],
        cwd=item.config.rootpath,
        env=os.environ | {ALONE: "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        pytest.fail(f"no end after {LIMIT} s:\n{process.communicate()[0]}", pytrace=False)
    if process.returncode != 0 or not (" passed" in output or " skipped" in output):
        pytest.fail(f"its process ended with status {process.returncode}:\n{output}", pytrace=False)
    if " skipped" in output:
        pytest.skip(
            next(line for line in output.splitlines() if line.startswith("SKIPPED")).partition(
                ": "
            )[2]
        )


# Progress by file ----------------------------------------------------------------------------------------------------


class Progress:
    """A line for each file of tests when its last test has ended, instead of a dot for each test."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.left: Counter[str] = Counter()
        self.outcomes: dict[str, Counter[str]] = defaultdict(Counter)
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.ended = 0

    def expect(self, nodes: list[str]) -> None:
        self.left = Counter(_file(node) for node in nodes)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items:
            self.expect([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """The controller of parallel workers collects nothing itself; all of them collect the same."""
        if not self.left:
            self.expect(ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str] | None:
        if not isinstance(report, pytest.TestReport):
            return None
        if report.passed and report.when != "call":
            return "", "", ""
        return "error" if report.failed and report.when != "call" else report.outcome, "", ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = _file(report.nodeid)
        self.seconds[file] += report.duration
        if report.when == "call" or not report.passed:
            self.outcomes[file][report.outcome] += 1
        if report.failed:
            self.write(f"FAILED {report.nodeid} ({report.when})")

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        file = _file(nodeid)
        self.ended += 1
        self.left[file] -= 1
        if self.left[file] == 0:
            found = ", ".join(
                f"{count} {outcome}" for outcome, count in self.outcomes[file].items()
            )
            share = 100 * self.ended / (self.ended + self.left.total())
            self.write(f"{share:3.0f} %  {file}: {found} in {self.seconds[file]:.1f} s")

    def write(self, line: str) -> None:
        terminal = self.config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            terminal.write_line(line)


def _file(node: str) -> str:
    return node.partition("::")[0]


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # a worker's controller tells
        config.pluginmanager.register(Progress(config), "progress by file")
