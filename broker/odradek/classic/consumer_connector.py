"""The high-level consumer of the documents: streams of messages, balanced over a group through ZooKeeper.

    connector = ClassicConsumer.create({"zookeeper.connect": "127.0.0.1:2181", "group.id": "g"})
    for message in connector.create_message_streams({"topic": 1})["topic"][0]:
        ...

It shares its group with the consumers of Apache Kafka 0.8.2 and 0.9. Threads use it; the work runs on the loop of
`client/blocking/loop_thread`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Mapping
from typing import Final, Self
from uuid import uuid4

from odradek.base.errors import ConfigError, NetworkError, OdradekError
from odradek.base.system_ports import SystemClock
from odradek.base.tasks import TaskOwner
from odradek.base.types import TopicPartition
from odradek.classic import consumer_znodes
from odradek.classic.broker_discovery import registered_addresses
from odradek.classic.consumer_config import ConsumerConfig
from odradek.classic.consumer_znodes import BLACKLIST, STATIC, WHITELIST, ConsumerRegistration
from odradek.classic.group_registry import GroupRegistry
from odradek.classic.message_streams import Decoder, MessageStream
from odradek.classic.offset_storage import storage_of
from odradek.classic.partition_readers import PartitionReaders
from odradek.classic.rebalancer import ConsumerRebalancer
from odradek.classic.topic_filters import TopicFilter
from odradek.client.blocking import loop_thread
from odradek.client.cluster_client import Cluster
from odradek.client.settings import ClientSettings
from odradek.zk.kazoo_client import KazooZkClient
from odradek.zk.port import ZkClient, ZkSettings

log = logging.getLogger(__name__)


class ClassicConsumer:
    """Creates connectors."""

    @staticmethod
    def create(
        config: ConsumerConfig | Mapping[str, str], *, client_settings: ClientSettings | None = None
    ) -> ConsumerConnector:
        """Return a connector. `config` can be properties. `client_settings` has the security settings for brokers.

        Raises `ConfigError` for an invalid setting or if no broker is registered, and `ZkError` if ZooKeeper does not
        answer.
        """
        parsed = config if isinstance(config, ConsumerConfig) else ConsumerConfig.parse(config)
        return ConsumerConnector(parsed, client_settings=client_settings)


class _Member:
    """The consumer on the loop: its connections, its membership and its fetches."""

    def __init__(self, config: ConsumerConfig, zk: ZkClient, cluster: Cluster, consumer_id: str) -> None:
        self.config: Final = config
        self.zk: Final = zk
        self.cluster: Final = cluster
        self.consumer_id: Final = consumer_id
        self.streams: dict[tuple[str, int], MessageStream] = {}
        """Streams by topic and number; the topic is empty for streams of a filter."""
        self.readers: Final = PartitionReaders(
            cluster, storage_of(config, zk, cluster), config, self._stream_of, self.fail
        )
        self._rebalancer: ConsumerRebalancer | None = None
        self._tasks: Final = TaskOwner()

    def _stream_of(self, topic: str, number: int) -> MessageStream:
        stream = self.streams.get((topic, number))
        return self.streams["", number] if stream is None else stream

    async def join(self, subscription: Mapping[str, int], pattern: str) -> None:
        clock = self.cluster.clock
        rebalancer = self._rebalancer = ConsumerRebalancer(
            self.zk,
            GroupRegistry(self.zk, self.config.group_id, self.consumer_id),
            ConsumerRegistration(subscription=subscription, pattern=pattern, timestamp_ms=clock.wall_ms()),
            self.readers,
            self.config,
            clock=clock,
            session_timeout_ms=self.config.zookeeper_session_timeout_ms,
            on_failure=self.fail,
        )
        await rebalancer.start()
        if self.config.auto_commit_enable:
            self._tasks.spawn(self._commit_periodically(), name="commits of a classic consumer")

    async def _commit_periodically(self) -> None:
        while True:
            await self.cluster.clock.sleep_ms(self.config.auto_commit_interval_ms)
            try:
                await self.readers.commit()
            except OdradekError as error:
                log.warning("offsets of group %s could not be stored: %s", self.config.group_id, error)

    def fail(self, error: OdradekError) -> None:
        for stream in self.streams.values():
            stream.fail(error)

    async def close(self) -> None:
        try:
            await self._tasks.close()
            if self._rebalancer is not None:
                await self._rebalancer.close()
        finally:
            for stream in self.streams.values():
                stream.close()
            await self.readers.close()
            await self.cluster.close()
            await self.zk.close()


class ConsumerConnector:
    """A member of a group. Create it with `ClassicConsumer.create`; `shutdown` ends it."""

    def __init__(self, config: ConsumerConfig, *, client_settings: ClientSettings | None = None) -> None:
        """Connects to ZooKeeper and to the brokers that are registered there. Raises as `ClassicConsumer.create`."""
        self._config: Final = config
        self._loop: Final = loop_thread.current()
        self._member: Final = self._loop.run(_connected(config, client_settings or ClientSettings()))
        self._created = False
        self._closed = False

    def __enter__(self) -> Self:
        """Return the connector."""
        return self

    def __exit__(self, *error: object) -> None:
        """Call `shutdown`."""
        self.shutdown()

    @property
    def consumer_id(self) -> str:
        """The id of this consumer in its group."""
        return self._member.consumer_id

    def create_message_streams(
        self,
        topic_count_map: Mapping[str, int],
        *,
        key_decoder: Decoder | None = None,
        value_decoder: Decoder | None = None,
    ) -> dict[str, list[MessageStream]]:
        """Subscribe to topics, each with a number of streams, and return the streams by topic.

        All topics of a consumer have to be in one call, which can be made once. The decoders make keys and messages of
        bytes, which are returned as they are by default. Raises `ConsumerRebalanceFailedError` if the partitions
        cannot be claimed, and `ConfigError` for a second call or a number below 1.
        """
        if not topic_count_map or any(count < 1 for count in topic_count_map.values()):
            raise ConfigError("create_message_streams needs topics, each with at least one stream")
        keys = [(topic, number) for topic, count in topic_count_map.items() for number in range(count)]
        self._join(keys, topic_count_map, STATIC, key_decoder, value_decoder)
        streams = self._member.streams
        return {topic: [streams[topic, number] for number in range(count)] for topic, count in topic_count_map.items()}

    def create_message_streams_by_filter(
        self,
        topic_filter: TopicFilter,
        num_streams: int = 1,
        *,
        key_decoder: Decoder | None = None,
        value_decoder: Decoder | None = None,
    ) -> list[MessageStream]:
        """Subscribe to all topics that a filter allows, now and later, and return streams that merge them.

        Raises as `create_message_streams`.
        """
        if num_streams < 1:
            raise ConfigError("create_message_streams_by_filter needs at least one stream")
        pattern = BLACKLIST if topic_filter.is_blacklist else WHITELIST
        keys = [("", number) for number in range(num_streams)]
        self._join(keys, {topic_filter.expression: num_streams}, pattern, key_decoder, value_decoder)
        return [self._member.streams[key] for key in keys]

    def commit_offsets(self) -> None:
        """Store the offsets of all messages that the streams have returned. Raises an `OdradekError` if that fails."""
        self._loop.run(self._member.readers.commit())

    def rewind(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Consume partitions again, or on, from other offsets. Those that this consumer does not own are ignored."""
        self._loop.run(self._member.readers.rewind(offsets))

    def shutdown(self) -> None:
        """Leave the group. With auto.commit.enable, offsets are stored. The streams end. Idempotent."""
        if not self._closed:
            self._closed = True
            self._loop.run(self._member.close())

    def _join(
        self,
        keys: list[tuple[str, int]],
        subscription: Mapping[str, int],
        pattern: str,
        key_decoder: Decoder | None,
        value_decoder: Decoder | None,
    ) -> None:
        if self._created or self._closed:
            raise ConfigError("a connector creates message streams only once, with all topics, and not after shutdown")
        self._created = True
        config, member = self._config, self._member

        async def work() -> None:
            loop = asyncio.get_running_loop()
            for key in keys:
                member.streams[key] = MessageStream(
                    loop,
                    limit=config.queued_max_message_chunks,
                    timeout_ms=config.consumer_timeout_ms,
                    key_decoder=key_decoder,
                    value_decoder=value_decoder,
                )
            await member.join(subscription, pattern)

        self._loop.run(work())


