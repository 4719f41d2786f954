"""A hierarchical timing wheel; `timer/purgatory` adds entries, advances the time and gets the entries that are due.

It follows Varghese and Lauck, "Hashed and hierarchical timing wheels" (1987), in Kafka's variant. A wheel is a ring of
`wheel_size` buckets, each one tick wide. Time is counted in whole ticks: the current time of a wheel is always a
multiple of its tick. An entry beyond the span of the ring goes to an overflow wheel, whose tick is the whole span of
the wheel below; overflow wheels are created on demand. When the time reaches a bucket of an overflow wheel, its entries
are inserted again into lower wheels, and finally into the lowest wheel, whose buckets expire. Insertion and removal
cost O(1) for a bounded number of levels (a bucket is a doubly linked ring, and an entry knows its neighbors). A heap
contains only the start times of buckets in use, so that time skips empty ones.

Invariant: each entry either expires exactly once or is removed. It never expires before its deadline, and at most one
tick after it (if `advance` is called then), because deadlines are rounded up to a tick.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import ceil
from typing import Final


class TimerEntry:
    """Base class of entries with a deadline. An entry can be in one wheel; equality is identity."""

    __slots__ = ("_bucket", "_next", "_previous", "deadline_tick", "expiration_ms")

    def __init__(self, expiration_ms: float) -> None:
        """`expiration_ms`: monotonic time at which the entry is due."""
        self.expiration_ms = expiration_ms
        self.deadline_tick = 0
        self._bucket: _Bucket | None = None
        self._previous: TimerEntry = self
        self._next: TimerEntry = self

    @property
    def is_scheduled(self) -> bool:
        """Whether the entry is in a wheel."""
        return self._bucket is not None

    def remove(self) -> bool:
        """Remove the entry from its wheel in O(1). Returns False if it is in none."""
        bucket = self._bucket
        if bucket is None:
            return False
        self._previous._next = self._next
        self._next._previous = self._previous
        self._previous = self._next = self
        self._bucket = None
        bucket.wheel.size -= 1
        return True


class _Bucket:
    """A doubly linked ring of entries around a sentinel."""

    __slots__ = ("root", "start_tick", "wheel")

    def __init__(self, wheel: TimingWheel) -> None:
        self.wheel = wheel
        self.root = TimerEntry(0)
        self.start_tick = -1
        """When the span of the bucket begins; -1 if the bucket is not in the heap."""

    @property
    def is_empty(self) -> bool:
        return self.root._next is self.root

    def add(self, entry: TimerEntry) -> None:
        root = self.root
        last = root._previous
        entry._previous, entry._next, entry._bucket = last, root, self
        last._next = root._previous = entry
        self.wheel.size += 1

    def take_all(self) -> list[TimerEntry]:
        """Empty the bucket. Returns its entries in insertion order."""
        taken: list[TimerEntry] = []
        while not self.is_empty:
            entry = self.root._next
            entry.remove()
            taken.append(entry)
        return taken


class TimingWheel:
    """All levels of the hierarchy. `size` is the number of waiting entries."""

    __slots__ = ("_current_tick", "_heap", "_levels", "_tick_ms", "_wheel_size", "size")

    def __init__(self, tick_ms: float = 1.0, wheel_size: int = 20, start_ms: float = 0.0) -> None:
        """`tick_ms`: resolution of the lowest wheel, above 0. `wheel_size`: buckets per wheel, at least 2."""
        if tick_ms <= 0 or wheel_size < 2:
            raise ValueError(f"a wheel needs a positive tick and at least 2 buckets, not {tick_ms} and {wheel_size}")
        self._tick_ms: Final = tick_ms
        self._wheel_size: Final = wheel_size
        self._current_tick = int(start_ms // tick_ms)
        self._levels: list[list[_Bucket]] = []
        self._heap: list[tuple[int, int, int]] = []  # (start tick, level, slot)
        self.size = 0

    @property
    def levels(self) -> int:
        """Number of wheels, including the lowest one."""
        return len(self._levels)

    def add(self, entry: TimerEntry) -> bool:
        """Insert an entry, which must not be in a wheel. Returns False, and does not keep it, if it is already due."""
        if entry._bucket is not None:
            raise ValueError("the entry is already in a wheel")
        entry.deadline_tick = ceil(entry.expiration_ms / self._tick_ms)
        return self._insert(entry)

    def advance(self, now_ms: float) -> list[TimerEntry]:
        """Advance to `now_ms` (an earlier time does nothing). Returns the entries that are due, by deadline."""
        now_tick = int(now_ms // self._tick_ms)
        if now_tick <= self._current_tick:
            return []
        due: list[TimerEntry] = []
        heap = self._heap
        while heap and heap[0][0] <= now_tick:
            _, level, slot = heappop(heap)
            bucket = self._levels[level][slot]
            bucket.start_tick = -1
            due += bucket.take_all()
        # Every bucket whose span has begun is empty now, so slots can be reused from the new time on.
        self._current_tick = now_tick
        expired = [entry for entry in due if not self._insert(entry)]
        expired.sort(key=_deadline)
        return expired

    def next_expiry_ms(self) -> float | None:
        """Return when `advance` next has work (an expiry or a cascade); None if nothing waits."""
        heap = self._heap
        while heap:
            start_tick, level, slot = heap[0]
            bucket = self._levels[level][slot]
            if not bucket.is_empty:
                return start_tick * self._tick_ms
            bucket.start_tick = -1
            heappop(heap)
        return None

    def entries(self) -> list[TimerEntry]:
        """Return all waiting entries by deadline."""
        found: list[TimerEntry] = []
        for level in self._levels:
            for bucket in level:
                entry = bucket.root._next
                while entry is not bucket.root:
                    found.append(entry)
                    entry = entry._next
        found.sort(key=_deadline)
        return found

    def _insert(self, entry: TimerEntry) -> bool:
        """Insert an entry into the lowest wheel whose span contains its deadline."""
        deadline, current, wheel_size = entry.deadline_tick, self._current_tick, self._wheel_size
        if deadline <= current:
            return False
        level, unit = 0, 1
        while deadline // unit - current // unit >= wheel_size:
            level += 1
            unit *= wheel_size
        while len(self._levels) <= level:
            self._levels.append([_Bucket(self) for _ in range(wheel_size)])
        position = deadline // unit
        slot = position % wheel_size
        bucket = self._levels[level][slot]
        bucket.add(entry)
        if bucket.start_tick < 0:
            bucket.start_tick = position * unit
            heappush(self._heap, (bucket.start_tick, level, slot))
        return True


def _deadline(entry: TimerEntry) -> int:
    return entry.deadline_tick
