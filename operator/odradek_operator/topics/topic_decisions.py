"""Decides about one Topic resource: create, grow, configure, delete, or refuse. Pure.

The input is a `Snapshot` and a resource, the result a `Decision`. The same state always gives the same decision: even
the broker of the first replica is derived from the topic's name. After the actions are executed, the next decision is
empty. A change of the replication factor is not an action of a topic: `wanted_factors` passes it to `lifecycle`, which
moves replicas of all topics in batches.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final

from odradek.base.config import TOPIC_SETTINGS
from odradek.base.errors import ConfigError
from odradek.base.topic_rules import assign_replicas, colliding_topic
from odradek.zk.layout import ReplicaAssignment, TopicAssignment
from odradek_operator.crds import Brokers, Deletion, Drift, Topic, Wanted
from odradek_operator.topics.topic_actions import (
    Action,
    AddPartitions,
    CreateTopic,
    Decision,
    DeleteTopic,
    ForgetOwnership,
    Obstacle,
    Ownership,
    RecordOwnership,
    Refusal,
    SetConfig,
)
from odradek_operator.topics.zookeeper_state import ObservedConfig, ObservedTopic, Snapshot

TOOL_KEYS: Final = frozenset({"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"})
"""Overrides that reassignment tools set and remove. The operator never changes them."""

PAUSED: Final = 'the annotation odradek.dev/paused is "true": nothing is changed until it is removed.'


@dataclass(frozen=True, slots=True, kw_only=True)
class _Size:
    """The numbers that limit replicas."""

    brokers: int
    """Desired number of brokers."""
    pods: int
    """Desired number of pods."""
    live_pods: int
    """Number of pods with a live broker."""

    @classmethod
    def of(cls, brokers: Brokers, snapshot: Snapshot) -> _Size:
        """Return the numbers of a cluster. A broker of others counts as a pod."""
        ids = brokers.ids()
        live = {brokers.pod_of(broker) if broker in ids else -1 - broker for broker in snapshot.brokers}
        return cls(brokers=len(ids), pods=brokers.replicas, live_pods=len(live))


def decide(topic: Topic, snapshot: Snapshot, *, brokers: int | Brokers) -> Decision:
    """Decide how to make the topic match its resource.

    `brokers`: the desired brokers, or their number if each pod has one.
    """
    size = _Size.of(Brokers(replicas=brokers) if isinstance(brokers, int) else brokers, snapshot)
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
        return _create(topic, snapshot, size)
    if not observed.assignment.partitions:
        return _refuse(
            topic.name, Obstacle.NO_PARTITIONS, "its znode in ZooKeeper has no partitions: delete the znode."
        )
    actions: list[Action] = []
    refusals: list[Refusal] = []
    _partitions(topic, observed, snapshot, actions, refusals)
    obstacle = _factor_obstacle(topic, snapshot, size) if _factor_differs(topic, observed) else None
    refusals += [] if obstacle is None else [obstacle]
    config = snapshot.configs.get(topic.name)
    owned = _ownership(topic, observed, snapshot)
    actions += _config(topic, observed, config, owned)
    return Decision(
        topic=topic.name,
        actions=tuple(actions),
        refusals=tuple(refusals),
        reassigning="" if obstacle is not None else _reassigning(topic, observed, snapshot),
        adopted=_adopted(topic, observed, config, owned),
    )


def decide_removed(topic: Topic, snapshot: Snapshot) -> Decision:
    """Decide about a topic whose resource was deleted; `topic` is the resource's last version."""
    observed = snapshot.topics.get(topic.name)
    if observed is None or topic.name in snapshot.deleting:
        return Decision(topic=topic.name)
    if topic.paused:
        return _refuse(topic.name, Obstacle.PAUSED, PAUSED)
    record = snapshot.ownership.get(topic.name)
    if topic.deletion is Deletion.PROTECT:
        message = "the resource was deleted, but it had deletion: Protect, so the topic and its records are kept."
        actions: tuple[Action, ...] = ()
        if record is not None and snapshot.controller_epoch_version is not None:
            # A later resource of this name adopts the topic. It must not remove overrides that it has never set.
            actions = (ForgetOwnership(topic=topic.name, version=record.version, reason=message),)
        return Decision(
            topic=topic.name,
            actions=actions,
            refusals=(Refusal(topic=topic.name, obstacle=Obstacle.PROTECTED, message=message),),
        )
    if snapshot.controller_epoch_version is None:
        return _refuse(topic.name, Obstacle.NO_CONTROLLER, "the cluster has had no controller yet.")
    if topic.name in snapshot.unreadable:
        return _refuse(topic.name, Obstacle.ZNODE_UNREADABLE, snapshot.unreadable[topic.name])
    action = DeleteTopic(
        topic=topic.name,
        version=observed.version,
        ownership_version=None if record is None else record.version,
        reason="the resource was deleted and had deletion: Delete",
    )
    return Decision(topic=topic.name, actions=(action,))


