"""Releases lost disks, so that a broker or a member of the ensemble starts again elsewhere. Pure.

`cluster_plan` passes a cluster, its state in Kubernetes and ZooKeeper and the time, and gets a `Verdict`. `lost`
decides which disks are lost. Invariants: no disk is released that may hold the only in-sync copy of records, or the
only copy of a write that the ensemble acknowledged.

A lost disk is released after `releaseLostAfterSeconds` of its kind, unless that is 0 (a `Lost` claim does not have to
wait, because it never returns), under these conditions:

- *Pod of brokers*: none of its brokers is registered in ZooKeeper, and each partition with a replica on them has an
in-sync replica on another live broker. A node that Kubernetes cannot reach may still work, and its broker with it. But
once the broker's session has expired, the controller has moved its leaders to new epochs, so it cannot acknowledge
records any more, and truncates what it wrote since when it returns.
- *Ensemble member*: it does not answer, all other members do, and one of them leads exactly the others, all in sync.
Then every acknowledged write is on each of them. Every later write is on so many members that each majority contains
one of them, even a majority in which the empty member votes before it has copied the data. While a second member does
not answer, the lost disk may hold the only copy of a write and is kept, as in an ensemble of one.

One disk is released at a time, and the next is decided from the new state. The claims are deleted before the pod: they
disappear with the last pod that uses them, and the StatefulSet creates new ones. The step is repeated until both are
done.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from odradek_operator.crds import Cluster
from odradek_operator.lifecycle import resize
from odradek_operator.lifecycle.lost import is_given_up, is_unreachable, lost_claims, lost_since
from odradek_operator.lifecycle.observed_cluster import LEADER, Claim, KubernetesState, Pod, Quorum
from odradek_operator.lifecycle.replicas import listed, named, partitions_of, unreadable
from odradek_operator.lifecycle.steps import ReleaseClaims, Verdict, Waiting
from odradek_operator.objects import names
from odradek_operator.objects.names import Component
from odradek_operator.objects.storage import ZOOKEEPER_CLAIM
from odradek_operator.topics.zookeeper_state import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """The differences between brokers and members of the ensemble."""

    component: Component
    noun: str
    who: Callable[[int], str]
    """Returns the name of a broker or member in messages. Pods with several brokers are called by their name."""
    pods: Mapping[int, Pod]
    pod: Callable[[int], str]
    """Returns the name of a pod."""
    claims: Callable[[int], list[str]]
    """Returns the names of the claims of a pod."""
    patience: int
    """`releaseLostAfterSeconds` of the resource."""
    alive: Callable[[int], str]
    """Return why a broker or member is still alive, for the end of a message; empty if it is not alive."""
    needed: Callable[[int], Waiting | None]
    """Returns why a disk may still be needed; None if it is not."""
    elsewhere: str
    """Why its disk is not needed, for the reason of the step."""


def brokers(cluster: Cluster, state: KubernetesState, snapshot: Snapshot, *, count: int, now: float) -> Verdict:
    """Return the next disk of a pod of brokers to release, and why others are kept.

    `count`: the size of the StatefulSet.
    """
    per_pod = resize.present_per_pod(cluster, state, snapshot)

    def group(ordinal: int) -> tuple[int, ...]:
        return cluster.brokers.ids_of_pod(ordinal, per_pod)

    kind = _Kind(
        component=Component.KAFKA,
        noun="broker",
        who=lambda ordinal: f"broker {ordinal}" if per_pod == 1 else f"pod {names.broker_pod(cluster.name, ordinal)}",
        pods=state.brokers,
        pod=lambda ordinal: names.broker_pod(cluster.name, ordinal),
        claims=lambda ordinal: _broker_claims(cluster, ordinal),
        patience=cluster.brokers.release_lost_after_seconds,
        alive=lambda ordinal: _registered(snapshot, group(ordinal)),
        needed=lambda ordinal: _needed_broker(snapshot, group(ordinal), who=kind.who(ordinal)),
        elsewhere="everything on it is in sync elsewhere",
    )
    return _decide(kind, state, cluster.brokers.ordinals(count), now=now)


def members(cluster: Cluster, state: KubernetesState, quorum: Quorum, *, now: float) -> Verdict:
    """Return the next disk of an ensemble member to release, and why others are kept."""
    if cluster.zookeeper.connect is not None:
        return Verdict()
    size = cluster.zookeeper.replicas
    kind = _Kind(
        component=Component.ZOOKEEPER,
        noun="ZooKeeper member",
        who=lambda member: f"ZooKeeper member {member}",
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
    """Decide for brokers or for members, in order of their numbers."""
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
                _wait("DiskReleased", f"The disk of {kind.who(number)} is released; its volume claim is being deleted.")
            )
            continue
        obstacle = _obstacle(kind, number, waited=now - since)
        if obstacle is None:
            return Verdict(step=_release(kind, state, number, pod, lost), waiting=tuple(waiting))
        waiting.append(obstacle)
    return Verdict(waiting=tuple(waiting))


def _obstacle(kind: _Kind, number: int, *, waited: float) -> Waiting | None:
    """Return why a disk that has been lost for `waited` seconds is kept; None if it can be released."""
    who = kind.who(number)
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
            f"{_upper(who)} has lost its node or disk, which is released if it is not back within {kind.patience} s.",
        )
    return kind.needed(number)


def _broker_claims(cluster: Cluster, ordinal: int) -> list[str]:
    volumes = cluster.brokers.volumes
    pod = names.broker_pod(cluster.name, ordinal)
    return [f"{names.volume_claim_template(volume.id, volumes=len(volumes))}-{pod}" for volume in volumes]


def _registered(snapshot: Snapshot, group: Collection[int]) -> str:
    """Return that brokers of a pod are still registered; empty if none is."""
    found = [broker for broker in group if broker in snapshot.brokers]
    if not found:
        return ""
    if len(group) == 1:
        return "is still registered in ZooKeeper"
    return f"still has {listed(found)} registered in ZooKeeper"


def _needed_broker(snapshot: Snapshot, group: Collection[int], *, who: str) -> Waiting | None:
    """Return why the disk of a pod of which no broker is registered may still be needed."""
    if snapshot.controller_id is None:
        return _wait("NoController", f"The disk of {who} is kept: the cluster has no controller.")
    if unknown := unreadable(snapshot):
        return _wait("ZnodeUnreadable", f"The lost disk of {who} is kept. {unknown}", needs_person=True)
    needed = [
        partition.name
        for partition in partitions_of(snapshot)
        if not set(group).isdisjoint(partition.assignment.replicas)
        and partition.state is not None
        and not any(member in snapshot.brokers for member in partition.in_sync)
    ]
    if needed:
        return _wait(
            "OnlyCopies",
            f"The lost disk of {who} is kept: {named(needed)} have no in-sync replica elsewhere. Bring the "
            "node back, or delete what may be lost.",
            needs_person=True,
        )
    return None


def _needed_member(size: int, quorum: Quorum, member: int) -> Waiting | None:
    """Return why the disk of a silent member may still be needed."""
    if size == 1:
        return _wait(
            "OnlyMember",
            "The lost disk of the only ZooKeeper member is kept: without it the cluster loses its topics. Bring the "
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
    """Yield a message about a pod on an unreachable node whose disk other nodes could use.

    The operator cannot know whether the node is switched off, and two processes on one disk would destroy its data.
    """
    pod = kind.pods.get(number)
    node = None if pod is None or pod.node is None else state.nodes.get(pod.node)
    if pod is None or node is None or node.ready or kind.alive(number) or kind.patience == 0:
        return
    if now - node.changed_at >= kind.patience:
        yield _wait(
            "PodStranded",
            f"The node {node.name} of {pod.name} does not answer, and its disk is not bound to that node: once the "
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
        reason=f"the disk of {kind.who(number)} is lost{where}, and {kind.elsewhere}",
    )


def _upper(text: str) -> str:
    return text[0].upper() + text[1:]


def _wait(reason: str, message: str, *, needs_person: bool = False) -> Waiting:
    return Waiting(what="release", reason=reason, message=message, needs_person=needs_person)
