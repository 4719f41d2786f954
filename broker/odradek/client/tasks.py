"""Tasks with a parent: what a client starts in the background, it ends on close.

Called by every client. Invariant: after `close` returned, none of the tasks runs any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

_LOG: Final = logging.getLogger(__name__)


class TaskOwner:
    """The tasks of one client."""

    def __init__(self, on_failure: Callable[[BaseException], None] | None = None) -> None:
        """`on_failure` hears of an error that a task let out."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._on_failure = on_failure

    def spawn(self, work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """Run `work` until it ends or `close` cancels it. An error that it lets out is a bug, and is logged as one."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _LOG.error("client task %s ended by an error", task.get_name(), exc_info=error)
            if self._on_failure is not None:
                self._on_failure(error)

    async def close(self) -> None:
        """Cancel all and wait for their ends; idempotent."""
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def finish(work: Coroutine[Any, Any, None]) -> None:
    """Run a clean-up to its end even when the caller is cancelled meanwhile; the cancellation is raised after it."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            await asyncio.wait({task})
        raise
