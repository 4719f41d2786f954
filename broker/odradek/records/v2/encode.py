"""Encodes columns of keys, values and headers as record batches of format 2, without an object per record.

The sink of the Spark connector uses it, and `Producer.send_encoded` sends the result. Invariant: the batches have the
bytes that `BatchBuilder` makes of the same records with the same limit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odradek.base.types import NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from odradek.compression import Codec, compress
from odradek.records.v2.batch import HEADER_SIZE, MAGIC, TRANSACTIONAL_FLAG, BatchHeader, write_header
from odradek.records.v2.encode_fields import (
    SLACK_BYTES,
    Bytes,
    ByteStrings,
    Integers,
    Words,
    constant_word,
    joined_words,
    placed_words,
    put_strings,
    put_varints,
    put_words,
    varint_sizes,
    varint_words,
)
from odradek.records.v2.varint import encode_varint

_FIXED_BYTES: Final = 1
"""The attributes of a record. Format 2 uses none of their bits."""
_SMALLEST_NUMBERS: Final = 3
"""Lower bound of the bytes for the length, the timestamp delta and the offset delta of a record."""

_ATTRIBUTES: Final = constant_word(bytes(_FIXED_BYTES))
_SAME_TIMESTAMP: Final = constant_word(encode_varint(0))
_NULL_STRING: Final = constant_word(encode_varint(-1))
_NO_HEADERS: Final = constant_word(encode_varint(0))


class HeaderStrings(NamedTuple):
    """The headers of records: record i has `counts[i]` of them, from row `first[i]` of `names` and `values` on."""

    first: Integers
    counts: Integers
    names: ByteStrings
    """UTF-8; never null."""
    values: ByteStrings

    def take(self, rows: Integers | slice) -> HeaderStrings:
        """Return the headers of some records, in their order."""
        return HeaderStrings(self.first[rows], self.counts[rows], self.names, self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordColumns:
    """Records to encode."""

    count: int
    """Number of records: the length of all columns."""
    timestamp_ms: int | Integers
    """One timestamp for all records, or one for each."""
    keys: ByteStrings | None = None
    """None if no record has a key."""
    values: ByteStrings | None = None
    headers: HeaderStrings | None = None

    def take(self, rows: Integers) -> RecordColumns:
        """Return some records, in their order."""
        return RecordColumns(
            count=len(rows),
            timestamp_ms=self.timestamp_ms if isinstance(self.timestamp_ms, int) else self.timestamp_ms[rows],
            keys=None if self.keys is None else self.keys.take(rows),
            values=None if self.values is None else self.values.take(rows),
            headers=None if self.headers is None else self.headers.take(rows),
        )


class ProducerNumbers(NamedTuple):
    """The fields of a batch header that belong to the producer."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH
    base_sequence: int = NO_SEQUENCE
    is_transactional: bool = False


class EncodedRecords:
    """A record batch that is complete except for the numbers of its producer. To be sent once."""

    __slots__ = ("_batch", "_header", "_written", "uncompressed_bytes")

    def __init__(self, batch: memoryview, header: BatchHeader, uncompressed_bytes: int) -> None:
        """`batch` begins with space for the header. The object owns its memory."""
        self._batch = batch
        self._header = header
        self._written: ProducerNumbers | None = None
        self.uncompressed_bytes: Final = uncompressed_bytes
        """Size of the batch before compression, including the header."""

    @property
    def record_count(self) -> int:
        """Number of records."""
        return self._header.record_count

    @property
    def max_timestamp_ms(self) -> int:
        """The newest timestamp."""
        return self._header.max_timestamp

    @property
    def size_bytes(self) -> int:
        """Size of the batch, including the header."""
        return len(self._batch)

    def build(self, numbers: ProducerNumbers = ProducerNumbers()) -> memoryview:  # noqa: B008 - immutable
        """Return the batch with these numbers. Can be called again with others: earlier results do not change."""
        if self._written == numbers:
            return self._batch
        if self._written is not None:
            self._batch = memoryview(bytearray(self._batch))
        attributes = self._header.attributes | (TRANSACTIONAL_FLAG if numbers.is_transactional else 0)
        header = self._header._replace(
            attributes=attributes,
            producer_id=numbers.producer_id,
            producer_epoch=numbers.epoch,
            base_sequence=numbers.base_sequence,
        )
        write_header(self._batch, header)
        self._written = numbers
        return self._batch


def encode_records(
    columns: RecordColumns, *, limit_bytes: int, codec: Codec = Codec.NONE, level: int | None = None
) -> list[EncodedRecords]:
    """Encode records in order as batches of at most `limit_bytes` each, before compression.

    Only a batch of a single record may exceed the limit. `level` is that of the codec; None for its default.
    """
    (batches,) = encode_groups(columns, [columns.count], limit_bytes=limit_bytes, codec=codec, level=level)
    return batches


