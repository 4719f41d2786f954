"""Implements the port `DiskThreads` with daemon threads.

Only `app/system` and the default of `LogManager` name it. Python waits for the threads of an executor when a process
ends; a thread that waits for a dead disk never ends. Daemon threads do not keep the process alive. Invariants: calls
start in the order in which they were passed; with one thread, each ends before the next one starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final, TypeVar

T = TypeVar("T")


class _Call:
    """A function and the future of its result."""

    __slots__ = ("_ended", "_function", "_future", "_loop")

    def __init__(self, function: Callable[[], Any], loop: asyncio.AbstractEventLoop, ended: Callable[[], None]) -> None:
        self._function = function
        self._loop = loop
        self._ended = ended
        self._future: asyncio.Future[Any] = loop.create_future()

    @property
    def future(self) -> asyncio.Future[Any]:
        """The result, on the event loop."""
        return self._future

    def run(self) -> None:
        """Run the function on a thread, and pass its result to the event loop."""
        result: Any = None
        failure: BaseException | None = None
        try:
            result = self._function()
        except BaseException as error:  # noqa: BLE001 - the caller gets it through the future
            failure = error
        # Without a loop nobody waits for the result: the broker has stopped, and this thread outlived it.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._deliver, result, failure)

    def _deliver(self, result: Any, failure: BaseException | None) -> None:
        self._ended()
        if self._future.done():
            return
        if failure is None:
            self._future.set_result(result)
        else:
            self._future.set_exception(failure)


class DaemonThreads:
    """At most `count` daemon threads that share one queue. All methods are called on one event loop."""

    __slots__ = ("_count", "_is_closed", "_name", "_pending", "_queue", "_started")

    def __init__(self, directory: str, count: int) -> None:
        """`directory` is in the names of the threads."""
        self._name: Final = f"disk {directory}"
        self._count: Final = count
        self._queue: Final[SimpleQueue[_Call | None]] = SimpleQueue()
        self._started = 0
        self._pending = 0
        """Number of calls that have not ended."""
        self._is_closed = False

    def __call__(self, function: Callable[[], T], /) -> asyncio.Future[T]:
        """Pass a call to the threads. Raises `RuntimeError` once closed, or if not even one thread can be started.

        If the caller cancels the future, the call continues and its result is dropped.
        """
        if self._is_closed:
            raise RuntimeError(f"the threads of {self._name} are closed")
        call = _Call(function, asyncio.get_running_loop(), self._one_ended)
        if self._started < min(self._pending + 1, self._count):
            self._start_thread()
        self._pending += 1
        self._queue.put(call)
        return call.future

    def _start_thread(self) -> None:
        try:
            threading.Thread(target=_serve, args=(self._queue,), name=self._name, daemon=True).start()
        except RuntimeError:
            if not self._started:
                raise
            return  # the system refuses another thread: the call waits for one of the others
        self._started += 1

    def _one_ended(self) -> None:
        self._pending -= 1

    def close(self) -> None:
        """End the threads when all earlier calls have ended. Does not wait for them. Idempotent."""
        self._is_closed = True
        for _ in range(self._started):
            self._queue.put(None)
        self._started = 0


def _serve(queue: SimpleQueue[_Call | None]) -> None:
    """Run calls until the threads are closed."""
    while _serve_one(queue):
        continue


def _serve_one(queue: SimpleQueue[_Call | None]) -> bool:
    """Run one call. A function by itself, so that a waiting thread refers to no earlier call and its files."""
    call = queue.get()
    if call is None:
        return False
    call.run()
    return True
