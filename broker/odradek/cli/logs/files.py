"""The files of a log directory for the offline tools: lists them, and iterates over the entries of a log.

`dump`, `verify` and `compact` use it. Nothing is written. Invariant: an iteration keeps one window of a file in memory,
whatever its size, and never trusts a length beyond the end of the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from odradek.base.errors import CorruptMessageError, OdradekError, StorageError
from odradek.base.ports import Files
from odradek.base.system_ports import SystemFiles
from odradek.log import checkpoints
from odradek.log.segments.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from odradek.records.formats import MIN_ENTRY_SIZE, read_entry
from odradek.records.v2.batch import HEADER_SIZE, BatchHeader

FILES: Final[Files] = SystemFiles()

WINDOW_BYTES: Final = 1 << 20
"""Size of a read; a larger entry is read separately."""

UNPACKED_LIMIT_BYTES: Final = 1 << 30
"""Maximum decompressed size of an entry. No broker accepts more; see `message.max.bytes`."""

LEFTOVER_SUFFIXES: Final = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, ".tmp")

OFFSET_CHECKPOINTS: Final = (
    checkpoints.RECOVERY_POINT_FILE,
    checkpoints.HIGH_WATERMARK_FILE,
    checkpoints.LOG_START_FILE,
    "cleaner-offset-checkpoint",
)
SMALL_FILES: Final = (
    *OFFSET_CHECKPOINTS,
    checkpoints.LEADER_EPOCH_FILE,
    checkpoints.META_PROPERTIES_FILE,
    checkpoints.PARTITION_METADATA_FILE,
    checkpoints.CLEAN_SHUTDOWN_FILE,
)
SEGMENT_FILES: Final = (
    LOG_SUFFIX,
    INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
)


class LogToolError(OdradekError):
    """The tool cannot work on this path. The message says what to do instead."""


class Entry(NamedTuple):
    """One batch or old message: its position, header and bytes."""

    position: int
    header: BatchHeader
    content: bytes


class Walk:
    """Iterates once over the entries of a `.log` file. Then `end` and `problem` describe where it stopped and why."""

    def __init__(self, path: Path, *, limit_bytes: int | None = None) -> None:
        """Read at most the first `limit_bytes` of the file. Raises `StorageError`."""
        self._file = FILES.open(str(path), read_only=True)
        self.size = self._file.size()
        """Number of bytes to read."""
        if limit_bytes is not None:
            self.size = min(self.size, limit_bytes)
        self.end = 0
        """Position after the last complete entry."""
        self.problem: str | None = None
        """Why the bytes from `end` on are not an entry; None if there are none."""

    def __iter__(self) -> Iterator[Entry]:
        """Yield the entries in order. Raises `StorageError`."""
        try:
            yield from self._entries()
        finally:
            self._file.close()

    def _entries(self) -> Iterator[Entry]:
        window, start = b"", 0
        while self.end < self.size:
            at = self.end - start
            if len(window) - at < min(HEADER_SIZE, self.size - self.end):
                window, start, at = self._read(WINDOW_BYTES), self.end, 0
            try:
                header = read_entry(window, at)
            except CorruptMessageError as error:
                self.problem = self._reason(window, at, str(error))
                return
            if header.size > self.size - self.end:
                self.problem = f"the entry has {header.size} bytes, but only {self.size - self.end} are left"
                return
            if header.size > len(window) - at:
                window, start, at = self._read(max(WINDOW_BYTES, header.size)), self.end, 0
            yield Entry(self.end, header, window[at : at + header.size])
            self.end += header.size

    def _read(self, length: int) -> bytes:
        return self._file.pread(min(length, self.size - self.end), self.end)

    def _reason(self, window: bytes, at: int, default: str) -> str:
        if self.size - self.end < MIN_ENTRY_SIZE:
            return f"{self.size - self.end} bytes are too few for an entry"
        if not any(window[at : at + HEADER_SIZE]):
            return "the file was extended, but nothing was written there"
        return default


def base_offset_of(path: Path) -> int:
    """Return the offset in a segment file's name. Raises `LogToolError` if there is none."""
    digits = path.name.split(".", 1)[0]
    if not digits.isdecimal():
        raise LogToolError(f"{path} is not a segment file: its name is not an offset")
    return int(digits)


def is_partition_directory(directory: Path) -> bool:
    """Return whether the directory contains the files of a log, not directories of partitions."""
    names = FILES.list(str(directory))
    return checkpoints.PARTITION_METADATA_FILE in names or any(name.endswith(LOG_SUFFIX) for name in names)


def files_to_dump(paths: Sequence[Path]) -> list[Path]:
    """Return every file that can be dumped: of a directory, its own files and then those of each partition.

    Raises `LogToolError` for a path that does not exist, or a directory with nothing to show.
    """
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise LogToolError(f"{path} does not exist")
        if not path.is_dir():
            found.append(path)
            continue
        inside = _dumpable(path)
        for child in sorted(child for child in path.iterdir() if child.is_dir()):
            inside += _dumpable(child)
        if not inside:
            raise LogToolError(f"{path} contains no file that can be dumped")
        found += inside
    return found


def _dumpable(directory: Path) -> list[Path]:
    names = FILES.list(str(directory))
    return [directory / name for name in names if name in SMALL_FILES or name.endswith(SEGMENT_FILES)]


def partitions_in(directory: Path) -> list[Path]:
    """Return the directory if it contains a log, else its subdirectories that do. Raises `LogToolError`,
    `StorageError`."""
    if not FILES.is_directory(str(directory)):
        raise LogToolError(f"{directory} is not a directory")
    if is_partition_directory(directory):
        return [directory]
    children = [directory / name for name in FILES.list(str(directory))]
    return [child for child in children if child.is_dir() and is_partition_directory(child)]


def read_whole(path: Path) -> bytes:
    """Return the content of a small file; empty if it does not exist. Raises `StorageError`."""
    try:
        return FILES.read(str(path))
    except StorageError as error:
        if error.missing:
            return b""
        raise


def lock_problem(directory: Path) -> str | None:
    """Return why a log directory cannot be locked; None if it is free. Only checks an existing lock file."""
    path = f"{directory}/{checkpoints.LOCK_FILE}"
    if not FILES.exists(path):
        return None
    try:
        FILES.lock(path)()
    except StorageError as error:
        return str(error)
    return None