def encode_groups(
    columns: RecordColumns,
    ends: Sequence[int],
    *,
    limit_bytes: int,
    codec: Codec = Codec.NONE,
    level: int | None = None,
) -> list[list[EncodedRecords]]:
    """Encode groups of consecutive records, for example those of several partitions, as `encode_records` each group.

    `ends` has the end of each group in ascending order; the last one is the number of records. One call is faster
    than one for each group, because the sizes and numbers of all records are encoded together.
    """
    if not columns.count:
        return [[] for _ in ends]
    layout = _layout(columns, ends, limit_bytes)
    fields = _fields(layout, columns)
    found = []
    for begin, stop in pairwise([0, *ends]):
        batches = range(*np.searchsorted(layout.first[:-1], (begin, stop)).tolist())
        size = int(layout.end[batches[-1]]) if batches else 0
        # Each group has its own buffer, which is freed when the last batch in it is acknowledged.
        target = np.empty(size + SLACK_BYTES, dtype=np.uint8)
        _put_records(target, fields, slice(begin, stop), columns.headers)
        found.append(_batches(columns, layout, batches, target, codec=codec, level=level))
    return found


class _Layout(NamedTuple):
    """Where the records are in the buffer of their group: its batches in order, each after the space for its header."""

    position: Integers
    body_bytes: Integers
    timestamp_delta: Integers | None
    """None if all records have the same timestamp."""
    offset_delta: Integers
    first: Integers
    """First record of each batch, and the number of records at the end."""
    end: Integers
    """End of each batch in the buffer of its group."""


class _Fields(NamedTuple):
    """The fields of all records, and their positions in the buffers of the groups."""

    positions: Integers
    words: NDArray[np.uint64]
    """A row of words for each record, and of their positions."""
    texts: list[tuple[Integers, ByteStrings]]
    headers: Integers


def _fields(layout: _Layout, columns: RecordColumns) -> _Fields:
    numbers = [*varint_words(layout.body_bytes), _ATTRIBUTES]
    numbers += [_SAME_TIMESTAMP] if layout.timestamp_delta is None else varint_words(layout.timestamp_delta)
    numbers += varint_words(layout.offset_delta)
    places: list[tuple[Integers, Words]] = []
    texts: list[tuple[Integers, ByteStrings]] = []
    position = layout.position
    for strings in (columns.keys, columns.values):
        if strings is None:
            numbers.append(_NULL_STRING)
            continue
        position = _place(places, position, [*numbers, *varint_words(strings.length)])
        texts.append((position, strings))
        position = position + np.maximum(strings.length, 0)
        numbers = []
    headers = _place(places, position, [*numbers, *([_NO_HEADERS] if columns.headers is None else [])])
    return _Fields(*placed_words(places), texts, headers)


def _place(places: list[tuple[Integers, Words]], position: Integers, numbers: list[Words]) -> Integers:
    """Add numbers that follow each other from `position` on. Return the position after them."""
    for words in joined_words(numbers):
        places.append((position, words))
        position = position + words.size
    return position


def _put_records(target: Bytes, fields: _Fields, rows: slice, headers: HeaderStrings | None) -> None:
    """Write some records into a buffer."""
    put_words(target, fields.positions[rows], fields.words[rows])
    for position, strings in fields.texts:
        put_strings(target, position[rows], strings.take(rows))
    if headers is not None:
        _put_headers(target, fields.headers[rows], headers.take(rows))


