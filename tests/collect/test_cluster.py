"""The Ray engine: the same parts and counts as the local one, and what happens when a worker dies."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mezzotint import collect, families
from mezzotint.collect import workers
from mezzotint.collect.encoder import Encoder
from mezzotint.collect.folders import MANIFEST, PartWriter, part_name
from mezzotint.collect.listing import find_files
from mezzotint.collect.reports import Origin
from mezzotint.collect.source import Source, blocks_of
from mezzotint.core.errors import FileFormatError, InfeasibleError, ParameterError

ONE = families.rqm(lower=-1, upper=1, levels=4, extension=1.0, q=0.4)
ROWS, GROUP = 40_000, 4_000


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.parquet"
    columns = {"x": np.random.default_rng(1).uniform(-1, 1, ROWS), "id": np.arange(ROWS)}
    pq.write_table(pa.table(columns), path, row_group_size=GROUP)
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


# What workers do, in this process ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        ParameterError("column", "x", "is wrong"),
        FileFormatError("damaged"),
        InfeasibleError("cannot be"),
    ],
)
def test_errors_come_back_whole_from_other_processes(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)


def test_a_worker_hands_back_results_and_what_the_user_must_mend() -> None:
    def work(block: Any) -> int:
        if block == 2:
            raise ParameterError("column", "x", "is wrong")
        if block == 3:
            raise RuntimeError("a fault")
        return block * 10

    assert workers.outcome_of(work, 1) == 10
    assert isinstance(workers.outcome_of(work, 2), ParameterError)
    with pytest.raises(RuntimeError, match="a fault"):  # Ray's to report
        workers.outcome_of(work, 3)


def test_workers_get_no_key_unless_seeded(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[PartWriter] = []

    def on_cluster(work: Any, blocks: Any, address: str | None) -> Generator[Any]:
        assert address == "somewhere"
        sent.append(pickle.loads(pickle.dumps(work)).__self__)
        yield from map(sent[-1].write, blocks)

    monkeypatch.setattr(workers, "on_cluster", on_cluster)
    for out, seed in (("a", None), ("b", 3), ("c", 3)):
        collect.privatize(
            source,
            tmp_path / out,
            column="x",
            mechanism=ONE,
            engine="ray",
            address="somewhere",
            rng=seed,
        )
    assert sent[0].encoder.keys == (b"",)
    assert sent[1].encoder.keys == Encoder.of({"x": ONE}, collect.Settings(rng=3)).keys
    assert contents(tmp_path / "b") == contents(tmp_path / "c")


@pytest.mark.filterwarnings(
    "ignore:.*fork:DeprecationWarning"
)  # what is tested here is just what it warns of
def test_forked_workers_draw_different_keys(source: Path, tmp_path: Path) -> None:
    """Two processes forked from one, with the same encoder in memory, privatize the same block."""
    files = find_files(source)
    block, writers = blocks_of(files)[0], []
    encoder = Encoder.of({"x": ONE}, collect.Settings())
    rows = Source(files=tuple(files), wanted=encoder.wanted)
    for name in "ab":
        (tmp_path / name).mkdir()
        writers.append(
            PartWriter(encoder=encoder, source=rows, folder=tmp_path / name, origin=Origin(run="r"))
        )
    for writer in writers:
        child = os.fork()
        if child == 0:
            try:
                writer.write(block)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
    one, other = (
        pq.read_table(tmp_path / name / part_name(0))["x_code"].to_pylist() for name in "ab"
    )
    assert len(one) == ROWS
    assert one != other


def test_without_ray_the_remedy_is_named(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(
        ParameterError, match=r"engine=ray: ray is not installed; .*pip install '\.\[ray\]'"
    ):
        collect.privatize(source, tmp_path / "out", column="x", mechanism=ONE, engine="ray")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:99999"])
def test_a_cluster_that_is_not_there_is_named(source: Path, tmp_path: Path, address: str) -> None:
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    with pytest.raises(ParameterError, match=f"address={address}: no Ray cluster answers there"):
        collect.privatize(
            source, tmp_path / "out", column="x", mechanism=ONE, engine="ray", address=address
        )


# On a cluster ------------------------------------------------------------------------------------------------


@pytest.fixture
def ray_here(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A Ray of two cores on this machine, stopped after the test."""
    ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.own_process
