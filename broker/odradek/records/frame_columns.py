"""Decodes a fetched buffer into numpy columns, in place: uncompressed records are not copied.

The Spark source uses it. `columns` has the form for single batches, which compaction uses. All batch headers of the
buffer are read at once (`batch_table`), then all records of up to `rows` records together, field by field. Compressed
batches are decompressed into one buffer that is used again and again.

Invariants:
- Every returned position and length is inside the buffer of its columns and inside its record. Anything inconsistent
  raises `CorruptMessageError`.
- Only the requested fields are decoded. If no field of a record is requested, records of batches without gaps are
  counted from the headers, and nothing is decompressed.
- Besides the given buffer, a decoder holds one decompression buffer of at most `limit` bytes and the columns of at most
  `rows` records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odradek.base.errors import CorruptMessageError
from odradek.base.ports import Buffer
from odradek.compression import decompress_into
from odradek.records.batch_table import BatchTable, entry_positions, has_old_formats, rows_before, spread
from odradek.records.conversion.up import up_entry
from odradek.records.formats import iterate_entries
from odradek.records.record_cursors import (
    Bytes,
    HeaderColumns,
    Integers,
    RecordCursors,
    absolute_offsets,
    absolute_timestamps,
    no_headers,
    read_headers,
)
from odradek.records.regular_records import RegularPieces, RegularRecords, read_regular
from odradek.records.section_starts import check_counts, follow_section, section_starts
from odradek.records.v2.batch import MAGIC
from odradek.records.v2.transactions import AbortedTransactions

MAX_OFFSET: Final = (1 << 63) - 1
_UNPACKED_BYTES: Final = 4 << 20
"""Normal size of the decompression buffer: it fits the processor's caches. It grows for a larger batch only."""
_CONVERTED_BYTES: Final = 1 << 20
"""Batches converted from the formats 0 and 1 are decoded in groups of this size."""
_GROWTH: Final = 4
_NO_LIMIT: Final = 1 << 62
_MOST_SKIPPED: Final = 64
"""After records that are not regular, up to this number of groups are not tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFields:
    """The fields of records that are decoded. Offsets and timestamp types always are."""

    timestamp: bool = True
    key: bool = True
    value: bool = True
    headers: bool = False

    @property
    def in_records(self) -> bool:
        """Whether a field has to be read from the records themselves."""
        return self.timestamp or self.key or self.value or self.headers


ALL_FIELDS: Final = RecordFields(headers=True)


@dataclass(frozen=True, slots=True)
class Spans:
    """Pieces of a buffer, in the order of their positions; a length of -1 means null."""

    start: Integers
    length: Integers

    @property
    def longest(self) -> int:
        """The largest length."""
        return int(self.length.max(initial=0))


Pieces = Spans | RegularPieces
"""Pieces of a buffer in any form. Both have `start` and `length`."""


def _slice(pieces: Pieces | None, rows: slice | NDArray[np.bool_]) -> Spans | None:
    """Return some of the pieces."""
    return None if pieces is None else Spans(pieces.start[rows], pieces.length[rows])


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameColumns:
    """Records as columns of equal length. A field that was not requested is None.

    Valid until the decoder continues, because it uses `buffer` again.
    """

    buffer: Bytes
    offset: Integers
    timestamp_type: Integers
    timestamp_ms: Integers | None = None
    key: Pieces | None = None
    value: Pieces | None = None
    headers: HeaderColumns | None = None

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.offset)

    @property
    def largest_bytes(self) -> int:
        """A number of bytes that key and value of no record exceed together."""
        return sum(pieces.longest for pieces in (self.key, self.value) if pieces is not None)

    @property
    def size_bytes(self) -> Integers:
        """Bytes of the decoded keys, values and headers of each record."""
        size = np.zeros(len(self), dtype=np.int64)
        for spans in (self.key, self.value):
            if spans is not None:
                size += np.maximum(spans.length, 0)
        if self.headers is not None and len(self.headers.name_length):
            headers = self.headers.name_length + np.maximum(self.headers.value_length, 0)
            before = np.append(0, np.cumsum(headers))
            rows = rows_before(self.headers.count)
            size += before[rows[1:]] - before[rows[:-1]]
        return size

    def slice(self, first: int, last: int) -> FrameColumns:
        """Return the records from `first` to before `last`."""
        return FrameColumns(
            buffer=self.buffer,
            offset=self.offset[first:last],
            timestamp_type=self.timestamp_type[first:last],
            timestamp_ms=None if self.timestamp_ms is None else self.timestamp_ms[first:last],
            key=_slice(self.key, slice(first, last)),
            value=_slice(self.value, slice(first, last)),
            headers=None if self.headers is None else self.headers.slice(first, last),
        )

    def select(self, inside: NDArray[np.bool_]) -> FrameColumns:
        """Return the records for which `inside` is true."""
        return FrameColumns(
            buffer=self.buffer,
            offset=self.offset[inside],
            timestamp_type=self.timestamp_type[inside],
            timestamp_ms=None if self.timestamp_ms is None else self.timestamp_ms[inside],
            key=_slice(self.key, inside),
            value=_slice(self.value, inside),
            headers=None if self.headers is None else self.headers.select(inside),
        )


class _Sections(NamedTuple):
    """Decompressed records sections in one buffer, and the numbers of their batches in the table."""

    array: Bytes
    start: Integers
    end: Integers
    batches: Integers


class _Rows(NamedTuple):
    """Records whose fields are read together."""

    array: Bytes
    batches: Integers
    """The numbers of their batches in the table."""
    counts: Integers
    """Number of records of each batch."""


class FrameDecoder:
    """Decodes fetched buffers. Not for concurrent use, because its columns share one decompression buffer."""

    def __init__(
        self,
        fields: RecordFields,
        *,
        rows: int,
        limit: int,
        limit_name: str = "the limit",
        check_crcs: bool = True,
        most_bytes: int = _NO_LIMIT,
    ) -> None:
        """`rows`: maximum length of columns. `limit`: maximum size of a decompressed batch in bytes, below 2 GiB;
        errors call it `limit_name`. Without `check_crcs` the CRCs of format 2 batches are not checked. Columns have the
        records of at most `most_bytes` bytes, unless they belong to one batch.
        """
        self._fields: Final = fields
        self._rows: Final = rows
        self._limit: Final = limit
        self._limit_name: Final = limit_name
        self._most_bytes: Final = most_bytes
        self._check_crcs: Final = check_crcs
        self._unpacked: Bytes = np.empty(0, dtype=np.uint8)
        self._skip = self._skipped = 0
        """How many groups of records are not tried as regular ones, and how many of them have been skipped."""

    def decode(
        self,
        buffer: Buffer,
        *,
        start_offset: int = 0,
        end_offset: int = MAX_OFFSET,
        aborted: Sequence[tuple[int, int]] = (),
    ) -> Iterator[FrameColumns]:
        """Yield the records of [start_offset, end_offset) in `buffer`, in order; never empty columns.

        Control batches, batches of `aborted` transactions (producer id, first offset) and an incomplete batch at the
        end are omitted. Messages of the formats 0 and 1 are converted. Raises `CorruptMessageError` for a wrong CRC or
        an invalid batch or record, `InvalidRecordError` for a wrapper that breaks the rules of its format.
        """
        transactions = AbortedTransactions(aborted) if aborted else None
        for table in self._tables(buffer, end_offset):
            kept = (table.next_offset > start_offset) & (table.base_offset < end_offset)
            if transactions is None:
                kept &= ~table.is_control
            else:
                self._leave_out(table, kept, transactions)
            batches = np.flatnonzero(kept & (table.record_count > 0))
            if not len(batches):
                continue
            # The offsets of records are inside those of their batch, so most ranges need no look at each record.
            uncut = bool(
                (table.base_offset[batches] >= start_offset).all() and (table.next_offset[batches] <= end_offset).all()
            )
            for columns in self._columns(table, batches):
                if uncut:
                    yield columns
                    continue
                inside = (columns.offset >= start_offset) & (columns.offset < end_offset)
                cut = columns if inside.all() else columns.select(inside)
                if len(cut):
                    yield cut

    def _tables(self, buffer: Buffer, end_offset: int) -> Iterator[BatchTable]:
        """Yield the batches of `buffer`; more than one table only for the formats 0 and 1, which are converted."""
        positions, _ = entry_positions(buffer)
        if not len(positions):
            return
        if not has_old_formats(buffer, positions):
            yield BatchTable(buffer, positions)
            return
        parts: list[Buffer] = []
        size = 0
        view = memoryview(buffer)
        for position, header in iterate_entries(view):
            part = view[position : position + header.size]
            if header.magic < MAGIC:
                # The CRC of the converted batch is new, so it is correct.
                part = memoryview(up_entry(view, position, header, limit=self._limit))
            elif header.base_offset >= end_offset:
                break
            parts.append(part)
            size += len(part)
            if size >= _CONVERTED_BYTES:
                yield _joined(parts)
                parts, size = [], 0
        if parts:
            yield _joined(parts)

    def _leave_out(self, table: BatchTable, kept: NDArray[np.bool_], transactions: AbortedTransactions) -> None:
        """Clear `kept` for control batches and those of aborted transactions. Also looks at batches before the range,
        because a marker there ends a transaction."""
        last = int(kept.nonzero()[0][-1]) + 1 if kept.any() else len(table)
        control = np.flatnonzero(table.is_control[:last])
        if self._check_crcs:
            table.check_crcs(control)
        for index in range(last):
            header = table.header(index)
            covered = transactions.cover(header, table.view, int(table.position[index]))
            if covered or header.is_control:
                kept[index] = False

    def _columns(self, table: BatchTable, batches: Integers) -> Iterator[FrameColumns]:
        without_gaps = table.record_count[batches] == table.last_offset_delta[batches] + 1
        if not self._fields.in_records and without_gaps.all():
            yield from self._from_headers(table, batches)
            return
        for sections in self._sections(table, batches):
            check_counts(sections.start, sections.end, table.record_count[sections.batches])
            yield from self._decoded(table, sections)

    def _from_headers(self, table: BatchTable, batches: Integers) -> Iterator[FrameColumns]:
        """Yield the records of batches without gaps, whose offsets follow from the headers."""
        if self._check_crcs:
            table.check_crcs(batches)
        # A compressed batch is not decompressed. Its record count only has to be possible.
        size = np.where(table.codec[batches] == 0, (table.end - table.section)[batches], self._limit)
        check_counts(np.zeros_like(size), size, table.record_count[batches])
        for first, last in _groups(table.record_count[batches], self._rows):
            group = batches[first:last]
            counts = table.record_count[group]
            rows = rows_before(counts)
            for row in range(0, int(rows[-1]), self._rows):
                # More than one step only for a single batch with more records than `rows`.
                until = min(row + self._rows, int(rows[-1]))
                inside = counts if last - first > 1 else np.array([until - row])
                before = table.base_offset[group] - rows[:-1]
                yield FrameColumns(
                    buffer=table.array,
                    offset=spread(before, inside) + np.arange(row, until),
                    timestamp_type=spread(table.timestamp_type[group], inside),
                )

    def _sections(self, table: BatchTable, batches: Integers) -> Iterator[_Sections]:
        """Yield the records sections: where they are in the table's buffer, or decompressed."""
        if not table.codec[batches].any():
            # In groups, so that the bytes are still in the processor's caches after their CRC was computed.
            sizes = table.end[batches] - table.section[batches]
            for first, last in _groups(table.record_count[batches], self._rows, sizes, self._most_bytes):
                group = batches[first:last]
                if self._check_crcs:
                    table.check_crcs(group)
                yield _Sections(table.array, table.section[group], table.end[group], group)
            return
        if self._check_crcs:
            table.check_crcs(batches)
        starts: list[int] = []
        filled = rows = first = 0
        section = table.section
        for number, index in enumerate(batches.tolist()):
            packed = table.view[int(section[index]) : int(table.end[index])]
            written = self._unpack(table, index, packed, filled)
            if written is None:
                yield self._filled(starts, filled, batches[first:number])
                starts, filled, rows, first = [], 0, 0, number
                written = self._unpack(table, index, packed, 0)
                assert written is not None, "an empty buffer grows"
            starts.append(filled)
            filled += written
            rows += int(table.record_count[index])
            if rows >= self._rows or filled >= _UNPACKED_BYTES // 2:
                yield self._filled(starts, filled, batches[first : number + 1])
                starts, filled, rows, first = [], 0, 0, number + 1
        if starts:
            yield self._filled(starts, filled, batches[first:])

    def _filled(self, starts: list[int], filled: int, batches: Integers) -> _Sections:
        start = np.array(starts, dtype=np.int64)
        sections = _Sections(self._unpacked, start, np.append(start[1:], filled), batches)
        if len(self._unpacked) > _GROWTH * _UNPACKED_BYTES:
            # Do not keep the memory of an exceptionally large batch.
            self._unpacked = np.empty(0, dtype=np.uint8)
        return sections

    def _unpack(self, table: BatchTable, index: int, packed: memoryview, filled: int) -> int | None:
        """Decompress a batch to position `filled` of the buffer and return its size; None if it does not fit there.

        If the buffer is empty, it grows up to the limit.
        """
        codec = table.header(index).codec
        while True:
            if len(self._unpacked):
                written = decompress_into(codec, packed, self._unpacked.data[filled:])
                if written is not None or filled:
                    return written
            size = len(self._unpacked)
            if size >= self._limit:
                raise CorruptMessageError(
                    f"the batch at offset {int(table.base_offset[index])} decompresses to more than "
                    f"{self._limit} bytes, which is {self._limit_name}"
                )
            self._unpacked = np.empty(0, dtype=np.uint8)
            self._unpacked = np.empty(min(self._limit, max(_UNPACKED_BYTES, size * _GROWTH)), dtype=np.uint8)

    def _decoded(self, table: BatchTable, sections: _Sections) -> Iterator[FrameColumns]:
        counts = table.record_count[sections.batches]
        for first, last in _groups(counts, self._rows, sections.end - sections.start, self._most_bytes):
            group = counts[first:last]
            start, end, batches = sections.start[first:last], sections.end[first:last], sections.batches[first:last]
            if last - first == 1 and group[0] > self._rows:
                yield from self._in_pieces(table, sections, first)
                continue
            regular = self._regular(sections.array, start, end, group)
            if regular is not None:
                yield self._read_regular(table, sections.array, batches, group, regular)
                continue
            begin = section_starts(sections.array, start, end, group)
            following = np.empty_like(begin)
            following[:-1] = begin[1:]
            following[rows_before(group)[1:] - 1] = end
            yield self._read(table, _Rows(sections.array, batches, group), begin, following)

    def _in_pieces(self, table: BatchTable, sections: _Sections, number: int) -> Iterator[FrameColumns]:
        """Decode one batch with more records than `rows`."""
        array, batches = sections.array, sections.batches[number : number + 1]
        position, end = int(sections.start[number]), int(sections.end[number])
        left = int(table.record_count[batches[0]])
        view = array.data
        while left:
            begin = np.empty(min(left, self._rows), dtype=np.int64)
            position = follow_section(array, view, position, end, begin)
            left -= len(begin)
            if not left and position != end:
                raise CorruptMessageError("the records of a batch do not fill it")
            following = np.append(begin[1:], position)
            yield self._read(table, _Rows(array, batches, np.array([len(begin)])), begin, following)

    def _regular(self, array: Bytes, start: Integers, end: Integers, counts: Integers) -> RegularRecords | None:
        """Return the records of a group if they are regular. After a failure, the next groups are not tried."""
        if self._skipped < self._skip:
            self._skipped += 1
            return None
        found = read_regular(array, start, end, counts)
        self._skip = 0 if found is not None else min(_MOST_SKIPPED, max(1, 2 * self._skip))
        self._skipped = 0
        return found

    def _read_regular(
        self, table: BatchTable, array: Bytes, batches: Integers, counts: Integers, regular: RegularRecords
    ) -> FrameColumns:
        wanted = self._fields
        headers = None
        if regular.headers is not None:
            start = regular.headers.start
            headers = read_headers(RecordCursors(array, start), start + regular.headers.length, collect=wanted.headers)
        elif wanted.headers:
            headers = no_headers(regular.key.rows)
        return replace(
            self._with_bases(
                table, _Rows(array, batches, counts), timestamp=regular.timestamp_delta, offset=regular.offset_delta
            ),
            key=regular.key if wanted.key else None,
            value=regular.value if wanted.value else None,
            headers=headers,
        )

    def _read(self, table: BatchTable, rows: _Rows, begin: Integers, following: Integers) -> FrameColumns:
        """Read the fields of the records that begin at `begin`; `following`: the begin of the next record, or the end
        of the batch."""
        wanted = self._fields
        cursors = RecordCursors(rows.array, begin)
        end = cursors.read_record_lengths(following)
        timestamp_delta, offset_delta = cursors.read_deltas(end)
        columns = self._with_bases(table, rows, timestamp=timestamp_delta, offset=offset_delta)
        if not (wanted.key or wanted.value or wanted.headers):
            return columns
        key = Spans(*cursors.read_field(end))
        if not (wanted.value or wanted.headers):
            return replace(columns, key=key)
        value = Spans(*cursors.read_field(end))
        headers = read_headers(cursors, end, collect=wanted.headers)
        return replace(columns, key=key if wanted.key else None, value=value if wanted.value else None, headers=headers)

    def _with_bases(self, table: BatchTable, rows: _Rows, *, timestamp: Integers, offset: Integers) -> FrameColumns:
        """Return the columns that follow from the headers of the batches and the deltas of the records."""
        array, batches, counts = rows
        base_offset = spread(table.base_offset[batches], counts)
        last_delta = spread(table.last_offset_delta[batches], counts)
        return FrameColumns(
            buffer=array,
            offset=absolute_offsets(base_offset, last_delta, offset),
            timestamp_type=spread(table.timestamp_type[batches], counts),
            timestamp_ms=_timestamps(table, batches, counts, timestamp) if self._fields.timestamp else None,
        )


