"""A broker with disks that stall on command: `python -m odradek_testkit.torture.stalling_broker server.properties`.

A log directory stalls while it contains a FIFO named `STALL_FILE`: whatever waits for its disk then opens the FIFO,
which blocks in the kernel until a writer opens it. Writes to the page cache and reads from it continue, as on a machine
whose block device does not answer.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final
from unittest.mock import patch

from odradek.app import broker_process
from odradek.app import system as real
from odradek.base.ports import File
from odradek.base.system_ports import SystemFile, SystemFiles

STALL_FILE: Final = "stall.fifo"


def stall(directory: Path) -> None:
    """Let the disk of a log directory stop answering."""
    os.mkfifo(directory / STALL_FILE)


def _wait(path: str) -> None:
    """Block while the disk of the log directory that contains this path does not answer."""
    for folder in (Path(path), *Path(path).parents):
        fifo = folder / STALL_FILE
        if fifo.exists():
            os.close(os.open(fifo, os.O_RDONLY))


class _StallingFile(SystemFile):
    __slots__ = ()

    def sync(self) -> None:
        """Wait for the disk."""
        _wait(self.path)
        super().sync()


class StallingFiles(SystemFiles):
    """The operating system's files, with disks that stall."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open a file whose syncs stall."""
        file = super().open(path, create=create, read_only=read_only)
        descriptor = file.fileno()
        assert descriptor is not None
        return _StallingFile(path, os.dup(descriptor))

    def write_atomically(self, path: str, data: bytes) -> None:
        """Wait for the disk."""
        _wait(path)
        super().write_atomically(path, data)

    def sync_directory(self, path: str) -> None:
        """Wait for the disk."""
        _wait(path)
        super().sync_directory(path)


def main(properties: str) -> int:
    """Run a broker until it is stopped. Returns the exit code."""
    make: Callable[[], real.System] = real.system
    with patch.object(real, "system", lambda: replace(make(), files=StallingFiles())):
        return broker_process.run(properties)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
