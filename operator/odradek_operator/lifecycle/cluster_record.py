"""The record of a cluster's sizes and identity, which outlives its StatefulSets, and what it refuses. Pure.

`kube/cluster/cluster_view` and the loop of a cluster pass the data of the record's ConfigMap and the state in
Kubernetes, and get a `Record`, the cluster with its actual ensemble, and descriptions of mismatches.

The size of a deleted StatefulSet is not known any more, and a Cluster that is created again may specify another size.
Without the record, brokers could be removed without draining, and empty members could outvote those with data. The
record is written before a StatefulSet or its pods grow and after they have shrunk. After a crash in between it is too
large, which is harmless: the brokers in question are empty, and the StatefulSet shrinks again.

A field that is missing or invalid counts as unknown and is derived again from the observed state.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from odradek_operator.crds import MAX_BROKERS, MAX_FIRST_BROKER_ID, Cluster
from odradek_operator.lifecycle.observed_cluster import Claim, KeptSpec, KubernetesState, Record
from odradek_operator.lifecycle.steps import Waiting
from odradek_operator.lifecycle.tls_links import Links, present_links
from odradek_operator.objects import names
from odradek_operator.objects.names import BrokerLink, EnsembleLink
from odradek_operator.objects.slots import MAX_PER_POD
from odradek_operator.objects.storage import ZOOKEEPER_CLAIM

_BROKERS: Final = "brokers"
_PER_POD: Final = "brokersPerPod"
_FIRST_ID: Final = "firstBrokerId"
_MEMBERS: Final = "ensembleMembers"
_STATE: Final = "ensembleState"
_CLUSTER_ID: Final = "clusterId"
_UID: Final = "clusterUid"
_GENERATION: Final = "lastValidGeneration"
_SPEC: Final = "lastValidSpec"
_LINK: Final = "brokerLink"
_ENSEMBLE_LINK: Final = "ensembleLink"
_NEW: Final = Links()
_MAX_GENERATION: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ensemble:
    """The ensemble that a cluster actually has."""

    cluster: Cluster
    """The cluster with its actual number of members and broker ids, whatever the resource specifies."""
    known: bool = True
    """Whether the size is known. If not, no StatefulSet may be created for the ensemble."""
    waiting: tuple[Waiting, ...] = ()


def read_record(data: Mapping[str, object]) -> Record:
    """Read the record from a ConfigMap's data."""
    state = data.get(_STATE)
    return Record(
        brokers=_number(data.get(_BROKERS), MAX_BROKERS),
        per_pod=_number(data.get(_PER_POD), MAX_PER_POD, least=2),
        first_id=_number(data.get(_FIRST_ID), MAX_FIRST_BROKER_ID, least=0),
        members=_number(data.get(_MEMBERS), names.MAX_MEMBERS),
        formed=state == names.FORMED if state in (names.FORMING, names.FORMED) else None,
        cluster_id=_text(data.get(_CLUSTER_ID)) or None,
        cluster_uid=_text(data.get(_UID)),
        spec=_spec(data),
        link=next((link for link in BrokerLink if link.value == data.get(_LINK)), None),
        ensemble_link=next((link for link in EnsembleLink if link.value == data.get(_ENSEMBLE_LINK)), None),
    )


def record_data(record: Record) -> dict[str, str | None]:
    """Return the data of the ConfigMap, with None for what is unknown."""
    state = None if record.formed is None else names.FORMED if record.formed else names.FORMING
    return {
        _BROKERS: None if record.brokers is None else str(record.brokers),
        _PER_POD: None if record.per_pod is None else str(record.per_pod),
        _FIRST_ID: None if record.first_id is None else str(record.first_id),
        _MEMBERS: None if record.members is None else str(record.members),
        _STATE: state,
        _CLUSTER_ID: record.cluster_id,
        _UID: record.cluster_uid,
        _GENERATION: None if record.spec is None else str(record.spec.generation),
        _SPEC: None if record.spec is None else record.spec.text,
        _LINK: None if record.link is None else record.link.value,
        _ENSEMBLE_LINK: None if record.ensemble_link is None else record.ensemble_link.value,
    }


def _spec(data: Mapping[str, object]) -> KeptSpec | None:
    generation, text = _number(data.get(_GENERATION), _MAX_GENERATION), _text(data.get(_SPEC))
    return KeptSpec(generation=generation, text=text) if generation is not None and text else None


