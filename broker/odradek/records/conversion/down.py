"""Converts batches of format 2 to messages of formats 0 and 1, and messages of format 1 to format 0.

`server/data/conversion` uses it for a fetch by a client that does not support the log's format, also in worker
processes, so it has only module-level functions with plain arguments and results. Invariants: keys, values, offsets,
timestamps and their type are kept wherever the target format can represent them; every CRC is checked before the bytes
get a new one; no entry decompresses to more than the caller's `limit`.

The conversion works as in Kafka: control batches are dropped, and so are headers, producer ids and epochs. A compressed
batch becomes a wrapper with the same codec, an uncompressed one becomes plain messages without those before the
requested offset.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from odradek.base.errors import CorruptMessageError, UnsupportedCompressionTypeError
from odradek.base.ports import Buffer
from odradek.compression import Codec
from odradek.records.conversion.down_runs import Target, Transcript, transcribe_alike
from odradek.records.conversion.message_table import next_slice
from odradek.records.formats import check_entry, iterate_entries
from odradek.records.legacy.message_set import read_messages
from odradek.records.legacy.writing import PREFIX, encode_set, encode_wrapper
from odradek.records.v2.batch import CODEC_MASK, LOG_APPEND_TIME_FLAG, MAGIC, BatchHeader, TimestampType
from odradek.records.v2.record import UNPACKED_LIMIT_BYTES, record_bytes
from odradek.records.v2.record_walk import pass_headers
from odradek.records.v2.varint import decode_varint

_LOG_OVERHEAD: Final = 12
_MESSAGE_OVERHEAD: Final = 34
_LEAD_1: Final = Struct(">BBqi")
_LEAD_0: Final = Struct(">BBi")
_INT: Final = Struct(">i")


class Converted(NamedTuple):
    """Result of a down-conversion."""

    records: bytes
    record_count: int
    """Number of converted records, without those of entries that were old enough already."""
    consumed_bytes: int
    """Number of input bytes that the result covers, including dropped entries."""


def down(
    records: Buffer,
    *,
    magic: int,
    first_offset: int = 0,
    max_bytes: int | None = None,
    limit: int = UNPACKED_LIMIT_BYTES,
) -> Converted:
    """Convert `records` for a client that supports no format above `magic` (0 or 1).

    Entries in an older format are copied. Plain messages below `first_offset` are dropped, because old clients expect
    nothing before the offset that they requested; they skip such messages in wrappers themselves. The conversion stops
    before the entry that would exceed `max_bytes`, unless it is the first one with records: a client that receives
    nothing would repeat its request. An incomplete entry at the end is ignored.

    Raises `UnsupportedCompressionTypeError` for zstd, which old clients do not support, and `CorruptMessageError` or
    `InvalidRecordError` for an invalid entry.
    """
    pieces: list[Buffer] = []
    size = count = consumed = 0
    view, wanted = memoryview(records), _Wanted(magic, first_offset, limit)
    for position, header in iterate_entries(records):
        piece, converted = _lower_entry(view, position, header, wanted)
        if max_bytes is not None and size and size + len(piece) > max_bytes:
            break
        pieces.append(piece)
        size += len(piece)
        count += converted
        consumed = position + header.size
    return Converted(b"".join(pieces), count, consumed)


def converted_down(records: Buffer, magic: int, first_offset: int) -> tuple[bytes, int]:
    """Return records from `first_offset` on in format `magic`, and the number of converted records.

    The result has whole entries, at most as many bytes as the input but at least one entry. It is defined here for
    worker processes, which load this module but not the server. Raises as `down`.
    """
    done = down(records, magic=magic, first_offset=first_offset, max_bytes=len(records))
    return done.records, done.record_count


class _Wanted(NamedTuple):
    """What the client of a fetch can read."""

    magic: int
    first_offset: int
    limit: int


def _lower_entry(view: memoryview, position: int, header: BatchHeader, target: _Wanted) -> tuple[Buffer, int]:
    """Return the entry as `target` requires it, empty if nothing is left, and the number of converted records."""
    if header.is_control:
        return b"", 0
    if header.attributes & CODEC_MASK == Codec.ZSTD:
        raise UnsupportedCompressionTypeError("clients that read format {target.magic} do not support zstd")
    if header.magic <= target.magic:
        return view[position : position + header.size], 0
    check_entry(view, position, header)
    return (_lower_batch if header.magic == MAGIC else _lower_message)(view, position, header, target)


def _lower_message(view: memoryview, position: int, header: BatchHeader, target: _Wanted) -> tuple[bytes, int]:
    """Convert a message or wrapper from format 1 to format 0."""
    messages = read_messages(view, position, header, limit=target.limit)
    codec = header.codec
    if codec is Codec.NONE and header.base_offset < target.first_offset:
        return b"", 0
    return encode_set(messages, magic=target.magic, codec=codec), len(messages)


def _lower_batch(view: memoryview, position: int, header: BatchHeader, target: _Wanted) -> tuple[bytes, int]:
    """Convert a format 2 batch to a wrapper or to plain messages."""
    codec = header.codec
    data = bytes(record_bytes(view, position, header, limit=target.limit))
    if len(data) + header.record_count * _MESSAGE_OVERHEAD > target.limit:
        raise CorruptMessageError(
            f"the batch at offset {header.base_offset} decompresses to more than {target.limit} bytes"
        )
    # Offsets in a format 1 wrapper are relative to its first message. Offsets relative to the batch's base offset work
    # too, and differ only if compaction removed that record: readers derive the base from the last message.
    base_offset = 0 if codec and target.magic else header.base_offset
    try:
        plain, last_delta = _transcribe(data, header, target.magic, base_offset)
    except (IndexError, struct.error) as error:
        raise CorruptMessageError(f"a number in the batch at offset {header.base_offset} is out of range") from error
    if codec is Codec.NONE:
        skipped, start = _find_offset(plain, target.first_offset)
        return plain[start:], header.record_count - skipped
    if not plain:
        return b"", 0
    wrapper = (header.base_offset + last_delta, header.max_timestamp, None, plain)
    is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    piece = encode_wrapper(wrapper, magic=target.magic, codec=codec, is_append_time=is_append_time)
    return piece, header.record_count


def _find_offset(plain: bytes, offset: int) -> tuple[int, int]:
    """Return the number of plain messages below `offset`, and the position of the first other one."""
    count = position = 0
    while position < len(plain):
        found, size, _ = PREFIX.unpack_from(plain, position)
        if found >= offset:
            break
        count += 1
        position += _LOG_OVERHEAD + size
    return count, position


def _transcribe(data: bytes, header: BatchHeader, magic: int, base_offset: int) -> tuple[bytes, int]:
    """Convert the records of a batch to plain messages numbered from `base_offset`; also return the last offset delta.

    Similar records are converted together, others one by one, in longer runs the more attempts to find similar ones
    have failed. The output is joined every few thousand records, so that tiny records take no more memory than others.
    Raises `IndexError` or `struct.error` if a number exceeds the data or its field.
    """
    is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    base_timestamp, scale = (header.max_timestamp, 0) if is_append_time else (header.base_timestamp, 1)
    attributes = LOG_APPEND_TIME_FLAG if is_append_time and magic else 0
    target = Target(magic, attributes, base_offset, base_timestamp, scale, header.last_offset_delta)
    pieces: list[Buffer] = []
    at = delta = 0
    left, alone = header.record_count, 0
    while left:
        found = transcribe_alike(data, at, left, target)
        if found is not None:
            alone = 0
        else:
            alone = next_slice(alone)
            found = _transcribe_each(data, at, min(left, alone), target)
        pieces.append(found.messages)
        at, delta = found.end, found.offset_delta
        left -= found.number
    if at != len(data):
        raise CorruptMessageError(f"the records of the batch at offset {header.base_offset} do not fill it")
    return b"".join(pieces), delta


def _transcribe_each(data: bytes, at: int, count: int, target: Target) -> Transcript:
    """Convert the next `count` records of any kind.

    Reads and writes in one loop: rows of `record_walk.walk` in between would add a quarter to the time.
    """
    magic, attributes, base_offset, base_timestamp, scale, last_offset_delta = target
    pack_lead, pack_prefix, pack_length = _LEADS[magic], PREFIX.pack, _INT.pack
    parts: list[bytes] = []
    highest = last_offset_delta << 1
    number = 0
    # Numbers stay zigzag-encoded until they are used: the null length, -1, is encoded as 1, which halves to 0.
    for _ in range(count):
        length = data[at]
        at += 1
        if length >= 0x80:
            length, at = _long_number(data, at)
        end = at + (length >> 1)
        timestamp = data[at + 1]  # The byte before it, the record's attributes, is unused.
        at += 2
        if timestamp >= 0x80:
            timestamp, at = _long_number(data, at)
        number = data[at]
        at += 1
        if number >= 0x80:
            number, at = _long_number(data, at)
        size = data[at]
        at += 1
        if size >= 0x80:
            size, at = _long_number(data, at)
        key_length = size >> 1 ^ -(size & 1)
        lead = pack_lead(magic, attributes, base_timestamp + scale * (timestamp >> 1 ^ -(timestamp & 1)), key_length)
        key_at, at = at, at + (size >> 1)
        key = data[key_at:at]
        size = data[at]
        at += 1
        if size >= 0x80:
            size, at = _long_number(data, at)
        value_length = size >> 1 ^ -(size & 1)
        value_at, at = at, at + (size >> 1)
        sound = not ((length | number) & 1 or number > highest or key_length < -1 or value_length < -1)
        if not sound or data[at] or at + 1 != end:
            _check_unusual(data, at, end, is_sound=sound)
        body = b"".join((lead, key, pack_length(value_length), data[value_at:at]))
        parts += (pack_prefix(base_offset + (number >> 1), len(body) + 4, crc32(body)), body)
        at = end
    return Transcript(b"".join(parts), count, at, number >> 1)


def _check_unusual(data: bytes, position: int, end: int, *, is_sound: bool) -> None:
    """Check a record that has headers or is invalid."""
    if not is_sound:
        raise CorruptMessageError("a record has impossible lengths or an offset outside its batch")
    pass_headers(data, position, end)


def _long_number(data: bytes, position: int) -> tuple[int, int]:
    """Return the number that began one byte before `position`, still zigzag-encoded, and the position after it."""
    following = data[position]
    if following < 0x80:
        return data[position - 1] & 0x7F | following << 7, position + 1
    value, end = decode_varint(data, position - 1)
    return value << 1 ^ value >> 63, end


def _pack_lead_0(magic: int, attributes: int, timestamp: int, key_length: int) -> bytes:
    """Like format 1, but without the timestamp, which format 0 does not have."""
    return _LEAD_0.pack(magic, attributes, key_length)


_LEADS: Final[tuple[Callable[[int, int, int, int], bytes], ...]] = (_pack_lead_0, _LEAD_1.pack)
"""Encoders of the fields between a message's CRC and its key, by format."""
