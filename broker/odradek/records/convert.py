"""From one record format to another: old sets up to format 2, batches down to formats 0 and 1.

Memory of record sets enters, new bytes leave, all of them or none. `records/admission` calls it on an append that comes
in another format than the log's, `server/data` on the fetch of a client that does not know the log's; both also in
worker processes, so everything here is a module's function and takes and gives plain values. Invariants: keys, values,
offsets, timestamps and their type survive wherever the other format can hold them; every CRC is checked before its
bytes get a new one; no entry unpacks to more than the caller's `limit`.

Downward, as Kafka does it: control batches are left out, headers, producer ids and epochs are dropped, a packed batch
becomes a wrapper of the same codec, a plain one becomes plain messages without those before the wanted offset.
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
"""What one entry may unpack to unless the caller says otherwise."""

_SLICE_RECORDS: Final = 4096
_FEWEST_ALONE: Final = 32
_ANY: Final = 0xFF
"""All attributes of a message."""
_LOG_OVERHEAD: Final = 12
_MESSAGE_OVERHEAD: Final = 34
_MAX_DELTA: Final = (1 << 31) - 1
_MAX_TIME: Final = 1 << 61
"""In milliseconds; beyond, deltas between two times may need more bits than a record has for them."""
_NULL: Final = encode_varint(-1)
_LEAD_1: Final = Struct(">BBqi")
_LEAD_0: Final = Struct(">BBi")
_INT: Final = Struct(">i")


class Converted(NamedTuple):
    """Outcome of a conversion down."""

    records: bytes
    record_count: int
    """Records that were rewritten; entries that were old enough already do not count."""
    consumed_bytes: int
    """How much of the input this stands for, entries that were left out included."""


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
    """One batch of format 2 with all records of a message set of format 0 or 1.

    `base_offset` numbers the records anew, one after the other; None keeps their offsets, which then have to ascend.
    `codec` None keeps the set's own. `append_time_ms` makes it a batch of log-append time; otherwise create times are
    kept, -1 for those of format 0. `limit` bounds the unpacked bytes in sum.

    `CorruptMessageError`, `InvalidRecordError`: see `message_set.read_set`; the latter also for an empty set.
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
    """As `up`, of messages that were read already; there has to be one."""
    deltas: Sequence[int] = range(len(messages))
    if base_offset is None:
        base_offset, deltas = _offset_deltas(messages)
    header = _batch_header(base_offset, leader_epoch, attributes=codec, append_time_ms=append_time_ms)
    return _encode_batch(header, messages, deltas, level)


def up_plain(records: Buffer, *, magic: int) -> bytes | None:
    """As `up` with the base offset 0, of plain messages of format `magic` without attributes alone, and quickly.

    None says nothing: something in the set is unsound or unusual, and `up` knows what it makes of it.
    """
    data = bytes(records)
    try:
        return _raise_all(data, magic)
    except CorruptMessageError:
        return None


def _raise_all(data: bytes, magic: int) -> bytes | None:
    """Messages that are alike go together, others one by one; see `_transcribe`, whose way back it is."""
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
    """The records of the next messages, at most so many, numbered from `number`; None before any other entry."""
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
    """Whether a delta between any two such times has 64 bits at most."""
    return oldest_ms >= -_MAX_TIME and newest_ms <= _MAX_TIME


def up_entry(buffer: Buffer, position: int, header: BatchHeader, *, limit: int = UNPACKED_LIMIT_BYTES) -> bytes:
    """The message or wrapper at `position` as a batch of format 2 without compression; for readers.

    Offsets, timestamps and their type are kept, the CRC is checked. Errors: see `up`.
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
    """The first offset and what each one is above it."""
    base = messages[0][0]
    deltas = [message[0] - base for message in messages]
    ascending = all(earlier < later for earlier, later in pairwise(deltas))
    if base < 0 or deltas[-1] > _MAX_DELTA or not ascending:
        raise CorruptMessageError(f"offsets {base} .. {messages[-1][0]} do not ascend as those of a batch must")
    return base, deltas


def _batch_header(base_offset: int, leader_epoch: int, *, attributes: int, append_time_ms: int | None) -> BatchHeader:
    """A header whose counts are still open; `base_timestamp` -1 unless it is the log-append time."""
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
        # Deltas from 0 have 64 bits whatever the times are, and a producer may write any.
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
    """The entries of `records` as a client reads them that knows no format above `magic` (0 or 1).

    Entries that are old enough stay as they are. Plain records below `first_offset` are left out, since old clients
    expect nothing before the offset that they asked for; wrappers they cut themselves. Before an entry that would make
    more than `max_bytes` the conversion ends, unless it is the first one with records: a client that gets nothing
    would ask for the same again. An incomplete entry at the end stays out.

    `UnsupportedCompressionTypeError`: zstd, which no old client knows. `CorruptMessageError`, `InvalidRecordError`: an
    entry is unsound.
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
    """Records from `first_offset` on in the format `magic`, and how many of them were written anew.

    Whole entries of no more bytes than came, but at least one. It stands here for the sake of worker processes, which
    load this module and nothing of the server. Raises as `down`.
    """
    done = down(records, magic=magic, first_offset=first_offset, max_bytes=len(records))
    return done.records, done.record_count


