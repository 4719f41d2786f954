"""CreateTopics, CreatePartitions and DeleteTopics: error codes, order of checks, and the wait for the image."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from odradek.base.errors import (
    NONE,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    NetworkError,
    NotControllerError,
    PolicyViolationError,
    RequestTimedOutError,
    TopicAlreadyExistsError,
    TopicDeletionDisabledError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from odradek.base.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, ZERO_UUID, Endpoint
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import Message
from odradek.security.principals import ANONYMOUS, Identity
from odradek.server.dispatch import RequestContext
from odradek.zk import layout, registration
from odradek.zk.layout import TopicAssignment
from odradek.zk.port import ConnectionLost, ZkClient
from odradek_testkit.server import MemoryServer

Play = Callable[..., None]
ID = UUID(int=77)


def new(name: str, partitions: int = 2, factor: int = 1, **more: object) -> Message:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": factor,
        "assignments": [],
        "configs": [],
        **more,
    }


def assigned(*replicas: list[int]) -> list[Message]:
    return [{"partition_index": number, "broker_ids": brokers} for number, brokers in enumerate(replicas)]


def setting(name: str, value: str | None) -> Message:
    return {"name": name, "value": value}


async def create(
    server: MemoryServer, *topics: Message, version: int = 7, timeout: int = 1000, dry: bool = False
) -> Any:
    message = {"topics": topics, "timeout_ms": timeout, "validate_only": dry}
    return (await server.ask(ApiKey.CREATE_TOPICS, version, message)).topics


async def stored(server: MemoryServer, name: str) -> TopicAssignment:
    return TopicAssignment.decode(name, (await server.zk.get(layout.topic_path(name)))[0])


async def settled() -> None:
    """Run all tasks that are ready."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("version", range(API_TABLE[ApiKey.CREATE_TOPICS].min_version, 8))
def test_a_topic_is_created_and_waited_for(play: Play, version: int) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce(brokers=(1, 2))
        client, controller = server.connect(), server
        wanted = new("t", 3, 2, configs=[setting("retention.ms", "5")])
        message = {"topics": [wanted], "timeout_ms": 60_000, "validate_only": False}
        asking = asyncio.ensure_future(client.ask(ApiKey.CREATE_TOPICS, version, message))
        await settled()
        topic = await stored(server, "t")
        replicas = {number: list(each.replicas) for number, each in topic.partitions.items()}
        assert {number: len(set(each)) for number, each in replicas.items()} == {0: 2, 1: 2, 2: 2}
        assert not asking.done()
        assert topic.topic_id is not None
        await controller.announce("t", replicas, topic_id=topic.topic_id, brokers=(1, 2))
        (made,) = (await asking).topics
        assert (made.name, made.error_code) == ("t", NONE)
        assert server.topics.purgatory.size == 0
        if version >= 5:
            assert (made.num_partitions, made.replication_factor) == (3, 2)
            entries = {entry.name: (entry.value, entry.config_source) for entry in made.configs}
            assert entries["retention.ms"] == ("5", 1)
            assert entries["cleanup.policy"] == ("delete", 5)
        if version >= 7:
            assert made.topic_id == topic.topic_id
        assert server.configs.topic_config("t").retention_ms == 5

    play(scenario)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (new("t"), TopicAlreadyExistsError.code),
        (new("t", 0, 9, configs=[setting("x", None)]), TopicAlreadyExistsError.code),
        (new("n", configs=[setting("retention.ms", None)]), InvalidConfigError.code),
        (new("n", assignments=assigned([1])), InvalidRequestError.code),
        (new("n", -1, 2, assignments=assigned([1])), InvalidRequestError.code),
        (new("n", 0), InvalidPartitionsError.code),
        (new("n", 10_001), PolicyViolationError.code),
        (new("n", 1, 0), InvalidReplicationFactorError.code),
        (new("bad name", 1, 3), InvalidReplicationFactorError.code),
        (new("bad name", configs=[setting("x", "y")]), InvalidTopicError.code),
        (new(""), InvalidTopicError.code),
        (new("a_b"), InvalidTopicError.code),
        (new("n", -1, -1, assignments=assigned([1], [1, 2])), InvalidReplicaAssignmentError.code),
        (new("n", -1, -1, assignments=assigned([1, 1])), InvalidReplicaAssignmentError.code),
        (new("n", -1, -1, assignments=assigned([7])), InvalidReplicaAssignmentError.code),
        (new("n", -1, -1, assignments=assigned([1])[:1] * 2), InvalidReplicaAssignmentError.code),
        (
            new("n", -1, -1, assignments=[{"partition_index": 1, "broker_ids": [1]}]),
            InvalidReplicaAssignmentError.code,
        ),
        (new("n", configs=[setting("retention.ms", "soon")]), InvalidConfigError.code),
        (new("n", configs=[setting("no.such.key", "1")]), InvalidConfigError.code),
        (new("n", -1, -1), NONE),
        (new("n", -1, -1, assignments=assigned([2, 1], [1, 2])), NONE),
    ],
)
def test_checks_of_new_topics_and_their_order(play: Play, topic: Message, code: int) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]}, brokers=(1, 2))
        await server.announce("a.b", {0: [1]}, brokers=(1, 2))
        (answer,) = await create(server, topic, dry=True)
        assert answer.error_code == code
        assert (answer.error_message is None) is (code == NONE)
        assert await server.zk.children("/brokers/topics") == []

    play(scenario)


