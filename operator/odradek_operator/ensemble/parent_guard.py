"""Runs another program that is killed when the process that started it dies.

Run as a script with the standard library only: `guard.py PARENT COMMAND…`. On Linux it requests SIGKILL for the end of
its parent (prctl(2), PR_SET_PDEATHSIG), which survives exec. Then it executes the command, so that process id and
signals are those of the command. On other systems it only executes the command.

The kernel watches the *thread* that forked, so children must be started from a thread that lives as long as they do.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

PR_SET_PDEATHSIG: Final = 1
EXIT_CANNOT_RUN: Final = 127
"""Exit code of a shell for a command that cannot be executed."""


def main(arguments: list[str]) -> int:
    """Execute the command. Returns only on failure: 1 if the parent has ended, 127 if the command does not exist."""
    parent, command = int(arguments[0]), arguments[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # It ended before the signal was requested.
            return 1
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be executed: {error.strerror}\n")
        return EXIT_CANNOT_RUN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
