"""Writes messages and message sets of formats 0 and 1, and changes offsets and timestamps in them.

`records/conversion` and `records/admission` use it; `legacy/message_set` describes the layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from odradek.base.errors import UnsupportedCompressionTypeError
from odradek.compression import Codec, compress
from odradek.records.legacy.checksum import crc32
from odradek.records.legacy.message_set import ATTRIBUTES_AT, CRC_AT, MAGIC_AT, TIMESTAMP_AT
from odradek.records.v2.batch import CODEC_MASK, LOG_APPEND_TIME_FLAG, BatchHeader, TimestampType
from odradek.records.v2.record import Message

PREFIX: Final = Struct(">qiI")
"""Offset, size and CRC: the fields that the CRC does not cover."""
_INT: Final = Struct(">i")
_LONG: Final = Struct(">q")
_CRC: Final = Struct(">I")
_LEAD: Final = Struct(">BBq")
_NULL: Final = _INT.pack(-1)


def encode_set(
    messages: Sequence[Message],
    *,
    magic: int,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    append_time_ms: int | None = None,
) -> bytes:
    """Encode `messages` in format 0 or 1: one after the other, or all in one wrapper if a codec is given.

    Offsets must ascend in a format 1 wrapper, where they become relative to the first. With `append_time_ms`, format 1
    uses log append time and all messages get this timestamp; format 0 has no timestamps. Raises
    `UnsupportedCompressionTypeError` for zstd, newer than these formats, and `ValueError` for an empty wrapper.
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
    """Encode one message whose value, a message set, is compressed with `codec`.

    Its offset must be that of the last message inside, and its timestamp (format 1) the largest one inside or the log
    append time. Raises `UnsupportedCompressionTypeError` for zstd, which is newer than these formats.
    """
    if codec is Codec.ZSTD:
        raise UnsupportedCompressionTypeError(f"record format {magic} does not support zstd")
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


def stamp_offset(buffer: bytearray | memoryview, position: int, offset: int) -> None:
    """Write the offset of the message at `position` (for a wrapper, of its last message); the CRC does not cover it."""
    _LONG.pack_into(buffer, position, offset)


def stamp_timestamp(
    buffer: bytearray | memoryview,
    position: int,
    header: BatchHeader,
    timestamp_ms: int,
    timestamp_type: TimestampType = TimestampType.LOG_APPEND_TIME,
) -> None:
    """Write timestamp and timestamp type into the format 1 message at `position`, and update the CRC.

    In a wrapper, a log append time applies to all its messages; a create time must be the largest of them. Raises
    `ValueError` for format 0, which has no timestamps.
    """
    if header.magic == 0:
        raise ValueError("format 0 has no timestamps")
    flag = LOG_APPEND_TIME_FLAG if timestamp_type is TimestampType.LOG_APPEND_TIME else 0
    buffer[position + ATTRIBUTES_AT] = header.attributes & CODEC_MASK | flag
    _LONG.pack_into(buffer, position + TIMESTAMP_AT, timestamp_ms)
    covered = memoryview(buffer)[position + MAGIC_AT : position + header.size]
    _CRC.pack_into(buffer, position + CRC_AT, crc32(covered))
