"""Upserts of small results into Parquet files by date, which are replaced atomically.

The driver holds the updates and the file of one date in memory, so this is for aggregates, not for records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyspark_odradek.pipelines.file_store import FileStore

ROWS_FILE: Final = "windows.parquet"


def upsert_by_date(store: FileStore, updates: pa.Table, *, keys: Sequence[str]) -> int:
    """Merge rows into `date=.../windows.parquet`, replacing those with equal `keys`. Returns the number of dates.

    `updates` has a text column `date` and at most one row per key; a null is equal to a null. The file of each date is
    replaced atomically. Repeating the call changes nothing, so a micro-batch that is repeated after a crash may call it
    again.
    """
    dates = pc.unique(updates.column("date")).to_pylist()
    for date in sorted(dates):
        rows = updates.filter(pc.equal(updates.column("date"), date)).drop_columns(["date"])
        path = f"date={date}/{ROWS_FILE}"
        try:
            known = pq.ParquetFile(pa.BufferReader(store.read(path))).read()
        except FileNotFoundError:
            known = rows.slice(0, 0)
        merged = _merged(known.select(rows.column_names).cast(rows.schema), rows, keys)
        sink = pa.BufferOutputStream()
        pq.write_table(merged.sort_by([(key, "ascending") for key in keys]), sink)
        store.replace(path, sink.getvalue().to_pybytes())
    return len(dates)


def _merged(known: pa.Table, rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the last row of each key."""
    both = pa.concat_tables([known, rows])
    numbered = both.select(list(keys)).append_column("_number", pa.array(range(both.num_rows), pa.int64()))
    # Grouping takes nulls for equal; a join would not.
    last = numbered.group_by(list(keys)).aggregate([("_number", "max")])
    return both.take(last.column("_number_max"))