def _joined(parts: list[Buffer]) -> BatchTable:
    buffer = b"".join(parts)
    return BatchTable(buffer, entry_positions(buffer)[0])


def _groups(
    counts: Integers, rows: int, sizes: Integers | None = None, most_bytes: int = _NO_LIMIT
) -> Iterator[tuple[int, int]]:
    """Yield ranges of consecutive batches with at most `rows` records and `most_bytes` bytes together, or a single
    larger one."""
    before = rows_before(counts)
    bytes_before = None if sizes is None else rows_before(sizes)
    first = 0
    while first < len(counts):
        last = int(np.searchsorted(before, before[first] + rows, side="right")) - 1
        if bytes_before is not None:
            last = min(last, int(np.searchsorted(bytes_before, bytes_before[first] + most_bytes, side="right")) - 1)
        last = max(last, first + 1)
        yield first, last
        first = last


def _timestamps(table: BatchTable, batches: Integers, counts: Integers, delta: Integers) -> Integers:
    """Return the timestamps of records; with log append time, that of the batch."""
    timestamp = absolute_timestamps(spread(table.base_timestamp[batches], counts), delta)
    append_time = table.timestamp_type[batches]
    if append_time.any():
        timestamp = np.where(spread(append_time, counts) == 1, spread(table.max_timestamp[batches], counts), timestamp)
    return timestamp
