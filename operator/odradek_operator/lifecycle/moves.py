"""Decides which replicas move next, in throttled portions, and when the throttle is removed. Pure.

`cluster_plan` passes a cluster, a `Snapshot` and the replication factors, and gets a step, what is waiting, and the
progress. Invariants: no portion starts while any reassignment is in progress, even one that others requested; a portion
has at most the number of partitions that the resource allows; no replica moves to a broker that is not registered;
topics that are being deleted do not move.

Order: first `resize` drains brokers that are removed and changes replication factors. If pods have several brokers,
replicas of one partition then move to different machines and pods. Then `balance` evens out the brokers when all are
registered, then the throttle is removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from odradek.base.types import TopicPartition
from odradek_operator.crds import Cluster
from odradek_operator.lifecycle import balance
from odradek_operator.lifecycle.replicas import Partition, is_moving, listed, named, partitions_of, unreadable
from odradek_operator.lifecycle.resize import Resized, leaving, resized
from odradek_operator.lifecycle.steps import LiftThrottle, MoveReplicas, Progress, Waiting
from odradek_operator.lifecycle.throttle import Mark, entries, lift, lists, mark_of
from odradek_operator.topics.zookeeper_state import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """The decision about replicas."""

    step: MoveReplicas | LiftThrottle | None = None
    waiting: tuple[Waiting, ...] = ()
    progress: Progress | None = None


def decide(
    cluster: Cluster, snapshot: Snapshot, *, present: int, per_pod: int | None = None, factors: Mapping[str, int]
) -> Moves:
    """Return the next portion.

    `present`: the size of the StatefulSet. `per_pod`: the largest number of brokers in a pod, by default the specified
    one. `factors`: replication factors by topic.
    """
    partitions = partitions_of(snapshot)
    brokers = sorted(cluster.brokers.ids())
    gone = leaving(cluster, present, partitions, per_pod=per_pod)
    wish = resized(cluster, snapshot, partitions, gone=gone, factors=factors)
    even = mark_of(snapshot) is Mark.EVEN_OUT or balance.is_due(partitions, brokers)
    waiting = wish.waiting + _stuck(wish, gone)
    moving = sum(one.assignment.is_being_reassigned or one.name in snapshot.reassigning for one in partitions)
    left = len(wish.targets) + (balance.replicas_to_move(partitions, brokers) if even else 0)
    progress = Progress(remaining=moving + left, total=len(partitions), reason=_why(wish, gone, even=even))
    if is_moving(snapshot):
        return Moves(waiting=waiting, progress=progress)
    if snapshot.controller_id is None or snapshot.controller_epoch_version is None:
        # Without a controller nothing would carry out a reassignment, and the ISR may be out of date.
        return Moves(waiting=waiting)
    if wish.targets:
        mark = Mark.EVEN_OUT if even else Mark.RESIZE
        step = _portion(cluster, snapshot, wish.targets, mark=mark, why=progress.reason)
        return Moves(step=step, waiting=waiting, progress=progress)
    pods = _pods(cluster, present, per_pod)
    apart = _moved_apart(cluster, snapshot, partitions, pods) if cluster.brokers.per_pod > 1 else None
    if apart is not None:
        return Moves(step=apart, waiting=waiting, progress=progress)
    if even and (unknown := unreadable(snapshot)):
        return Moves(waiting=(*waiting, _unknown(unknown)), progress=progress)
    if even:
        absent = [broker for broker in brokers if broker not in snapshot.brokers]
        if absent:
            return Moves(waiting=(*waiting, _absent(absent)), progress=progress)
        targets = balance.portion(
            partitions,
            brokers,
            snapshot.racks(),
            machines=snapshot.machines(),
            pods=pods,
            live=snapshot.brokers,
            limit=cluster.brokers.rebalance.partitions,
        )
        if targets:
            step = _portion(cluster, snapshot, targets, mark=Mark.EVEN_OUT, why=progress.reason)
            return Moves(step=step, waiting=waiting, progress=progress)
    return Moves(step=lift(snapshot), waiting=waiting)


def _pods(cluster: Cluster, present: int, per_pod: int | None) -> dict[int, int]:
    """Return the pods of the cluster's brokers, including those that are leaving. Brokers of others have none."""
    ids = cluster.brokers.ids() | cluster.brokers.ids(present, per_pod)
    return {broker: cluster.brokers.pod_of(broker) for broker in ids}


def _moved_apart(
    cluster: Cluster, snapshot: Snapshot, partitions: Sequence[Partition], pods: Mapping[int, int]
) -> MoveReplicas | None:
    """Return the step that moves replicas of one partition to different machines and pods; None if none has to move.

    A pod with several replicas of a partition could not restart without a loss of in-sync replicas. The topic was
    created while other pods were down, or pods share a node, for example.
    """
    brokers = sorted(cluster.brokers.ids() & snapshot.brokers.keys())
    if unreadable(snapshot) or not brokers:
        return None
    targets = balance.moved_apart(
        partitions,
        brokers,
        snapshot.racks(),
        machines=snapshot.machines(),
        pods=pods,
        limit=cluster.brokers.rebalance.partitions,
    )
    mark = mark_of(snapshot) or Mark.RESIZE
    why = "replicas move to different machines and pods"
    return _portion(cluster, snapshot, targets, mark=mark, why=why) if targets else None


def _portion(
    cluster: Cluster, snapshot: Snapshot, targets: Mapping[TopicPartition, tuple[int, ...]], *, mark: Mark, why: str
) -> MoveReplicas:
    rebalance = cluster.brokers.rebalance
    first = dict(sorted(targets.items())[: rebalance.partitions])
    noun = "partition moves" if len(first) == 1 else "partitions move"
    return MoveReplicas(
        targets=first,
        versions={topic: snapshot.topics[topic].version for topic in sorted({name.topic for name in first})},
        throttle_bytes_per_second=rebalance.throttle_bytes_per_second,
        broker_defaults=entries(rebalance.throttle_bytes_per_second, mark),
        topic_configs=lists(first, snapshot),
        reason=f"{why}: {len(first)} {noun} ({named(first)})",
    )


def _why(wish: Resized, gone: frozenset[int], *, even: bool) -> str:
    if wish.drains:
        return f"{listed(gone)} {'is' if len(gone) == 1 else 'are'} drained"
    if wish.targets:
        return "replication factors change"
    return "replicas are evened out" if even else "a reassignment is in progress"


def _stuck(wish: Resized, gone: frozenset[int]) -> tuple[Waiting, ...]:
    if not wish.stuck:
        return ()
    return (
        Waiting(
            what="scale-in" if gone else "replication-factor",
            reason="PartitionsStuck",
            message=f"Replicas of {named(wish.stuck)} cannot move yet: their leader, or other brokers, are offline.",
        ),
    )


def _unknown(message: str) -> Waiting:
    return Waiting(what="rebalance", reason="ZnodeUnreadable", message=message, needs_person=True)


def _absent(brokers: Sequence[int]) -> Waiting:
    return Waiting(
        what="rebalance",
        reason="BrokersMissing",
        message=f"{listed(brokers).capitalize()}: not registered in ZooKeeper, so replicas are not evened out yet.",
    )