def wanted_factors(wanted: Wanted, snapshot: Snapshot) -> dict[str, int]:
    """Return the specified replication factors that differ from the current ones and are possible, by topic.

    A resource without `replicas` accepts any current factor.
    """
    size = _Size.of(wanted.cluster.brokers, snapshot)
    if wanted.cluster.paused or snapshot.controller_epoch_version is None:
        return {}
    factors = {}
    for name, topic in sorted(wanted.topics.items()):
        observed = snapshot.topics.get(name)
        if observed is None or topic.paused or name in snapshot.deleting or name in snapshot.unreadable:
            continue
        if topic.replicas is None or not _factor_differs(topic, observed):
            continue
        if _factor_obstacle(topic, snapshot, size) is None:
            factors[name] = topic.replicas
    return factors


def _factor_differs(topic: Topic, observed: ObservedTopic) -> bool:
    """Whether the replication factor of some partition differs from the specified one, after reassignments in
    progress."""
    count = len(observed.assignment.partitions)
    return topic.replicas is not None and observed.with_factor(topic.replicas) < count


def _factor_obstacle(topic: Topic, snapshot: Snapshot, size: _Size) -> Refusal | None:
    """Return why the topic cannot have the specified number of replicas; None if it can.

    While too few pods have a live broker, several replicas would be placed in one pod.
    """
    replicas, live = topic.replicas_on(size.pods), len(snapshot.brokers)
    if replicas > max(size.brokers, live):
        message = (
            f"spec.replicas is {replicas}, and the cluster has {_count(size.brokers, 'broker')}: "
            "lower spec.replicas, or add brokers to the Cluster."
        )
        return Refusal(topic=topic.name, obstacle=Obstacle.TOO_MANY_REPLICAS, message=message)
    if replicas > live:
        message = f"{_count(replicas, 'replica')} need as many live brokers, but there are only {live}."
        return Refusal(topic=topic.name, obstacle=Obstacle.NOT_ENOUGH_BROKERS, message=message)
    if min(replicas, size.pods) > size.live_pods:
        message = (
            f"{_count(replicas, 'replica')} need live brokers in {_count(min(replicas, size.pods), 'pod')}, but only "
            f"{_count(size.live_pods, 'pod')} {'has' if size.live_pods == 1 else 'have'} one."
        )
        return Refusal(topic=topic.name, obstacle=Obstacle.NOT_ENOUGH_BROKERS, message=message)
    return None


def _reassigning(topic: Topic, observed: ObservedTopic, snapshot: Snapshot) -> str:
    """Return a message about the progress of a reassignment; empty if no replicas move."""
    count = len(observed.assignment.partitions)
    if topic.replicas is not None and _factor_differs(topic, observed):
        done = observed.with_factor(topic.replicas)
        return (
            f"spec.replicas is {topic.replicas}: {done} of {_count(count, 'partition')} have this factor or are being "
            "reassigned to it; the others follow in batches."
        )
    moving = {number for number, part in observed.assignment.partitions.items() if part.is_being_reassigned}
    moving |= {name.partition for name in snapshot.reassigning if name.topic == topic.name}
    return f"replicas of {len(moving)} of {_count(count, 'partition')} are being moved." if moving else ""


