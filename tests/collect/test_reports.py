"""The reports file, counting it, and what happens when the disk or the process fails half-way."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mezzotint import collect, families
from mezzotint.collect import encoder
from mezzotint.collect.columns import COMMENT, METADATA_KEY
from mezzotint.collect.counts import CodeCounts
from mezzotint.core.errors import FileFormatError, ParameterError

MECHANISM = families.randomized_response(lower=0, upper=10, epsilon=1.0)
OTHER = families.randomized_response(lower=0, upper=10, epsilon=2.0)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.parquet"
    pq.write_table(pa.table({"x": np.linspace(0, 10, 1000)}), path)
    return path


@pytest.fixture(params=[".parquet", ".csv"])
def reports(request: pytest.FixtureRequest, tmp_path: Path, source: Path) -> Path:
    out = tmp_path / f"reports{request.param}"
    collect.privatize(source, out, column="x", mechanism=MECHANISM)
    return out


def description(path: Path) -> dict[str, object]:
    if path.suffix == ".parquet":
        return json.loads(pq.read_schema(path).metadata[METADATA_KEY])
    return json.loads(path.read_bytes().split(b"\n", 1)[0][len(COMMENT) :])


def rewrite(path: Path, text: str | None) -> None:
    """The same codes under another description."""
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        pq.write_table(
            table.replace_schema_metadata(None if text is None else {METADATA_KEY: text}), path
        )
        return
    rest = path.read_bytes().split(b"\n", 1)[1]
    path.write_bytes((b"" if text is None else COMMENT + text.encode() + b"\n") + rest)


def test_the_mechanism_travels_byte_for_byte(reports: Path) -> None:
    entry = description(reports)["reports"][0]
    assert entry == {
        "column": "x",
        "field": "x_code",
        "mechanism": MECHANISM.to_json(),
        "sha256": MECHANISM.sha256,
    }
    assert collect.read_counts(reports).mechanism.to_json() == MECHANISM.to_json()


def every_text(path: Path) -> str:
    """All that a reports file, folder or counts file says in plain text, names of codes aside."""
    if path.is_dir():
        return "".join(every_text(one) for one in sorted(path.iterdir()))
    if path.suffix == ".parquet":
        return json.dumps(
            {key.decode(): value.decode() for key, value in pq.read_schema(path).metadata.items()}
        )
    return path.read_text()


@pytest.mark.parametrize("out", ["r.parquet", "r.csv", "folder/"])
def test_a_seeded_draw_carries_no_epsilon_anywhere_and_says_that_it_was_seeded(
    source: Path, tmp_path: Path, out: str
) -> None:
    private, seeded = tmp_path / "private" / out, tmp_path / "seeded" / out
    for path, rng in ((private, None), (seeded, 7)):
        path.parent.mkdir(exist_ok=True)
        result = collect.privatize(
            source, f"{path}{'/' * (out[-1] == '/')}", column="x", mechanism=MECHANISM, rng=rng
        )
        assert result.as_dict().get("epsilon") == (None if rng else MECHANISM.epsilon)
    assert "epsilon" not in every_text(seeded)
    assert "epsilon" in every_text(private)
    counts = {path: collect.read_counts(path) for path in (private, seeded)}
    assert [one.seeded for one in counts.values()] == [False, True]
    assert counts[seeded].mechanism == MECHANISM
    with pytest.raises(
        ParameterError, match=r"counts=reports drawn from a seed.*NOT private.*allow_seeded=True"
    ):
        collect.estimate(counts[seeded])
    allowed = collect.estimate(counts[seeded], allow_seeded=True)
    assert (allowed.epsilon, allowed.seeded) == (None, True)
    assert "epsilon" not in allowed.as_dict()
    assert collect.estimate(counts[private]).as_dict()["seeded"] is False
    # Whatever seeded reports are added to is not private either, and counts keep saying so.
    mixed = counts[private].merge(counts[seeded])
    assert mixed.seeded
    collect.save_counts(mixed, tmp_path / "c.json")
    assert "epsilon" not in every_text(tmp_path / "c.json")
    assert collect.load_counts(tmp_path / "c.json").seeded


def test_files_that_do_not_say_how_they_were_drawn_are_of_unknown_provenance(reports: Path) -> None:
    whole = description(reports)
    old = {key: value for key, value in whole.items() if key not in ("seeded", "memoised")}
    rewrite(reports, json.dumps(old))
    counts = collect.read_counts(reports)
    assert counts.seeded is None
    assert collect.estimate(counts).as_dict()["seeded"] is None
    known = CodeCounts(mechanism=MECHANISM, counts=np.array([3, 5]), seeded=False)
    assert known.merge(counts).seeded is None
    for wrong in ("no", 0):
        rewrite(reports, json.dumps({**whole, "seeded": wrong}))
        with pytest.raises(FileFormatError, match="true or false: seeded"):
            collect.read_counts(reports)


def test_a_seeded_file_that_is_relabelled_as_private_is_refused(
    source: Path, tmp_path: Path
) -> None:
    out = tmp_path / "r.csv"
    collect.privatize(source, out, column="x", mechanism=MECHANISM, rng=7)
    rewrite(out, json.dumps({**description(out), "seeded": False}))
    with pytest.raises(FileFormatError, match="must hold: column, field, mechanism"):
        collect.read_counts(out)


def forged() -> str:
    """A mechanism file whose certificate claims less than its table costs."""
    document = json.loads(OTHER.to_json())
    document["certificate"]["epsilon"] = 0.5
    return json.dumps(document)


def test_a_forged_certificate_is_refused_inside_reports_and_counts(
    reports: Path, tmp_path: Path
) -> None:
    whole = description(reports)
    entry = {**whole["reports"][0], "mechanism": forged(), "sha256": OTHER.sha256}
    rewrite(reports, json.dumps({**whole, "reports": [entry]}))
    with pytest.raises(
        FileFormatError,
        match=rf"{reports.name}: .*certificate says epsilon=0.5, but the table gives 1.99",
    ):
        collect.read_counts(reports)
    path = tmp_path / "c.json"
    path.write_text(
        json.dumps(
            {"format": "mezzotint-counts", "version": 1, "mechanism": forged(), "counts": [3, 5]}
        )
    )
    with pytest.raises(FileFormatError, match=r"c\.json: .*certificate says epsilon=0.5"):
        collect.load_counts(path)


def test_edited_descriptions_are_refused(reports: Path) -> None:
    whole = description(reports)
    entry = dict(whole["reports"][0])
    weight = str(int(MECHANISM.weights[0, 0]))
    edits = {
        "not valid JSON": json.dumps(whole)[:-5],
        'not of format "mezzotint-reports"': json.dumps({**whole, "format": "other"}),
        "version=2: this release reads version 1": json.dumps({**whole, "version": 2}),
        "version=True: this release reads": json.dumps({**whole, "version": True}),
        "names a field twice": json.dumps({**whole, "reports": [entry, entry]}),
        "how many rows of a person": json.dumps({**whole, "people": {"at_most": -3}}),
        "must say how many rows": json.dumps({**whole, "people": {"at_most": True}}),
        "lists no reports": json.dumps({**whole, "reports": []}),
        "must hold: column, field": json.dumps({**whole, "reports": [{"column": "x"}]}),
        "row 0 must sum": json.dumps(
            {**whole, "reports": [{**entry, "mechanism": entry["mechanism"].replace(weight, "7")}]}
        ),
        "sha256 names": json.dumps({**whole, "reports": [{**entry, "sha256": "0" * 64}]}),
        "the file may be truncated": json.dumps(
            {**whole, "reports": [{**entry, "mechanism": entry["mechanism"][:99]}]}
        ),
    }
    for words, text in edits.items():
        rewrite(reports, text)
        with pytest.raises(FileFormatError, match=words):
            collect.read_counts(reports)


def test_bare_codes_need_their_mechanism_named(reports: Path) -> None:
    counted = collect.read_counts(reports)
    rewrite(reports, None)
    with pytest.raises(FileFormatError, match="contains no mechanism"):
        collect.read_counts(reports)
    with pytest.raises(ParameterError, match="column=None: "):
        collect.read_counts(reports, mechanism=MECHANISM)
    again = collect.read_counts(reports, mechanism=MECHANISM, column="x_code")
    assert again.counts.tolist() == counted.counts.tolist()


def test_another_mechanism_than_the_files_is_refused(reports: Path) -> None:
    with pytest.raises(ParameterError, match="made by another table"):
        collect.read_counts(reports, mechanism=OTHER)
    with pytest.raises(ParameterError, match="the file has: x_code"):
        collect.read_counts(reports, column="y")


@pytest.mark.parametrize("bad", [2, -1, 0.5, None])
def test_codes_that_are_none_are_named(tmp_path: Path, bad: float | None) -> None:
    path = tmp_path / "codes.parquet"
    pq.write_table(pa.table({"c": pa.array([0.0, 1.0, bad])}), path)
    with pytest.raises(FileFormatError, match="c: report 3 is"):
        collect.read_counts(path, mechanism=MECHANISM, column="c")


def test_no_reports_are_no_estimate(tmp_path: Path) -> None:
    path = tmp_path / "codes.parquet"
    pq.write_table(pa.table({"c": pa.array([], pa.uint8())}), path)
    with pytest.raises(ParameterError, match="column=c: is empty"):
        collect.read_counts(path, mechanism=MECHANISM, column="c")


def test_counts_merge_exactly() -> None:
    codes = np.random.default_rng(2).integers(0, 2, 1001)
    whole = CodeCounts.from_codes(codes, mechanism=MECHANISM)
    parts = [CodeCounts.from_codes(part, mechanism=MECHANISM) for part in np.array_split(codes, 7)]
    merged = parts[0]
    for part in parts[1:]:
        merged = merged.merge(part)
    assert merged.counts.tolist() == whole.counts.tolist() == np.bincount(codes).tolist()
    assert not whole.counts.flags.writeable
    with pytest.raises(ParameterError, match="different tables"):
        whole.merge(CodeCounts.from_codes(codes, mechanism=OTHER))


def test_counts_travel_as_json(tmp_path: Path) -> None:
    counts = CodeCounts(mechanism=MECHANISM, counts=np.array([3, 5]))
    path = tmp_path / "c.json"
    collect.save_counts(counts, path)
    again = collect.load_counts(path)
    assert (again.mechanism, again.counts.tolist()) == (MECHANISM, [3, 5])
    with pytest.raises(ParameterError, match="exists already"):
        collect.save_counts(counts, path)
    with pytest.raises(ParameterError, match=r"name a \.json file"):
        collect.save_counts(counts, tmp_path / "c.txt")
    with pytest.raises(ParameterError, match="no such file"):
        collect.load_counts(tmp_path / "none.json")
    whole = json.loads(path.read_text())
    del whole["sha256"]  # as files of before
    path.write_text(json.dumps(whole))
    assert collect.load_counts(path).counts.tolist() == [3, 5]
    for edited, words in (
        ("{", "not valid JSON"),
        (json.dumps([]), "not a whole JSON object"),
        (json.dumps({**whole, "version": 2}), "version 1"),
        (json.dumps({**whole, "more": 1}), "need the keys"),
        (json.dumps({**whole, "counts": [1, -1]}), r"c\.json: .*cannot be negative"),
        (json.dumps({**whole, "counts": [2**62, 2**62]}), "more than 9,007,199,254,740,992"),
        (json.dumps({**whole, "counts": [1, 2, 3]}), "need 2 integers"),
        (json.dumps({**whole, "mechanism": whole["mechanism"][:50]}), "truncated"),
    ):
        path.write_text(edited)
        with pytest.raises((ParameterError, FileFormatError), match=words):
            collect.load_counts(path)


def test_a_counts_file_that_lost_a_digit_is_noticed(tmp_path: Path) -> None:
    counts = CodeCounts(mechanism=MECHANISM, counts=np.array([31, 57]), seeded=False)
    path = tmp_path / "c.json"
    collect.save_counts(counts, path)
    text = path.read_text()
    for old, new in (("[31, 57]", "[30, 57]"), ("[31, 57]", "[31, 5]"), ("false", "null")):
        assert old in text
        path.write_text(text.replace(old, new))
        with pytest.raises(FileFormatError, match=r"c\.json: was damaged or edited"):
            collect.load_counts(path)
    path.write_text(text)
    assert collect.load_counts(path).counts.tolist() == [31, 57]


@pytest.mark.parametrize("counts", [[1, 2, 3], [1.0, 2.0], [-1, 2]])
def test_counts_that_are_none_are_refused(counts: list[float]) -> None:
    with pytest.raises(ParameterError, match="counts="):
        CodeCounts(mechanism=MECHANISM, counts=np.array(counts))


@pytest.mark.parametrize("codes", [[0, 2], [0.0, 1.0], [-1]])
def test_codes_outside_the_table_are_refused(codes: list[float]) -> None:
    with pytest.raises(ParameterError, match="codes="):
        CodeCounts.from_codes(codes, mechanism=MECHANISM)
    assert CodeCounts.from_codes([], mechanism=MECHANISM).n == 0


# Failures half-way ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".csv.gz"])
@pytest.mark.parametrize("old", [None, "old"])
def test_a_full_disk_leaves_what_was_there(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, ending: str, old: str | None
) -> None:
    monkeypatch.setattr("mezzotint.collect.columns.BATCH_ROWS", 100)
    out = tmp_path / f"out{ending}"
    if old is not None:
        out.write_text(old)
    drawn, real = [0], encoder.draw

    def full(*arguments: Any, **options: Any) -> Any:
        drawn[0] += 1
        if drawn[0] == 5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(out))
        return real(*arguments, **options)

    monkeypatch.setattr(encoder, "draw", full)
    with pytest.raises(OSError, match="No space left"):
        collect.privatize(source, out, column="x", mechanism=MECHANISM, overwrite=True)
    assert (out.read_text() if out.exists() else None) == old
    assert not list(tmp_path.glob(".*partial"))


@pytest.mark.parametrize("end", ["", "/"])
def test_a_charged_run_says_so_when_no_file_can_be_opened_any_more(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    ledger = tmp_path / "l.ledger"
    out = f"{tmp_path}/out{end or '.parquet'}"

    def publish(*_: Any, **__: Any) -> bool:
        def refuse(*_: Any, **__: Any) -> Any:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        monkeypatch.setattr("mezzotint.collect.charging.Ledger.__init__", refuse)
        monkeypatch.setattr(pq, "read_metadata", refuse)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("mezzotint.collect.sink.Draft.publish", publish)
    with pytest.raises(OSError, match="Input/output error") as failed:
        collect.privatize(source, out, column="x", mechanism=MECHANISM, ledger=ledger, threads=1)
    (note,) = failed.value.__notes__
    assert f"the run is charged to {ledger}" in note


@pytest.mark.parametrize("job", ["one file", "a folder", "counts", "groups"])
def test_an_error_leaves_no_thread_to_the_collector_of_garbage(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    """A pool that the collector closes can wait for a lock that the collecting thread itself holds: for ever."""
    monkeypatch.setattr("mezzotint.collect.columns.BATCH_ROWS", 100)
    monkeypatch.setattr("mezzotint.collect.grouping.MAX_GROUPS", 1)
    data, coded = tmp_path / "data", tmp_path / "coded"
    data.mkdir()
    for name in ("a", "b", "c"):
        pq.write_table(
            pq.read_table(source).append_column("g", [[name] * 1000]), data / f"{name}.parquet"
        )
    collect.privatize(data, f"{coded}/", column="x", mechanism=MECHANISM, keep=["g"])

    def stop(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left")

    options: Any = {"column": "x", "mechanism": MECHANISM, "progress": stop, "threads": 2}
    work = {
        "one file": partial(collect.privatize, data, tmp_path / "out.parquet", **options),
        "a folder": partial(collect.privatize, data, f"{tmp_path}/out/", **options),
        "counts": partial(collect.read_counts, coded, column="x_code", progress=stop, threads=2),
        "groups": partial(collect.read_groups, coded, by="g", column="x_code", threads=2),
    }[job]
    before = threading.enumerate()
    with pytest.raises(
        OSError if job != "groups" else ParameterError, match=r"No space left|more than 1"
    ) as caught:
        work()
    assert (
        caught.tb is not None
    )  # the traceback still holds all frames, so that nothing was collected
    assert threading.enumerate() == before


FILE_LIMIT = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from mezzotint import collect, families
m = families.randomized_response(lower=0, upper=10, epsilon=1.0)
m.privatize(0.0)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
try:
    collect.privatize(sys.argv[1], sys.argv[2], column="x", mechanism=m)
except OSError as error:
    print("refused:", error)
"""


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".csv.gz"])
def test_a_write_that_the_system_refuses_leaves_no_half_file(tmp_path: Path, ending: str) -> None:
    pq.write_table(pa.table({"x": np.linspace(0, 10, 100_000)}), tmp_path / "in.parquet")
    out = tmp_path / f"out{ending}"
    ran = subprocess.run(
        [sys.executable, "-c", FILE_LIMIT, str(tmp_path / "in.parquet"), str(out)],
        capture_output=True,
        text=True,
    )
    assert ran.stdout.startswith("refused:"), ran.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.parquet"]


SLOW = """
import sys, time
from mezzotint import collect, families
m = families.randomized_response(lower=0, upper=10, epsilon=1.0)
collect.privatize(
    sys.argv[1], sys.argv[2], column="x", mechanism=m,
    progress=lambda rows, total: (print(rows, flush=True), time.sleep(60)),
)
"""


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".csv.gz"])
def test_a_kill_half_way_leaves_no_half_file(tmp_path: Path, source: Path, ending: str) -> None:
    out = tmp_path / f"out{ending}"
    with subprocess.Popen(
        [sys.executable, "-c", SLOW, str(source), str(out)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == b"1000"  # a batch is written by now
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not out.exists()
    # The hidden remainder does not stand in the way of the next run.
    assert collect.privatize(source, out, column="x", mechanism=MECHANISM).reports == 1000
    assert collect.read_counts(out).n == 1000
