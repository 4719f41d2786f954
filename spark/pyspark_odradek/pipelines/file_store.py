"""Small files of the pipelines that are written atomically, on any file system.

A `FileStore` is a folder. Paths are relative to it, with `/` between names. `LocalStore` is a folder that this machine
mounts; `hadoop_store` has all others. Invariants: after a crash at any time, a file has its old or its new content, and
`create` succeeds for one of several callers only. Readers of Parquet folders ignore names that begin with `.` or `_`.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Protocol

from odradek.base.errors import OdradekError

_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
"""Errors of file systems that have no hard links."""


class FileStoreError(OdradekError):
    """A file system refused an operation. The message has the path and the reason."""


class FileStore(Protocol):
    """A folder with files."""

    @property
    def location(self) -> str:
        """The folder, as Spark takes it."""
        ...

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, in order; none if it does not exist."""
        ...

    def files(self, folder: str) -> list[str]:
        """Return the paths of all files below a folder, in order; none if it does not exist."""
        ...

    def read(self, path: str) -> bytes:
        """Return the content of a file. Raises `FileNotFoundError`."""
        ...

    def create(self, path: str, data: bytes) -> None:
        """Create a file with its folders. Raises `FileExistsError`, and leaves the file as it is, if it exists."""
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Create a file with its folders, or replace its content."""
        ...

    def move(self, source: str, target: str) -> None:
        """Move a file to a path that does not exist. Raises `FileNotFoundError` if the file does not exist."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with its content, if it exists."""
        ...

    def persist(self, paths: Iterable[str]) -> None:
        """Make files that Spark wrote durable. File systems that do this when a file is closed do nothing here."""
        ...


class LocalStore:
    """A folder that the driver mounts. Everything is durable when a method returns."""

    def __init__(self, folder: Path) -> None:
        """The folder is created by the first file."""
        self._folder = folder.absolute()

    @property
    def location(self) -> str:
        """The folder as a URI."""
        return self._folder.as_uri()

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, in order; none if it does not exist."""
        path = self._folder / folder
        return sorted(each.name for each in path.iterdir()) if path.is_dir() else []

    def files(self, folder: str) -> list[str]:
        """Return the paths of all files below a folder, in order; none if it does not exist."""
        found = (self._folder / folder).rglob("*")
        return sorted(each.relative_to(self._folder).as_posix() for each in found if each.is_file())

    def read(self, path: str) -> bytes:
        """Return the content of a file. Raises `FileNotFoundError`."""
        return (self._folder / path).read_bytes()

    def create(self, path: str, data: bytes) -> None:
        """Create a file with its folders. Raises `FileExistsError`, and leaves the file as it is, if it exists."""
        target = self._folder / path
        temporary = self._write(target, data)
        try:
            # Unlike a rename, a link never replaces a file.
            target.hardlink_to(temporary)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # Without links, two callers at the same time may both succeed.
            if target.exists():
                raise FileExistsError(str(target)) from None
            temporary.rename(target)
        finally:
            temporary.unlink(missing_ok=True)
        sync(target.parent)

    def replace(self, path: str, data: bytes) -> None:
        """Create a file with its folders, or replace its content."""
        target = self._folder / path
        self._write(target, data).replace(target)
        sync(target.parent)

    def _write(self, target: Path, data: bytes) -> Path:
        _make_folder(target.parent)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return temporary

    def move(self, source: str, target: str) -> None:
        """Move a file to a path that does not exist. Raises `FileNotFoundError` if the file does not exist."""
        final = self._folder / target
        _make_folder(final.parent)
        (self._folder / source).rename(final)
        sync(final.parent)

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with its content, if it exists."""
        target = self._folder / path
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)

    def persist(self, paths: Iterable[str]) -> None:
        """Make files that Spark wrote durable."""
        for path in paths:
            sync(self._folder / path)


def sync(path: Path) -> None:
    """Make the content of a file, or the entries of a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_folder(folder: Path) -> None:
    """Create a folder durably, with those above it."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)
