"""Background tasks that end with their owner, and cleanup that a cancellation does not interrupt.

Clients, the log manager, replication and the broker itself start their background work here. Invariant: after `close`
has returned, none of the tasks runs any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from odradek.base.errors import ConfigError

logger: Final = logging.getLogger(__name__)

T = TypeVar("T")


class TaskOwner:
    """The background tasks of one owner."""

    __slots__ = ("_on_failure", "_tasks")

    def __init__(self, on_failure: Callable[[str, BaseException], None] | None = None) -> None:
        """`on_failure` is called with the name of a task and the exception that it raised."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._on_failure = on_failure

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Run `work` until it ends or `close` cancels it. An exception that it raises is a bug, and is logged."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("the task %s failed", task.get_name(), exc_info=error)
            if self._on_failure is not None:
                self._on_failure(task.get_name(), error)

    async def close(self) -> None:
        """Cancel all tasks, except for the one that calls it, and wait until they have ended. Idempotent."""
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def finish(work: Coroutine[Any, Any, None]) -> None:
    """Run a cleanup to its end even if the caller is cancelled meanwhile; the cancellation is raised afterwards."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            await asyncio.wait({task})
        raise


@asynccontextmanager
async def at_most(timeout_ms: float | None) -> AsyncIterator[asyncio.Timeout]:
    """Cancel the block after `timeout_ms` and continue after it; `expired` of the result says so then.

    None means no limit. Raises `ConfigError` if `timeout_ms` is negative.
    """
    if timeout_ms is not None and timeout_ms < 0:
        raise ConfigError(f"timeout_ms={timeout_ms} is not allowed: it must be at least 0")
    limit = asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000)
    try:
        async with limit:
            yield limit
    except TimeoutError:
        if not limit.expired():
            raise