def _number(value: object, most: int, *, least: int = 1) -> int | None:
    number = int(value) if isinstance(value, str) and value.isascii() and value.isdecimal() else -1
    return number if least <= number <= most else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def in_force(record: Record, state: KubernetesState, *, uid: str) -> Record:
    """Return the record, or an empty one if nothing of its cluster exists any more.

    `uid` is that of the current Cluster resource. If no claims, pods and StatefulSets exist, the cluster was deleted
    for good, and a cluster of the same name starts from scratch. The specification of another resource never applies.
    """
    if record.cluster_uid == uid:
        return record
    claims = [claim for claim in state.claims.values() if not claim.terminating]
    is_left = claims or state.brokers or state.ensemble or state.sets
    return replace(record, spec=None) if is_left else Record()


def next_record(
    ensemble: Ensemble,
    state: KubernetesState,
    *,
    broker_count: int,
    per_pod: int = 1,
    cluster_id: str | None,
    spec: KeptSpec | None = None,
    links: Links = _NEW,
) -> Record:
    """Return the record to write before anything is applied.

    `broker_count` and `per_pod`: the number of pods, and of the brokers in each. `cluster_id`: that in ZooKeeper, None
    if unknown. `links`: those from the next round on.
    """
    cluster, present = ensemble.cluster, state.record
    known = cluster.zookeeper.connect is None and ensemble.known
    brokers = max(present.brokers or 0, broker_count) or None
    return Record(
        brokers=brokers,
        per_pod=recorded_per_pod(max(present.per_pod or 1, per_pod)),
        first_id=None if brokers is None else cluster.brokers.first_id,
        members=cluster.zookeeper.replicas if known else present.members,
        formed=(is_formed(cluster, state) or cluster_id is not None) if known else present.formed,
        # Before the first broker exists, the resource may still name another ensemble.
        cluster_id=present.cluster_id or (cluster_id if broker_count else None),
        cluster_uid=cluster.uid,
        spec=spec,
        link=None if links.brokers is BrokerLink.PLAINTEXT else links.brokers,
        ensemble_link=None if links.ensemble is EnsembleLink.PLAINTEXT else links.ensemble,
    )


def settled(record: Record, state: KubernetesState, *, broker_count: int, per_pod: int) -> Record:
    """Return the record to write after the StatefulSet has this size and template.

    A pod keeps its brokers until it restarts, so the number of brokers per pod is that of the pod with the most.
    """
    most = max([per_pod, *(pod.slots for pod in state.brokers.values())])
    return replace(record, brokers=broker_count, per_pod=recorded_per_pod(most))


def recorded_per_pod(per_pod: int) -> int | None:
    """Return the entry of the record for a number of brokers per pod. 1 is not recorded, as in earlier versions."""
    return None if per_pod == 1 else per_pod


def is_formed(cluster: Cluster, state: KubernetesState) -> bool:
    """Whether the ensemble has held data, so that an empty member must copy it before it votes.

    Without a record, claims without a StatefulSet belong to an earlier ensemble.
    """
    if state.record.formed is not None:
        return state.record.formed
    return names.zookeeper(cluster.name) not in state.sets and bool(_members_shown(cluster, state.claims.values()))


def ensemble_of(cluster: Cluster, state: KubernetesState) -> Ensemble:
    """Return the cluster with its actual ensemble, broker ids and links, and why they differ from the resource."""
    links = present_links(cluster, state)
    cluster = replace(cluster, broker_link=links.brokers, ensemble_link=links.ensemble)
    cluster, other_ids = _with_ids(cluster, state)
    found_ensemble = _ensemble_of(cluster, state)
    return replace(found_ensemble, waiting=(*other_ids, *found_ensemble.waiting))


def _with_ids(cluster: Cluster, state: KubernetesState) -> tuple[Cluster, tuple[Waiting, ...]]:
    """Return the cluster with the actual first broker id of its brokers, whose ids are stored on their volumes."""
    wanted, first = cluster.brokers.first_id, _first_id(cluster, state)
    if first in (None, wanted):
        return cluster, ()
    assert first is not None, "it was compared above"
    refusal = _refused(
        "BrokerIdsCannotChange",
        f"spec.brokers.firstBrokerId is {wanted}, but the brokers of this cluster have the ids from {first} on, and "
        f"keep them. Set spec.brokers.firstBrokerId back to {first}. For other ids, make a new cluster and copy the "
        "topics to it.",
    )
    return replace(cluster, brokers=replace(cluster.brokers, first_id=first)), (refusal,)