@dataclass(frozen=True, slots=True)
class _Known:
    """The record of a topic's overrides. If there is none for this topic and resource, the topic is adopted."""

    owned: frozenset[str]
    preserved: frozenset[str] | None
    """None if the topic is adopted now: then all overrides of others are preserved."""
    version: int | None


def _ownership(topic: Topic, observed: ObservedTopic, snapshot: Snapshot) -> _Known:
    found = snapshot.ownership.get(topic.name)
    record = None if found is None else found.record
    version = None if found is None else found.version
    if record is None or record.topic_id != observed.assignment.topic_id or record.resource != topic.uid:
        return _Known(frozenset(), None, version)
    return _Known(record.owned, record.preserved, version)


def _stays(key: str, topic: Topic, known: _Known) -> bool:
    """Whether an override that the resource does not specify is kept."""
    if key in TOOL_KEYS or known.preserved is None:
        return True
    if key in known.owned:
        return False  # The resource specified it before, and no longer does.
    return key in known.preserved or topic.drift is Drift.ADOPT


def _adopted(topic: Topic, observed: ObservedTopic, config: ObservedConfig | None, known: _Known) -> tuple[str, ...]:
    """Return the settings of others that are kept: additional partitions with `drift: Adopt`, and overrides."""
    count = len(observed.assignment.partitions)
    values = {} if config is None else config.values
    kept = [key for key in sorted(values) if key not in topic.config and key not in TOOL_KEYS]
    return (
        *((f"partitions={count}",) if topic.drift is Drift.ADOPT and count > topic.partitions else ()),
        *(f"{key}={values[key]}" for key in kept if _stays(key, topic, known)),
    )


def _refuse(topic: str, obstacle: Obstacle, message: str) -> Decision:
    return Decision(topic=topic, refusals=(Refusal(topic=topic, obstacle=obstacle, message=message),))


def _create(topic: Topic, snapshot: Snapshot, size: _Size) -> Decision:
    other = colliding_topic(topic.name, sorted(snapshot.topics))
    if other is not None:
        return _refuse(
            topic.name,
            Obstacle.NAME_COLLIDES,
            f"the name collides with topic {other}, because names of metrics do not distinguish '.' and '_': "
            "choose another name.",
        )
    obstacle = _factor_obstacle(topic, snapshot, size)
    if obstacle is not None:
        return Decision(topic=topic.name, refusals=(obstacle,))
    live, replicas = snapshot.racks(), topic.replicas_on(size.pods)
    start = zlib.crc32(topic.name.encode())
    assignment = assign_replicas(
        live,
        topic.partitions,
        replicas,
        start_index=start % len(live),
        shift=start // len(live) % len(live),
        machines=snapshot.machines(),
    )
    left_behind, record = snapshot.configs.get(topic.name), snapshot.ownership.get(topic.name)
    action = CreateTopic(
        topic=topic.name,
        assignment=assignment,
        config=dict(topic.config),
        config_version=None if left_behind is None else left_behind.version,
        ownership=Ownership(
            resource=topic.uid, owned=frozenset(topic.config), version=None if record is None else record.version
        ),
        reason=f"requested by the resource: {_count(topic.partitions, 'partition')} with {_count(replicas, 'replica')}",
    )
    return Decision(topic=topic.name, actions=(action,))


def _partitions(
    topic: Topic, observed: ObservedTopic, snapshot: Snapshot, actions: list[Action], refusals: list[Refusal]
) -> None:
    """Append the action that adds partitions to `actions`, or a refusal to `refusals`."""
    count = len(observed.assignment.partitions)

    def refuse(obstacle: Obstacle, message: str) -> None:
        refusals.append(Refusal(topic=topic.name, obstacle=obstacle, message=message))

    if topic.partitions == count:
        return
    mismatch = f"spec.partitions is {topic.partitions}, but the topic has {count}"
    if topic.partitions < count:
        if topic.drift is Drift.ADOPT:
            return
        refuse(
            Obstacle.PARTITIONS_CANNOT_SHRINK,
            f"{mismatch}: removing partitions would lose records; set spec.partitions to at least {count}.",
        )
        return
    if observed.reassigning or any(moving.topic == topic.name for moving in snapshot.reassigning):
        refuse(Obstacle.REASSIGNMENT_UNDER_WAY, f"{mismatch}: partitions are added after the current reassignment.")
        return
    live, factor = snapshot.racks(), observed.replication_factor
    if len(live) < factor:
        refuse(
            Obstacle.NOT_ENOUGH_BROKERS,
            f"{mismatch}: new partitions with {_count(factor, 'replica')} need as many live brokers, but only "
            f"{len(live)} are live.",
        )
        return
    actions.append(
        AddPartitions(
            topic=topic.name,
            assignment=_grown(observed.assignment, topic.partitions - count, snapshot),
            version=observed.version,
            reason=mismatch,
        )
    )


