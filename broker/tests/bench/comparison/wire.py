"""Encodes the few requests that scenarios send themselves, and sends them over a blocking connection.

For cases in which a client library would distort the measurement: readiness after a start, many connections, small
fetches, and the old versions Fetch 3 and Produce 2, which current clients do not support; see
https://kafka.apache.org/39/protocol.html.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, Self

from odradek.base.types import TopicPartition
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message, decode_response, encode_request
from odradek.protocol.hotpath import ProduceRequest, encode_produce_request

CLIENT_ID: Final = "bench"
METADATA_VERSION: Final = 7
PRODUCE_VERSION: Final = 7
"""The newest version with an error code whose position depends only on the topic's name."""
PRODUCE_TIMEOUT_MS: Final = 30_000
FETCH_VERSION: Final = 11
"""The newest version without tagged fields, whose fields therefore have fixed positions."""

_PARTITION: Final = struct.Struct(">hiii")
"""Error code, index, leader and leader epoch of a partition in a Metadata 7 response."""
_SHORT: Final = struct.Struct(">h")
_LENGTH: Final = struct.Struct(">i")
_FETCHED: Final = struct.Struct(">ihqqqi")
"""Index, error code, high watermark, last stable offset, log start and number of aborted transactions in a Fetch
response."""
_RESULT: Final = struct.Struct(">ihq")
"""Index, error code and base offset of a partition in a Produce response."""


