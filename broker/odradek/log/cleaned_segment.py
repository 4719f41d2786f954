"""Writing one cleaned segment: the `.cleaned` files that a swap puts in the place of a run of segments.

Entries enter in the order of the log, complete and synced files stay behind. `log.cleaning` uses it in a worker.
Invariant: after `finish` the files are whole and durable, and the indexes are those that appending would have made.
"""

from __future__ import annotations

import os
from typing import Final

from odradek.base.ports import Buffer, File, Files
from odradek.base.types import NO_TIMESTAMP
from odradek.log.indexes import OffsetIndex, TimeIndex
from odradek.log.segment import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
)
from odradek.log.transactions import AbortedTransaction, TransactionIndex

WRITE_BYTES: Final = 1 << 20
"""Gathered before the kernel gets them."""
_MOST_PARTS: Final = 256
"""So many are handed over as they are; more would take several calls."""
BEHIND_BYTES: Final = 8 << 20
"""Given to the disk at a time, without waiting for it: all of a segment at once would keep it busy for others' reads
and syncs, and waiting for each piece would keep the cleaner idle."""
SYNC_BYTES: Final = 256 << 20
"""Written at most before the disk must have them, should the kernel not take the hint."""


class SegmentWriter:
    """Writes one cleaned segment with its indexes, as `.cleaned` files."""

    __slots__ = (
        "_aborted",
        "_base_offset",
        "_file",
        "_files",
        "_handed_over",
        "_interval",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_offset_index",
        "_parts",
        "_parts_size",
        "_path",
        "_since_entry",
        "_synced",
        "_time_index",
        "_written",
        "size",
    )

    def __init__(self, files: Files, directory: str, base_offset: int, interval: int) -> None:
        """Makes the `.log.cleaned` file; an index entry is due after more than `interval` bytes."""
        self._files = files
        self._base_offset = base_offset
        self._interval = interval
        self._path = f"{directory}/{file_name(base_offset, '')}"
        self._file = files.open(f"{self._path}{LOG_SUFFIX}{CLEANED_SUFFIX}", create=True)
        self._file.truncate(0)
        self._parts: list[Buffer] = []
        self._parts_size = 0
        self._written = 0
        self._handed_over = 0
        """Up to where the disk was told to begin writing, all but the last piece of which should be done."""
        self._synced = 0
        self.size = 0
        self._offset_index = OffsetIndex()
        self._time_index = TimeIndex()
        self._aborted = TransactionIndex()
        self._since_entry = 0
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = base_offset

    def append(self, entry: Buffer, last_offset: int, max_timestamp: int) -> None:
        """Write an entry, sooner or later; its memory is borrowed until `flush`."""
        if max_timestamp > self._max_timestamp:
            self._max_timestamp, self._max_timestamp_offset = max_timestamp, last_offset
        if self._since_entry > self._interval:
            self._offset_index.append(last_offset - self._base_offset, self.size)
            self._note_time()
            self._since_entry = 0
        size = len(entry)
        self._since_entry += size
        self.size += size
        self._parts.append(entry)
        self._parts_size += size
        if self._parts_size >= WRITE_BYTES:
            self.flush()

    def _note_time(self) -> None:
        self._time_index.append_if_later(self._max_timestamp, self._max_timestamp_offset - self._base_offset)

    def note_aborted(self, aborted: AbortedTransaction) -> None:
        """Keep an entry of the transaction index."""
        self._aborted.append(aborted)

    def flush(self) -> None:
        """Hand what was appended to the kernel."""
        if self._parts:
            parts = self._parts if len(self._parts) <= _MOST_PARTS else (b"".join(self._parts),)
            self._file.pwritev(parts, self._written)
            self._written += self._parts_size
            self._parts.clear()
            self._parts_size = 0
        if self._written - self._synced >= SYNC_BYTES:
            self._sync()
        elif self._written - self._handed_over >= BEHIND_BYTES:
            # Before it drops pages Linux begins to write those that are dirty: the piece before has had its time.
            begin = max(self._handed_over - BEHIND_BYTES, self._synced)
            forget_pages(self._file, begin, self._written - begin)
            self._handed_over = self._written

    def _sync(self) -> None:
        self._file.sync()
        forget_pages(self._file, 0, 0)
        self._handed_over = self._synced = self._written

    def finish(self, modified_ms: int) -> None:
        """Complete all files and make them durable; the log file is dated, as delete horizons may go by that."""
        self.flush()
        if self.size and self._max_timestamp >= 0:
            self._note_time()
        self._sync()
        self._file.close()
        self._files.set_modified_ms(f"{self._path}{LOG_SUFFIX}{CLEANED_SUFFIX}", modified_ms)
        self._write(INDEX_SUFFIX, self._offset_index.encode())
        self._write(TIME_INDEX_SUFFIX, self._time_index.encode())
        if len(self._aborted):
            self._write(TRANSACTION_INDEX_SUFFIX, self._aborted.encode())

    def _write(self, suffix: str, content: bytes) -> None:
        file = self._files.open(f"{self._path}{suffix}{CLEANED_SUFFIX}", create=True)
        try:
            file.pwritev((content,), 0)
            file.truncate(len(content))
            file.sync()
        finally:
            file.close()

    def close(self) -> None:
        """Let go of the file; idempotent."""
        self._file.close()


def forget_pages(file: File, position: int, length: int) -> None:
    """Leave the page cache to producers and consumers; `length` 0 is up to the end."""
    descriptor = file.fileno()
    if descriptor is not None and descriptor >= 0:
        os.posix_fadvise(descriptor, position, length, os.POSIX_FADV_DONTNEED)


def expect_pages(file: File, position: int, length: int) -> None:
    """Have the disk read what will be wanted next while something else is done."""
    descriptor = file.fileno()
    if descriptor is not None and descriptor >= 0:
        os.posix_fadvise(descriptor, position, length, os.POSIX_FADV_WILLNEED)


def remove_cleaned_files(files: Files, directory: str) -> None:
    """Remove what a pass that failed left in a log's directory. Raises `StorageError`."""
    for name in files.list(directory):
        if name.endswith(CLEANED_SUFFIX):
            files.remove(f"{directory}/{name}")