async def _connected(config: ConsumerConfig, client_settings: ClientSettings) -> _Member:
    zk = KazooZkClient(
        ZkSettings(
            connect=config.zookeeper_connect,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            connection_timeout_ms=config.zookeeper_connection_timeout_ms,
        )
    )
    try:
        await zk.start()
        cluster = await _cluster(config, zk, client_settings)
    except BaseException:
        await zk.close()
        raise
    clock = SystemClock()
    consumer_id = config.consumer_id or consumer_znodes.consumer_id(
        config.group_id, socket.gethostname(), clock.wall_ms(), uuid4()
    )
    return _Member(config, zk, cluster, consumer_id)


async def _cluster(config: ConsumerConfig, zk: ZkClient, client_settings: ClientSettings) -> Cluster:
    """Connect to the brokers that are registered in ZooKeeper."""
    protocol = client_settings.security_protocol
    addresses = await registered_addresses(zk, protocol)
    if not addresses:
        raise NetworkError(f"no broker with a listener for {protocol} is registered in {config.zookeeper_connect}")
    cluster = Cluster(
        client_settings.replace(
            bootstrap_servers=addresses,
            client_id=config.client_id or config.group_id,
            request_timeout_ms=config.socket_timeout_ms,
        )
    )
    await cluster.start()
    return cluster
