"""Coalesced requests: at most five, with the same effect as the original ones."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from odradek.base.types import TopicPartition
from odradek.controller.broker_requests.coalescing import coalesce
from odradek.controller.broker_requests.request_batch import BrokerRequest, RequestBatch
from odradek.controller.context import ControllerContext
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import decode_header, decode_request, encode_request

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
Build = Callable[..., ControllerContext]
BatchOf = Callable[[ControllerContext], RequestBatch]
ROLES, METADATA, STOP = ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA, ApiKey.STOP_REPLICA


SINCE = {ROLES: 4, METADATA: 6, STOP: 3}
"""The versions of inter-broker protocol 2.7."""


def made(api_key: ApiKey, *partitions: dict[str, object], topic_id: int = 7) -> BrokerRequest:
    topic = {"topic_name": "t", "topic_id": UUID(int=topic_id), "partition_states": list(partitions)}
    message = {"topic_states": [topic], "live_leaders": [], "live_brokers": []}
    deleting = frozenset(
        TopicPartition("t", int(str(p["partition_index"]))) for p in partitions if p.get("delete_partition")
    )
    return BrokerRequest(broker=1, broker_epoch=1, api_key=api_key, message=message, deleting=deleting)


def role(number: int, epoch: int, *, is_new: bool = False) -> BrokerRequest:
    return made(ROLES, {"partition_index": number, "leader_epoch": epoch, "is_new": is_new})


def stop(number: int, epoch: int, *, delete: bool) -> BrokerRequest:
    return made(STOP, {"partition_index": number, "leader_epoch": epoch, "delete_partition": delete})


def metadata(number: int, leader: int, *, topic_id: int = 7) -> BrokerRequest:
    return made(METADATA, {"partition_index": number, "leader": leader}, topic_id=topic_id)


def contents(requests: list[BrokerRequest]) -> list[tuple[ApiKey, list[dict[str, object]]]]:
    return [
        (request.api_key, [state for topic in request.message["topic_states"] for state in topic["partition_states"]])  # type: ignore[attr-defined]
        for request in requests
    ]


def test_the_last_role_is_sent_and_a_new_replica_remains_new() -> None:
    left = coalesce([role(0, 1, is_new=True), role(1, 1), role(0, 2), role(1, 5)])
    assert contents(left) == [
        (
            ROLES,
            [
                {"partition_index": 0, "leader_epoch": 2, "is_new": True},
                {"partition_index": 1, "leader_epoch": 5, "is_new": False},
            ],
        )
    ]


def test_a_replica_that_stops_in_the_end_gets_only_the_stop() -> None:
    left = coalesce([role(0, 1), stop(0, 1, delete=False), stop(0, 2, delete=True), stop(0, 1, delete=False)])
    assert contents(left) == [(STOP, [{"partition_index": 0, "leader_epoch": 2, "delete_partition": True}])]
    assert left[0].deleting == {T0}
    (deleted,) = coalesce([stop(0, -2, delete=True), stop(0, 9, delete=False)])
    assert contents([deleted])[0][1][0]["leader_epoch"] == -2


def test_a_recreated_topic_is_deleted_first() -> None:
    left = coalesce([stop(0, -2, delete=True), role(0, 0, is_new=True), stop(1, 3, delete=False), role(1, 4)])
    assert [request.api_key for request in left] == [STOP, ROLES]
    assert left[0].deleting == {T0}
    assert [state["partition_index"] for state in contents(left)[1][1]] == [0, 1]


def test_a_topic_that_is_created_again_with_fewer_partitions_leaves_no_old_ones() -> None:
    left = coalesce([metadata(0, 1), metadata(0, -2), metadata(1, 1), metadata(1, -2), metadata(0, 2, topic_id=8)])
    assert contents(left) == [
        (METADATA, [{"partition_index": 1, "leader": -2}]),
        (METADATA, [{"partition_index": 0, "leader": 2}]),
    ]
    assert left[1].message["topic_states"][0]["topic_id"] == UUID(int=8)  # type: ignore[index]


def test_a_change_of_brokers_is_sent_without_partitions(build: Build, batch_of: BatchOf) -> None:
    context = build([1, 2], {0: ((1, 2), 1, (1, 2))})
    batch = batch_of(context)
    waiting = []
    for broker in (1, 2):
        batch.update_metadata([])
        waiting += [request for request in batch.take() if request.broker == 1]
        context.brokers.pop(3 - broker, None)
    (left,) = coalesce(waiting)
    assert [broker["id"] for broker in left.message["live_brokers"]] == [1]  # type: ignore[attr-defined]


def test_real_requests_can_still_be_encoded(build: Build, batch_of: BatchOf) -> None:
    context = build([1, 2], {0: ((1, 2), 1, (1, 2)), 1: ((2, 1), 2, (1, 2))})
    batch = batch_of(context)
    waiting = []
    for part in (T0, T1, T0):
        batch.leader_and_isr([1], part)
        batch.stop_replica(1, T1, delete=part is T1)
        waiting += [request for request in batch.take() if request.broker == 1]
    left = coalesce(waiting)
    assert [request.api_key for request in left] == [ROLES, METADATA, STOP]
    for request in left:
        assert (request.broker, request.broker_epoch) == (1, 101)
        for version in range(SINCE[request.api_key], API_TABLE[request.api_key].max_version + 1):
            frame = encode_request(request.api_key, version, 1, None, request.message)[4:]
            header, position = decode_header(frame)
            decoded = decode_request(header, frame, position)
            assert sum(len(topic.partition_states) for topic in decoded.topic_states) == len(contents([request])[0][1])
    assert [leader["broker_id"] for leader in left[0].message["live_leaders"]] == [1, 2]  # type: ignore[attr-defined]
