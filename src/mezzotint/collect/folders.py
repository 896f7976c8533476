"""A folder of reports: one part per block of rows, each whole or absent, made by a run that can be
interrupted.

While a run is unfinished its folder holds a hidden record of what it works on; at the end that
record, which names the source, gives way to a manifest, which does not.

Why a resumed run releases nothing twice. A part is drawn from keys of its own
(`Encoder.for_block`), made in memory when the part is begun and never written down: no keystream
outlives its part, so none meets other rows. A part gets its name only when it is whole, by a step
that fails where the name is taken; rows of a named part are never drawn again. What an interruption
leaves of a part in the making has no name, and is deleted.

Two attempts at one block, as a cluster makes them, draw from keys of their own, and make two
different sets of reports about the same rows; `PartWriter` sees to it that one of these at most
ever gets a name in the output.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, final

import pyarrow.parquet as pq

from mezzotint.collect.charging import (
    Payment,
    RunCharge,
    charged_source,
    check_budget,
    fingerprint,
    ledger_path,
    selection_of,
)
from mezzotint.collect.encoder import Encoder, Tally
from mezzotint.collect.listing import is_remote, stamp
from mezzotint.collect.reports import Origin, describe
from mezzotint.collect.results import PrivatizeResult
from mezzotint.collect.settings import Settings
from mezzotint.collect.sink import Draft, ReportsWriter, check_source
from mezzotint.collect.source import Block, Source, blocks_of
from mezzotint.collect.workers import each_block
from mezzotint.core.errors import FileFormatError, ParameterError, StorageError
from mezzotint.core.files import (
    locked,
    parse_json,
    read_object,
    sync_folder,
    write_text,
)
from mezzotint.core.records import Json, JsonObject
from mezzotint.core.types import AnyPath
from mezzotint.privacy.accounting import report_claim
from mezzotint.privacy.people import PersonCounter

STATE = ".mezzotint-run.json"


MANIFEST = "_mezzotint.json"
"""Readers of data sets pass over names with a leading dot or underscore."""


RUN_FORMAT = "mezzotint-run"


MANIFEST_FORMAT = "mezzotint-data-set"


VERSION = 1


FILES_DIGITS = 32
"""Hexadecimal digits of the hash that names the files of a source."""

TAKEN_OVER = {"run", "block_rows"}
"""What a resumed run takes over from the record instead of having to bring it."""

OPTION_OF = {"files": "source", "tables": "mechanisms", "memoised": "memo", "seeded": "rng"}
"""Name in a manifest -> option, where they differ."""

LIMIT = ("charge_by", "at_most", "per")
"""The options of a record's limit."""


def is_folder(out: AnyPath) -> bool:
    """Whether an output is a folder: by what is there, a final slash, or a name without an
    extension.
    """
    out_name = os.fspath(out)
    if is_remote(out_name) or out_name == "-":
        return False
    return out_name.endswith(("/", os.sep)) or Path(out_name).is_dir() or not Path(out_name).suffix


def read_manifest(folder: Path) -> JsonObject:
    """The end of a run, as its folder says: how many parts and reports there are, and all else;
    raises FileFormatError for a damaged one.
    """
    path = folder / MANIFEST
    try:
        manifest = read_object(path)
        for count in ("parts", "reports"):
            manifest[count] = int(manifest[count])
    except (ValueError, TypeError, KeyError):
        message = "is damaged; the parts beside it may still be whole"
        raise FileFormatError(f"{path}: {message}") from None
    return manifest


def part_name(index: int) -> str:
    """The file name of a part."""
    return f"part-{index:06d}.parquet"


