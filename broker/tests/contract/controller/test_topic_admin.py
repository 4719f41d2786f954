"""Topics written for the controller to find, against a real ZooKeeper."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from odradek.base.errors import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidTopicError,
    ReassignmentInProgressError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from odradek.base.types import TopicPartition
from odradek.controller.topics.topic_admin import create_partitions, create_topic, delete_topic
from odradek.zk import layout
from odradek.zk.layout import ReplicaAssignment, TopicAssignment

pytestmark = pytest.mark.java


async def test_a_topic_is_made_grown_and_deleted_by_the_controller(cluster: Any) -> None:
    await cluster.start_brokers(1, 2)
    await cluster.start_controller(1)
    topic_id = uuid4()
    await create_topic(cluster.zk, "t", {0: [1, 2]}, configs={"retention.ms": "1"}, topic_id=topic_id)
    assert (await cluster.zk.get(layout.config_path("topics", "t")))[0] == (
        b'{"version":1,"config":{"retention.ms":"1"}}'
    )
    await cluster.until(lambda: TopicPartition("t", 0) in cluster.brokers[2].metadata)
    await create_partitions(cluster.zk, "t", {1: [2, 1]})
    await cluster.until(lambda: TopicPartition("t", 1) in cluster.brokers[1].metadata)
    topic = TopicAssignment.decode("t", (await cluster.zk.get(layout.topic_path("t")))[0])
    assert (topic.topic_id, sorted(topic.partitions)) == (topic_id, [0, 1])
    await delete_topic(cluster.zk, "t")
    await cluster.until_znode(layout.topic_path("t"), lambda data: data is None)


async def test_what_is_refused(cluster: Any) -> None:
    zk = cluster.zk
    await create_topic(zk, "a.b", {0: [1]}, configs={}, topic_id=uuid4())
    with pytest.raises(TopicAlreadyExistsError):
        await create_topic(zk, "a.b", {0: [1]}, configs={}, topic_id=uuid4())
    with pytest.raises(InvalidTopicError, match=r"a\.b"):
        await create_topic(zk, "a_b", {0: [1]}, configs={}, topic_id=uuid4())
    with pytest.raises(InvalidTopicError):
        await create_topic(zk, "a/b", {0: [1]}, configs={}, topic_id=uuid4())
    with pytest.raises(InvalidReplicaAssignmentError):
        await create_topic(zk, "c", {1: [1]}, configs={}, topic_id=uuid4())
    assert await zk.children(layout.TOPICS) == ["a.b"]
    with pytest.raises(UnknownTopicOrPartitionError):
        await create_partitions(zk, "c", {1: [1]})
    for additions in ({}, {0: [1]}, {2: [1]}):
        with pytest.raises(InvalidPartitionsError):
            await create_partitions(zk, "a.b", additions)
    with pytest.raises(InvalidReplicaAssignmentError):
        await create_partitions(zk, "a.b", {1: [1, 1]})
    with pytest.raises(UnknownTopicOrPartitionError):
        await delete_topic(zk, "c")
    await delete_topic(zk, "a.b")
    await delete_topic(zk, "a.b")
    assert await zk.children(layout.DELETE_TOPICS) == ["a.b"]


async def test_a_topic_does_not_grow_while_it_is_reassigned(cluster: Any) -> None:
    moving = {0: ReplicaAssignment(replicas=(2, 1), adding=(2,), removing=(1,))}
    topic = TopicAssignment(topic="t", topic_id=uuid4(), partitions=moving)
    await cluster.zk.create(topic.path, topic.encode())
    with pytest.raises(ReassignmentInProgressError):
        await create_partitions(cluster.zk, "t", {1: [1]})


async def test_a_leftover_configuration_is_replaced(cluster: Any) -> None:
    await cluster.zk.create(layout.config_path("topics", "t"), b'{"version":1,"config":{"x":"old"}}')
    await create_topic(cluster.zk, "t", {0: [1]}, configs={"x": "new"}, topic_id=uuid4())
    assert b"new" in (await cluster.zk.get(layout.config_path("topics", "t")))[0]
