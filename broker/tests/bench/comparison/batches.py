"""Builds gigabytes of record batches and old message sets, with records of one size, column by column. Pure.

`loading` and the clients use it. Formats: https://kafka.apache.org/39/documentation/#recordbatch
and #messageset. The product's builder adds one record at a time, which would make the client the bottleneck.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from odradek.records.v2.varint import encode_varint

Keys = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]

KEY_BYTES: Final = 8
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_BATCH_PREFIX: Final = struct.Struct(">qi11xi")
"""Base offset, length and last offset delta."""
_PREFIX_BYTES: Final = 12
"""Size of base offset and length, which the length does not count."""
_CHECKED_FROM: Final = 21
"""The CRC covers everything from the attributes on."""

_ENTRY: Final = struct.Struct(">qi")
_MESSAGE_1: Final = struct.Struct(">bbqii")


def filler(size: int) -> bytes:
    """Bytes that no codec compresses well, the same in every run."""
    return np.random.Generator(np.random.PCG64(7)).integers(0, 256, size, dtype=np.uint8).tobytes()


def batch(value: bytes, count: int, *, timestamp_ms: int, keys: Keys | None = None) -> bytes:
    """Return a format 2 batch of `count` records with this value, without keys or with these keys of 8 bytes."""
    if keys is not None and len(keys) != count:
        raise ValueError(f"{count} records need as many keys, not {len(keys)}")
    octets = None if keys is None else keys.astype(">i8").view(np.uint8).reshape(count, KEY_BYTES)
    body = b"".join(
        _rows(value, range(first, min(after, count)), octets) for first, after in _delta_sizes() if first < count
    )
    checked = struct.pack(">hiqqqhii", 0, count - 1, timestamp_ms, timestamp_ms, -1, -1, -1, count) + body
    length = _HEADER.size - _PREFIX_BYTES + len(body)
    return struct.pack(">qiibI", 0, length, -1, 2, crc32c(checked)) + checked


def _delta_sizes() -> list[tuple[int, int]]:
    """Yield ranges of offset deltas whose varints have the same length: zigzag doubles them, a byte has 7 bits."""
    return [(0, 1 << 6), (1 << 6, 1 << 13), (1 << 13, 1 << 20)]


def _rows(value: bytes, deltas: range, keys: Octets | None) -> bytes:
    """Return records whose offset deltas have varints of one length, as a table of bytes filled by columns."""
    delta_bytes = len(encode_varint(deltas[0]))
    key_head = encode_varint(-1 if keys is None else KEY_BYTES)
    key_bytes = 0 if keys is None else KEY_BYTES
    tail = encode_varint(len(value)) + value + encode_varint(0)
    size = 2 + delta_bytes + len(key_head) + key_bytes + len(tail)
    head = encode_varint(size) + b"\x00" + encode_varint(0)
    template = head + bytes(delta_bytes) + key_head + bytes(key_bytes) + tail
    table = np.tile(np.frombuffer(template, dtype=np.uint8), (len(deltas), 1))
    zigzag = np.arange(deltas[0], deltas[-1] + 1, dtype=np.int64) * 2
    for place in range(delta_bytes):
        more = 0x80 if place < delta_bytes - 1 else 0
        table[:, len(head) + place] = ((zigzag >> (7 * place)) & 0x7F) | more
    if keys is not None:
        first = len(head) + delta_bytes + len(key_head)
        table[:, first : first + key_bytes] = keys[deltas[0] : deltas[-1] + 1]
    return table.tobytes()


def message_set(value: bytes, count: int, *, timestamp_ms: int) -> bytes:
    """Return `count` format 1 messages without keys, with offsets from 0, like a client before 0.11."""
    body = _MESSAGE_1.pack(1, 0, timestamp_ms, -1, len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    entry = np.frombuffer(_ENTRY.pack(0, len(message)) + message, dtype=np.uint8)
    table = np.tile(entry, (count, 1))
    table[:, :8] = np.arange(count, dtype=">i8").view(np.uint8).reshape(count, 8)
    return table.tobytes()


def count_batches(records: bytes | memoryview) -> tuple[int, int, int]:
    """Return the records in the complete batches of a fetched set without gaps, their bytes, and the offset after them.

    (0, 0, -1) if there are none.
    """
    position, count, following = 0, 0, -1
    while position + _BATCH_PREFIX.size <= len(records):
        offset, length, delta = _BATCH_PREFIX.unpack_from(records, position)
        after = position + _PREFIX_BYTES + length
        if after > len(records):
            break
        position, count, following = after, count + delta + 1, offset + delta + 1
    return count, position, following


def count_messages(records: bytes | memoryview) -> tuple[int, int]:
    """Return the number of complete messages in a fetched set of format 0 or 1, and the offset after the last.

    (0, -1) if there are none. Runs of equally long messages with consecutive offsets cost one step.
    """
    position, count, following = 0, 0, -1
    while position + _ENTRY.size <= len(records):
        offset, size = _ENTRY.unpack_from(records, position)
        step = _ENTRY.size + size
        whole = (len(records) - position) // step
        if not whole:
            break
        run = _run_length(records, position, (offset, size), whole)
        count, following = count + run, offset + run
        position += run * step
    return count, following


def _run_length(records: bytes | memoryview, position: int, first: tuple[int, int], whole: int) -> int:
    """Return the number of messages that are as long as the first and follow it: all remaining ones, or just one."""
    offset, size = first
    last = _ENTRY.unpack_from(records, position + (whole - 1) * (_ENTRY.size + size))
    return whole if last == (offset + whole - 1, size) else 1
