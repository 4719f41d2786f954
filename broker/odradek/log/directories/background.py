"""Tasks and timers that end with their owner, and blocking calls that outlive the tasks.

`log/log_manager` and the modules under it start their work here. Invariants: after `close` nothing runs and nothing
starts, except for blocking calls, for which `settle` waits; a task that fails because of a bug is logged and affects no
other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from odradek.base.ports import Clock, RunBlocking, Timer
from odradek.base.tasks import TaskOwner

T = TypeVar("T")

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


class BlockingCalls:
    """A `RunBlocking` wrapper that tracks the running calls.

    A thread continues when the task that waits for it is cancelled. Code that then writes the same files, such as a
    shutdown, must call `settle` first, so that two threads do not write one file.
    """

    __slots__ = ("_run_blocking", "_under_way")

    def __init__(self, run_blocking: RunBlocking) -> None:
        """Wrap `run_blocking`."""
        self._run_blocking = run_blocking
        self._under_way: set[asyncio.Future[Any]] = set()

    def __call__(self, function: Callable[[], T], /) -> Awaitable[T]:
        """Start a call. If its caller is cancelled, the call continues."""
        call = asyncio.ensure_future(self._run_blocking(function))
        self._under_way.add(call)
        call.add_done_callback(self._under_way.discard)
        return asyncio.shield(call)

    async def settle(self) -> None:
        """Wait until all calls are done, whether they succeed or fail."""
        while self._under_way:
            await asyncio.wait(self._under_way)
