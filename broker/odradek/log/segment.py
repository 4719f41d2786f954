"""One segment: a run of batches in one `.log` file with its indexes.

Whole, checked batches enter by `append`; positions leave by `locate` and the find functions. `log.partition_log` owns
segments, `log.recovery` makes them from files. Invariant: bytes [0, size) of the file are whole batches with rising
offsets; what lies behind `size` is the debris of a failed write and is cut before the next one.

A sealed segment (not the last of its log) keeps no open file and no index in memory until a read needs them, so that
a broker may hold many more segments than it has descriptors.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from odradek.base.errors import CorruptMessageError, StorageError
from odradek.base.ports import Buffer, File, Files
from odradek.base.types import NO_TIMESTAMP
from odradek.log.indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetIndex, TimeIndex
from odradek.records.batch import HEADER_SIZE, BatchHeader, read_header

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"

SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

INT32_MAX: Final = 2**31 - 1

SCAN_BYTES: Final = 8192
"""Read at once when batch headers are followed; twice the default distance between index entries."""

_OFFSET_AND_LENGTH: Final = struct.Struct(">qi")
_LENGTH_OVERHEAD: Final = 12
_LAST_OFFSET_DELTA: Final = struct.Struct(">i")
_LAST_OFFSET_DELTA_AT: Final = 23
_WALK_NEEDS: Final = _LAST_OFFSET_DELTA_AT + 4
_SMALLEST_LENGTH: Final = HEADER_SIZE - _LENGTH_OVERHEAD


def file_name(offset: int, suffix: str) -> str:
    """Kafka's name of a file that belongs to the segment at `offset`."""
    return f"{offset:020d}{suffix}"


class BatchPlace(NamedTuple):
    """Where a batch lies in a segment."""

    position: int
    size: int
    base_offset: int
    last_offset: int


def whole_batches(records: Buffer) -> int:
    """How many bytes of a fetched record set are whole batches; a fetch may cut the last one."""
    size = len(records)
    position = 0
    while size - position >= HEADER_SIZE:
        _, length = _OFFSET_AND_LENGTH.unpack_from(records, position)
        following = position + length + _LENGTH_OVERHEAD
        # A length that cannot be true stays in the result: the check of the batch says what is wrong with it.
        if length < _SMALLEST_LENGTH:
            return size
        if following > size:
            break
        position = following
    return position


