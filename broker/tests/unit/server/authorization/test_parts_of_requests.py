"""Requests of which the client may make a part, with the handlers of a broker in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

import pytest

from odradek.base.errors import (
    NONE,
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from odradek.base.types import ZERO_UUID
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.groups import DescribeGroupsRequest, FindCoordinatorRequest, ListGroupsRequest
from odradek.protocol.messages.offsets import OffsetFetchRequest
from odradek.records.v2.batch import BatchBuilder
from odradek.security.acls.model import AclOperation, ResourceType
from odradek.server.authorization.authorizer import NOT_REQUESTED
from odradek.server.dispatch import RequestContext, route
from odradek_testkit.security.grants import MINE, MY_ID, SECRET, SECRET_ID, Grants, two_topics
from odradek_testkit.server import MemoryServer

NO_ID = UUID(int=3)
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
DENIED = TopicAuthorizationFailedError.code
GROUP_DENIED = GroupAuthorizationFailedError.code
UNKNOWN = UnknownTopicOrPartitionError.code
Play = Callable[..., None]


async def metadata(server: MemoryServer, topics: Any, **options: object) -> Any:
    message: Message = {
        "topics": topics,
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
        **options,
    }
    return await server.ask(ApiKey.METADATA, 12, message)


def named(*names: str) -> list[Message]:
    return [{"name": name, "topic_id": ZERO_UUID} for name in names]


# Metadata and DescribeCluster


def test_metadata_show_only_what_may_be_described(play: Play) -> None:
    grants = Grants((AclOperation.DESCRIBE, TOPIC))

    async def scenario(server: MemoryServer) -> None:
        await two_topics(server)
        every = await metadata(server, None)
        assert [topic.name for topic in every.topics] == [MINE]
        assert grants.logged == [], "the client has not named the other topic"
        some = await metadata(server, named(MINE, SECRET, "nowhere"))
        assert [(topic.name, topic.error_code, len(topic.partitions)) for topic in some.topics] == [
            (MINE, NONE, 1),
            (SECRET, DENIED, 0),
            ("nowhere", DENIED, 0),
        ]
        by_id = await metadata(server, [{"name": None, "topic_id": each} for each in (MY_ID, SECRET_ID, NO_ID)])
        assert [(topic.name, topic.topic_id, topic.error_code) for topic in by_id.topics] == [
            (MINE, MY_ID, NONE),
            (None, SECRET_ID, DENIED),
            (None, NO_ID, UnknownTopicIdError.code),
        ]

    play(scenario, authorizer=grants)


@pytest.mark.parametrize(
    ("kind", "created"),
    [(TOPIC, {MINE}), (CLUSTER, {MINE}), (None, set())],
    ids=["on the topic", "on the cluster", "no"],
)
def test_metadata_create_only_what_may_be_created(play: Play, kind: ResourceType | None, created: set[str]) -> None:
    grants = Grants((AclOperation.DESCRIBE, TOPIC), *([(AclOperation.CREATE, kind)] if kind else []))

    async def scenario(server: MemoryServer) -> None:
        await server.announce()
        answer = await metadata(server, named(MINE, SECRET), allow_auto_topic_creation=True)
        assert {*await server.zk.children("/brokers/topics")} == created
        expected = UNKNOWN if created else DENIED
        assert [(topic.name, topic.error_code) for topic in answer.topics] == [(MINE, expected), (SECRET, DENIED)]

    play(scenario, authorizer=grants)


def test_authorized_operations_are_those_of_the_client(play: Play) -> None:
    grants = Grants((AclOperation.DESCRIBE, TOPIC), (AclOperation.READ, TOPIC), (AclOperation.ALTER, CLUSTER))

    async def scenario(server: MemoryServer) -> None:
        await two_topics(server)
        answer = await metadata(server, None, include_topic_authorized_operations=True)
        (topic,) = answer.topics
        assert topic.topic_authorized_operations == 1 << AclOperation.DESCRIBE | 1 << AclOperation.READ
        (topic,) = (await metadata(server, None)).topics
        assert topic.topic_authorized_operations == NOT_REQUESTED
        asked: Message = {"include_cluster_authorized_operations": True}
        assert (await server.ask(ApiKey.DESCRIBE_CLUSTER, 0, asked)).cluster_authorized_operations == 0
        grants.allowed.add((AclOperation.DESCRIBE, CLUSTER))
        found = (await server.ask(ApiKey.DESCRIBE_CLUSTER, 0, asked)).cluster_authorized_operations
        assert found == 1 << AclOperation.DESCRIBE | 1 << AclOperation.ALTER

    play(scenario, authorizer=grants)


# Produce and Fetch


def records() -> bytes:
    builder = BatchBuilder(limit_bytes=1 << 20)
    builder.append(None, b"value", timestamp_ms=1)
    return builder.build()


async def produce(server: MemoryServer, *topics: str) -> dict[str, int]:
    rows = [{"name": name, "partition_data": [{"index": 0, "records": records()}]} for name in topics]
    message: Message = {"transactional_id": None, "acks": -1, "timeout_ms": 1000, "topic_data": rows}
    answer = await server.ask(ApiKey.PRODUCE, 9, message)
    return {topic.name: part.error_code for topic in answer.responses for part in topic.partition_responses}


def test_records_are_appended_only_to_topics_that_may_be_written(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await two_topics(server)
        assert await produce(server, MINE, SECRET, "nowhere") == {MINE: NONE, SECRET: DENIED, "nowhere": DENIED}
        assert {*server.topic_stats.topics} == {MINE}, "there is a metric for a topic that the client made up"
        ends = {log.topic_partition.topic: log.log_end_offset for log in server.logs.logs()}
        assert ends == {MINE: 1, SECRET: 0}

    play(scenario, authorizer=Grants((AclOperation.WRITE, TOPIC)))


async def fetch(server: MemoryServer, version: int, *topics: str, epoch: int = -1, **options: object) -> Any:
    ids = {MINE: MY_ID, SECRET: SECRET_ID}
    rows = [
        {
            **({"topic_id": ids.get(name, NO_ID)} if version >= 13 else {"topic": name}),
            "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}],
        }
        for name in topics
    ]
    message: Message = {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "session_epoch": epoch,
        "topics": rows,
        "forgotten_topics_data": [],
        **options,
    }
    return await server.ask(ApiKey.FETCH, version, message)


def codes(answer: Any) -> list[int]:
    return [part.error_code for topic in answer.responses for part in topic.partitions]


@pytest.mark.parametrize(("version", "unknown"), [(4, DENIED), (12, DENIED), (13, UnknownTopicIdError.code)])
def test_only_topics_that_may_be_read_are_fetched(play: Play, version: int, unknown: int) -> None:
    async def scenario(server: MemoryServer) -> None:
        await two_topics(server)
        answer = await fetch(server, version, SECRET, MINE, "nowhere")
        assert sorted(codes(answer)) == sorted([NONE, DENIED, unknown])

    play(scenario, authorizer=Grants((AclOperation.READ, TOPIC)))


def test_a_session_follows_changes_of_the_rules(play: Play) -> None:
    grants = Grants((AclOperation.READ, TOPIC))

    async def scenario(server: MemoryServer) -> None:
        await two_topics(server)
        first = await fetch(server, 12, MINE, SECRET, epoch=0)
        assert codes(first) == [NONE, DENIED]
        session: Message = {"session_id": first.session_id}
        assert codes(await fetch(server, 12, epoch=1, **session)) == [DENIED], "an error is sent again"
        grants.allowed.clear()
        grants.generation = object()  # Entries that rest are checked again.
        assert codes(await fetch(server, 12, epoch=2, **session)) == [DENIED, DENIED], (
            "a resting entry is checked again"
        )
        grants.allowed.add((AclOperation.READ, TOPIC))
        grants.generation = object()
        assert codes(await fetch(server, 12, epoch=3, **session)) == [NONE, DENIED]

    play(scenario, authorizer=grants)


@pytest.mark.parametrize("is_allowed", [True, False])
def test_followers_need_cluster_action(play: Play, is_allowed: bool) -> None:
    grants = Grants((AclOperation.CLUSTER_ACTION, CLUSTER) if is_allowed else (AclOperation.READ, TOPIC))

    async def scenario(server: MemoryServer) -> None:
        await server.announce(MINE, {0: [1, 2]}, topic_id=MY_ID, brokers=(1, 2))
        answer = await fetch(server, 12, MINE, replica_id=2)
        assert codes(answer) == [NONE if is_allowed else DENIED]

    play(scenario, authorizer=grants)


# Topics and configurations


def test_topics_are_created_only_with_the_right(play: Play) -> None:
    grants = Grants((AclOperation.CREATE, TOPIC))

    async def scenario(server: MemoryServer) -> None:
        await server.announce()
        rows = [
            {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
            for name in (SECRET, MINE)
        ]
        message: Message = {"topics": rows, "timeout_ms": 0, "validate_only": True}
        answer = await server.ask(ApiKey.CREATE_TOPICS, 7, message)
        found = {topic.name: topic for topic in answer.topics}
        assert {name: topic.error_code for name, topic in found.items()} == {MINE: NONE, SECRET: DENIED}
        assert found[MINE].topic_config_error_code == DENIED
        assert (found[MINE].num_partitions, found[MINE].replication_factor, found[MINE].configs) == (-1, -1, ())
        grants.allowed = {(AclOperation.CREATE, CLUSTER), (AclOperation.DESCRIBE_CONFIGS, TOPIC)}
        answer = await server.ask(ApiKey.CREATE_TOPICS, 7, message)
        found = {topic.name: topic for topic in answer.topics}
        assert {topic.error_code for topic in found.values()} == {NONE}
        assert (found[MINE].topic_config_error_code, found[MINE].num_partitions) == (NONE, 1)
        assert (found[SECRET].topic_config_error_code, found[SECRET].configs) == (DENIED, ())

    play(scenario, authorizer=grants)


def test_topics_are_deleted_only_with_the_right(play: Play) -> None:
    grants = Grants((AclOperation.DELETE, TOPIC))

    async def scenario(server: MemoryServer) -> None:
        await two_topics(server)
        rows = [*named(MINE, SECRET), *({"name": None, "topic_id": each} for each in (SECRET_ID, NO_ID))]
        answer = await server.ask(ApiKey.DELETE_TOPICS, 6, {"topics": rows, "timeout_ms": 0})
        assert [(row.name, row.topic_id, row.error_code) for row in answer.responses] == [
            (MINE, MY_ID, UNKNOWN),
            (None, NO_ID, UnknownTopicIdError.code),
            (SECRET, ZERO_UUID, DENIED),
            (None, SECRET_ID, DENIED),
        ]
        grants.allowed = {(AclOperation.DESCRIBE, TOPIC)}
        rows = [{"name": None, "topic_id": MY_ID}]
        answer = await server.ask(ApiKey.DELETE_TOPICS, 6, {"topics": rows, "timeout_ms": 0})
        assert [(row.name, row.topic_id, row.error_code) for row in answer.responses] == [(MINE, MY_ID, DENIED)]

    play(scenario, authorizer=grants)


def test_configurations_of_topics_and_of_brokers_need_different_rights(play: Play) -> None:
    grants = Grants((AclOperation.DESCRIBE_CONFIGS, TOPIC))
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        for kind, name in ((4, "1"), (2, SECRET), (2, MINE))
    ]
    message: Message = {"resources": resources, "include_synonyms": False, "include_documentation": False}

    async def scenario(server: MemoryServer) -> None:
        await two_topics(server)
        found = (await server.ask(ApiKey.DESCRIBE_CONFIGS, 4, message)).results
        assert {(row.resource_name, row.error_code) for row in found} == {
            (MINE, NONE),
            (SECRET, DENIED),
            ("1", ClusterAuthorizationFailedError.code),
        }
        grants.allowed = {(AclOperation.DESCRIBE_CONFIGS, CLUSTER)}
        found = (await server.ask(ApiKey.DESCRIBE_CONFIGS, 4, message)).results
        assert {(row.resource_name, row.error_code) for row in found} == {(MINE, DENIED), (SECRET, DENIED), ("1", NONE)}

    play(scenario, authorizer=grants)


def test_offsets_are_listed_only_with_the_right(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await two_topics(server)
        rows = [
            {"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]} for name in (SECRET, MINE, "no")
        ]
        message: Message = {"replica_id": -1, "isolation_level": 0, "topics": rows}
        answer = await server.ask(ApiKey.LIST_OFFSETS, 7, message)
        found = {topic.name: part.error_code for topic in answer.topics for part in topic.partitions}
        assert found == {MINE: NONE, SECRET: DENIED, "no": DENIED}

    play(scenario, authorizer=Grants((AclOperation.DESCRIBE, TOPIC)))


# Groups


def offsets_of(*topics: str) -> list[Message]:
    return [{"name": name, "partition_indexes": [0]} for name in topics]


async def fetch_offsets(context: RequestContext, request: OffsetFetchRequest) -> Message:
    """Answer as a coordinator that has an offset of each requested partition, and of both topics if none is named."""

    def rows(topics: Iterable[Any] | None) -> list[Message]:
        names = [MINE, SECRET] if topics is None else [topic.name for topic in topics]
        part: Message = {"partition_index": 0, "committed_offset": 5, "metadata": "", "error_code": NONE}
        return [{"name": name, "partitions": [part]} for name in names]

    groups = [
        {"group_id": group.group_id, "topics": rows(group.topics), "error_code": NONE} for group in request.groups
    ]
    return {"topics": rows(request.topics), "error_code": NONE, "groups": groups}


@pytest.mark.parametrize("version", [2, 7])
@pytest.mark.parametrize("topics", [None, [SECRET, MINE]], ids=["all", "named"])
def test_offsets_of_one_group(play: Play, version: int, topics: list[str] | None) -> None:
    grants = Grants((AclOperation.DESCRIBE, GROUP), (AclOperation.DESCRIBE, TOPIC))

    async def scenario(server: MemoryServer) -> None:
        message: Message = {"group_id": MINE, "topics": None if topics is None else offsets_of(*topics)}
        answer = await server.ask(ApiKey.OFFSET_FETCH, version, message)
        found = {topic.name: part.error_code for topic in answer.topics for part in topic.partitions}
        assert found == ({MINE: NONE} if topics is None else {MINE: NONE, SECRET: DENIED})
        refused = await server.ask(ApiKey.OFFSET_FETCH, version, {**message, "group_id": SECRET})
        assert refused.error_code == GROUP_DENIED
        assert {part.committed_offset for topic in refused.topics for part in topic.partitions} <= {-1}

    play(scenario, authorizer=grants, replace=dict([route(OffsetFetchRequest, fetch_offsets)]))


def test_offsets_of_several_groups(play: Play) -> None:
    grants = Grants((AclOperation.DESCRIBE, GROUP), (AclOperation.DESCRIBE, TOPIC))

    async def scenario(server: MemoryServer) -> None:
        groups = [
            {"group_id": SECRET, "topics": offsets_of(MINE)},
            {"group_id": MINE, "topics": offsets_of(SECRET, MINE)},
        ]
        answer = await server.ask(ApiKey.OFFSET_FETCH, 8, {"groups": groups})
        found = {
            group.group_id: (group.error_code, {topic.name: topic.partitions[0].error_code for topic in group.topics})
            for group in answer.groups
        }
        assert found == {MINE: (NONE, {MINE: NONE, SECRET: DENIED}), SECRET: (GROUP_DENIED, {})}
        answer = await server.ask(ApiKey.OFFSET_FETCH, 8, {"groups": [{"group_id": MINE, "topics": None}]})
        assert [topic.name for topic in answer.groups[0].topics] == [MINE]

    play(scenario, authorizer=grants, replace=dict([route(OffsetFetchRequest, fetch_offsets)]))


async def describe_groups(context: RequestContext, request: DescribeGroupsRequest) -> Message:
    rest: Message = {"group_state": "Stable", "protocol_type": "", "protocol_data": "", "members": ()}
    return {"groups": [{"group_id": group, "error_code": NONE, **rest} for group in request.groups]}


async def list_groups(context: RequestContext, request: ListGroupsRequest) -> Message:
    rest: Message = {"protocol_type": "", "group_state": "", "group_type": ""}
    return {"error_code": NONE, "groups": [{"group_id": group, **rest} for group in (MINE, SECRET)]}


async def find_coordinators(context: RequestContext, request: FindCoordinatorRequest) -> Message:
    place: Message = {"node_id": 1, "host": "h", "port": 1, "error_code": NONE, "error_message": ""}
    return {**place, "coordinators": [{"key": key, **place} for key in request.coordinator_keys]}


async def describe_consumer_groups(context: RequestContext, request: ConsumerGroupDescribeRequest) -> Message:
    def assignment(topic: str) -> Message:
        return {"topic_partitions": [{"topic_id": MY_ID, "topic_name": topic, "partitions": [0]}]}

    groups = []
    for group in request.group_ids:
        member: Message = {
            "member_id": "member",
            "member_epoch": 1,
            "client_id": "",
            "client_host": "",
            "subscribed_topic_names": (),
            "assignment": assignment(MINE),
            "target_assignment": assignment(context.client_id or MINE),
        }
        rest: Message = {"group_state": "Stable", "group_epoch": 1, "assignment_epoch": 1, "assignor_name": "range"}
        groups.append({"error_code": NONE, "group_id": group, "members": [member], **rest})
    return {"groups": groups}


@pytest.mark.parametrize("topic", [MINE, SECRET])
def test_consumer_groups_whose_topics_may_be_described(play: Play, topic: str) -> None:
    grants = Grants((AclOperation.DESCRIBE, GROUP), (AclOperation.DESCRIBE, TOPIC))

    async def handler(context: RequestContext, request: ConsumerGroupDescribeRequest) -> Message:
        return await describe_consumer_groups(dataclasses.replace(context, client_id=topic), request)

    async def scenario(server: MemoryServer) -> None:
        message: Message = {"group_ids": [SECRET, MINE], "include_authorized_operations": True}
        found = (await server.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, message)).groups
        assert {group.group_id: group.error_code for group in found} == {
            SECRET: GROUP_DENIED,
            MINE: NONE if topic == MINE else DENIED,
        }
        (mine,) = (group for group in found if group.group_id == MINE)
        assert len(mine.members) == (topic == MINE)
        assert mine.authorized_operations == (1 << AclOperation.DESCRIBE if topic == MINE else NOT_REQUESTED)
        assert grants.logged.count(SECRET) == 1, "the client has not named the topic"

    play(scenario, authorizer=grants, replace=dict([route(ConsumerGroupDescribeRequest, handler)]))


@pytest.mark.parametrize(
    ("group", "topics", "code"),
    [(MINE, [MINE], NONE), (MINE, None, NONE), (MINE, [MINE, SECRET], DENIED), (SECRET, [MINE], GROUP_DENIED)],
)
def test_members_of_consumer_groups_name_topics_that_they_may_describe(
    play: Play, group: str, topics: list[str] | None, code: int
) -> None:
    async def handler(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> Message:
        return {"throttle_time_ms": 0, "error_code": NONE, "member_epoch": 1, "heartbeat_interval_ms": 5000}

    async def scenario(server: MemoryServer) -> None:
        message: Message = {
            "group_id": group,
            "member_id": "one",
            "member_epoch": 0,
            "subscribed_topic_names": topics,
        }
        answer = await server.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, message)
        assert answer.error_code == code

    grants = Grants((AclOperation.READ, GROUP), (AclOperation.DESCRIBE, TOPIC))
    play(scenario, authorizer=grants, replace=dict([route(ConsumerGroupHeartbeatRequest, handler)]))


def test_groups_that_may_be_described(play: Play) -> None:
    grants = Grants((AclOperation.DESCRIBE, GROUP))
    handlers = dict(
        [
            route(DescribeGroupsRequest, describe_groups),
            route(ListGroupsRequest, list_groups),
            route(FindCoordinatorRequest, find_coordinators),
        ]
    )

    async def scenario(server: MemoryServer) -> None:
        message: Message = {"groups": [SECRET, MINE], "include_authorized_operations": True}
        found = (await server.ask(ApiKey.DESCRIBE_GROUPS, 5, message)).groups
        assert {(group.group_id, group.error_code, group.authorized_operations) for group in found} == {
            (MINE, NONE, 1 << AclOperation.DESCRIBE),
            (SECRET, GROUP_DENIED, NOT_REQUESTED),
        }
        listed = await server.ask(ApiKey.LIST_GROUPS, 4, {"states_filter": []})
        assert [group.group_id for group in listed.groups] == [MINE]
        keys: Message = {"key_type": 0, "coordinator_keys": [SECRET, MINE]}
        found = (await server.ask(ApiKey.FIND_COORDINATOR, 4, keys)).coordinators
        assert {(one.key, one.error_code, one.node_id) for one in found} == {
            (MINE, NONE, 1),
            (SECRET, GROUP_DENIED, -1),
        }
        one = await server.ask(ApiKey.FIND_COORDINATOR, 3, {"key_type": 0, "key": SECRET})
        assert (one.error_code, one.node_id) == (GROUP_DENIED, -1)
        grants.allowed.add((AclOperation.DESCRIBE, CLUSTER))
        listed = await server.ask(ApiKey.LIST_GROUPS, 4, {"states_filter": []})
        assert [group.group_id for group in listed.groups] == [MINE, SECRET]

    play(scenario, authorizer=grants, replace=handlers)


def test_the_right_to_a_transactional_id_is_required_for_transactional_records(play: Play) -> None:
    def batch(sequence: int, *, is_transactional: bool) -> bytes:
        builder = BatchBuilder(limit_bytes=1 << 20)
        builder.append(None, b"v", timestamp_ms=0)
        return builder.build(producer_id=7, producer_epoch=0, base_sequence=sequence, is_transactional=is_transactional)

    async def scenario(server: MemoryServer) -> None:
        await two_topics(server)

        async def produce(transactional_id: str, *parts: tuple[str, bytes]) -> dict[str, Any]:
            topics = [{"name": topic, "partition_data": [{"index": 0, "records": records}]} for topic, records in parts]
            message = {"transactional_id": transactional_id, "acks": 1, "timeout_ms": 1000, "topic_data": topics}
            answer = await server.ask(ApiKey.PRODUCE, 9, message)
            return {topic.name: topic.partition_responses[0] for topic in answer.responses}

        plain, transactional = batch(0, is_transactional=False), batch(0, is_transactional=True)
        answer = await produce(SECRET, (MINE, transactional), (SECRET, plain))
        assert {part.error_code for part in answer.values()} == {TransactionalIdAuthorizationFailedError.code}
        assert "transactional id" in answer[MINE].error_message
        answer = await produce(SECRET, (MINE, plain))
        assert answer[MINE].error_code == NONE, "as in Kafka"
        answer = await produce(MINE, (MINE, batch(1, is_transactional=True)), (SECRET, transactional))
        assert {topic: part.error_code for topic, part in answer.items()} == {MINE: NONE, SECRET: DENIED}

    write = AclOperation.WRITE
    play(scenario, authorizer=Grants((write, TOPIC), (write, ResourceType.TRANSACTIONAL_ID)))
