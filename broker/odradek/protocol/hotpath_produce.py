"""Produce, both directions, without an entity: the parts of a frame that carry records are passed on as they lie.

Enters: frames, or rows of partitions. Leaves: rows whose records are slices of the frame, or buffers whose records are
the caller's own. Called by the server for every batch that arrives and by the client for every batch it sends.
Invariant: records are never copied; the work is a fixed number of steps per partition, whatever it carries. Versions 3
to 11; flexible from 9 (KIP-482), record errors from 8 (KIP-467). The tagged `current_leader` of version 10 is not sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
_RESULT: Final = Struct(">ihqq")
_RESULT_WITH_START: Final = Struct(">ihqqq")
_FRAME_ERRORS: Final = (struct_error, IndexError, UnicodeDecodeError)

LOG_START_SINCE: Final = 5
RECORD_ERRORS_SINCE: Final = 8


class RecordError(NamedTuple):
    """Why one record of a batch was refused (KIP-467)."""

    batch_index: int
    message: str | None = None


class ProducedPartition(NamedTuple):
    """Outcome of one partition in a Produce response; offsets and times are -1 when unknown."""

    topic_partition: TopicPartition
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[RecordError] = ()
    error_message: str | None = None


@dataclass(slots=True)
class ProduceRequest:
    """A Produce request. `entries` keep the order of the frame; records are None where the frame has null.

    A decoded request's records are slices of its frame and live no longer than that.
    """

    transactional_id: str | None
    acks: int
    timeout_ms: int
    entries: list[tuple[TopicPartition, memoryview | None]]


@dataclass(slots=True)
class ProduceResponse:
    """A Produce response as a client reads it."""

    partitions: list[ProducedPartition]
    throttle_time_ms: int = 0


def decode_produce(version: int, frame: memoryview, position: int) -> ProduceRequest:
    """The request whose body starts at `position`; what follows its last field is passed over, as by `decode_request`.

    Raises `MalformedFrameError` for everything else wrong with the bytes.
    """
    try:
        if version >= _FLEXIBLE_SINCE:
            request, position = _decode_flexible(frame, position)
        else:
            request, position = _decode_legacy(frame, position)
    except _FRAME_ERRORS as error:
        raise MalformedFrameError(f"Produce frame is cut short or not UTF-8: {error}") from error
    if position > len(frame):
        raise MalformedFrameError(f"Produce frame is cut short by {position - len(frame)} bytes")
    return request


def _decode_legacy(frame: memoryview, position: int) -> tuple[ProduceRequest, int]:
    reader = Reader(frame, position)
    transactional_id = reader.nullable_string()
    position = reader.position
    acks, timeout_ms, topics = _LEGACY_START.unpack_from(frame, position)
    position += _LEGACY_START.size
    end = len(frame)
    entries: list[tuple[TopicPartition, memoryview | None]] = []
    if topics < 0:
        raise MalformedFrameError(f"array length {topics}")
    for _ in range(topics):
        (length,) = _INT16.unpack_from(frame, position)
        position += 2
        name_end = position + length
        if length < 0 or name_end > end:
            raise MalformedFrameError(f"topic name of {length} bytes")
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
                    raise MalformedFrameError(f"records of {size} bytes in {end - start} bytes")
                records = frame[start:position]
            elif size != -1:
                raise MalformedFrameError(f"records length {size}")
            entries.append((TopicPartition(topic, partition), records))
    return ProduceRequest(transactional_id, acks, timeout_ms, entries), position


def _decode_flexible(frame: memoryview, position: int) -> tuple[ProduceRequest, int]:
    reader = Reader(frame, position)
    transactional_id = reader.compact_nullable_string()
    position = reader.position
    acks, timeout_ms = _FLEXIBLE_START.unpack_from(frame, position)
    topics, position = read_uvarint(frame, position + _FLEXIBLE_START.size)
    end = len(frame)
    entries: list[tuple[TopicPartition, memoryview | None]] = []
    if topics == 0:
        raise MalformedFrameError("null where an array is required")
    for _ in range(topics - 1):
        length, position = read_uvarint(frame, position)
        name_end = position + length - 1
        if length == 0 or name_end > end:
            raise MalformedFrameError(f"topic name of {length - 1} bytes")
        topic = str(frame[position:name_end], "utf-8")
        count, position = read_uvarint(frame, name_end)
        _check_partitions(count - 1, len(entries))
        for _ in range(count - 1):
            (partition,) = _INT32.unpack_from(frame, position)
            size, start = read_uvarint(frame, position + 4)
            records = None
            position = start
            if size:
                position += size - 1
                if position > end:
                    raise MalformedFrameError(f"records of {size - 1} bytes in {end - start} bytes")
                records = frame[start:position]
            position = position + 1 if frame[position] == 0 else after_tagged_fields(frame, position)
            entries.append((TopicPartition(topic, partition), records))
        position = after_tagged_fields(frame, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, entries), after_tagged_fields(frame, position)


def _check_partitions(count: int, before: int) -> None:
    """A partition without records takes a few bytes of a frame and a few hundred of our memory."""
    if count < 0:
        raise MalformedFrameError(f"array length {count}")
    if count + before > DEFAULT_ELEMENT_BUDGET:
        raise MalformedFrameError("frame announces more partitions than one frame may hold")


def _by_topic(partitions: Sequence[ProducedPartition]) -> list[tuple[str, list[ProducedPartition]]]:
    """Runs of one topic, in order."""
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
    """A whole response frame. Consecutive rows of one topic share one topic entry."""
    body = _encode_flexible(partitions) if version >= _FLEXIBLE_SINCE else _encode_legacy(version, partitions)
    body += _INT32.pack(throttle_time_ms)
    if version >= _FLEXIBLE_SINCE:
        body += b"\x00"
    return encode_response_header(ApiKey.PRODUCE, version, correlation_id, len(body)) + body


def _encode_legacy(version: int, partitions: Sequence[ProducedPartition]) -> bytearray:
    groups = _by_topic(partitions)
    out = bytearray(_INT32.pack(len(groups)))
    for topic, rows in groups:
        out += legacy_string(topic)
        out += _INT32.pack(len(rows))
        for row in rows:
            if version < LOG_START_SINCE:
                out += _RESULT.pack(row[0][1], row[1], row[2], row[3])
                continue
            out += _RESULT_WITH_START.pack(row[0][1], row[1], row[2], row[3], row[4])
            if version >= RECORD_ERRORS_SINCE:
                out += _INT32.pack(len(row.record_errors))
                for batch_index, message in row.record_errors:
                    out += _INT32.pack(batch_index) + legacy_string(message)
                out += legacy_string(row.error_message)
    return out


_NO_ERRORS: Final = b"\x01\x00\x00"
"""No record error, no message, no tagged field."""


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
    """A whole request frame as buffers; those of the records are the caller's own."""
    flexible = version >= _FLEXIBLE_SINCE
    text, count = (compact_string, _compact_count) if flexible else (legacy_string, _INT32.pack)
    tail = b"\x00" if flexible else b""
    out: list[Buffer] = []
    part = bytearray(text(request.transactional_id))
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
    """A response frame, header included; `MalformedFrameError` for everything wrong with the bytes."""
    flexible = version >= _FLEXIBLE_SINCE
    reader = Reader(frame, 4)
    if flexible:
        reader.skip_tagged_fields()
    partitions: list[ProducedPartition] = []
    for _ in range(_required(reader.compact_array_length(3) if flexible else reader.array_length(6))):
        topic = reader.compact_string() if flexible else reader.string()
        count = reader.compact_array_length(22) if flexible else reader.array_length(22)
        partitions += [_decode_result(reader, version, topic) for _ in range(_required(count))]
        if flexible:
            reader.skip_tagged_fields()
    throttle_time_ms = reader.int32()
    if flexible:
        reader.skip_tagged_fields()
    reader.expect_end()
    return ProduceResponse(partitions, throttle_time_ms)


def _decode_result(reader: Reader, version: int, topic: str) -> ProducedPartition:
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