def test_a_duplicate_topic_is_refused_and_others_are_not(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce()
        answers = await create(server, new("t"), new("n"), new("t"), dry=True)
        codes = {(answer.name, answer.error_code) for answer in answers}
        assert codes == {("t", InvalidRequestError.code), ("n", NONE)}
        assert len(answers) == 3

    play(scenario)


@pytest.mark.parametrize(
    ("api_key", "message"),
    [
        (ApiKey.CREATE_TOPICS, {"topics": [new("t")], "timeout_ms": 1, "validate_only": False}),
        (ApiKey.CREATE_PARTITIONS, {"topics": [{"name": "t", "count": 2, "assignments": None}], "timeout_ms": 1}),
        (ApiKey.DELETE_TOPICS, {"topics": [{"name": "t", "topic_id": None}], "timeout_ms": 1}),
    ],
)
def test_only_the_controller_answers(play: Play, api_key: ApiKey, message: Message) -> None:
    async def scenario(server: MemoryServer) -> None:
        server.controller.is_active = False
        more = {"validate_only": False} if api_key is ApiKey.CREATE_PARTITIONS else {}
        version = API_TABLE[api_key].max_version
        answer = await server.ask(api_key, version, {**message, **more})
        (item,) = getattr(answer, "topics", None) or getattr(answer, "results", None) or answer.responses
        assert (item.name, item.error_code) == ("t", NotControllerError.code)

    play(scenario)


def test_a_creation_that_exceeds_its_timeout_continues(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce()
        before = server.clock.monotonic_ms()
        (answer,) = await create(server, new("t"), timeout=700)
        assert answer.error_code == RequestTimedOutError.code
        assert server.clock.monotonic_ms() - before >= 700
        assert list((await stored(server, "t")).partitions) == [0, 1]
        (answer,) = await create(server, new("t"), timeout=0)
        assert answer.error_code == TopicAlreadyExistsError.code

    play(scenario)


def test_a_zookeeper_outage_is_a_timeout_of_the_topics(play: Play) -> None:
    """If it begins before the registrations of brokers are read."""

    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        server.zk.failures = [ConnectionLost("gone")]
        answers = await create(server, new("n"), new("o"))
        assert {each.name: each.error_code for each in answers} == dict.fromkeys("no", RequestTimedOutError.code)
        server.zk.failures = [ConnectionLost("gone")]
        message = {
            "topics": [{"name": "t", "count": 2, "assignments": None}],
            "timeout_ms": 1,
            "validate_only": False,
        }
        (grown,) = (await server.ask(ApiKey.CREATE_PARTITIONS, 3, message)).results
        assert (grown.name, grown.error_code) == ("t", RequestTimedOutError.code)
        assert grown.error_message

    play(scenario)


def test_a_zookeeper_outage_during_the_creation_is_a_timeout_of_the_topic(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(server: MemoryServer) -> None:
        async def machines(_zk: ZkClient) -> dict[int, str]:
            server.zk.failures = [ConnectionLost("gone")]
            return {}

        await server.announce()
        monkeypatch.setattr(registration, "machines", machines)
        answers = await create(server, new("n"), new("bad name"))
        assert {each.name: each.error_code for each in answers} == {
            "n": RequestTimedOutError.code,
            "bad name": InvalidTopicError.code,
        }

    play(scenario)


def test_a_request_that_is_cancelled_leaves_nothing_waiting(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce()
        peer = server.connect()
        message = {"topics": [new("t")], "timeout_ms": 600_000, "validate_only": False}
        asking = asyncio.ensure_future(peer.ask(ApiKey.CREATE_TOPICS, 7, message))
        await settled()
        assert server.topics.purgatory.size == 1
        await server.dispatcher.close()
        with pytest.raises(NetworkError):
            await asking
        assert server.topics.purgatory.size == 0

    play(scenario)


def test_the_offsets_topic_has_other_settings(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce()
        await server.topics.ensure_topic(GROUP_METADATA_TOPIC)
        await server.topics.ensure_topic(GROUP_METADATA_TOPIC)
        assert len((await stored(server, GROUP_METADATA_TOPIC)).partitions) == 7
        await server.configs.reload(GROUP_METADATA_TOPIC)
        config = server.configs.topic_config(GROUP_METADATA_TOPIC)
        assert (config.cleanup_policy, config.segment_bytes) == (("compact",), 104_857_600)

    play(scenario, settings={"offsets.topic.num.partitions": "7", "offsets.topic.replication.factor": "1"})


def test_the_topic_of_transactions_has_other_settings(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce()
        await server.topics.ensure_topic(TRANSACTION_STATE_TOPIC)
        assert len((await stored(server, TRANSACTION_STATE_TOPIC)).partitions) == 5
        await server.configs.reload(TRANSACTION_STATE_TOPIC)
        config = server.configs.topic_config(TRANSACTION_STATE_TOPIC)
        assert (config.cleanup_policy, config.compression_type) == (("compact",), "uncompressed")
        assert (config.min_insync_replicas, config.unclean_leader_election_enable) == (1, False)

    settings = {
        "transaction.state.log.num.partitions": "5",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "unclean.leader.election.enable": "true",
    }
    play(scenario, settings=settings)


# Deletion


async def delete(server: MemoryServer, version: int, *topics: tuple[str | None, UUID | None], timeout: int = 0) -> Any:
    message: Message = {"topic_names": [name for name, _ in topics], "timeout_ms": timeout}
    if version >= 6:
        given = [{"name": name, "topic_id": topic_id} for name, topic_id in topics]
        message = {"topics": given, "timeout_ms": timeout}
    return (await server.ask(ApiKey.DELETE_TOPICS, version, message)).responses


@pytest.mark.parametrize("version", range(1, 7))
def test_a_topic_is_deleted_and_waited_for(play: Play, version: int) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]}, topic_id=ID)
        await server.zk.create(layout.topic_path("t"), b"{}")
        peer = server.connect()
        message: Message = {"topic_names": ["t"], "timeout_ms": 60_000}
        if version >= 6:
            message = {"topics": [{"name": None, "topic_id": ID}], "timeout_ms": 60_000}
        asking = asyncio.ensure_future(peer.ask(ApiKey.DELETE_TOPICS, version, message))
        await settled()
        assert await server.zk.exists(layout.delete_topic_path("t")) is not None
        assert not asking.done()
        state = {"controller_epoch": 1, "leader": -2, "leader_epoch": 9, "isr": (), "zk_version": 0, "replicas": (1,)}
        gone = {
            "controller_id": 1,
            "controller_epoch": 1,
            "broker_epoch": -1,
            "topic_states": [
                {
                    "topic_name": "t",
                    "topic_id": ID,
                    "partition_states": [{"partition_index": 0, "offline_replicas": (), **state}],
                }
            ],
            "live_brokers": (),
        }
        await server.ask(ApiKey.UPDATE_METADATA, 8, gone)
        (answer,) = (await asking).responses
        assert (answer.name, answer.error_code) == ("t", NONE)
        if version >= 6:
            assert answer.topic_id == ID

    play(scenario)


def test_groups_that_cannot_be_deleted(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]}, topic_id=ID)
        await server.zk.create(layout.topic_path("t"), b"{}")
        answers = await delete(server, 6, ("t", None), ("no", None), (None, UUID(int=5)), (None, None))
        assert [(each.name, each.topic_id or ZERO_UUID, each.error_code) for each in answers] == [
            ("t", ID, RequestTimedOutError.code),
            ("no", ZERO_UUID, UnknownTopicOrPartitionError.code),
            (None, UUID(int=5), UnknownTopicIdError.code),
            (None, ZERO_UUID, UnknownTopicIdError.code),
        ]
        (both,) = await delete(server, 6, ("t", ID))
        assert (both.name, both.topic_id, both.error_code) == ("t", ID, InvalidRequestError.code)

    play(scenario)


@pytest.mark.parametrize(("version", "code"), [(2, InvalidRequestError.code), (3, TopicDeletionDisabledError.code)])
def test_deletion_may_be_disabled(play: Play, version: int, code: int) -> None:
    async def scenario(server: MemoryServer) -> None:
        (answer,) = await delete(server, version, ("t", None))
        assert answer.error_code == code

    play(scenario, settings={"delete.topic.enable": "false"})


# New partitions


async def grow(server: MemoryServer, *topics: Message, timeout: int = 0, dry: bool = False) -> Any:
    message = {"topics": topics, "timeout_ms": timeout, "validate_only": dry}
    return (await server.ask(ApiKey.CREATE_PARTITIONS, 3, message)).results


def growth(name: str, count: int, replicas: list[list[int]] | None = None) -> Message:
    given = None if replicas is None else [{"broker_ids": brokers} for brokers in replicas]
    return {"name": name, "count": count, "assignments": given}


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (growth("no", 5), UnknownTopicOrPartitionError.code),
        (growth("t", 2), InvalidPartitionsError.code),
        (growth("t", 1), InvalidPartitionsError.code),
        (growth("t", 2**31 - 1), PolicyViolationError.code),
        (growth("t", 3, []), InvalidReplicaAssignmentError.code),
        (growth("t", 3, [[1], [2]]), InvalidReplicaAssignmentError.code),
        (growth("t", 3, [[1, 9]]), InvalidReplicaAssignmentError.code),
        (growth("t", 3, [[1, 1]]), InvalidReplicaAssignmentError.code),
        (growth("t", 3, [[1]]), InvalidReplicaAssignmentError.code),
        (growth("t", 3, [[2, 1]]), NONE),
        (growth("t", 30), NONE),
    ],
)
def test_allowed_new_partitions(play: Play, topic: Message, code: int) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1, 2], 1: [2, 1]}, brokers=(1, 2))
        answers = await grow(server, topic, growth("twice", 1), growth("twice", 1), dry=True)
        twice = InvalidRequestError.code
        assert [answer.error_code for answer in answers] == [code, twice, twice]

    play(scenario)


