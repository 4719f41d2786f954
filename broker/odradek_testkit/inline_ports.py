"""Implements the ports `DiskThreads` and `Workers` without threads and processes, for virtual time.

Calls run at once, or the test delays them. `StallingThreads` simulates disks that do not answer: the calls on a stalled
directory wait until it is resumed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from odradek.base.errors import WorkerDiedError
from odradek.base.ports import DiskThreads, DiskThreadsMaker, RunBlocking
from odradek.log.directories.directory_worker import READ_THREADS

T = TypeVar("T")


class _Calls:
    """`DiskThreads` that pass each call to a function."""

    __slots__ = ("_run",)

    def __init__(self, run: RunBlocking) -> None:
        self._run = run

    def __call__(self, function: Callable[[], T], /) -> Awaitable[T]:
        """Return what the function returns."""
        return self._run(function)

    def close(self) -> None:
        """Do nothing: there are no threads."""


def threads_that(run: RunBlocking) -> DiskThreadsMaker:
    """Return a maker of threads that pass each call of each directory to `run`."""

    def make(directory: str, count: int) -> DiskThreads:
        return _Calls(run)

    return make


def inline_threads(directory: str, count: int) -> DiskThreads:
    """Return threads that run each call at once, in the caller's thread."""
    return _Calls(_at_once)


async def _at_once(function: Callable[[], T], /) -> T:
    return function()


class StallingThreads:
    """A `DiskThreadsMaker` whose directories stall on command. Otherwise calls run at once."""

    def __init__(self) -> None:
        """All directories answer."""
        self._stalled: set[str] = set()
        self._waiting: dict[str, list[tuple[Callable[[], Any], asyncio.Future[Any]]]] = {}

    def __call__(self, directory: str, count: int) -> DiskThreads:
        """Return the threads of a directory."""

        def run(function: Callable[[], T], /) -> Awaitable[T]:
            if directory not in self._stalled:
                return _at_once(function)
            future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(directory, []).append((function, future))
            return future

        return _Calls(run)

    def stall(self, directory: str) -> None:
        """Let the disk of a directory stop answering. Calls from now on wait."""
        self._stalled.add(directory)

    def waiting(self, directory: str) -> int:
        """Number of calls that wait."""
        return len(self._waiting.get(directory, ()))

    def accept(self, directory: str) -> None:
        """Let the disk answer later calls, while those that wait continue to wait."""
        self._stalled.discard(directory)

    def resume(self, directory: str) -> None:
        """Let the disk of a directory answer again. The waiting calls complete in order."""
        self.accept(directory)
        for function, future in self._waiting.pop(directory, []):
            try:
                future.set_result(function())
            except Exception as error:  # noqa: BLE001 - the caller gets it through the future
                future.set_exception(error)


class HeldReads:
    """A `DiskThreadsMaker` of which one read of records ends only when it is released. All other calls run at once."""

    def __init__(self) -> None:
        """No read is held."""
        self.is_early = True
        """Whether a held read reads at once, so that only its result is late. Otherwise it reads when released."""
        self.total = 0
        """Number of reads so far."""
        self._holds_next = False
        self._held: asyncio.Future[None] | None = None

    def __call__(self, directory: str, count: int) -> DiskThreads:
        """Return the threads of a directory."""
        return _Calls(self._read if count == READ_THREADS else _at_once)

    def hold(self) -> None:
        """Hold the next read."""
        self._holds_next = True

    @property
    def is_holding(self) -> bool:
        """Whether a read is held."""
        return self._held is not None

    def release(self) -> None:
        """Let the held read end."""
        held, self._held = self._held, None
        if held is not None:
            held.set_result(None)

    async def _read(self, function: Callable[[], T], /) -> T:
        self.total += 1
        if not self._holds_next:
            return function()
        self._holds_next = False
        self._held = released = asyncio.get_running_loop().create_future()
        if not self.is_early:
            await released
            return function()
        try:
            return function()
        finally:
            await released


class InlineWorkers:
    """`Workers` that run functions in the caller."""

    def __init__(self) -> None:
        """Create workers that work."""
        self.stalled = False
        """Whether calls of `run_until` wait for a disk that does not answer, until they are given up."""
        self.waiting = 0
        """Number of calls that wait."""
        self.dying = 0
        """Number of next calls that fail as if the process died before it did anything."""
        self.calls = 0

    async def run(self, function: Callable[..., T], /, *arguments: Any) -> T:
        """Return the result of the function, at once."""
        self.calls += 1
        if self.dying:
            self.dying -= 1
            raise WorkerDiedError("the test made the worker die")
        return function(*arguments)

    async def run_until(self, given_up: Awaitable[None], function: Callable[..., T], /, *arguments: Any) -> T:
        """Return the result of the function at once, unless the workers are stalled."""
        if self.stalled:
            self.waiting += 1
            await given_up
            self.waiting -= 1
            raise WorkerDiedError("the call was given up")
        return await self.run(function, *arguments)
