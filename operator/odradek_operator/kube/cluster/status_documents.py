"""Builds the `status` of resources as dictionaries in the form of the CRDs (`crds/status_types`). Pure.

At the end of each round, it takes resources, the observed state, the decisions and the present status, and returns the
new status. A status that equals the present one is not written, so nothing in it changes without a cause. The
`lastTransitionTime` of a condition changes only with its status. Unknown values are omitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from odradek.zk.layout import encode_uuid
from odradek_operator.crds import Cluster, Topic
from odradek_operator.exporter.report import TopicReport as TopicReport
from odradek_operator.lifecycle.observed_cluster import KubernetesState, Node, Pod
from odradek_operator.lifecycle.steps import BROKER_IDS, SPEC, ClusterDecision, Waiting
from odradek_operator.lifecycle.tls_links import SECURITY
from odradek_operator.objects import names
from odradek_operator.topics.topic_actions import Decision
from odradek_operator.topics.topic_status import (
    Condition,
    Truth,
    not_ready,
    registration_condition,
    topic_status,
    unknown,
)
from odradek_operator.topics.zookeeper_state import Snapshot

Document = dict[str, Any]

MAX_MESSAGE: Final = 4_096
"""Maximum characters of a condition's message. The CRD allows more, but longer messages are unreadable."""
MAX_WARNINGS: Final = 32
ROLLING: Final = "Rolling"
ROLLS: Final = ("roll", "zookeeper-roll")
BLOCKING: Final = (SPEC, SECURITY, "apply", "claims", "sizes")
"""Values of `Waiting.what` that may be the reason for missing brokers or members."""
ZOOKEEPER_UNREACHABLE: Final = "ZooKeeperUnreachable"
INVALID_SPEC: Final = "InvalidSpec"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The results of a round for a cluster."""

    snapshot: Snapshot | None
    """State in ZooKeeper; None while ZooKeeper does not answer, with the reason in `trouble`."""
    trouble: str = ""
    state: KubernetesState = field(default_factory=KubernetesState)
    decision: ClusterDecision
    bootstrap: Mapping[str, str] = field(default_factory=dict)
    """Bootstrap addresses by listener; listeners without a known address are missing."""
    notices: tuple[str, ...] = ()
    """Warnings about fields without effect."""


def cluster_document(cluster: Cluster, view: ClusterView, *, previous: Mapping[str, Any], now: float) -> Document:
    """Return the status of a Cluster. `previous`: the present status; `now`: seconds since the epoch."""
    snapshot, decision = view.snapshot, view.decision
    brokers = _brokers(cluster, view)
    running = sum(one["state"] == "Running" for one in brokers if one["id"] in cluster.brokers.ids())
    # The last broker of a rolling restart is still starting when no pod is outdated any more.
    condition = _cluster_condition(cluster, view, brokers, rolls=bool(decision.outdated) or "roll" in previous)
    document: Document = {
        "observedGeneration": cluster.generation,
        "conditions": conditions([condition], cluster.generation, previous=previous, now=now),
        "version": _versions(cluster, view.state),
        "brokersReady": f"{running}/{len(cluster.brokers.ids())}",
        "listeners": [
            _known(name=one.name, type=one.type.value, bootstrap=view.bootstrap.get(one.name))
            for one in cluster.listeners
        ],
        "brokers": brokers,
    }
    if snapshot is not None:
        epoch = snapshot.controller_epoch if snapshot.controller_epoch_version is not None else None
        document |= _known(clusterId=snapshot.cluster_id, controllerId=snapshot.controller_id, controllerEpoch=epoch)
    else:
        # Keep the cluster id while ZooKeeper does not answer.
        document |= _known(clusterId=previous.get("clusterId"))
    if decision.outdated or condition.reason == ROLLING or any(one.what in ROLLS for one in decision.waiting):
        document["roll"] = _known(waitingFor=_first(decision.waiting, ROLLS))
    if decision.progress is not None:
        progress = decision.progress
        document["rebalance"] = {
            "remaining": progress.remaining,
            "total": progress.total,
            "reason": progress.reason,
        }
    if cluster.zookeeper.connect is None:
        members = sum(pod.ready for pod in view.state.ensemble.values())
        document["zookeeper"] = {"ready": f"{members}/{cluster.zookeeper.replicas}"}
    if warnings := [*view.notices, *(() if snapshot is None else snapshot.damaged)]:
        document["warnings"] = warnings[:MAX_WARNINGS]
    return document


def _cluster_condition(cluster: Cluster, view: ClusterView, brokers: Iterable[Document], *, rolls: bool) -> Condition:
    """Return the Ready condition: true if all brokers and members run as specified and nothing moves or waits.

    The first cause is reported: first what needs a person and may cause everything else, then what is missing, what
    waits, and what is in progress.
    """
    blocked, snapshot = _blocked(view.decision), view.snapshot
    if snapshot is None:
        return blocked or _without_zookeeper(cluster, view)
    return (
        blocked
        or _brokers_away(cluster, view, brokers, rolls=rolls)
        or _not_serving(cluster, snapshot)
        or _not_settled(cluster, view)
        or registration_condition(cluster, snapshot)
    )


def _blocked(decision: ClusterDecision) -> Condition | None:
    for waiting in decision.waiting:
        if waiting.needs_person and waiting.what in BLOCKING:
            return not_ready(waiting.reason, waiting.message)
    return None


def _brokers_away(cluster: Cluster, view: ClusterView, brokers: Iterable[Document], *, rolls: bool) -> Condition | None:
    """Return the condition about brokers that do not run. A planned restart that does not fail is no missing broker."""
    decision = view.decision
    away = [one for one in brokers if one["state"] != "Running"]
    held_back = next((one for one in decision.waiting if one.what == BROKER_IDS), None)
    present = cluster.brokers.ids(decision.broker_count, decision.per_pod)
    if held_back is not None and not any(one["id"] in present for one in away):
        return not_ready(held_back.reason, held_back.message)
    if not away:
        return None
    planned = rolls and all(_restarts(cluster, one, view) for one in away)
    reason = ROLLING if planned else "BrokersMissing"
    return not_ready(reason, " ".join(_why_away(one) for one in away))


def _restarts(cluster: Cluster, broker: Document, view: ClusterView) -> bool:
    """Whether a missing broker is in a planned restart."""
    if broker["state"] in ("Lost", "Pending"):
        return False
    pod = view.state.brokers.get(cluster.brokers.pod_of(broker["id"]))
    return not view.state.refusals if pod is None else pod.terminating or not pod.failing


def _not_serving(cluster: Cluster, snapshot: Snapshot) -> Condition | None:
    registered = registration_condition(cluster, snapshot)
    if registered.status is not Truth.TRUE:
        return registered
    if offline := _offline(snapshot):
        return not_ready(
            "PartitionsOffline", f"{offline} {'partition has' if offline == 1 else 'partitions have'} no leader."
        )
    return None


def _not_settled(cluster: Cluster, view: ClusterView) -> Condition | None:
    decision = view.decision
    for waiting in sorted(decision.waiting, key=lambda one: not one.needs_person):
        return not_ready(waiting.reason, waiting.message)
    if missing := _missing_members(cluster, view.state):
        return not_ready("ZooKeeperMembersMissing", " ".join(missing))
    if decision.outdated:
        count = len(decision.outdated)
        noun = "brokers" if cluster.brokers.per_pod == 1 else "pods"
        return not_ready(ROLLING, f"{count} of {cluster.brokers.replicas} {noun} are waiting for their restart.")
    if decision.progress is not None:
        progress = decision.progress
        return not_ready(
            "Rebalancing", f"{progress.remaining} of {progress.total} partitions have to move: {progress.reason}."
        )
    return None


def _without_zookeeper(cluster: Cluster, view: ClusterView) -> Condition:
    """Return why ZooKeeper does not answer: claims without volumes first, then what its members report."""
    trouble = view.trouble or "ZooKeeper does not answer."
    members = view.state.ensemble
    pending = sorted(
        name
        for pod in members.values()
        if pod.node is None
        for name in pod.claims
        if (claim := view.state.claims.get(name)) is not None and claim.volume is None
    )
    details = _missing_members(cluster, view.state) if members or view.state.refusals else []
    if pending:
        said = f"Claims without a volume: {', '.join(pending)}."
        return not_ready("ClaimsPending", " ".join([said, *details]))
    return not_ready(ZOOKEEPER_UNREACHABLE, " ".join([trouble, *details]))


def _versions(cluster: Cluster, state: KubernetesState) -> str:
    """Return the versions of the brokers, several during a rolling restart; the specified one before there are any."""
    found = {pod.version for pod in state.brokers.values() if pod.version}
    return ", ".join(sorted(found)) or cluster.version


def _missing_members(cluster: Cluster, state: KubernetesState) -> list[str]:
    """Return a message about each member of the cluster's own ensemble that is not ready."""
    if cluster.zookeeper.connect is not None:
        return []
    found = []
    pods, refusals = state.ensemble, state.refusals
    for number in range(cluster.zookeeper.replicas):
        pod = pods.get(number)
        if pod is None or pod.terminating or not pod.ready:
            trouble = _no_pod(names.zookeeper_pod(cluster.name, number), refusals) if pod is None else pod.trouble
            found.append(f"ZooKeeper member {number} is not ready" + (f": {trouble}" if trouble else "."))
    return found


