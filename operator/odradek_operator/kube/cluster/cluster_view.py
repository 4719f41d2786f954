"""Everything that the API server has about one cluster, for one round.

A `View` contains raw objects and the `KubernetesState` parsed from them, on which decisions are based. A view from the
cache may be outdated: whatever it suggests to change is decided again on a fresh view.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Final

from odradek_operator.kube.api.api_client import KubernetesClient, KubernetesError
from odradek_operator.kube.api.object_cache import ListQuery, ObjectCache
from odradek_operator.kube.api.object_kinds import Kind, Object
from odradek_operator.lifecycle.cluster_record import in_force, read_record
from odradek_operator.lifecycle.observed_cluster import KubernetesState, Pod, Record, observe, parse_refusals
from odradek_operator.objects.names import CLUSTER_LABEL, PAUSED
from odradek_operator.objects.names import record as record_name

OBSERVED: Final = (Kind.POD, Kind.STATEFUL_SET, Kind.CLAIM, Kind.SERVICE)
"""The kinds that are read by the label of the cluster."""
NODES: Final = ListQuery(kind=Kind.NODE)
VOLUMES: Final = ListQuery(kind=Kind.VOLUME)
EVENTS_SECONDS: Final = 10.0
"""How long Events that were read are used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The objects of one cluster, read at about the same time."""

    cluster: Object
    topics: Mapping[str, Object]
    """Topic resources of the cluster by name."""
    users: Mapping[str, Object] = field(default_factory=dict)
    """User resources of the cluster by name."""
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


def is_paused(body: Object) -> bool:
    """Whether a resource has the annotation that pauses its reconciliation."""
    return (body["metadata"].get("annotations") or {}).get(PAUSED) == "true"


def cluster_of(body: Object) -> str:
    """Return the name of the cluster of a Topic or User; empty if it has none."""
    name = (body.get("spec") or {}).get("cluster", "")
    return name if isinstance(name, str) else ""


def _is_of_another(body: Object, uid: str) -> bool:
    """Whether an object is owned by Clusters, but not by the one with this uid."""
    owners = [one for one in body["metadata"].get("ownerReferences") or [] if one["kind"] == Kind.CLUSTER.word]
    return bool(owners) and all(one["uid"] != uid for one in owners)


def _pods_of(state: KubernetesState, stateful_set: str) -> list[Pod]:
    pods = (*state.brokers.values(), *state.ensemble.values())
    return [pod for pod in pods if pod.name.rpartition("-")[0] == stateful_set]


class ViewReader:
    """Reads the views of one cluster, through the cache."""

    def __init__(self, client: KubernetesClient, cache: ObjectCache, namespace: str, name: str) -> None:
        """`name`: name of the Cluster. `client` reads what the cache does not have: Events."""
        label = (CLUSTER_LABEL, name)
        self._client = client
        self._cache = cache
        self._namespace = namespace
        self._name = name
        self._cluster = ListQuery(kind=Kind.CLUSTER, namespace=namespace, name=name)
        self._record = ListQuery(kind=Kind.CONFIG_MAP, namespace=namespace, name=record_name(name))
        self._topics = ListQuery(kind=Kind.TOPIC, namespace=namespace)
        self._users = ListQuery(kind=Kind.USER, namespace=namespace)
        self._labelled = [ListQuery(kind=kind, namespace=namespace, label=label) for kind in OBSERVED]
        self._events: list[Object] = []
        self._events_read_at = float("-inf")

    async def read(self, *, max_age: float) -> View | None:
        """Return the objects; None if the Cluster does not exist. Raises `KubernetesError`.

        `max_age`: how long the cache may be used, in seconds after the last list; 0 for a fresh view.
        """
        cluster = await self._cache.find(self._cluster, max_age=max_age)
        if cluster is None:
            return None
        queries = [self._topics, self._users, NODES, VOLUMES, *self._labelled]
        record, answers = await asyncio.gather(
            self._cache.find(self._record, max_age=max_age),
            asyncio.gather(*(self._cache.list(query, max_age=max_age) for query in queries)),
        )
        topics, users, nodes, volumes, pods, sets, claims, services = answers
        name, uid = self._name, cluster["metadata"]["uid"]
        state = observe(name, pods=pods, claims=claims, volumes=volumes, nodes=nodes, sets=sets)
        if record is not None and (record["metadata"].get("labels") or {}).get(CLUSTER_LABEL) != name:
            record = None  # A ConfigMap of another owner with that name.
        if any(one.replicas > len(_pods_of(state, one.name)) for one in state.sets.values()):
            state = replace(state, refusals=parse_refusals(await self._failed_creations(state.sets)))
        # A set of an earlier Cluster is deleted with it, like its claims.
        counts = record is not None and not _is_of_another(record, uid)
        remembered = read_record(record.get("data") or {}) if record is not None and counts else Record()
        return View(
            cluster=cluster,
            topics={topic["metadata"]["name"]: topic for topic in topics if cluster_of(topic) == name},
            users={user["metadata"]["name"]: user for user in users if cluster_of(user) == name},
            sets={body["metadata"]["name"]: body for body in sets},
            claims={body["metadata"]["name"]: body for body in claims},
            services=tuple(services),
            state=replace(state, record=in_force(remembered, state, uid=uid)),
            record=record,
        )

    async def _failed_creations(self, sets: Iterable[str]) -> list[Object]:
        """Return Events that say why a StatefulSet does not create its pods: quotas and policies appear nowhere else.

        They are only shown in the status, so Events that were read a few seconds ago are good enough.
        """
        now = asyncio.get_running_loop().time()
        if now - self._events_read_at < EVENTS_SECONDS:
            return self._events
        found: list[Object] = []
        for name in sets:
            fields = f"involvedObject.kind=StatefulSet,involvedObject.name={name},reason=FailedCreate"
            try:
                found += await self._client.list(Kind.EVENT, self._namespace, fields=fields)
            except KubernetesError as error:
                # Roles of an earlier installation do not allow reading Events. The operator works without them.
                if error.status != HTTPStatus.FORBIDDEN:
                    raise
        self._events, self._events_read_at = found, now
        return found

    def close(self) -> None:
        """Drop the cluster's lists from the cache."""
        self._cache.forget(self._cluster, self._record, *self._labelled)
