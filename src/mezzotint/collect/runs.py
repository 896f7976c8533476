"""Folders of reports: one part per block of rows, each whole or absent, made by a run that can be interrupted.

While a run is unfinished its folder holds a hidden record of what it works on; at the end that record, which names the
source, gives way to a manifest, which does not.

Why a resumed run releases nothing twice. A part is drawn from keys of its own (`Plan.for_block`), made in memory when
the part is begun and never written down: no keystream outlives its part, so none meets other rows. A part gets its name
only when it is whole, by a step that fails where the name is taken; rows of a named part are never drawn again. What an
interruption leaves of a part in the making has no name, and is deleted.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar, final

import pyarrow.parquet as pq

from mezzotint.collect import columns
from mezzotint.collect.drawing import Plan, Tally
from mezzotint.collect.reports import ParquetReports, code_field, describe
from mezzotint.collect.results import ColumnsResult, Settings, charge, fingerprint, result_of
from mezzotint.collect.sources import Block, SourceFile, blocks_of, open_file
from mezzotint.collect.workers import each_block
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import locked, parse_json, publish, read_object, replacing, sync_folder
from mezzotint.core.records import Json, JsonObject
from mezzotint.privacy.prove import report_claim

T = TypeVar("T")

STATE = ".mezzotint-run.json"
MANIFEST = "_mezzotint.json"
"""Readers of data sets pass over names with a leading dot or underscore."""

RUN_FORMAT = "mezzotint-run"
MANIFEST_FORMAT = "mezzotint-data-set"
VERSION = 1


def is_folder(out: str | os.PathLike[str]) -> bool:
    """Whether an output is a folder: by what is there, a final slash, or a name without an extension."""
    name = os.fspath(out)
    if columns.is_remote(name):
        return False
    return name != "-" and (name.endswith(("/", os.sep)) or Path(name).is_dir() or not Path(name).suffix)


def part_name(index: int) -> str:
    """The file name of a part."""
    return f"part-{index:06d}.parquet"


# Parts -------------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class PartWriter:
    """What a worker needs to make parts. It is sent to other processes whole: it holds no key but a seed's or a memo's.

    Arguments:
        work: the plan.
        folder: where parts go.
        run: names the run in every part.
        source: names what the run is about.
        record_counts: put each part's raw counts into its metadata.
    """

    work: Plan
    folder: Path
    run: str
    source: str | None
    record_counts: bool

    def write(self, block: Block) -> Tally | None:
        """Makes the part of one block; None where it is there already, possibly since a moment ago.

        Guarantees: of any number of attempts, in whatever processes, exactly one leaves reports in the folder.
        """
        target = self.folder / part_name(block.index)
        if target.exists():
            return None
        work, tally = self.work.for_block(block.index), Tally()
        with (
            open_file(block.file, numeric=work.columns, extra=work.extra, labels=work.labels) as opened,
            _draft(target) as draft,
        ):
            writer = ParquetReports(
                path=draft,
                schema=work.schema(opened.kinds()),
                description=self._description(block),
                codes=[code_field(column) for column in work.columns],
            )
            try:
                for batch in opened.batches(block.groups):
                    where = f" of {block.file.name}"
                    writer.write(work.coded(batch, first=tally.rows, tally=tally, offset=block.offset, where=where))
                writer.close(tally.as_dict() if self.record_counts else None)
            except BaseException:
                writer.abandon()
                raise
            return tally if publish(draft, target) else None

    def _description(self, block: Block) -> str:
        memoised = self.work.memo is not None
        name = None if memoised else f"{self.run}/{block.index}"
        source = None if memoised else self.source
        return describe(self.work.mechanisms, seeded=self.work.seeded, memoised=memoised, run=name, source=source)


@contextmanager
def _draft(target: Path) -> Iterator[Path]:
    draft = target.with_name(f".{target.name}.{secrets.token_hex(6)}.partial")
    try:
        yield draft
    finally:
        draft.unlink(missing_ok=True)


# Runs --------------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class Run:
    """One privatization of a data set into a folder.

    Arguments:
        work: the plan.
        files: the source.
        out: the folder.
        settings: the options.
    """

    work: Plan
    files: tuple[SourceFile, ...]
    out: Path
    settings: Settings

    def execute(self) -> ColumnsResult:
        """Begins or continues the run and ends it; see `privatize_columns`."""
        if self.settings.overwrite:
            raise ParameterError("overwrite", True, "a folder of reports is never overwritten; delete it yourself")
        if any(file.path == "-" for file in self.files):
            raise ParameterError("source", "-", "standard input cannot be read again by a resumed run; name one file")
        started = time.perf_counter()
        finished = self._finished()
        if finished is not None:
            return finished
        with self._state() as state:
            blocks = blocks_of(self.files, block_rows=state["block_rows"])
            left = [block for block in blocks if not (self.out / part_name(block.index)).exists()]
            run, source = state["run"], fingerprint(self.settings, self.files)
            charged = charge(self.work, self.settings, files=self.files, run=run, source=source, once=True)
            tally = self._write(run, source, left, len(blocks))
            reports = self._finish(run, source, blocks, tally)
        result = result_of(self.work, tally, out=self.out, seconds=time.perf_counter() - started)
        return replace(result, reports=reports, blocks=len(blocks), resumed=len(blocks) - len(left), charged=charged)

    def _finished(self) -> ColumnsResult | None:
        """The result of a resumed run that had ended: nothing is left to do, to draw or to charge."""
        manifest = self.out / MANIFEST
        if not self.settings.resume or (self.out / STATE).exists() or not manifest.exists():
            return None
        try:
            found = read_object(manifest)
            parts, reports = int(found["parts"]), int(found["reports"])
        except (ValueError, TypeError, KeyError):
            raise FileFormatError(f"{manifest}: is damaged; the parts beside it may still be whole") from None
        wanted = self._manifest("", [])
        for name in ("tables", "seeded", "memoised"):
            if found.get(name) != wanted[name]:
                remedy = f"is another than then: {self.out} holds a finished run; name another folder"
                raise ParameterError(name, "what was given", remedy)
        result = result_of(self.work, Tally(), out=self.out, seconds=0.0)
        return replace(result, reports=reports, blocks=parts, resumed=parts)

    def _write(self, run: str, source: str | None, blocks: list[Block], total: int) -> Tally:
        tally, before = Tally(), total - len(blocks)
        work = self.work if self.work.seeded else replace(self.work, keys=(b"",) * len(self.work.keys))
        counted = self.settings.record_counts
        writer = PartWriter(work=work, folder=self.out.absolute(), run=run, source=source, record_counts=counted)
        with closing(each_block(writer.write, blocks, self.settings)) as finished:
            for count, part in enumerate(finished, start=before + 1):
                if part is not None:
                    tally.add(part)
                self.settings.tell(tally.rows, share=count / total)
        return tally

    def _finish(self, run: str, source: str | None, blocks: list[Block], tally: Tally) -> int:
        """Replaces the record by the manifest; returns the reports in all parts."""
        sizes = [pq.read_metadata(self.out / part_name(block.index)).num_rows for block in blocks]
        if not sum(sizes):
            self._discard([part_name(block.index) for block in blocks])
            raise tally.nothing(self.work.columns[0], f"{len(self.files)} files")
        if not (self.out / MANIFEST).exists():
            with replacing(self.out / MANIFEST) as temporary:
                temporary.write_text(json.dumps(self._manifest(run, sizes, source), indent=1) + "\n", encoding="utf-8")
        (self.out / STATE).unlink()
        return sum(sizes)

    def _discard(self, names: list[str]) -> None:
        for name in (*names, STATE):
            (self.out / name).unlink(missing_ok=True)
        with suppress(OSError):  # the folder may have been there before, with more in it
            self.out.rmdir()

    def _manifest(self, run: str, sizes: list[int], source: str | None = None) -> JsonObject:
        manifest = {
            "format": MANIFEST_FORMAT,
            "version": VERSION,
            "run": run,
            **({} if source is None or self.work.memo is not None else {"source": source}),
            "reports": sum(sizes),
            "parts": len(sizes),
            "seeded": self.work.seeded,
            "memoised": self.work.memo is not None,
            "tables": {column: mechanism.sha256 for column, mechanism in self.work.mechanisms.items()},
        }
        if self.work.seeded:  # reproducible, hence not private: there is nothing to claim
            return manifest
        return {**manifest, "claim": report_claim(self.work.mechanisms).as_dict()}

    # What an unfinished run works on -------------------------------------------------------------------------

    @contextmanager
    def _state(self) -> Iterator[JsonObject]:
        """The record of this run, made or found again, and locked; checked to be that of the same run."""
        wanted, path = self._record(), self.out / STATE
        self._check_folder(path)
        self.out.mkdir(exist_ok=True)
        sync_folder(self.out.parent)
        if not path.exists():
            with replacing(path) as temporary:
                temporary.write_text(json.dumps(wanted), encoding="utf-8")
        with path.open("r+b") as handle, _alone(handle.fileno(), self.out):
            try:
                found = parse_json(handle.read(), name=str(path))
            except ValueError:
                raise FileFormatError(f"{path}: is damaged; the run cannot be continued") from None
            record = _compare(found, wanted, self.out)
            for left in self.out.glob(".*.partial"):
                left.unlink(missing_ok=True)
            yield record

    def _check_folder(self, state: Path) -> None:
        out = str(self.out)
        if self.out.exists() and not self.out.is_dir():
            raise ParameterError("out", out, "is a file; end a folder's name with / or give a file an extension")
        if not self.out.parent.is_dir():
            raise ParameterError("out", out, f"folder {str(self.out.parent)!r} does not exist; create it first")
        if state.exists():
            if not self.settings.resume:
                remedy = "holds an unfinished run; continue it with resume=True (--resume), whose claim covers both"
                raise ParameterError("out", out, remedy)
            return
        if (self.out / MANIFEST).exists():
            raise ParameterError("out", out, "holds a finished run; name another folder")
        if self.out.is_dir() and any(not name.endswith(".partial") for name in os.listdir(self.out)):
            raise ParameterError("out", out, "is a folder with other files in it; name a new one")

    def _record(self) -> JsonObject:
        work, seeds = self.work, b"".join(self.work.keys)
        memo = None if work.memo is None else [work.memo.users, _fingerprint(work.memo.key)]
        return {
            "format": RUN_FORMAT,
            "version": VERSION,
            "run": work.new_run(),
            "mechanisms": {column: mechanism.sha256 for column, mechanism in work.mechanisms.items()},
            "keep": list(work.keep),
            "rng": _fingerprint(seeds) if work.seeded else None,
            "memo": memo,
            "record_counts": self.settings.record_counts,
            "block_rows": self.settings.block_rows,
            "source": [[file.name, *columns.stamp(file.path)] for file in self.files],
        }


_FREE = {"run", "block_rows"}
"""What a resumed run takes over from the record instead of having to bring it."""


def _compare(found: Json, wanted: JsonObject, out: Path) -> JsonObject:
    if not isinstance(found, dict) or found.get("format") != RUN_FORMAT or found.get("version") != VERSION:
        raise FileFormatError(f"{out / STATE}: is not the record of a run that this release can continue")
    if not isinstance(found.get("block_rows"), int) or not isinstance(found.get("run"), str):
        raise FileFormatError(f"{out / STATE}: is damaged; the run cannot be continued")
    for name, value in wanted.items():
        if name not in _FREE and found.get(name) != value:
            what = "changed since then" if name == "source" else "is another than then"
            shown = "the files" if name == "source" else "what was given"
            remedy = f"{what}: {out} holds an unfinished run; continue it as it was begun, or name another folder"
            raise ParameterError(name, shown, remedy)
    return found


def _fingerprint(key: bytes) -> str:
    # Of 32 random bytes, or of a seed, which is no secret.
    return hashlib.sha256(b"mezzotint fingerprint" + key).hexdigest()


def _alone(descriptor: int, out: Path) -> AbstractContextManager[None]:
    """The lock of the run's record, if the system has locks; whoever comes second is turned away at once."""
    busy = "is being written by another run; wait for its end"
    return locked(descriptor, out, wait=0.0, parameter="out", busy=busy) if os.name == "posix" else nullcontext()