def test_new_partitions_follow_the_old_ones_and_are_waited_for(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce(brokers=(1, 2))
        await create(server, new("t", -1, -1, assignments=assigned([2, 1])), timeout=0)
        await server.announce("t", {0: [2, 1]}, brokers=(1, 2))
        peer = server.connect()
        message = {"topics": [growth("t", 3)], "timeout_ms": 60_000, "validate_only": False}
        asking = asyncio.ensure_future(peer.ask(ApiKey.CREATE_PARTITIONS, 3, message))
        await settled()
        replicas = {number: list(each.replicas) for number, each in (await stored(server, "t")).partitions.items()}
        assert replicas == {0: [2, 1], 1: [1, 2], 2: [2, 1]}
        await server.announce("t", {1: [1, 2]}, brokers=(1, 2))
        assert not asking.done()
        await server.announce("t", {2: [2, 1]}, brokers=(1, 2))
        assert [answer.error_code for answer in (await asking).results] == [NONE]

    play(scenario)


async def register_on_machines(server: MemoryServer, machines: dict[int, str]) -> None:
    for broker, machine in machines.items():
        found = layout.BrokerRegistration(
            broker_id=broker, endpoints=(Endpoint("PLAINTEXT", "h", broker),), machine=machine
        )
        await server.zk.create(found.path, found.encode(), ephemeral=True, make_parents=True)


@pytest.mark.parametrize("settings", [{}, {"broker.machine": "a"}])
def test_replicas_of_new_topics_and_partitions_are_on_different_machines(play: Play, settings: dict[str, str]) -> None:
    """Also if the broker that handles the request has no machine itself."""
    machines = {11: "a", 12: "a", 13: "a", 14: "b", 15: "b", 16: "b"}

    async def scenario(server: MemoryServer) -> None:
        await register_on_machines(server, machines)
        await server.announce(brokers=tuple(machines))
        await create(server, new("t", 12, 2), timeout=1)
        await server.topics.ensure_topic(GROUP_METADATA_TOPIC)
        context = RequestContext(
            api_key=ApiKey.METADATA,
            api_version=12,
            client_id=None,
            client_host="localhost",
            listener="PLAINTEXT",
            identity=Identity(ANONYMOUS, "localhost", "PLAINTEXT", "PLAINTEXT"),
        )
        await server.topics.auto_create(["automatic"], context)
        for name, factor in (("t", 2), (GROUP_METADATA_TOPIC, 3), ("automatic", 2)):
            for each in (await stored(server, name)).partitions.values():
                assert len(each.replicas) == factor
                assert {machines[broker] for broker in each.replicas} == {"a", "b"}
        replicas = {number: list(each.replicas) for number, each in (await stored(server, "t")).partitions.items()}
        await server.announce("t", replicas, brokers=tuple(machines))
        message = {
            "topics": [{"name": "t", "count": 24, "assignments": None}],
            "timeout_ms": 1,
            "validate_only": False,
        }
        await server.ask(ApiKey.CREATE_PARTITIONS, 3, message)
        grown = (await stored(server, "t")).partitions
        assert len(grown) == 24
        assert all({machines[broker] for broker in each.replicas} == {"a", "b"} for each in grown.values())

    play(scenario, settings={"default.replication.factor": "2", "num.partitions": "12", **settings})
