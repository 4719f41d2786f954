"""One event loop in one daemon thread of each process, for callers that have none.

In: coroutines from any thread. Out: their results. Called by `blocking`. Invariants: a process has at most one such
thread; after a fork the child never touches the parent's loop, whose sockets and epoll set it shares.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")


class LoopThread:
    """A running loop. Get it by `current`."""

    def __init__(self) -> None:
        """Start the thread."""
        self.process_id: Final = os.getpid()
        self._loop: Final = asyncio.new_event_loop()
        self._thread: Final = threading.Thread(target=self._loop.run_forever, name="odradek-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for `work` on the loop. An interrupt of the waiting thread (Ctrl-C) cancels it.

        `RuntimeError` when called on the loop itself, where waiting would never end.
        """
        if threading.get_ident() == self._thread.ident:
            work.close()
            raise RuntimeError("the blocking client cannot be used on its own event loop")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[[], T]) -> T:
        """Wait for a plain function on the loop."""

        async def work() -> T:
            return function()

        return self.run(work())


class _Process:
    """What a process has: replaced whole in a forked child."""

    def __init__(self) -> None:
        self.lock: Final = threading.Lock()
        self.loop: LoopThread | None = None


_process = _Process()
_abandoned: Final[list[object]] = []
"""What a fork left behind: never collected, since closing it here would disturb the parent."""


def abandon(thing: object) -> None:
    """Keep something of the parent from ever being finalised in this process."""
    _abandoned.append(thing)


def _after_fork() -> None:
    global _process
    abandon(_process)
    _process = _Process()


os.register_at_fork(after_in_child=_after_fork)


def current() -> LoopThread:
    """The loop thread of this process, started when first needed."""
    process = _process
    with process.lock:
        if process.loop is None:
            process.loop = LoopThread()
        return process.loop
