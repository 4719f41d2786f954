"""Sends many requests with a limited number in flight.

A request is a function that sends it and returns a future. The results are in the order of the requests. After the
connection or the session is lost, no more requests are sent, because they would fail as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from odradek.zk.port import ConnectionLost, SessionExpired

_T = TypeVar("_T")


class Pipeline(Generic[_T]):
    """Sends requests and returns their results in order. A result is a value or an exception."""

    def __init__(self, submits: Sequence[Callable[[], asyncio.Future[_T]]], limit: int) -> None:
        """`limit` is the maximum number of requests in flight, at least 1."""
        self._submits = submits
        self._limit = limit
        self._next = 0
        self._open = 0
        self._results: list[_T | BaseException] = [ConnectionLost("not sent")] * len(submits)
        self._finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> list[_T | BaseException]:
        """Send all requests and wait for their results."""
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
            # Requests that are not sent keep their initial result, a lost connection.
            self._next = len(self._submits)
        if self._next < len(self._submits) and not self._finished.done():
            self._send()
        elif not self._open and not self._finished.done():
            self._finished.set_result(None)
