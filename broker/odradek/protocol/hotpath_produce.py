"""Encodes and decodes Produce without message objects; records are passed as slices of the frame.

The server decodes every batch that arrives, and the client encodes every batch it sends.
Invariant: records are never copied; the work per partition is constant, whatever its records. Versions 0 to 12:
throttle time from 1, log append times from 2 (KIP-32), transactional ids from 3 (KIP-98), record errors from 8
(KIP-467), flexible from 9 (KIP-482). The tagged `current_leader` of version 10 is not sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from odradek.base.errors import MalformedFrameError
from odradek.base.ports import Buffer
from odradek.base.types import TopicPartition
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import encode_request_header, encode_response_header
from odradek.protocol.wire import (
    DEFAULT_ELEMENT_BUDGET,
    Reader,
    after_tagged_fields,
    base128,
    compact_string,
    legacy_string,
    read_uvarint,
)

_FLEXIBLE_SINCE: Final = API_TABLE[ApiKey.PRODUCE].flexible_since
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_TWO_INT32: Final = Struct(">ii")
_LEGACY_START: Final = Struct(">hii")
_FLEXIBLE_START: Final = Struct(">hi")
_ONLY_START: Final = Struct(">hhiih")
_ONLY_START_BYTES: Final = _ONLY_START.size
_ONLY_PARTITION: Final = Struct(">iii")
_ONLY_PARTITION_BYTES: Final = _ONLY_PARTITION.size
_ONLY_FLEXIBLE_START: Final = Struct(">BhiBB")
_ONLY_FLEXIBLE_START_BYTES: Final = _ONLY_FLEXIBLE_START.size
_ONLY_FLEXIBLE_PARTITION: Final = Struct(">BiBB")
_ONLY_FLEXIBLE_PARTITION_BYTES: Final = _ONLY_FLEXIBLE_PARTITION.size
_NO_TAGS: Final = bytes(3)
"""No tagged fields of the partition, the topic and the request."""
_OLDEST_RESULT: Final = Struct(">ihq")
_RESULT: Final = Struct(">ihqq")
_RESULT_WITH_START: Final = Struct(">ihqqq")
_PRODUCE: Final = ApiKey.PRODUCE
_new: Final = tuple.__new__
"""Creates a named tuple in half the time of its constructor, which matters for one per partition."""

_NULL_LENGTH: Final = (-1,)
_FRAME_ERRORS: Final = (struct_error, IndexError, UnicodeDecodeError)

THROTTLE_SINCE: Final = 1
APPEND_TIME_SINCE: Final = 2
TRANSACTIONAL_ID_SINCE: Final = 3
LOG_START_SINCE: Final = 5
RECORD_ERRORS_SINCE: Final = 8


class RecordError(NamedTuple):
    """Why one record of a batch was rejected (KIP-467)."""

    batch_index: int
    message: str | None = None


class ProducedPartition(NamedTuple):
    """Result of one partition in a Produce response. Unknown offsets and times are -1."""

    topic_partition: TopicPartition
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[RecordError] = ()
    error_message: str | None = None


class ProduceRequest:
    """A Produce request. `entries` keep the order of the frame; records are None if the frame has null.

    The records of a decoded request are slices of its frame and valid no longer than the frame. Not a dataclass, whose
    constructor would be interpreted in the compiled form as well.
    """

    __slots__ = ("acks", "entries", "timeout_ms", "transactional_id")

    def __init__(
        self,
        transactional_id: str | None,
        acks: int,
        timeout_ms: int,
        entries: list[tuple[TopicPartition, memoryview | None]],
    ) -> None:
        """All fields of a request."""
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.entries = entries

    def __eq__(self, other: object) -> bool:
        """Whether all fields are equal."""
        return isinstance(other, ProduceRequest) and (
            (self.transactional_id, self.acks, self.timeout_ms, self.entries)
            == (other.transactional_id, other.acks, other.timeout_ms, other.entries)
        )


@dataclass(slots=True)
class ProduceResponse:
    """A Produce response as a client decodes it."""

    partitions: list[ProducedPartition]
    throttle_time_ms: int = 0


def decode_produce(version: int, frame: memoryview, position: int) -> ProduceRequest:
    """Decode the request whose body starts at `position`. Bytes after its last field are ignored, as by
    `decode_request`.

    Raises `MalformedFrameError` for any other invalid bytes.
    """
    try:
        if version >= _FLEXIBLE_SINCE:
            request = _decode_only_flexible(frame, position)
            if request is None:
                request, position = _decode_flexible(frame, position)
        else:
            request = _decode_only_legacy(frame, position) if version >= TRANSACTIONAL_ID_SINCE else None
            if request is None:
                request, position = _decode_legacy(version, frame, position)
    except _FRAME_ERRORS as error:
        raise MalformedFrameError(f"Produce frame is truncated, or a name is not UTF-8: {error}") from error
    if position > len(frame):
        raise MalformedFrameError(f"Produce frame is truncated by {position - len(frame)} bytes")
    return request


# The frequent request of producers that send record by record: no transactional id, and records of one partition. Each
# field that is unpacked alone costs as much as several that are unpacked together.


def _decode_only_legacy(frame: memoryview, position: int) -> ProduceRequest | None:
    """Decode a request for one partition. None: the request has another form, or is invalid."""
    end = len(frame)
    name_at = position + _ONLY_START_BYTES
    if name_at > end:
        return None
    transactional_length, acks, timeout_ms, topics, length = _ONLY_START.unpack_from(frame, position)
    name_end = name_at + length
    records_at = name_end + _ONLY_PARTITION_BYTES
    if transactional_length != -1 or topics != 1 or length < 0 or records_at > end:
        return None
    partitions, partition, size = _ONLY_PARTITION.unpack_from(frame, name_end)
    if partitions != 1 or size < 0 or records_at + size > end:
        return None
    topic_partition = _new(TopicPartition, (str(frame[name_at:name_end], "utf-8"), partition))
    return ProduceRequest(None, acks, timeout_ms, [(topic_partition, frame[records_at : records_at + size])])


def _decode_only_flexible(frame: memoryview, position: int) -> ProduceRequest | None:
    """Decode a request for one partition, if its records have less than 16 KiB. None: the request has another form, or
    is invalid."""
    end = len(frame)
    name_at = position + _ONLY_FLEXIBLE_START_BYTES
    if name_at > end:
        return None
    transactional_length, acks, timeout_ms, topics, length = _ONLY_FLEXIBLE_START.unpack_from(frame, position)
    name_end = name_at + length - 1
    records_at = name_end + _ONLY_FLEXIBLE_PARTITION_BYTES
    if transactional_length or topics != 2 or not 0 < length < 0x80 or records_at > end:
        return None
    partitions, partition, low, high = _ONLY_FLEXIBLE_PARTITION.unpack_from(frame, name_end)
    if partitions != 2 or not low >= 0x80 > high:
        return None
    # The first number of the pair has the low seven bits. Compact lengths are larger by one.
    records_end = records_at + (low & 0x7F | high << 7) - 1
    if records_end < records_at or frame[records_end : records_end + len(_NO_TAGS)] != _NO_TAGS:
        return None
    topic_partition = _new(TopicPartition, (str(frame[name_at:name_end], "utf-8"), partition))
    return ProduceRequest(None, acks, timeout_ms, [(topic_partition, frame[records_at:records_end])])


def _decode_legacy(version: int, frame: memoryview, position: int) -> tuple[ProduceRequest, int]:
    transactional_id = None
    if version >= TRANSACTIONAL_ID_SINCE:
        if _INT16.unpack_from(frame, position) == _NULL_LENGTH:
            position += 2
        else:
            reader = Reader(frame, position)
            transactional_id = reader.nullable_string()
            position = reader.position
    acks, timeout_ms, topics = _LEGACY_START.unpack_from(frame, position)
    position += _LEGACY_START.size
    end = len(frame)
    entries: list[tuple[TopicPartition, memoryview | None]] = []
    if topics < 0:
        raise MalformedFrameError(f"invalid array length {topics}")
    for _ in range(topics):
        (length,) = _INT16.unpack_from(frame, position)
        position += 2
        name_end = position + length
        if length < 0 or name_end > end:
            raise MalformedFrameError(f"invalid length {length} of a topic name")
        topic = str(frame[position:name_end], "utf-8")
        (count,) = _INT32.unpack_from(frame, name_end)
        position = name_end + 4
        _check_partitions(count, len(entries))
        for _ in range(count):
            partition, size = _TWO_INT32.unpack_from(frame, position)
            position += 8
            records = None
            if size >= 0:
                start = position
                position += size
                if position > end:
                    raise MalformedFrameError(f"records of {size} bytes exceed the {end - start} bytes that remain")
                records = frame[start:position]
            elif size != -1:
                raise MalformedFrameError(f"invalid records length {size}")
            entries.append((_new(TopicPartition, (topic, partition)), records))
    return ProduceRequest(transactional_id, acks, timeout_ms, entries), position


def _decode_flexible(frame: memoryview, position: int) -> tuple[ProduceRequest, int]:
    transactional_id = None
    if frame[position] == 0:
        position += 1
    else:
        reader = Reader(frame, position)
        transactional_id = reader.compact_nullable_string()
        position = reader.position
    acks, timeout_ms = _FLEXIBLE_START.unpack_from(frame, position)
    position += _FLEXIBLE_START.size
    topics, position = (frame[position], position + 1) if frame[position] < 0x80 else read_uvarint(frame, position)
    end = len(frame)
    entries: list[tuple[TopicPartition, memoryview | None]] = []
    if topics == 0:
        raise MalformedFrameError("null where an array is required")
    for _ in range(topics - 1):
        length, position = (frame[position], position + 1) if frame[position] < 0x80 else read_uvarint(frame, position)
        name_end = position + length - 1
        if length == 0 or name_end > end:
            raise MalformedFrameError(f"invalid length {length - 1} of a topic name")
        topic = str(frame[position:name_end], "utf-8")
        count, position = (frame[name_end], name_end + 1) if frame[name_end] < 0x80 else read_uvarint(frame, name_end)
        _check_partitions(count - 1, len(entries))
        for _ in range(count - 1):
            (partition,) = _INT32.unpack_from(frame, position)
            size, start = read_uvarint(frame, position + 4)
            records = None
            position = start
            if size:
                position += size - 1
                if position > end:
                    raise MalformedFrameError(f"records of {size - 1} bytes exceed the {end - start} bytes that remain")
                records = frame[start:position]
            position = position + 1 if frame[position] == 0 else after_tagged_fields(frame, position)
            entries.append((_new(TopicPartition, (topic, partition)), records))
        position = position + 1 if frame[position] == 0 else after_tagged_fields(frame, position)
    position = position + 1 if frame[position] == 0 else after_tagged_fields(frame, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, entries), position


def _check_partitions(count: int, before: int) -> None:
    """Limit the partitions: one without records takes a few bytes in a frame and a few hundred bytes of memory."""
    if count < 0:
        raise MalformedFrameError(f"invalid array length {count}")
    if count + before > DEFAULT_ELEMENT_BUDGET:
        raise MalformedFrameError("frame has more partitions than allowed in one frame")


def _by_topic(partitions: Sequence[ProducedPartition]) -> Sequence[tuple[str, Sequence[ProducedPartition]]]:
    """Group consecutive rows of the same topic."""
    if len(partitions) == 1:
        return [(partitions[0].topic_partition.topic, partitions)]
    groups: list[tuple[str, list[ProducedPartition]]] = []
    last: str | None = None
    for row in partitions:
        topic = row.topic_partition.topic
        if topic == last:
            groups[-1][1].append(row)
        else:
            groups.append((topic, [row]))
            last = topic
    return groups


def encode_produce_response(
    version: int, correlation_id: int, partitions: Sequence[ProducedPartition], *, throttle_time_ms: int = 0
) -> bytes:
    """Return a response frame. Consecutive rows of one topic share one topic entry."""
    if len(partitions) == 1 and version >= LOG_START_SINCE and not throttle_time_ms:
        row = partitions[0]
        if not row.record_errors and row.error_message is None:
            return encode_only_result(version, correlation_id, row[:5])
    body = _encode_flexible(partitions) if version >= _FLEXIBLE_SINCE else _encode_legacy(version, partitions)
    if version >= THROTTLE_SINCE:
        body += _INT32.pack(throttle_time_ms)
    if version >= _FLEXIBLE_SINCE:
        body += b"\x00"
    return encode_response_header(_PRODUCE, version, correlation_id, len(body)) + body


def encode_only_result(version: int, correlation_id: int, only: tuple[TopicPartition, int, int, int, int]) -> bytes:
    """Return a response frame for one partition, without error message and record errors, from version 5 on.

    `only` has the first five fields of a `ProducedPartition`. This is the frequent response to producers that send
    record by record.
    """
    topic_partition, error_code, base_offset, log_append_time_ms, log_start_offset = only
    topic, partition = topic_partition
    layout, size, start, end = _around_only_result(version, topic)
    return layout.pack(
        size,
        correlation_id,
        start,
        partition,
        error_code,
        base_offset,
        log_append_time_ms,
        log_start_offset,
        end,
    )


@lru_cache(maxsize=1024)
def _around_only_result(version: int, topic: str) -> tuple[Struct, int, bytes, bytes]:
    """Return the layout of a response with one result, its size, and the bytes before and after the result."""
    no_throttling = _INT32.pack(0)
    if version >= _FLEXIBLE_SINCE:
        one = base128(2)
        start, end = b"\x00" + one + compact_string(topic) + one, _NO_ERRORS + b"\x00" + no_throttling + b"\x00"
    else:
        one = _INT32.pack(1)
        no_errors = _NO_LEGACY_ERRORS if version >= RECORD_ERRORS_SINCE else b""
        start, end = one + legacy_string(topic) + one, no_errors + no_throttling
    layout = Struct(f">ii{len(start)}sihqqq{len(end)}s")
    return layout, layout.size - 4, start, end


_NO_LEGACY_ERRORS: Final = _INT32.pack(0) + legacy_string(None)
_NO_ERRORS: Final = b"\x01\x00\x00"
"""No record error, no message, and in flexible versions no tagged field."""


def _encode_legacy(version: int, partitions: Sequence[ProducedPartition]) -> bytearray:
    groups = _by_topic(partitions)
    out = bytearray(_INT32.pack(len(groups)))
    for topic, rows in groups:
        out += legacy_string(topic)
        out += _INT32.pack(len(rows))
        for row in rows:
            if version < LOG_START_SINCE:
                out += _encode_old_result(version, row)
                continue
            out += _RESULT_WITH_START.pack(row[0][1], row[1], row[2], row[3], row[4])
            if version >= RECORD_ERRORS_SINCE:
                if not row.record_errors and row.error_message is None:
                    out += _NO_LEGACY_ERRORS
                    continue
                out += _INT32.pack(len(row.record_errors))
                for batch_index, message in row.record_errors:
                    out += _INT32.pack(batch_index) + legacy_string(message)
                out += legacy_string(row.error_message)
    return out


def _encode_old_result(version: int, row: ProducedPartition) -> bytes:
    if version < APPEND_TIME_SINCE:
        return _OLDEST_RESULT.pack(row[0][1], row[1], row[2])
    return _RESULT.pack(row[0][1], row[1], row[2], row[3])


def _encode_flexible(partitions: Sequence[ProducedPartition]) -> bytearray:
    groups = _by_topic(partitions)
    out = bytearray(base128(len(groups) + 1))
    for topic, rows in groups:
        out += compact_string(topic)
        out += base128(len(rows) + 1)
        for row in rows:
            out += _RESULT_WITH_START.pack(row[0][1], row[1], row[2], row[3], row[4])
            if not row.record_errors and row.error_message is None:
                out += _NO_ERRORS
                continue
            out += base128(len(row.record_errors) + 1)
            for batch_index, message in row.record_errors:
                out += _INT32.pack(batch_index) + compact_string(message) + b"\x00"
            out += compact_string(row.error_message) + b"\x00"
        out += b"\x00"
    return out


def encode_produce_request(
    version: int, correlation_id: int, client_id: str | None, request: ProduceRequest
) -> list[Buffer]:
    """Return a request frame as buffers. Those with records belong to the caller.

    Versions below 3 have no transactional id; it is omitted.
    """
    flexible = version >= _FLEXIBLE_SINCE
    text, count = (compact_string, _compact_count) if flexible else (legacy_string, _INT32.pack)
    tail = b"\x00" if flexible else b""
    out: list[Buffer] = []
    part = bytearray(text(request.transactional_id) if version >= TRANSACTIONAL_ID_SINCE else b"")
    part += _FLEXIBLE_START.pack(request.acks, request.timeout_ms)
    groups: list[tuple[str, list[tuple[int, memoryview | None]]]] = []
    for (topic, partition), records in request.entries:
        if not groups or groups[-1][0] != topic:
            groups.append((topic, []))
        groups[-1][1].append((partition, records))
    part += count(len(groups))
    for topic, rows in groups:
        part += text(topic) + count(len(rows))
        for partition, records in rows:
            part += _INT32.pack(partition) + count(-1 if records is None else len(records))
            if records:
                out += (bytes(part), records)
                part = bytearray()
            part += tail
        part += tail
    out.append(bytes(part + tail))
    size = sum(map(len, out))
    return [encode_request_header(ApiKey.PRODUCE, version, correlation_id, client_id, body_bytes=size), *out]


def _compact_count(count: int) -> bytes:
    return base128(count + 1)


def decode_produce_response(version: int, frame: bytes | memoryview) -> ProduceResponse:
    """Decode a response frame with its header. Raises `MalformedFrameError` for invalid bytes."""
    flexible = version >= _FLEXIBLE_SINCE
    reader = Reader(frame, 4)
    if flexible:
        reader.skip_tagged_fields()
    partitions: list[ProducedPartition] = []
    for _ in range(_required(reader.compact_array_length(3) if flexible else reader.array_length(6))):
        topic = reader.compact_string() if flexible else reader.string()
        count = reader.compact_array_length(22) if flexible else reader.array_length(_OLDEST_RESULT.size)
        partitions += [_decode_result(reader, version, topic) for _ in range(_required(count))]
        if flexible:
            reader.skip_tagged_fields()
    throttle_time_ms = reader.int32() if version >= THROTTLE_SINCE else 0
    if flexible:
        reader.skip_tagged_fields()
    reader.expect_end()
    return ProduceResponse(partitions, throttle_time_ms)


def _decode_result(reader: Reader, version: int, topic: str) -> ProducedPartition:
    if version < APPEND_TIME_SINCE:
        partition, code, base_offset = reader.unpack(_OLDEST_RESULT)
        return ProducedPartition(TopicPartition(topic, partition), code, base_offset)
    if version < LOG_START_SINCE:
        partition, code, base_offset, append_time = reader.unpack(_RESULT)
        return ProducedPartition(TopicPartition(topic, partition), code, base_offset, append_time)
    partition, code, base_offset, append_time, log_start = reader.unpack(_RESULT_WITH_START)
    errors: list[RecordError] = []
    message = None
    if version >= RECORD_ERRORS_SINCE:
        flexible = version >= _FLEXIBLE_SINCE
        text = Reader.compact_nullable_string if flexible else Reader.nullable_string
        count = reader.compact_array_length(5) if flexible else reader.array_length(5)
        for _ in range(_required(count)):
            errors.append(RecordError(reader.int32(), text(reader)))
            if flexible:
                reader.skip_tagged_fields()
        message = text(reader)
        if flexible:
            reader.skip_tagged_fields()
    return ProducedPartition(
        TopicPartition(topic, partition), code, base_offset, append_time, log_start, tuple(errors), message
    )


def _required(count: int) -> int:
    if count < 0:
        raise MalformedFrameError("null where an array is required")
    return count
