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

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from librt.strings import BytesWriter, write_i64_be

from odradek.base.errors import CorruptMessageError, UnsupportedCompressionTypeError
from odradek.base.ports import Buffer
from odradek.compression import Codec
from odradek.records.conversion.down_runs import Target, transcribe_alike
from odradek.records.conversion.message_table import next_slice
from odradek.records.formats import check_entry, iterate_entries
from odradek.records.legacy.checksum import crc32
from odradek.records.legacy.message_set import read_messages
from odradek.records.legacy.writing import PREFIX, encode_set, encode_wrapper
from odradek.records.v2.batch import CODEC_MASK, HEADER_SIZE, LOG_APPEND_TIME_FLAG, MAGIC, BatchHeader, TimestampType
from odradek.records.v2.record import UNPACKED_LIMIT_BYTES, record_bytes
from odradek.records.v2.record_walk import (
    ANY_NUMBER,
    IS_COMPILED,
    long_number,
    long_timestamp,
    pass_headers,
    walk,
)

if TYPE_CHECKING:
    from mypy_extensions import i64

_LOG_OVERHEAD: Final = 12
_OVERHEADS: Final = (26, 34)
"""Size of a message without key and value, by format."""
_LEAD_1: Final = Struct(">BBqi")
_LEAD_0: Final = Struct(">BBi")
_INT: Final = Struct(">i")
_MIN_INT64: Final = -(1 << 63)
_MAX_INT64: Final = (1 << 63) - 1
_UNLIMITED: Final = 1 << 60
_NULL: Final = 1
"""The length of a null key or value, -1, zigzag-encoded."""


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
    pieces: list[bytes] = []
    size = count = consumed = 0
    data, wanted = bytes(records), _Wanted(magic, first_offset, limit)
    most = _UNLIMITED if max_bytes is None else max_bytes
    for position, header in iterate_entries(data):
        if size and not _may_fit(data, position, header, wanted, most - size):
            break
        piece, converted = _lower_entry(data, position, header, wanted)
        if size and size + len(piece) > most:
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


def _may_fit(data: bytes, position: int, header: BatchHeader, target: _Wanted, most_bytes: int) -> bool:
    """Whether at most `most_bytes` bytes may result from the entry; always true if only its conversion shows that.

    A conversion whose result is discarded takes time. Reading the lengths first takes much less, if it is compiled.
    An invalid entry may fit, so that the conversion reports the error.
    """
    if not IS_COMPILED or header.magic != MAGIC or header.attributes & CODEC_MASK or header.is_control:
        return True
    overhead = header.record_count * _OVERHEADS[target.magic]
    if header.batch_length + overhead <= most_bytes or header.batch_length + 2 * overhead > target.limit:
        return True
    check_entry(data, position, header)
    highest = min(header.last_offset_delta, _MAX_INT64 - header.base_offset)
    walked = walk(data, position + HEADER_SIZE, header.record_count, last_offset_delta=highest)
    if walked is None or walked[0] != position + header.size:
        return True
    oldest, newest = header.base_timestamp + walked[1], header.base_timestamp + walked[2]
    return oldest < _MIN_INT64 or newest > _MAX_INT64 or walked[5] + overhead <= most_bytes


def _lower_entry(data: bytes, position: int, header: BatchHeader, target: _Wanted) -> tuple[bytes, int]:
    """Return the entry as `target` requires it, empty if nothing is left, and the number of converted records."""
    if header.is_control:
        return b"", 0
    if header.attributes & CODEC_MASK == Codec.ZSTD:
        raise UnsupportedCompressionTypeError(f"clients that read format {target.magic} do not support zstd")
    if header.magic <= target.magic:
        return data[position : position + header.size], 0
    check_entry(data, position, header)
    return (_lower_batch if header.magic == MAGIC else _lower_message)(data, position, header, target)


def _lower_message(data: bytes, position: int, header: BatchHeader, target: _Wanted) -> tuple[bytes, int]:
    """Convert a message or wrapper from format 1 to format 0."""
    messages = read_messages(data, position, header, limit=target.limit)
    codec = header.codec
    if codec is Codec.NONE and header.base_offset < target.first_offset:
        return b"", 0
    return encode_set(messages, magic=target.magic, codec=codec), len(messages)


def _lower_batch(data: bytes, position: int, header: BatchHeader, target: _Wanted) -> tuple[bytes, int]:
    """Convert a format 2 batch to a wrapper or to plain messages."""
    codec = header.codec
    section = record_bytes(data, position, header, limit=target.limit)
    if len(section) + header.record_count * _OVERHEADS[1] > target.limit:
        raise CorruptMessageError(
            f"the batch at offset {header.base_offset} decompresses to more than {target.limit} bytes"
        )
    if codec is not Codec.NONE:
        return _lower_compressed(bytes(section), header, target)
    plain, _ = _transcribe(data, (position + HEADER_SIZE, position + header.size), header, target.magic)
    if header.base_offset >= target.first_offset:
        return plain, header.record_count
    skipped, start = _find_offset(plain, target.first_offset)
    return plain[start:], header.record_count - skipped


def _lower_compressed(section: bytes, header: BatchHeader, target: _Wanted) -> tuple[bytes, int]:
    """Convert a compressed batch to a wrapper; `section` has its decompressed records."""
    # Offsets in a format 1 wrapper are relative to its first message. Offsets relative to the batch's base offset work
    # too, and differ only if compaction removed that record: readers derive the base from the last message.
    numbered = header._replace(base_offset=0) if target.magic else header
    plain, last_delta = _transcribe(section, (0, len(section)), numbered, target.magic)
    if not plain:
        return b"", 0
    wrapper = (header.base_offset + last_delta, header.max_timestamp, None, plain)
    is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    piece = encode_wrapper(wrapper, magic=target.magic, codec=header.codec, is_append_time=is_append_time)
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


