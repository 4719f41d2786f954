"""The parent process of a broker: ends the broker's ZooKeeper session when it dies, and kills it when it hangs.

The ephemeral znodes of a crashed broker normally stay until its session times out, and clients wait for that time. The
parent process notices the crash at once. `app/broker_process` calls `supervise`, which forks: the child is the broker,
and the parent waits. Through a pipe, the child sends the id and password of its session and the heartbeats of its event
loop.

Theory of operation. The parent ends a session only after `waitpid` has reported the child: then the child is certainly
dead, and its sockets and files are closed. If a process is only paused, partitioned or slow, its session times out as
usual, and epochs fence it. A child whose event loop has not run for `hang_timeout_ms` gets SIGQUIT, which prints its
stacks as with a JVM, and is then killed. Time in which the parent did not run either (a sleeping laptop, a frozen
container) does not count. When the parent dies, the child dies with it.

A loop that waits for a slow disk is not dead: a restart would wait for the same disk, and would recover all logs
first. So when a heartbeat is overdue, the parent reads from /proc whether the child's main thread, which runs the loop,
is in an uninterruptible wait (`app/disk_wait`). That time is measured separately, and its limit is `DISK_WAIT_FACTOR`
times as long.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import Struct
from types import FrameType
from typing import Final

from odradek.app.disk_wait import disk_wait

logger = logging.getLogger(__name__)

Credentials = tuple[int, bytes]
"""Id and password of a ZooKeeper session."""

BEAT_INTERVAL_MS: Final = 500.0
"""Milliseconds between two heartbeats of the child."""

STACKS_MS: Final = 1_000.0
"""Milliseconds between SIGQUIT, on which a hanging child prints its stacks, and SIGKILL."""

DISK_WAIT_FACTOR: Final = 10
"""An event loop that waits for a disk is killed after this many times `hang_timeout_ms`."""

_FRAME: Final = Struct(">?q16s")
"""Layout of a heartbeat: whether there is a session, its id and its password."""
_NO_PASSWORD: Final = bytes(16)
_READ_FRAMES: Final = 64
_SIGNAL_BASE: Final = 128
_PR_SET_PDEATHSIG: Final = 1
_FORWARDED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


class Lifeline:
    """The child's end of the pipe."""

    def __init__(self, descriptor: int) -> None:
        """`descriptor`: the non-blocking pipe to the parent."""
        self._descriptor: Final = descriptor
        os.set_blocking(descriptor, False)

    def beat(self, credentials: Credentials | None) -> None:
        """Send a heartbeat. The parent ends this session if this process dies."""
        frame = _FRAME.pack(False, 0, _NO_PASSWORD) if credentials is None else _FRAME.pack(True, *credentials)
        # The parent does not read because it is paused. If it had died, this process would be dead, too.
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self._descriptor, frame)


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervision:
    """Settings of the parent. If `hang_timeout_ms` is 0, a hanging child is not killed."""

    hang_timeout_ms: float
    end_session: Callable[[Credentials], None]
    """Called once when a child with a session has died. May block for a few seconds; must not raise."""
    disk_wait: Callable[[int], str | None] = disk_wait
    """Returns where in the kernel the main thread of a process waits for a disk; None if it does not."""


def supervise(work: Callable[[Lifeline], int], supervision: Supervision) -> int:
    """Run `work` in a child process. Returns its exit code, or 128 plus the number of the signal that ended it.

    Must be called from a process without threads. Forwards SIGTERM, SIGINT, SIGHUP and SIGQUIT to the child.
    """
    reading, writing = os.pipe()
    parent = os.getpid()
    # Signals stay blocked until the parent forwards them: its default action would end the parent.
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    child = os.fork()
    if not child:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
        os.close(reading)
        _become_child(parent)
        _run_and_exit(work, Lifeline(writing))
    os.close(writing)
    try:
        with _forwarding_signals(child):
            status, credentials = _Watch(child, reading, supervision).until_death()
    finally:
        os.close(reading)
    if credentials is not None:
        supervision.end_session(credentials)
    return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else _SIGNAL_BASE + os.WTERMSIG(status)


def _become_child(parent: int) -> None:
    """Set up the child: it dies with the parent, prints its stacks on SIGQUIT, and ignores Ctrl-C, which the parent
    forwards."""
    os.setpgid(0, 0)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(_SIGNAL_BASE + signal.SIGKILL)
    faulthandler.register(signal.SIGQUIT, all_threads=True)


def _run_and_exit(work: Callable[[Lifeline], int], lifeline: Lifeline) -> None:
    """Run the work and end this process without returning to the caller."""
    code = 1
    try:
        code = work(lifeline)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        # The last frame of this process: log any error and exit with a failure code.
        logger.exception("the broker stopped because of a bug")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


