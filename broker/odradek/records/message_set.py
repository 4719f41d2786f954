"""Message formats 0 and 1: what clients before 0.11 send and fetch, and what an old log may still hold.

Memory of message sets enters; headers, messages and finished sets leave. `records/formats` dispatches here by the
magic byte, `records/convert` and `records/admission` rewrite with it. Invariant: nothing is yielded of a wrapper unless
all of it is sound, and unpacking it never takes more than the caller's `limit`.

    offset 8 | size 4 | CRC-32 4 | magic 1 | attributes 1 | timestamp 8 (format 1 only)
    key length 4 | key | value length 4 | value

`size` counts from the CRC on, the CRC from the magic on, so the offset may be numbered in place. A length of -1 is a
null. A message with a codec in its attributes is a *wrapper*: its value is a packed set. The offsets in there are the
true ones in format 0; in format 1 they count from the set's first message and the wrapper carries the true offset of
the last (KIP-31), so a broker numbers a wrapper without unpacking it. In format 1 the wrapper's timestamp is the newest
of the inner ones, unless its attributes say log-append time: then it holds for all of them (KIP-32).

Sources: https://kafka.apache.org/documentation/#messageset, KIP-31, KIP-32, KIP-57 (lz4 frames).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final
from zlib import crc32

from odradek.base.errors import (
    CorruptMessageError,
    InvalidRecordError,
    RecordFault,
    UnsupportedCompressionTypeError,
)
from odradek.base.ports import Buffer
from odradek.base.types import NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP
from odradek.compression import Codec, compress, decompress
from odradek.records.batch import CODEC_MASK, LOG_APPEND_TIME_FLAG, BatchHeader, TimestampType
from odradek.records.record import Message, Record

MIN_MESSAGE_SIZE: Final = 26
"""A message of format 0 without key and value; one of format 1 takes eight bytes more."""

UNKNOWN_COUNT: Final = -1
"""Record count of a wrapper that has not been unpacked."""

_LOG_OVERHEAD: Final = 12
"""Offset and size, which `size` does not count."""
_CRC_AT: Final = 12
_MAGIC_AT: Final = 16
_ATTRIBUTES_AT: Final = 17
_TIMESTAMP_AT: Final = 18
_KEY_AT: Final = (18, 26)
"""Where the key's length stands, by format."""
_MIN_SIZE: Final = (14, 22)
_KNOWN_ATTRIBUTES: Final = (CODEC_MASK, CODEC_MASK | LOG_APPEND_TIME_FLAG)
MAX_OFFSET: Final = (1 << 63) - 2
MIN_OFFSET: Final = -1
"""Producers that leave the numbering to the broker write 0 or -1."""

_HEAD: Final = Struct(">qiIBBq")
"""All that comes before the key in format 1; in format 0 its timestamp is the lengths' bytes and means nothing."""
PREFIX: Final = Struct(">qiI")
"""Offset, size and CRC, which come before what the CRC covers."""
_INT: Final = Struct(">i")
_LONG: Final = Struct(">q")
_CRC: Final = Struct(">I")
_LEAD: Final = Struct(">BBq")
_NULL: Final = _INT.pack(-1)


# ---------------------------------------------------------------------------------------------------------- reading