def _why_away(broker: Document) -> str:
    message = broker.get("reason", "")
    return f"Broker {broker['id']} is {broker['state'].lower()}" + (f": {message}" if message else ".")


def _offline(snapshot: Snapshot) -> int:
    """Count partitions that had a leader and have none."""
    return sum(
        topic.states[number].leader < 0
        for name, topic in snapshot.topics.items()
        if name not in snapshot.deleting
        for number in topic.states
    )


def _first(waiting: Iterable[Waiting], kinds: Iterable[str]) -> str | None:
    wanted = set(kinds)
    return next((one.message for one in waiting if one.what in wanted), None)


def _brokers(cluster: Cluster, view: ClusterView) -> list[Document]:
    """Return the brokers that are specified, have a pod, or are registered."""
    registered = {} if view.snapshot is None else view.snapshot.brokers
    ids = cluster.brokers.ids()
    pods = {
        broker: pod
        for pod in view.state.brokers.values()
        for broker in cluster.brokers.ids_of_pod(pod.ordinal, pod.slots)
    }
    found = []
    for broker in sorted({*ids, *pods, *registered}):
        pod, registration = pods.get(broker), registered.get(broker)
        is_ours = broker in ids or pod is not None
        there = registration is not None if view.snapshot is not None else None
        slot = cluster.brokers.slot_of(broker)
        state, reason = _state(pod, slot, there, view.state.nodes) if is_ours else ("Running", "")
        if pod is None and is_ours:
            reason = _no_container(cluster, broker, view.state)
        found.append(
            _known(
                id=broker,
                state=state,
                pod=None if pod is None else pod.name,
                node=None if pod is None else pod.node,
                rack=None if registration is None else registration.rack,
                outdated=True if pod is not None and pod.ordinal in view.decision.outdated else None,
                reason=reason or None,
            )
        )
    return found


