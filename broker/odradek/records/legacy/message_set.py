"""Reads message formats 0 and 1: what clients before 0.11 send and fetch, and what an old log may still contain.

`records/formats` dispatches here by the magic byte; `records/conversion` and `records/admission` use it too. Invariant:
a wrapper yields nothing unless all of it is valid, and decompressing it never takes more than the caller's `limit`.

    offset 8 | size 4 | CRC-32 4 | magic 1 | attributes 1 | timestamp 8 (format 1 only)
    key length 4 | key | value length 4 | value

`size` counts from the CRC on, and the CRC covers everything from the magic on, so the offset can be set in place. A
length of -1 means null. A message with a codec in its attributes is a *wrapper*: its value is a compressed message set.
In format 0 the inner offsets are absolute. In format 1 they are relative to the first message of the set, and the
wrapper has the absolute offset of the last (KIP-31), so a broker assigns offsets without decompressing. In format 1 the
wrapper's timestamp is the largest of the inner ones, unless its attributes specify log append time: then it applies to
all of them (KIP-32).

Sources: https://kafka.apache.org/documentation/#messageset, KIP-31, KIP-32, KIP-57 (lz4 frames).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from struct import Struct
from typing import Final

from odradek.base.errors import (
    CorruptMessageError,
    InvalidRecordError,
    RecordFault,
)
from odradek.base.ports import Buffer
from odradek.base.types import NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP
from odradek.compression import Codec, decompress
from odradek.records.legacy.checksum import crc32
from odradek.records.v2.batch import CODEC_MASK, LOG_APPEND_TIME_FLAG, BatchHeader, TimestampType
from odradek.records.v2.record import Message, Record

MIN_MESSAGE_SIZE: Final = 26
"""Size of a format 0 message without key and value; a format 1 message takes eight bytes more."""

UNKNOWN_COUNT: Final = -1
"""Record count of a wrapper that has not been decompressed."""

_LOG_OVERHEAD: Final = 12
"""Bytes of offset and size, which `size` does not count."""
SIZE_AT: Final = 8
CRC_AT: Final = 12
MAGIC_AT: Final = 16
ATTRIBUTES_AT: Final = 17
TIMESTAMP_AT: Final = 18
KEY_LENGTH_AT: Final = (18, 26)
"""Position of the key length, by format."""
_MIN_SIZE: Final = (14, 22)
_KNOWN_ATTRIBUTES: Final = (CODEC_MASK, CODEC_MASK | LOG_APPEND_TIME_FLAG)
MAX_OFFSET: Final = (1 << 63) - 2
MIN_OFFSET: Final = -1
"""Producers that let the broker assign offsets send 0 or -1."""

_HEAD: Final = Struct(">qiIBBq")
"""All fields before the key in format 1; in format 0 the timestamp contains bytes of the lengths and is meaningless."""
_INT: Final = Struct(">i")


def read_message(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Return the header of the message at `position` as a `BatchHeader`.

    `base_offset` is the message's offset (for a wrapper, that of its last message) and `record_count` is 1 or
    `UNKNOWN_COUNT`. Attributes that the format does not define are cleared. Raises `CorruptMessageError` if there are
    fewer than 26 bytes or a field is invalid.
    """
    if len(buffer) - position < MIN_MESSAGE_SIZE:
        raise CorruptMessageError(
            f"a message has at least {MIN_MESSAGE_SIZE} bytes, but only {len(buffer) - position} are available"
        )
    offset, size, crc, magic, attributes, timestamp = _HEAD.unpack_from(buffer, position)
    if magic > 1:
        raise CorruptMessageError(f"record format {magic} is not a message format (0 or 1)")
    if size < _MIN_SIZE[magic]:
        raise CorruptMessageError(f"a message of format {magic} cannot have a size of {size}")
    if not MIN_OFFSET <= offset <= MAX_OFFSET:
        raise CorruptMessageError(f"impossible offset {offset}")
    attributes &= _KNOWN_ATTRIBUTES[magic]
    if magic == 0:
        timestamp = NO_TIMESTAMP
    return BatchHeader(
        offset,
        size,
        NO_EPOCH,
        magic,
        crc,
        attributes,
        0,
        timestamp,
        timestamp,
        NO_PRODUCER_ID,
        NO_EPOCH,
        NO_SEQUENCE,
        UNKNOWN_COUNT if attributes & CODEC_MASK else 1,
    )


