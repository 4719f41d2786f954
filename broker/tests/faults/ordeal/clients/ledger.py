"""The file in which a writer keeps what was acknowledged, and the pace at which it writes.

Entries are gathered and written many at once; whoever reads the file meanwhile sees whole entries and perhaps a part of
the last. A record that failed for good is counted and told: with idempotence and this much time none should.
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
    """What became of the records of one writer."""

    def __init__(self, path: Path) -> None:
        """The file is made anew."""
        self._file: Final = path.open("wb", buffering=0)
        self._waiting = bytearray()
        self._flushed_at = 0.0
        self.acknowledged = 0
        self.failures: list[str] = []
        self.failed = 0

    def __enter__(self) -> Self:
        """The ledger itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write what is left."""
        self.flush()
        self._file.close()

    def note(self, partition: int, number: int, offset: int) -> None:
        """A record was acknowledged just now."""
        self._waiting += entry_of(partition, number, offset, time.monotonic())
        self.acknowledged += 1

    def fail(self, partition: int, number: int, reason: str) -> None:
        """A record was given up."""
        self.failed += 1
        if len(self.failures) < _MOST_FAILURES:
            self.failures.append(f"partition {partition}: record {number} was given up: {reason}")

    def flush(self) -> None:
        """Write what waits."""
        if self._waiting:
            self._file.write(self._waiting)
            self._waiting.clear()

    def flush_if_due(self) -> None:
        """Write what waits, if some waits for long enough."""
        now = time.monotonic()
        if now - self._flushed_at >= _FLUSH_SECONDS:
            self._flushed_at = now
            self.flush()


class Pace:
    """When the next round of records is due; rounds that were slept through are left out, and counted."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`rate`: rounds per second; `clock` is for tests, in seconds."""
        self._interval: Final = 1 / rate
        self._clock: Final = clock
        self._due = clock()
        self.rounds = 0
        self.worst_ms = 0.0
        """The longest time by which this process itself was late."""

    def wait_s(self) -> float:
        """Seconds until the next round; 0 when it is due."""
        return max(0.0, self._due - self._clock())

    def begin(self) -> int:
        """Begin the round that is due; its number."""
        late = self._clock() - self._due
        self.worst_ms = max(self.worst_ms, late * 1000)
        self._due += self._interval * (1 + int(late / self._interval))
        self.rounds += 1
        return self.rounds - 1


def told(ledger: Ledger, pace: Pace, partitions: Iterable[int]) -> dict[str, Any]:
    """What a writer tells at its end."""
    return {
        "partitions": list(partitions),
        "sent": pace.rounds,
        "acknowledged": ledger.acknowledged,
        "failed": ledger.failed,
        "failures": ledger.failures,
        "late_ms": pace.worst_ms,
    }
