"""Upserts of windows: new totals replace old ones, other rows stay, and a repetition changes nothing."""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_odradek.pipelines.file_store import LocalStore
from pyspark_odradek.pipelines.upserts import upsert_by_date

KEYS = ("window_start", "carrier")
EPOCH = datetime.datetime(2013, 1, 1, tzinfo=datetime.UTC)
Rows = dict[tuple[int, str | None], int]


def table(rows: Rows) -> pa.Table:
    starts = [EPOCH + datetime.timedelta(hours=hour) for hour, _ in rows]
    return pa.table(
        {
            "window_start": pa.array(starts, pa.timestamp("us", tz="UTC")),
            "carrier": pa.array([carrier for _, carrier in rows], pa.string()),
            "departures": pa.array(list(rows.values()), pa.int64()),
            "date": pa.array([start.strftime("%Y-%m-%d") for start in starts], pa.string()),
        }
    )


def stored(folder: Path) -> Rows:
    rows: Rows = {}
    for path in sorted(folder.glob("date=*/*")):
        for row in pq.ParquetFile(path).read().to_pylist():
            assert path.parent.name == f"date={row['window_start']:%Y-%m-%d}"
            key = (round((row["window_start"] - EPOCH).total_seconds()) // 3600, row["carrier"])
            assert key not in rows
            rows[key] = row["departures"]
    return rows


def test_new_totals_replace_old_ones(tmp_path: Path) -> None:
    assert upsert_by_date(LocalStore(tmp_path), table({(0, "UA"): 1, (1, "UA"): 2, (30, "DL"): 3}), keys=KEYS) == 2
    assert upsert_by_date(LocalStore(tmp_path), table({(1, "UA"): 5, (1, "DL"): 1}), keys=KEYS) == 1
    assert stored(tmp_path) == {(0, "UA"): 1, (1, "UA"): 5, (1, "DL"): 1, (30, "DL"): 3}


def test_no_update_writes_nothing(tmp_path: Path) -> None:
    assert upsert_by_date(LocalStore(tmp_path), table({}), keys=KEYS) == 0
    assert list(tmp_path.iterdir()) == []


windows = st.dictionaries(st.tuples(st.integers(0, 60), st.sampled_from(["UA", "DL", "", None])), st.integers(0, 99))


@settings(deadline=None, max_examples=40)
@given(st.lists(windows, max_size=4), st.data())
def test_upserts_are_a_dictionary_even_when_repeated(
    tmp_path_factory: pytest.TempPathFactory, updates: list[Rows], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("windows")
    expected: Rows = {}
    for update in updates:
        for _ in range(data.draw(st.integers(1, 2))):
            upsert_by_date(LocalStore(folder), table(update), keys=KEYS)
        expected.update(update)
    assert stored(folder) == expected
