"""Reads from /proc whether a process waits for a disk.

`app/supervisor` uses it to distinguish an event loop that waits for a slow disk from one that hangs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")

_UNINTERRUPTIBLE: Final = "D"
"""State of a thread that not even SIGKILL wakes: almost always a wait for a disk or for a file system's server."""


def disk_wait(process: int, proc: Path = PROC) -> str | None:
    """Return the kernel function in which the main thread of a process waits uninterruptibly; "" if it is unknown.

    Returns None if the thread does not wait so, if the process is dead, and on systems without /proc. A file system in
    user space (FUSE) usually waits interruptibly, which is not recognized.
    """
    try:
        # The name of the process, in parentheses, may itself contain parentheses and spaces. The state follows it.
        stat = (proc / str(process) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    if stat.rpartition(")")[2].split()[:1] != [_UNINTERRUPTIBLE]:
        return None
    try:
        place = (proc / str(process) / "wchan").read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""  # many kernels show it to privileged users only
    return "" if place == "0" else place
