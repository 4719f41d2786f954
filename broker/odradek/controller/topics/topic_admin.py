"""Making, growing and marking topics in ZooKeeper, for the handlers of CreateTopics, CreatePartitions, DeleteTopics.

Only wishes are written here; the controller finds them by its watches and acts, as it does on those of Kafka's tools
and of the operator. The order of Kafka: the configuration first, then the topic, so that whoever sees a topic sees its
configuration. A handler that waits for the outcome watches the metadata of its broker.
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
from odradek.base.topics import check_assignment, check_replicas, check_topic_name, colliding_topic
from odradek.base.types import ZERO_UUID
from odradek.zk import layout
from odradek.zk.layout import ReplicaAssignment, TopicAssignment
from odradek.zk.port import BadVersion, Create, NodeExists, NoNode, Operation, SetData, ZkClient


async def create_topic(
    zk: ZkClient, name: str, assignment: Mapping[int, Sequence[int]], *, configs: Mapping[str, str], topic_id: UUID
) -> None:
    """Write a new topic; its values in `configs` are taken as checked. It has no id with `ZERO_UUID`.

    Raises `InvalidTopicError`, `InvalidReplicaAssignmentError`, `TopicAlreadyExistsError`.
    """
    check_topic_name(name)
    check_assignment(assignment)
    existing = await zk.children_or_none(layout.TOPICS) or []
    if name in existing:
        raise TopicAlreadyExistsError(f"topic {name} exists already")
    other = colliding_topic(name, existing)
    if other is not None:
        raise InvalidTopicError(f"topic {name} would have the same metric names as topic {other}")
    topic = TopicAssignment(
        topic=name, topic_id=None if topic_id == ZERO_UUID else topic_id, partitions=_assignments(assignment)
    )
    settings = layout.encode_config(configs)
    path = layout.config_path("topics", name)
    # A configuration may be left over from a creation that was cut short: it is replaced.
    left = await zk.get_or_none(path)
    first: Operation = Create(path, settings) if left is None else SetData(path, settings, left[1].version)
    try:
        await zk.multi([first, Create(topic.path, topic.encode())])
    except (NodeExists, BadVersion, NoNode) as error:
        raise TopicAlreadyExistsError(f"topic {name} is being created or deleted by another") from error


async def create_partitions(zk: ZkClient, name: str, additions: Mapping[int, Sequence[int]]) -> None:
    """Add partitions; their numbers go on after the last one.

    Raises `UnknownTopicOrPartitionError`, `ReassignmentInProgressError`, `InvalidPartitionsError`,
    `InvalidReplicaAssignmentError`;
    `NotControllerError`, which clients retry, when the topic was changed at the same time.
    """
    found = await zk.get_or_none(layout.topic_path(name))
    if found is None:
        raise UnknownTopicOrPartitionError(f"there is no topic {name}")
    topic = TopicAssignment.decode(name, found[0])
    if any(assignment.is_being_reassigned for assignment in topic.partitions.values()):
        raise ReassignmentInProgressError(
            f"Partitions of topic {name} are being reassigned: add more when that is done."
        )
    present = len(topic.partitions)
    if sorted(additions) != list(range(present, present + len(additions))) or not additions:
        raise InvalidPartitionsError(f"topic {name} has {present} partitions; new ones must be numbered from there")
    check_replicas(additions)
    grown = TopicAssignment(
        topic=name, topic_id=topic.topic_id, partitions={**topic.partitions, **_assignments(additions)}
    )
    try:
        await zk.set(topic.path, grown.encode(), found[1].version)
    except (BadVersion, NoNode) as error:
        raise NotControllerError(f"topic {name} was changed at the same time") from error


async def delete_topic(zk: ZkClient, name: str) -> None:
    """Mark a topic for deletion; one that is marked already is fine. `UnknownTopicOrPartitionError`."""
    if await zk.exists(layout.topic_path(name)) is None:
        raise UnknownTopicOrPartitionError(f"there is no topic {name}")
    try:
        await zk.create(layout.delete_topic_path(name), make_parents=True)
    except NodeExists:
        return


def _assignments(assignment: Mapping[int, Sequence[int]]) -> dict[int, ReplicaAssignment]:
    return {number: ReplicaAssignment(replicas=tuple(replicas)) for number, replicas in assignment.items()}
