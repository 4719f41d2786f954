"""Files of the operating system whose content is never in memory: every read without waiting fails."""

from __future__ import annotations

import os

from odradek.base.ports import Buffer, File
from odradek.base.system_ports import SystemFile, SystemFiles


class _ColdFile(SystemFile):
    __slots__ = ("_files",)

    def __init__(self, path: str, descriptor: int, files: ColdFiles) -> None:
        super().__init__(path, descriptor)
        self._files = files

    def pread_now(self, length: int, position: int) -> Buffer | None:
        """None while the files are cold."""
        return None if self._files.is_cold else super().pread_now(length, position)

    def pread_into(self, buffer: bytearray, length: int, position: int) -> bool:
        """False while the files are cold."""
        return not self._files.is_cold and super().pread_into(buffer, length, position)


class ColdFiles(SystemFiles):
    """Files that are cold on command."""

    __slots__ = ("is_cold",)

    def __init__(self) -> None:
        """The files are as the operating system has them."""
        super().__init__()
        self.is_cold = False
        """Whether no content is in memory. It does not enter memory when it is read."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open a file."""
        opened = super().open(path, create=create, read_only=read_only)
        descriptor = opened.fileno()
        assert descriptor is not None
        return _ColdFile(path, os.dup(descriptor), self)
