"""The follower's connection to a leader, over `network/channel`.

`LeaderConnector` finds the leader's endpoint in the cluster image by broker id. The calls of `LeaderChannel` are sent
in the highest versions that both sides support and `inter.broker.protocol.version` allows. Every connection failure is
an `OdradekError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from odradek.base.config import BrokerConfig
from odradek.base.errors import BrokerNotAvailableError, MalformedFrameError, UnsupportedVersionError, error_for
from odradek.base.types import TopicPartition
from odradek.cluster import MetadataCache
from odradek.network.channel import Channel, ChannelTimeouts
from odradek.network.channel_security import ChannelSecurity
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.hotpath import FetchRequest, FetchResponse, decode_fetch_response, encode_fetch_request
from odradek.protocol.messages.fetch import ListOffsetsResponse, OffsetForLeaderEpochResponse
from odradek.protocol.release_versions import highest_version
from odradek.replication.follower.fetch_loop import LeaderChannel
from odradek.replication.partition import EpochEnd

READ_UNCOMMITTED: Final = 0

_Item = TypeVar("_Item")


class LeaderConnector:
    """Opens channels to other brokers of the cluster; implements `ConnectLeader`."""

    def __init__(self, cluster: MetadataCache, config: BrokerConfig, security: ChannelSecurity | None = None) -> None:
        """Leaders are reached through the inter-broker listener, which has the security `security`."""
        self._security: Final = security
        self._cluster: Final = cluster
        self._listener: Final = config.inter_broker_listener
        self._config: Final = config

    async def __call__(self, leader_id: int, client_id: str) -> LeaderChannel:
        """Connect and negotiate versions. Raises `BrokerNotAvailableError` if the broker is not known to be alive."""
        broker = self._cluster.image.brokers.get(leader_id)
        endpoint = None if broker is None else broker.endpoint(self._listener)
        if endpoint is None:
            raise BrokerNotAvailableError(f"broker {leader_id} has no endpoint of listener {self._listener}")
        limit_ms = float(self._config.replica_socket_timeout_ms)
        channel = await Channel.open(
            endpoint.host,
            endpoint.port,
            client_id=client_id,
            timeouts=ChannelTimeouts(connect_ms=limit_ms, request_ms=limit_ms),
            security=self._security,
        )
        try:
            await channel.negotiate()
            return _ChannelToLeader(channel, self._config)
        except BaseException:
            await channel.close()
            raise


class _ChannelToLeader:
    """`LeaderChannel` over an open channel."""

    def __init__(self, channel: Channel, config: BrokerConfig) -> None:
        self._channel: Final = channel
        self._replica_id: Final = config.broker_id
        self._protocol: Final = config.inter_broker_protocol_version
        self.fetch_version: Final = self._pick(ApiKey.FETCH)

    def _pick(self, api_key: ApiKey) -> int:
        """Return the highest version that both sides support and the inter-broker protocol allows."""
        version = min(self._channel.pick(api_key), highest_version(api_key, self._protocol))
        lowest, _ = self._channel.versions[api_key]
        if version < max(lowest, API_TABLE[api_key].min_version):
            raise UnsupportedVersionError(
                f"{self._channel.peer} no longer supports {api_key.name} as of release {self._protocol}"
            )
        return version

    async def fetch(self, request: FetchRequest, version: int) -> FetchResponse:
        client_id = self._channel.client_id
        frame = await self._channel.call(
            lambda correlation_id: (encode_fetch_request(version, correlation_id, client_id, request),)
        )
        return decode_fetch_response(version, frame)

    async def list_offset(self, topic_partition: TopicPartition, leader_epoch: int, timestamp: int) -> int:
        wanted = {
            "partition_index": topic_partition.partition,
            "current_leader_epoch": leader_epoch,
            "timestamp": timestamp,
        }
        message = {
            "replica_id": self._replica_id,
            "isolation_level": READ_UNCOMMITTED,
            "topics": [{"name": topic_partition.topic, "partitions": [wanted]}],
        }
        response = await self._channel.ask(ListOffsetsResponse, self._pick(ApiKey.LIST_OFFSETS), message)
        found = self._only([item for topic in response.topics for item in topic.partitions], topic_partition)
        self._check(found.error_code, topic_partition)
        return found.offset

    async def epoch_end(self, topic_partition: TopicPartition, leader_epoch: int, epoch: int) -> EpochEnd:
        wanted = {
            "partition": topic_partition.partition,
            "current_leader_epoch": leader_epoch,
            "leader_epoch": epoch,
        }
        message = {
            "replica_id": self._replica_id,
            "topics": [{"topic": topic_partition.topic, "partitions": [wanted]}],
        }
        version = self._pick(ApiKey.OFFSET_FOR_LEADER_EPOCH)
        response = await self._channel.ask(OffsetForLeaderEpochResponse, version, message)
        found = self._only([item for topic in response.topics for item in topic.partitions], topic_partition)
        self._check(found.error_code, topic_partition)
        return EpochEnd(found.leader_epoch, found.end_offset)

    async def close(self) -> None:
        await self._channel.close()

    def _only(self, found: Sequence[_Item], topic_partition: TopicPartition) -> _Item:
        """Return the requested partition of a response."""
        if len(found) != 1:
            raise MalformedFrameError(f"the response of {self._channel.peer} does not contain {topic_partition}")
        return found[0]

    def _check(self, code: int, topic_partition: TopicPartition) -> None:
        if code:
            raise error_for(code, f"{topic_partition} on {self._channel.peer}")
