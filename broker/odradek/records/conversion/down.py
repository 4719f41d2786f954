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
from odradek.records.v2.record_walk import Row, record_fault, walk

_LOG_OVERHEAD: Final = 12
_MESSAGE_OVERHEAD: Final = 34
_LEAD_1: Final = Struct(">BBqi")
_LEAD_0: Final = Struct(">BBi")
_INT: Final = Struct(">i")
_CRC_BYTES: Final = 4


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
    except struct.error as error:
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
    Raises `CorruptMessageError` for an invalid record, `struct.error` if a number exceeds its field.
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
            first = header.record_count - left
            found = _transcribe_each(data, at, range(first, first + min(left, alone)), target, header)
        pieces.append(found.messages)
        at, delta = found.end, found.offset_delta
        left -= found.number
    if at != len(data):
        raise CorruptMessageError(f"the records of the batch at offset {header.base_offset} do not fill it")
    return b"".join(pieces), delta


def _transcribe_each(data: bytes, at: int, numbers: range, target: Target, header: BatchHeader) -> Transcript:
    """Convert the records with these numbers, at least one, of any kind, from position `at` on.

    Raises `CorruptMessageError` for an invalid record, `struct.error` for a timestamp longer than 64 bits.
    """
    magic, attributes, base_offset, base_timestamp, scale, last_offset_delta = target
    rows: list[Row] = []
    walked = walk(data, at, len(numbers), rows=rows, last_offset_delta=last_offset_delta)
    if walked is None:
        fault = record_fault(data, rows[-1][-1] if rows else at, last_offset_delta=last_offset_delta)
        raise CorruptMessageError(
            f"record {numbers[len(rows)]} of the batch at offset {header.base_offset} is invalid: {fault}"
        )
    pack_lead, pack_prefix, pack_length = _LEADS[magic], PREFIX.pack, _INT.pack
    parts: list[bytes] = []
    for delta, offset_delta, key_at, key_length, value_at, value_length, _, _ in rows:
        lead = pack_lead(magic, attributes, base_timestamp + scale * delta, key_length)
        rest = data[value_at : value_at + value_length] if value_length > 0 else b""
        if key_length > 0:
            rest = b"".join((data[key_at : key_at + key_length], pack_length(value_length), rest))
        else:
            lead += pack_length(value_length)
        size = len(lead) + len(rest) + _CRC_BYTES
        parts += (pack_prefix(base_offset + offset_delta, size, crc32(rest, crc32(lead))), lead, rest)
    return Transcript(b"".join(parts), len(rows), walked.end, rows[-1][1])


def _pack_lead_0(magic: int, attributes: int, timestamp: int, key_length: int) -> bytes:
    """Like format 1, but without the timestamp, which format 0 does not have."""
    return _LEAD_0.pack(magic, attributes, key_length)


_LEADS: Final[tuple[Callable[[int, int, int, int], bytes], ...]] = (_pack_lead_0, _LEAD_1.pack)
"""Encoders of the fields between a message's CRC and its key, by format."""
