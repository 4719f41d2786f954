"""Tasks and timers that end with their owner.

`log/log_manager` and the modules under it start their work here. Invariants: after `close` nothing runs and nothing
starts; a task that fails because of a bug is logged and affects no other. Blocking calls outlive the tasks that wait
for them (`directory_worker`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from odradek.base.ports import Clock, Timer
from odradek.base.tasks import TaskOwner

_TASK_NAME: Final = "log-manager"


class Background:
    """The tasks and timers of one owner."""

    __slots__ = ("_clock", "_tasks", "_timers", "is_closed")

    def __init__(self, clock: Clock) -> None:
        """Start without tasks and timers."""
        self._clock = clock
        self._tasks = TaskOwner()
        self._timers: set[Timer] = set()
        self.is_closed = False

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as a task; does nothing once closed."""
        if self.is_closed:
            work.close()
            return
        self._tasks.spawn(work, name=_TASK_NAME)

    def call_later(self, delay_ms: float, callback: Callable[[], object]) -> None:
        """Call a function after a delay; does nothing once closed."""
        if self.is_closed:
            return

        def fire() -> None:
            self._timers.discard(timer)
            callback()

        timer = self._clock.call_later(delay_ms, fire)
        self._timers.add(timer)

    def spawn_later(self, delay_ms: float, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a coroutine after a delay; does nothing once closed."""
        self.call_later(delay_ms, lambda: self.spawn(work()))

    async def close(self) -> None:
        """Cancel all timers and tasks, and wait until the tasks have ended. Idempotent."""
        self.is_closed = True
        for timer in list(self._timers):
            timer.cancel()
        self._timers.clear()
        await self._tasks.close()
