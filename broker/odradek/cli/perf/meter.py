"""Counts of records and bytes with the time they took, and their summaries. Pure.

The commands pass the time of a monotonic clock in seconds.
"""

from __future__ import annotations

from typing import Final

from odradek.cli.perf.latencies import Latencies

_MIB: Final = 1 << 20
REPORT_SECONDS: Final = 1.0
"""Time between two lines of progress."""


class Meter:
    """Measures one run."""

    __slots__ = ("_began", "_last", "_last_bytes", "_last_records", "_now", "bytes", "latencies", "records")

    def __init__(self, began: float) -> None:
        """The run begins at `began`."""
        self.records = 0
        """Records so far."""
        self.bytes = 0
        """Bytes of their values."""
        self.latencies = Latencies()
        self._began = began
        self._now = began
        self._last = began
        self._last_records = 0
        self._last_bytes = 0

    def add(self, records: int, size_bytes: int, now: float) -> None:
        """Count records that are complete now."""
        self.records += records
        self.bytes += size_bytes
        self._now = now

    def progress(self, now: float) -> str | None:
        """Return a line about the time since the last one. None if that time is too short."""
        seconds = now - self._last
        if seconds < REPORT_SECONDS:
            return None
        records, size = self.records - self._last_records, self.bytes - self._last_bytes
        self._last, self._last_records, self._last_bytes = now, self.records, self.bytes
        return f"{self.records} records, {records / seconds:.0f} records/s, {size / seconds / _MIB:.2f} MiB/s"

    @property
    def seconds(self) -> float:
        """Length of the run."""
        return self._now - self._began

    def value(self) -> dict[str, object]:
        """Return the summary for JSON. Latencies are in milliseconds."""
        seconds = self.seconds
        value: dict[str, object] = {
            "records": self.records,
            "bytes": self.bytes,
            "seconds": round(seconds, 3),
            "recordsPerSecond": round(self.records / seconds, 1) if seconds > 0 else 0.0,
            "mebibytesPerSecond": round(self.bytes / seconds / _MIB, 3) if seconds > 0 else 0.0,
        }
        if self.latencies.count:
            value["latencyMs"] = self.latencies.value()
        return value

    def text(self) -> str:
        """Return the summary for people."""
        value = self.value()
        line = (
            f"{self.records} records ({self.bytes / _MIB:.2f} MiB) in {self.seconds:.2f} s: "
            f"{value['recordsPerSecond']:.0f} records/s, {value['mebibytesPerSecond']:.2f} MiB/s"
        )
        return f"{line}\n{self.latencies.text()}" if self.latencies.count else line


class Pace:
    """Limits the throughput: tells how long to wait before the next record."""

    __slots__ = ("_began", "_interval", "_sent")

    def __init__(self, records_per_second: float, began: float) -> None:
        """`records_per_second` must be positive. The first record is due at `began`."""
        self._began = began
        self._interval = 1 / records_per_second
        self._sent = 0

    def next(self, now: float) -> float:
        """Count a record, and return the seconds until it is due; 0 if it is."""
        due = self._began + self._sent * self._interval
        self._sent += 1
        return max(0.0, due - now)
