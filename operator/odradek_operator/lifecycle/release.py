"""Giving up disks that are lost, so that a broker or a member of the ensemble begins anew elsewhere. Pure.

Enters: a cluster, what Kubernetes and ZooKeeper show of it, the time. Leaves: a `Verdict`. Called by `cluster_plan`.
Which disks are lost says `lost`. Invariants: no record that is in sync somewhere is given up where it is the only one;
no write that the ensemble acknowledged is given up with a member that may be its only witness.

A lost disk is given up when `releaseLostAfterSeconds` of its kind have passed (a `Lost` claim will not come back, so it
needs none) and are not 0, and

- of a *broker*: it is not registered in ZooKeeper, and each partition with a replica on it has an in-sync replica on
  a live broker elsewhere. A node that Kubernetes cannot reach may be well: its broker lives on, and so does its disk.
  Once its session has expired, the controller has moved its leaders under new epochs, so whatever it still took would
  not be acknowledged, and is cut off when it comes back;
- of a *member of the ensemble*: it does not answer, all others do, and one of them leads all the rest, and only them,
  in step. Then every write that was acknowledged is on each of them; and of those that follow, each is on so many that
  no majority is without it, not even one in which the empty member votes before it is refilled. While a second member
  is silent, the lost disk may hold what nobody else has: it is kept, as in an ensemble of one.

One disk at a time. A second one is judged anew by what the first has left: only disks that are not needed go, in
whatever order, so the first need not be full again. The claims are marked before the pod goes: they vanish with the
last pod that uses them, and the StatefulSet makes new ones. The step is repeated until both are done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from odradek_operator.crds import Cluster
from odradek_operator.lifecycle.lost import is_given_up, is_unreachable, lost_claims, lost_since
from odradek_operator.lifecycle.observed_cluster import LEADER, Claim, KubernetesState, Pod, Quorum
from odradek_operator.lifecycle.replicas import named, partitions_of, unreadable
from odradek_operator.lifecycle.steps import ReleaseClaims, Verdict, Waiting
from odradek_operator.objects import names
from odradek_operator.objects.names import Component
from odradek_operator.objects.storage import ZOOKEEPER_CLAIM
from odradek_operator.topics.zookeeper_state import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """What brokers and members of the ensemble have each of their own."""

    component: Component
    noun: str
    pods: Mapping[int, Pod]
    pod: Callable[[int], str]
    """Names of pods."""
    claims: Callable[[int], list[str]]
    """Names of claims."""
    patience: int
    """`releaseLostAfterSeconds`."""
    alive: Callable[[int], str]
    """Where others still see this one, for the end of a sentence; empty where they do not."""
    needed: Callable[[int], Waiting | None]
    """Why the disk of this one may still be needed; None where it is not."""
    elsewhere: str
    """Why it is not, for the reason of the step."""


def brokers(cluster: Cluster, state: KubernetesState, snapshot: Snapshot, *, count: int, now: float) -> Verdict:
    """The next broker's disk to be given up, and why others are not. `count` is how many brokers the set has."""
    kind = _Kind(
        component=Component.KAFKA,
        noun="broker",
        pods=state.brokers,
        pod=lambda broker: names.broker_pod(cluster.name, broker),
        claims=lambda broker: _broker_claims(cluster, broker),
        patience=cluster.brokers.release_lost_after_seconds,
        alive=lambda broker: "is still registered in ZooKeeper" if broker in snapshot.brokers else "",
        needed=lambda broker: _needed_broker(snapshot, broker),
        elsewhere="everything on it is in sync elsewhere",
    )
    return _decide(kind, state, cluster.brokers.ids(count), now=now)


def members(cluster: Cluster, state: KubernetesState, quorum: Quorum, *, now: float) -> Verdict:
    """The same of the ensemble, by what its members say of themselves."""
    if cluster.zookeeper.connect is not None:
        return Verdict()
    size = cluster.zookeeper.replicas
    kind = _Kind(
        component=Component.ZOOKEEPER,
        noun="ZooKeeper member",
        pods=state.ensemble,
        pod=lambda member: names.zookeeper_pod(cluster.name, member),
        claims=lambda member: [f"{ZOOKEEPER_CLAIM}-{names.zookeeper_pod(cluster.name, member)}"],
        patience=cluster.zookeeper.release_lost_after_seconds,
        alive=lambda member: "answers" if member in quorum.modes else "",
        needed=lambda member: _needed_member(size, quorum, member),
        elsewhere="all other members serve",
    )
    return _decide(kind, state, range(size), now=now)


