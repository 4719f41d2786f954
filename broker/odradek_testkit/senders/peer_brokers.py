"""Brokers in memory that answer the requests of another broker, for tests of the code that sends them.

Requests and responses are encoded and decoded as on the wire. A test provides the answers, and can make a broker refuse
connections, close them, or support only older versions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from odradek.base.errors import NetworkError, UnsupportedVersionError
from odradek.base.ports import Buffer
from odradek.base.types import Endpoint, TopicPartition
from odradek.cluster import LEADER_DURING_DELETE, AnnouncedBroker, MetadataCache, PartitionMetadata
from odradek.protocol.codec import Message, decode_struct, encode_struct
from odradek.protocol.keys import ApiKey
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse
from odradek.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

LISTENER: Final = "INTERNAL"
_CLASSES: Final[Mapping[ApiKey, tuple[type[Any], type[Any]]]] = {
    ApiKey.WRITE_TXN_MARKERS: (WriteTxnMarkersRequest, WriteTxnMarkersResponse),
    ApiKey.ADD_PARTITIONS_TO_TXN: (AddPartitionsToTxnRequest, AddPartitionsToTxnResponse),
    ApiKey.LIST_OFFSETS: (ListOffsetsRequest, ListOffsetsResponse),
    ApiKey.FETCH: (FetchRequest, FetchResponse),
}

Answer = Callable[[int, int, Any], Awaitable[Message]]
"""Returns the response of a broker to a request of a version, or raises the error of the connection."""


class PeerBrokers:
    """The other brokers of a cluster, and the metadata of it."""

    def __init__(self, answer: Answer) -> None:
        """Without brokers and topics."""
        self.answer = answer
        self.cluster: Final = MetadataCache()
        self.versions: dict[int, dict[ApiKey, int]] = {}
        """Highest versions by broker, if they are not the latest ones."""
        self.refusals: dict[int, Exception] = {}
        """Errors of new connections by broker."""
        self.channels: list[PeerChannel] = []
        """All connections so far, also closed ones."""

    def announce(self, brokers: Mapping[int, int]) -> None:
        """Replace the brokers in the metadata. Takes ports by broker id."""
        self._update([_announced(broker_id, port) for broker_id, port in brokers.items()], [])

    def lead(self, leaders: Mapping[TopicPartition, int]) -> None:
        """Set the leaders of partitions in the metadata."""
        self._update(self.cluster.image.brokers.values(), leaders.items())

    def forget(self, *partitions: TopicPartition) -> None:
        """Remove partitions from the metadata."""
        self.lead(dict.fromkeys(partitions, LEADER_DURING_DELETE))

    def _update(self, brokers: Iterable[AnnouncedBroker], leaders: Iterable[tuple[TopicPartition, int]]) -> None:
        self.cluster.image = self.cluster.image.updated(
            controller_id=1,
            brokers=brokers,
            partitions=[
                (partition, UUID(int=1), PartitionMetadata(leader=leader, leader_epoch=0, isr=(), replicas=()))
                for partition, leader in leaders
            ],
        )

    async def connect(self, endpoint: Endpoint) -> PeerChannel:
        """Open a connection to the broker whose id is the name of the host."""
        await asyncio.sleep(0)
        broker_id = int(endpoint.host)
        if broker_id in self.refusals:
            raise self.refusals[broker_id]
        channel = PeerChannel(self, broker_id, endpoint)
        self.channels.append(channel)
        return channel

    def open_channels(self, broker_id: int) -> list[PeerChannel]:
        """Return the open connections to a broker."""
        return [channel for channel in self.channels if channel.broker_id == broker_id and channel.is_open]

    def hang_up(self, broker_id: int) -> None:
        """Let a broker close its connections."""
        for channel in self.open_channels(broker_id):
            channel.end()


class PeerChannel:
    """A connection to one broker."""

    client_id = "broker-0"

    def __init__(self, brokers: PeerBrokers, broker_id: int, endpoint: Endpoint) -> None:
        """`PeerBrokers.connect` opens connections."""
        self.broker_id: Final = broker_id
        self.endpoint: Final = endpoint
        self._brokers: Final = brokers
        self._closed: Final[asyncio.Future[None]] = asyncio.get_running_loop().create_future()

    @property
    def is_open(self) -> bool:
        """Whether neither side has closed it."""
        return not self._closed.done()

    def end(self) -> None:
        """Close the connection."""
        if self.is_open:
            self._closed.set_result(None)

    def pick(self, api_key: ApiKey) -> int:
        """Return the highest version of the broker; -1 in `versions` means that it does not have the API."""
        latest = int(_CLASSES[api_key][0].VERSIONS.split("-")[1])
        version = self._brokers.versions.get(self.broker_id, {}).get(api_key, latest)
        if version < 0:
            raise UnsupportedVersionError(f"broker {self.broker_id} does not have {api_key.name}")
        return version

    async def ask(self, api_key: ApiKey, version: int, message: Message) -> Any:
        """Return the answer of the broker. Raises `NetworkError` if the connection is closed before."""
        expected, answered = _CLASSES[api_key]
        request = decode_struct(expected, version, encode_struct(expected, version, message))
        if not self.is_open:
            raise NetworkError("closed")
        answer = asyncio.ensure_future(self._brokers.answer(self.broker_id, version, request))
        ends: set[asyncio.Future[Any]] = {answer, self._closed}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not answer.done():
                answer.cancel()
        if not answer.done():
            raise NetworkError("closed while the request was in progress")
        return decode_struct(answered, version, encode_struct(answered, version, answer.result()))

    async def call(self, encode: Callable[[int], Sequence[Buffer]]) -> memoryview:
        """Raise an error: these tests have no requests that are encoded before."""
        raise AssertionError(f"{encode} is not expected")

    async def close(self) -> None:
        """Close the connection. Idempotent."""
        self.end()
        await asyncio.sleep(0)


def _announced(broker_id: int, port: int) -> AnnouncedBroker:
    return AnnouncedBroker(broker_id=broker_id, endpoints=(Endpoint(LISTENER, str(broker_id), port),))
