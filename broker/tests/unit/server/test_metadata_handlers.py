"""ApiVersions, Metadata, DescribeCluster and DescribeLogDirs in every version."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from odradek.base.config import BrokerConfig
from odradek.base.errors import (
    NONE,
    BrokerNotAvailableError,
    CoordinatorNotAvailableError,
    InvalidRequestError,
    InvalidTopicError,
    LeaderNotAvailableError,
    ListenerNotFoundError,
    NetworkError,
    ReplicaNotAvailableError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from odradek.base.types import ZERO_UUID, Endpoint, TopicPartition
from odradek.cluster import AnnouncedBroker, ClusterImage, PartitionMetadata
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import Message
from odradek.zk.port import ConnectionLost
from odradek_testkit.server import CLUSTER_ID, MemoryServer, Peer

ID = UUID(int=77)
WAIT_MS = BrokerConfig().initial_metadata_wait_max_ms
DESCRIBE_CLUSTER: Message = {"include_cluster_authorized_operations": False}
METADATA_VERSIONS = range(API_TABLE[ApiKey.METADATA].min_version, API_TABLE[ApiKey.METADATA].max_version + 1)


def named(*names: str | None, topic_id: UUID | None = None) -> list[Message]:
    return [{"name": name, "topic_id": topic_id} for name in names]


async def ask(
    server: MemoryServer, version: int, topics: list[Message] | None, by: Peer | None = None, **options: object
) -> Any:
    message = {
        "topics": topics,
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
        **options,
    }
    return await (by or server).ask(ApiKey.METADATA, version, message)


@pytest.mark.parametrize("version", METADATA_VERSIONS)
def test_topics_brokers_and_controller(play: Callable[..., None], version: int) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1, 2], 1: [2, 1]}, topic_id=ID, leader_epoch=4, brokers=(1, 2))
        answer = await ask(server, version, named("t", "nowhere", "bad name", "t"))
        codes = [(topic.error_code, topic.name) for topic in answer.topics]
        assert codes == [
            (NONE, "t"),
            (UnknownTopicOrPartitionError.code, "nowhere"),
            (InvalidTopicError.code, "bad name"),
        ]
        found = answer.topics[0]
        assert [
            (part.partition_index, part.leader_id, part.replica_nodes, part.isr_nodes) for part in found.partitions
        ] == [(0, 1, (1, 2), (1, 2)), (1, 2, (2, 1), (2, 1))]
        assert [(each.node_id, each.host, each.port) for each in answer.brokers] == [
            (1, "host-1", 9092),
            (2, "host-2", 9093),
        ]
        if version >= 1:
            assert answer.controller_id == 1
            assert not found.is_internal
        if version >= 2:
            assert answer.cluster_id == CLUSTER_ID
        if version >= 7:
            assert {part.leader_epoch for part in found.partitions} == {4}
        if version >= 10:
            assert found.topic_id == ID

    play(scenario)


def test_a_broker_without_metadata_answers_when_the_controller_has_sent_it(play: Callable[..., None]) -> None:
    """A response without brokers would make clients forget the cluster."""

    async def scenario(server: MemoryServer) -> None:
        metadata = asyncio.ensure_future(
            ask(server, METADATA_VERSIONS[-1], named("t", "bad name"), by=server.connect())
        )
        cluster = asyncio.ensure_future(server.connect().ask(ApiKey.DESCRIBE_CLUSTER, 0, DESCRIBE_CLUSTER))
        await server.clock.sleep_ms(WAIT_MS / 2)
        assert not metadata.done()
        await server.announce("t", {0: [1]})
        assert [topic.error_code for topic in (await metadata).topics] == [NONE, InvalidTopicError.code]
        assert [each.node_id for each in (await metadata).brokers] == [1]
        assert [each.broker_id for each in (await cluster).brokers] == [1]

    play(scenario)


@pytest.mark.parametrize("wait_ms", [0, 1, 250, 60_000])
def test_a_request_waits_for_the_metadata_as_long_as_the_setting_allows(
    play: Callable[..., None], wait_ms: int
) -> None:
    async def scenario(server: MemoryServer) -> None:
        began_ms = server.clock.monotonic_ms()
        answer = await server.connect().ask(ApiKey.DESCRIBE_CLUSTER, 0, DESCRIBE_CLUSTER)
        assert answer.error_code == BrokerNotAvailableError.code
        assert server.clock.monotonic_ms() - began_ms == pytest.approx(wait_ms)

    play(scenario, settings={"initial.metadata.wait.max.ms": str(wait_ms)})


def test_a_broker_that_gets_no_metadata_refuses(play: Callable[..., None]) -> None:
    async def scenario(server: MemoryServer) -> None:
        cluster = await server.connect().ask(ApiKey.DESCRIBE_CLUSTER, 0, DESCRIBE_CLUSTER)
        assert cluster.error_code == BrokerNotAvailableError.code
        with pytest.raises(NetworkError, match="closed"):
            await ask(server, METADATA_VERSIONS[-1], named("t"), by=server.connect())
        await server.announce("t", {0: [1]})
        assert [each.node_id for each in (await ask(server, METADATA_VERSIONS[-1], None)).brokers] == [1]

    play(scenario)


def test_no_topics_means_all_in_version_0_and_none_later(play: Callable[..., None]) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        assert [len((await ask(server, version, [])).topics) for version in (0, 1, 12)] == [1, 0, 0]
        assert [len((await ask(server, version, None)).topics) for version in (1, 9, 12)] == [1, 1, 1]

    play(scenario)


def test_topics_by_id(play: Callable[..., None]) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]}, topic_id=ID)
        known, unknown = (await ask(server, 12, named(None, topic_id=ID) + named(None, topic_id=UUID(int=5)))).topics
        assert (known.error_code, known.name, known.topic_id) == (NONE, "t", ID)
        assert (unknown.error_code, unknown.name, unknown.topic_id) == (UnknownTopicIdError.code, None, UUID(int=5))

    play(scenario)


@pytest.mark.parametrize(("version", "topics"), [(10, named(None)), (11, named("t", topic_id=ID)), (12, named(None))])
def test_a_request_without_a_topic_name_is_refused(
    play: Callable[..., None], version: int, topics: list[Message]
) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce()
        (topic,) = (await ask(server, version, topics)).topics
        assert topic.error_code == InvalidRequestError.code

    play(scenario)


@pytest.mark.parametrize(
    ("version", "leader", "code"),
    [
        (12, 9, LeaderNotAvailableError.code),
        (12, -1, LeaderNotAvailableError.code),
        (5, 2, LeaderNotAvailableError.code),
        (6, 2, ListenerNotFoundError.code),
        (12, 1, NONE),
        (0, 1, ReplicaNotAvailableError.code),
    ],
)
def test_leaders_that_a_client_cannot_reach(play: Callable[..., None], version: int, leader: int, code: int) -> None:
    """Broker 2 does not have the client's listener, and broker 9 is dead."""

    async def scenario(server: MemoryServer) -> None:
        state = PartitionMetadata(leader=leader, leader_epoch=0, isr=(1, 2, 9), replicas=(1, 2, 9))
        brokers = [
            AnnouncedBroker(broker_id=1, endpoints=(Endpoint("PLAINTEXT", "one", 1),)),
            AnnouncedBroker(broker_id=2, endpoints=(Endpoint("OTHER", "two", 2),)),
        ]
        server.view.image = ClusterImage().updated(
            controller_id=1, brokers=brokers, partitions=[(TopicPartition("t", 0), ID, state)]
        )
        answer = await ask(server, version, named("t"))
        assert [each.node_id for each in answer.brokers] == [1]
        (part,) = answer.topics[0].partitions
        assert part.error_code == code
        assert part.leader_id == (leader if code in (NONE, ReplicaNotAvailableError.code) else -1)
        alive = (1, 2, 9) if version else (1, 2)
        assert (part.replica_nodes, part.isr_nodes) == (alive, alive)
        if version >= 5:
            assert part.offline_replicas == (9,)

    play(scenario)