def _no_container(cluster: Cluster, broker: int, state: KubernetesState) -> str:
    """Return why there is no container for a broker."""
    ordinal = cluster.brokers.pod_of(broker)
    if ordinal in state.brokers:
        return f"It starts when {state.brokers[ordinal].name} restarts."
    return _no_pod(names.broker_pod(cluster.name, ordinal), state.refusals)


def _no_pod(name: str, refusals: Mapping[str, str]) -> str:
    return " ".join(["It has no pod.", *filter(None, [refusals.get(name)])])


def _state(pod: Pod | None, slot: int, registered: bool | None, nodes: Mapping[str, Node]) -> tuple[str, str]:
    """Return state and reason of the broker in a slot. `registered` is None while ZooKeeper does not answer."""
    if pod is None:
        return "Missing", ""
    container = pod.containers.get(slot) if pod.slots > 1 else None
    ready = pod.ready or (container is not None and container.ready)
    trouble = pod.trouble if container is None else container.trouble
    if pod.node is not None and nodes and not (ready and registered):
        node = nodes.get(pod.node)
        if node is None:
            return "Lost", f"Its node {pod.node} is gone."
        if not node.ready:
            return "Lost", f"Its node {pod.node} has not been ready since {_timestamp(node.changed_at)}."
    if pod.terminating:
        return "Restarting", pod.trouble
    if pod.node is None:
        return "Pending", pod.trouble
    if not ready:
        return "Starting", trouble
    if registered is False:
        return "Starting", "It is not registered in ZooKeeper."
    return "Running", ""


def topic_document(
    topic: Topic,
    snapshot: Snapshot,
    decision: Decision,
    *,
    report: TopicReport | None,
    previous: Mapping[str, Any],
    now: float,
    warnings: tuple[str, ...] = (),
) -> Document:
    """Return the status of a Topic. `report`: the values of its cluster's exporter, None if there are none."""
    status = topic_status(topic, snapshot, decision)
    document: Document = {
        "observedGeneration": topic.generation,
        "conditions": conditions([status.ready], topic.generation, previous=previous, now=now),
    }
    if warnings:
        document["warnings"] = list(warnings[:MAX_WARNINGS])
    if topic.name not in snapshot.topics:
        return document
    document |= _known(
        topicId=None if status.topic_id is None else encode_uuid(status.topic_id),
        partitions=status.partitions,
        replicas=status.replicas,
        underReplicated=status.under_replicated,
        offline=status.offline,
        adopted=list(status.adopted) or None,
    )
    if report is not None:
        if report.size_bytes is not None:
            document |= {"sizeBytes": report.size_bytes, "size": human_size(report.size_bytes)}
        if report.groups:
            document["groups"] = [
                _known(group=one.group, lagRecords=one.lag_records, lagSeconds=one.lag_seconds) for one in report.groups
            ]
    return document


