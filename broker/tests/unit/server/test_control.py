"""Requests of the controller: every version, stale senders, settings of new topics, deletion."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from odradek.base.errors import (
    NONE,
    FencedLeaderEpochError,
    InvalidRequestError,
    NotControllerError,
    StaleBrokerEpochError,
    StaleControllerEpochError,
    UnknownTopicOrPartitionError,
)
from odradek.base.types import Endpoint, TopicPartition
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.messages.internal import LeaderAndIsrResponse
from odradek.zk import layout
from odradek.zk.port import ConnectionLost
from odradek_testkit.server import BROKER_EPOCH, MemoryServer

Play = Callable[..., None]
TP = TopicPartition("t", 0)
ID = UUID(int=77)
SENDER: Message = {"controller_id": 1, "controller_epoch": 1, "broker_epoch": BROKER_EPOCH}
STATE: Message = {
    "partition_index": 0,
    "controller_epoch": 1,
    "leader": 1,
    "leader_epoch": 0,
    "isr": [1],
    "replicas": [1],
}


def versions(api_key: ApiKey) -> range:
    return range(API_TABLE[api_key].min_version, API_TABLE[api_key].max_version + 1)


def leader_and_isr(version: int, *, leader_epoch: int = 0, **sender: int) -> dict[str, Any]:
    state = {**STATE, "leader_epoch": leader_epoch, "partition_epoch": 0, "is_new": True}
    more: Message = {"adding_replicas": [], "removing_replicas": []} if version >= 3 else {}
    grouped = [{"topic_name": "t", "topic_id": ID, "partition_states": [{**state, **more}]}]
    states = (
        {"topic_states": grouped} if version >= 2 else {"ungrouped_partition_states": [{"topic_name": "t", **state}]}
    )
    return {**SENDER, **sender, **states, "type": 0, "live_leaders": []}


def update(version: int, *, leader: int = 1, replicas: tuple[int, ...] = (1,), **sender: int) -> dict[str, Any]:
    state = {**STATE, "leader": leader, "replicas": replicas, "zk_version": 3, "offline_replicas": []}
    grouped = [{"topic_name": "t", "topic_id": ID, "partition_states": [state]}]
    states = (
        {"topic_states": grouped} if version >= 5 else {"ungrouped_partition_states": [{"topic_name": "t", **state}]}
    )
    end = {"port": 9092, "host": "one", "listener": "PLAINTEXT", "security_protocol": 0}
    broker: Message = {"id": 1, "endpoints": [end], "rack": "r"}
    if version == 0:
        broker = {"id": 1, "v0_host": "one", "v0_port": 9092}
    return {**SENDER, **sender, **states, "live_brokers": [broker]}


def stop(version: int, *, delete: bool = True, leader_epoch: int = -2, **sender: int) -> dict[str, Any]:
    message: dict[str, Any] = {**SENDER, **sender}
    if version >= 3:
        states = [{"partition_index": 0, "leader_epoch": leader_epoch, "delete_partition": delete}]
        return {**message, "topic_states": [{"topic_name": "t", "partition_states": states}]}
    if version >= 1:
        return {**message, "delete_partitions": delete, "topics": [{"name": "t", "partition_indexes": [0]}]}
    ungrouped = [{"topic_name": "t", "partition_index": 0}]
    return {**message, "delete_partitions": delete, "ungrouped_partitions": ungrouped}


def codes(answer: Any) -> list[int]:
    if isinstance(answer, LeaderAndIsrResponse) and answer.topics:
        assert [topic.topic_id for topic in answer.topics] == [ID]
        return [part.error_code for topic in answer.topics for part in topic.partition_errors]
    return [part.error_code for part in answer.partition_errors]


@pytest.mark.parametrize("version", versions(ApiKey.LEADER_AND_ISR))
def test_leadership_is_taken(play: Play, version: int) -> None:
    async def scenario(server: MemoryServer) -> None:
        answer = await server.ask(ApiKey.LEADER_AND_ISR, version, leader_and_isr(version))
        assert (answer.error_code, codes(answer)) == (NONE, [NONE])
        assert server.replicas.leader(TP).leader_epoch == 0
        answer = await server.ask(ApiKey.LEADER_AND_ISR, version, leader_and_isr(version))
        assert codes(answer) == [StaleControllerEpochError.code]

    play(scenario)


@pytest.mark.parametrize("version", versions(ApiKey.UPDATE_METADATA))
def test_the_image_follows(play: Play, version: int) -> None:
    async def scenario(server: MemoryServer) -> None:
        assert (await server.ask(ApiKey.UPDATE_METADATA, version, update(version))).error_code == NONE
        image = server.view.image
        assert image.controller_id == 1
        assert image.brokers[1].endpoints == (Endpoint("PLAINTEXT", "one", 9092),)
        state = image.partition(TP)
        assert state is not None
        assert (state.leader, state.replicas, state.partition_epoch) == (1, (1,), 3)
        assert image.topic_id("t") == (ID if version >= 7 else UUID(int=0))
        assert server.changed == [TP]
        await server.ask(ApiKey.UPDATE_METADATA, version, update(version, leader=-2))
        assert server.view.image.topics == {}

    play(scenario)


@pytest.mark.parametrize("version", versions(ApiKey.STOP_REPLICA))
def test_replicas_are_stopped_and_deleted(play: Play, version: int) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]}, topic_id=ID, leader_epoch=4)
        if version >= 3:
            answer = await server.ask(ApiKey.STOP_REPLICA, version, stop(version, leader_epoch=3))
            assert codes(answer) == [FencedLeaderEpochError.code]
        kept = await server.ask(ApiKey.STOP_REPLICA, version, stop(version, delete=False))
        assert codes(kept) == [NONE]
        assert server.logs.get(TP) is not None
        answer = await server.ask(ApiKey.STOP_REPLICA, version, stop(version))
        assert (answer.error_code, codes(answer)) == (NONE, [NONE])
        assert server.logs.get(TP) is None

    play(scenario)


MESSAGES: dict[ApiKey, Callable[..., Message]] = {
    ApiKey.LEADER_AND_ISR: leader_and_isr,
    ApiKey.UPDATE_METADATA: update,
    ApiKey.STOP_REPLICA: stop,
}


@pytest.mark.parametrize("api_key", MESSAGES)
@pytest.mark.parametrize(
    ("sender", "code"),
    [
        ({"broker_epoch": BROKER_EPOCH - 1}, StaleBrokerEpochError.code),
        ({"broker_epoch": BROKER_EPOCH + 1}, NONE),
        ({"broker_epoch": -1}, NONE),
        ({"controller_epoch": 4}, StaleControllerEpochError.code),
        ({"controller_epoch": 6}, NONE),
    ],
)
def test_stale_senders_change_nothing(play: Play, api_key: ApiKey, sender: dict[str, int], code: int) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.ask(ApiKey.UPDATE_METADATA, 8, {**update(8, controller_epoch=5), "topic_states": []})
        version = API_TABLE[api_key].max_version
        message = MESSAGES[api_key](version, **{"controller_epoch": 5, **sender})
        answer = await server.ask(api_key, version, message)
        assert answer.error_code == code
        if code:
            assert server.view.image.topics == {}
            assert server.logs.get(TP) is None

    play(scenario)


@pytest.mark.parametrize("api_key", [ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA])
@pytest.mark.parametrize(
    ("epoch", "code"), [(BROKER_EPOCH - 1, StaleBrokerEpochError.code), (BROKER_EPOCH, NONE)], ids=["former", "this"]
)
def test_requests_wait_until_the_broker_is_registered(play: Play, api_key: ApiKey, epoch: int, code: int) -> None:
    """Only then is it known for which broker epoch they are. A broker whose log is empty now must not lead a partition
    because of a request for its earlier epoch."""

    async def scenario(server: MemoryServer) -> None:
        server.broker_epoch = -1
        server.registered.clear()
        version = API_TABLE[api_key].max_version
        message = MESSAGES[api_key](version, broker_epoch=epoch)
        answer = asyncio.ensure_future(server.connect().ask(api_key, version, message))
        await server.clock.sleep_ms(60_000)
        assert not answer.done()
        assert server.logs.get(TP) is None
        server.broker_epoch = BROKER_EPOCH
        server.registered.set()
        assert (await answer).error_code == code

    play(scenario)


def test_requests_are_refused_if_the_broker_never_registers(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        server.broker_epoch = -1
        answer = await server.ask(ApiKey.LEADER_AND_ISR, 7, leader_and_isr(7))
        assert answer.error_code == StaleBrokerEpochError.code

    play(scenario)


def test_a_partition_that_this_broker_does_not_lead_does_not_affect_others(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        message = leader_and_isr(7)
        (topic,) = message["topic_states"]
        topic["partition_states"].append({**topic["partition_states"][0], "partition_index": 1, "replicas": [2]})
        answer = await server.ask(ApiKey.LEADER_AND_ISR, 7, message)
        assert codes(answer) == [NONE, UnknownTopicOrPartitionError.code]

    play(scenario)


def test_a_new_log_waits_for_the_settings_of_its_topic(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.zk.create(layout.config_path("topics", "t"), layout.encode_config({"cleanup.policy": "compact"}))
        server.zk.failures = [ConnectionLost("gone")] * 30
        answer = await server.ask(ApiKey.LEADER_AND_ISR, 7, leader_and_isr(7))
        assert codes(answer) == [NONE]
        assert server.replicas.leader(TP).log.config.compacted

    play(scenario)


def test_a_replica_that_is_added_later_has_the_settings_of_its_topic(play: Play) -> None:
    """Only the brokers of the first replicas learn the overrides of a new topic."""

    async def scenario(server: MemoryServer) -> None:
        await server.ask(ApiKey.UPDATE_METADATA, 8, update(8, leader=2, replicas=(2,)))
        await server.zk.create(layout.config_path("topics", "t"), layout.encode_config({"cleanup.policy": "compact"}))
        answer = await server.ask(ApiKey.LEADER_AND_ISR, 7, leader_and_isr(7))
        assert codes(answer) == [NONE]
        assert server.replicas.leader(TP).log.config.compacted

    play(scenario)


def test_a_controller_replaced_during_a_zookeeper_outage_is_refused(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        server.zk.failures = [ConnectionLost("gone")]
        late = asyncio.ensure_future(server.connect().ask(ApiKey.LEADER_AND_ISR, 7, leader_and_isr(7)))
        await asyncio.sleep(0)
        await server.ask(ApiKey.UPDATE_METADATA, 8, {**update(8, controller_epoch=2), "topic_states": []})
        assert (await late).error_code == StaleControllerEpochError.code
        assert server.logs.get(TP) is None

    play(scenario)


def test_an_unknown_security_protocol_is_refused(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        message = update(8)
        (broker,) = message["live_brokers"]
        broker["endpoints"][0]["security_protocol"] = 9
        assert (await server.ask(ApiKey.UPDATE_METADATA, 8, message)).error_code == InvalidRequestError.code

    play(scenario)


@pytest.mark.parametrize("version", versions(ApiKey.CONTROLLED_SHUTDOWN))
def test_controlled_shutdown(play: Play, version: int) -> None:
    async def scenario(server: MemoryServer) -> None:
        server.controller.remaining = [TP]
        message: Message = {"broker_id": 2, "broker_epoch": 7}
        answer = await server.ask(ApiKey.CONTROLLED_SHUTDOWN, version, message)
        left = [(each.topic_name, each.partition_index) for each in answer.remaining_partitions]
        assert (answer.error_code, left) == (NONE, [TP])
        server.controller.is_active = False
        answer = await server.ask(ApiKey.CONTROLLED_SHUTDOWN, version, message)
        assert answer.error_code == NotControllerError.code

    play(scenario)


def test_only_the_controller_allocates_producer_ids(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        message: Message = {"broker_id": 2, "broker_epoch": 7}
        answer = await server.ask(ApiKey.ALLOCATE_PRODUCER_IDS, 0, message)
        assert (answer.error_code, answer.producer_id_start, answer.producer_id_len) == (NONE, 3000, 1000)
        assert server.controller.asked == [(2, 7)]
        server.controller.is_active = False
        answer = await server.ask(ApiKey.ALLOCATE_PRODUCER_IDS, 0, message)
        assert answer.error_code == NotControllerError.code

    play(scenario)


def test_a_leader_knows_the_id_of_its_topic_before_the_metadata_arrives(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce()
        await server.ask(ApiKey.LEADER_AND_ISR, 7, leader_and_isr(7))
        assert (server.view.image.topic_name(ID), server.view.image.topics) == ("t", {})

    play(scenario)
