"""Delayed operations: requests that cannot be answered yet wait here for a condition or a timeout.

An operation is added with the keys whose change may satisfy its condition; code that changes something calls
`check(key)`. Replication uses it for produces and fetches, coordinators for joins and heartbeats. All calls run on the
event loop.

Invariants:
- An operation completes exactly once, by its condition, by timeout or by `close`, and is not checked again after that.
- An operation whose wait is prolonged stays where it is in the wheel, until the time at which it would have expired.
- A completed operation is removed at once from the wheel and from the list of the key that completed it. It stays in
  the lists of its other keys until these are checked or purged.
- The lists are purged when they contain more than `purge_interval` completed operations. As in Kafka, the threshold
  counts operations, not entries: a purge visits every list, so the entries of a fetch of a thousand partitions must not
  cause a purge for each fetch. The lists therefore contain at most `purge_interval` times the keys of an operation
  completed entries, apart from those of operations that complete between two checks.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable
from typing import Any, Final, Generic, TypeVar, cast

from odradek.base.ports import Clock, Timer
from odradek.timer.wheel import TimerEntry, TimingWheel

logger = logging.getLogger(__name__)


class DelayedOperation(TimerEntry):
    """An operation that waits. Subclasses define the condition (`try_complete`) and the completion (`on_complete`).

    Both are abstract: a subclass without them has a bug, which shows at the first use.
    """

    __slots__ = ("_list_entries", "_prolonged_ms", "_watcher", "is_completed", "timeout_ms")

    def __init__(self, timeout_ms: float) -> None:
        """`timeout_ms`: maximum wait, from when the operation is added; 0 or less expires at once."""
        super().__init__(0.0)
        self.timeout_ms = timeout_ms
        self.is_completed = False
        self._watcher: Purgatory[Any] | None = None
        self._list_entries = 0
        """How often the watch lists of the purgatory contain this operation."""
        self._prolonged_ms = 0.0
        """The deadline, if it is later than the one in the wheel."""

    def try_complete(self) -> bool:
        """Return whether the condition holds, without side effects. It may instead call `complete` and return True."""
        raise NotImplementedError

    def on_complete(self) -> None:
        """Answer. Called exactly once, whatever ended the wait."""
        raise NotImplementedError

    def on_expire(self) -> None:
        """Called after `on_complete` if the operation timed out; for counting."""

    def complete(self) -> bool:
        """End the wait, whether or not the condition holds. Returns False if it has already ended."""
        if self.is_completed:
            return False
        self.is_completed = True
        self.remove()
        if self._watcher is not None:
            self._watcher._completed_operations += 1
        self.on_complete()
        return True


Operation = TypeVar("Operation", bound=DelayedOperation)


class Purgatory(Generic[Operation]):
    """Operations of one kind, watched by key and by time.

    If an operation raises, the error is logged, the operation is completed, and other operations are not affected.
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
        """`name` is for logs and metrics. The defaults of tick, wheel size and purge interval are Kafka's.

        `purge_interval`: number of completed operations in the lists above which they are purged.
        """
        self.name: Final = name
        self._clock = clock
        self._wheel = TimingWheel(tick_ms, wheel_size, clock.monotonic_ms())
        self._watchers: dict[Hashable, list[Operation]] = {}
        self.purge_interval: Final = purge_interval
        self._completed_operations = 0
        """Number of completed operations that at least one watch list contains."""
        self._timer: Timer | None = None
        self._timer_ms = 0.0
        self._is_closed = False

    @property
    def size(self) -> int:
        """Number of operations that wait."""
        return self._wheel.size

    @property
    def watched(self) -> int:
        """Number of entries in all watch lists: one per operation and key, including completed ones until the purge."""
        return sum(map(len, self._watchers.values()))

    def try_complete_else_watch(self, operation: Operation, keys: Iterable[Hashable]) -> bool:
        """Return True if the operation is completed; otherwise it now waits under every key until its timeout."""
        if operation.is_completed or self._try(operation):
            return True
        operation.expiration_ms = self._clock.monotonic_ms() + operation.timeout_ms
        if operation.timeout_ms <= 0 or self._is_closed:
            self._expire(operation)
            return True
        watchers = self._watchers
        entries = 0
        for key in keys:
            entries += 1
            waiting = watchers.get(key)
            if waiting is None:
                watchers[key] = [operation]
            else:
                waiting.append(operation)
        if entries:
            operation._list_entries = entries
            operation._watcher = self
        return self._schedule(operation, operation.expiration_ms)

    def _schedule(self, operation: DelayedOperation, deadline_ms: float) -> bool:
        """Let an operation expire at a time. Returns True if that has already happened."""
        operation.expiration_ms = deadline_ms
        if not self._wheel.add(operation):
            self._expire(operation)
            return True
        if self._timer is None or deadline_ms < self._timer_ms:
            self._arm()
        return False

    def check(self, key: Hashable) -> int:
        """Check every operation that waits for `key`. Returns how many this completed."""
        if not self._watchers:
            return 0
        waiting = self._watchers.pop(key, None)
        if waiting is None:
            return 0
        completed = 0
        left: list[Operation] = []
        for operation in waiting:
            if operation.is_completed:
                self._drop_entry(operation)
            elif self._try(operation):
                completed += 1
                self._drop_entry(operation)
            else:
                left.append(operation)
        if left:
            # Completing an operation may have added new ones under the same key.
            newer = self._watchers.get(key)
            self._watchers[key] = left if newer is None else left + newer
        if self._completed_operations > self.purge_interval:
            self._purge()
        return completed

    def restart(self, operation: DelayedOperation, timeout_ms: float) -> None:
        """Let a waiting operation expire in `timeout_ms` from now instead. Completed operations are ignored.

        A later deadline costs no more than an assignment: the wheel looks at it when the earlier one has passed.
        """
        if operation.is_completed:
            return
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        if deadline_ms >= operation.expiration_ms:
            operation._prolonged_ms = deadline_ms
        elif operation.remove():
            operation._prolonged_ms = 0.0
            self._schedule(operation, deadline_ms)

    def watch_too(self, key: Hashable, other: Hashable) -> None:
        """Let the operations that wait under `key` also wait under `other`; repeating it has no effect."""
        waiting = [operation for operation in self._watchers.get(key, ()) if not operation.is_completed]
        there = self._watchers.get(other, [])
        added = [operation for operation in waiting if operation not in there]
        if added:
            self._watchers[other] = there + added
            for operation in added:
                operation._list_entries += 1

    def close(self) -> None:
        """Expire all operations in the order of their deadlines; later ones expire at once. Idempotent."""
        self._is_closed = True
        self._disarm()
        for entry in self._wheel.entries():
            self._expire(cast(DelayedOperation, entry))
        self._purge()

    def _try(self, operation: Operation) -> bool:
        try:
            if not operation.try_complete():
                return operation.is_completed
        except Exception:
            logger.exception(
                "purgatory %s: the condition of %r raised an error, it is completed now", self.name, operation
            )
        self._complete(operation)
        return True

    def _expire(self, operation: DelayedOperation) -> None:
        if self._complete(operation):
            operation.on_expire()

    def _complete(self, operation: DelayedOperation) -> bool:
        try:
            return operation.complete()
        except Exception:
            logger.exception("purgatory %s: the completion of %r raised an error", self.name, operation)
            return True

    def _drop_entry(self, operation: Operation) -> None:
        """Count the removal of one entry of a completed operation from a list."""
        operation._list_entries -= 1
        if not operation._list_entries:
            self._completed_operations -= 1

    def _arm(self) -> None:
        """Set the single timer to the wheel's next expiry; none if nothing waits, so an idle broker does not tick."""
        self._disarm()
        next_ms = self._wheel.next_expiry_ms()
        if next_ms is not None:
            self._timer_ms = next_ms
            self._timer = self._clock.call_later(next_ms - self._clock.monotonic_ms(), self._tick)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._disarm()
        now_ms = self._clock.monotonic_ms()
        for entry in self._wheel.advance(now_ms):
            operation = cast(DelayedOperation, entry)
            if operation.is_completed:
                continue
            if operation._prolonged_ms > now_ms:
                self._schedule(operation, operation._prolonged_ms)
            else:
                self._expire(operation)
        if self._completed_operations > self.purge_interval:
            self._purge()
        if self._timer is None and not self._is_closed:
            self._arm()

    def _purge(self) -> None:
        """Remove completed operations from all lists."""
        for key, waiting in list(self._watchers.items()):
            left: list[Operation] = []
            for operation in waiting:
                if operation.is_completed:
                    self._drop_entry(operation)
                else:
                    left.append(operation)
            if left:
                self._watchers[key] = left
            else:
                del self._watchers[key]