def walk_headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch from `position`, which begins one, to `end`. Raises as `Segment.locate`."""
    while end - position >= HEADER_SIZE:
        chunk = file.pread(min(SCAN_BYTES, end - position), position)
        at = 0
        while len(chunk) - at >= HEADER_SIZE:
            header = read_header(chunk, at)
            yield position + at, header
            at += header.batch_length + _LENGTH_OVERHEAD
        if at == 0:
            raise CorruptMessageError(f"{file.path} has no batch at position {position}")
        position += at


class Segment:
    """One segment of a log."""

    __slots__ = (
        "_file",
        "_index_room",
        "_offset_index",
        "_time_index",
        "_time_index_room",
        "base_offset",
        "bytes_since_index_entry",
        "created_ms",
        "directory",
        "files",
        "first_timestamp",
        "indexes_written",
        "max_timestamp",
        "max_timestamp_offset",
        "size",
    )

    def __init__(self, files: Files, directory: str, base_offset: int, *, created_ms: int) -> None:
        """An empty segment; touches no file. `created_ms` is wall time, used where no record has a timestamp."""
        self.files = files
        self.directory = directory
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.size = 0
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.first_timestamp = NO_TIMESTAMP
        """Largest timestamp of the first batch; rolling by time counts from it. -1: not known."""
        self.bytes_since_index_entry = 0
        self.indexes_written = False
        self._file: File | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._index_room = INT32_MAX
        self._time_index_room = INT32_MAX

    def __repr__(self) -> str:
        """For assertions: base offset and size."""
        return f"Segment({self.base_offset}, {self.size} bytes)"

    # Files

    def path(self, suffix: str = LOG_SUFFIX) -> str:
        """Path of one of its files."""
        return f"{self.directory}/{file_name(self.base_offset, suffix)}"

    def create(self) -> None:
        """Make an empty `.log` file; an old one of the name is cut to nothing. Raises `StorageError`."""
        self._file = self.files.open(self.path(), create=True)
        if self._file.size():
            self._file.truncate(0)
        self.set_indexes(OffsetIndex(), TimeIndex())

    @property
    def file(self) -> File:
        """The `.log` file, opened at first use. Raises `StorageError`."""
        if self._file is None:
            self._file = self.files.open(self.path())
        return self._file

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index, read at first use. A corrupt file counts as empty: lookups then walk the segment."""
        if self._offset_index is None:
            self._offset_index = OffsetIndex.decode(self._read(INDEX_SUFFIX)) or OffsetIndex()
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        """The time index, read at first use; see `offset_index`."""
        if self._time_index is None:
            self._time_index = TimeIndex.decode(self._read(TIME_INDEX_SUFFIX)) or TimeIndex()
        return self._time_index

    def _read(self, suffix: str) -> bytes:
        try:
            return self.files.read(self.path(suffix))
        except StorageError as error:
            if error.missing:
                return b""
            raise

    def set_indexes(self, offset_index: OffsetIndex, time_index: TimeIndex) -> None:
        """Take over indexes that differ from the files'."""
        self._offset_index = offset_index
        self._time_index = time_index
        self.indexes_written = False

    def limit_indexes(self, index_bytes: int) -> None:
        """Bound the index files (`segment.index.bytes`)."""
        self._index_room = max(index_bytes // OFFSET_ENTRY_BYTES, 1)
        # One entry is kept back for the one that sealing adds.
        self._time_index_room = max(index_bytes // TIME_ENTRY_BYTES - 1, 1)

    @property
    def index_full(self) -> bool:
        """Whether no further index entry fits: time to roll."""
        return len(self.offset_index) >= self._index_room or len(self.time_index) >= self._time_index_room

    # Writing

    def append(self, records: Buffer, headers: Sequence[BatchHeader], first_offset: int, interval: int) -> None:
        """Write whole batches at the end. Raises `StorageError` and leaves `size` and indexes as they were.

        `first_offset` is where the first batch got its offset; the others follow. `headers` carry final timestamps.
        An index entry is due after more than `interval` bytes. Followers' batches may leave gaps, see `append_at`.
        """
        position = self.size
        self.file.pwritev((records,), position)
        offset = first_offset
        for header in headers:
            last_offset = offset + header.last_offset_delta
            self._note(header, last_offset, position, interval)
            position += header.batch_length + _LENGTH_OVERHEAD
            offset = last_offset + 1
        self.size = position

    def append_at(self, records: Buffer, headers: Sequence[BatchHeader], interval: int) -> None:
        """Write batches that carry their offsets already."""
        position = self.size
        self.file.pwritev((records,), position)
        for header in headers:
            self._note(header, header.base_offset + header.last_offset_delta, position, interval)
            position += header.batch_length + _LENGTH_OVERHEAD
        self.size = position

    def _note(self, header: BatchHeader, last_offset: int, position: int, interval: int) -> None:
        timestamp = header.max_timestamp
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
        self.bytes_since_index_entry += header.batch_length + _LENGTH_OVERHEAD

    def rebuild_note(self, header: BatchHeader, interval: int) -> None:
        """Take in a batch that lies at `size` already: recovery builds a segment's state by these."""
        self._note(header, header.base_offset + header.last_offset_delta, self.size, interval)
        self.size += header.batch_length + _LENGTH_OVERHEAD

    def cut_debris(self) -> None:
        """Cut the file back to `size` after a failed write. Raises `StorageError`."""
        self.file.truncate(self.size)

    def truncate(self, offset: int) -> BatchPlace | None:
        """Cut the batch that holds `offset` and all later ones; the cut batch, or None when nothing was cut."""
        place = self.locate(offset)
        if place is None:
            return None
        self.file.truncate(place.position)
        self.size = place.position
        self.offset_index.truncate(place.base_offset - self.base_offset)
        self.time_index.truncate(place.base_offset - self.base_offset)
        self.indexes_written = False
        self.restore_max_timestamp()
        return place

    def restore_max_timestamp(self) -> None:
        """Find the largest timestamp again: the last time index entry, then the batches after it."""
        last = self.time_index.last()
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = self.base_offset
        position = 0
        if last is not None:
            self.max_timestamp = last.timestamp
            self.max_timestamp_offset = self.base_offset + last.offset
            position = self.offset_index.floor_position(last.offset)
        for _, header in self.headers(position):
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp = header.max_timestamp
                self.max_timestamp_offset = header.base_offset + header.last_offset_delta
        _, indexed = self.offset_index.last()
        self.bytes_since_index_entry = self.size - indexed
        if self.size == 0:
            self.first_timestamp = NO_TIMESTAMP

    def seal(self) -> None:
        """Complete the time index, as the segment gets no more batches for now."""
        if self.size and self.max_timestamp >= 0:
            before = len(self.time_index)
            self.time_index.append_if_later(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
            if len(self.time_index) != before:
                self.indexes_written = False

    def write_indexes(self) -> None:
        """Put the indexes into their files and make them durable.

        Only for segments that get no batch meanwhile: it runs on a flush thread, and whoever started that sets
        `indexes_written` afterwards. Blocks, raises `StorageError`.
        """
        for suffix, index in ((INDEX_SUFFIX, self.offset_index), (TIME_INDEX_SUFFIX, self.time_index)):
            content = index.encode()
            file = self.files.open(self.path(suffix), create=True)
            try:
                file.pwritev((content,), 0)
                file.truncate(len(content))
                file.sync()
            finally:
                file.close()

    def remove_indexes(self) -> None:
        """Remove the index files before the segment is written to again; the indexes stay in memory."""
        self.set_indexes(self.offset_index, self.time_index)
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            self.files.remove(self.path(suffix))

    def sync(self) -> None:
        """Make the batches durable. Blocks, raises `StorageError`."""
        self.file.sync()

    def release(self) -> None:
        """Let go of file and indexes of a sealed segment; a reader that holds the file keeps it open."""
        self._file = None
        if self.indexes_written:
            self._offset_index = None
            self._time_index = None

    def mark_deleted(self) -> list[str]:
        """Rename its files, the producer snapshot of its start included; their new paths. Raises `StorageError`.

        A reader that holds the `.log` file keeps it.
        """
        paths = []
        for suffix in (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX):
            path = self.path(suffix)
            if suffix == LOG_SUFFIX or self.files.exists(path):
                self.files.rename(path, path + DELETED_SUFFIX)
                paths.append(path + DELETED_SUFFIX)
        self.release()
        return paths

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    # Reading

    def locate(self, offset: int, *, within: int | None = None) -> BatchPlace | None:
        """The first batch that ends at or above `offset`; None when there is none below position `within`.

        One index lookup and mostly one read, whatever the segment's size. Raises `CorruptMessageError` when the
        bytes are no batches, `StorageError` when they cannot be read.
        """
        limit = self.size if within is None else within
        relative = offset - self.base_offset
        position = self.offset_index.floor_position(relative) if relative > 0 else 0
        pread = self.file.pread
        while limit - position >= HEADER_SIZE:
            chunk = pread(min(SCAN_BYTES, limit - position), position)
            at = 0
            last_start = len(chunk) - _WALK_NEEDS
            while at <= last_start:
                base_offset, length = _OFFSET_AND_LENGTH.unpack_from(chunk, at)
                if length < _SMALLEST_LENGTH:
                    raise self._corrupt(position + at)
                (delta,) = _LAST_OFFSET_DELTA.unpack_from(chunk, at + _LAST_OFFSET_DELTA_AT)
                if base_offset + delta >= offset:
                    return BatchPlace(position + at, length + _LENGTH_OVERHEAD, base_offset, base_offset + delta)
                at += length + _LENGTH_OVERHEAD
            if at == 0:
                raise self._corrupt(position)
            position += at
        return None

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of each batch from `position`, which begins one. Raises as `locate`."""
        return walk_headers(self.file, position, self.size)

    def read_batch(self, position: int, header: BatchHeader) -> bytes:
        """The bytes of one batch."""
        return self.file.pread(header.batch_length + _LENGTH_OVERHEAD, position)

    def batches_for_timestamp(self, timestamp: int, offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of batches that may hold the first record at or after a time and an offset."""
        entry = self.time_index.floor(timestamp)
        start = max(entry.offset if entry is not None else 0, offset - self.base_offset)
        position = self.offset_index.floor_position(start) if start > 0 else 0
        for at, header in self.headers(position):
            if header.max_timestamp >= timestamp and header.base_offset + header.last_offset_delta >= offset:
                yield at, header

    def next_offset(self) -> int:
        """The offset after its last batch, by walking from the last index entry."""
        _, position = self.offset_index.last()
        last_offset = self.base_offset - 1
        for _, header in self.headers(position):
            last_offset = header.base_offset + header.last_offset_delta
        return last_offset + 1

    def age_ms(self, timestamp: int, now_ms: int) -> int:
        """Age at a record's `timestamp`, counted from the first batch's; from its creation when records have none."""
        first = self.load_first_timestamp()
        return timestamp - first if first >= 0 else now_ms - self.created_ms

    def load_first_timestamp(self) -> int:
        """The largest timestamp of the first batch; -1 for an empty segment."""
        if self.first_timestamp < 0 and self.size >= HEADER_SIZE:
            self.first_timestamp = read_header(self.file.pread(HEADER_SIZE, 0), 0).max_timestamp
        return self.first_timestamp

    def _corrupt(self, position: int) -> CorruptMessageError:
        return CorruptMessageError(f"{self.path()} has no batch at position {position}")
