"""The low-level consumer of the documents: a connection to one broker, without any state.

Every request has an offset as an argument, so the caller decides where offsets are stored. Threads use it; the work
runs on the loop of `client/blocking/loop_thread`. Invariant: a request reaches the broker of this consumer only, which
answers for the partitions that it leads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from odradek.base.errors import MessageTooLargeError, NetworkError, error_for
from odradek.base.system_ports import SystemClock
from odradek.base.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_BROKER, NO_EPOCH, TopicPartition
from odradek.client.blocking import loop_thread
from odradek.client.connections import Link, connector
from odradek.client.consumer.fetched import iterate_records, raw_fetch
from odradek.client.metadata import Node
from odradek.client.models import RawFetch
from odradek.client.settings import ClientSettings, as_settings
from odradek.protocol.apis import ApiKey
from odradek.protocol.hotpath import FetchedPartition, FetchEntry, decode_fetch_response, encode_fetch_request
from odradek.protocol.hotpath import FetchRequest as WireFetchRequest
from odradek.protocol.messages.fetch import ListOffsetsResponse

LATEST_TIME: Final = LATEST_TIMESTAMP
"""A time for `get_offsets_before`: the offset after the last message."""
EARLIEST_TIME: Final = EARLIEST_TIMESTAMP
"""A time for `get_offsets_before`: the first offset."""

_LAST_FETCH_BY_NAME: Final = 12
_LIST_OF_OFFSETS: Final = 0
"""The version of ListOffsets that returns several offsets."""
_MOST_BYTES: Final = 1 << 30
"""Maximum size of a fetch whose size is doubled because of a large message."""


class ClassicFetchRequest(NamedTuple):
    """What to fetch: messages of a partition from an offset on, about `max_size` bytes."""

    topic: str
    partition: int
    offset: int
    max_size: int


class Message(NamedTuple):
    """A message. Key and payload are None if they are null."""

    payload: bytes | None
    key: bytes | None = None


class MessageAndOffset(NamedTuple):
    """A message and its offset."""

    message: Message
    offset: int

    @property
    def next_offset(self) -> int:
        """The offset of the next request."""
        return self.offset + 1


@dataclass(frozen=True, slots=True)
class ByteBufferMessageSet:
    """The messages of one response, in order."""

    messages: tuple[MessageAndOffset, ...]
    next_offset: int
    """Where to go on. It may be higher than the offset after the last message, after control records."""

    def __iter__(self) -> Iterator[MessageAndOffset]:
        """Iterate over the messages."""
        return iter(self.messages)

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self.messages)


def _complete(partition: TopicPartition, request: ClassicFetchRequest, answer: FetchedPartition) -> RawFetch | None:
    """Return the data of a response; None if the first message is larger than the size of the request.

    Brokers before Kafka 0.10.1 return a part of such a message, and later ones return nothing, except for the first
    partition of a request.
    """
    is_largest = request.max_size >= _MOST_BYTES
    try:
        fetched = raw_fetch(partition, request.offset, answer)
    except MessageTooLargeError:
        if is_largest:
            raise
        return None
    is_withheld = not fetched.records and request.offset < fetched.high_watermark
    return None if is_withheld and not is_largest else fetched


class SimpleConsumer:
    """Fetches messages from one broker.

    Any thread can use it. It connects at the first request, and again after a lost connection. Each method raises
    `NetworkError` or `RequestTimedOutError` if the broker does not answer, and the error of the broker otherwise:
    `NotLeaderOrFollowerError` if another one leads the partition, `UnknownTopicOrPartitionError`.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str = "",
        min_bytes: int = 1,
        max_wait_ms: int = 100,
        settings: ClientSettings | None = None,
    ) -> None:
        """A fetch waits up to `max_wait_ms` milliseconds for `min_bytes` bytes. `settings` has timeouts and security.

        Raises `ConfigError` for invalid settings.
        """
        self._node: Final = Node(0, host, port)
        settings = as_settings(f"{host}:{port}") if settings is None else settings
        self._settings: Final = settings.replace(client_id=client_id) if client_id else settings
        self._min_bytes: Final = min_bytes
        self._max_wait_ms: Final = max_wait_ms
        self._loop: Final = loop_thread.current()
        self._connect: Final = connector(self._settings, SystemClock())
        self._link: Link | None = None

    def __enter__(self) -> Self:
        """Return the consumer."""
        return self

    def __exit__(self, *error: object) -> None:
        """Call `close`."""
        self.close()

    def close(self) -> None:
        """Close the connection. Idempotent; a later request connects again."""
        link, self._link = self._link, None
        if link is not None:
            self._loop.run(link.close())

    def fetch(self, request: ClassicFetchRequest) -> ByteBufferMessageSet:
        """Return messages of one partition; none if no message arrived within `max_wait_ms`.

        If the first message is larger than `max_size`, the size is doubled until the message fits. Raises
        `OffsetOutOfRangeError` if the partition does not have the offset: reset it, or fail.
        """
        return self._loop.run(self._fetch([request]))[0]

    def multifetch(self, requests: Sequence[ClassicFetchRequest]) -> list[ByteBufferMessageSet]:
        """Send several fetches as one request and return a message set for each, in order. Raises as `fetch` for the
        first partition with an error. Each partition can occur once."""
        if len({(request.topic, request.partition) for request in requests}) < len(requests):
            raise ValueError("a partition occurs twice in one multifetch: fetch it once, with a larger max_size")
        return self._loop.run(self._fetch(requests)) if requests else []

    def get_offsets_before(self, topic: str, partition: int, time: int, max_num_offsets: int) -> list[int]:
        """Return at most `max_num_offsets` offsets at which segments begin, for messages before a time, newest first.

        `time` is in milliseconds since 1970 UTC, or `LATEST_TIME`, whose first offset is the end of the partition, or
        `EARLIEST_TIME`. Raises `UnsupportedVersionError` with brokers of Kafka 4.0 or later, which have no such
        request.
        """
        return self._loop.run(self._offsets_before(topic, partition, time, max_num_offsets))

    async def _open(self) -> Link:
        if self._link is None or not self._link.is_open:
            self._link = await self._connect(self._node)
        return self._link

    async def _fetch(self, requests: Sequence[ClassicFetchRequest]) -> list[ByteBufferMessageSet]:
        found: dict[TopicPartition, ByteBufferMessageSet] = {}
        left = list(requests)
        while left:
            larger = []
            for request, answer in zip(left, await self._exchange(left), strict=True):
                partition = TopicPartition(request.topic, request.partition)
                fetched = _complete(partition, request, answer)
                if fetched is None:
                    larger.append(request._replace(max_size=min(2 * request.max_size, _MOST_BYTES)))
                    continue
                messages = tuple(
                    MessageAndOffset(Message(record.value, record.key), record.offset)
                    for records, _ in iterate_records(fetched)
                    for record in records
                )
                found[partition] = ByteBufferMessageSet(messages, fetched.next_offset)
            left = larger
        return [found[TopicPartition(request.topic, request.partition)] for request in requests]

    async def _exchange(self, requests: Sequence[ClassicFetchRequest]) -> list[FetchedPartition]:
        """Send one Fetch request and return the answer for each partition."""
        link = await self._open()
        version = min(link.pick(ApiKey.FETCH), _LAST_FETCH_BY_NAME)
        wire = WireFetchRequest(
            max_wait_ms=self._max_wait_ms,
            min_bytes=self._min_bytes,
            # The size of each partition is the limit.
            max_bytes=_MOST_BYTES,
            entries=[
                FetchEntry(
                    topic=request.topic,
                    topic_id=None,
                    partition=request.partition,
                    current_leader_epoch=NO_EPOCH,
                    fetch_offset=request.offset,
                    last_fetched_epoch=NO_EPOCH,
                    log_start_offset=-1,
                    max_bytes=request.max_size,
                )
                for request in requests
            ],
        )
        client_id = self._settings.client_id
        frame = await link.call(
            lambda correlation_id: (encode_fetch_request(version, correlation_id, client_id, wire),),
            timeout_ms=self._settings.request_timeout_ms + self._max_wait_ms,
        )
        response = decode_fetch_response(version, frame)
        if response.error_code:
            raise error_for(response.error_code, f"{self._node.host}:{self._node.port} rejected a fetch")
        rows = {(row.topic, row.partition): row for row in response.partitions}
        return [self._checked(request, rows.get((request.topic, request.partition))) for request in requests]

    def _checked(self, request: ClassicFetchRequest, row: FetchedPartition | None) -> FetchedPartition:
        where = f"offset {request.offset} of {request.topic}-{request.partition}"
        if row is None:
            raise NetworkError(f"the response of {self._node.host}:{self._node.port} lacks {where}")
        if row.error_code:
            raise error_for(row.error_code, f"{where} cannot be fetched from {self._node.host}:{self._node.port}")
        return row

    async def _offsets_before(self, topic: str, partition: int, time: int, max_num_offsets: int) -> list[int]:
        link = await self._open()
        message = {
            "replica_id": NO_BROKER,
            "topics": [
                {
                    "name": topic,
                    "partitions": [
                        {"partition_index": partition, "timestamp": time, "max_num_offsets": max_num_offsets}
                    ],
                }
            ],
        }
        # Only the oldest version returns several offsets.
        response = await link.ask(
            ListOffsetsResponse, _LIST_OF_OFFSETS, message, timeout_ms=self._settings.request_timeout_ms
        )
        for row in response.topics[0].partitions if response.topics else ():
            if row.error_code:
                raise error_for(row.error_code, f"the offsets of {topic}-{partition} cannot be listed")
            return list(row.old_style_offsets)
        raise NetworkError(f"the response of {self._node.host}:{self._node.port} lacks {topic}-{partition}")
