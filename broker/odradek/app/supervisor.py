"""The parent process of a broker: speaks for it in ZooKeeper when it is dead, and ends it when it hangs.

Why: the ephemeral znodes of a crashed broker live until ZooKeeper misses its session, and clients wait for nothing all
that time. The parent knows at once. `app/main` calls `supervise`, which forks: the child is the broker, the parent
waits. Through a pipe the child tells its session's id and password and that its event loop still turns; nothing else
passes between the two.

Theory of operation. Only what `waitpid` has reported is spoken for: the process is certainly dead, its sockets and
files are closed, nobody writes under its session any more. A process that is paused, partitioned or slow is left to
the epochs, as ever. One whose loop has not turned for `hang_timeout_ms` is first asked for its stacks (SIGQUIT, as with
a JVM), then killed, and then it is dead. Time in which the parent did not run either (a sleeping laptop, a frozen
container) does not count as the child's silence. When the parent dies, the child dies with it.
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

logger = logging.getLogger(__name__)

Credentials = tuple[int, bytes]
"""Id and password of a ZooKeeper session."""

BEAT_INTERVAL_MS: Final = 500.0
"""How often the child says that it lives."""

STACKS_MS: Final = 1_000.0
"""Time for a hanging child to write its stacks before it is killed."""

_FRAME: Final = Struct(">?q16s")
"""Whether there is a session, its id, its password."""
_NO_PASSWORD: Final = bytes(16)
_READ_FRAMES: Final = 64
_SIGNAL_BASE: Final = 128
_PR_SET_PDEATHSIG: Final = 1
_FORWARDED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


class Lifeline:
    """The child's end of the pipe."""

    def __init__(self, descriptor: int) -> None:
        """`descriptor`: where frames are written to; never blocks."""
        self._descriptor: Final = descriptor
        os.set_blocking(descriptor, False)

    def beat(self, credentials: Credentials | None) -> None:
        """Say that the loop turns, and which session is to be ended in case of death."""
        frame = _FRAME.pack(False, 0, _NO_PASSWORD) if credentials is None else _FRAME.pack(True, *credentials)
        # A parent that does not read is paused, and one that is gone takes this process with it.
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self._descriptor, frame)


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervision:
    """What the parent does. `hang_timeout_ms` 0: a silent child is left alone."""

    hang_timeout_ms: float
    end_session: Callable[[Credentials], None]
    """Called once when the child is dead and had a session; may block for a few seconds, must not raise."""


def supervise(work: Callable[[Lifeline], int], supervision: Supervision) -> int:
    """Run `work` in a child process; its exit code, or 128 and the number of the signal that ended it.

    To be called from a process without threads. SIGTERM, SIGINT, SIGHUP and SIGQUIT are handed on to the child.
    """
    reading, writing = os.pipe()
    parent = os.getpid()
    # A signal in between would end a parent that does not hand it on yet.
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    child = os.fork()
    if not child:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
        os.close(reading)
        _become_child(parent)
        _leave(work, Lifeline(writing))
    os.close(writing)
    try:
        with _handing_on(child):
            status, credentials = _Watch(child, reading, supervision.hang_timeout_ms).until_death()
    finally:
        os.close(reading)
    if credentials is not None:
        supervision.end_session(credentials)
    return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else _SIGNAL_BASE + os.WTERMSIG(status)


def _become_child(parent: int) -> None:
    """Die with the parent, answer SIGQUIT with stacks, and leave the terminal's Ctrl-C to the parent."""
    os.setpgid(0, 0)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(_SIGNAL_BASE + signal.SIGKILL)
    faulthandler.register(signal.SIGQUIT, all_threads=True)


def _leave(work: Callable[[Lifeline], int], lifeline: Lifeline) -> None:
    """Run the work and end this process without going back into the caller's frames."""
    code = 1
    try:
        code = work(lifeline)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        # The last frame of this process: whatever it was, it is told, and the exit code says that it went wrong.
        logger.exception("the broker ended by a bug")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


@contextlib.contextmanager
def _handing_on(child: int) -> Iterator[None]:
    """Pass signals on to the child while it lives."""

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
    """How long a child has said nothing, in time in which its parent ran."""

    def __init__(self, limit_ms: float) -> None:
        """`limit_ms` 0: no limit."""
        self._limit_ms: Final = limit_ms
        self._has_spoken = False
        self.lasting_ms = 0.0

    @property
    def is_too_long(self) -> bool:
        """Whether a child that has spoken before should have been heard again by now."""
        return self._has_spoken and 0 < self._limit_ms < self.lasting_ms

    def heard(self) -> None:
        """The child spoke."""
        self.lasting_ms = 0.0
        self._has_spoken = True

    def passed(self, elapsed_ms: float) -> None:
        """Nothing was heard for so long. More than twice the usual tick, and it was the parent that did not run."""
        self.lasting_ms += min(elapsed_ms, 2 * BEAT_INTERVAL_MS)


class _Watch:
    """One child's life as its parent sees it."""

    def __init__(self, child: int, reading: int, hang_timeout_ms: float) -> None:
        self._child: Final = child
        self._reading: Final = reading
        self._credentials: Credentials | None = None
        self._silence: Final = Silence(hang_timeout_ms)

    def until_death(self) -> tuple[int, Credentials | None]:
        """Wait; the status of `waitpid` and the last session that was told."""
        last = time.monotonic()
        open_pipe = [self._reading]
        while True:
            ready, _, _ = select.select(open_pipe, [], [], BEAT_INTERVAL_MS / 1000)
            if ready and not self._read():
                # The child has closed its end, which a death does: `waitpid` tells in a moment.
                return os.waitpid(self._child, 0)[1], self._credentials
            now = time.monotonic()
            elapsed_ms, last = (now - last) * 1000, now
            if not ready:
                self._silence.passed(elapsed_ms)
                # A process that the dead child had begun may still hold the other end of the pipe.
                dead, status = os.waitpid(self._child, os.WNOHANG)
                if dead:
                    self._read_last_words()
                    return status, self._credentials
            if self._silence.is_too_long:
                status = self._end()
                self._read_last_words()
                return status, self._credentials

    def _read(self) -> bool:
        """Take in what has been told; False at the end."""
        data = os.read(self._reading, _READ_FRAMES * _FRAME.size)
        whole = len(data) - len(data) % _FRAME.size
        if whole:
            has_session, session_id, password = _FRAME.unpack_from(data, whole - _FRAME.size)
            self._credentials = (session_id, password) if has_session else None
            self._silence.heard()
        return bool(data)

    def _read_last_words(self) -> None:
        """What a child that is dead now had said meanwhile: its session may have been told by that alone."""
        os.set_blocking(self._reading, False)
        with contextlib.suppress(BlockingIOError):
            while self._read():
                continue

    def _end(self) -> int:
        """Ask for the stacks, then kill; the status of `waitpid`."""
        logger.critical(
            "the broker's event loop has not turned for %.1f s: its stacks follow, then it is killed",
            self._silence.lasting_ms / 1000,
        )
        os.kill(self._child, signal.SIGQUIT)
        select.select([], [], [], STACKS_MS / 1000)
        os.kill(self._child, signal.SIGKILL)
        return os.waitpid(self._child, 0)[1]
