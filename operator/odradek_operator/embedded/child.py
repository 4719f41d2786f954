"""A child process whose output goes to a log file, and which ends when this process ends, for whatever reason.

`ensemble/parent_guard` ensures the latter. `zookeeper_process` and `broker_processes` use it. It must not be used by
several threads at once.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from odradek_operator.ensemble import parent_guard as guard
from odradek_operator.errors import EmbeddedError

logger = logging.getLogger(__name__)

GRACE_SECONDS: Final = 30.0
"""Seconds from SIGTERM to SIGKILL, in which a broker moves its leaderships to others."""

FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 30.0
STEADY_SECONDS: Final = 30.0
"""A process that ran for this long has started successfully."""

_KILL_WAIT_SECONDS: Final = 10.0
_TAIL_BYTES: Final = 16 * 1024


class ChildProcess:
    """A command and its process, if it runs. It has its own process group, so that Ctrl-C does not reach it."""

    def __init__(
        self, name: str, command: Sequence[str], log_path: Path, *, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start nothing yet. `environment` is added to that of this process; all output is appended to `log_path`."""
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
        """Exit code of the last process, as in `subprocess` (-9: SIGKILL); None while it runs and before the start."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Start it unless it runs. Must be called from a thread that outlives it. Raises `EmbeddedError`."""
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
        """Send a signal, unless the process has ended."""
        if self.running and self._process is not None:
            self._process.send_signal(number)

    def wait(self, timeout_seconds: float) -> bool:
        """Block until it has ended. Returns False after the timeout."""
        if self._process is None:
            return True
        try:
            self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Send SIGTERM, and SIGKILL after the grace period. Blocks until it has ended. Idempotent."""
        if not self.running:
            return
        self.send(signal.SIGCONT)  # A paused process does not handle SIGTERM.
        self.send(signal.SIGTERM)
        if not self.wait(grace_seconds):
            logger.warning("%s did not stop within %g s after SIGTERM: SIGKILL", self.name, grace_seconds)
            self.kill()

    def kill(self) -> None:
        """Send SIGKILL. Blocks until it has ended. Idempotent."""
        self.send(signal.SIGKILL)
        self.wait(_KILL_WAIT_SECONDS)

    def how_it_ended(self) -> str:
        """Describe how it ended, with the last line of its output. The text continues a message that names it."""
        words = self._last_line()
        said = f"; the last line of its output is: {words}" if words else " without any output"
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
    """Return a message about a failed system call. For a full disk, it says what to do."""
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{what}: the disk is full{where}; free space, or choose another place with --data-dir."
    return f"{what}: {error.strerror or error}{where}."


@dataclass(frozen=True, slots=True)
class BackOff:
    """How long to wait before a process that ended by itself is started again.

    The wait doubles from one second to half a minute, so that a broker that cannot start does not keep the machine
    busy. After a process has run for a while, the next wait is one second again.
    """

    early_ends: int = 0
    """How many times in a row it ended early."""

    def ended(self, ran_seconds: float) -> BackOff:
        """Return the value after a process ended that ran for `ran_seconds`."""
        return BackOff(1 if ran_seconds >= STEADY_SECONDS else self.early_ends + 1)

    @property
    def delay_seconds(self) -> float:
        """The wait before the next start; 0 if no process has ended."""
        if self.early_ends == 0:
            return 0.0
        # The exponent is limited, so that a process that fails all night does not give a huge number.
        return min(FIRST_SECONDS * (1 << min(self.early_ends - 1, 10)), LONGEST_SECONDS)
