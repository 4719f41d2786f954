"""Derives the status of resources, with conditions and counts, from the decision and the observed state. Pure.

`odradek up` prints it, and `status_documents` converts it into the `status` of Kubernetes objects. Conditions follow
the Kubernetes API conventions: type, status, reason in CamelCase, message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from uuid import UUID

from odradek_operator.crds import Cluster, Topic
from odradek_operator.topics.topic_actions import Decision
from odradek_operator.topics.zookeeper_state import ObservedTopic, Snapshot


class Truth(Enum):
    """Status of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition of a resource."""

    type: str
    status: Truth
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStatus:
    """Status of a Topic resource."""

    observed_generation: int
    ready: Condition
    topic_id: UUID | None = None
    partitions: int = 0
    replicas: int = 0
    under_replicated: int = 0
    offline: int = 0
    adopted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """Status of a Cluster resource."""

    observed_generation: int
    ready: Condition
    cluster_id: str | None
    controller_id: int | None
    controller_epoch: int
    bootstrap: Mapping[str, str]
    """Addresses of all live brokers, comma-separated, by listener."""
    brokers: Mapping[int, str]
    """`Running` or `Missing`, by broker id."""


def ready(reason: str, message: str) -> Condition:
    """Return the condition `Ready` with status True: everything matches the specification."""
    return Condition(type="Ready", status=Truth.TRUE, reason=reason, message=message)


def not_ready(reason: str, message: str) -> Condition:
    """Return the condition `Ready` with status False: something does not match the specification."""
    return Condition(type="Ready", status=Truth.FALSE, reason=reason, message=message)


def unknown(reason: str, message: str) -> Condition:
    """Return the condition `Ready` with status Unknown."""
    return Condition(type="Ready", status=Truth.UNKNOWN, reason=reason, message=message)


def topic_status(topic: Topic, snapshot: Snapshot, decision: Decision) -> TopicStatus:
    """Return the status of a Topic. It is ready if the topic matches the resource and every replica is in sync."""
    observed = snapshot.topics.get(topic.name)
    condition = _topic_condition(observed, decision)
    if observed is None:
        return TopicStatus(observed_generation=topic.generation, ready=condition)
    return TopicStatus(
        observed_generation=topic.generation,
        ready=condition,
        topic_id=observed.assignment.topic_id,
        partitions=len(observed.assignment.partitions),
        replicas=observed.replication_factor,
        under_replicated=len(observed.under_replicated()),
        offline=len(observed.offline()),
        adopted=decision.adopted,
    )


def _topic_condition(observed: ObservedTopic | None, decision: Decision) -> Condition:
    if decision.refusals:
        # Obstacles that the user has to remove come before temporary ones.
        refusals = sorted(decision.refusals, key=lambda refusal: refusal.obstacle.passes)
        messages = " ".join(_as_sentence(refusal.message) for refusal in refusals)
        return not_ready(refusals[0].obstacle.value, messages)
    if decision.actions or observed is None:
        what = "; ".join(action.reason for action in decision.actions) or "the topic does not exist"
        return not_ready("Reconciling", f"In progress: {what}.")
    partitions = len(observed.assignment.partitions)
    if offline := len(observed.offline()):
        return not_ready("Offline", f"{offline} of {partitions} partitions have no leader.")
    if decision.reassigning:
        return not_ready("Reassigning", _as_sentence(decision.reassigning))
    if behind := len(observed.under_replicated()):
        return not_ready("UnderReplicated", f"{behind} of {partitions} partitions are under-replicated.")
    return ready("Reconciled", f"All {partitions} partitions are as specified, and all replicas are in sync.")


def _as_sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def cluster_status(cluster: Cluster, snapshot: Snapshot) -> ClusterStatus:
    """Return the status of a Cluster. It is ready if every broker is registered and there is a controller."""
    ids = sorted({*cluster.brokers.ids(), *snapshot.brokers})
    return ClusterStatus(
        observed_generation=cluster.generation,
        ready=registration_condition(cluster, snapshot),
        cluster_id=snapshot.cluster_id,
        controller_id=snapshot.controller_id,
        controller_epoch=snapshot.controller_epoch,
        bootstrap=_bootstrap(snapshot),
        brokers={broker: "Running" if broker in snapshot.brokers else "Missing" for broker in ids},
    )


def registration_condition(cluster: Cluster, snapshot: Snapshot) -> Condition:
    """Return the condition `Ready` by the registrations of brokers and controller in ZooKeeper."""
    ids = sorted({*cluster.brokers.ids(), *snapshot.brokers})
    missing = [broker for broker in ids if broker not in snapshot.brokers]
    if missing:
        named = ", ".join(map(str, missing))
        return not_ready(
            "BrokersMissing", f"Not registered in ZooKeeper: {'broker' if len(missing) == 1 else 'brokers'} {named}."
        )
    if snapshot.controller_id is None:
        return not_ready("NoController", "The cluster has no controller.")
    return ready("Running", "Every broker is running: " + ", ".join(map(str, ids)) + ".")


def _bootstrap(snapshot: Snapshot) -> dict[str, str]:
    addresses: dict[str, list[str]] = {}
    for _, registration in sorted(snapshot.brokers.items()):
        for endpoint in registration.endpoints:
            addresses.setdefault(endpoint.listener, []).append(str(endpoint))
    return {listener: ",".join(of_brokers) for listener, of_brokers in addresses.items()}
