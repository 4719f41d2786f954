"""Writes one cleaned segment: the `.cleaned` files that replace a run of segments in a swap.

`log/compaction/compaction_pass` uses it in a worker and appends entries in log order. Invariant: after `finish` the
files are complete and durable, and the indexes are those that normal appends would have built.
"""

from __future__ import annotations

import os
from typing import Final

from odradek.base.ports import Buffer, File, Files
from odradek.base.types import NO_TIMESTAMP
from odradek.log.segments.indexes import OffsetIndex, TimeIndex
from odradek.log.segments.segment import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
)
from odradek.log.segments.transaction_index import AbortedTxn, TransactionIndex

WRITE_BYTES: Final = 1 << 20
"""Bytes that are buffered before a write."""
_MOST_PARTS: Final = 256
"""Maximum number of buffers in one write; more would take several calls, so they are joined."""
BEHIND_BYTES: Final = 8 << 20
"""Bytes whose writeback is started at a time, without waiting. Writing a whole segment at once would delay other reads
and syncs on the disk; waiting for each piece would leave the cleaner idle."""
SYNC_BYTES: Final = 256 << 20
"""Bytes written at most before a sync, in case the kernel ignores the writeback hint."""


class SegmentWriter:
    """Writes one cleaned segment and its indexes as `.cleaned` files."""

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
        """Create the `.log.cleaned` file. An index entry is added after more than `interval` bytes."""
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
        """Writeback was started up to here; all but the last piece should be complete."""
        self._synced = 0
        self.size = 0
        self._offset_index = OffsetIndex()
        self._time_index = TimeIndex()
        self._aborted = TransactionIndex()
        self._since_entry = 0
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = base_offset

    def append(self, entry: Buffer, last_offset: int, max_timestamp: int) -> None:
        """Add an entry to the buffer; its memory must stay valid until `flush`."""
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

    def note_aborted(self, aborted: AbortedTxn) -> None:
        """Add an entry to the transaction index."""
        self._aborted.append(aborted)

    def flush(self) -> None:
        """Write the buffered entries to the file."""
        if self._parts:
            parts = self._parts if len(self._parts) <= _MOST_PARTS else (b"".join(self._parts),)
            self._file.pwritev(parts, self._written)
            self._written += self._parts_size
            self._parts.clear()
            self._parts_size = 0
        if self._written - self._synced >= SYNC_BYTES:
            self._sync()
        elif self._written - self._handed_over >= BEHIND_BYTES:
            # Linux starts writeback of dirty pages before it drops them: the previous piece has had time for that.
            begin = max(self._handed_over - BEHIND_BYTES, self._synced)
            forget_pages(self._file, begin, self._written - begin)
            self._handed_over = self._written

    def _sync(self) -> None:
        self._file.sync()
        forget_pages(self._file, 0, 0)
        self._handed_over = self._synced = self._written

    def finish(self, modified_ms: int) -> None:
        """Complete and sync all files. The log file is dated `modified_ms`, on which delete horizons may depend."""
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
        """Close the file. Idempotent."""
        self._file.close()


def forget_pages(file: File, position: int, length: int) -> None:
    """Drop a range from the page cache, to leave it to producers and consumers; `length` 0 means up to the end."""
    descriptor = file.fileno()
    if descriptor is not None and descriptor >= 0:
        os.posix_fadvise(descriptor, position, length, os.POSIX_FADV_DONTNEED)


def expect_pages(file: File, position: int, length: int) -> None:
    """Start to read a range into the page cache in the background."""
    descriptor = file.fileno()
    if descriptor is not None and descriptor >= 0:
        os.posix_fadvise(descriptor, position, length, os.POSIX_FADV_WILLNEED)


def remove_cleaned_files(files: Files, directory: str) -> None:
    """Remove the files that a failed pass left in a log's directory. Raises `StorageError`."""
    for name in files.list(directory):
        if name.endswith(CLEANED_SUFFIX):
            files.remove(f"{directory}/{name}")
