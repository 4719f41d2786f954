"""Decides which broker ids of a shared ensemble belong to the cluster, and which are taken by others. Pure.

`cluster_plan` passes a Cluster, its state in Kubernetes and a `Snapshot`, and gets the ids to record, and the reason if
the brokers' StatefulSet must not be created or grow.

A broker does not start for the first time if another broker uses its id. The other broker may be down: its replicas or
settings are still in ZooKeeper, and a new broker with that id would replace it without data. A broker that the cluster
had before is never refused: its pod, its claim, the recorded size or `/odradek/brokers` shows that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from odradek_operator.crds import MAX_FIRST_BROKER_ID, Cluster
from odradek_operator.lifecycle.observed_cluster import KubernetesState
from odradek_operator.lifecycle.replicas import listed, unreadable
from odradek_operator.lifecycle.resize import has_claim, known_per_pod, known_size
from odradek_operator.lifecycle.steps import BROKER_IDS, Waiting
from odradek_operator.objects import names
from odradek_operator.objects.slots import ID_STRIDE
from odradek_operator.topics.zookeeper_state import Snapshot

MAX_NAMED: Final = 3
"""Maximum number of ids that a message explains."""


def refused(cluster: Cluster, state: KubernetesState, snapshot: Snapshot | None) -> Waiting | None:
    """Return why brokers that the cluster did not have before must not start; None if they may."""
    if cluster.zookeeper.connect is None:
        return None
    first = [broker for broker in sorted(cluster.brokers.ids()) if not _is_ours(cluster, state, snapshot, broker)]
    if not first:
        return None
    if snapshot is None:
        message = f"It is not known yet whether the ids of new brokers are free: {listed(first)} cannot start yet."
        return _waiting("BrokerIdsUnknown", message)
    users = {broker: user for broker in first if (user := _user(snapshot, broker))}
    if users:
        message = _in_use(cluster, state, snapshot, users)
        return _waiting("BrokerIdsInUse", message, needs_person=True)
    if unknown := unreadable(snapshot):
        message = f"{unknown} It may have replicas on {listed(first)}, so new brokers with these ids do not start."
        return _waiting("BrokerIdsUnknown", message, needs_person=True)
    return None


def recorded(cluster: Cluster, state: KubernetesState, snapshot: Snapshot) -> frozenset[int]:
    """Return the ids to record in ZooKeeper: those of the cluster's brokers, without drained and removed ones."""
    if cluster.zookeeper.connect is None:
        return frozenset()
    found = state.sets.get(names.kafka(cluster.name))
    kept = _recorded_before(cluster, snapshot)
    if found is not None:
        kept = cluster.brokers.ids(found.replicas, found.slots)
    pods = [pod for pod in state.brokers.values() if not pod.terminating]
    return kept.union(*(cluster.brokers.ids_of_pod(pod.ordinal, pod.slots) for pod in pods))


def _is_ours(cluster: Cluster, state: KubernetesState, snapshot: Snapshot | None, broker: int) -> bool:
    ordinal, slot = cluster.brokers.pod_of(broker), cluster.brokers.slot_of(broker)
    per_pod = known_per_pod(cluster, state)
    return (
        broker in cluster.brokers.ids(known_size(cluster, state), per_pod)
        or (slot < per_pod and (ordinal in state.brokers or has_claim(cluster, state, ordinal)))
        or (snapshot is not None and broker in _recorded_before(cluster, snapshot))
    )


def _recorded_before(cluster: Cluster, snapshot: Snapshot) -> frozenset[int]:
    found = snapshot.brokers_record
    ours = None if found is None or found.record is None else found.record.clusters.get(cluster.uid)
    return frozenset() if ours is None else ours.ids


def _user(snapshot: Snapshot, broker: int) -> str:
    """Describe who uses the id; empty if it is free."""
    registration = snapshot.brokers.get(broker)
    if registration is not None:
        ends = [f"{end.host}:{end.port}" for end in registration.endpoints]
        return f"is registered{f' at {ends[0]}' if ends else ''}"
    for topic, observed in sorted(snapshot.topics.items()):
        for part in observed.assignment.partitions.values():
            if broker in (*part.replicas, *part.adding, *part.removing):
                return f"has replicas of topic {topic}"
    return f"has settings in /config/brokers/{broker}" if str(broker) in snapshot.broker_configs else ""


def _in_use(cluster: Cluster, state: KubernetesState, snapshot: Snapshot, users: Mapping[int, str]) -> str:
    held, per_pod = known_size(cluster, state), cluster.brokers.per_pod
    said = [f"broker {broker} {user}" for broker, user in list(users.items())[:MAX_NAMED]]
    more = f", and {len(users) - MAX_NAMED} more" if len(users) > MAX_NAMED else ""
    if held and per_pod > 1:
        effect = (
            f"The cluster keeps its {len(cluster.brokers.ids(held, known_per_pod(cluster, state)))} brokers: set "
            "spec.brokers.replicas and perPod back."
        )
    elif held:
        effect = f"The cluster stays at {held} {'broker' if held == 1 else 'brokers'}: set spec.brokers.replicas back."
    else:
        effect = f"No broker is started: set spec.brokers.firstBrokerId to {_free(snapshot)}."
    first = cluster.brokers.ordinals()
    ranges = [f"{first[0] + ID_STRIDE * slot} to {first[-1] + ID_STRIDE * slot}" for slot in range(per_pod)]
    sizes = f"{len(first)}" if per_pod == 1 else f"{len(first)} and perPod is {per_pod}"
    return (
        f"spec.brokers.replicas is {sizes}, so the brokers' ids are {', '.join(ranges)}, but ZooKeeper knows "
        f"other brokers with these ids: {', '.join(said)}{more}. {effect}"
    )


def _free(snapshot: Snapshot) -> int:
    """Return a first id above all ids in ZooKeeper, so that the cluster can grow."""
    used = {*snapshot.brokers, *(int(name) for name in snapshot.broker_configs if name.isdecimal())}
    for observed in snapshot.topics.values():
        for part in observed.assignment.partitions.values():
            used |= {*part.replicas, *part.adding, *part.removing}
    return max((broker + 1 for broker in used if broker < MAX_FIRST_BROKER_ID), default=0)


def _waiting(reason: str, message: str, *, needs_person: bool = False) -> Waiting:
    return Waiting(what=BROKER_IDS, reason=reason, message=message, needs_person=needs_person)
