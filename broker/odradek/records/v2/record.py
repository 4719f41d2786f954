"""Individual records, as consumers, coordinators and tools read them from a batch in memory.

The broker's data path does not use it, because it never creates an object per record. Invariant: all returned records
are checked for count and lengths; a batch whose records do not fill it exactly is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from odradek.base.errors import CorruptMessageError
from odradek.base.ports import Buffer
from odradek.compression import decompress
from odradek.records.v2.batch import CODEC_MASK, HEADER_SIZE, BatchHeader, TimestampType
from odradek.records.v2.record_walk import Row, record_fault, walk
from odradek.records.v2.varint import decode_varint

MIN_RECORD_BYTES: Final = 7
"""Length, attributes, two deltas, two lengths and a header count, of one byte each."""

_MIN_TIMESTAMP: Final = -(1 << 63)
_MAX_TIMESTAMP: Final = (1 << 63) - 1
_AT_ONCE: Final = 256
"""Number of records that are read ahead of the one that a caller gets."""


Message = tuple[int, int, bytes | None, bytes | None]
"""Offset, timestamp in milliseconds (-1: none), key and value: a lightweight record for conversions."""


UNPACKED_LIMIT_BYTES: Final = 128 << 20
"""Maximum decompressed size of one entry when the broker reads its own log or converts records."""


class Record(NamedTuple):
    """One record; `timestamp` is in milliseconds since 1970, or -1 if there is none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_type: TimestampType = TimestampType.CREATE_TIME

    @property
    def size_bytes(self) -> int:
        """Size of key, value and headers in bytes, without framing."""
        size = len(self.key or b"") + len(self.value or b"")
        return size + sum(len(name) + len(value or b"") for name, value in self.headers)


def record_bytes(buffer: Buffer, position: int, header: BatchHeader, *, limit: int) -> bytes | memoryview:
    """Return the records section of the batch at `position`, decompressed to at most `limit` bytes.

    An uncompressed section is a view of `buffer`. Raises `CorruptMessageError` if the batch is incomplete, cannot be
    decompressed, or is too small for its record count.
    """
    end = position + header.size
    if end > len(buffer):
        raise CorruptMessageError(f"the batch at offset {header.base_offset} is incomplete")
    section = memoryview(buffer)[position + HEADER_SIZE : end]
    packed = header.attributes & CODEC_MASK
    data: bytes | memoryview = decompress(header.codec, section, limit=limit) if packed else section
    if header.record_count * MIN_RECORD_BYTES > len(data):
        raise CorruptMessageError(
            f"the batch at offset {header.base_offset} declares {header.record_count} records, "
            f"more than fit into {len(data)} bytes"
        )
    return data


def iterate_batch(buffer: Buffer, position: int, header: BatchHeader, *, limit: int) -> Iterator[Record]:
    """Yield the records of the batch at `position` in order; `limit` is its decompressed size.

    Raises `CorruptMessageError` at the first inconsistency; records yielded before it are valid by themselves. The
    caller has to check the CRC.
    """
    data = bytes(record_bytes(buffer, position, header, limit=limit))
    base_offset, base_timestamp, last_delta = header.base_offset, header.base_timestamp, header.last_offset_delta
    timestamp_type = header.timestamp_type
    append_time = header.max_timestamp if timestamp_type is TimestampType.LOG_APPEND_TIME else None
    left, at = header.record_count, 0
    while left:
        rows: list[Row] = []
        walked = walk(data, at, min(left, _AT_ONCE), rows=rows, last_offset_delta=last_delta)
        for delta, offset_delta, key_at, key_length, value_at, value_length, header_count, end in rows:
            at = end
            timestamp = base_timestamp + delta
            if not _MIN_TIMESTAMP <= timestamp <= _MAX_TIMESTAMP:
                raise CorruptMessageError(f"a timestamp in the batch at offset {base_offset} is longer than 64 bits")
            yield Record(
                base_offset + offset_delta,
                timestamp if append_time is None else append_time,
                None if key_length < 0 else data[key_at : key_at + key_length],
                None if value_length < 0 else data[value_at : value_at + value_length],
                _read_headers(data, value_at + max(value_length, 0)) if header_count else (),
                timestamp_type,
            )
        left -= len(rows)
        if walked is None:
            fault = record_fault(data, at, last_offset_delta=last_delta)
            raise CorruptMessageError(
                f"record {header.record_count - left} of the batch at offset {base_offset} is invalid: {fault}"
            )
    if at != len(data):
        raise CorruptMessageError(f"the batch at offset {base_offset} has {len(data) - at} bytes after its records")


def decode_batch(buffer: Buffer, position: int, header: BatchHeader, *, limit: int) -> list[Record]:
    """Return all records of the batch at `position`, including control records.

    `limit` is the decompressed size. Raises `CorruptMessageError`: see `iterate_batch`.
    """
    return list(iterate_batch(buffer, position, header, limit=limit))


def _read_headers(data: bytes, position: int) -> tuple[tuple[str, bytes | None], ...]:
    """Return the headers from `position` on, which `walk` has checked."""
    count, position = decode_varint(data, position)
    headers = []
    for _ in range(count):
        name_length, name_at = decode_varint(data, position)
        value_length, value_at = decode_varint(data, name_at + name_length)
        position = value_at + max(value_length, 0)
        # As in Java, bytes that are not UTF-8 become replacement characters.
        name = data[name_at : name_at + name_length].decode(errors="replace")
        headers.append((name, None if value_length < 0 else data[value_at:position]))
    return tuple(headers)
