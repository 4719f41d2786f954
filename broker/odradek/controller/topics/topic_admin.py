"""Writes new topics, new partitions and deletion marks to ZooKeeper, for the handlers of the admin APIs.

The controller watches the znodes and handles them, in the same way as those that Kafka's tools or the operator write.
As in Kafka, the configuration is written before the topic, so that every process that reads a topic also finds its
configuration. A handler that waits for the result waits for the metadata image of its broker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from odradek.base.errors import (
    InvalidPartitionsError,
    InvalidTopicError,
    NotControllerError,
    ReassignmentInProgressError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from odradek.base.topic_rules import check_assignment, check_replicas, check_topic_name, colliding_topic
from odradek.base.types import ZERO_UUID
from odradek.zk import layout
from odradek.zk.layout import ReplicaAssignment, TopicAssignment
from odradek.zk.port import BadVersion, Create, NodeExists, NoNode, Operation, SetData, ZkClient


async def create_topic(
    zk: ZkClient, name: str, assignment: Mapping[int, Sequence[int]], *, configs: Mapping[str, str], topic_id: UUID
) -> None:
    """Write a new topic. `configs` must be valid. With `ZERO_UUID` the topic has no id.

    Raises `InvalidTopicError`, `InvalidReplicaAssignmentError`, `TopicAlreadyExistsError`.
    """
    check_topic_name(name)
    check_assignment(assignment)
    existing = await zk.children_or_none(layout.TOPICS) or []
    if name in existing:
        raise TopicAlreadyExistsError(f"topic {name} already exists")
    other = colliding_topic(name, existing)
    if other is not None:
        raise InvalidTopicError(
            f"topic {name} collides with topic {other}: in names of metrics, '.' and '_' are the same"
        )
    topic = TopicAssignment(
        topic=name, topic_id=None if topic_id == ZERO_UUID else topic_id, partitions=_assignments(assignment)
    )
    settings = layout.encode_config(configs)
    path = layout.config_path("topics", name)
    # Replace the configuration that an interrupted creation may have left.
    left = await zk.get_or_none(path)
    first: Operation = Create(path, settings) if left is None else SetData(path, settings, left[1].version)
    try:
        await zk.multi([first, Create(topic.path, topic.encode())])
    except (NodeExists, BadVersion, NoNode) as error:
        raise TopicAlreadyExistsError(f"topic {name} is being created or deleted at the same time") from error


async def create_partitions(zk: ZkClient, name: str, additions: Mapping[int, Sequence[int]]) -> None:
    """Add partitions. Their numbers must follow the last one.

    Raises `UnknownTopicOrPartitionError`, `ReassignmentInProgressError`, `InvalidPartitionsError` and
    `InvalidReplicaAssignmentError`. Raises `NotControllerError`, which clients retry, if the topic was changed at the
    same time.
    """
    found = await zk.get_or_none(layout.topic_path(name))
    if found is None:
        raise UnknownTopicOrPartitionError(f"topic {name} does not exist")
    topic = TopicAssignment.decode(name, found[0])
    if any(assignment.is_being_reassigned for assignment in topic.partitions.values()):
        raise ReassignmentInProgressError(
            f"Partitions of topic {name} are being reassigned: wait until the reassignment is complete."
        )
    present = len(topic.partitions)
    if sorted(additions) != list(range(present, present + len(additions))) or not additions:
        raise InvalidPartitionsError(f"topic {name} has {present} partitions; new ones must start at number {present}")
    check_replicas(additions)
    grown = TopicAssignment(
        topic=name, topic_id=topic.topic_id, partitions={**topic.partitions, **_assignments(additions)}
    )
    try:
        await zk.set(topic.path, grown.encode(), found[1].version)
    except (BadVersion, NoNode) as error:
        raise NotControllerError(f"topic {name} was changed at the same time") from error


async def delete_topic(zk: ZkClient, name: str) -> None:
    """Mark a topic for deletion, unless it is already marked. Raises `UnknownTopicOrPartitionError`."""
    if await zk.exists(layout.topic_path(name)) is None:
        raise UnknownTopicOrPartitionError(f"topic {name} does not exist")
    try:
        await zk.create(layout.delete_topic_path(name), make_parents=True)
    except NodeExists:
        return


def _assignments(assignment: Mapping[int, Sequence[int]]) -> dict[int, ReplicaAssignment]:
    return {number: ReplicaAssignment(replicas=tuple(replicas)) for number, replicas in assignment.items()}