class Address(NamedTuple):
    """The address of a broker."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """From `host:port`."""
        host, _, port = text.rpartition(":")
        return cls(host, int(port))


def produce_frame(partition: TopicPartition, records: bytes, *, acks: int = 1, correlation_id: int = 0) -> bytes:
    """Return a Produce request with one batch."""
    request = ProduceRequest(None, acks, PRODUCE_TIMEOUT_MS, [(partition, memoryview(records))])
    return b"".join(encode_produce_request(PRODUCE_VERSION, correlation_id, CLIENT_ID, request))


def produce_result(frame: bytes | bytearray | memoryview, topic: str, *, from_position: int = 4) -> tuple[int, int]:
    """Return error code and base offset of the only partition in a response of `PRODUCE_VERSION`, without decoding.

    `from_position`: the position after the correlation id.
    """
    _, code, base_offset = _RESULT.unpack_from(frame, from_position - 4 + result_position(topic))
    return code, base_offset


def result_position(topic: str) -> int:
    """Return the position of the only partition in a response of `PRODUCE_VERSION`, from the correlation id on.

    The correlation id, one topic, its name and one partition precede it. It has the index in 4 bytes, then the error
    code in 2 bytes.
    """
    return 4 + 4 + 2 + len(topic.encode()) + 4


def fetch_frame(partition: TopicPartition, offset: int, *, fetch_bytes: int) -> bytes:
    """Return a Fetch request for one partition without a fetch session, which waits for records at most 500 ms."""
    name = partition.topic.encode()
    body = struct.pack(">iiiibiiih", -1, 500, 1, fetch_bytes, 0, 0, -1, 1, len(name)) + name
    body += struct.pack(">iiiqqi", 1, partition.partition, -1, offset, -1, fetch_bytes)
    return _old_frame(ApiKey.FETCH, FETCH_VERSION, 0, body + struct.pack(">ih", 0, 0))


def fetched(frame: memoryview, topic: str) -> tuple[int, memoryview]:
    """Return error code and records of the only partition in a response of `FETCH_VERSION`.

    After the correlation id: throttle time, error code, session id, one topic, its name, one partition; then its
    fields, no aborted transactions, the preferred replica and the records.
    """
    (code,) = _SHORT.unpack_from(frame, 8)
    if code:
        return code, frame[:0]
    position = 18 + 2 + len(topic.encode()) + 4
    _, code, *_ = _FETCHED.unpack_from(frame, position)
    position += _FETCHED.size + 4
    (length,) = _LENGTH.unpack_from(frame, position)
    return code, frame[position + 4 : position + 4 + max(length, 0)]


def old_produce_frame(partition: TopicPartition, message_set: bytes, correlation_id: int = 0) -> bytes:
    """Return a Produce 2 request: message sets of format 1, acks=1."""
    name = partition.topic.encode()
    body = struct.pack(">hiih", 1, PRODUCE_TIMEOUT_MS, 1, len(name)) + name
    body += struct.pack(">iii", 1, partition.partition, len(message_set)) + message_set
    return _old_frame(ApiKey.PRODUCE, 2, correlation_id, body)


def old_fetch_frame(topic: str, offsets: Iterable[tuple[int, int]], *, partition_bytes: int) -> bytes:
    """Return a Fetch 3 request, which is answered in format 1. `offsets`: partition and requested offset."""
    rows = list(offsets)
    name = topic.encode()
    body = struct.pack(">iiiiih", -1, 500, 1, partition_bytes * len(rows), 1, len(name)) + name
    body += _LENGTH.pack(len(rows))
    body += b"".join(struct.pack(">iqi", partition, offset, partition_bytes) for partition, offset in rows)
    return _old_frame(ApiKey.FETCH, 3, 0, body)


def old_fetched(frame: memoryview) -> list[tuple[int, int, int, memoryview]]:
    """Yield partition, error code, high watermark and records of each partition in a Fetch 3 response."""
    found = []
    (topics,) = _LENGTH.unpack_from(frame, 8)
    position = 12
    for _ in range(topics):
        (size,) = struct.unpack_from(">h", frame, position)
        position += 2 + size
        (rows,) = _LENGTH.unpack_from(frame, position)
        position += 4
        for _ in range(rows):
            partition, code, mark, length = struct.unpack_from(">ihqi", frame, position)
            position += 18
            found.append((partition, code, mark, frame[position : position + max(length, 0)]))
            position += max(length, 0)
    return found


def _old_frame(api_key: ApiKey, version: int, correlation_id: int, body: bytes) -> bytes:
    name = CLIENT_ID.encode()
    header = struct.pack(f">hhih{len(name)}s", api_key, version, correlation_id, len(name), name)
    return _LENGTH.pack(len(header) + len(body)) + header + body


class Partition(NamedTuple):
    """A partition in a Metadata response."""

    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


def metadata_frame(topics: Sequence[str] | None = None) -> bytes:
    """Return a Metadata request for some topics (None: all), which creates no topic."""
    wanted = None if topics is None else [{"name": name} for name in topics]
    message = {"topics": wanted, "allow_auto_topic_creation": False}
    return encode_request(ApiKey.METADATA, METADATA_VERSION, 0, CLIENT_ID, message)


def partitions_of(frame: memoryview) -> dict[TopicPartition, Partition]:
    """Yield the partitions of a response of `METADATA_VERSION`, without decoding other fields.

    The general codec is too slow for thousands of partitions in many responses, on the same cores as the brokers.
    """
    position = 8  # correlation id, throttle time
    (brokers,) = _LENGTH.unpack_from(frame, position)
    position += 4
    for _ in range(brokers):
        position = _after_string(frame, _after_string(frame, position + 4) + 4)  # id, host, port, rack
    position = _after_string(frame, position) + 4  # cluster id, controller
    (topics,) = _LENGTH.unpack_from(frame, position)
    position += 4
    found = {}
    for _ in range(topics):
        start, position = position + 4, _after_string(frame, position + 2)  # error code, name
        name = str(frame[start:position], "utf-8")
        (rows,) = _LENGTH.unpack_from(frame, position + 1)  # is internal
        position += 5
        for _ in range(rows):
            _, number, leader, _ = _PARTITION.unpack_from(frame, position)
            replicas, position = _numbers(frame, position + _PARTITION.size)
            in_sync, position = _numbers(frame, position)
            _, position = _numbers(frame, position)
            found[TopicPartition(name, number)] = Partition(leader, replicas, in_sync)
    return found


def _after_string(frame: memoryview, position: int) -> int:
    size: int = _SHORT.unpack_from(frame, position)[0]
    return position + 2 + max(size, 0)


def _numbers(frame: memoryview, position: int) -> tuple[tuple[int, ...], int]:
    (count,) = _LENGTH.unpack_from(frame, position)
    end = position + 4 + 4 * count
    return struct.unpack_from(f">{count}i", frame, position + 4), end


class Connection:
    """A blocking connection; requests are answered in order."""

    def __init__(self, address: Address, *, timeout_seconds: float = 30.0) -> None:
        """Connect. Every call raises `OSError` if the broker does not answer in time or closes the connection."""
        self._socket = socket.create_connection(address, timeout=timeout_seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End it."""
        self._socket.close()

    def send(self, frame: bytes) -> None:
        """Send a frame; `receive` returns its response."""
        self._socket.sendall(frame)

    def receive(self) -> memoryview:
        """Return the next response, from its correlation id on."""
        (size,) = _LENGTH.unpack(self._exactly(4))
        return self._exactly(size)

    def detach(self) -> socket.socket:
        """Return the socket, which the caller closes, and end the use of this connection."""
        return self._socket

    def call(self, frame: bytes) -> memoryview:
        """Send a frame and return its response."""
        self.send(frame)
        return self.receive()

    def ask(self, api_key: ApiKey, version: int, message: Message) -> Any:
        """Send a request and return its response with the general codec."""
        return decode_response(api_key, version, self.call(encode_request(api_key, version, 0, CLIENT_ID, message)))

    def metadata(self, topics: Sequence[str]) -> Any:
        """Return the broker's metadata of some topics; creates no topic."""
        return decode_response(ApiKey.METADATA, METADATA_VERSION, self.call(metadata_frame(topics)))

    def _exactly(self, size: int) -> memoryview:
        buffer = bytearray(size)
        view = memoryview(buffer)
        filled = 0
        while filled < size:
            count = self._socket.recv_into(view[filled:])
            if not count:
                raise ConnectionError("the broker closed the connection")
            filled += count
        return view
