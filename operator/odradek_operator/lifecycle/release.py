"""Giving up the disk of a broker whose node or volume is lost, so that the broker begins anew elsewhere. Pure.

Enters: a cluster, what Kubernetes and ZooKeeper show of it, the time. Leaves: a `Verdict`. Called by `plan`.
Invariant: no record that is in sync somewhere is given up where it is the only one.

A disk counts as *lost* when its claim is `Lost`, or when its volume is tied to nodes none of which is there and ready,
and the broker's pod is not somewhere else. A pod that is Pending for want of memory has lost nothing, however long it
waits: its disk is whole. Since when a node does not answer, the node says; a node that is gone cannot, so then it is
the time since which its pod fits nowhere. A volume that is reachable from other nodes is never given up.

A lost disk is given up when

1. `releaseLostAfterSeconds` have passed (a `Lost` claim will not come back, so it needs none), and it is not 0;
2. the broker is not registered in ZooKeeper. A node that Kubernetes cannot reach may be well: its broker lives on, and
   so does its disk. Once its session has expired, the controller has moved its leaders under new epochs, so whatever
   it still took would not be acknowledged, and is cut off when it comes back;
3. each partition with a replica on it has an in-sync replica on a live broker elsewhere.

One disk at a time. A second one is judged anew by what the first has left: by 3 only disks that are not needed go, in
whatever order, so the first need not be full again. The claims are marked before the pod goes: they vanish with the
last pod that uses them, and the StatefulSet makes new ones. The step is repeated until both are done.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from odradek_operator.crds import Cluster
from odradek_operator.lifecycle.observed import Claim, KubernetesState, Pod
from odradek_operator.lifecycle.replicas import named, partitions_of, unreadable
from odradek_operator.lifecycle.steps import ReleaseClaims, Verdict, Waiting
from odradek_operator.objects import names
from odradek_operator.observed import Snapshot

_AT_ONCE: Final = float("-inf")


def is_unreachable(state: KubernetesState, node: str) -> bool:
    """Whether Kubernetes does not know the node, or hears nothing good of it."""
    return node not in state.nodes or not state.nodes[node].ready


def is_homeless(state: KubernetesState, pod: Pod) -> bool:
    """Whether a pod is away because of its node or disk, and not because somebody restarted it."""
    if pod.node is not None:
        return is_unreachable(state, pod.node)
    return any(_is_lost(state, state.claims[name]) for name in pod.claims if name in state.claims)


def decide(cluster: Cluster, state: KubernetesState, snapshot: Snapshot, *, count: int, now: float) -> Verdict:
    """The next disk to be given up, and why others are not. `count` is how many brokers the set has."""
    waiting: list[Waiting] = []
    for broker in range(count):
        pod = state.brokers.get(broker)
        lost = _lost_claims(cluster, state, broker, pod)
        since = _lost_since(state, pod, lost)
        if since is None:
            waiting += _stranded(cluster, state, snapshot, broker, now)
            continue
        if _is_done(pod, lost):
            waiting.append(
                _wait("DiskReleased", f"The disk of broker {broker} is given up; its volume claim is going.")
            )
            continue
        obstacle = _obstacle(cluster, snapshot, broker, waited=now - since)
        if obstacle is None:
            return Verdict(step=_release(state, broker, pod, lost, cluster), waiting=tuple(waiting))
        waiting.append(obstacle)
    return Verdict(waiting=tuple(waiting))


def _is_lost(state: KubernetesState, claim: Claim) -> bool:
    return claim.lost or (bool(claim.nodes) and all(is_unreachable(state, node) for node in claim.nodes))


def _lost_claims(cluster: Cluster, state: KubernetesState, broker: int, pod: Pod | None) -> list[Claim]:
    """The broker's claims whose disks are lost; none while its pod is on a node that is well."""
    if pod is not None and pod.node is not None and not is_unreachable(state, pod.node):
        return [state.claims[name] for name in pod.claims if name in state.claims and state.claims[name].lost]
    claims = (state.claims[name] for name in _claim_names(cluster, broker) if name in state.claims)
    return [claim for claim in claims if _is_lost(state, claim)]


def _claim_names(cluster: Cluster, broker: int) -> list[str]:
    volumes = cluster.brokers.volumes
    pod = names.broker_pod(cluster.name, broker)
    return [f"{names.volume_claim_template(volume.id, volumes=len(volumes))}-{pod}" for volume in volumes]