def test_authorized_operations_are_returned_on_request(play: Callable[..., None]) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        silent = await ask(server, 8, named("t"))
        assert (silent.cluster_authorized_operations, silent.topics[0].topic_authorized_operations) == (-(2**31),) * 2
        asked = await ask(
            server,
            8,
            named("t"),
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        )
        # The response of Apache Kafka 3.9 without an authorizer.
        assert (asked.cluster_authorized_operations, asked.topics[0].topic_authorized_operations) == (8096, 3576)

    play(scenario)


@pytest.mark.parametrize(
    ("enabled", "allowed", "made"), [("true", True, True), ("true", False, False), ("false", True, False)]
)
def test_missing_topics_are_created_if_client_and_broker_allow_it(
    play: Callable[..., None], enabled: str, allowed: bool, made: bool
) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce()
        answer = await ask(server, 12, named("new", "no good"), allow_auto_topic_creation=allowed)
        assert [topic.error_code for topic in answer.topics] == [
            UnknownTopicOrPartitionError.code,
            InvalidTopicError.code,
        ]
        assert await server.zk.children("/brokers/topics") == (["new"] if made else [])

    play(scenario, settings={"auto.create.topics.enable": enabled})


def test_metadata_is_returned_although_a_topic_cannot_be_created(play: Callable[..., None]) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        server.zk.failures = [ConnectionLost("gone")] * 9
        answer = await ask(server, 12, named("t", "new", "__transaction_state"), allow_auto_topic_creation=True)
        missing = UnknownTopicOrPartitionError.code
        assert [topic.error_code for topic in answer.topics] == [NONE, missing, missing]
        server.zk.failures.clear()
        assert await server.zk.children("/brokers/topics") == []

    play(scenario)