def _transcribe(data: bytes, section: tuple[int, int], header: BatchHeader, magic: int) -> tuple[bytes, int]:
    """Return the records in a section of the data as plain messages, and the last offset delta.

    Raises `CorruptMessageError` if they are invalid or do not fill the section.
    """
    is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    base_timestamp, scale = (header.max_timestamp, 0) if is_append_time else (header.base_timestamp, 1)
    attributes = LOG_APPEND_TIME_FLAG if is_append_time and magic else 0
    target = Target(magic, attributes, header.base_offset, base_timestamp, scale, header.last_offset_delta)
    position, end = section
    out = BytesWriter()
    try:
        reached, delta = _transcribe_all(data, position, header.record_count, target, out)
    except IndexError:
        reached, delta = -1, 0
    if reached != end:
        raise CorruptMessageError(f"the records of the batch at offset {header.base_offset} do not fill it")
    return out.getvalue(), delta


def _transcribe_all(data: bytes, position: int, count: int, target: Target, out: BytesWriter) -> tuple[int, int]:
    """Convert `count` records. Return the position after them and the last offset delta.

    In the interpreter, similar records are converted together, others one by one, in longer runs the more attempts to
    find similar ones have failed. Compiled, one by one is the fastest way for all records.
    """
    if IS_COMPILED:
        return _transcribe_each(data, position, count, target, out)
    delta = alone = 0
    while count:
        found = transcribe_alike(data, position, count, target)
        if found is not None:
            alone = 0
            out.write(found.messages)
            position, delta = found.end, found.offset_delta
            count -= found.number
        else:
            alone = min(count, next_slice(alone))
            position, delta = _transcribe_each(data, position, alone, target, out)
            count -= alone
    return position, delta


def _transcribe_each(data: bytes, position: int, count: int, target: Target, out: BytesWriter) -> tuple[int, int]:
    """Convert the next `count` records of any kind. Return the position after them and the last offset delta.

    Reads and writes in one loop: rows of `record_walk.walk` in between would add a quarter to the time. Like there, no
    sum can exceed 64 bits: `earliest`, `latest` and `highest` limit what is added to the bases. Raises `IndexError` if
    a number extends beyond the data.
    """
    # Format 0 has no timestamps, so there any delta is valid.
    scale = target.scale if target.magic else 0
    earliest: i64 = _MIN_INT64 - min(target.base_timestamp, 0) * scale
    latest: i64 = _MAX_INT64 - max(target.base_timestamp, 0) * scale
    highest: i64 = min(target.last_offset_delta, _MAX_INT64 - target.base_offset) << 1
    base_offset: i64 = target.base_offset
    at: i64 = position
    head, middle, head_crc = b"", b"", 0
    head_delta: i64 = 0
    head_key: i64 = -1
    head_value: i64 = 0
    number: i64 = 0
    # Numbers stay zigzag-encoded until they are used. The lowest bit is the sign: the length -1, null, becomes 1.
    for _ in range(count):
        length: i64 = data[at]
        at += 1
        if length >= 0x80:
            length, at = long_number(data, at)
        end: i64 = at + (length >> 1)
        delta: i64 = data[at + 1]  # The byte before it, the record's attributes, is unused.
        at += 2
        if delta >= 0x80:
            delta, at = long_timestamp(data, at)
        else:
            delta = (delta >> 1) ^ -(delta & 1)
        number = data[at]
        at += 1
        if number >= 0x80:
            number, at = long_number(data, at)
        key: i64 = data[at]
        at += 1
        if key >= 0x80:
            key, at = long_number(data, at)
        key_at: i64 = at
        at += key >> 1
        value: i64 = data[at]
        at += 1
        if value >= 0x80:
            value, at = long_number(data, at)
        value_at: i64 = at
        at += value >> 1
        headers: i64 = data[at]
        sound = (length | number) & 1 == 0 and number <= highest and (key & 1 == 0 or key == 1)
        sound = sound and (value & 1 == 0 or value == 1) and earliest <= delta and delta <= latest
        if headers or at + 1 != end or not sound:
            pass_headers(data, at, end, ANY_NUMBER if sound else -1)
        if delta != head_delta or key != head_key or value != head_value:
            # Records often have the same head as the one before. It ends before the key, or before a value without key.
            head_delta, head_key, head_value = delta, key, value
            head, middle = _fixed_fields(target, delta, (key >> 1) - (key & 1), (value >> 1) - (value & 1))
            head_crc = crc32(head)
        body = data[value_at:at]
        if key != _NULL:
            body = b"".join((data[key_at : key_at + (key >> 1)], middle, body))
        crc: i64 = crc32(body, head_crc)
        size: i64 = len(head) + len(body) + 4
        write_i64_be(out, base_offset + (number >> 1))
        write_i64_be(out, size << 32 | crc)
        out.write(head)
        out.write(body)
        at = end
    return at, number >> 1


def _fixed_fields(target: Target, delta: int, key_length: int, value_length: int) -> tuple[bytes, bytes]:
    """Return the fields of a message from the format to the key, and the length of the value between key and value.

    If the key is null, the former include the length of the value.
    """
    middle = _INT.pack(value_length)
    if target.magic:
        timestamp = target.base_timestamp + target.scale * delta
        head = _LEAD_1.pack(target.magic, target.attributes, timestamp, key_length)
    else:
        head = _LEAD_0.pack(target.magic, target.attributes, key_length)
    return head if key_length >= 0 else head + middle, middle
