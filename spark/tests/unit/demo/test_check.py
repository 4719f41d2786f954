"""The check of the demonstration reports every kind of difference, because a check that cannot fail proves nothing."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from odradek_demo import check, flights
from pyspark_odradek.pipelines.file_store import LocalStore
from pyspark_odradek.pipelines.upserts import upsert_by_date

ROWS = [
    {"carrier": carrier, "time_hour": f"2013-01-0{day}T10:00:00Z", "dep_delay": delay, "flight": "7", "dest": "IAH"}
    for carrier, day, delay in [("UA", 2, "4"), ("UA", 1, "-3"), ("UA", 1, "4"), ("DL", 1, "NA"), ("UA", 1, "NA")]
]
EVENTS = flights.events(ROWS)
EXPECTED = flights.expected(ROWS)


def test_events_are_json_in_the_order_of_time() -> None:
    assert [(key, stamp) for key, _, stamp in EVENTS[-1:]] == [(b"UA", flights.hour_ms("2013-01-02T10:00:00Z"))]
    assert json.loads(EVENTS[0][1]) == {
        "carrier": "UA", "time_hour": "2013-01-01T10:00:00Z", "dep_delay": -3, "flight": 7, "dest": "IAH",
    }  # fmt: skip
    assert json.loads(EVENTS[2][1])["dep_delay"] is None
    assert flights.hour_ms("1970-01-01T01:00:00Z") == 3_600_000


def test_what_the_csv_says() -> None:
    assert (EXPECTED.flights, EXPECTED.by_carrier) == (5, {"UA": 4, "DL": 1})
    assert EXPECTED.by_date == {"2013-01-01": 4, "2013-01-02": 1}
    total = EXPECTED.windows["2013-01-01T10:00:00Z", "UA"]
    assert (total.departures, total.departed, total.mean_delay) == (3, 2, 0.5)
    assert EXPECTED.windows["2013-01-01T10:00:00Z", "DL"].mean_delay is None


def windows_folder(folder: Path) -> Path:
    rows = [
        {
            "window_start": datetime.datetime.fromisoformat(hour),
            "carrier": carrier,
            "departures": total.departures,
            "departed": total.departed,
            "mean_delay": total.mean_delay,
            "date": hour[:10],
        }
        for (hour, carrier), total in EXPECTED.windows.items()
    ]
    upsert_by_date(LocalStore(folder), pa.Table.from_pylist(rows), keys=("window_start", "carrier"))
    return folder


def test_equal_windows(tmp_path: Path) -> None:
    assert check.compare_windows(check.read_windows(windows_folder(tmp_path)), EXPECTED) == []


def test_windows_that_differ(tmp_path: Path) -> None:
    rows = check.read_windows(windows_folder(tmp_path))
    window = ("2013-01-01T10:00:00Z", "UA")
    for wrong in (
        check.WindowRow(4, 2, 0.5),
        check.WindowRow(3, 1, 0.5),
        check.WindowRow(3, 2, 0.5001),
        check.WindowRow(3, 2, None),
    ):
        assert check.compare_windows({**rows, window: wrong}, EXPECTED)
    assert check.compare_windows({key: row for key, row in rows.items() if key != window}, EXPECTED)
    assert check.compare_windows({**rows, ("2013-01-01T11:00:00Z", "UA"): rows[window]}, EXPECTED)


def test_a_window_that_is_there_twice_is_noticed(tmp_path: Path) -> None:
    path = next(windows_folder(tmp_path).glob("date=2013-01-02/*.parquet"))
    pq.write_table(pq.ParquetFile(path).read(), path.with_name("again.parquet"))
    assert check.compare_windows(check.read_windows(tmp_path), EXPECTED)


def archive_folder(folder: Path, events: list[flights.Event], offsets: list[int]) -> pa.Table:
    for number, ((key, value, stamp), offset) in enumerate(zip(events, offsets, strict=True)):
        moment = datetime.datetime.fromtimestamp(stamp / 1000, datetime.UTC)
        place = folder / f"date={moment:%Y-%m-%d}" / f"{number}.parquet"
        place.parent.mkdir(exist_ok=True)
        row = {"key": key, "value": value, "partition": 0, "offset": offset, "timestamp": moment}
        pq.write_table(pa.Table.from_pylist([row]), place)
    return check.read_archive(folder)


def test_an_equal_archive(tmp_path: Path) -> None:
    table = archive_folder(tmp_path, EVENTS, [0, 1, 2, 3, 4])
    assert check.compare_archive(table, EVENTS, EXPECTED) == []


@pytest.mark.parametrize(
    ("events", "offsets"),
    [
        (EVENTS[:-1], [0, 1, 2, 3]),
        ([*EVENTS, EVENTS[0]], [0, 1, 2, 3, 4, 5]),
        (EVENTS, [0, 1, 2, 3, 3]),
        ([*EVENTS[:-1], (EVENTS[-1][0], b"{}", EVENTS[-1][2])], [0, 1, 2, 3, 4]),
        ([*EVENTS[:-1], (EVENTS[-1][0], EVENTS[-1][1], EVENTS[-1][2] + 1)], [0, 1, 2, 3, 4]),
        ([*EVENTS[:-1], (b"DL", EVENTS[-1][1], EVENTS[-1][2])], [0, 1, 2, 3, 4]),
    ],
    ids=["missing", "doubled", "same offset", "other value", "other time", "other key"],
)
def test_an_archive_that_differs(tmp_path: Path, events: list[flights.Event], offsets: list[int]) -> None:
    assert check.compare_archive(archive_folder(tmp_path, events, offsets), EVENTS, EXPECTED)


def test_the_real_flights_are_all_there() -> None:
    rows = flights.read_flights(flights.data_folder())
    expected = flights.expected(rows)
    assert (expected.flights, len(expected.by_carrier), len(expected.windows)) == (336_776, 16, 60_142)
    assert flights.read_airlines(flights.data_folder())["UA"] == "United Air Lines Inc."
