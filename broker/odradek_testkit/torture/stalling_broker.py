"""A broker with disks that stall on command: `python -m odradek_testkit.torture.stalling_broker server.properties`.

A log directory stalls while it contains a FIFO named `STALL_FILE`: each sync then opens the FIFO, which blocks in the
kernel until a writer opens it. Writes to the page cache and reads from it continue, as on a machine whose block device
does not answer. With the FIFO `STALL_WRITES_FILE`, writes wait, too, as they do when the page cache is full of what
cannot be written.

The functions of `os` are replaced, because the compiled core calls them, too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from odradek.app import broker_process

STALL_FILE: Final = "stall.fifo"
STALL_WRITES_FILE: Final = "stall-writes.fifo"


def stall(directory: Path, *, writes: bool = False) -> None:
    """Let syncs of a log directory wait, or its writes."""
    os.mkfifo(directory / (STALL_WRITES_FILE if writes else STALL_FILE))


def resume(directory: Path) -> None:
    """Let the disk of a log directory answer again."""
    for name in (STALL_FILE, STALL_WRITES_FILE):
        fifo = directory / name
        if fifo.exists():
            opened = os.open(fifo, os.O_RDWR)
            fifo.unlink()
            os.close(opened)


def _wait(descriptor: int, name: str) -> None:
    """Block while the disk of the log directory that contains this open file does not answer."""
    path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
    for folder in (path, *path.parents):
        fifo = folder / name
        with suppress(FileNotFoundError, NotADirectoryError):
            os.close(os.open(fifo, os.O_RDONLY))


def _waiting(right: Callable[..., Any], name: str) -> Callable[..., Any]:
    def call(descriptor: int, *arguments: Any) -> Any:
        _wait(descriptor, name)
        return right(descriptor, *arguments)

    return call


@contextmanager
def stalling_calls() -> Iterator[None]:
    """Let the disk calls of this process wait on command while the block runs."""
    with ExitStack() as patches:
        for function in ("fsync", "fdatasync"):
            patches.enter_context(patch.object(os, function, _waiting(getattr(os, function), STALL_FILE)))
        for function in ("pwrite", "pwritev"):
            patches.enter_context(patch.object(os, function, _waiting(getattr(os, function), STALL_WRITES_FILE)))
        yield


def main(properties: str) -> int:
    """Run a broker until it is stopped. Returns the exit code."""
    with stalling_calls():
        return broker_process.run(properties)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
