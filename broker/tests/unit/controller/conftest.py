"""A small cluster in memory for the pure modules of the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

import pytest

from odradek.base.types import BrokerEpoch, Endpoint, TopicPartition
from odradek.controller.broker_requests.request_batch import ControllerIdentity, RequestBatch
from odradek.controller.context import (
    ControllerContext,
    Leadership,
    LiveBroker,
    PartitionStatus,
    Replica,
    ReplicaStatus,
)
from odradek.zk.layout import BrokerRegistration, PartitionState, ReplicaAssignment, TopicAssignment

Build = Callable[..., ControllerContext]


@pytest.fixture
def build() -> Build:
    """Return a context with live brokers and one topic `t`. Each partition is (replicas, leader, ISR)."""

    def make(
        brokers: Sequence[int], partitions: Mapping[int, tuple[Sequence[int], int, Sequence[int]]]
    ) -> ControllerContext:
        context = ControllerContext()
        for broker in brokers:
            endpoint = Endpoint("PLAINTEXT", "localhost", 9000 + broker)
            context.brokers[broker] = LiveBroker(
                BrokerRegistration(broker_id=broker, endpoints=(endpoint,), rack="r"), BrokerEpoch(100 + broker)
            )
        context.put_topic(
            TopicAssignment(
                topic="t",
                topic_id=UUID(int=7),
                partitions={number: ReplicaAssignment(replicas=tuple(part[0])) for number, part in partitions.items()},
            )
        )
        for number, (replicas, leader, isr) in partitions.items():
            partition = TopicPartition("t", number)
            state = PartitionState(leader=leader, leader_epoch=5, isr=tuple(isr), controller_epoch=1)
            context.leaderships[partition] = Leadership(state, 3)
            online = leader in context.brokers
            context.partition_status[partition] = PartitionStatus.ONLINE if online else PartitionStatus.OFFLINE
            for broker in replicas:
                alive = broker in context.brokers
                context.replica_status[Replica(partition, broker)] = (
                    ReplicaStatus.ONLINE if alive else ReplicaStatus.OFFLINE
                )
        return context

    return make


@pytest.fixture
def sender() -> ControllerIdentity:
    return ControllerIdentity(controller_id=1, controller_epoch=2, listener="PLAINTEXT")


@pytest.fixture
def batch_of(sender: ControllerIdentity) -> Callable[[ControllerContext], RequestBatch]:
    return lambda context: RequestBatch(context, sender)
