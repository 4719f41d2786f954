"""The handlers of group requests over a coordinator in memory, in virtual time.

Requests and responses are encoded and decoded, as over a connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from odradek.base.errors import (
    MemberIdRequiredError,
    ProtocolError,
)
from odradek.base.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, ZERO_UUID, Endpoint, TopicPartition
from odradek.cluster import AnnouncedBroker, ClusterImage, MetadataCache, PartitionMetadata
from odradek.coordinator.coordinator_ports import TransactionalWriter
from odradek.coordinator.coordinator_runtime import CoordinatorRuntime
from odradek.coordinator.groups.consumer.cluster_topics import ClusterTopics
from odradek.coordinator.groups.group_coordinator import GroupCoordinator
from odradek.coordinator.groups.group_shard import GroupShard
from odradek.metrics.request_stats import RequestStats
from odradek.protocol import codec
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.security.principals import ANONYMOUS, Identity
from odradek.server.authorization.authorizer import Authorizer
from odradek.server.dispatch import RequestContext
from odradek.server.failures import failure
from odradek.server.groups.consumer_group_handlers import ConsumerGroupHandlers
from odradek.server.groups.group_handlers import GroupHandlers
from odradek.server.groups.heartbeats import HeartbeatHandler
from odradek.server.groups.offset_handlers import OffsetCoordinationHandlers
from odradek.server.groups.zookeeper_offsets import ZooKeeperOffsets
from odradek.server.throttling.client_throttle import ClientThrottle
from odradek.testing.memory_zk import MemoryZk
from odradek.zk.quotas import ClientQuotas
from odradek_testkit.groups import RANGE, SETTINGS, MemoryPartition
from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.server import Peer

METADATA = RANGE[0][1]
TRANSACTIONS_PARTITION = TopicPartition(TRANSACTION_STATE_TOPIC, 3)
OFFSETS_PARTITIONS = [TopicPartition(GROUP_METADATA_TOPIC, number) for number in range(2)]
STATE = PartitionMetadata(leader=1, leader_epoch=0, isr=(1,), replicas=(1,))
FULL_RANGE = {key: range(row.min_version, row.max_version + 1) for key, row in API_TABLE.items()}


def image(*topic_partitions: TopicPartition) -> ClusterImage:
    endpoints = (Endpoint("INTERNAL", "inside", 9091), Endpoint("PLAINTEXT", "outside", 9092))
    return ClusterImage().updated(
        controller_id=1,
        brokers=[AnnouncedBroker(broker_id=1, endpoints=endpoints)],
        partitions=[(topic_partition, ZERO_UUID, STATE) for topic_partition in topic_partitions],
    )


EVENTS = (TopicPartition("events", 0), TopicPartition("events", 1))


class Server:
    """Handlers over a coordinator in memory; requests and responses are encoded and decoded."""

    def __init__(self, authorizer: Authorizer | None = None) -> None:
        self.clock = VirtualClock()
        self.zk = MemoryZk()
        self.partition = MemoryPartition()
        self.view = MetadataCache()
        self.view.image = image(*EVENTS, *OFFSETS_PARTITIONS)
        self.ensured: list[str] = []
        self.refusal: ProtocolError | None = None
        self.verified: list[tuple[TopicPartition, TransactionalWriter]] = []
        self.unverified: ProtocolError | None = None
        """The error of verifications."""
        runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            writer=self.partition, reader=self.partition, clock=self.clock, batch_limit_bytes=1 << 20
        )
        self.groups = GroupCoordinator(
            settings=replace(SETTINGS, initial_rebalance_delay_ms=100),
            clock=self.clock,
            runtime=runtime,
            partition_count=lambda: len(OFFSETS_PARTITIONS),
            verify=self.verify,
            topics=ClusterTopics(lambda: self.view.image),
        )
        self.offsets = OffsetCoordinationHandlers(
            groups=self.groups,
            view=self.view,
            zookeeper_offsets=ZooKeeperOffsets(self.zk, metadata_max=SETTINGS.offset_metadata_max),
        )
        members = GroupHandlers(
            groups=self.groups,
            transactions=lambda transactional_id: TRANSACTIONS_PARTITION,
            view=self.view,
            ensure_topic=self.ensure,
        )
        consumers = ConsumerGroupHandlers(
            groups=self.groups, view=self.view, clock=self.clock, heartbeat_interval_ms=5000
        )
        self.stats = RequestStats()
        self.quotas = ClientQuotas(self.zk, self.clock)
        self.throttle = ClientThrottle(self.quotas, self.clock)
        heartbeats = HeartbeatHandler(
            groups=self.groups,
            stats=self.stats,
            clock=self.clock,
            authorizer=authorizer,
            throttle=self.throttle,
        )
        self.peer = Peer(heartbeats.handle, self.clock)
        """The client of the APIs with direct handlers."""
        self.direct = heartbeats.direct()
        self.handlers = {
            **members.handlers(),
            **consumers.handlers(),
            **self.offsets.handlers(),
        }

    async def verify(self, partition: TopicPartition, writer: TransactionalWriter) -> TransactionalWriter:
        self.verified.append((partition, writer))
        if self.unverified is not None:
            raise self.unverified
        return writer

    async def ensure(self, name: str) -> None:
        self.ensured.append(name)
        if self.refusal is not None:
            raise self.refusal

    async def lead(self) -> None:
        for partition in OFFSETS_PARTITIONS:
            self.groups.on_leader(partition, 0)
        await self.clock.sleep_ms(1)

    async def ask(self, key: ApiKey, version: int, message: Mapping[str, object], listener: str = "PLAINTEXT") -> Any:
        """Return the decoded response, as a client that uses this version sees it."""
        if key in self.direct:
            return await self.peer.ask(key, version, message)
        frame = codec.encode_request(key, version, 5, "tester", message)[4:]
        header, position = codec.decode_header(frame)
        request = codec.decode_request(header, frame, position)
        context = RequestContext(
            api_key=key,
            api_version=version,
            client_id="tester",
            client_host="10.0.0.1",
            listener=listener,
            identity=Identity(ANONYMOUS, "10.0.0.1", listener, "PLAINTEXT"),
        )
        try:
            answer: Mapping[str, object] | None = await self.handlers[key](context, request)
        except ProtocolError as error:
            answer = failure(key, version, request, error)
        assert answer is not None
        return codec.decode_response(key, version, codec.encode_response(key, version, 5, answer)[4:])

    async def join(self, version: int, group_id: str = "group", **changes: object) -> Any:
        message: dict[str, object] = {
            "group_id": group_id,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "member_id": "",
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": METADATA}],
            "reason": "test",
        }
        return await self.ask(ApiKey.JOIN_GROUP, version, message | changes)

    async def member(self, version: int, group_id: str = "group", **changes: object) -> Any:
        """Send JoinGroup, and repeat it with the member id of the response, as KIP-394 requires."""
        answer = await self.join(version, group_id, **changes)
        if answer.error_code == MemberIdRequiredError.code:
            answer = await self.join(version, group_id, **(changes | {"member_id": answer.member_id}))
        return answer

    async def sync(self, version: int, joined: Any, **changes: object) -> Any:
        message: dict[str, object] = {
            "group_id": "group",
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [{"member_id": joined.member_id, "assignment": b"mine"}],
        }
        return await self.ask(ApiKey.SYNC_GROUP, version, message | changes)

    async def stable(self, **changes: object) -> Any:
        joined = await self.member(9, "group", **changes)
        await self.sync(5, joined, group_instance_id=changes.get("group_instance_id"))
        return joined

    async def commit(self, version: int, offsets: Mapping[TopicPartition, int], **changes: object) -> dict[Any, int]:
        topics: dict[str, list[object]] = {}
        for (topic, number), offset in offsets.items():
            topics.setdefault(topic, []).append(
                {
                    "partition_index": number,
                    "committed_offset": offset,
                    "committed_leader_epoch": 4,
                    "committed_metadata": None,
                }
            )
        message: dict[str, object] = {
            "group_id": "group",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "retention_time_ms": -1,
            "topics": [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()],
        }
        answer = await self.ask(ApiKey.OFFSET_COMMIT, version, message | changes)
        return {
            TopicPartition(topic.name, partition.partition_index): int(partition.error_code)
            for topic in answer.topics
            for partition in topic.partitions
        }


def virtual(
    test: Callable[[Server], Awaitable[None]], *, leads: bool = True, authorizer: Authorizer | None = None
) -> None:
    async def main() -> None:
        server = Server(authorizer)
        try:
            if leads:
                await server.lead()
            await test(server)
        finally:
            await server.groups.close()

    run_virtual(main())