@pytest.mark.filterwarnings("ignore")  # of Ray's own
def test_ray_makes_the_same_parts_and_counts(source: Path, tmp_path: Path) -> None:
    """Without a cluster: one is started here and stopped again."""
    options: dict[str, Any] = {"column": "x", "mechanism": ONE, "keep": ["id"], "block_rows": GROUP}
    collect.privatize(source, tmp_path / "local", rng=3, **options)
    told: list[float] = []
    ran = collect.privatize(
        source,
        tmp_path / "ray",
        rng=3,
        engine="ray",
        progress=lambda rows, total: told.append(rows / total),
        **options,
    )
    assert (ran.reports, ran.blocks) == (ROWS, ROWS // GROUP)
    assert told[-1] == 1.0
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")
    local, remote = (
        collect.read_counts(tmp_path / "local"),
        collect.read_counts(tmp_path / "ray", engine="ray"),
    )
    assert remote.counts.tolist() == local.counts.tolist()
    one, other = (collect.estimate(counts, allow_seeded=True) for counts in (remote, local))
    assert one.as_dict() == other.as_dict()


@pytest.mark.slow
@pytest.mark.own_process
@pytest.mark.filterwarnings("ignore")
def test_what_the_user_must_mend_is_raised_here_and_the_run_goes_on(
    source: Path, tmp_path: Path, ray_here: Any
) -> None:
    assert ray_here.is_initialized()
    x = np.random.default_rng(1).uniform(-1, 1, ROWS)
    x[17_000] = np.nan
    pq.write_table(pa.table({"x": x}), source, row_group_size=GROUP)
    options: dict[str, Any] = {
        "column": "x",
        "mechanism": ONE,
        "block_rows": GROUP,
        "engine": "ray",
    }
    with pytest.raises(ParameterError, match=r"data row 17001 is missing"):
        collect.privatize(source, tmp_path / "out", **options)
    result = collect.privatize(source, tmp_path / "out", resume=True, missing="drop", **options)
    assert result.reports == ROWS - 1
    assert collect.read_counts(tmp_path / "out").n == ROWS - 1
    assert ray_here.is_initialized()  # the caller's cluster is not ours to stop


@pytest.mark.slow
@pytest.mark.own_process
@pytest.mark.filterwarnings("ignore")
def test_a_failed_run_leaves_a_process_that_can_go_on(source: Path, tmp_path: Path) -> None:
    """Its cluster is stopped while blocks are under way, and another one started."""
    x = np.random.default_rng(1).uniform(-1, 1, ROWS)
    x[5] = np.nan
    pq.write_table(pa.table({"x": x}), source, row_group_size=GROUP)
    options: dict[str, Any] = {
        "column": "x",
        "mechanism": ONE,
        "block_rows": GROUP,
        "engine": "ray",
    }
    with pytest.raises(ParameterError, match=r"data row 6 is missing"):
        collect.privatize(source, tmp_path / "out", **options)
    assert (
        collect.privatize(source, tmp_path / "out", resume=True, missing="drop", **options).reports
        == ROWS - 1
    )


class Slow:
    """A PartWriter whose blocks take a while, half of it after the part has its name."""

    def __init__(self, writer: PartWriter, log: Path) -> None:
        self.writer, self.log = writer, log

    def write(self, block: Any) -> Any:
        with (self.log / f"{block.index}-{os.getpid()}").open("w"):
            pass
        time.sleep(0.3)
        result = self.writer.write(block)
        time.sleep(0.3)
        return result


@pytest.mark.slow
@pytest.mark.own_process
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("stream", ["seeded", "private"])
def test_a_killed_worker_is_replaced_and_no_row_is_reported_twice(
    source: Path, tmp_path: Path, ray_here: Any, monkeypatch: pytest.MonkeyPatch, stream: str
) -> None:
    ray_here.cloudpickle.register_pickle_by_value(
        sys.modules[__name__]
    )  # workers cannot import the tests
    log, killed, seed = tmp_path / "log", [], 3 if stream == "seeded" else None
    log.mkdir()
    real = workers.on_cluster
    monkeypatch.setattr(
        workers, "on_cluster", lambda work, *a: real(Slow(work.__self__, log).write, *a)
    )

    def kill() -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and len(killed) < 3:
            for entry in sorted(log.iterdir(), key=lambda path: path.stat().st_mtime):
                process = int(entry.name.split("-")[1])
                if process not in killed and process != os.getpid() and len(killed) < 3:
                    time.sleep(0.2 + 0.15 * len(killed))  # before and after a part has its name
                    os.kill(process, signal.SIGKILL)
                    killed.append(process)
            time.sleep(0.02)

    options: dict[str, Any] = {
        "column": "x",
        "mechanism": ONE,
        "keep": ["id"],
        "block_rows": GROUP,
        "rng": seed,
    }
    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    result = collect.privatize(source, tmp_path / "out", engine="ray", **options)
    killer.join()
    assert len(killed) == 3
    attempts = [int(entry.name.split("-")[0]) for entry in log.iterdir()]
    assert len(attempts) > len(set(attempts)) == ROWS // GROUP  # some block was begun twice
    table = pq.ParquetDataset(tmp_path / "out").read()
    assert table["id"].to_pylist() == list(range(ROWS))
    assert result.reports == collect.read_counts(tmp_path / "out").n == ROWS
    assert (tmp_path / "out" / MANIFEST).is_file()
    if stream == "seeded":
        collect.privatize(source, tmp_path / "local", **options)
        parts = {
            name: data
            for name, data in contents(tmp_path / "out").items()
            if not name.startswith(".")
        }
        assert parts == contents(tmp_path / "local")
