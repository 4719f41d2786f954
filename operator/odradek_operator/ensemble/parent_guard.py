"""Becomes another program that dies together with the process that started it.

Run as a script, by path, with nothing but the standard library: `guard.py PARENT COMMAND…`. On Linux it asks the
kernel to send SIGKILL to it when its parent ends (prctl(2), PR_SET_PDEATHSIG), which survives exec; then it turns into
the command, so process id and signals are the command's own. Elsewhere it only turns into the command.

The kernel watches the *thread* that forked: whoever starts children does it from a thread that lives as long as they.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

PR_SET_PDEATHSIG: Final = 1
EXIT_CANNOT_RUN: Final = 127
"""What a shell gives for a command that cannot be run."""


def main(arguments: list[str]) -> int:
    """Never returns when all goes well; else 1 when the parent is gone already, 127 when there is no such command."""
    parent, command = int(arguments[0]), arguments[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # It ended before the kernel was asked.
            return 1
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be run: {error.strerror}\n")
        return EXIT_CANNOT_RUN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
