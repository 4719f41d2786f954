"""Encodes and decodes Fetch responses; records are passed by reference.

The server encodes responses; the followers and the client decode them into rows whose records are slices of the frame.
Invariant: records are never copied. A partition without data costs one `Struct` and a few bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final
from uuid import UUID

from odradek.base.errors import MalformedFrameError
from odradek.base.ports import Part
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import BROKER_ELEMENT_BUDGET, encode_response_header
from odradek.protocol.hotpath_fetch import (
    COMPACT,
    FLEXIBLE_SINCE,
    ISOLATION_SINCE,
    LEGACY,
    LOG_START_SINCE,
    RACK_SINCE,
    SESSIONS_SINCE,
    THROTTLE_SINCE,
    FetchedPartition,
    FetchResponse,
    encoded_topic,
    grouped,
    read_topic,
    required,
)
from odradek.protocol.wire import Reader, base128

_DIVERGING_EPOCH_TAG: Final = 0
_CURRENT_LEADER_TAG: Final = 1
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_TWO_INT32: Final = Struct(">ii")
_EPOCH_AND_OFFSET: Final = Struct(">iq")
_ABORTED: Final = Struct(">qq")
_OLDEST_PARTITION: Final = Struct(">ihqi")
"""A partition up to and including the length of its records."""
_BEFORE_ABORTED_V4: Final = Struct(">ihqq")
_BEFORE_ABORTED: Final = Struct(">ihqqq")
_LEGACY_PLAIN: Final = Struct(">ihqqqiii")
"""A partition without aborted transactions (-1), the usual case, up to the length of its records."""
_COMPACT_PLAIN: Final = Struct(">ihqqqBi")
"""The same (0) in flexible versions, up to the compact length of its records."""


def encode_fetch_response(
    version: int,
    correlation_id: int,
    partitions: Sequence[FetchedPartition],
    *,
    error_code: int = 0,
    session_id: int = 0,
    throttle_time_ms: int = 0,
) -> list[Part]:
    """Return a response frame in parts. The parts with records belong to the caller, in memory or in files.

    Consecutive rows of one topic share one topic entry. Raises `ValueError` if a row lacks the name or the id that the
    version needs.
    """
    form = COMPACT if version >= FLEXIBLE_SINCE else LEGACY
    encode_start = _flexible_partition if version >= FLEXIBLE_SINCE else _legacy_partition
    out: list[Part] = []
    part = bytearray(_INT32.pack(throttle_time_ms) if version >= THROTTLE_SINCE else b"")
    if version >= SESSIONS_SINCE:
        part += _INT16.pack(error_code) + _INT32.pack(session_id)
    groups = grouped(partitions)
    part += form.length(len(groups))
    for rows in groups:
        part += encoded_topic(version, form, rows[0].topic, rows[0].topic_id) + form.length(len(rows))
        for row in rows:
            part += encode_start(version, row)
            if row.records:
                out += (bytes(part), row.records)
                part = bytearray()
            if form.tail:
                part += b"\x00" if row[10] is None and row[11] is None else _partition_tags(row)
        part += form.tail
    out.append(bytes(part + form.tail))
    header = encode_response_header(ApiKey.FETCH, version, correlation_id, sum(map(len, out)))
    first = out[0]
    assert isinstance(first, bytes)
    out[0] = header + first
    return out


def _legacy_partition(version: int, row: FetchedPartition) -> bytes:
    """Encode everything before a partition's records, including their length."""
    aborted = row.aborted_transactions
    if aborted is None and version >= RACK_SINCE:
        return _LEGACY_PLAIN.pack(*row[2:7], -1, row.preferred_read_replica, len(row.records))
    if version < ISOLATION_SINCE:
        return _OLDEST_PARTITION.pack(*row[2:5], len(row.records))
    out = _BEFORE_ABORTED.pack(*row[2:7]) if version >= LOG_START_SINCE else _BEFORE_ABORTED_V4.pack(*row[2:6])
    if aborted is None:
        out += b"\xff\xff\xff\xff"
    else:
        out += _INT32.pack(len(aborted)) + b"".join([_ABORTED.pack(*pair) for pair in aborted])
    if version >= RACK_SINCE:
        out += _INT32.pack(row.preferred_read_replica)
    return out + _INT32.pack(len(row.records))


def _flexible_partition(_version: int, row: FetchedPartition) -> bytes:
    """Encode everything before a partition's records, including their length."""
    aborted = row.aborted_transactions
    size = base128(len(row.records) + 1)
    if aborted is None:
        return _COMPACT_PLAIN.pack(*row[2:7], 0, row.preferred_read_replica) + size
    pairs = b"".join([_ABORTED.pack(*pair) + b"\x00" for pair in aborted])
    start = _BEFORE_ABORTED.pack(*row[2:7]) + base128(len(aborted) + 1) + pairs
    return start + _INT32.pack(row.preferred_read_replica) + size


