"""Every transition of the tables works, and every other raises an error and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from odradek.base.types import TopicPartition
from odradek.controller.broker_requests.request_batch import RequestBatch
from odradek.controller.context import ControllerContext, PartitionStatus, Replica, ReplicaStatus
from odradek.controller.machines import (
    PARTITION_PREDECESSORS,
    REPLICA_PREDECESSORS,
    IllegalTransitionError,
    in_status,
    move_partitions,
    move_replicas,
)
from odradek.protocol.apis import ApiKey

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BatchOf = Callable[[ControllerContext], RequestBatch]

P, R = PartitionStatus, ReplicaStatus
LEGAL_PARTITION_STEPS = {
    (P.NON_EXISTENT, P.NEW), (P.NEW, P.ONLINE), (P.NEW, P.OFFLINE), (P.ONLINE, P.ONLINE), (P.ONLINE, P.OFFLINE),
    (P.OFFLINE, P.ONLINE), (P.OFFLINE, P.OFFLINE), (P.OFFLINE, P.NON_EXISTENT),
}  # fmt: skip
LEGAL_REPLICA_STEPS = {
    (R.NON_EXISTENT, R.NEW), (R.NEW, R.ONLINE), (R.NEW, R.OFFLINE), (R.ONLINE, R.ONLINE), (R.ONLINE, R.OFFLINE),
    (R.OFFLINE, R.ONLINE), (R.OFFLINE, R.OFFLINE), (R.OFFLINE, R.DELETION_STARTED), (R.OFFLINE, R.DELETION_INELIGIBLE),
    (R.DELETION_STARTED, R.DELETION_SUCCESSFUL), (R.DELETION_STARTED, R.DELETION_INELIGIBLE),
    (R.DELETION_INELIGIBLE, R.ONLINE), (R.DELETION_INELIGIBLE, R.OFFLINE), (R.DELETION_SUCCESSFUL, R.NON_EXISTENT),
}  # fmt: skip


@pytest.mark.parametrize(("current", "target"), list(product(P, P)))
def test_partition_steps(current: PartitionStatus, target: PartitionStatus) -> None:
    context = ControllerContext()
    if current is not P.NON_EXISTENT:
        context.partition_status[T0] = current
    before = dict(context.partition_status)
    if (current, target) in LEGAL_PARTITION_STEPS:
        move_partitions(context, [T0], target)
        assert context.partition_status.get(T0, P.NON_EXISTENT) is target
    else:
        with pytest.raises(IllegalTransitionError, match="t-0 cannot change"):
            move_partitions(context, [T0], target)
        assert context.partition_status == before


@pytest.mark.parametrize(("current", "target"), list(product(R, R)))
def test_replica_steps(current: ReplicaStatus, target: ReplicaStatus, batch_of: BatchOf) -> None:
    context = ControllerContext()
    replica = Replica(T0, 1)
    if current is not R.NON_EXISTENT:
        context.replica_status[replica] = current
    before = dict(context.replica_status)
    if (current, target) in LEGAL_REPLICA_STEPS:
        move_replicas(context, [replica], target, batch_of(context))
        assert context.replica_status.get(replica, R.NON_EXISTENT) is target
    else:
        with pytest.raises(IllegalTransitionError, match="t-0 on broker 1"):
            move_replicas(context, [replica], target, batch_of(context))
        assert context.replica_status == before


def test_the_tables_have_every_state() -> None:
    assert set(PARTITION_PREDECESSORS) == set(P)
    assert set(REPLICA_PREDECESSORS) == set(R)


def test_one_illegal_transition_prevents_all(batch_of: BatchOf) -> None:
    context = ControllerContext()
    context.partition_status = {T0: P.ONLINE}
    with pytest.raises(IllegalTransitionError):
        move_partitions(context, [T0, T1], P.OFFLINE)
    assert context.partition_status == {T0: P.ONLINE}
    context.replica_status = {Replica(T0, 1): R.ONLINE, Replica(T0, 2): R.DELETION_STARTED}
    batch = batch_of(context)
    with pytest.raises(IllegalTransitionError):
        move_replicas(context, [Replica(T0, 1), Replica(T0, 2)], R.OFFLINE, batch)
    assert context.replica_status[Replica(T0, 1)] is R.ONLINE
    assert batch.take() == []


@pytest.mark.parametrize(
    ("current", "target", "expected"),
    [
        (None, R.NEW, {(ApiKey.LEADER_AND_ISR, 1), (ApiKey.UPDATE_METADATA, 1), (ApiKey.UPDATE_METADATA, 2)}),
        (R.OFFLINE, R.ONLINE, {(ApiKey.LEADER_AND_ISR, 1), (ApiKey.UPDATE_METADATA, 1), (ApiKey.UPDATE_METADATA, 2)}),
        (R.ONLINE, R.OFFLINE, {(ApiKey.STOP_REPLICA, 1)}),
        (R.OFFLINE, R.DELETION_STARTED, {(ApiKey.STOP_REPLICA, 1)}),
        (R.OFFLINE, R.DELETION_INELIGIBLE, set()),
        (R.DELETION_STARTED, R.DELETION_SUCCESSFUL, set()),
        (R.DELETION_SUCCESSFUL, R.NON_EXISTENT, set()),
    ],
)
def test_requests_of_transitions(
    build: Callable[..., ControllerContext],
    batch_of: BatchOf,
    current: ReplicaStatus | None,
    target: ReplicaStatus,
    expected: set[tuple[ApiKey, int]],
) -> None:
    context = build([1, 2], {0: ((1, 2), 2, (1, 2))})
    replica = Replica(T0, 1)
    context.replica_status.pop(replica)
    if current is not None:
        context.replica_status[replica] = current
    batch = batch_of(context)
    move_replicas(context, [replica], target, batch)
    requests = batch.take()
    assert {(request.api_key, request.broker) for request in requests} == expected
    stops = [request for request in requests if request.api_key is ApiKey.STOP_REPLICA]
    assert [request.deleting for request in stops] == [
        frozenset({T0}) if target is R.DELETION_STARTED else frozenset() for _ in stops
    ]


def test_replicas_of_a_status() -> None:
    context = ControllerContext()
    context.replica_status = {Replica(T0, 1): R.ONLINE, Replica(T0, 2): R.OFFLINE}
    assert in_status(context, [Replica(T0, 1), Replica(T0, 2), Replica(T1, 1)], R.OFFLINE) == [Replica(T0, 2)]
