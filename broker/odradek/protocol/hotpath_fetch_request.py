"""Encodes and decodes Fetch requests with one `Struct` per partition.

The server decodes requests of consumers and followers; the followers and the client encode them. Invariant: a decoded
request does not refer to its frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as struct_error
from typing import Final
from uuid import UUID

from odradek.base.errors import MalformedFrameError
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import encode_request_header
from odradek.protocol.hotpath_fetch import (
    COMPACT,
    FLEXIBLE_SINCE,
    ISOLATION_SINCE,
    LEADER_EPOCH_SINCE,
    LEGACY,
    LOG_START_SINCE,
    MAX_BYTES_SINCE,
    RACK_SINCE,
    REPLICA_STATE_SINCE,
    SESSIONS_SINCE,
    TOPIC_ID_SINCE,
    FetchEntry,
    FetchRequest,
    ForgottenPartition,
    Form,
    encoded_topic,
    grouped,
    read_topic,
    required,
    topic_id_at,
)
from odradek.protocol.wire import DEFAULT_ELEMENT_BUDGET, Reader, after_tagged_fields, base128, read_uvarint

_REPLICA_STATE_TAG: Final = 1
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_TWO_INT32: Final = Struct(">ii")
_REPLICA_STATE: Final = Struct(">iq")
_OLDEST_START: Final = Struct(">iii")
_START_WITHOUT_ISOLATION: Final = Struct(">iiii")
_START: Final = Struct(">iiiib")
_START_WITHOUT_REPLICA: Final = Struct(">iiib")
_FRAME_ERRORS: Final = (struct_error, IndexError, UnicodeDecodeError)

UNBOUNDED_BYTES: Final = (1 << 31) - 1
"""`max_bytes` of versions without a limit for the whole response."""


def _partition_layout(version: int) -> Struct:
    """Partition, leader epoch, fetch offset, last fetched epoch, log start offset and maximum bytes, if present."""
    if version >= FLEXIBLE_SINCE:
        return Struct(">iiqiqi")
    if version >= LEADER_EPOCH_SINCE:
        return Struct(">iiqqi")
    return Struct(">iqqi") if version >= LOG_START_SINCE else Struct(">iqi")


_PARTITION_LAYOUTS: Final = {version: _partition_layout(version) for version in range(18)}


def _full_row(version: int, row: tuple[int, ...]) -> tuple[int, ...]:
    """Return the six numbers of a partition, with -1 for those that the version lacks."""
    if version >= FLEXIBLE_SINCE:
        return row
    if version >= LEADER_EPOCH_SINCE:
        partition, epoch, offset, log_start, max_bytes = row
    elif version >= LOG_START_SINCE:
        (partition, offset, log_start, max_bytes), epoch = row, -1
    else:
        (partition, offset, max_bytes), epoch, log_start = row, -1, -1
    return partition, epoch, offset, -1, log_start, max_bytes


def _short_row(version: int, entry: FetchEntry) -> tuple[int, ...]:
    """Return those of the six numbers of a partition that the version has."""
    if version >= FLEXIBLE_SINCE:
        return entry[2:]
    if version >= LEADER_EPOCH_SINCE:
        return entry[2], entry[3], entry[4], entry[6], entry[7]
    if version >= LOG_START_SINCE:
        return entry[2], entry[4], entry[6], entry[7]
    return entry[2], entry[4], entry[7]


def decode_fetch(version: int, frame: bytes | memoryview, position: int) -> FetchRequest:
    """Decode the request whose body starts at `position`. Bytes after its last field are ignored, as by
    `decode_request`.

    Raises `MalformedFrameError` for any other invalid bytes.
    """
    try:
        request, position = _decode_request(version, frame, position)
    except _FRAME_ERRORS as error:
        raise MalformedFrameError(f"Fetch frame is truncated, or a name is not UTF-8: {error}") from error
    if position > len(frame):
        raise MalformedFrameError(f"Fetch frame is truncated by {position - len(frame)} bytes")
    return request


def _decode_request(version: int, frame: bytes | memoryview, position: int) -> tuple[FetchRequest, int]:
    if version >= REPLICA_STATE_SINCE:
        max_wait_ms, min_bytes, max_bytes, isolation_level = _START_WITHOUT_REPLICA.unpack_from(frame, position)
        position += _START_WITHOUT_REPLICA.size
        request = FetchRequest(max_wait_ms, min_bytes, max_bytes, [], isolation_level)
    elif version >= ISOLATION_SINCE:
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level = _START.unpack_from(frame, position)
        position += _START.size
        request = FetchRequest(max_wait_ms, min_bytes, max_bytes, [], isolation_level, replica_id)
    else:
        request, position = _decode_old_start(version, frame, position)
    if version >= SESSIONS_SINCE:
        request.session_id, request.session_epoch = _TWO_INT32.unpack_from(frame, position)
        position += 8
    decode_entries = _flexible_entries if version >= FLEXIBLE_SINCE else _legacy_entries
    position = decode_entries(version, frame, position, request.entries)
    reader = Reader(frame, position)
    if version >= SESSIONS_SINCE:
        request.forgotten = _decode_forgotten(version, reader)
    if version >= RACK_SINCE:
        request.rack_id = reader.compact_string() if version >= FLEXIBLE_SINCE else reader.string()
    if version >= FLEXIBLE_SINCE:
        _decode_request_tags(version, reader, request)
    return request, reader.position


def _decode_old_start(version: int, frame: bytes | memoryview, position: int) -> tuple[FetchRequest, int]:
    if version >= MAX_BYTES_SINCE:
        replica_id, max_wait_ms, min_bytes, max_bytes = _START_WITHOUT_ISOLATION.unpack_from(frame, position)
        position += _START_WITHOUT_ISOLATION.size
    else:
        (replica_id, max_wait_ms, min_bytes), max_bytes = _OLDEST_START.unpack_from(frame, position), UNBOUNDED_BYTES
        position += _OLDEST_START.size
    return FetchRequest(max_wait_ms, min_bytes, max_bytes, [], replica_id=replica_id), position


def _legacy_entries(version: int, frame: bytes | memoryview, position: int, entries: list[FetchEntry]) -> int:
    layout = _PARTITION_LAYOUTS[version]
    (topics,) = _INT32.unpack_from(frame, position)
    position += 4
    _check_count(topics, 0)
    for _ in range(topics):
        (length,) = _INT16.unpack_from(frame, position)
        position += 2
        name_end = position + length
        if length < 0 or name_end > len(frame):
            raise MalformedFrameError(f"invalid length {length} of a topic name")
        topic = str(frame[position:name_end], "utf-8")
        (count,) = _INT32.unpack_from(frame, name_end)
        position = name_end + 4
        _check_count(count, len(entries))
        for _ in range(count):
            row = layout.unpack_from(frame, position)
            position += layout.size
            entries.append(FetchEntry(topic, None, *_full_row(version, row)))
    return position


def _flexible_entries(version: int, frame: bytes | memoryview, position: int, entries: list[FetchEntry]) -> int:
    layout = _PARTITION_LAYOUTS[version]
    unpack, size = layout.unpack_from, layout.size
    topics, position = read_uvarint(frame, position)
    _check_count(topics - 1, 0)
    for _ in range(topics - 1):
        topic: str | None = None
        topic_id: UUID | None = None
        if version >= TOPIC_ID_SINCE:
            topic_id, position = topic_id_at(frame, position), position + 16
        else:
            topic, position = _compact_name(frame, position)
        count, position = read_uvarint(frame, position)
        _check_count(count - 1, len(entries))
        for _ in range(count - 1):
            entries.append(FetchEntry(topic, topic_id, *unpack(frame, position)))
            position += size
            position = position + 1 if frame[position] == 0 else after_tagged_fields(frame, position)
        position = after_tagged_fields(frame, position)
    return position


def _compact_name(frame: bytes | memoryview, position: int) -> tuple[str, int]:
    length, position = read_uvarint(frame, position)
    after = position + length - 1
    if length == 0 or after > len(frame):
        raise MalformedFrameError(f"invalid length {length - 1} of a topic name")
    return str(frame[position:after], "utf-8"), after


def _check_count(count: int, before: int) -> None:
    if count < 0:
        raise MalformedFrameError(f"invalid array length {count}")
    if count + before > DEFAULT_ELEMENT_BUDGET:
        raise MalformedFrameError("frame has more partitions than allowed in one frame")


def _decode_forgotten(version: int, reader: Reader) -> list[ForgottenPartition]:
    flexible = version >= FLEXIBLE_SINCE
    length = Reader.compact_array_length if flexible else Reader.array_length
    found: list[ForgottenPartition] = []
    topics = length(reader)
    for _ in range(required(topics)):
        topic, topic_id = read_topic(version, reader)
        count = required(length(reader, 4))
        found += [ForgottenPartition(topic, topic_id, reader.int32()) for _ in range(count)]
        if flexible:
            reader.skip_tagged_fields()
    return found


def _decode_request_tags(version: int, reader: Reader, request: FetchRequest) -> None:
    for _ in range(reader.uvarint()):
        tag, size = reader.uvarint(), reader.uvarint()
        after = reader.position + size
        if after > reader.end:
            raise MalformedFrameError(f"tagged field of {size} bytes exceeds the {reader.remaining} bytes that remain")
        if tag == _REPLICA_STATE_TAG and version >= REPLICA_STATE_SINCE:
            request.replica_id, request.replica_epoch = reader.unpack(_REPLICA_STATE)
            reader.skip_tagged_fields()
            if reader.position != after:
                raise MalformedFrameError("replica state does not match its length")
        reader.position = after


def encode_fetch_request(version: int, correlation_id: int, client_id: str | None, request: FetchRequest) -> bytes:
    """Return a request frame. Raises `ValueError` if a row lacks the name or the id that the version needs."""
    form = COMPACT if version >= FLEXIBLE_SINCE else LEGACY
    layout = _PARTITION_LAYOUTS[version]
    start = (request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level)
    if version >= REPLICA_STATE_SINCE:
        out = bytearray(_START_WITHOUT_REPLICA.pack(*start))
    elif version >= ISOLATION_SINCE:
        out = bytearray(_START.pack(request.replica_id, *start))
    elif version >= MAX_BYTES_SINCE:
        out = bytearray(_START_WITHOUT_ISOLATION.pack(request.replica_id, *start[:3]))
    else:
        out = bytearray(_OLDEST_START.pack(request.replica_id, *start[:2]))
    if version >= SESSIONS_SINCE:
        out += _TWO_INT32.pack(request.session_id, request.session_epoch)
    groups = grouped(request.entries)
    out += form.length(len(groups))
    for entries in groups:
        out += encoded_topic(version, form, entries[0].topic, entries[0].topic_id) + form.length(len(entries))
        for entry in entries:
            out += layout.pack(*_short_row(version, entry)) + form.tail
        out += form.tail
    if version >= SESSIONS_SINCE:
        out += _encoded_forgotten(version, form, request.forgotten)
    if version >= RACK_SINCE:
        out += form.text(request.rack_id)
    out += _encoded_request_tags(version, request)
    return encode_request_header(ApiKey.FETCH, version, correlation_id, client_id, body_bytes=len(out)) + out


def _encoded_forgotten(version: int, form: Form, forgotten: Sequence[ForgottenPartition]) -> bytes:
    groups = grouped(forgotten)
    out = bytearray(form.length(len(groups)))
    for rows in groups:
        out += encoded_topic(version, form, rows[0].topic, rows[0].topic_id) + form.length(len(rows))
        for row in rows:
            out += _INT32.pack(row.partition)
        out += form.tail
    return bytes(out)


def _encoded_request_tags(version: int, request: FetchRequest) -> bytes:
    if version < FLEXIBLE_SINCE:
        return b""
    if version < REPLICA_STATE_SINCE or (request.replica_id == -1 and request.replica_epoch == -1):
        return b"\x00"
    state = _REPLICA_STATE.pack(request.replica_id, request.replica_epoch) + b"\x00"
    return b"\x01" + base128(_REPLICA_STATE_TAG) + base128(len(state)) + state
