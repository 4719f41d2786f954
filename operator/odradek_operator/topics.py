"""One Topic resource against what is there: create, grow, configure, delete, or refuse. Pure.

Enters: a `Snapshot`, a resource, and whether it was removed. Leaves: a `Decision`. Nothing here is random: where the
first replica goes follows from the topic's name, so the same state always gives the same plan. What carrying out the
actions makes of the snapshot decides to nothing more (a fixed point). Another replication factor is no action of the
topic: `wanted_factors` names it to `lifecycle`, which moves replicas in portions over all topics.
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
from odradek_operator.crds import Deletion, Drift, Topic, Wanted
from odradek_operator.observed import ObservedConfig, ObservedTopic, Snapshot

FOREIGN_KEYS: Final = frozenset({"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"})
"""Overrides that reassignment tools set and remove themselves: left as they are."""


PAUSED: Final = 'nothing is changed while the annotation odradek.dev/paused is "true"; remove it to go on.'


def decide(topic: Topic, snapshot: Snapshot, *, brokers: int) -> Decision:
    """What to do so that the topic becomes as its resource says. `brokers` is how many the cluster shall have."""
    if topic.paused:
        return _refuse(topic.name, Obstacle.PAUSED, PAUSED)
    if snapshot.controller_epoch_version is None:
        return _refuse(topic.name, Obstacle.NO_CONTROLLER, "the cluster has had no controller yet.")
    if topic.name in snapshot.unreadable:
        return _refuse(topic.name, Obstacle.ZNODE_UNREADABLE, snapshot.unreadable[topic.name])
    if topic.name in snapshot.deleting:
        return _refuse(topic.name, Obstacle.BEING_DELETED, "an earlier topic of this name is still being deleted.")
    observed = snapshot.topics.get(topic.name)
    if observed is None:
        return _create(topic, snapshot, brokers=brokers)
    if not observed.assignment.partitions:
        return _refuse(topic.name, Obstacle.NO_PARTITIONS, "its znode in ZooKeeper has no partitions: delete it there.")
    actions: list[Action] = []
    refusals: list[Refusal] = []
    _partitions(topic, observed, snapshot, actions, refusals)
    obstacle = _factor_obstacle(topic, snapshot, brokers=brokers) if _factor_differs(topic, observed) else None
    refusals += [] if obstacle is None else [obstacle]
    config = snapshot.configs.get(topic.name)
    actions += _config(topic, config)
    return Decision(
        topic=topic.name,
        actions=tuple(actions),
        refusals=tuple(refusals),
        reassigning="" if obstacle is not None else _reassigning(topic, observed, snapshot),
        adopted=_adopted(topic, observed, config),
    )


def decide_removed(topic: Topic, snapshot: Snapshot) -> Decision:
    """What to do about a topic whose resource is gone; `topic` is what the resource said last."""
    observed = snapshot.topics.get(topic.name)
    if observed is None or topic.name in snapshot.deleting:
        return Decision(topic=topic.name)
    if topic.paused:
        return _refuse(topic.name, Obstacle.PAUSED, PAUSED)
    if topic.deletion is Deletion.PROTECT:
        return _refuse(
            topic.name,
            Obstacle.PROTECTED,
            "its resource is gone, but said deletion: Protect; the topic stays with all its records.",
        )
    if snapshot.controller_epoch_version is None:
        return _refuse(topic.name, Obstacle.NO_CONTROLLER, "the cluster has had no controller yet.")
    if topic.name in snapshot.unreadable:
        return _refuse(topic.name, Obstacle.ZNODE_UNREADABLE, snapshot.unreadable[topic.name])
    action = DeleteTopic(
        topic=topic.name, version=observed.version, reason="its resource is gone and said deletion: Delete"
    )
    return Decision(topic=topic.name, actions=(action,))


def wanted_factors(wanted: Wanted, snapshot: Snapshot) -> dict[str, int]:
    """The replication factors that topics shall get, by topic: those that differ and that the cluster can have.

    A resource that does not say how many replicas it wants is content with those that there are.
    """
    brokers = wanted.cluster.brokers.replicas
    if wanted.cluster.paused or snapshot.controller_epoch_version is None:
        return {}
    factors = {}
    for name, topic in sorted(wanted.topics.items()):
        observed = snapshot.topics.get(name)
        if observed is None or topic.paused or name in snapshot.deleting or name in snapshot.unreadable:
            continue
        if topic.replicas is None or not _factor_differs(topic, observed):
            continue
        if _factor_obstacle(topic, snapshot, brokers=brokers) is None:
            factors[name] = topic.replicas
    return factors


def _factor_differs(topic: Topic, observed: ObservedTopic) -> bool:
    """Whether some partition has, or will have when what moves has moved, another number of replicas."""
    count = len(observed.assignment.partitions)
    return topic.replicas is not None and observed.with_factor(topic.replicas) < count


def _factor_obstacle(topic: Topic, snapshot: Snapshot, *, brokers: int) -> Refusal | None:
    """Why the topic cannot have as many replicas as it shall; None where it can."""
    replicas, live = topic.replicas_on(brokers), len(snapshot.brokers)
    if replicas > max(brokers, live):
        sentence = (
            f"spec.replicas is {replicas}, and the cluster has {_count(brokers, 'broker')}: "
            "lower spec.replicas, or add brokers to the Cluster."
        )
        return Refusal(topic=topic.name, obstacle=Obstacle.TOO_MANY_REPLICAS, sentence=sentence)
    if replicas > live:
        sentence = f"{_count(replicas, 'replica')} need as many live brokers, and there are {live}."
        return Refusal(topic=topic.name, obstacle=Obstacle.NOT_ENOUGH_BROKERS, sentence=sentence)
    return None


def _reassigning(topic: Topic, observed: ObservedTopic, snapshot: Snapshot) -> str:
    """How far replicas have moved, in a sentence; nothing where none shall or does."""
    count = len(observed.assignment.partitions)
    if topic.replicas is not None and _factor_differs(topic, observed):
        done = observed.with_factor(topic.replicas)
        return (
            f"spec.replicas is {topic.replicas}: {done} of {_count(count, 'partition')} have, or are getting, so many; "
            "the others follow in portions."
        )
    moving = {number for number, part in observed.assignment.partitions.items() if part.is_being_reassigned}
    moving |= {name.partition for name in snapshot.reassigning if name.topic == topic.name}
    return f"replicas of {len(moving)} of {_count(count, 'partition')} are on the move." if moving else ""


def _adopted(topic: Topic, observed: ObservedTopic, config: ObservedConfig | None) -> tuple[str, ...]:
    """What others set, and may stay, with `drift: Adopt`."""
    if topic.drift is not Drift.ADOPT:
        return ()
    count = len(observed.assignment.partitions)
    values = {} if config is None else config.values
    return (
        *((f"partitions={count}",) if count > topic.partitions else ()),
        *(f"{key}={values[key]}" for key in sorted(values) if key not in topic.config and key not in FOREIGN_KEYS),
    )


def _refuse(topic: str, obstacle: Obstacle, sentence: str) -> Decision:
    return Decision(topic=topic, refusals=(Refusal(topic=topic, obstacle=obstacle, sentence=sentence),))


def _create(topic: Topic, snapshot: Snapshot, *, brokers: int) -> Decision:
    other = colliding_topic(topic.name, sorted(snapshot.topics))
    if other is not None:
        return _refuse(
            topic.name,
            Obstacle.NAME_COLLIDES,
            f"the topic {other} is there, and metrics write '.' and '_' alike: choose another name.",
        )
    obstacle = _factor_obstacle(topic, snapshot, brokers=brokers)
    if obstacle is not None:
        return Decision(topic=topic.name, refusals=(obstacle,))
    live, replicas = snapshot.racks(), topic.replicas_on(brokers)
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
        if topic.drift is Drift.ADOPT:
            return
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
    """Bring the overrides to what the resource says; values that mean the same are left as they are.

    With `drift: Adopt` the keys that it does not list stay, whoever set them.
    """
    present = {} if observed is None else observed.values
    wanted = dict(topic.config)
    changes = []
    for key in sorted({*wanted, *present}):
        if key not in wanted and (key in FOREIGN_KEYS or topic.drift is Drift.ADOPT):
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