def _layout(columns: RecordColumns, ends: Sequence[int], limit_bytes: int) -> _Layout:
    least = _FIXED_BYTES + _field_bytes(columns.keys, columns.count) + _field_bytes(columns.values, columns.count)
    least += _header_bytes(columns)
    first, bodies, sizes, timestamps, offsets = [0], [], [], [], []
    sums = np.zeros(columns.count + 1, dtype=np.int64)
    np.cumsum(least + _SMALLEST_NUMBERS, out=sums[1:])
    while first[-1] < columns.count:
        begin = first[-1]
        # No more records than these can fit. Their exact sizes depend on where the batch begins.
        stop = int(np.searchsorted(sums, sums[begin] + limit_bytes - HEADER_SIZE, side="right")) - 1
        stop = min(max(stop, begin + 1), ends[bisect_right(ends, begin)])
        offset = np.arange(stop - begin, dtype=np.int64)
        body = least[begin:stop] + varint_sizes(offset)
        timestamp = _timestamp_deltas(columns, begin, stop)
        body += 1 if timestamp is None else varint_sizes(timestamp)
        size = body + varint_sizes(body)
        taken = max(1, int(np.searchsorted(np.cumsum(size), limit_bytes - HEADER_SIZE, side="right")))
        bodies.append(body[:taken])
        sizes.append(size[:taken])
        offsets.append(offset[:taken])
        if timestamp is not None:
            timestamps.append(timestamp[:taken])
        first.append(begin + taken)
    bounds = np.array(first, dtype=np.int64)
    record_bytes = np.concatenate(sizes)
    with_header = record_bytes.copy()
    with_header[bounds[:-1]] += HEADER_SIZE
    edges = np.append(0, np.cumsum(with_header))
    # Each group begins at 0 in its buffer.
    end = edges[1:] - np.repeat(edges[[0, *ends[:-1]]], np.diff(ends, prepend=0))
    return _Layout(
        position=end - record_bytes,
        body_bytes=np.concatenate(bodies),
        timestamp_delta=np.concatenate(timestamps) if timestamps else None,
        offset_delta=np.concatenate(offsets),
        first=bounds,
        end=end[bounds[1:] - 1],
    )


def _timestamp_deltas(columns: RecordColumns, begin: int, stop: int) -> Integers | None:
    if isinstance(columns.timestamp_ms, int):
        return None
    deltas: Integers = columns.timestamp_ms[begin:stop] - columns.timestamp_ms[begin]
    return deltas


def _field_bytes(strings: ByteStrings | None, count: int) -> Integers:
    """Return the bytes of a key or value with its length."""
    if strings is None:
        return np.ones(count, dtype=np.int64)
    sizes: Integers = varint_sizes(strings.length) + np.maximum(strings.length, 0)
    return sizes


def _put_field(target: Bytes, position: Integers, strings: ByteStrings) -> Integers:
    return put_strings(target, put_varints(target, position, strings.length), strings)


def _flat_rows(headers: HeaderStrings) -> Integers:
    """Return the row of each header of each record, in order."""
    before = np.cumsum(headers.counts) - headers.counts
    rows: Integers = np.arange(int(headers.counts.sum()), dtype=np.int64)
    rows += np.repeat(headers.first - before, headers.counts)
    return rows


def _header_bytes(columns: RecordColumns) -> Integers:
    """Return the bytes of the headers of each record, with their number."""
    headers = columns.headers
    if headers is None:
        return np.ones(columns.count, dtype=np.int64)
    rows = _flat_rows(headers)
    each = _field_bytes(headers.names.take(rows), len(rows)) + _field_bytes(headers.values.take(rows), len(rows))
    sums = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(each, out=sums[1:])
    ends = np.cumsum(headers.counts)
    sizes: Integers = varint_sizes(headers.counts) + sums[ends] - sums[ends - headers.counts]
    return sizes


def _put_headers(target: Bytes, position: Integers, headers: HeaderStrings) -> None:
    after = put_varints(target, position, headers.counts)
    rows = _flat_rows(headers)
    names, values = headers.names.take(rows), headers.values.take(rows)
    each = _field_bytes(names, len(rows)) + _field_bytes(values, len(rows))
    sums = np.cumsum(each) - each
    before = np.cumsum(headers.counts) - headers.counts
    starts = np.append(sums, 0)[before]
    at = sums + np.repeat(after - starts, headers.counts)
    _put_field(target, _put_field(target, at, names), values)


def _batches(
    columns: RecordColumns, layout: _Layout, numbers: range, target: Bytes, *, codec: Codec, level: int | None
) -> list[EncodedRecords]:
    """Return the batches with these numbers, which are in `target`."""
    found = []
    buffer = target.data
    begin = 0
    for number in numbers:
        first, stop = layout.first[number : number + 2].tolist()
        end = int(layout.end[number])
        batch = buffer[begin:end]
        if codec:
            batch = memoryview(bytearray(HEADER_SIZE) + compress(codec, batch[HEADER_SIZE:], level))
        found.append(EncodedRecords(batch, _header(columns, first, stop, codec), end - begin))
        begin = end
    return found


def _header(columns: RecordColumns, first: int, stop: int, codec: Codec) -> BatchHeader:
    """Return the header of a batch; `write_header` sets the length and the CRC."""
    if isinstance(columns.timestamp_ms, int):
        base_timestamp = newest = columns.timestamp_ms
    else:
        base_timestamp = int(columns.timestamp_ms[first])
        newest = int(columns.timestamp_ms[first:stop].max())
    return BatchHeader(
        base_offset=0,
        batch_length=0,
        leader_epoch=NO_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=int(codec),
        last_offset_delta=stop - first - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max(newest, -1),
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=stop - first,
    )
