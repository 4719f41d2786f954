"""One segment of a log: record batches in one `.log` file, with their indexes.

`append` adds whole, validated batches, or messages and wrappers of the old formats ("entries" of any record format).
`locate` and the find functions return positions. `log.storage` owns segments; `log/recovery/log_recovery` builds them
from files. Invariant: bytes [0, size) of the file are whole entries with increasing offsets. Bytes after `size` are
preallocated space or the remains of a failed write, which are truncated before the next write.

A sealed segment (any but the last of its log) opens its file and loads its indexes only when a read needs them, so
that a broker can hold many more segments than it has file descriptors.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Final

from odradek.base.errors import CorruptMessageError, InvalidRecordError, StorageError
from odradek.base.ports import Buffer, File, Files
from odradek.base.types import NO_TIMESTAMP
from odradek.log.file_names import FileNames, FlushNames
from odradek.log.segments.entries import (
    LENGTH_OVERHEAD,
    NOT_IN_MEMORY,
    SCAN_BYTES,
    SMALLEST_LENGTH,
    SMALLEST_OLD_LENGTH,
    BatchPlace,
    walk_headers,
)
from odradek.log.segments.indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetIndex, TimeIndex
from odradek.log.segments.transaction_index import AbortedTxn, TransactionIndex
from odradek.records.checks.plain_batch import PlainBatch
from odradek.records.formats import ENTRY_PREFIX, MIN_ENTRY_SIZE, first_offset, read_entry
from odradek.records.legacy.message_set import UNKNOWN_COUNT
from odradek.records.v2.batch import HEADER_SIZE, MAGIC, BatchHeader
from odradek.records.v2.record import UNPACKED_LIMIT_BYTES

logger = logging.getLogger(__name__)

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
TEMPORARY_SUFFIX: Final = ".tmp"

SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

INT32_MAX: Final = 2**31 - 1

LOADED_BYTES: Final = 512
"""Approximate memory of an open file and of indexes without entries."""

_PREFIX: Final = struct.Struct(">qi4xB6xi")
"""Offset, length, magic and last offset delta of an entry; the delta is valid in format 2 only."""


def file_name(offset: int, suffix: str) -> str:
    """Return the name that Kafka gives to a file of the segment at base offset `offset`."""
    return f"{offset:020d}{suffix}"


def offset_of(name: str) -> int | None:
    """Return the offset in a file name; None if the name does not start with one."""
    digits = name.split(".", 1)[0]
    return int(digits) if digits.isdecimal() else None


class Segment:
    """One segment of a log."""

    __slots__ = (
        "_changed_ms",
        "_drafts",
        "_file",
        "_has_index_room",
        "_index_room",
        "_offset_index",
        "_time_index",
        "_time_index_room",
        "_transaction_index",
        "base_offset",
        "bytes_since_index_entry",
        "created_ms",
        "directory",
        "files",
        "first_timestamp",
        "has_aborted",
        "indexes_valid",
        "indexes_written",
        "is_preallocated",
        "max_timestamp",
        "max_timestamp_offset",
        "size",
    )

    def __init__(self, files: Files, directory: str, base_offset: int, *, created_ms: int) -> None:
        """Create an empty segment; touches no file. `created_ms` (wall time) dates records without timestamps."""
        self.files = files
        self.directory = directory
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.size = 0
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.first_timestamp = NO_TIMESTAMP
        """Largest timestamp of the first batch, from which `segment.ms` counts. -1 if it is not known."""
        self.bytes_since_index_entry = 0
        self.indexes_written = False
        self.indexes_valid = False
        """Whether valid index files of the last segment exist since the log was loaded. They must be removed before the
        segment is written to or truncated. Most logs get no batch for some time after a start, and many never."""
        self.has_aborted = False
        """Whether the transaction index has entries. Most have none; then no file is read."""
        self.is_preallocated = False
        """Whether the file has preallocated zeros after `size`; they are removed when the segment is sealed."""
        self._changed_ms: int | None = None
        self._file: File | None = None
        # Numbers of temporary index files: a flush whose caller was cancelled may still write during a close.
        self._drafts = count()
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._transaction_index: TransactionIndex | None = None
        self._has_index_room = False
        self._index_room = INT32_MAX
        self._time_index_room = INT32_MAX

    def __repr__(self) -> str:
        """Show base offset and size, for assertions."""
        return f"Segment({self.base_offset}, {self.size} bytes)"

    # Files

    def path(self, suffix: str = LOG_SUFFIX) -> str:
        """Return the path of one of the segment's files."""
        return f"{self.directory}/{file_name(self.base_offset, suffix)}"

    def create(self, allocate_bytes: int = 0) -> None:
        """Create the `.log` file; an existing file is truncated to nothing. Raises `StorageError`.

        `allocate_bytes` (`preallocate`): disk space to reserve at once.
        """
        self._file = self.files.open(self.path(), create=True)
        if self._file.size():
            self._file.truncate(0)
        if allocate_bytes:
            self._file.allocate(allocate_bytes)
            self.is_preallocated = True
        self._changed_ms = self.created_ms
        self.set_indexes(OffsetIndex(), TimeIndex(), TransactionIndex())

    @property
    def changed_ms(self) -> int:
        """Wall time of the last append if known, otherwise the modification time of the file."""
        if self._changed_ms is None:
            self._changed_ms = self.files.modified_ms(self.path())
        return self._changed_ms

    @changed_ms.setter
    def changed_ms(self, changed_ms: int) -> None:
        self._changed_ms = changed_ms

    @property
    def newest_ms(self) -> int:
        """Largest timestamp; if records have no timestamps, `changed_ms`."""
        return self.max_timestamp if self.max_timestamp >= 0 else self.changed_ms

    @property
    def file(self) -> File:
        """The `.log` file, opened on first use. Raises `StorageError`."""
        # A local variable: another thread may release the segment after the check.
        file = self._file
        if file is None:
            file = self._file = self.files.open(self.path())
        return file

    @property
    def is_open(self) -> bool:
        """Whether the `.log` file is open."""
        return self._file is not None

    def holds(self, file: File) -> bool:
        """Whether `file` is the file that is currently open here."""
        return file is self._file

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index, loaded on first use. A corrupt file counts as empty: lookups then scan the segment."""
        index = self._offset_index
        if index is None:
            index = self._offset_index = OffsetIndex.decode(self._read(INDEX_SUFFIX)) or OffsetIndex()
        return index

    @property
    def time_index(self) -> TimeIndex:
        """The time index, loaded on first use; see `offset_index`."""
        index = self._time_index
        if index is None:
            index = self._time_index = TimeIndex.decode(self._read(TIME_INDEX_SUFFIX)) or TimeIndex()
        return index

    @property
    def transaction_index(self) -> TransactionIndex:
        """The transactions aborted in this segment, loaded on first use. Raises `CorruptMessageError`, `StorageError`.

        A corrupt file is an error here: unlike the other indexes, lookups cannot do without it.
        """
        index = self._transaction_index
        if index is None:
            if not self.has_aborted:
                index = TransactionIndex()
            else:
                index = TransactionIndex.decode(self._read(TRANSACTION_INDEX_SUFFIX), self.base_offset)
                if index is None:
                    raise CorruptMessageError(f"{self.path(TRANSACTION_INDEX_SUFFIX)} is not a valid transaction index")
            self._transaction_index = index
        return index

    def load(self, *, time_index: bool = False) -> None:
        """Open the file and load the offset index, and the time index if wanted. Raises `StorageError`."""
        _ = self.file, self.offset_index
        if time_index:
            _ = self.time_index

    @property
    def is_loaded(self) -> bool:
        """Whether the file is open and the offset index is in memory, so that `locate` opens and loads nothing."""
        return self._file is not None and self._offset_index is not None

    @property
    def knows_aborted(self) -> bool:
        """Whether `transaction_index` reads no file."""
        return self._transaction_index is not None or not self.has_aborted

    def copy(self) -> Segment:
        """Return a segment for a lookup on another thread. It shares the open file and the loaded indexes.

        What the copy opens and loads does not change this segment; see `adopt`.
        """
        other = Segment(self.files, self.directory, self.base_offset, created_ms=self.created_ms)
        other.size, other.has_aborted = self.size, self.has_aborted
        other._file = self._file
        other._offset_index, other._time_index = self._offset_index, self._time_index
        other._transaction_index = self._transaction_index
        return other

    def adopt(self, other: Segment) -> None:
        """Take over what a copy of this segment has opened and loaded. The segment must not have changed meanwhile."""
        if self._file is None:
            self._file = other._file
        if self._offset_index is None:
            self._offset_index = other._offset_index
        if self._time_index is None:
            self._time_index = other._time_index
        if self._transaction_index is None:
            self._transaction_index = other._transaction_index

    @property
    def loaded_bytes(self) -> int:
        """Approximate memory that the file and the loaded indexes take."""
        size = LOADED_BYTES
        if self._offset_index is not None:
            size += self._offset_index.memory_bytes
        if self._time_index is not None:
            size += self._time_index.memory_bytes
        if self._transaction_index is not None:
            size += self._transaction_index.memory_bytes
        return size

    def _read(self, suffix: str) -> bytes:
        try:
            return self.files.read(self.path(suffix))
        except StorageError as error:
            if error.missing:
                return b""
            raise

    def set_indexes(
        self, offset_index: OffsetIndex, time_index: TimeIndex, transaction_index: TransactionIndex
    ) -> None:
        """Replace the indexes in memory; the index files no longer match."""
        self._offset_index = offset_index
        self._time_index = time_index
        self._transaction_index = transaction_index
        self.has_aborted = bool(len(transaction_index))
        self._has_index_room = False
        self.indexes_written = False

    def limit_indexes(self, index_bytes: int) -> None:
        """Limit the size of the index files (`segment.index.bytes`)."""
        self._has_index_room = False
        self._index_room = max(index_bytes // OFFSET_ENTRY_BYTES, 1)
        # Reserve one entry for the one that sealing adds.
        self._time_index_room = max(index_bytes // TIME_ENTRY_BYTES - 1, 1)

    @property
    def index_full(self) -> bool:
        """Whether no further index entry fits, so that the log has to roll."""
        if not self._has_index_room:
            # Every append asks, but few appends add an entry: cache the answer until the next entry.
            self._has_index_room = (
                len(self.offset_index) < self._index_room and len(self.time_index) < self._time_index_room
            )
        return not self._has_index_room

    # Writing

    def append(self, records: Buffer, headers: Sequence[BatchHeader], first_offset: int, interval: int) -> None:
        """Write whole batches at the end. On `StorageError`, `size` and the indexes are unchanged.

        `first_offset`: offset of the first batch; the others follow without gaps, unlike with `append_at`. `headers`
        have their final timestamps. An index entry is added after more than `interval` bytes.
        """
        self.file.pwritev((records,), self.size)
        self.added(headers, first_offset, interval)

    def added(self, headers: Sequence[BatchHeader], first_offset: int, interval: int) -> None:
        """Update size and indexes after the batches of `append` were written at `size`."""
        position, offset = self.size, first_offset
        for header in headers:
            last_offset = offset + header.last_offset_delta
            size = header.batch_length + LENGTH_OVERHEAD
            self._note(header.max_timestamp, size, last_offset, position, interval)
            position += size
            offset = last_offset + 1
        self.size = position

    def append_at(self, records: Buffer, headers: Sequence[BatchHeader], interval: int) -> None:
        """Write batches that already have their offsets. Raises `StorageError`."""
        self.file.pwritev((records,), self.size)
        self.added_at(headers, interval)

    def added_at(self, headers: Sequence[BatchHeader], interval: int) -> None:
        """Update size and indexes after the batches of `append_at` were written at `size`."""
        position = self.size
        for header in headers:
            size = header.batch_length + LENGTH_OVERHEAD
            self._note(header.max_timestamp, size, header.base_offset + header.last_offset_delta, position, interval)
            position += size
        self.size = position

    def append_plain(self, records: bytes, batches: Sequence[PlainBatch], interval: int) -> None:
        """Write plain batches at the end, with one system call. They have their offsets. Raises `StorageError`."""
        position = self.size
        self.file.pwritev((records,), position)
        for batch in batches:
            size = batch.end - batch.start
            self._note(batch.timestamp, size, batch.offset + batch.count - 1, position, interval)
            position += size
        self.size = position

    def has_room_for(self, entries: int) -> bool:
        """Whether the indexes have room for more entries."""
        most = max(len(self.offset_index), len(self.time_index)) + entries
        return most < self._index_room and most < self._time_index_room

    def _note(self, timestamp: int, size: int, last_offset: int, position: int, interval: int) -> None:
        """Update timestamps and indexes for a batch of `size` bytes at `position`."""
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.max_timestamp_offset = last_offset
        if position == 0:
            self.first_timestamp = timestamp
        if self.bytes_since_index_entry > interval:
            self.offset_index.append(last_offset - self.base_offset, position)
            self.time_index.append_if_later(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
            self.bytes_since_index_entry = 0
            self.indexes_written = False
            self._has_index_room = False
        self.bytes_since_index_entry += size

    def add_aborted(self, aborted: AbortedTxn) -> None:
        """Add an aborted transaction whose marker was just appended to this segment."""
        self.transaction_index.append(aborted)
        self.has_aborted = True
        self.indexes_written = False

    def rebuild_note(self, header: BatchHeader, interval: int) -> None:
        """Add the batch at `size` to the state; recovery rebuilds a segment with this method."""
        size = header.batch_length + LENGTH_OVERHEAD
        self._note(header.max_timestamp, size, header.base_offset + header.last_offset_delta, self.size, interval)
        self.size += size

    def cut_debris(self) -> None:
        """Truncate the file to `size` after a failed write. Raises `StorageError`."""
        self.file.truncate(self.size)
        self.is_preallocated = False

    def truncate(self, offset: int) -> int | None:
        """Truncate from the batch that contains `offset`; an old wrapper is removed as a whole.

        Returns the first offset of that batch, or None if nothing was truncated. Raises `StorageError`.
        """
        place = self.locate(offset)
        if place is None:
            return None
        begin = self._begin_of(place)
        self.file.truncate(place.position)
        self.is_preallocated = False
        self.size = place.position
        self.offset_index.truncate(begin - self.base_offset)
        self.time_index.truncate(begin - self.base_offset)
        self.transaction_index.truncate(begin)
        self.has_aborted = bool(len(self.transaction_index))
        self.indexes_written = False
        self.restore_max_timestamp()
        return begin

    def _begin_of(self, place: BatchPlace) -> int:
        header = read_entry(self.file.pread(min(place.size, HEADER_SIZE), place.position))
        if header.record_count != UNKNOWN_COUNT:
            return place.base_offset
        try:
            return first_offset(self.read_batch(place.position, header), 0, header, limit=UNPACKED_LIMIT_BYTES)
        except (CorruptMessageError, InvalidRecordError) as error:
            # The entry is removed anyway. The caller ends the log at the requested offset at most.
            logger.warning("%s has an unreadable wrapper at position %d: %s", self.path(), place.position, error)
            return place.base_offset

    def restore_max_timestamp(self, *, was_sealed: bool = False) -> None:
        """Recompute the largest timestamp from the last time index entry and the batches after it.

        If the segment `was_sealed`, its last entry has the largest timestamp, and the batches are not scanned. There
        may be a gigabyte of them if all records have the same time or were written newest first.
        """
        last = self.time_index.last()
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = self.base_offset
        position = 0
        if last is not None:
            self.max_timestamp = last.timestamp
            self.max_timestamp_offset = self.base_offset + last.offset
            position = self.size if was_sealed else self.offset_index.floor_position(last.offset)
        for _, header in self.headers(position):
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp = header.max_timestamp
                self.max_timestamp_offset = header.base_offset + header.last_offset_delta
        _, indexed = self.offset_index.last()
        self.bytes_since_index_entry = self.size - indexed
        if self.size == 0:
            self.first_timestamp = NO_TIMESTAMP

    def seal(self) -> None:
        """Complete the time index and release preallocated space; no more batches are appended for now.

        Raises `StorageError`.
        """
        if self.is_preallocated:
            self.file.truncate(self.size)
            self.is_preallocated = False
        if self.size and self.max_timestamp >= 0:
            before = len(self.time_index)
            self.time_index.append_if_later(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
            if len(self.time_index) != before:
                self.indexes_written = False
                self._has_index_room = False

    def write_indexes(self, names: FlushNames | None = None) -> None:
        """Write the index files and sync them. Blocks. Raises `StorageError`.

        No batch may be appended meanwhile. It runs on a flush thread, with the `names` of the flush; without them,
        nothing else may change the names. The caller that started the flush sets `indexes_written` afterwards.
        """
        names = names or FileNames().begin_flush(self.files)
        # Written first: the presence of the other two implies that a missing transaction index is empty.
        if self.has_aborted:
            self._write_index(names, TRANSACTION_INDEX_SUFFIX, self.transaction_index.encode())
        else:
            names.remove(self.path(TRANSACTION_INDEX_SUFFIX))
        self._write_index(names, INDEX_SUFFIX, self.offset_index.encode())
        self._write_index(names, TIME_INDEX_SUFFIX, self.time_index.encode())

    def _write_index(self, names: FlushNames, suffix: str, content: bytes) -> None:
        names.replace(self.path(suffix), f"{self.path(suffix)}.{next(self._drafts)}{TEMPORARY_SUFFIX}", content)

    def remove_indexes(self) -> None:
        """Remove the index files before the segment is written to again; the indexes stay in memory."""
        self.set_indexes(self.offset_index, self.time_index, self.transaction_index)
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
            self.files.remove(self.path(suffix))
        self.indexes_valid = False

    def release(self) -> None:
        """Release the file and indexes of a sealed segment; the file stays open while a reader holds it."""
        self._file = None
        if self.indexes_written:
            self._offset_index = None
            self._time_index = None
            self._transaction_index = None

    def move_to(self, directory: str) -> None:
        """Follow a rename of the log's directory; an open file stays open."""
        self.directory = directory
        if self._file is not None:
            self._file.renamed_to(self.path())

    def close(self) -> None:
        """Close the `.log` file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    # Reading

    def locate(self, offset: int, *, within: int | None = None, scratch: bytearray | None = None) -> BatchPlace | None:
        """Return the first batch that ends at or above `offset`; None if there is none below position `within`.

        Takes one index lookup and usually one read, whatever the size of the segment. With `scratch`, a buffer of
        `SCAN_BYTES`, it does not wait for the disk if the segment is loaded: it returns `NOT_IN_MEMORY` instead. Raises
        `CorruptMessageError` if the bytes are not batches, `StorageError` if they cannot be read.
        """
        limit = self.size if within is None else within
        relative = offset - self.base_offset
        position = self.offset_index.floor_position(relative) if relative > 0 else 0
        file = self.file
        unpack = _PREFIX.unpack_from
        while limit - position >= MIN_ENTRY_SIZE:
            size = min(SCAN_BYTES, limit - position)
            chunk: Buffer
            if scratch is None:
                chunk = file.pread(size, position)
                size = len(chunk)
            elif file.pread_into(scratch, size, position):
                chunk = scratch
            else:
                return NOT_IN_MEMORY
            at = 0
            last_start = size - ENTRY_PREFIX
            while at <= last_start:
                base_offset, length, magic, delta = unpack(chunk, at)
                if magic != MAGIC:
                    # The field is not a delta here: an old entry has one offset, that of its last message.
                    delta = self._old_delta(magic, length, position + at)
                elif length < SMALLEST_LENGTH:
                    raise self._corrupt(position + at)
                if (last := base_offset + delta) >= offset:
                    return tuple.__new__(BatchPlace, (position + at, length + LENGTH_OVERHEAD, base_offset, last))
                at += length + LENGTH_OVERHEAD
            if at == 0:
                # A format 0 message without key and value is one byte shorter than what is unpacked above.
                header = read_entry(chunk[:size])
                if header.base_offset >= offset:
                    return BatchPlace(position, header.size, header.base_offset, header.base_offset)
                at = header.size
            position += at
        return None

    def _old_delta(self, magic: int, length: int, position: int) -> int:
        if magic > MAGIC or length < SMALLEST_OLD_LENGTH:
            raise self._corrupt(position)
        return 0

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position, header) of each batch from `position`, a batch boundary. Raises as `locate`."""
        return walk_headers(self.file, position, self.size)

    def read_batch(self, position: int, header: BatchHeader) -> bytes:
        """Return the bytes of one batch. Raises `StorageError`."""
        return self.file.pread(header.batch_length + LENGTH_OVERHEAD, position)

    def batches_for_timestamp(self, timestamp: int, offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position, header) of the batches that may hold the first record at or after a time and an offset."""
        entry = self.time_index.floor(timestamp)
        start = max(entry.offset if entry is not None else 0, offset - self.base_offset)
        position = self.offset_index.floor_position(start) if start > 0 else 0
        for at, header in self.headers(position):
            if header.max_timestamp >= timestamp and header.base_offset + header.last_offset_delta >= offset:
                yield at, header

    def next_offset(self) -> int:
        """Return the offset after the last batch, found by a scan from the last index entry."""
        _, position = self.offset_index.last()
        last_offset = self.base_offset - 1
        for _, header in self.headers(position):
            last_offset = header.base_offset + header.last_offset_delta
        return last_offset + 1

    def age_ms(self, timestamp: int, wall_ms: Callable[[], int]) -> int:
        """Return the age at `timestamp`, counted from the first batch, or from creation if it has no timestamp."""
        first = self.first_timestamp
        if first < 0:
            first = self.load_first_timestamp()
        return timestamp - first if first >= 0 else wall_ms() - self.created_ms

    def load_first_timestamp(self) -> int:
        """Return the largest timestamp of the first batch; -1 for an empty segment."""
        if self.first_timestamp < 0 and self.size:
            self.first_timestamp = read_entry(self.file.pread(min(HEADER_SIZE, self.size), 0)).max_timestamp
        return self.first_timestamp

    def _corrupt(self, position: int) -> CorruptMessageError:
        return CorruptMessageError(f"{self.path()} has no batch at position {position}")
