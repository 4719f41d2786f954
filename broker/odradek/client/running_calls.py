"""The calls of a client that are in progress, so that `close` can wait for them.

`cluster_client` uses it. A call may have several steps, each of which retries by itself; while the client is closing,
the tasks that had a call may begin further steps, and others are refused.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

from odradek.base.errors import NetworkError
from odradek.base.tasks import at_most


class RunningCalls:
    """The calls in progress of one client. Used as a context manager around each step."""

    def __init__(self) -> None:
        """There is none at first."""
        self._steps: Final[Counter[asyncio.Task[Any] | None]] = Counter()
        self._admitted: frozenset[asyncio.Task[Any] | None] | None = None
        self._ended: Final = asyncio.Event()
        self.aborted = False
        """Whether the client was closed although calls were in progress."""

    def __enter__(self) -> None:
        """Begin a step. Raises `NetworkError` if the client is closing."""
        task = asyncio.current_task()
        if self._admitted is not None and task not in self._admitted:
            raise NetworkError("the client is closed")
        self._steps[task] += 1

    def __exit__(self, *error: object) -> None:
        """End a step."""
        task = asyncio.current_task()
        self._steps[task] -= 1
        if not self._steps[task]:
            del self._steps[task]
        self._ended.set()

    async def drain(self, timeout_ms: float | None) -> None:
        """Admit no further call, and wait until all have ended, at most `timeout_ms`; None: without limit."""
        self._admitted = frozenset(self._steps)
        async with at_most(timeout_ms) as limit:
            while self._steps:
                self._ended.clear()
                await self._ended.wait()
        self.aborted = limit.expired()