def check_message_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Raise `CorruptMessageError` unless the whole message is in `buffer` and its CRC-32 is correct."""
    end = position + header.size
    if end > len(buffer):
        raise CorruptMessageError(f"the message at offset {header.base_offset} is incomplete")
    actual = crc32(memoryview(buffer)[position + MAGIC_AT : end])
    if actual != header.crc:
        raise CorruptMessageError(
            f"the message at offset {header.base_offset} has CRC {actual:#010x}, but its header has {header.crc:#010x}",
            fault=RecordFault.CRC,
        )


def iterate_message(buffer: Buffer, position: int, header: BatchHeader, *, limit: int) -> Iterator[Record]:
    """Yield the record of the message at `position`, or those of the wrapper, with their absolute offsets.

    Raises as `read_messages`. Checks inner CRCs; the caller has to check the CRC of the message itself.
    """
    timestamp_type = timestamp_type_of(header)
    for offset, timestamp, key, value in read_messages(buffer, position, header, limit=limit):
        yield Record(offset, timestamp, key, value, (), timestamp_type)


def timestamp_type_of(header: BatchHeader) -> TimestampType:
    """Return the timestamp type of an old message; format 0 has no timestamps."""
    return TimestampType.NONE if header.magic == 0 else header.timestamp_type


def read_messages(buffer: Buffer, position: int, header: BatchHeader, *, limit: int) -> list[Message]:
    """Return the message at `position`, or all messages of the wrapper, decompressed to at most `limit` bytes.

    Raises `CorruptMessageError` for invalid lengths, inner CRCs or compressed data, and above `limit` bytes. Raises
    `InvalidRecordError` for a wrapper that breaks the rules of its format: no value, no messages, an inner wrapper, an
    inner message of another format, an offset below its last inner one, or zstd.
    """
    end = position + header.size
    if end > len(buffer):
        raise CorruptMessageError(f"the message at offset {header.base_offset} is incomplete")
    data = bytes(memoryview(buffer)[position + KEY_LENGTH_AT[header.magic] : end])
    key, value = _read_key_and_value(data, 0, len(data))
    if not header.attributes & CODEC_MASK:
        return [(header.base_offset, header.base_timestamp, key, value)]
    return _unwrap(header, value, limit)


def first_message_offset(buffer: Buffer, position: int, header: BatchHeader, *, limit: int) -> int:
    """Return the offset of the message at `position`, or of the first one in the wrapper. Raises as `read_messages`."""
    if not header.attributes & CODEC_MASK:
        return header.base_offset
    return read_messages(buffer, position, header, limit=limit)[0][0]


def read_set(records: Buffer, *, limit: int) -> list[Message]:
    """Return all messages of a set of format 0 or 1, decompressed to at most `limit` bytes in total; checks all CRCs.

    Raises as `read_messages`, also if the end of the set is incomplete.
    """
    data = bytes(records)
    messages: list[Message] = []
    position = 0
    while position < len(data):
        header = read_message(data, position)
        if header.record_count != UNKNOWN_COUNT:
            position = read_run(data, position, header.magic, messages)
            continue
        check_message_crc(data, position, header)
        inner = read_messages(data, position, header, limit=limit)
        limit -= sum(MIN_MESSAGE_SIZE + len(key or b"") + len(value or b"") for _, _, key, value in inner)
        messages += inner
        position += header.size
    return messages


def _read_key_and_value(data: bytes, position: int, end: int) -> tuple[bytes | None, bytes | None]:
    """Return key and value, which must extend exactly from `position` to `end`; at least eight bytes are available."""
    key: bytes | None = None
    value: bytes | None = None
    length = _INT.unpack_from(data, position)[0]
    position += 4
    if length >= 0:
        stop = position + length
        if stop > end - 4:
            raise CorruptMessageError("a key extends beyond its message")
        key = data[position:stop]
        position = stop
    elif length != -1:
        raise CorruptMessageError(f"a message has a key of length {length}")
    length = _INT.unpack_from(data, position)[0]
    position += 4
    if length >= 0:
        value = data[position : position + length]
        position += length
    elif length != -1:
        raise CorruptMessageError(f"a message has a value of length {length}")
    if position != end:
        raise CorruptMessageError("key and value do not fill their message")
    return key, value


def _unwrap(header: BatchHeader, value: bytes | None, limit: int) -> list[Message]:
    wrapper = f"the wrapper at offset {header.base_offset}"
    codec = header.codec
    if codec is Codec.ZSTD:
        raise InvalidRecordError(f"{wrapper} is compressed with zstd, which format {header.magic} does not support")
    if value is None:
        raise InvalidRecordError(f"{wrapper} has no value")
    data = decompress(codec, value, limit=limit, old_frames=True)
    messages: list[Message] = []
    end = read_run(data, 0, header.magic, messages)
    if end != len(data):
        if data[end + MAGIC_AT] != header.magic:
            raise InvalidRecordError(f"{wrapper} contains a message of another format", fault=RecordFault.FORMAT)
        raise InvalidRecordError(f"{wrapper} contains another wrapper")
    if not messages:
        raise InvalidRecordError(f"{wrapper} is empty")
    if header.magic == 0:
        return messages
    return _with_true_offsets(messages, header)


def _with_true_offsets(messages: list[Message], header: BatchHeader) -> list[Message]:
    """Return the messages of a format 1 wrapper with absolute offsets, and with its timestamp if that applies."""
    last = messages[-1][0]
    # Some versions of librdkafka leave the wrapper's offset 0; then the inner offsets are used unchanged.
    base = header.base_offset - last if header.base_offset else 0
    if base < 0:
        raise InvalidRecordError(
            f"the wrapper at offset {header.base_offset} has an inner message with the larger relative offset {last}"
        )
    if max(offset for offset, _, _, _ in messages) > MAX_OFFSET - base:
        raise CorruptMessageError(f"the wrapper at offset {header.base_offset} contains offsets above the maximum")
    if header.attributes & LOG_APPEND_TIME_FLAG:
        append_time = header.max_timestamp
        return [(base + offset, append_time, key, value) for offset, _, key, value in messages]
    if base == 0:
        return messages
    return [(base + offset, timestamp, key, value) for offset, timestamp, key, value in messages]


def read_run(
    data: bytes,
    position: int,
    magic: int,
    messages: list[Message],
    *,
    most: int = sys.maxsize,
    end_at: int = CODEC_MASK,
) -> int:
    """Append the plain messages from `position` on to `messages`. Returns the position after them.

    Stops at the end of `data`, before a message of another format than `magic` or with one of the attributes `end_at`
    (by default, any wrapper), or after `most` messages. Raises `CorruptMessageError` for an invalid message.
    """
    key_at, min_size = KEY_LENGTH_AT[magic], _MIN_SIZE[magic]
    unpack_from, view, end = _HEAD.unpack_from, memoryview(data), len(data)
    enough = len(messages) + most
    while position < end and len(messages) < enough:
        if end - position < MIN_MESSAGE_SIZE:
            raise CorruptMessageError("a message set ends inside a message")
        offset, size, crc, own_magic, attributes, timestamp = unpack_from(data, position)
        if own_magic != magic or attributes & end_at:
            return position
        following = position + _LOG_OVERHEAD + size
        if size < min_size or following > end or not MIN_OFFSET <= offset <= MAX_OFFSET:
            raise CorruptMessageError(f"a message has the invalid size {size} or offset {offset}")
        if crc32(view[position + MAGIC_AT : following]) != crc:
            raise CorruptMessageError(f"the message at offset {offset} has a wrong CRC", fault=RecordFault.CRC)
        key, value = _read_key_and_value(data, position + key_at, following)
        messages.append((offset, timestamp if magic else NO_TIMESTAMP, key, value))
        position = following
    return position
