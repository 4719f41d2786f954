"""Worker processes: implements `base.ports.Workers` with the operating system.

It runs module-level functions and returns their results or errors. Only `app/broker` creates it; all other packages use
the port. Invariants: at most `count` processes, each with one function at a time; no process outlives its parent or
`close`; a process that dies is counted, and the next function gets a new one. Exception: a killed process that waits
for a disk ends when the disk answers. It does not count, and nothing waits for it longer than a few seconds.

A worker is a fresh interpreter (without the broker's memory, threads or descriptors, and without importing its main
module), started on demand and ended after an idle time. Both sides exchange pickled frames over a socket pair. A
thread of the worker always reads it, so that the worker notices, even while a function runs, when the parent closes
its end or dies. Signals to the process group of the terminal or container are handled by the parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
import threading
import traceback
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable
from struct import Struct
from typing import Any, Final, TypeVar

from odradek.base.errors import WorkerDiedError

logger = logging.getLogger(__name__)

T = TypeVar("T")

IDLE_SECONDS: Final = 60.0
_LENGTH: Final = Struct(">Q")
_READ_BYTES: Final = 1 << 20
_END_SECONDS: Final = 5.0
"""Time that a worker may take to end after its socket was closed, before it is killed."""

_START: Final = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sys.path[:] = sys.argv[3:]
from odradek.base.workers import serve
serve(int(sys.argv[1]), int(sys.argv[2]))
"""
"""Program of a worker. Its arguments: descriptor of the socket, niceness, the parent's module path."""

_MODEST: Final = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMPY_MADVISE_HUGEPAGE": "0",
}
"""By default, numeric libraries start a thread with buffers for each core and have the kernel clear two megabytes at a
time, which blocks other tasks."""