def _decide(kind: _Kind, state: KubernetesState, numbers: range, *, now: float) -> Verdict:
    """Of one kind, in order of their numbers."""
    waiting: list[Waiting] = []
    for number in numbers:
        pod = kind.pods.get(number)
        lost = lost_claims(state, pod, kind.claims(number))
        since = lost_since(state, pod, lost)
        if since is None:
            waiting += _stranded(kind, state, number, now=now)
            continue
        if is_given_up(pod, lost):
            waiting.append(
                _wait("DiskReleased", f"The disk of {kind.noun} {number} is given up; its volume claim is going.")
            )
            continue
        obstacle = _obstacle(kind, number, waited=now - since)
        if obstacle is None:
            return Verdict(step=_release(kind, state, number, pod, lost), waiting=tuple(waiting))
        waiting.append(obstacle)
    return Verdict(waiting=tuple(waiting))


def _obstacle(kind: _Kind, number: int, *, waited: float) -> Waiting | None:
    """Why a disk, lost since so many seconds, is kept; None where nothing is left to wait for."""
    who = f"{kind.noun} {number}"
    if kind.patience == 0:
        return _wait(
            "ReleaseIsOff",
            f"{_upper(who)} has lost its node or disk, and releaseLostAfterSeconds is 0: bring the node back, or "
            f"delete the volume claims and the pod of this {kind.noun}.",
            needs_person=True,
        )
    if alive := kind.alive(number):
        return _wait("StillAlive", f"Kubernetes has lost the node or disk of {who}, which {alive}.")
    if waited < kind.patience:
        return _wait(
            "NodeLost",
            f"{_upper(who)} has lost its node or disk, which is given up if it is not back within {kind.patience} s.",
        )
    return kind.needed(number)


def _broker_claims(cluster: Cluster, broker: int) -> list[str]:
    volumes = cluster.brokers.volumes
    pod = names.broker_pod(cluster.name, broker)
    return [f"{names.volume_claim_template(volume.id, volumes=len(volumes))}-{pod}" for volume in volumes]


def _needed_broker(snapshot: Snapshot, broker: int) -> Waiting | None:
    """Why the disk of a broker that is not registered may still be needed."""
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


def _needed_member(size: int, quorum: Quorum, member: int) -> Waiting | None:
    """Why the disk of a member that does not answer may still be needed."""
    if size == 1:
        return _wait(
            "OnlyMember",
            "The lost disk of the only ZooKeeper member is kept: without it the cluster forgets its topics. Bring the "
            "node back, or restore the disk.",
            needs_person=True,
        )
    silent = [str(other) for other in range(size) if other != member and other not in quorum.modes]
    if silent:
        return _wait(
            "MemberSilent",
            f"The lost disk of ZooKeeper member {member} is kept until all others serve: {', '.join(silent)} "
            f"{'does' if len(silent) == 1 else 'do'} not.",
        )
    if sum(mode == LEADER for mode in quorum.modes.values()) != 1 or quorum.followers is None:
        return _wait("NoLeader", f"The lost disk of ZooKeeper member {member} is kept: the ensemble has no leader.")
    if quorum.followers != size - 2:
        return _wait(
            "FollowersDiffer",
            f"The lost disk of ZooKeeper member {member} is kept: the leader has {quorum.followers} followers in step "
            f"where {size - 2} are expected.",
        )
    return None


def _stranded(kind: _Kind, state: KubernetesState, number: int, *, now: float) -> Iterable[Waiting]:
    """About a pod that no node runs any more though its disk could be used elsewhere.

    Whether the node is off, nobody here can know, and two processes on one disk would ruin it.
    """
    pod = kind.pods.get(number)
    node = None if pod is None or pod.node is None else state.nodes.get(pod.node)
    if pod is None or node is None or node.ready or kind.alive(number) or kind.patience == 0:
        return
    if now - node.changed_at >= kind.patience:
        yield _wait(
            "PodStranded",
            f"The node {node.name} of {pod.name} does not answer, and its disk is not tied to that node: once the "
            "node is surely off, delete the pod by force, and it starts elsewhere with what is on its disk.",
            needs_person=True,
        )


def _release(kind: _Kind, state: KubernetesState, number: int, pod: Pod | None, lost: Iterable[Claim]) -> ReleaseClaims:
    claims = {claim.name: claim.uid for claim in lost}
    nodes = sorted({node for claim in lost for node in claim.nodes})
    where = f" with {', '.join(nodes)}" if nodes else ""
    return ReleaseClaims(
        component=kind.component,
        ordinal=number,
        pod=kind.pod(number),
        pod_uid=None if pod is None else pod.uid,
        claims=claims,
        force=pod is not None and pod.node is not None and is_unreachable(state, pod.node),
        reason=f"the disk of {kind.noun} {number} is lost{where}, and {kind.elsewhere}",
    )


def _upper(text: str) -> str:
    return text[0].upper() + text[1:]


def _wait(reason: str, sentence: str, *, needs_person: bool = False) -> Waiting:
    return Waiting(what="release", reason=reason, sentence=sentence, needs_person=needs_person)
