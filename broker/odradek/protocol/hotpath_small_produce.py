"""Decodes small Produce requests and encodes their responses, several in one buffer, without an object for a header.

`server/data/small_produce` uses it. A request is small if it has one of the usual versions, no transactional id, short
names and records that are not null. `hotpath_produce` decodes all others. Invariants: what `decode_small_produce`
accepts, `hotpath_produce.decode_produce` decodes to the same; the responses are those of its encoder, byte for byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter, read_i64_be, write_i16_be, write_i32_be, write_i64_be

from odradek.protocol.apis import API_TABLE, ApiKey

if TYPE_CHECKING:
    from mypy_extensions import i64

_FLEXIBLE_SINCE: Final = API_TABLE[ApiKey.PRODUCE].flexible_since
_LEAST_VERSION: Final = 5
"""Since then, a response has the log start offset."""
_RECORD_ERRORS_SINCE: Final = 8
_MOST_VERSION: Final = API_TABLE[ApiKey.PRODUCE].max_version

_MOST_ENTRIES: Final = 100
_MOST_NAME_BYTES: Final = 120
"""So that compact lengths in a response take one byte."""

_LOW_32: Final = 0xFFFF_FFFF
_NO_TIME: Final = -1


class SmallEntry:
    """The records of one partition: their position in the buffer."""

    __slots__ = ("base_offset", "end", "log_start_offset", "partition", "record_count", "start")

    def __init__(self, partition: int, start: i64, end: i64) -> None:
        """Without an answer."""
        self.partition: Final = partition
        self.start: i64 = start
        self.end: i64 = end
        self.base_offset: i64 = -1
        self.log_start_offset: i64 = -1
        self.record_count: i64 = 0


class SmallTopic:
    """The entries of one topic."""

    __slots__ = ("entries", "name")

    def __init__(self, name: bytes) -> None:
        """`name`: in UTF-8."""
        self.name: Final = name
        self.entries: Final[list[SmallEntry]] = []


class SmallProduce:
    """One request: `end` is the position after its frame."""

    __slots__ = ("acks", "correlation_id", "end", "topics", "version")

    def __init__(self, version: i64, correlation_id: i64, end: i64) -> None:
        """Without topics."""
        self.version: i64 = version
        self.correlation_id: i64 = correlation_id
        self.end: i64 = end
        self.acks: i64 = 0
        self.topics: Final[list[SmallTopic]] = []


def has_frame(data: bytes, position: i64) -> bool:
    """Whether a whole frame begins at `position`."""
    size = len(data)
    return size - position >= 12 and (read_i64_be(data, position) >> 32) + 4 <= size - position


def is_produce(data: bytes, position: i64) -> bool:
    """Whether the frame that begins at `position` is a Produce request."""
    return data[position + 4] == 0 and data[position + 5] == 0


def decode_small_produce(data: bytes, position: i64) -> SmallProduce | None:
    """Return the request whose frame, a whole one, begins at `position`; None if it is not small or is invalid."""
    try:
        start = read_i64_be(data, position)
        end = position + 4 + (start >> 32)
        key, version = start >> 16 & 0xFFFF, start & 0xFFFF
        if key != 0 or not _LEAST_VERSION <= version <= _MOST_VERSION:
            return None
        head = read_i64_be(data, position + 8)
        client_bytes = (head & _LOW_32) >> 16
        at = position + 14
        if client_bytes < 0x8000:
            at += client_bytes
        elif client_bytes != 0xFFFF:
            return None
        request = SmallProduce(version, head >> 32, end)
        at = _flexible(data, at, request) if version >= _FLEXIBLE_SINCE else _legacy(data, at, request)
    except IndexError:
        return None
    return request if 0 < at <= end else None


def _legacy(data: bytes, at: i64, request: SmallProduce) -> i64:
    """Decode the body. Returns the position after it, or 0."""
    start = read_i64_be(data, at)
    topics = read_i64_be(data, at + 8) >> 32
    # No transactional id, then acks and timeout.
    if start >> 48 != -1 or not 1 <= topics <= _MOST_ENTRIES:
        return 0
    request.acks = _signed16(start >> 32)
    at += 12
    left: i64 = _MOST_ENTRIES
    while topics > 0:
        topics -= 1
        name_bytes: i64 = data[at] << 8 | data[at + 1]
        name_end = at + 2 + name_bytes
        if not 1 <= name_bytes <= _MOST_NAME_BYTES:
            return 0
        topic = SmallTopic(data[at + 2 : name_end])
        request.topics.append(topic)
        partitions = read_i64_be(data, name_end) >> 32
        at = name_end + 4
        if not 1 <= partitions <= left:
            return 0
        left -= partitions
        while partitions > 0:
            partitions -= 1
            row = read_i64_be(data, at)
            start = at + 8
            size = _signed32(row)
            at = start + size
            if size < 0 or at > request.end:
                return 0
            topic.entries.append(SmallEntry(row >> 32, start, at))
    return at


def _flexible(data: bytes, at: i64, request: SmallProduce) -> i64:
    """Decode the body and the tagged fields of the header. Returns the position after it, or 0."""
    start = read_i64_be(data, at)
    # No tagged fields, and no transactional id: a byte of 0 for each.
    if start >> 48 != 0:
        return 0
    request.acks = _signed16(start >> 32)
    topics: i64 = data[at + 8]
    if not 2 <= topics <= _MOST_ENTRIES:
        return 0
    at += 9
    left: i64 = _MOST_ENTRIES
    while topics > 1:
        topics -= 1
        name_bytes: i64 = data[at] - 1
        name_end = at + 1 + name_bytes
        if not 1 <= name_bytes <= _MOST_NAME_BYTES:
            return 0
        topic = SmallTopic(data[at + 1 : name_end])
        request.topics.append(topic)
        partitions: i64 = data[name_end]
        if not 2 <= partitions <= left:
            return 0
        left -= partitions
        at = _flexible_entries(data, name_end + 1, partitions - 1, topic, request.end)
        if at == 0 or data[at] != 0:
            return 0
        at += 1
    return at + 1 if data[at] == 0 else 0


def _flexible_entries(data: bytes, at: i64, count: i64, topic: SmallTopic, end: i64) -> i64:
    """Decode the partitions of a topic. Returns the position after them, or 0."""
    while count > 0:
        count -= 1
        partition = read_i64_be(data, at) >> 32
        size, start = _short_number(data, at + 4)
        at = start + size
        # Lengths are larger by one; 0 is null. A byte of 0 follows: no tagged fields.
        if size < 1 or at > end or data[at - 1] != 0:
            return 0
        topic.entries.append(SmallEntry(partition, start, at - 1))
    return at


def _short_number(data: bytes, at: i64) -> tuple[i64, i64]:
    """Return a number of at most three bytes, and the position after it. A longer one has the value 0."""
    value: i64 = data[at]
    if value < 0x80:
        return value, at + 1
    second: i64 = data[at + 1]
    value = (value & 0x7F) | (second & 0x7F) << 7
    if second < 0x80:
        return value, at + 2
    third: i64 = data[at + 2]
    return (value | third << 14 if third < 0x80 else 0), at + 3


def _signed16(value: i64) -> i64:
    low = value & 0xFFFF
    return low - 0x1_0000 if low >= 0x8000 else low


def _signed32(value: i64) -> i64:
    low = value & _LOW_32
    return low - 0x1_0000_0000 if low >= 0x8000_0000 else low


def encode_small_answer(writer: BytesWriter, request: SmallProduce) -> None:
    """Append the response frame of a request whose entries all succeeded."""
    if request.version >= _FLEXIBLE_SINCE:
        _encode_flexible(writer, request)
    else:
        _encode_legacy(writer, request)


def _encode_legacy(writer: BytesWriter, request: SmallProduce) -> None:
    has_errors = request.version >= _RECORD_ERRORS_SINCE
    row_bytes: i64 = 36 if has_errors else 30
    size: i64 = 12
    for topic in request.topics:
        size += 6 + len(topic.name) + row_bytes * len(topic.entries)
    write_i64_be(writer, size << 32 | request.correlation_id & _LOW_32)
    write_i32_be(writer, len(request.topics))
    for topic in request.topics:
        write_i16_be(writer, len(topic.name))
        writer.write(topic.name)
        write_i32_be(writer, len(topic.entries))
        for entry in topic.entries:
            _encode_row(writer, entry)
            if has_errors:
                write_i32_be(writer, 0)
                write_i16_be(writer, -1)
    write_i32_be(writer, 0)  # The throttle time.


def _encode_flexible(writer: BytesWriter, request: SmallProduce) -> None:
    size: i64 = 11
    for topic in request.topics:
        size += 3 + len(topic.name) + 33 * len(topic.entries)
    write_i64_be(writer, size << 32 | request.correlation_id & _LOW_32)
    writer.append(0)
    writer.append(len(request.topics) + 1)
    for topic in request.topics:
        writer.append(len(topic.name) + 1)
        writer.write(topic.name)
        writer.append(len(topic.entries) + 1)
        for entry in topic.entries:
            _encode_row(writer, entry)
            # No record errors, no message, no tagged fields.
            writer.append(1)
            write_i16_be(writer, 0)
        writer.append(0)
    write_i32_be(writer, 0)  # The throttle time.
    writer.append(0)


def _encode_row(writer: BytesWriter, entry: SmallEntry) -> None:
    write_i32_be(writer, entry.partition)
    write_i16_be(writer, 0)
    write_i64_be(writer, entry.base_offset)
    write_i64_be(writer, _NO_TIME)
    write_i64_be(writer, entry.log_start_offset)
