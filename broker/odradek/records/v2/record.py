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
from odradek.records.v2.varint import decode_varint

MIN_RECORD_BYTES: Final = 7
"""Length, attributes, two deltas, two lengths and a header count, of one byte each."""

_MIN_TIMESTAMP: Final = -(1 << 63)
_MAX_TIMESTAMP: Final = (1 << 63) - 1


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
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    timestamp_type = header.timestamp_type
    append_time = header.max_timestamp if timestamp_type is TimestampType.LOG_APPEND_TIME else None
    at = 0
    for _ in range(header.record_count):
        length, start = decode_varint(data, at)
        at = start + length
        if length <= 0 or at > len(data):
            raise CorruptMessageError(f"a record in the batch at offset {base_offset} has an impossible length")
        timestamp_delta, next_at = decode_varint(data, start + 1)
        offset_delta, next_at = decode_varint(data, next_at)
        key, next_at = _read_bytes(data, next_at, at)
        value, next_at = _read_bytes(data, next_at, at)
        headers, next_at = _read_headers(data, next_at, at)
        if next_at != at or not 0 <= offset_delta <= header.last_offset_delta:
            raise CorruptMessageError(f"a record in the batch at offset {base_offset} does not fill its length")
        timestamp = base_timestamp + timestamp_delta
        if not _MIN_TIMESTAMP <= timestamp <= _MAX_TIMESTAMP:
            raise CorruptMessageError(f"a timestamp in the batch at offset {base_offset} is longer than 64 bits")
        if append_time is not None:
            timestamp = append_time
        yield Record(base_offset + offset_delta, timestamp, key, value, headers, timestamp_type)
    if at != len(data):
        raise CorruptMessageError(f"the batch at offset {base_offset} has {len(data) - at} bytes after its records")


def decode_batch(buffer: Buffer, position: int, header: BatchHeader, *, limit: int) -> list[Record]:
    """Return all records of the batch at `position`, including control records.

    `limit` is the decompressed size. Raises `CorruptMessageError`: see `iterate_batch`.
    """
    return list(iterate_batch(buffer, position, header, limit=limit))


def check_headers(data: bytes, position: int, end: int) -> None:
    """Raise `CorruptMessageError` unless a record's headers extend exactly from `position` to its `end`."""
    if end > len(data) or _read_headers(data, position, end)[1] != end:
        raise CorruptMessageError("a record does not fill its length")


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, start = decode_varint(data, position)
    if length < 0:
        if length != -1:
            raise CorruptMessageError(f"a record has a field of length {length}")
        return None, start
    stop = start + length
    if stop > end:
        raise CorruptMessageError("a field extends beyond its record")
    return data[start:stop], stop


def _read_headers(data: bytes, position: int, end: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, position = decode_varint(data, position)
    if count == 0:
        return (), position
    # A header takes at least two bytes.
    if count < 0 or position + 2 * count > end:
        raise CorruptMessageError(f"a record declares {count} headers, more than fit")
    headers = []
    for _ in range(count):
        name, position = _read_bytes(data, position, end)
        value, position = _read_bytes(data, position, end)
        if name is None:
            raise CorruptMessageError("a header has no name")
        # As in Java, bytes that are not UTF-8 become replacement characters.
        headers.append((name.decode(errors="replace"), value))
    return tuple(headers), position