class _Worker:
    """One process and the parent's side of its socket."""

    __slots__ = ("_process", "_reader", "_writer", "idle_timer")

    def __init__(self, process: subprocess.Popen[bytes], reader: StreamReader, writer: StreamWriter) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self.idle_timer: asyncio.TimerHandle | None = None

    @classmethod
    async def start(cls, niceness: int) -> _Worker:
        ours, theirs = socket.socketpair()
        try:
            command = [sys.executable, "-P", "-c", _START, str(theirs.fileno()), str(niceness), *sys.path]
            process = await asyncio.to_thread(
                subprocess.Popen,
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env={**os.environ, **_MODEST},
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        reader, writer = await asyncio.open_connection(sock=ours, limit=_READ_BYTES)
        return cls(process, reader, writer)

    async def work(self, frame: bytes) -> tuple[bool, Any]:
        """Return whether the function succeeded, and its result or error. Raises `WorkerDiedError`."""
        try:
            self._writer.writelines((_LENGTH.pack(len(frame)), frame))
            await self._writer.drain()
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            content = await self._reader.readexactly(length)
        except (OSError, EOFError) as error:
            raise WorkerDiedError(f"worker process {self._process.pid} ended during a call") from error
        returned, value = pickle.loads(content)
        return returned, value

    async def end(self) -> int:
        """Close the socket, which ends the process, and return its exit status."""
        if self.idle_timer is not None:
            self.idle_timer.cancel()
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
        try:
            return await asyncio.to_thread(self._process.wait, _END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        try:
            return await asyncio.to_thread(self._process.wait, _END_SECONDS)
        except subprocess.TimeoutExpired:
            logger.warning("worker process %d is killed, but ends only when its disk answers", self._process.pid)
            return -signal.SIGKILL

    def abandon(self) -> None:
        """Kill the process without waiting for its end: it may wait for a disk that does not answer."""
        logger.warning("worker process %d is killed: its call was given up", self._process.pid)
        self._process.kill()
        self._writer.close()
        # Not a thread of the executor: Python would wait for it when the broker ends.
        threading.Thread(target=self._process.wait, name="worker-end", daemon=True).start()


class ProcessWorkers:
    """`Workers` with processes of this machine."""

    def __init__(self, count: int, *, niceness: int = 0, idle_seconds: float = IDLE_SECONDS) -> None:
        """At most `count` processes at `niceness` above this one's; an idle process ends after `idle_seconds`."""
        self._niceness = niceness
        self._idle_seconds = idle_seconds
        self._count = count
        self._room = asyncio.Semaphore(count)
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False
        self.deaths = 0
        """Number of processes that ended during a call, or could not be started."""

    def grow(self, count: int) -> None:
        """Raise the maximum number of processes to `count`. Idle processes end by themselves."""
        for _ in range(self._count, count):
            self._room.release()
        self._count = max(self._count, count)

    @property
    def running(self) -> int:
        """Number of processes, busy or idle."""
        return len(self._all)

    async def run(self, function: Callable[..., T], /, *arguments: Any) -> T:
        """Return the result of a module-level function; arguments, result and errors are pickled.

        Raises what the function raises, and `WorkerDiedError` if its process ended or the workers are closed. If the
        call is cancelled, the function runs to its end and its result is dropped.
        """
        task = await self._begin(function, arguments)
        result: T = _value_of(*await asyncio.shield(task))
        return result

    async def run_until(self, given_up: Awaitable[None], function: Callable[..., T], /, *arguments: Any) -> T:
        """See `Workers`."""
        task = await self._begin(function, arguments)
        await asyncio.wait((task, asyncio.ensure_future(given_up)), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))
            raise WorkerDiedError("the call in a worker process was given up")
        result: T = _value_of(*task.result())
        return result

    async def _begin(self, function: Callable[..., T], arguments: tuple[Any, ...]) -> asyncio.Task[tuple[bool, Any]]:
        """Wait for a free place, and start a call. To cancel the task kills the process."""
        frame = pickle.dumps((function, arguments), pickle.HIGHEST_PROTOCOL)
        await self._room.acquire()
        if self._closed:
            self._room.release()
            raise WorkerDiedError("the worker processes are closed")
        task = asyncio.create_task(self._work(frame))
        self._tasks.add(task)
        # The task releases the place, once the process is free again.
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._room.release()
        if not task.cancelled():
            # Counted here, because the caller may have been cancelled.
            task.exception()

    async def _work(self, frame: bytes) -> tuple[bool, Any]:
        worker = self._idle.pop() if self._idle else await self._start()
        if worker.idle_timer is not None:
            worker.idle_timer.cancel()
            worker.idle_timer = None
        try:
            outcome = await worker.work(frame)
        except asyncio.CancelledError:
            self._all.discard(worker)
            worker.abandon()
            raise
        except BaseException:
            status = await asyncio.shield(self._end(worker))
            if not self._closed:
                self.deaths += 1
                logger.error("a worker process ended during a call, with exit status %d", status)
            raise
        self._idle.append(worker)
        worker.idle_timer = asyncio.get_running_loop().call_later(self._idle_seconds, self._retire, worker)
        return outcome

    async def _start(self) -> _Worker:
        try:
            worker = await _Worker.start(self._niceness)
        except OSError as error:
            self.deaths += 1
            raise WorkerDiedError(f"cannot start a worker process: {error}") from error
        self._all.add(worker)
        return worker

    def _retire(self, worker: _Worker) -> None:
        self._idle.remove(worker)
        task = asyncio.create_task(self._end(worker))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end(self, worker: _Worker) -> int:
        try:
            return await worker.end()
        finally:
            self._all.discard(worker)

    async def close(self) -> None:
        """End all processes, including busy ones, and wait for them. Idempotent."""
        self._closed = True
        self._idle.clear()
        await asyncio.gather(*(self._end(worker) for worker in list(self._all)))
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _value_of(returned: bool, value: Any) -> Any:
    """Return the result of a call, or raise its error."""
    if not returned:
        raise value
    return value


# The worker's side


def serve(descriptor: int, niceness: int) -> None:
    """Run functions received from the socket until it is closed, then end the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.nice(niceness)
    connection = socket.socket(fileno=descriptor)
    frames: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, frames), daemon=True).start()
    while True:
        content = _run(frames.get())
        try:
            connection.sendall(_LENGTH.pack(len(content)) + content)
        except OSError:
            os._exit(0)


def _receive(connection: socket.socket, frames: queue.SimpleQueue[bytes]) -> None:
    """Queue frames. The end of the stream ends the process immediately."""
    try:
        while True:
            (length,) = _LENGTH.unpack(_receive_exactly(connection, _LENGTH.size))
            frames.put(_receive_exactly(connection, length))
    except (OSError, EOFError):
        # No cleanup: without the parent the result is lost, and readers of its files expect incomplete ones.
        os._exit(0)


def _receive_exactly(connection: socket.socket, length: int) -> bytes:
    parts = []
    while length:
        part = connection.recv(min(length, _READ_BYTES))
        if not part:
            raise EOFError
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _run(frame: bytes) -> bytes:
    try:
        function, arguments = pickle.loads(frame)
        return pickle.dumps((True, function(*arguments)), pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001 - the caller raises it
        error.add_note(f"In a worker process:\n{traceback.format_exc()}")
        try:
            content = pickle.dumps((False, error), pickle.HIGHEST_PROTOCOL)
            pickle.loads(content)
        except Exception:  # noqa: BLE001 - an error of any class may refuse to be pickled
            content = pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")), pickle.HIGHEST_PROTOCOL)
        return content