def _first_id(cluster: Cluster, state: KubernetesState) -> int | None:
    """Return the lowest broker id, None if there is no broker yet. Records without it have ids from 0."""
    if state.record.brokers is not None:
        return state.record.first_id or 0
    if (found := state.sets.get(names.kafka(cluster.name))) is not None:
        return found.first_ordinal
    claims = [claim.name for claim in state.claims.values() if not claim.terminating]
    form = re.compile(rf"data(-[0-9]+)?-{re.escape(names.kafka(cluster.name))}-(0|[1-9][0-9]*)")
    matches = [form.fullmatch(name) for name in claims]
    shown = {int(match.group(2)) for match in matches if match is not None}
    return min({*shown, *(broker for broker, pod in state.brokers.items() if not pod.terminating)}, default=None)


def _ensemble_of(cluster: Cluster, state: KubernetesState) -> Ensemble:
    if cluster.zookeeper.connect is not None:
        return Ensemble(cluster=cluster)
    found = state.sets.get(names.zookeeper(cluster.name))
    shown = _members_shown(cluster, state.claims.values())
    size = state.record.members or (None if found is None else found.replicas or None)
    if size is None and shown not in (0, cluster.zookeeper.replicas):
        return Ensemble(cluster=cluster, known=False, waiting=(_unknown_size(cluster, shown),))
    waiting = []
    if size is not None and size != cluster.zookeeper.replicas:
        waiting.append(_other_size(cluster, size))
        cluster = replace(cluster, zookeeper=replace(cluster.zookeeper, replicas=size))
    if found is None and not shown and is_formed(cluster, state):
        waiting.append(_lost(cluster))
    return Ensemble(cluster=cluster, waiting=tuple(waiting))


def other_cluster(cluster: Cluster, record: Record, found: str | None) -> Waiting | None:
    """Return the refusal if the cluster id in ZooKeeper differs from the record, or is missing; None if they match."""
    if record.cluster_id in (None, found):
        return None
    has = "has no cluster id" if found is None else f"has cluster id {found}"
    return _refused(
        "ClusterIdChanged",
        f"ZooKeeper {has}, but this cluster's id is {record.cluster_id}: its metadata was lost, or another ensemble "
        "answers. Topics and brokers are not changed. Bring the ensemble back with its data; to start over "
        f"without it, delete the claims of the cluster and ConfigMap {names.record(cluster.name)}.",
    )


def _members_shown(cluster: Cluster, claims: Iterable[Claim]) -> int:
    """Return the number of members by the highest ordinal number among the ensemble's claims; 0 without claims."""
    form = re.compile(re.escape(f"{ZOOKEEPER_CLAIM}-{names.zookeeper(cluster.name)}-") + "(0|[1-9][0-9]*)")
    found = [form.fullmatch(claim.name) for claim in claims if not claim.terminating]
    return max((int(match.group(1)) + 1 for match in found if match is not None), default=0)


def _other_size(cluster: Cluster, size: int) -> Waiting:
    return _refused(
        "EnsembleSizeCannotChange",
        f"spec.zookeeper.replicas is {cluster.zookeeper.replicas}, but the ensemble of this cluster has {size} "
        f"{'member' if size == 1 else 'members'}, and that number cannot change. Set spec.zookeeper.replicas back to "
        f"{size}. For another number, make a new cluster and copy the topics to it.",
    )


def _unknown_size(cluster: Cluster, shown: int) -> Waiting:
    wanted = cluster.zookeeper.replicas
    return _refused(
        "EnsembleSizeUnknown",
        f"spec.zookeeper.replicas is {wanted}, but there are claims of {shown} "
        f"{'member' if shown == 1 else 'members'} of an earlier ensemble, so ZooKeeper is not started. Set "
        f"spec.zookeeper.replicas to {shown}, or delete the claims of ZooKeeper that do not belong to this cluster.",
    )


def _lost(cluster: Cluster) -> Waiting:
    return _refused(
        "EnsembleLost",
        "The volume claims of ZooKeeper were deleted, and with them the cluster's metadata; an empty ensemble does not "
        "start in its place. Restore the claims; to start over, delete the claims of the brokers and ConfigMap "
        f"{names.record(cluster.name)}.",
    )


def _refused(reason: str, message: str) -> Waiting:
    return Waiting(what="sizes", reason=reason, message=message, needs_person=True)