def with_condition(
    condition: Condition, generation: int, *, previous: Mapping[str, Any], now: float, keep_figures: bool = True
) -> Document:
    """Return the present status with another condition, if nothing else is known.

    Without `keep_figures`, only the times of the conditions are kept.
    """
    kept = {
        key: value
        for key, value in previous.items()
        if keep_figures and key not in ("observedGeneration", "conditions")
    }
    return {
        "observedGeneration": generation,
        "conditions": conditions([condition], generation, previous=previous, now=now),
        **kept,
    }


def invalid(message: str) -> Condition:
    """Return the status for an invalid specification. `message`: that of the `ResourceError`."""
    return not_ready(INVALID_SPEC, message)


def invalid_cluster(cluster: str) -> Condition:
    """Return the status of a Topic whose Cluster is invalid and has no earlier valid specification."""
    return unknown(
        "ClusterInvalid",
        f"The specification of Cluster {cluster} is invalid, so its Topics are not reconciled: see its status.",
    )


def no_cluster(kind: str, cluster: str) -> Condition:
    """Return the status of a Topic or User whose Cluster does not exist."""
    return not_ready(
        "NoCluster",
        f"There is no Cluster {cluster} in this namespace." if cluster else f"The {kind} does not name a Cluster.",
    )


def deletion_waits(namespace: str, topic: str, why: str) -> Condition:
    """Return the status of a Topic that is being deleted and whose topic is not deleted yet. `why`: the reason."""
    return not_ready(
        "DeletionWaits",
        f"The topic is not deleted yet. {why[:1].upper()}{why[1:].rstrip('.')}. To keep the topic and delete only the "
        f"resource: {_let_go(namespace, topic)}",
    )


def topic_is_deleted(namespace: str, topic: str) -> Condition:
    """Return the status of a Topic whose topic the brokers are deleting."""
    return not_ready(
        "Deleting",
        "The brokers are deleting the topic, which needs every broker with a replica of it to be online. To delete the "
        f"resource without waiting: {_let_go(namespace, topic)}",
    )


def _let_go(namespace: str, topic: str) -> str:
    change = """{"spec":{"deletion":"Protect"}}"""
    return f"kubectl patch topic.odradek.dev {topic} --namespace {namespace} --type merge -p '{change}'"


def paused() -> Condition:
    """Return the condition of a paused resource."""
    return unknown("Paused", 'The annotation odradek.dev/paused is "true": nothing is changed until it is removed.')


def zookeeper_unreachable(trouble: str) -> Condition:
    """Return the status of a Topic while ZooKeeper does not answer."""
    return unknown(ZOOKEEPER_UNREACHABLE, trouble)


def conditions(
    present: Iterable[Condition], generation: int, *, previous: Mapping[str, Any], now: float
) -> list[Document]:
    """Return conditions in Kubernetes' form, by type, with the time of the last change of their status."""
    before = {one.get("type"): one for one in previous.get("conditions") or [] if isinstance(one, Mapping)}
    found = []
    for condition in sorted(present, key=lambda one: one.type):
        earlier = before.get(condition.type, {})
        same = earlier.get("status") == condition.status.value and "lastTransitionTime" in earlier
        found.append(
            {
                "type": condition.type,
                "status": condition.status.value,
                "reason": condition.reason,
                "message": _cut(condition.message),
                "lastTransitionTime": earlier["lastTransitionTime"] if same else _timestamp(now),
                "observedGeneration": generation,
            }
        )
    return found


def human_size(size: int) -> str:
    """Format bytes as a Kubernetes quantity: 0, 512, 1.5Gi."""
    value, power = float(size), 0
    while value >= 1023.95 and power < len(_UNITS) - 1:
        value, power = value / 1024, power + 1
    return f"{value:.1f}".removesuffix(".0") + _UNITS[power]


_UNITS: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi")


def _cut(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE else message[: MAX_MESSAGE - 1] + "…"


def _timestamp(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _known(**values: object) -> Document:
    """Return a mapping without None values."""
    return {key: value for key, value in values.items() if value is not None}


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the patch from `before` to `after`; empty if they are equal. Lists are replaced as a whole.

    `after` must not contain None, which means removal in a merge patch.
    """
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            inner = merge_patch(old, value)
            if inner:
                patch[key] = inner
        elif old != value or key not in before:
            patch[key] = value
    return patch
