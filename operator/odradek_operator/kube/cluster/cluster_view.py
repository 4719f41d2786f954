"""Everything that the API server has about one cluster, read in each round.

A `View` contains raw objects and the `KubernetesState` parsed from them, on which decisions are based. Watches only
wake the loop. Decisions use what was read, so an event that a watch missed cannot mislead them, and an outdated
response cannot make a pod appear ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus

from odradek_operator.kube.api.api_client import KubernetesClient, KubernetesError
from odradek_operator.kube.api.object_kinds import Kind, Object
from odradek_operator.lifecycle.cluster_record import in_force, read_record
from odradek_operator.lifecycle.observed_cluster import KubernetesState, Pod, Record, observe, parse_refusals
from odradek_operator.objects.names import CLUSTER_LABEL, PAUSED
from odradek_operator.objects.names import record as record_name

OBSERVED = (Kind.POD, Kind.STATEFUL_SET, Kind.CLAIM, Kind.SERVICE)
"""The kinds that are read by the label of the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Objects of one cluster at about the same time."""

    cluster: Object
    topics: Mapping[str, Object]
    """Topic resources of the cluster by name."""
    services: tuple[Object, ...] = ()
    sets: Mapping[str, Object] = field(default_factory=dict)
    """StatefulSets by name."""
    claims: Mapping[str, Object] = field(default_factory=dict)
    """Volume claims by name."""
    state: KubernetesState = field(default_factory=KubernetesState)
    record: Object | None = None
    """The ConfigMap with the cluster's record (`record_keeper`)."""

    @property
    def former_sets(self) -> list[str]:
        """Names of StatefulSets of an earlier Cluster of this name, which Kubernetes is about to delete."""
        uid = self.cluster["metadata"]["uid"]
        return sorted(name for name, body in self.sets.items() if _is_of_another(body, uid))

    @property
    def leaving(self) -> bool:
        """Whether the Cluster resource is being deleted."""
        return "deletionTimestamp" in self.cluster["metadata"]


def complete(kind: Kind, body: Object) -> Object:
    """Return an item of a list with its kind, which the API server omits there."""
    return {"apiVersion": kind.api_version, "kind": kind.word, **body}


def is_paused(body: Object) -> bool:
    """Whether a resource has the annotation that pauses its reconciliation."""
    return (body["metadata"].get("annotations") or {}).get(PAUSED) == "true"


def cluster_of(topic: Object) -> str:
    """Return the name of a Topic's cluster; empty if it has none."""
    name = (topic.get("spec") or {}).get("cluster", "")
    return name if isinstance(name, str) else ""


def _is_of_another(body: Object, uid: str) -> bool:
    """Whether an object is owned by Clusters, but not by the one with this uid."""
    owners = [one for one in body["metadata"].get("ownerReferences") or [] if one["kind"] == Kind.CLUSTER.word]
    return bool(owners) and all(one["uid"] != uid for one in owners)


def _pods_of(state: KubernetesState, stateful_set: str) -> list[Pod]:
    pods = (*state.brokers.values(), *state.ensemble.values())
    return [pod for pod in pods if pod.name.rpartition("-")[0] == stateful_set]


async def _failed_creations(client: KubernetesClient, namespace: str, sets: Iterable[str]) -> list[Object]:
    """Return Events that say why a StatefulSet does not create its pods: quotas and policies appear nowhere else."""
    found: list[Object] = []
    for name in sets:
        fields = f"involvedObject.kind=StatefulSet,involvedObject.name={name},reason=FailedCreate"
        try:
            found += await client.list(Kind.EVENT, namespace, fields=fields)
        except KubernetesError as error:
            # Roles of an earlier installation do not allow reading Events. The operator works without them.
            if error.status != HTTPStatus.FORBIDDEN:
                raise
    return found


async def read_view(client: KubernetesClient, namespace: str, name: str) -> View | None:
    """Read the current objects. Returns None if the Cluster does not exist. Raises `KubernetesError`."""
    selector = f"{CLUSTER_LABEL}={name}"
    cluster = await client.get(Kind.CLUSTER, namespace, name)
    if cluster is None:
        return None
    lists = [
        (Kind.TOPIC, namespace, ""),
        (Kind.NODE, None, ""),
        (Kind.VOLUME, None, ""),
        *((kind, namespace, selector) for kind in OBSERVED),
    ]
    record, answers = await asyncio.gather(
        client.get(Kind.CONFIG_MAP, namespace, record_name(name)),
        asyncio.gather(*(client.list(kind, where, selector=which) for kind, where, which in lists)),
    )
    topics, nodes, volumes, pods, sets, claims, services = answers
    state = observe(name, pods=pods, claims=claims, volumes=volumes, nodes=nodes, sets=sets)
    if record is not None and (record["metadata"].get("labels") or {}).get(CLUSTER_LABEL) != name:
        record = None  # A ConfigMap of another owner with that name.
    uid = cluster["metadata"]["uid"]
    if any(one.replicas > len(_pods_of(state, one.name)) for one in state.sets.values()):
        state = replace(state, refusals=parse_refusals(await _failed_creations(client, namespace, state.sets)))
    # A set of an earlier Cluster is deleted with it, like its claims.
    counts = record is not None and not _is_of_another(record, uid)
    remembered = read_record(record.get("data") or {}) if record is not None and counts else Record()
    return View(
        cluster=complete(Kind.CLUSTER, cluster),
        topics={
            topic["metadata"]["name"]: complete(Kind.TOPIC, topic) for topic in topics if cluster_of(topic) == name
        },
        sets={body["metadata"]["name"]: body for body in sets},
        claims={body["metadata"]["name"]: body for body in claims},
        services=tuple(complete(Kind.SERVICE, service) for service in services),
        state=replace(state, record=in_force(remembered, state, uid=uid)),
        record=record,
    )
