"""Converts records between formats: message sets up to format 2, batches down to formats 0 and 1.

`records/admission` uses it for an append in another format than the log's, `server/data/produce_and_fetch` for a fetch
by a client that does not support the log's format. Both also call it in worker processes, so it has only module-level
functions with plain arguments and results. A conversion returns new bytes for all records or raises. Invariants: keys,
values, offsets, timestamps and their type are kept wherever the target format can represent them; every CRC is checked
before the bytes get a new one; no entry decompresses to more than the caller's `limit`.

Down-conversion works as in Kafka: control batches are dropped, and so are headers, producer ids and epochs. A
compressed batch becomes a wrapper with the same codec, an uncompressed one becomes plain messages without those before
the requested offset.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from odradek.base.errors import CorruptMessageError, InvalidRecordError, UnsupportedCompressionTypeError
from odradek.base.ports import Buffer
from odradek.base.types import NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from odradek.compression import Codec, compress
from odradek.records.batch import CODEC_MASK, LOG_APPEND_TIME_FLAG, MAGIC, BatchHeader, TimestampType, assemble
from odradek.records.formats import check_entry, iterate_entries
from odradek.records.message_set import (
    PREFIX,
    encode_set,
    encode_wrapper,
    read_message,
    read_messages,
    read_run,
    read_set,
)
from odradek.records.raising import MessageSet, Raised, raise_alike
from odradek.records.record import Message, check_headers, record_bytes
from odradek.records.transcription import Target, Transcript, transcribe_alike
from odradek.records.varint import decode_varint, encode_varint

UNPACKED_LIMIT_BYTES: Final = 128 << 20
"""Default limit of the decompressed size of one entry."""

_SLICE_RECORDS: Final = 4096
_FEWEST_ALONE: Final = 32
_ANY: Final = 0xFF
"""Mask of all attributes of a message."""
_LOG_OVERHEAD: Final = 12
_MESSAGE_OVERHEAD: Final = 34
_MAX_DELTA: Final = (1 << 31) - 1
_MAX_TIME: Final = 1 << 61
"""In milliseconds; beyond, the difference of two timestamps may not fit into the 64 bits of a delta."""
_NULL: Final = encode_varint(-1)
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


# --------------------------------------------------------------------------------------------------------------- up


def up(
    records: Buffer,
    *,
    base_offset: int | None = None,
    codec: Codec | None = None,
    level: int | None = None,
    append_time_ms: int | None = None,
    leader_epoch: int = NO_EPOCH,
    limit: int = UNPACKED_LIMIT_BYTES,
) -> bytes:
    """Return one format 2 batch with all records of a message set of format 0 or 1.

    `base_offset` renumbers the records consecutively; None keeps their offsets, which then must ascend. `codec` None
    keeps the codec of the set. `append_time_ms` sets log append time; otherwise create times are kept, -1 for format
    0. `limit` is the total decompressed size.

    Raises `CorruptMessageError`, `InvalidRecordError`: see `message_set.read_set`; the latter also for an empty set.
    """
    messages = read_set(records, limit=limit)
    if not messages:
        raise InvalidRecordError("a record set without a message")
    return up_messages(
        messages,
        base_offset=base_offset,
        codec=read_message(records).codec if codec is None else codec,
        level=level,
        append_time_ms=append_time_ms,
        leader_epoch=leader_epoch,
    )


def up_messages(
    messages: Sequence[Message],
    *,
    base_offset: int | None = None,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    append_time_ms: int | None = None,
    leader_epoch: int = NO_EPOCH,
) -> bytes:
    """Like `up`, for messages that are already decoded; at least one."""
    deltas: Sequence[int] = range(len(messages))
    if base_offset is None:
        base_offset, deltas = _offset_deltas(messages)
    header = _batch_header(base_offset, leader_epoch, attributes=codec, append_time_ms=append_time_ms)
    return _encode_batch(header, messages, deltas, level)


def up_plain(records: Buffer, *, magic: int) -> bytes | None:
    """Like `up` with base offset 0, but fast, and only for plain messages of format `magic` without attributes.

    Returns None if the set contains anything invalid or unusual; `up` then has to decide.
    """
    data = bytes(records)
    try:
        return _raise_all(data, magic)
    except CorruptMessageError:
        return None


def _raise_all(data: bytes, magic: int) -> bytes | None:
    """Convert runs of similar messages together and others one by one; the inverse of `_transcribe`."""
    pieces: list[Buffer] = []
    position = count = alone = 0
    base_timestamp = newest = read_message(data).base_timestamp
    if not _times_fit(base_timestamp, base_timestamp):
        return None
    messages = MessageSet(data, magic, base_timestamp)
    while position < len(data):
        found = raise_alike(messages, position, count)
        if found is not None:
            alone = 0
        else:
            alone = min(2 * alone + _FEWEST_ALONE, _SLICE_RECORDS)
            found = _raise_each(messages, position, count, alone)
        if found is None:
            return None
        pieces.append(found.records)
        newest = max(newest, found.newest_ms)
        position = found.end
        count += found.number
    header = _batch_header(0, NO_EPOCH, attributes=0, append_time_ms=None)
    header = header._replace(
        last_offset_delta=count - 1, base_timestamp=base_timestamp, max_timestamp=newest, record_count=count
    )
    return assemble(header, b"".join(pieces))


def _raise_each(source: MessageSet, position: int, number: int, most: int) -> Raised | None:
    """Convert at most `most` messages, numbered from `number`; None if another kind of entry comes before."""
    data, magic, base_timestamp = source
    messages: list[Message] = []
    end = read_run(data, position, magic, messages, most=most, end_at=_ANY)
    count = len(messages)
    if not count or (count < most and end < len(data)):
        return None
    oldest, newest = _oldest_and_newest(messages)
    if not _times_fit(oldest, newest):
        return None
    records = b"".join(_encode_records(messages, range(number, number + count), base_timestamp))
    return Raised(records, count, end, newest)


def _oldest_and_newest(messages: Sequence[Message]) -> tuple[int, int]:
    times = [message[1] for message in messages]
    return min(times), max(times)


def _times_fit(oldest_ms: int, newest_ms: int) -> bool:
    """Whether the difference of any two such timestamps fits into 64 bits."""
    return oldest_ms >= -_MAX_TIME and newest_ms <= _MAX_TIME


def up_entry(buffer: Buffer, position: int, header: BatchHeader, *, limit: int = UNPACKED_LIMIT_BYTES) -> bytes:
    """Return the message or wrapper at `position` as an uncompressed format 2 batch, for readers.

    Keeps offsets, timestamps and their type, and checks the CRC. Raises as `up`.
    """
    check_entry(buffer, position, header)
    messages = read_messages(buffer, position, header, limit=limit)
    base_offset, deltas = _offset_deltas(messages)
    is_append_time = header.magic and header.timestamp_type is TimestampType.LOG_APPEND_TIME
    batch = _batch_header(
        base_offset, NO_EPOCH, attributes=0, append_time_ms=header.max_timestamp if is_append_time else None
    )
    return _encode_batch(batch, messages, deltas, None)


def _offset_deltas(messages: Sequence[Message]) -> tuple[int, Sequence[int]]:
    """Return the first offset, and the difference of each offset to it."""
    base = messages[0][0]
    deltas = [message[0] - base for message in messages]
    ascending = all(earlier < later for earlier, later in pairwise(deltas))
    if base < 0 or deltas[-1] > _MAX_DELTA or not ascending:
        raise CorruptMessageError(f"offsets {base} .. {messages[-1][0]} do not ascend as those of a batch must")
    return base, deltas


def _batch_header(base_offset: int, leader_epoch: int, *, attributes: int, append_time_ms: int | None) -> BatchHeader:
    """Return a header without counts; `base_timestamp` is -1 unless it is the log append time."""
    timestamp = -1 if append_time_ms is None else append_time_ms
    return BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes if append_time_ms is None else attributes | LOG_APPEND_TIME_FLAG,
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=0,
    )


def _encode_batch(header: BatchHeader, messages: Sequence[Message], deltas: Sequence[int], level: int | None) -> bytes:
    if header.attributes & LOG_APPEND_TIME_FLAG:
        base_timestamp = newest = header.max_timestamp
        messages = [(offset, base_timestamp, key, value) for offset, _, key, value in messages]
    else:
        oldest, newest = _oldest_and_newest(messages)
        # Deltas from 0 always fit into 64 bits, whatever timestamps a producer writes.
        base_timestamp = messages[0][1] if _times_fit(oldest, newest) else 0
    packed = b"".join(_encode_records(messages, deltas, base_timestamp))
    codec = header.codec
    header = header._replace(
        last_offset_delta=deltas[-1],
        base_timestamp=base_timestamp,
        max_timestamp=newest,
        record_count=len(messages),
    )
    return assemble(header, compress(codec, packed, level) if codec else packed)


def _encode_records(messages: Sequence[Message], deltas: Sequence[int], base_timestamp: int) -> list[bytes]:
    parts: list[bytes] = []
    add = parts.append
    for delta, (_, timestamp, key, value) in zip(deltas, messages, strict=True):
        body = b"".join(
            (
                b"\x00",
                encode_varint(timestamp - base_timestamp),
                encode_varint(delta),
                _NULL if key is None else encode_varint(len(key)),
                key or b"",
                _NULL if value is None else encode_varint(len(value)),
                value or b"",
                b"\x00",
            )
        )
        add(encode_varint(len(body)))
        add(body)
    return parts


# ------------------------------------------------------------------------------------------------------------- down


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
        raise UnsupportedCompressionTypeError("records packed with zstd cannot be read by clients this old")
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
        raise CorruptMessageError(f"the batch at offset {header.base_offset} unpacks to more than {target.limit} bytes")
    # Offsets in a format 1 wrapper are relative to its first message. Offsets relative to the batch's base offset work
    # too, and differ only if compaction removed that record: readers derive the base from the last message.
    base_offset = 0 if codec and target.magic else header.base_offset
    try:
        plain, last_delta = _transcribe(data, header, target.magic, base_offset)
    except (IndexError, struct.error) as error:
        raise CorruptMessageError(f"a number in the batch at offset {header.base_offset} cannot be true") from error
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
            alone = min(2 * alone + _FEWEST_ALONE, _SLICE_RECORDS)
            found = _transcribe_each(data, at, min(left, alone), target)
        pieces.append(found.messages)
        at, delta = found.end, found.offset_delta
        left -= found.number
    if at != len(data):
        raise CorruptMessageError(f"the records of the batch at offset {header.base_offset} do not fill it")
    return b"".join(pieces), delta


def _transcribe_each(data: bytes, at: int, count: int, target: Target) -> Transcript:
    """Convert the next `count` records of any kind.

    Reads and writes in one loop: creating an object per record in between would halve the speed.
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
    check_headers(data, position, end)


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
