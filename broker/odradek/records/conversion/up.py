"""Converts message sets of formats 0 and 1 to batches of format 2.

`records/admission` uses it for an append by an old client, and readers use `up_entry` for old entries of a log. The
broker also calls it in worker processes, so it has only module-level functions with plain arguments and results. A
conversion returns new bytes for all records or raises. Invariants: keys, values, offsets, timestamps and their type are
kept; every CRC is checked before the bytes get a new one; no entry decompresses to more than the caller's `limit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter, read_i64_be

from odradek.base.errors import CorruptMessageError, InvalidRecordError
from odradek.base.ports import Buffer
from odradek.base.types import NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from odradek.compression import Codec, compress
from odradek.records.conversion.message_table import BEFORE_CRC, next_slice
from odradek.records.conversion.up_runs import MessageSet, raise_alike
from odradek.records.formats import check_entry
from odradek.records.legacy.checksum import crc32
from odradek.records.legacy.message_set import (
    ATTRIBUTES_AT,
    KEY_LENGTH_AT,
    MAGIC_AT,
    MAX_OFFSET,
    MIN_OFFSET,
    SIZE_AT,
    TIMESTAMP_AT,
    read_message,
    read_messages,
    read_set,
)
from odradek.records.v2.batch import LOG_APPEND_TIME_FLAG, MAGIC, BatchHeader, TimestampType, assemble
from odradek.records.v2.record import UNPACKED_LIMIT_BYTES, Message
from odradek.records.v2.record_walk import IS_COMPILED
from odradek.records.v2.varint import encode_varint

if TYPE_CHECKING:
    from mypy_extensions import i64

_LENGTH_BYTES: Final = 4
_UNUSUAL: Final = (-1, 0, 0)
_MAX_DELTA: Final = (1 << 31) - 1
_MAX_TIME: Final = 1 << 61
"""In milliseconds; beyond, the difference of two timestamps may not fit into the 64 bits of a delta."""
_NULL: Final = encode_varint(-1)


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
    """Convert all messages of a set; the inverse of `down._transcribe`."""
    base_timestamp = read_message(data).base_timestamp
    messages = MessageSet(data, magic, base_timestamp)
    out = BytesWriter()
    # In the interpreter, similar messages are converted together. Compiled, one by one is the fastest way for all.
    convert = _raise_each if IS_COMPILED else _raise_runs
    position, count, newest = convert(messages, 0, 0, len(data), out)
    if position < 0:
        return None
    header = _batch_header(0, NO_EPOCH, attributes=0, append_time_ms=None)
    header = header._replace(
        last_offset_delta=count - 1, base_timestamp=base_timestamp, max_timestamp=newest, record_count=count
    )
    return assemble(header, out.getvalue())


def _raise_runs(source: MessageSet, position: int, number: int, most: int, out: BytesWriter) -> tuple[int, int, int]:
    """Like `_raise_each`, but converts runs of similar messages together.

    The others are converted in longer slices the more attempts to find similar ones have failed.
    """
    newest, alone = source.base_timestamp_ms, 0
    end = len(source.data)
    while 0 <= position < end and number < most:
        found = raise_alike(source, position, number)
        if found is not None:
            alone = 0
            out.write(found.records)
            position, newest_ms = found.end, found.newest_ms
            number += found.number
        else:
            alone = next_slice(alone)
            position, number, newest_ms = _raise_each(source, position, number, number + alone, out)
        newest = max(newest, newest_ms)
    return position, number, newest


def _raise_each(source: MessageSet, position: int, number: int, most: int, out: BytesWriter) -> tuple[int, int, int]:
    """Convert the messages from `position` on, numbered from `number` to below `most`, and write them to `out`.

    Return the position after them, the number of the next one, and the newest timestamp. The position is negative if
    an entry is invalid or unusual.
    """
    data, magic, base_timestamp_ms = source
    at: i64 = position
    end: i64 = len(data)
    base_ms: i64 = base_timestamp_ms
    count: i64 = number
    after_last: i64 = most
    key_length_at: i64 = KEY_LENGTH_AT[magic]
    lowest: i64 = MIN_OFFSET
    highest: i64 = MAX_OFFSET
    min_time: i64 = -_MAX_TIME
    max_time: i64 = _MAX_TIME
    timestamp: i64 = base_ms
    newest: i64 = base_ms
    while at < end and count < after_last:
        place: i64 = at + key_length_at + _LENGTH_BYTES
        if place + _LENGTH_BYTES > end or data[at + MAGIC_AT] != magic or data[at + ATTRIBUTES_AT]:
            return _UNUSUAL
        size_and_crc: i64 = read_i64_be(data, at + SIZE_AT)
        following: i64 = at + BEFORE_CRC + (size_and_crc >> 32)
        if following > end or following < place + _LENGTH_BYTES:
            return _UNUSUAL
        crc: i64 = crc32(data[at + MAGIC_AT : following])
        key: i64 = read_i64_be(data, place - _LENGTH_BYTES) >> 32
        key_bytes: i64 = key if key > 0 else 0  # noqa: FURB136 - as below
        value_at: i64 = place + key_bytes + _LENGTH_BYTES
        if crc != size_and_crc & 0xFFFFFFFF or key < -1 or value_at > following:
            return _UNUSUAL
        value_bytes: i64 = following - value_at
        value: i64 = read_i64_be(data, value_at - 8) & 0xFFFFFFFF
        # Zigzag-encoded lengths: that of a null key or value, -1, is encoded as 1.
        key = 1 if key < 0 else key << 1
        value = 1 if value == 0xFFFFFFFF and value_bytes == 0 else value << 1
        offset: i64 = read_i64_be(data, at)
        if magic:
            timestamp = read_i64_be(data, at + TIMESTAMP_AT)
        times_fit = min_time < base_ms < max_time and min_time < timestamp < max_time
        if value >> 1 != value_bytes or offset < lowest or offset > highest or not times_fit:
            return _UNUSUAL
        newest = timestamp if timestamp > newest else newest  # noqa: FURB136 - a call costs as much as a field
        delta: i64 = timestamp - base_ms
        delta = (delta << 1) ^ (delta >> 63)
        widths: i64 = _width(delta) + _width(count << 1) + _width(key) + _width(value)
        _put(out, (2 + widths + key_bytes + value_bytes) << 1)
        out.append(0)
        _put(out, delta)
        _put(out, count << 1)
        _put(out, key)
        if key_bytes:
            out.write(data[place : place + key_bytes])
        _put(out, value)
        out.write(data[value_at:following])
        out.append(0)
        count += 1
        at = following
    return at, count, newest


def _width(number: i64) -> i64:
    """Return the number of bytes of a zigzag-encoded number."""
    width: i64 = 1
    while number > 0x7F:
        number >>= 7
        width += 1
    return width


def _put(out: BytesWriter, number: i64) -> None:
    """Write a zigzag-encoded number."""
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


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
        raise CorruptMessageError(f"offsets {base} .. {messages[-1][0]} do not ascend, as a batch requires")
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
