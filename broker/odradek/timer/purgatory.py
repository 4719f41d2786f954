"""Delayed operations: what cannot be answered yet waits here for its condition or its time limit.

An operation enters with the keys whose change may fulfil it; whoever changes something calls `check(key)`. Replication
parks produces and fetches here, coordinators joins and heartbeats. All calls happen on the event loop.

Invariants: an operation completes exactly once, by its condition, by time or by `close`; a completed one is never asked
again. Memory is bounded by what really waits: a completed operation leaves the wheel at once and the list of the key
that completed it; from the lists of its other keys it is swept when more than `purge_interval` such left-overs exist.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Final, Generic, TypeVar, cast

from odradek.base.ports import Clock, Timer
from odradek.timer.wheel import TimerEntry, TimingWheel

logger = logging.getLogger(__name__)


class DelayedOperation(TimerEntry):
    """Something that waits. Subclasses say when it is fulfilled (`try_complete`) and what then happens (`on_complete`).

    These two are abstract: a subclass without them is a bug, which the first use shows.
    """

    __slots__ = ("_left_behind", "is_completed", "timeout_ms")

    def __init__(self, timeout_ms: float) -> None:
        """`timeout_ms`: longest wait, counted from the entry into the purgatory; 0 or less expires at once."""
        super().__init__(0.0)
        self.timeout_ms = timeout_ms
        self.is_completed = False
        self._left_behind: Callable[[], None] | None = None

    def try_complete(self) -> bool:
        """Whether the condition holds now; must change nothing. It may instead call `complete` and return True."""
        raise NotImplementedError

    def on_complete(self) -> None:
        """Answer: called exactly once, whatever ended the wait."""
        raise NotImplementedError

    def on_expire(self) -> None:
        """Called after `on_complete` when time, not the condition, ended the wait; for counting."""

    def complete(self) -> bool:
        """End the wait, whether or not the condition holds; False when it has ended before."""
        if self.is_completed:
            return False
        self.is_completed = True
        self.remove()
        if self._left_behind is not None:
            self._left_behind()
        self.on_complete()
        return True


Operation = TypeVar("Operation", bound=DelayedOperation)


class Purgatory(Generic[Operation]):
    """Operations of one kind, watched by key and by time.

    An operation that raises is completed all the same; the error is logged and its neighbours are served.
    """

    def __init__(
        self,
        clock: Clock,
        name: str,
        *,
        tick_ms: float = 1.0,
        wheel_size: int = 20,
        purge_interval: int = 1000,
    ) -> None:
        """`name` is for logs and metrics. Tick, wheel size and purge interval are Kafka's (1 ms, 20, 1000)."""
        self.name: Final = name
        self._clock = clock
        self._wheel = TimingWheel(tick_ms, wheel_size, clock.monotonic_ms())
        self._watchers: dict[Hashable, list[Operation]] = {}
        self._purge_interval = purge_interval
        self._completed_entries = 0
        self._timer: Timer | None = None
        self._timer_ms = 0.0
        self._is_closed = False

    @property
    def size(self) -> int:
        """Operations that wait."""
        return self._wheel.size

    @property
    def watched(self) -> int:
        """Entries of all watch lists; an operation counts once for each key, completed ones until they are swept."""
        return sum(map(len, self._watchers.values()))

    def try_complete_else_watch(self, operation: Operation, keys: Iterable[Hashable]) -> bool:
        """True when the operation is completed on return, else it waits under every key and for its time."""
        if operation.is_completed or self._try(operation):
            return True
        operation.expiration_ms = self._clock.monotonic_ms() + operation.timeout_ms
        if operation.timeout_ms <= 0 or self._is_closed:
            self._expire(operation)
            return True
        watchers = self._watchers
        count = 0
        for key in keys:
            count += 1
            waiting = watchers.get(key)
            if waiting is None:
                watchers[key] = [operation]
            else:
                waiting.append(operation)
        operation._left_behind = partial(self._leave, count)
        if not self._wheel.add(operation):
            self._expire(operation)
            return True
        if self._timer is None or operation.expiration_ms < self._timer_ms:
            self._arm()
        return False

    def check(self, key: Hashable) -> int:
        """Ask every operation that waits for `key`; how many this completed."""
        if not self._watchers:
            return 0
        waiting = self._watchers.pop(key, None)
        if waiting is None:
            return 0
        completed = 0
        left: list[Operation] = []
        for operation in waiting:
            if operation.is_completed:
                self._completed_entries -= 1
            elif self._try(operation):
                completed += 1
                self._completed_entries -= 1  # of the entries it leaves behind, this one is dropped now
            else:
                left.append(operation)
        if left:
            # An answer may have led to new operations under the same key.
            newer = self._watchers.get(key)
            self._watchers[key] = left if newer is None else left + newer
        self._completed_entries = max(0, self._completed_entries)  # a nested sweep may have counted some already
        if self._completed_entries > self._purge_interval:
            self._purge()
        return completed

    def watch_too(self, key: Hashable, other: Hashable) -> None:
        """Let the operations that wait under `key` wait under `other` as well; more than once does no harm.

        The list of `other` counts for sweeps as if it were swept already: its entries go with its next check.
        """
        waiting = [operation for operation in self._watchers.get(key, ()) if not operation.is_completed]
        there = self._watchers.get(other, [])
        added = [operation for operation in waiting if operation not in there]
        if added:
            self._watchers[other] = there + added

    def close(self) -> None:
        """End every wait as if its time had come, in the order of deadlines; later ones expire at once. Idempotent."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for entry in self._wheel.entries():
            self._expire(cast("Operation", entry))
        self._watchers.clear()
        self._completed_entries = 0

    def _try(self, operation: Operation) -> bool:
        try:
            if not operation.try_complete():
                return operation.is_completed
        except Exception:
            logger.exception("purgatory %s: the condition of %r failed, it is answered now", self.name, operation)
        self._complete(operation)
        return True

    def _expire(self, operation: Operation) -> None:
        if self._complete(operation):
            operation.on_expire()

    def _complete(self, operation: Operation) -> bool:
        try:
            return operation.complete()
        except Exception:
            logger.exception("purgatory %s: the answer of %r failed", self.name, operation)
            return True

    def _leave(self, entries: int) -> None:
        self._completed_entries += entries

    def _arm(self) -> None:
        """Set the one timer to the wheel's next expiry; none when nothing waits, so an idle broker does not tick."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        next_ms = self._wheel.next_expiry_ms()
        if next_ms is not None:
            self._timer_ms = next_ms
            self._timer = self._clock.call_later(next_ms - self._clock.monotonic_ms(), self._tick)

    def _tick(self) -> None:
        self._timer = None
        for entry in self._wheel.advance(self._clock.monotonic_ms()):
            self._expire(cast("Operation", entry))
        if self._completed_entries > self._purge_interval:
            self._purge()
        if self._timer is None and not self._is_closed:
            self._arm()

    def _purge(self) -> None:
        """Sweep completed operations out of every list."""
        for key, waiting in list(self._watchers.items()):
            left = [operation for operation in waiting if not operation.is_completed]
            if left:
                self._watchers[key] = left
            else:
                del self._watchers[key]
        self._completed_entries = 0
