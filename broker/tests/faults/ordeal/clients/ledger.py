"""The file in which a writer stores its acknowledged records, and the rate at which it writes records.

Entries are written in groups. A concurrent reader sees complete entries and perhaps a part of the last one. A record
that failed is counted and reported: with idempotence and a long delivery timeout, no record should fail.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from ordeal.records import entry_of

_FLUSH_SECONDS: Final = 0.1
_MOST_FAILURES: Final = 10


class Ledger:
    """The results of all records of one writer."""

    def __init__(self, path: Path) -> None:
        """Create or truncate the file."""
        self._file: Final = path.open("wb", buffering=0)
        self._waiting = bytearray()
        self._flushed_at = 0.0
        self.acknowledged = 0
        self.failures: list[str] = []
        self.failed = 0

    def __enter__(self) -> Self:
        """Return the ledger."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write the remaining entries and close the file."""
        self.flush()
        self._file.close()

    def note(self, partition: int, number: int, offset: int) -> None:
        """Store that a record was acknowledged now."""
        self._waiting += entry_of(partition, number, offset, time.monotonic())
        self.acknowledged += 1

    def fail(self, partition: int, number: int, reason: str) -> None:
        """Store that a record failed."""
        self.failed += 1
        if len(self.failures) < _MOST_FAILURES:
            self.failures.append(f"partition {partition}: record {number} failed: {reason}")

    def flush(self) -> None:
        """Write all buffered entries."""
        if self._waiting:
            self._file.write(self._waiting)
            self._waiting.clear()

    def flush_if_due(self) -> None:
        """Write all buffered entries if the last write was at least `_FLUSH_SECONDS` ago."""
        now = time.monotonic()
        if now - self._flushed_at >= _FLUSH_SECONDS:
            self._flushed_at = now
            self.flush()


class Pace:
    """The schedule of rounds of records. Rounds that were missed are skipped."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`rate` is in rounds per second. `clock` returns seconds and is for tests."""
        self._interval: Final = 1 / rate
        self._clock: Final = clock
        self._due = clock()
        self.rounds = 0
        self.worst_ms = 0.0
        """The longest delay of a round, caused by this process."""

    def wait_s(self) -> float:
        """Return the seconds until the next round; 0 if it is due."""
        return max(0.0, self._due - self._clock())

    def begin(self) -> int:
        """Begin the round that is due, and return its number."""
        late = self._clock() - self._due
        self.worst_ms = max(self.worst_ms, late * 1000)
        self._due += self._interval * (1 + int(late / self._interval))
        self.rounds += 1
        return self.rounds - 1


def summary_of(ledger: Ledger, pace: Pace, partitions: Iterable[int]) -> dict[str, Any]:
    """Return the result of a writer."""
    return {
        "partitions": list(partitions),
        "sent": pace.rounds,
        "acknowledged": ledger.acknowledged,
        "failed": ledger.failed,
        "failures": ledger.failures,
        "late_ms": pace.worst_ms,
    }
