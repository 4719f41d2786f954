"""Tasks and timers that have one owner and end with it, and calls in threads that outlive the tasks.

Coroutines and callbacks enter; `log.manager` and what stands on it start them here. Invariant: after `close` nothing
runs and nothing starts, but for the calls that `settle` then waits for; a task that ends by a bug is told, and ends
alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from odradek.base.ports import Clock, RunBlocking, Timer

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Background:
    """The tasks and timers of one owner."""

    __slots__ = ("_clock", "_tasks", "_timers", "is_closed")

    def __init__(self, clock: Clock) -> None:
        """Nothing runs yet."""
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: set[Timer] = set()
        self.is_closed = False

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine beside its caller; not at all once closed."""
        if self.is_closed:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.critical("a task of the log manager ended by a bug", exc_info=error)

    def call_later(self, delay_ms: float, callback: Callable[[], object]) -> None:
        """Call something after a delay; not at all once closed."""
        if self.is_closed:
            return

        def fire() -> None:
            self._timers.discard(timer)
            callback()

        timer = self._clock.call_later(delay_ms, fire)
        self._timers.add(timer)

    def spawn_later(self, delay_ms: float, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a coroutine after a delay."""
        self.call_later(delay_ms, lambda: self.spawn(work()))

    async def close(self) -> None:
        """Cancel all timers and tasks and wait until the tasks have ended; idempotent."""
        self.is_closed = True
        for timer in list(self._timers):
            timer.cancel()
        self._timers.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class BlockingCalls:
    """A `RunBlocking` over another that knows what is under way.

    A thread goes on when the task that waits for it is cancelled: whoever then does the like of its work, as a stop
    does, waits by `settle` first, lest two of them write one file.
    """

    __slots__ = ("_run_blocking", "_under_way")

    def __init__(self, run_blocking: RunBlocking) -> None:
        """Nothing is under way."""
        self._run_blocking = run_blocking
        self._under_way: set[asyncio.Future[Any]] = set()

    def __call__(self, function: Callable[[], T], /) -> Awaitable[T]:
        """Begin a call; whoever waits for it may be cancelled, it is not."""
        call = asyncio.ensure_future(self._run_blocking(function))
        self._under_way.add(call)
        call.add_done_callback(self._under_way.discard)
        return asyncio.shield(call)

    async def settle(self) -> None:
        """Wait until all calls are done, however they end."""
        while self._under_way:
            await asyncio.wait(self._under_way)
