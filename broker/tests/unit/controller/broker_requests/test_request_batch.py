"""A batch becomes one request of each API for each live broker, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from odradek.base.types import TopicPartition
from odradek.controller.broker_requests.request_batch import (
    NEW_PARTITIONS_PER_REQUEST,
    PARTITIONS_PER_REQUEST,
    BrokerRequest,
    RequestBatch,
)
from odradek.controller.context import ControllerContext, Replica
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import decode_header, decode_request, encode_request

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
Build = Callable[..., ControllerContext]
BatchOf = Callable[[ControllerContext], RequestBatch]


def decoded(request: BrokerRequest, version: int | None = None) -> Any:
    """Return the request as its broker decodes it."""
    used = API_TABLE[request.api_key].max_version if version is None else version
    frame = encode_request(request.api_key, used, 1, None, request.message)[4:]
    header, position = decode_header(frame)
    return decode_request(header, frame, position)


def test_order_and_audience(build: Build, batch_of: BatchOf) -> None:
    context = build([1, 2, 3], {0: ((1, 2, 9), 1, (1, 2))})
    batch = batch_of(context)
    batch.stop_replica(2, T0, delete=False)
    batch.stop_replica(9, T0, delete=False)
    batch.leader_and_isr([1, 2, 9], T0, is_new=True)
    batch.leader_and_isr([1], T0)
    requests = batch.take()
    assert [(request.api_key, request.broker, request.broker_epoch) for request in requests] == [
        (ApiKey.LEADER_AND_ISR, 1, 101),
        (ApiKey.LEADER_AND_ISR, 2, 102),
        (ApiKey.UPDATE_METADATA, 1, 101),
        (ApiKey.UPDATE_METADATA, 2, 102),
        (ApiKey.UPDATE_METADATA, 3, 103),
        (ApiKey.STOP_REPLICA, 2, 102),
    ]
    assert batch.take() == []
    for version in (4, 5, 6, 7):
        request = decoded(requests[0], version)
        (topic,) = request.topic_states
        (state,) = topic.partition_states
        assert (request.controller_id, request.controller_epoch, request.broker_epoch) == (1, 2, 101)
        assert (state.leader, state.leader_epoch, state.isr, state.partition_epoch) == (1, 5, (1, 2), 3)
        assert (state.replicas, state.is_new, state.controller_epoch) == ((1, 2, 9), True, 1)
        assert [(node.broker_id, node.port) for node in request.live_leaders] == [(1, 9001)]
    stop = decoded(requests[-1])
    assert stop.topic_states[0].partition_states[0].leader_epoch == 5


def test_metadata_names_offline_replicas_and_all_live_brokers(build: Build, batch_of: BatchOf) -> None:
    context = build([1, 2], {0: ((1, 2, 9), 1, (1, 2))})
    context.offline_directory_replicas = {Replica(T0, 2)}
    batch = batch_of(context)
    batch.update_metadata([T0, TopicPartition("unknown", 0)])
    for version in (6, 7, 8):
        request = decoded(batch_take_one(batch, context), version)
        (topic,) = request.topic_states
        (state,) = topic.partition_states
        assert (state.leader, state.zk_version, state.offline_replicas) == (1, 3, (2, 9))
        assert [(broker.id, broker.rack, broker.endpoints[0].port) for broker in request.live_brokers] == [
            (1, "r", 9001),
            (2, "r", 9002),
        ]
        batch.update_metadata([T0])


def batch_take_one(batch: RequestBatch, context: ControllerContext) -> BrokerRequest:
    requests = batch.take()
    assert len(requests) == len(context.brokers)
    return requests[0]


@pytest.mark.parametrize("version", range(5, API_TABLE[ApiKey.UPDATE_METADATA].max_version + 1))
def test_metadata_is_encoded_once_for_all_brokers(build: Build, batch_of: BatchOf, version: int) -> None:
    context = build([1, 2, 3], {0: ((1, 2), 1, (1, 2))})
    batch = batch_of(context)
    batch.update_metadata([T0])
    requests = batch.take()
    assert len({id(request.shared) for request in requests}) == 1
    for request in requests:
        assert request.shared is not None
        for client_id in (None, "controller"):
            frame = b"".join(request.shared.frame(version, 9, client_id, request.broker_epoch))
            assert frame == encode_request(request.api_key, version, 9, client_id, request.message)


def test_a_new_broker_gets_all_metadata_and_the_others_get_the_changes(build: Build, batch_of: BatchOf) -> None:
    context = build([1, 2], {0: ((1, 2), 1, (1, 2)), 1: ((2, 1), 2, (1, 2))})
    batch = batch_of(context)
    batch.full_metadata([2])
    batch.update_metadata([T1])
    states = {request.broker: decoded(request).topic_states for request in batch.take()}
    assert [len(topic.partition_states) for topic in states[2]] == [2]
    assert [len(topic.partition_states) for topic in states[1]] == [1]


def test_a_topic_in_deletion_has_special_leaders_and_epochs(build: Build, batch_of: BatchOf) -> None:
    context = build([1], {0: ((1,), 1, (1,))})
    context.deletions = {"t"}
    batch = batch_of(context)
    batch.update_metadata([T0])
    batch.stop_replica(1, T0, delete=True)
    batch.stop_replica(1, T0, delete=False)
    metadata, stop = batch.take()
    state = decoded(metadata).topic_states[0].partition_states[0]
    assert (state.leader, state.leader_epoch) == (-2, -2)
    stopped = decoded(stop).topic_states[0].partition_states[0]
    assert (stopped.leader_epoch, stopped.delete_partition) == (-2, True)
    assert stop.deleting == {T0}


def wide(count: int) -> dict[int, tuple[tuple[int, ...], int, tuple[int, ...]]]:
    return dict.fromkeys(range(count), ((1, 2), 1, (1, 2)))


def numbers_in(request: BrokerRequest) -> list[int]:
    return [state.partition_index for topic in decoded(request).topic_states for state in topic.partition_states]


@pytest.mark.parametrize(("is_new", "limit"), [(False, PARTITIONS_PER_REQUEST), (True, NEW_PARTITIONS_PER_REQUEST)])
def test_many_partitions_become_several_requests(build: Build, batch_of: BatchOf, is_new: bool, limit: int) -> None:
    count = 2 * limit + 1
    batch = batch_of(build([1, 2], wide(count)))
    for number in range(count):
        batch.leader_and_isr([1, 2], TopicPartition("t", number), is_new=is_new)
    requests = batch.take()
    for broker in (1, 2):
        roles = [one for one in requests if one.broker == broker and one.api_key is ApiKey.LEADER_AND_ISR]
        assert [len(numbers_in(one)) for one in roles] == [limit, limit, 1]
        assert sorted(number for one in roles for number in numbers_in(one)) == list(range(count))
        news = [one for one in requests if one.broker == broker and one.api_key is ApiKey.UPDATE_METADATA]
        assert all(len(numbers_in(one)) <= PARTITIONS_PER_REQUEST for one in news)
        assert sorted(number for one in news for number in numbers_in(one)) == list(range(count))
    last_role = max(place for place, one in enumerate(requests) if one.api_key is ApiKey.LEADER_AND_ISR)
    assert all(one.api_key is ApiKey.UPDATE_METADATA for one in requests[last_role + 1 :])


def test_a_new_broker_gets_all_metadata_in_one_request(build: Build, batch_of: BatchOf) -> None:
    """A part of the metadata would look like the whole cluster to clients."""
    count = PARTITIONS_PER_REQUEST + 1
    batch = batch_of(build([1], wide(count)))
    batch.full_metadata([1])
    (request,) = batch.take()
    assert len(numbers_in(request)) == count


@pytest.mark.parametrize("version", range(2, API_TABLE[ApiKey.LEADER_AND_ISR].max_version + 1))
def test_roles_that_are_the_same_are_encoded_once(build: Build, batch_of: BatchOf, version: int) -> None:
    batch = batch_of(build([1, 2, 3], wide(2)))
    batch.leader_and_isr([1, 2], T0)
    batch.leader_and_isr([3], T1)
    roles = [one for one in batch.take() if one.api_key is ApiKey.LEADER_AND_ISR]
    assert [(one.broker, numbers_in(one)) for one in roles] == [(1, [0]), (2, [0]), (3, [1])]
    assert roles[0].shared is roles[1].shared
    assert roles[2].shared is None
    for request in roles[:2]:
        assert request.shared is not None
        frame = b"".join(request.shared.frame(version, 9, "controller", request.broker_epoch))
        assert frame == encode_request(request.api_key, version, 9, "controller", request.message)