class _Wanted(NamedTuple):
    """What a fetch may be answered with."""

    magic: int
    first_offset: int
    limit: int


def _lower_entry(view: memoryview, position: int, header: BatchHeader, target: _Wanted) -> tuple[Buffer, int]:
    """The entry as `target` wants it, empty if nothing is left of it, and how many of its records were rewritten."""
    if header.is_control:
        return b"", 0
    if header.attributes & CODEC_MASK == Codec.ZSTD:
        raise UnsupportedCompressionTypeError("records packed with zstd cannot be read by clients this old")
    if header.magic <= target.magic:
        return view[position : position + header.size], 0
    check_entry(view, position, header)
    return (_lower_batch if header.magic == MAGIC else _lower_message)(view, position, header, target)


def _lower_message(view: memoryview, position: int, header: BatchHeader, target: _Wanted) -> tuple[bytes, int]:
    """A message or wrapper of format 1 in format 0."""
    messages = read_messages(view, position, header, limit=target.limit)
    codec = header.codec
    if codec is Codec.NONE and header.base_offset < target.first_offset:
        return b"", 0
    return encode_set(messages, magic=target.magic, codec=codec), len(messages)


def _lower_batch(view: memoryview, position: int, header: BatchHeader, target: _Wanted) -> tuple[bytes, int]:
    """A batch of format 2 as a wrapper or as plain messages."""
    codec = header.codec
    data = bytes(record_bytes(view, position, header, limit=target.limit))
    if len(data) + header.record_count * _MESSAGE_OVERHEAD > target.limit:
        raise CorruptMessageError(f"the batch at offset {header.base_offset} unpacks to more than {target.limit} bytes")
    # Offsets inside a wrapper of format 1 count from its first message. From the batch's first offset is as good, and
    # the same unless compaction removed that record: readers find the base by the last message.
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
    """How many plain messages are below `offset`, and where the others begin."""
    count = position = 0
    while position < len(plain):
        found, size, _ = PREFIX.unpack_from(plain, position)
        if found >= offset:
            break
        count += 1
        position += _LOG_OVERHEAD + size
    return count, position


def _transcribe(data: bytes, header: BatchHeader, magic: int, base_offset: int) -> tuple[bytes, int]:
    """The records of a batch as plain messages numbered from `base_offset`, and the last one's offset delta.

    Records that are alike go together, others one by one; the more tries to find some were in vain, the more. What is
    made is joined every few thousand records, so that tiny ones take no more memory than others. Raises `IndexError` or
    `struct.error` where a number reaches beyond the data or its field.
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
    """The messages of the next `count` records, of any kind.

    It is one loop that reads and writes, since an object for each record in between would cost half of its speed.
    """
    magic, attributes, base_offset, base_timestamp, scale, last_offset_delta = target
    pack_lead, pack_prefix, pack_length = _LEADS[magic], PREFIX.pack, _INT.pack
    parts: list[bytes] = []
    highest = last_offset_delta << 1
    number = 0
    # Numbers stay in their zigzag form until they are used: a null's length, -1, is 1 there, and half of it is nothing.
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
    """A record with headers, or one that is wrong."""
    if not is_sound:
        raise CorruptMessageError("a record has impossible lengths or an offset outside its batch")
    check_headers(data, position, end)


def _long_number(data: bytes, position: int) -> tuple[int, int]:
    """The number that began one byte before `position`, still in zigzag form, and where it ends."""
    following = data[position]
    if following < 0x80:
        return data[position - 1] & 0x7F | following << 7, position + 1
    value, end = decode_varint(data, position - 1)
    return value << 1 ^ value >> 63, end


def _pack_lead_0(magic: int, attributes: int, timestamp: int, key_length: int) -> bytes:
    """As format 1 without the timestamp, which format 0 does not have."""
    return _LEAD_0.pack(magic, attributes, key_length)


_LEADS: Final[tuple[Callable[[int, int, int, int], bytes], ...]] = (_pack_lead_0, _LEAD_1.pack)
"""What a message says between its CRC and its key, by format."""