def _partition_tags(row: FetchedPartition) -> bytes:
    tags: list[bytes] = []
    if row.diverging_epoch is not None:
        tags.append(_tagged(_DIVERGING_EPOCH_TAG, _EPOCH_AND_OFFSET.pack(*row.diverging_epoch)))
    if row.current_leader is not None:
        tags.append(_tagged(_CURRENT_LEADER_TAG, _TWO_INT32.pack(*row.current_leader)))
    return base128(len(tags)) + b"".join(tags)


def _tagged(tag: int, fields: bytes) -> bytes:
    """Encode a tagged struct that has no tagged fields itself."""
    return base128(tag) + base128(len(fields) + 1) + fields + b"\x00"


def decode_fetch_response(version: int, frame: memoryview) -> FetchResponse:
    """Decode a response frame with its header; records are slices of it. Raises `MalformedFrameError`."""
    reader = Reader(frame, 4, element_budget=BROKER_ELEMENT_BUDGET)
    flexible = version >= FLEXIBLE_SINCE
    if flexible:
        reader.skip_tagged_fields()
    response = FetchResponse([], throttle_time_ms=reader.int32() if version >= THROTTLE_SINCE else 0)
    if version >= SESSIONS_SINCE:
        response.error_code, response.session_id = reader.int16(), reader.int32()
    length = Reader.compact_array_length if flexible else Reader.array_length
    decode_partition = _read_flexible_partition if flexible else _read_legacy_partition
    for _ in range(required(length(reader))):
        topic, topic_id = read_topic(version, reader)
        for _ in range(required(length(reader, _OLDEST_PARTITION.size))):
            response.partitions.append(decode_partition(version, reader, topic, topic_id))
        if flexible:
            reader.skip_tagged_fields()
    if flexible:
        reader.skip_tagged_fields()
    reader.expect_end()
    return response


def _read_records(reader: Reader, length: int) -> memoryview | bytes:
    """Return the slice with the records; null becomes empty."""
    if length <= 0:
        if length < -1:
            raise MalformedFrameError(f"invalid records length {length}")
        return b""
    start = reader.position
    after = start + length
    if after > reader.end:
        raise MalformedFrameError(f"records of {length} bytes exceed the {reader.remaining} bytes that remain")
    reader.position = after
    return reader.data[start:after]


def _read_aborted(reader: Reader, count: int, *, flexible: bool) -> tuple[tuple[int, int], ...] | None:
    if count < 0:
        return None
    found: list[tuple[int, int]] = []
    for _ in range(count):
        producer_id, first_offset = reader.unpack(_ABORTED)
        found.append((producer_id, first_offset))
        if flexible:
            reader.skip_tagged_fields()
    return tuple(found)


def _read_legacy_partition(version: int, reader: Reader, topic: str | None, topic_id: UUID | None) -> FetchedPartition:
    if version < ISOLATION_SINCE:
        partition, code, high, size = reader.unpack(_OLDEST_PARTITION)
        return FetchedPartition(topic, topic_id, partition, code, high, records=_read_records(reader, size))
    if version >= LOG_START_SINCE:
        partition, code, high, stable, log_start = reader.unpack(_BEFORE_ABORTED)
    else:
        partition, code, high, stable = reader.unpack(_BEFORE_ABORTED_V4)
        log_start = -1
    aborted = _read_aborted(reader, reader.array_length(16), flexible=False)
    preferred = reader.int32() if version >= RACK_SINCE else -1
    records = _read_records(reader, reader.int32())
    return FetchedPartition(topic, topic_id, partition, code, high, stable, log_start, records, aborted, preferred)


def _read_flexible_partition(
    _version: int, reader: Reader, topic: str | None, topic_id: UUID | None
) -> FetchedPartition:
    partition, code, high, stable, log_start = reader.unpack(_BEFORE_ABORTED)
    aborted = _read_aborted(reader, reader.compact_array_length(17), flexible=True)
    preferred = reader.int32()
    records = _read_records(reader, reader.uvarint() - 1)
    diverging: tuple[int, int] | None = None
    leader: tuple[int, int] | None = None
    for _ in range(reader.uvarint()):
        tag, size = reader.uvarint(), reader.uvarint()
        after = reader.position + size
        if after > reader.end:
            raise MalformedFrameError(f"tagged field of {size} bytes exceeds the {reader.remaining} bytes that remain")
        if tag == _DIVERGING_EPOCH_TAG:
            epoch, offset = reader.unpack(_EPOCH_AND_OFFSET)
            diverging = (epoch, offset)
        elif tag == _CURRENT_LEADER_TAG:
            broker_id, epoch = reader.unpack(_TWO_INT32)
            leader = (broker_id, epoch)
        reader.position = after
    return FetchedPartition(
        topic,
        topic_id,
        partition,
        code,
        high,
        stable,
        log_start,
        records,
        aborted,
        preferred,
        diverging,
        leader,
    )
