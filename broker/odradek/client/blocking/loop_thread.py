"""One event loop in a daemon thread per process, for callers without an event loop.

`blocking` uses it. Invariants: a process has at most one such thread; after a fork, the child never uses the loop of
the parent, whose sockets and epoll descriptor it shares.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")


class Startable(Protocol):
    """What all asynchronous clients have."""

    async def start(self) -> None:
        """Connect."""
        ...

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        ...


Client = TypeVar("Client", bound=Startable)


class LoopThread:
    """A running loop. Get it with `current`."""

    def __init__(self) -> None:
        """Start the loop in a new thread."""
        self.process_id: Final = os.getpid()
        self._loop: Final = asyncio.new_event_loop()
        self._thread: Final = threading.Thread(target=self._loop.run_forever, name="odradek-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and return its result. An interrupt of the waiting thread, as by Ctrl-C, cancels it.

        Raises `RuntimeError` when called on the loop, because the call would wait for itself.
        """
        self._refuse_on_loop(work)
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def run_for_future(self, work: Coroutine[Any, Any, asyncio.Future[T]]) -> concurrent.futures.Future[T]:
        """Run `work` on the loop. Convert the future that it returns into one that any thread can wait for.

        Cancelling the result does not cancel the future of the loop. Raises `RuntimeError` like `run`.
        """

        async def converted() -> concurrent.futures.Future[T]:
            return _for_threads(await work)

        self._refuse_on_loop(work)
        return self.run(converted())

    def start(self, create: Callable[[], Client]) -> Client:
        """Create an asynchronous client on the loop, start it and return it. If that fails, it is closed."""

        async def work() -> Client:
            client = create()
            try:
                await client.start()
            except BaseException:
                await client.close()
                raise
            return client

        return self.run(work())

    def call(self, function: Callable[[], T]) -> T:
        """Call a function on the loop and return its result."""

        async def work() -> T:
            return function()

        return self.run(work())

    def _refuse_on_loop(self, work: Coroutine[Any, Any, object]) -> None:
        if threading.get_ident() == self._thread.ident:
            work.close()
            raise RuntimeError(
                "the blocking client cannot be used on its own event loop: use the asynchronous client there"
            )


class BlockingContext(AbstractContextManager[T]):
    """A context manager whose begin and end run on the loop, and whose block runs in the caller's thread."""

    def __init__(self, loop: LoopThread, context: AbstractAsyncContextManager[T]) -> None:
        """`context` belongs to `loop`."""
        self._loop: Final = loop
        self._context: Final = context

    def __enter__(self) -> T:
        """Begin."""
        return self._loop.run(_entered(self._context))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        """End. An error of the block is passed on."""
        return self._loop.run(_left(self._context, kind, error, traceback))


async def _entered(context: AbstractAsyncContextManager[T]) -> T:
    return await context.__aenter__()


async def _left(
    context: AbstractAsyncContextManager[T],
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
) -> bool | None:
    return await context.__aexit__(kind, error, traceback)


def _for_threads(source: asyncio.Future[T]) -> concurrent.futures.Future[T]:
    """Return a future that completes when `source` does. Must be called on the loop."""
    target: concurrent.futures.Future[T] = concurrent.futures.Future()

    def copy(done: asyncio.Future[T]) -> None:
        # Read the error also if nobody waits any more. Otherwise asyncio logs that it was never retrieved.
        error = concurrent.futures.CancelledError() if done.cancelled() else done.exception()
        if not target.set_running_or_notify_cancel():
            return
        if error is not None:
            target.set_exception(error)
        else:
            target.set_result(done.result())

    source.add_done_callback(copy)
    return target


class _Process:
    """The state of a process; replaced in a forked child."""

    def __init__(self) -> None:
        self.lock: Final = threading.Lock()
        self.loop: LoopThread | None = None


_process = _Process()
_abandoned: Final[list[object]] = []
"""Objects that a fork inherited. They are kept, because finalizing them would disturb the parent."""


def abandon(thing: object) -> None:
    """Prevent an object of the parent from being finalized in this process."""
    _abandoned.append(thing)


def _after_fork() -> None:
    global _process
    abandon(_process)
    _process = _Process()


os.register_at_fork(after_in_child=_after_fork)


def current() -> LoopThread:
    """Return the loop thread of this process, started on first use."""
    process = _process
    with process.lock:
        if process.loop is None:
            process.loop = LoopThread()
        return process.loop