def read_message(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header of the message at `position`, in the shape of a batch's.

    `base_offset` is the message's offset (a wrapper's: that of its last one), `record_count` 1 or `UNKNOWN_COUNT`;
    of the attributes only those that the format defines. `CorruptMessageError` when fewer than 26 bytes are there or a
    field cannot be true.
    """
    if len(buffer) - position < MIN_MESSAGE_SIZE:
        raise CorruptMessageError(
            f"a message takes at least {MIN_MESSAGE_SIZE} bytes, only {len(buffer) - position} are there"
        )
    offset, size, crc, magic, attributes, timestamp = _HEAD.unpack_from(buffer, position)
    if magic > 1:
        raise CorruptMessageError(f"record format {magic} is not that of a message")
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
    """`CorruptMessageError` unless the whole message is in `buffer` and its CRC-32 fits."""
    end = position + header.size
    if end > len(buffer):
        raise CorruptMessageError(f"the message at offset {header.base_offset} is cut short")
    actual = crc32(memoryview(buffer)[position + _MAGIC_AT : end])
    if actual != header.crc:
        raise CorruptMessageError(
            f"the message at offset {header.base_offset} has CRC {actual:#010x} but claims {header.crc:#010x}",
            fault=RecordFault.CRC,
        )


def iterate_message(buffer: Buffer, position: int, header: BatchHeader, *, limit: int) -> Iterator[Record]:
    """The record of the message at `position`, or those of the wrapper, with their true offsets.

    Errors: see `read_messages`. The message's own CRC is the caller's to check, inner ones are checked here.
    """
    timestamp_type = timestamp_type_of(header)
    for offset, timestamp, key, value in read_messages(buffer, position, header, limit=limit):
        yield Record(offset, timestamp, key, value, (), timestamp_type)


def timestamp_type_of(header: BatchHeader) -> TimestampType:
    """Who set the timestamps of an old message: nobody in format 0."""
    return TimestampType.NONE if header.magic == 0 else header.timestamp_type


def read_messages(buffer: Buffer, position: int, header: BatchHeader, *, limit: int) -> list[Message]:
    """The message at `position`, or all those of the wrapper, which unpacks to at most `limit` bytes.

    `CorruptMessageError`: lengths, an inner CRC or packed data that cannot be true, more than `limit` bytes.
    `InvalidRecordError`: a wrapper that breaks the rules of its format: no value, nothing inside, a wrapper inside, a
    message of another format inside, an offset below its last inner one, zstd.
    """
    end = position + header.size
    if end > len(buffer):
        raise CorruptMessageError(f"the message at offset {header.base_offset} is cut short")
    data = bytes(memoryview(buffer)[position + _KEY_AT[header.magic] : end])
    key, value = _read_key_and_value(data, 0, len(data))
    if not header.attributes & CODEC_MASK:
        return [(header.base_offset, header.base_timestamp, key, value)]
    return _unwrap(header, value, limit)


def first_message_offset(buffer: Buffer, position: int, header: BatchHeader, *, limit: int) -> int:
    """Offset of the message at `position` or of the first one in the wrapper. Errors: see `read_messages`."""
    if not header.attributes & CODEC_MASK:
        return header.base_offset
    return read_messages(buffer, position, header, limit=limit)[0][0]


def read_set(records: Buffer, *, limit: int) -> list[Message]:
    """All messages of a set of format 0 or 1, wrappers unpacked to at most `limit` bytes in sum; every CRC is checked.

    Nothing but an error when any part is unsound or the set's end is cut off. Errors: see `read_messages`.
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
    """Both fields, which must reach from `position` exactly to `end`; at least eight bytes are there."""
    key: bytes | None = None
    value: bytes | None = None
    length = _INT.unpack_from(data, position)[0]
    position += 4
    if length >= 0:
        stop = position + length
        if stop > end - 4:
            raise CorruptMessageError("a key reaches beyond its message")
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
        raise InvalidRecordError(f"{wrapper} is packed with zstd, which format {header.magic} does not know")
    if value is None:
        raise InvalidRecordError(f"{wrapper} has no value")
    data = decompress(codec, value, limit=limit, old_frames=True)
    messages: list[Message] = []
    end = read_run(data, 0, header.magic, messages)
    if end != len(data):
        if data[end + _MAGIC_AT] != header.magic:
            raise InvalidRecordError(f"{wrapper} holds a message of another format", fault=RecordFault.FORMAT)
        raise InvalidRecordError(f"{wrapper} holds another wrapper")
    if not messages:
        raise InvalidRecordError(f"{wrapper} is empty")
    if header.magic == 0:
        return messages
    return _with_true_offsets(messages, header)


def _with_true_offsets(messages: list[Message], header: BatchHeader) -> list[Message]:
    """The messages of a wrapper of format 1, with offsets counted from its own, and its timestamp if that holds."""
    last = messages[-1][0]
    # Some versions of librdkafka leave the wrapper's offset 0; then the inner offsets count as they are.
    base = header.base_offset - last if header.base_offset else 0
    if base < 0:
        raise InvalidRecordError(
            f"the wrapper at offset {header.base_offset} is said to end below its last message, number {last}"
        )
    if max(offset for offset, _, _, _ in messages) > MAX_OFFSET - base:
        raise CorruptMessageError(f"the wrapper at offset {header.base_offset} holds impossible offsets")
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
    """Append the plain messages from `position` on to `messages`, as written; returns where they end.

    That is the end of `data`, the first message of another format than `magic` or with one of the attributes `end_at`
    (as it is, every wrapper), or behind `most` messages. `CorruptMessageError` when one of them is unsound.
    """
    key_at, min_size = _KEY_AT[magic], _MIN_SIZE[magic]
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
            raise CorruptMessageError(f"a message of size {size} and offset {offset} is impossible here")
        if crc32(view[position + _MAGIC_AT : following]) != crc:
            raise CorruptMessageError(f"the message at offset {offset} has a false CRC", fault=RecordFault.CRC)
        key, value = _read_key_and_value(data, position + key_at, following)
        messages.append((offset, timestamp if magic else NO_TIMESTAMP, key, value))
        position = following
    return position


