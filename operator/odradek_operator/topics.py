"""One Topic resource against what is there: create, grow, configure, delete, or refuse. Pure.

Enters: a `Snapshot`, a resource, and whether it was removed. Leaves: a `Decision`. Nothing here is random: where the
first replica goes follows from the topic's name, so the same state always gives the same plan. What carrying out the
actions makes of the snapshot decides to nothing more (a fixed point).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Final

from odradek.base.config import TOPIC_SETTINGS
from odradek.base.errors import ConfigError
from odradek.base.topics import assign_replicas, colliding_topic
from odradek.zk.layout import ReplicaAssignment, TopicAssignment
from odradek_operator.actions import (
    Action,
    AddPartitions,
    CreateTopic,
    Decision,
    DeleteTopic,
    Obstacle,
    Refusal,
    SetConfig,
)
from odradek_operator.crds import Deletion, Topic
from odradek_operator.observed import ObservedConfig, ObservedTopic, Snapshot

FOREIGN_KEYS: Final = frozenset({"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"})
"""Overrides that reassignment tools set and remove themselves: left as they are."""


def decide(topic: Topic, snapshot: Snapshot, *, brokers: int) -> Decision:
    """What to do so that the topic becomes as its resource says. `brokers` is how many the cluster shall have."""
    if snapshot.controller_epoch_version is None:
        return _refuse(topic.name, Obstacle.NO_CONTROLLER, "the cluster has had no controller yet.")
    if topic.name in snapshot.deleting:
        return _refuse(topic.name, Obstacle.BEING_DELETED, "an earlier topic of this name is still being deleted.")
    observed = snapshot.topics.get(topic.name)
    if observed is None:
        return _create(topic, snapshot, replicas=topic.replicas_on(brokers))
    if not observed.assignment.partitions:
        return _refuse(topic.name, Obstacle.NO_PARTITIONS, "its znode in ZooKeeper has no partitions: delete it there.")
    actions: list[Action] = []
    refusals: list[Refusal] = []
    _partitions(topic, observed, snapshot, actions, refusals)
    if topic.replicas is not None and topic.replicas != observed.replication_factor:
        refusals.append(
            Refusal(
                topic=topic.name,
                obstacle=Obstacle.REPLICAS_CANNOT_CHANGE,
                sentence=f"spec.replicas is {topic.replicas}, the topic has {observed.replication_factor}: moving "
                "replicas comes with a later version; set spec.replicas back.",
            )
        )
    actions += _config(topic, snapshot.configs.get(topic.name))
    return Decision(topic=topic.name, actions=tuple(actions), refusals=tuple(refusals))


def decide_removed(topic: Topic, snapshot: Snapshot) -> Decision:
    """What to do about a topic whose resource is gone; `topic` is what the resource said last."""
    observed = snapshot.topics.get(topic.name)
    if observed is None or topic.name in snapshot.deleting:
        return Decision(topic=topic.name)
    if topic.deletion is Deletion.PROTECT:
        return _refuse(
            topic.name,
            Obstacle.PROTECTED,
            "its resource is gone, but said deletion: Protect; the topic stays with all its records.",
        )
    if snapshot.controller_epoch_version is None:
        return _refuse(topic.name, Obstacle.NO_CONTROLLER, "the cluster has had no controller yet.")
    action = DeleteTopic(
        topic=topic.name, version=observed.version, reason="its resource is gone and said deletion: Delete"
    )
    return Decision(topic=topic.name, actions=(action,))


def _refuse(topic: str, obstacle: Obstacle, sentence: str) -> Decision:
    return Decision(topic=topic, refusals=(Refusal(topic=topic, obstacle=obstacle, sentence=sentence),))


def _create(topic: Topic, snapshot: Snapshot, *, replicas: int) -> Decision:
    other = colliding_topic(topic.name, sorted(snapshot.topics))
    if other is not None:
        return _refuse(
            topic.name,
            Obstacle.NAME_COLLIDES,
            f"the topic {other} is there, and metrics write '.' and '_' alike: choose another name.",
        )
    live = snapshot.racks()
    if len(live) < replicas:
        return _refuse(
            topic.name,
            Obstacle.NOT_ENOUGH_BROKERS,
            f"{replicas} replicas need as many live brokers, and there are {len(live)}.",
        )
    start = zlib.crc32(topic.name.encode())
    assignment = assign_replicas(
        live, topic.partitions, replicas, start_index=start % len(live), shift=start // len(live) % len(live)
    )
    left_behind = snapshot.configs.get(topic.name)
    action = CreateTopic(
        topic=topic.name,
        assignment=assignment,
        config=dict(topic.config),
        config_version=None if left_behind is None else left_behind.version,
        reason=f"the resource asks for it: {_count(topic.partitions, 'partition')}, {_count(replicas, 'replica')} each",
    )
    return Decision(topic=topic.name, actions=(action,))


def _partitions(
    topic: Topic, observed: ObservedTopic, snapshot: Snapshot, actions: list[Action], refusals: list[Refusal]
) -> None:
    """Grow, or say why not."""
    count = len(observed.assignment.partitions)

    def refuse(obstacle: Obstacle, sentence: str) -> None:
        refusals.append(Refusal(topic=topic.name, obstacle=obstacle, sentence=sentence))

    if topic.partitions == count:
        return
    wish = f"spec.partitions is {topic.partitions}, the topic has {count}"
    if topic.partitions < count:
        refuse(
            Obstacle.PARTITIONS_CANNOT_SHRINK,
            f"{wish}: partitions cannot be taken away, as their records would be lost; set spec.partitions back.",
        )
        return
    if observed.reassigning or any(moving.topic == topic.name for moving in snapshot.reassigning):
        refuse(Obstacle.REASSIGNMENT_UNDER_WAY, f"{wish}: it grows when its reassignment is finished.")
        return
    live, factor = snapshot.racks(), observed.replication_factor
    if len(live) < factor:
        refuse(
            Obstacle.NOT_ENOUGH_BROKERS,
            f"{wish}: new ones with {factor} replicas need as many live brokers, and there are {len(live)}.",
        )
        return
    actions.append(
        AddPartitions(
            topic=topic.name,
            assignment=_grown(observed.assignment, topic.partitions - count, live),
            version=observed.version,
            reason=wish,
        )
    )


def _grown(assignment: TopicAssignment, more: int, live: Mapping[int, str | None]) -> TopicAssignment:
    """The assignment with more partitions, which go on where the first ones began, as Kafka's do."""
    existing = {number: part.replicas for number, part in assignment.partitions.items()}
    first = assignment.partitions[min(existing)]
    start = next((index for index, broker in enumerate(sorted(live)) if broker >= first.preferred_leader), 0)
    added = assign_replicas(live, more, len(first.target), start_index=start, shift=start, existing=existing)
    partitions = dict(assignment.partitions) | {
        number: ReplicaAssignment(replicas=tuple(replicas)) for number, replicas in added.items()
    }
    return TopicAssignment(topic=assignment.topic, topic_id=assignment.topic_id, partitions=partitions)


def _config(topic: Topic, observed: ObservedConfig | None) -> list[Action]:
    """Bring the overrides to what the resource says; values that mean the same are left as they are."""
    present = {} if observed is None else observed.values
    wanted = dict(topic.config)
    changes = []
    for key in sorted({*wanted, *present}):
        if key in FOREIGN_KEYS and key not in wanted:
            wanted[key] = present[key]
        elif key not in wanted:
            changes.append(f"{key} goes (was {present[key]})")
        elif key not in present:
            changes.append(f"{key} becomes {wanted[key]}")
        elif _same_value(key, wanted[key], present[key]):
            wanted[key] = present[key]
        else:
            changes.append(f"{key} becomes {wanted[key]} (was {present[key]})")
    if not changes:
        return []
    return [
        SetConfig(
            topic=topic.name,
            config=wanted,
            version=None if observed is None else observed.version,
            reason="; ".join(changes),
        )
    ]


def _same_value(key: str, left: str, right: str) -> bool:
    setting = TOPIC_SETTINGS.get(key)
    if left == right or setting is None:
        return left == right
    try:
        return setting.parse(left) == setting.parse(right)
    except ConfigError:
        return False  # What is there is nonsense, so it is not what is wanted.


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