@contextlib.contextmanager
def _forwarding_signals(child: int) -> Iterator[None]:
    """Forwards signals to the child while it runs."""

    def hand_on(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    before = {number: signal.signal(number, hand_on) for number in _FORWARDED}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Silence:
    """Measures the time since the last heartbeat, without the time in which the parent did not run.

    Time in which the child's event loop waits for a disk is measured separately.
    """

    def __init__(self, limit_ms: float) -> None:
        """`limit_ms` 0 means no limit."""
        self._limit_ms: Final = limit_ms
        self._has_begun = False
        self.lasting_ms = 0.0
        self.disk_wait_ms = 0.0

    @property
    def is_too_long(self) -> bool:
        """Whether the child is to be killed. Before the first heartbeat, it never is."""
        return self._exceeds(self.lasting_ms) or self._exceeds(self.disk_wait_ms / DISK_WAIT_FACTOR)

    @property
    def is_excused(self) -> bool:
        """Whether the child would have to be killed if it did not wait for a disk."""
        return self._exceeds(self.lasting_ms + self.disk_wait_ms) and not self.is_too_long

    def _exceeds(self, time_ms: float) -> bool:
        return self._has_begun and 0 < self._limit_ms < time_ms

    @property
    def limit_of_disk_wait_ms(self) -> float:
        """How long the event loop may wait for a disk."""
        return DISK_WAIT_FACTOR * self._limit_ms

    def heard(self) -> None:
        """Reset after a heartbeat."""
        self.lasting_ms = self.disk_wait_ms = 0.0
        self._has_begun = True

    def passed(self, elapsed_ms: float, *, waits_for_disk: bool = False) -> None:
        """Add time without a heartbeat, at most twice the interval: in the rest, the parent did not run."""
        counted_ms = min(elapsed_ms, 2 * BEAT_INTERVAL_MS)
        if waits_for_disk:
            self.disk_wait_ms += counted_ms
        else:
            self.lasting_ms += counted_ms


class _Watch:
    """Watches one child process."""

    def __init__(self, child: int, reading: int, supervision: Supervision) -> None:
        self._child: Final = child
        self._reading: Final = reading
        self._credentials: Credentials | None = None
        self._silence: Final = Silence(supervision.hang_timeout_ms)
        self._disk_wait: Final = supervision.disk_wait
        self._is_excused = False
        """Whether the disk wait was logged."""

    def until_death(self) -> tuple[int, Credentials | None]:
        """Wait for the child. Returns the status of `waitpid` and the last session that it sent."""
        last = time.monotonic()
        open_pipe = [self._reading]
        while True:
            ready, _, _ = select.select(open_pipe, [], [], BEAT_INTERVAL_MS / 1000)
            if ready and not self._read():
                # The pipe is closed, probably because the child died. `waitpid` reports it.
                return os.waitpid(self._child, 0)[1], self._credentials
            now = time.monotonic()
            elapsed_ms, last = (now - last) * 1000, now
            if not ready:
                self._note_silence(elapsed_ms)
                # The pipe may still be open in a process that the dead child started.
                dead, status = os.waitpid(self._child, os.WNOHANG)
                if dead:
                    self._read_last_words()
                    return status, self._credentials
            if self._silence.is_too_long:
                status = self._end()
                self._read_last_words()
                return status, self._credentials

    def _note_silence(self, elapsed_ms: float) -> None:
        silence, place = self._silence, self._disk_wait(self._child)
        silence.passed(elapsed_ms, waits_for_disk=place is not None)
        if silence.is_excused and not self._is_excused:
            self._is_excused = True
            logger.error(
                "the broker's event loop has not run for %.1f s because it waits for a disk%s: check the disks of "
                "log.dirs; the broker is killed only if this lasts for %.0f s",
                (silence.lasting_ms + silence.disk_wait_ms) / 1000,
                f" ({place})" if place else "",
                silence.limit_of_disk_wait_ms / 1000,
            )

    def _heard(self) -> None:
        if self._is_excused:
            self._is_excused = False
            logger.warning(
                "the broker's event loop runs again; it waited for a disk for %.1f s", self._silence.disk_wait_ms / 1000
            )
        self._silence.heard()

    def _read(self) -> bool:
        """Read heartbeats. Returns False at the end of the pipe."""
        data = os.read(self._reading, _READ_FRAMES * _FRAME.size)
        whole = len(data) - len(data) % _FRAME.size
        if whole:
            has_session, session_id, password = _FRAME.unpack_from(data, whole - _FRAME.size)
            self._credentials = (session_id, password) if has_session else None
            self._heard()
        return bool(data)

    def _read_last_words(self) -> None:
        """Read the last heartbeats of a dead child, which may contain its session."""
        os.set_blocking(self._reading, False)
        with contextlib.suppress(BlockingIOError):
            while self._read():
                continue

    def _end(self) -> int:
        """Make the child print its stacks, then kill it. Returns the status of `waitpid`."""
        logger.critical(
            "the broker's event loop has not run for %.1f s, %.1f s of which it waited for a disk: the broker prints "
            "its stacks and is then killed",
            (self._silence.lasting_ms + self._silence.disk_wait_ms) / 1000,
            self._silence.disk_wait_ms / 1000,
        )
        os.kill(self._child, signal.SIGQUIT)
        select.select([], [], [], STACKS_MS / 1000)
        os.kill(self._child, signal.SIGKILL)
        return os.waitpid(self._child, 0)[1]
