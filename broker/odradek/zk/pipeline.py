"""Many requests at once with a bound on those under way.

Requests enter as functions that send one and return its future; results leave in the same order. A lost connection
or session ends the sending, since the rest would fail alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from odradek.zk.port import ConnectionLost, SessionExpired

_T = TypeVar("_T")


class Pipeline(Generic[_T]):
    """Submits many requests with a bound on those under way; results in order, each a value or its exception."""

    def __init__(self, submits: Sequence[Callable[[], asyncio.Future[_T]]], limit: int) -> None:
        """`limit`, at least 1, bounds the requests under way."""
        self._submits = submits
        self._limit = limit
        self._next = 0
        self._open = 0
        self._results: list[_T | BaseException] = [ConnectionLost("not sent")] * len(submits)
        self._finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> list[_T | BaseException]:
        """Send all, wait for all."""
        if not self._submits:
            return []
        for _ in range(min(self._limit, len(self._submits))):
            self._send()
        await self._finished
        return self._results

    def _send(self) -> None:
        index = self._next
        self._next += 1
        self._open += 1
        self._submits[index]().add_done_callback(lambda done: self._done(index, done))

    def _done(self, index: int, done: asyncio.Future[_T]) -> None:
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        self._results[index] = done.result() if error is None else error
        self._open -= 1
        lost = isinstance(error, ConnectionLost | SessionExpired)
        if lost:
            # The rest would fail alike; each unsent one keeps its first answer, a lost connection.
            self._next = len(self._submits)
        if self._next < len(self._submits) and not self._finished.done():
            self._send()
        elif not self._open and not self._finished.done():
            self._finished.set_result(None)
