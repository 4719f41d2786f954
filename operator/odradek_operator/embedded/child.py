"""One child process: started with its output in a log file, stopped in order, never left behind.

Enters: a command. Leaves: a process that ends with this one, whatever ends this one (`guard`). Called by
`embedded/zookeeper_process` and `embedded/broker_processes`. Not safe to use from several threads at once.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from odradek_operator.ensemble import parent_guard as guard
from odradek_operator.errors import EmbeddedError

logger = logging.getLogger(__name__)

GRACE_SECONDS: Final = 30.0
"""From SIGTERM to SIGKILL: a broker hands its partitions over first."""

_KILL_WAIT_SECONDS: Final = 10.0
_TAIL_BYTES: Final = 16 * 1024


class ChildProcess:
    """A command that runs, or does not. It has a process group of its own: Ctrl-C at the terminal reaches only us."""

    def __init__(
        self, name: str, command: Sequence[str], log_path: Path, *, environment: Mapping[str, str] | None = None
    ) -> None:
        """`environment` is added to this process's own. Standard output and error are appended to `log_path`."""
        self.name: Final = name
        self.log_path: Final = log_path
        self._command = tuple(command)
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the running or last process; None before the first start."""
        return None if self._process is None else self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has been started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """How the last process ended, as `subprocess` says it (-9: SIGKILL); None while it runs and before."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Start it, unless it runs. From a thread that outlives it (see `guard`)."""
        if self.running:
            return
        command = [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), *self._command]
        try:
            self.log_path.parent.mkdir(parents=True, exist_ok=True)
            with self.log_path.open("ab") as log:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **self._environment},
                    process_group=0,
                )
        except OSError as error:
            raise EmbeddedError(system_error(f"{self.name} cannot be started", error)) from error
        logger.info("%s started: process %d", self.name, self._process.pid)

    def send(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens when the process has ended."""
        if self.running and self._process is not None:
            self._process.send_signal(number)

    def wait(self, timeout_seconds: float) -> bool:
        """Block until it has ended; False when the time is over first."""
        if self._process is None:
            return True
        try:
            self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """SIGTERM, and SIGKILL when that was not enough; returns when it has ended. Blocks. Idempotent."""
        if not self.running:
            return
        self.send(signal.SIGCONT)  # A paused process would not see SIGTERM.
        self.send(signal.SIGTERM)
        if not self.wait(grace_seconds):
            logger.warning("%s did not stop within %g s after SIGTERM: SIGKILL", self.name, grace_seconds)
            self.kill()

    def kill(self) -> None:
        """SIGKILL; returns when it has ended. Idempotent."""
        self.send(signal.SIGKILL)
        self.wait(_KILL_WAIT_SECONDS)

    def epitaph(self) -> str:
        """How it ended and its last words, for a sentence that begins with its name."""
        words = self._last_line()
        said = f" after saying: {words}" if words else " without a word"
        return f"ended with {self.exit_code}{said} (log: {self.log_path})."

    def _last_line(self) -> str:
        try:
            with self.log_path.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
                lines = log.read().decode("utf-8", "replace").split("\n")
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


def system_error(what: str, error: OSError) -> str:
    """One sentence about a failed system call; a full disk is called so."""
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{what}: the disk is full{where}; make room, or choose another place with --data-dir."
    return f"{what}: {error.strerror or error}{where}."