def origin_and_charge(
    encoder: Encoder,
    source: Source,
    settings: Settings,
    *,
    run: str,
    checked: Encoder | None = None,
    counter: PersonCounter | None = None,
) -> tuple[Origin, RunCharge]:
    """Where the reports of a run come from, and what it costs: both know the content of the source.

    Arguments:
        run: its name.
        checked: as in `RunCharge`, of a run that is resumed and pays once.
        counter: as in `RunCharge`.
    """
    content = fingerprint(settings, source.files)
    charge = RunCharge(
        claim=report_claim(encoder.mechanisms),
        settings=settings,
        source=source,
        run=run,
        fingerprint=content,
        checked=checked,
        counter=counter,
    )
    return Origin.of(settings, run=run, source=content), charge


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class PartWriter:
    """The work order of a process that writes parts. It is sent whole and holds no key but a seed's
    or a memo's.
    """

    encoder: Encoder
    source: Source
    folder: Path
    origin: Origin

    def write(self, block: Block, pay: Callable[[], object] | None = None) -> Tally | None:
        """Makes the part of one block; None where it is there already, possibly since a moment ago.

        Arguments:
            pay: called before the part gets its name, if it holds reports; None where they are paid
                for.

        Guarantees: of any number of attempts, in whatever processes, exactly one leaves reports in
            the folder.
        """
        target = self.folder / part_name(block.index)
        if target.exists():
            return None
        encoder = self.encoder.for_block(block.index)
        tally = Tally()
        origin = self.origin.part(block.index)
        description = describe(encoder.mechanisms, seeded=encoder.seeded, origin=origin)
        opening = self.source.open(block.file, groups=block.groups)
        with opening as opened, Draft(target) as draft:
            schema = encoder.schema(opened.kinds())
            batches = opened.batches(row=block.offset, selection=self.source.selection)
            with ReportsWriter(
                draft.file,
                "parquet",
                schema,
                description,
                encoder.columns,
            ) as writer:
                for record_batch in batches:
                    coded = encoder.encode(record_batch, tally)
                    if draft.hidden is not None and pay is not None and coded.num_rows:
                        pay()
                    writer.write(coded)
                writer.close()
            if pay is not None and tally.reports:
                pay()
            return tally if draft.publish() else None


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class FolderRun:
    """One privatization of a data set into a folder."""

    encoder: Encoder
    source: Source
    out: Path
    settings: Settings

    def execute(self) -> PrivatizeResult:
        """Begins or continues the run and ends it; see `privatize_columns`."""
        if self.settings.overwrite:
            remedy = "a folder of reports is never overwritten; delete it yourself"
            raise ParameterError("overwrite", True, remedy)
        if self.source.is_stream:
            remedy = "standard input cannot be read again by a resumed run; name one file"
            raise ParameterError("source", "-", remedy)
        started = time.perf_counter()
        finished = self._finished()
        if finished is not None:
            return finished
        if not (self.out / STATE).exists():  # of a run that goes on the charge knows if it is paid
            check_budget(self.encoder, self.settings)
        check_source(self.encoder, self.source, "parquet")
        payment = Payment()
        with self._state(payment) as state:
            return self._write(state, started, payment)

    def _finished(self) -> PrivatizeResult | None:
        """The result of a resumed run that had ended: nothing is left to do, to draw or to
        charge.
        """
        is_finished = (self.out / MANIFEST).exists() and not (self.out / STATE).exists()
        if not self.settings.resume or not is_finished:
            return None
        manifest = read_manifest(self.out)
        wanted = self._manifest(Origin(), [])
        wanted["files"] = self._files_print(str(manifest.get("run")))
        settings = {"tables", "seeded", "memoised"}
        if "files" in manifest:  # which runs of before did not write
            settings.add("files")
        wanted_settings = {name: wanted[name] for name in settings}
        self._refuse_change(wanted_settings, manifest)
        return PrivatizeResult.of(
            self.encoder,
            Tally(),
            out=self.out,
            started=time.perf_counter(),
            reports=manifest["reports"],
            blocks=manifest["parts"],
            resumed=manifest["parts"],
        )

    def _write(self, state: JsonObject, started: float, payment: Payment) -> PrivatizeResult:
        """Makes the parts that are missing, and the manifest."""
        blocks = blocks_of(self.source.files, block_rows=state["block_rows"])
        parts = [self.out / part_name(block.index) for block in blocks]
        missing = [block for block in blocks if not parts[block.index].exists()]
        source = replace(
            self.source,
            selection=selection_of(self.settings, self.source, state["run"]),
        )
        origin, charge = origin_and_charge(
            self.encoder,
            source,
            self.settings,
            run=state["run"],
            checked=self.encoder,
        )
        charge.refuse_other_rows()
        pay = partial(payment.make, charge)
        writer = PartWriter(
            encoder=self.encoder.without_keys(),
            source=source,
            folder=self.out.absolute(),
            origin=origin,
        )
        try:
            tally = self._write_parts(writer, missing, len(blocks), pay)
            reports = self._finish(origin, parts, tally)
            charged = payment.receipt(charge)
        except BaseException as error:
            for sentence in self._remains(error, len(blocks), payment):
                error.add_note(sentence)
            raise
        return PrivatizeResult.of(
            self.encoder,
            tally,
            out=self.out,
            started=started,
            reports=reports,
            blocks=len(blocks),
            resumed=len(blocks) - len(missing),
            charged=charged,
            shift=source.shift,
            lot=self.settings.lot,
        )

    def _remains(self, error: BaseException, blocks: int, payment: Payment) -> Iterator[str]:
        """What a run that ended early leaves, and how to go on; nothing where it left nothing."""
        parts = list(self.out.glob("part-*.parquet"))
        state = f"{len(parts)} of {blocks} parts are written"
        ledger = ledger_path(self.settings)
        at_fault = isinstance(error, ParameterError | FileFormatError)
        if not at_fault or isinstance(error, StorageError):
            if payment.entry is not None:
                # No file is opened for it: that may be what fails.
                yield (
                    f"{state} and the run is charged to {ledger}; resume=True (--resume) goes on "
                    "with it, and is charged nothing more"
                )
            return
        remedy = f"mend the file, delete {self.out} where it exists, and run again"
        if self.settings.ledger is None:
            yield f"{state}; {remedy}"
            return
        # A part with reports gets its name when it is paid for.
        reports = [pq.read_metadata(path).num_rows for path in parts]
        if not any(reports) and payment.entry is None:
            yield f"{state} and nothing was charged; {remedy}"
            return
        yield f"{state} and the run is charged to {ledger}; {remedy}: a new run, charged anew"

    def _write_parts(
        self,
        writer: PartWriter,
        blocks: Sequence[Block],
        total: int,
        pay: Callable[[], None],
    ) -> Tally:
        """Makes the parts of blocks, of so many in total."""
        tally = Tally()
        before = total - len(blocks)
        write: Callable[[Block], Tally | None] = partial(writer.write, pay=pay)
        if self.settings.engine == "ray":
            pay()  # workers elsewhere cannot: before the first of them begins
            write = writer.write
        with closing(each_block(write, blocks, self.settings)) as finished:
            for count, part_tally in enumerate(finished, start=before + 1):
                if part_tally is not None:
                    tally.add(part_tally)
                self.settings.report_progress(tally.rows, share=count / total)
        return tally

    def _finish(self, origin: Origin, parts: Sequence[Path], tally: Tally) -> int:
        """Replaces the record by the manifest; returns the reports in all parts."""
        sizes = [pq.read_metadata(part_path).num_rows for part_path in parts]
        if not sum(sizes):
            for file_path in (*parts, self.out / STATE):
                file_path.unlink(missing_ok=True)
            with suppress(OSError):  # the folder may have been there before, with more in it
                self.out.rmdir()
            files = f"{len(self.source.files)} files"
            raise tally.empty_error(self.encoder.columns[0], files)
        manifest = self.out / MANIFEST
        if not manifest.exists():
            write_text(
                manifest,
                json.dumps(self._manifest(origin, sizes), indent=1) + "\n",
            )
        (self.out / STATE).unlink()
        return sum(sizes)

    def _manifest(self, origin: Origin, sizes: Sequence[int]) -> JsonObject:
        """What the folder says of itself at its end; it does not name the files of the source."""
        encoder = self.encoder
        manifest: JsonObject = {
            "format": MANIFEST_FORMAT,
            "version": VERSION,
            "run": origin.run,
            "reports": sum(sizes),
            "parts": len(sizes),
            "seeded": encoder.seeded,
            "memoised": encoder.memo is not None,
            "tables": _hashes(encoder),
            "files": self._files_print(str(origin.run)),
        }
        if origin.source is not None and encoder.memo is None:
            manifest["source"] = origin.source
        if not encoder.seeded:  # what is reproducible is not private: there is nothing to claim
            manifest["claim"] = report_claim(encoder.mechanisms).as_dict()
        return manifest

    def _files_print(self, run: str) -> str:
        """Names the files of the source by a hash of their names, sizes and times, which are no
        secrets: whoever has them recognises them.
        """
        stamps = [[file.name, *stamp(file.path)] for file in self.source.files]
        bits = json.dumps([run, stamps]).encode()
        return hashlib.sha256(b"mezzotint files" + bits).hexdigest()[:FILES_DIGITS]

    # What an unfinished run works on --------------------------------------------------------------

    @contextmanager
    def _state(self, payment: Payment) -> Iterator[JsonObject]:
        """The record of this run, made or found again, and locked; checked to be that of the same
        run.
        """
        wanted = self._record()
        record_path = self.out / STATE
        self._check_folder(record_path)
        is_new = not self.out.exists()
        self.out.mkdir(exist_ok=True)
        sync_folder(self.out.parent)
        begins_here = not record_path.exists()
        if begins_here:
            write_text(record_path, json.dumps(wanted))
        busy = "is being written by another run; wait for its end"
        with (
            record_path.open("r+b") as handle,
            locked(handle.fileno(), self.out, wait=0.0, parameter="out", busy=busy),
        ):
            record = self._agreed(handle, wanted)
            for draft in self.out.glob(".*.partial"):
                draft.unlink(missing_ok=True)
            try:
                yield record
            except BaseException:
                # A run that drew nothing is no run; but the record of one that was charged, now or
                # before, names what is paid for.
                if begins_here and payment.entry is None and not self._drew():
                    record_path.unlink(missing_ok=True)
                    if is_new:
                        with suppress(OSError):
                            self.out.rmdir()
                raise

    def _agreed(self, handle: BinaryIO, wanted: JsonObject) -> JsonObject:
        """The record in the folder, checked to be that of this run; of a run that drew nothing and
        was not charged, this run's own.
        """
        record: JsonObject | None = None
        try:
            record = self._read(handle.read())
            self._refuse_change(_settings(wanted), _settings(record))
            return record
        except (FileFormatError, ParameterError):
            if self._drew():
                raise
            charged = None
            if record is not None:
                charged = charged_source(self.settings, record["run"])
            if charged is not None:
                raise
        handle.seek(0)
        handle.truncate()
        handle.write(json.dumps(wanted).encode())
        handle.flush()
        os.fsync(handle.fileno())
        return wanted

    def _read(self, text: bytes) -> JsonObject:
        """The record that a text is."""
        record_path = self.out / STATE
        damaged = FileFormatError(f"{record_path}: is damaged; the run cannot be continued")
        try:
            record: Json = parse_json(text, name=str(record_path))
        except FileFormatError:
            raise damaged from None
        if not isinstance(record, dict) or _version(record) != (
            RUN_FORMAT,
            VERSION,
        ):
            message = "is not the record of a run that this release can continue"
            raise FileFormatError(f"{record_path}: {message}")
        kinds = {
            "block_rows": int,
            "run": str,
            "limit": list,
            "dialect": dict,
        }
        for key, kind in kinds.items():
            if not isinstance(record.get(key), kind):
                raise damaged
        return record

    def _refuse_change(self, wanted: JsonObject, stored: JsonObject) -> None:
        """Raises ParameterError for settings that the run in the folder had otherwise."""
        differing = [name for name in sorted(wanted) if stored.get(name) != wanted[name]]
        if not differing:
            return
        changed = [OPTION_OF.get(name, name) for name in differing]
        remedy = f"{self.out} holds it; continue it as it was begun, or name another folder"
        if changed == ["source"]:
            raise ParameterError(
                "source",
                "the files",
                f"are not those of that run: {remedy}",
            )
        first, *others = changed
        further = "".join(f", nor is {name}" for name in others)
        raise ParameterError(
            first,
            "what was given",
            f"is not what the run began with{further}: {remedy}",
        )

    def _drew(self) -> bool:
        """Whether the folder holds a part."""
        return any(self.out.glob("part-*.parquet"))

    def _check_folder(self, state: Path) -> None:
        """Raises ParameterError for a folder in which no run can begin or go on."""
        out = self.out
        problem = ""
        names = os.listdir(out) if out.is_dir() else []
        if out.exists() and not out.is_dir():
            problem = "is a file; end a folder's name with / or give a file an extension"
        elif not out.parent.is_dir():
            problem = f"folder {str(out.parent)!r} does not exist; create it first"
        elif state.exists():
            if self._drew() and not self.settings.resume:
                problem = (
                    "holds an unfinished run; continue it with resume=True (--resume), whose claim "
                    "covers both"
                )
        elif MANIFEST in names:
            problem = "holds a finished run; name another folder"
        elif any(not entry_name.endswith(".partial") for entry_name in names):
            problem = "is a folder with other files in it; name a new one"
        if problem:
            raise ParameterError("out", str(out), problem)

    def _record(self) -> JsonObject:
        """What an unfinished run must find again when it is resumed: every option that moves a
        report, and the files.
        """
        encoder = self.encoder
        settings = self.settings
        seed = memo = None
        if encoder.seeded:
            seed = _key_print(b"".join(encoder.keys))
        if encoder.memo is not None:
            memo = [encoder.memo.users, _key_print(encoder.memo.key)]
        return {
            "format": RUN_FORMAT,
            "version": VERSION,
            "run": encoder.new_run(),
            "mechanisms": _hashes(encoder),
            "keep": list(encoder.keep),
            "rng": seed,
            "memo": memo,
            "block_rows": settings.block_rows,
            "dialect": asdict(settings.dialect),
            "limit": [getattr(settings, option) for option in LIMIT],
            "lot": None if settings.lot is None else settings.lot.as_dict(),
            "source": [
                [source_file.name, *stamp(source_file.path)] for source_file in self.source.files
            ],
        }


def _hashes(encoder: Encoder) -> JsonObject:
    return {column: mechanism.sha256 for column, mechanism in encoder.mechanisms.items()}


def _settings(record: JsonObject) -> JsonObject:
    """What a resumed run must bring again, under the names of options."""
    settings = {name: value for name, value in record.items() if name not in TAKEN_OVER}
    limit = settings.pop("limit")
    dialect = settings.pop("dialect")
    settings |= zip(LIMIT, limit, strict=False)
    return settings | dialect


def _version(record: JsonObject) -> tuple[Json, Json]:
    return record.get("format"), record.get("version")


def _key_print(key: bytes) -> str:
    # Of 32 random bytes, or of a seed, which is not secret.
    return hashlib.sha256(b"mezzotint fingerprint" + key).hexdigest()
