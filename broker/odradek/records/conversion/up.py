"""Converts message sets of formats 0 and 1 to batches of format 2.

`records/admission` uses it for an append by an old client, and readers use `up_entry` for old entries of a log. The
broker also calls it in worker processes, so it has only module-level functions with plain arguments and results. A
conversion returns new bytes for all records or raises. Invariants: keys, values, offsets, timestamps and their type are
kept; every CRC is checked before the bytes get a new one; no entry decompresses to more than the caller's `limit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from odradek.base.errors import CorruptMessageError, InvalidRecordError
from odradek.base.ports import Buffer
from odradek.base.types import NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from odradek.compression import Codec, compress
from odradek.records.conversion.message_table import next_slice
from odradek.records.conversion.up_runs import MessageSet, Raised, raise_alike
from odradek.records.formats import check_entry
from odradek.records.legacy.message_set import read_message, read_messages, read_run, read_set
from odradek.records.v2.batch import LOG_APPEND_TIME_FLAG, MAGIC, BatchHeader, TimestampType, assemble
from odradek.records.v2.record import UNPACKED_LIMIT_BYTES, Message
from odradek.records.v2.varint import encode_varint

_ANY: Final = 0xFF
"""Mask of all attributes of a message."""
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
            alone = next_slice(alone)
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