# ---------------------------------------------------------------------------------------------------------- writing


def encode_set(
    messages: Sequence[Message],
    *,
    magic: int,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    append_time_ms: int | None = None,
) -> bytes:
    """A set of `messages` in format 0 or 1: one after the other, or all in one wrapper when there is a codec.

    Offsets are the messages' own and must ascend in a wrapper of format 1, which counts from the first. With
    `append_time_ms` format 1 has log-append time, and all messages this timestamp; format 0 drops timestamps.
    `UnsupportedCompressionTypeError`: zstd came after these formats. `ValueError`: a wrapper of nothing.
    """
    flags = LOG_APPEND_TIME_FLAG if magic == 1 and append_time_ms is not None else 0
    if append_time_ms is not None:
        messages = [(offset, append_time_ms, key, value) for offset, _, key, value in messages]
    if codec is Codec.NONE:
        return b"".join(_encode_messages(messages, magic, flags))
    if not messages:
        raise ValueError("a wrapper needs at least one message")
    last_offset = messages[-1][0]
    newest = max(timestamp for _, timestamp, _, _ in messages)
    if magic == 1:
        first_offset = messages[0][0]
        messages = [(offset - first_offset, timestamp, key, value) for offset, timestamp, key, value in messages]
    inner = b"".join(_encode_messages(messages, magic, flags))
    wrapper = (last_offset, newest, None, inner)
    return encode_wrapper(wrapper, magic=magic, codec=codec, level=level, is_append_time=bool(flags))


def encode_wrapper(
    wrapper: Message, *, magic: int, codec: Codec, level: int | None = None, is_append_time: bool = False
) -> bytes:
    """One message whose value, a message set, is packed with `codec`.

    Its offset has to be that of the last message inside; its timestamp (format 1) the newest one inside, or the
    log-append time. `UnsupportedCompressionTypeError`: zstd came after these formats.
    """
    if codec is Codec.ZSTD:
        raise UnsupportedCompressionTypeError(f"record format {magic} does not know zstd")
    offset, timestamp, key, inner = wrapper
    packed = compress(codec, inner or b"", level, old_frames=magic == 0)
    flags = LOG_APPEND_TIME_FLAG if is_append_time and magic == 1 else 0
    return b"".join(_encode_messages(((offset, timestamp, key, packed),), magic, flags | codec))


def _encode_messages(messages: Sequence[Message], magic: int, attributes: int) -> list[bytes]:
    parts: list[bytes] = []
    add, pack_prefix, pack_length, pack_lead = parts.append, PREFIX.pack, _INT.pack, _LEAD.pack
    lead = bytes((magic, attributes))
    for offset, timestamp, key, value in messages:
        if magic:
            lead = pack_lead(magic, attributes, timestamp)
        head = lead + _NULL if key is None else b"".join((lead, pack_length(len(key)), key))
        body = head + _NULL if value is None else b"".join((head, pack_length(len(value)), value))
        add(pack_prefix(offset, len(body) + _CRC.size, crc32(body)))
        add(body)
    return parts


# --------------------------------------------------------------------------------------------------------- stamping


def stamp_offset(buffer: bytearray | memoryview, position: int, offset: int) -> None:
    """Write the offset of the message at `position` (of a wrapper: that of its last one); it is outside the CRC."""
    _LONG.pack_into(buffer, position, offset)


def stamp_timestamp(
    buffer: bytearray | memoryview,
    position: int,
    header: BatchHeader,
    timestamp_ms: int,
    timestamp_type: TimestampType = TimestampType.LOG_APPEND_TIME,
) -> None:
    """Write timestamp and timestamp type into the message of format 1 at `position`, with a new CRC.

    Log-append time in a wrapper holds for all its messages; as create time it has to be the newest of them.
    `ValueError` for format 0, which has no timestamps.
    """
    if header.magic == 0:
        raise ValueError("format 0 has no timestamps")
    flag = LOG_APPEND_TIME_FLAG if timestamp_type is TimestampType.LOG_APPEND_TIME else 0
    buffer[position + _ATTRIBUTES_AT] = header.attributes & CODEC_MASK | flag
    _LONG.pack_into(buffer, position + _TIMESTAMP_AT, timestamp_ms)
    covered = memoryview(buffer)[position + _MAGIC_AT : position + header.size]
    _CRC.pack_into(buffer, position + _CRC_AT, crc32(covered))
