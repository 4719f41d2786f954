"""Files that are either there as a whole or not at all.

Arrow tables and paths enter; durable Parquet files leave. The jobs call it on the driver. Invariant: a crash at any
moment leaves each file in its old or its new form; names that begin with `.` or `_` are invisible to readers of a
Parquet folder, which is where unfinished work lives.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

WINDOWS_FILE: Final = "windows.parquet"


def sync(path: Path) -> None:
    """Make a file's content, or a folder's entries, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_durably(path: Path, temporary: Path) -> None:
    """Put `temporary`, which has been written, in the place of `path`."""
    sync(temporary)
    temporary.replace(path)
    sync(path.parent)


def write_text_durably(path: Path, text: str) -> None:
    """Write a small file in one step."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text, encoding="utf-8")
    replace_durably(path, temporary)


def upsert_by_date(folder: Path, updates: pa.Table, *, keys: Sequence[str]) -> int:
    """Put rows into `folder/date=.../windows.parquet`, over those of equal `keys`; returns the number of dates.

    `updates` has a text column `date` and at most one row for each key. Each date's file is replaced in one step.
    Doing the same again changes nothing, so a micro-batch that is repeated after a crash may call this again.
    """
    dates = pc.unique(updates.column("date")).to_pylist()
    for date in sorted(dates):
        rows = updates.filter(pc.equal(updates.column("date"), date)).drop_columns(["date"])
        path = folder / f"date={date}" / WINDOWS_FILE
        if path.exists():
            # Read as a file: as a folder the `date` of its path would become a column.
            known = pq.ParquetFile(path).read()
            untouched = known.join(rows.select(list(keys)), keys=list(keys), join_type="left anti")
            rows = pa.concat_tables([untouched.select(rows.column_names).cast(rows.schema), rows])
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.new")
        pq.write_table(rows.sort_by([(key, "ascending") for key in keys]), temporary)
        replace_durably(path, temporary)
    if dates:
        sync(folder)
    return len(dates)


def count_rows(paths: Iterable[Path]) -> int:
    """Rows of Parquet files, from their footers."""
    return sum(pq.ParquetFile(path).metadata.num_rows for path in paths)