def _grown(assignment: TopicAssignment, more: int, snapshot: Snapshot) -> TopicAssignment:
    """Return the assignment with `more` partitions. Like Kafka, it starts at the first partition's preferred leader."""
    live = snapshot.racks()
    existing = {number: part.replicas for number, part in assignment.partitions.items()}
    first = assignment.partitions[min(existing)]
    start = next((index for index, broker in enumerate(sorted(live)) if broker >= first.preferred_leader), 0)
    added = assign_replicas(
        live,
        more,
        len(first.target),
        start_index=start,
        shift=start,
        existing=existing,
        machines=snapshot.machines(),
    )
    partitions = dict(assignment.partitions) | {
        number: ReplicaAssignment(replicas=tuple(replicas)) for number, replicas in added.items()
    }
    return TopicAssignment(topic=assignment.topic, topic_id=assignment.topic_id, partitions=partitions)


def _config(topic: Topic, observed: ObservedTopic, config: ObservedConfig | None, known: _Known) -> list[Action]:
    """Return the action that changes the overrides to those of the resource; none if they match.

    Values with the same meaning are not rewritten. Overrides that others set before the resource adopted the topic are
    kept. The record of ownership is written in the same transaction as the overrides, or alone if only the record is
    missing or outdated.
    """
    present = {} if config is None else config.values
    wanted = dict(topic.config)
    changes = []
    for key in sorted({*wanted, *present}):
        if key not in wanted and _stays(key, topic, known):
            wanted[key] = present[key]
        elif key not in wanted:
            changes.append(f"{key} is removed (was {present[key]})")
        elif key not in present:
            changes.append(f"{key} is set to {wanted[key]}")
        elif _same_value(key, wanted[key], present[key]):
            wanted[key] = present[key]
        else:
            changes.append(f"{key} changes from {present[key]} to {wanted[key]}")
    others = frozenset(present) - TOOL_KEYS if known.preserved is None else known.preserved
    owned, preserved = frozenset(topic.config), others - topic.config.keys()
    ownership = Ownership(resource=topic.uid, owned=owned, preserved=preserved, version=known.version)
    topic_id = observed.assignment.topic_id
    version = None if config is None else config.version
    if changes:
        reason = "; ".join(changes)
        return [
            SetConfig(
                topic=topic.name, config=wanted, version=version, topic_id=topic_id, ownership=ownership, reason=reason
            )
        ]
    if known.preserved is not None and (owned, preserved) == (known.owned, known.preserved):
        return []
    return [
        RecordOwnership(
            topic=topic.name,
            topic_id=topic_id,
            topic_version=observed.version,
            config_version=version,
            ownership=ownership,
            reason=_adoption(owned, preserved),
        )
    ]


def _adoption(owned: frozenset[str], preserved: frozenset[str]) -> str:
    kept = (
        f"settings set by others stay: {', '.join(sorted(preserved))}"
        if preserved
        else "there are no settings set by others"
    )
    return f"the resource sets {', '.join(sorted(owned)) or 'no settings'}; {kept}"


def _same_value(key: str, left: str, right: str) -> bool:
    setting = TOPIC_SETTINGS.get(key)
    if left == right or setting is None:
        return left == right
    try:
        return setting.parse(left) == setting.parse(right)
    except ConfigError:
        return False  # The current value is invalid, so it differs from the specified one.


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
