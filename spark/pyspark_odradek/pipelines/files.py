"""Files that are written atomically.

The jobs use it on the driver for durable Parquet files. Invariant: after a crash at any time, each file has its old or
its new content. Unfinished files have names with `.` or `_` at the beginning, which readers of a Parquet folder ignore.
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
    """Make the content of a file, or the entries of a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_durably(path: Path, temporary: Path) -> None:
    """Move `temporary`, which was written before, to `path`."""
    sync(temporary)
    temporary.replace(path)
    sync(path.parent)


def write_text_durably(path: Path, text: str) -> None:
    """Write a small file atomically."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text, encoding="utf-8")
    replace_durably(path, temporary)


def upsert_by_date(folder: Path, updates: pa.Table, *, keys: Sequence[str]) -> int:
    """Merge rows into `folder/date=.../windows.parquet`, replacing those with equal `keys`. Returns the number of
    dates.

    `updates` has a text column `date` and at most one row per key. The file of each date is replaced atomically.
    Repeating the call changes nothing, so a micro-batch that is repeated after a crash may call it again.
    """
    dates = pc.unique(updates.column("date")).to_pylist()
    for date in sorted(dates):
        rows = updates.filter(pc.equal(updates.column("date"), date)).drop_columns(["date"])
        path = folder / f"date={date}" / WINDOWS_FILE
        if path.exists():
            # Read as a single file: in a folder, the `date` in its path would become a column.
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
    """Return the number of rows of Parquet files, from their footers."""
    return sum(pq.ParquetFile(path).metadata.num_rows for path in paths)
