"""Compares the archive and the windows with the CSV.

The functions return the differences as messages; no message means that everything is equal. They read the Parquet files
with Arrow, without Spark and without the connector, so that a defect there cannot hide itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from odradek_demo.flights import Event, Expected, Window, WindowTotal
from pyspark_odradek.pipelines.manifest import archive_files

_MEAN_TOLERANCE: Final = 1e-9
"""Sums of whole minutes are exact; only the division rounds, and Spark divides the same doubles."""


@dataclass(frozen=True, slots=True)
class WindowRow:
    """A window in the output of the job."""

    departures: int
    departed: int
    mean_delay: float | None


def read_windows(folder: Path) -> dict[Window, WindowRow]:
    """Return all windows. A duplicate gets the key (hour + " again", carrier), so that it counts as an extra window."""
    rows: dict[Window, WindowRow] = {}
    for path in sorted(folder.glob("date=*/*.parquet")):
        for row in pq.ParquetFile(path).read().to_pylist():
            window = (_hour(row["window_start"]), row["carrier"])
            if window in rows:
                window = (f"{window[0]} again", window[1])
            rows[window] = WindowRow(row["departures"], row["departed"], row["mean_delay"])
    return rows


def _hour(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def compare_windows(rows: Mapping[Window, WindowRow], expected: Expected) -> list[str]:
    """Return the windows that are missing, unexpected or different."""
    differences = _compare_names("windows", rows.keys(), expected.windows.keys())
    both = rows.keys() & expected.windows.keys()
    wrong = [window for window in both if not _equal(rows[window], expected.windows[window])]
    if wrong:
        window = min(wrong)
        differences.append(
            f"windows: {len(wrong)} differ, for example {window}: {rows[window]} instead of {expected.windows[window]}"
        )
    return differences


def _equal(row: WindowRow, wanted: WindowTotal) -> bool:
    if (row.departures, row.departed) != (wanted.departures, wanted.departed):
        return False
    if row.mean_delay is None or wanted.mean_delay is None:
        return row.mean_delay is wanted.mean_delay
    return abs(row.mean_delay - wanted.mean_delay) <= _MEAN_TOLERANCE * max(1.0, abs(wanted.mean_delay))


def _compare_names(what: str, actual: Any, wanted: Any) -> list[str]:
    differences = []
    if missing := wanted - actual:
        differences.append(f"{what}: {len(missing)} are missing, for example {min(missing)}")
    if extra := actual - wanted:
        differences.append(f"{what}: {len(extra)} are unexpected, for example {min(extra)}")
    return differences


def read_archive(folder: Path) -> pa.Table:
    """Return the rows of the archive, with the date of their folder."""
    files = [str(path) for path in archive_files(folder)]
    partitioning = ds.partitioning(pa.schema([("date", pa.string())]), flavor="hive")
    return ds.dataset(files, format="parquet", partitioning=partitioning, partition_base_dir=str(folder)).to_table()


def compare_archive(table: pa.Table, produced: list[Event], expected: Expected) -> list[str]:
    """Compare counts by carrier and date with the CSV, and each record with the produced event; look for duplicates."""
    differences = []
    carriers = Counter(key.decode() for key in table.column("key").to_pylist())
    dates = Counter(table.column("date").to_pylist())
    for what, actual, wanted in (
        ("archived flights of carriers", carriers, expected.by_carrier),
        ("archived flights of dates", dates, expected.by_date),
    ):
        wrong = {name for name in actual.keys() | wanted.keys() if actual.get(name, 0) != wanted.get(name, 0)}
        if wrong:
            name = min(wrong)
            differences.append(
                f"{what}: {len(wrong)} differ, for example {name}: {actual.get(name, 0)}, not {wanted.get(name, 0)}"
            )
    places = set(zip(table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True))
    if len(places) != table.num_rows:
        differences.append(f"archive: {table.num_rows - len(places)} records are duplicates")
    stamps = table.column("timestamp").cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    archived = Counter(
        zip(
            table.column("key").to_pylist(),
            table.column("value").to_pylist(),
            stamps.to_pylist(),
            strict=True,
        )
    )
    if archived != Counter(produced):
        differences.append("archive: its records differ from the produced events")
    return differences