@pytest.mark.parametrize("version", [0, 3, 4])
def test_api_versions(play: Callable[..., None], version: int) -> None:
    async def scenario(server: MemoryServer) -> None:
        software: Message = {"client_software_name": "apache-kafka-java", "client_software_version": "3.9.1"}
        answer = await server.ask(ApiKey.API_VERSIONS, version, software)
        assert answer.error_code == NONE
        ranges = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        assert ranges == {row.key: (row.min_version, row.max_version) for row in API_TABLE.values() if not row.private}

    play(scenario)


@pytest.mark.parametrize(
    ("version", "name", "is_shown"), [(4, "odradek", True), (3, "odradek-x", True), (4, "x", False)]
)
def test_only_own_clients_see_and_use_private_apis(
    play: Callable[..., None], version: int, name: str, is_shown: bool
) -> None:
    async def scenario(server: MemoryServer) -> None:
        software: Message = {"client_software_name": name, "client_software_version": "1"}
        answer = await server.ask(ApiKey.API_VERSIONS, version, software)
        shown = {each.api_key for each in answer.api_keys}
        assert (ApiKey.PREPARE_TXN in shown) == is_shown
        message = {"transactional_id": "tx", "producer_id": 1, "producer_epoch": 0}
        if is_shown:
            answer = await server.ask(ApiKey.PREPARE_TXN, 0, message)
            assert answer.error_code == CoordinatorNotAvailableError.code, "this server has no coordinators"
            return
        with pytest.raises(NetworkError):
            await server.ask(ApiKey.PREPARE_TXN, 0, message)
        assert server.peer.is_aborted

    play(scenario)


def test_a_client_that_names_no_software_has_no_private_apis(play: Callable[..., None]) -> None:
    async def scenario(server: MemoryServer) -> None:
        answer = await server.ask(ApiKey.API_VERSIONS, 0, {})
        assert ApiKey.PREPARE_TXN not in {each.api_key for each in answer.api_keys}
        with pytest.raises(NetworkError):
            await server.ask(ApiKey.PREPARE_TXN, 0, {"transactional_id": "tx", "producer_id": 1, "producer_epoch": 0})

    play(scenario)


@pytest.mark.parametrize("name", ["", "-x", "a b", "x\n"])
def test_api_versions_checks_the_name_of_the_software(play: Callable[..., None], name: str) -> None:
    async def scenario(server: MemoryServer) -> None:
        for software in ((name, "1"), ("x", name)):
            message = dict(zip(("client_software_name", "client_software_version"), software, strict=True))
            answer = await server.ask(ApiKey.API_VERSIONS, 3, message)
            assert answer.error_code == InvalidRequestError.code

    play(scenario)


@pytest.mark.parametrize(("endpoint_type", "code"), [(1, NONE), (2, 114), (3, 115)])
def test_describe_cluster(play: Callable[..., None], endpoint_type: int, code: int) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce()
        message = {"include_cluster_authorized_operations": True, "endpoint_type": endpoint_type}
        answer = await server.ask(ApiKey.DESCRIBE_CLUSTER, 1, message)
        assert answer.error_code == code
        assert (answer.cluster_id, answer.endpoint_type) == (CLUSTER_ID, 1)
        assert [each.broker_id for each in answer.brokers] == ([1] if code == NONE else [])

    play(scenario)


def test_log_directories(play: Callable[..., None]) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1], 1: [1]}, topic_id=ZERO_UUID)
        some = [{"topic": "t", "partitions": [1, 5]}, {"topic": "nowhere", "partitions": [0]}]
        for wanted, partitions in ((None, [0, 1]), (some, [1]), ([], [])):
            answer = await server.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": wanted})
            (directory,) = answer.results
            assert (answer.error_code, directory.error_code) == (NONE, NONE)
            assert directory.total_bytes >= directory.usable_bytes > 0
            found = sorted(
                (part.partition_index, part.partition_size, part.offset_lag)
                for topic in directory.topics
                for part in topic.partitions
            )
            assert found == [(number, 0, 0) for number in partitions]

    play(scenario)