def _lost_since(state: KubernetesState, pod: Pod | None, lost: Iterable[Claim]) -> float | None:
    """Since when the first of these disks is lost, as far as anybody knows; None while nobody does."""
    times = []
    for claim in lost:
        known = [state.nodes[node].changed_at for node in claim.nodes if node in state.nodes]
        if claim.lost:
            times.append(_AT_ONCE)
        elif known:
            times.append(max(known))
        elif pod is not None and pod.unscheduled_since is not None:
            times.append(pod.unscheduled_since)
    return min(times, default=None)


def _is_done(pod: Pod | None, lost: Iterable[Claim]) -> bool:
    """Whether only Kubernetes has still something to do: a pod that no node runs holds no claim back."""
    return all(claim.terminating for claim in lost) and (pod is None or pod.node is None)


def _stranded(
    cluster: Cluster, state: KubernetesState, snapshot: Snapshot, broker: int, now: float
) -> Iterable[Waiting]:
    """About a pod that no node runs any more though its disk could be used elsewhere.

    Whether the node is off, nobody here can know, and two processes on one disk would ruin it.
    """
    pod, patience = state.brokers.get(broker), cluster.brokers.release_lost_after_seconds
    node = None if pod is None or pod.node is None else state.nodes.get(pod.node)
    if pod is None or node is None or node.ready or broker in snapshot.brokers or patience == 0:
        return
    if now - node.changed_at >= patience:
        yield _wait(
            "PodStranded",
            f"The node {node.name} of {pod.name} does not answer, and its disk is not tied to that node: once the "
            "node is surely off, delete the pod by force, and it starts elsewhere with its records.",
            needs_person=True,
        )


def _obstacle(cluster: Cluster, snapshot: Snapshot, broker: int, *, waited: float) -> Waiting | None:
    """Why the disk of a broker, lost since so many seconds, is kept; None where nothing is left to wait for."""
    patience = cluster.brokers.release_lost_after_seconds
    if patience == 0:
        return _wait(
            "ReleaseIsOff",
            f"Broker {broker} has lost its node or disk, and releaseLostAfterSeconds is 0: bring the node back, or "
            "delete the broker's volume claims and pod.",
            needs_person=True,
        )
    if broker in snapshot.brokers:
        return _wait(
            "BrokerRegistered",
            f"Kubernetes has lost the node or disk of broker {broker}, which is still registered in ZooKeeper.",
        )
    if waited < patience:
        return _wait(
            "NodeLost",
            f"Broker {broker} has lost its node or disk, which is given up if it is not back within {patience} s.",
        )
    if snapshot.controller_id is None:
        return _wait("NoController", f"The disk of broker {broker} is kept: the cluster has no controller.")
    if unknown := unreadable(snapshot):
        return _wait("ZnodeUnreadable", f"The lost disk of broker {broker} is kept. {unknown}", needs_person=True)
    needed = [
        partition.name
        for partition in partitions_of(snapshot)
        if broker in partition.assignment.replicas
        and partition.state is not None
        and not any(member in snapshot.brokers for member in partition.in_sync)
    ]
    if needed:
        return _wait(
            "OnlyCopies",
            f"The lost disk of broker {broker} is kept: {named(needed)} have no in-sync replica elsewhere. Bring the "
            "node back, or delete what may be lost.",
            needs_person=True,
        )
    return None


def _release(
    state: KubernetesState, broker: int, pod: Pod | None, lost: Iterable[Claim], cluster: Cluster
) -> ReleaseClaims:
    claims = {claim.name: claim.uid for claim in lost}
    nodes = sorted({node for claim in lost for node in claim.nodes})
    where = f" with {', '.join(nodes)}" if nodes else ""
    return ReleaseClaims(
        broker=broker,
        pod=names.broker_pod(cluster.name, broker) if pod is None else pod.name,
        pod_uid=None if pod is None else pod.uid,
        claims=claims,
        force=pod is not None and pod.node is not None and is_unreachable(state, pod.node),
        reason=f"the disk of broker {broker} is lost{where}, and everything on it is in sync elsewhere",
    )


def _wait(reason: str, sentence: str, *, needs_person: bool = False) -> Waiting:
    return Waiting(what="release", reason=reason, sentence=sentence, needs_person=needs_person)
