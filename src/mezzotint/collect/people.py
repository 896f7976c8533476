"""Who gave which rows: rows of each person counted out of files, and charged to a ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mezzotint.collect.columns import Dialect, open_file
from mezzotint.collect.listing import SourceFile
from mezzotint.core.errors import ParameterError
from mezzotint.core.records import Progress

compute: Any = pc  # its functions are made at import time, unseen by type checkers


def people_in(
    files: Sequence[SourceFile],
    column: str,
    *,
    dialect: Dialect,
    progress: Progress | None = None,
) -> Iterator[tuple[pa.Array, np.ndarray[Any, np.dtype[np.uint64]]]]:
    """The people of each batch of a data set, each once, with their rows.

    Arguments:
        column: of ids, also one spelled by folders.
        dialect: how text files are spelled.
        progress: called as progress(rows, rows / share of the files read).

    Raises:
        ParameterError: a row without an id, or standard input, which is read once.
    """
    done = 0
    for place, file in enumerate(files):
        if file.path == "-":
            remedy = "is read before the rows are; name a file, not standard input"
            raise ParameterError("people", column, remedy)
        rows = 0
        with open_file(file, numeric=(), extra={column: "people"}, dialect=dialect) as opened:
            for batch in opened.batches():
                text = compute.cast(batch.column(0), pa.string())
                if text.null_count:
                    first = rows + int(np.argmin(np.asarray(text.is_valid()))) + 1
                    raise ParameterError(
                        "people", column, f"data row {first} of {file.name} has no id"
                    )
                coded = text.dictionary_encode()
                indices = np.asarray(coded.indices)
                counts = np.bincount(indices, minlength=len(coded.dictionary)).astype(np.uint64)
                yield coded.dictionary, counts
                rows += batch.num_rows
                done += batch.num_rows
                if progress is not None:
                    progress(done, done * len(files) / (place + 1))
