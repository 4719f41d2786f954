"""Every Kubernetes object that is wanted for one cluster, in the order of application, and what may be pruned. Pure.

Enters: a Cluster, the number of broker pods that scaling allows now, where images come from, rules and dashboards.
Leaves: `WantedObject`s: ZooKeeper's first, then the brokers', the exporter's, and what monitors them; the same wishes
give the same objects to the byte. The loop of a cluster applies them and prunes by `PRUNED_KINDS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from odradek_operator.crds.types import Cluster, Json
from odradek_operator.objects import broker_objects as brokers
from odradek_operator.objects import ensemble_objects as ensemble
from odradek_operator.objects import names
from odradek_operator.objects.broker_objects import broker_objects
from odradek_operator.objects.ensemble_objects import ensemble_objects
from odradek_operator.objects.exporter_objects import exporter_objects
from odradek_operator.objects.monitoring_objects import monitoring_objects
from odradek_operator.objects.names import Component
from odradek_operator.objects.parts import Object
from odradek_operator.objects.podspec import ImageSettings

PRUNED_KINDS: Final[tuple[tuple[str, str], ...]] = (
    ("monitoring.coreos.com/v1", "PodMonitor"),
    ("monitoring.coreos.com/v1", "PrometheusRule"),
    ("apps/v1", "Deployment"),
    ("policy/v1", "PodDisruptionBudget"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("v1", "Service"),
    ("v1", "ConfigMap"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("v1", "ServiceAccount"),
)
"""API version and kind of what is deleted when it is wanted no longer. Never StatefulSets: records hang on them."""

UNOWNED_KINDS: Final[tuple[tuple[str, str], ...]] = (("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),)
"""What no owner takes along, as it belongs to no namespace. When a Cluster resource goes, or is found to be gone, the
operator deletes these by `selector_of`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """What the shell has loaded from files."""

    rule_groups: tuple[Json, ...] = ()
    """Of Prometheus, as a PrometheusRule has them."""
    dashboards: Mapping[str, str] = field(default_factory=dict)
    """JSON texts by title, which is the file's name without its ending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedObject:
    """An object to apply."""

    api_version: str
    kind: str
    name: str
    namespace: str | None
    """None: it belongs to none."""
    body: Object
    owned: bool
    """Whether Kubernetes deletes it with the Cluster resource; otherwise the operator must (`UNOWNED_KINDS`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hashes:
    """The restart hashes that pods must bear in order not to be outdated."""

    brokers: str
    ensemble: str | None
    """None where the ensemble is somebody else's."""


def wanted_objects(
    cluster: Cluster,
    *,
    settings: ImageSettings,
    broker_count: int,
    operator_namespace: str,
    extras: Extras | None = None,
    spread: frozenset[Component] = frozenset(),
    ensemble_formed: bool = False,
) -> tuple[WantedObject, ...]:
    """All of them, in order. `cluster` must come from Kubernetes, with its uid.

    `operator_namespace` is where the operator runs, which must reach ZooKeeper and the exporter; `spread` are the
    components whose pods must spread over nodes; `ensemble_formed` says whether the cluster's own ensemble has held
    data.

    Raises `ValueError` for a cluster without a uid: its objects would belong to nobody.
    """
    if not cluster.uid:
        raise ValueError(f"Cluster {cluster.name} has no uid: its objects would outlive it")
    files = extras or Extras()
    bodies = [
        *ensemble_objects(
            cluster,
            settings=settings,
            operator_namespace=operator_namespace,
            spread=Component.ZOOKEEPER in spread,
            formed=ensemble_formed,
        ),
        *broker_objects(
            cluster,
            broker_count=broker_count,
            settings=settings,
            operator_namespace=operator_namespace,
            spread=Component.KAFKA in spread,
        ),
        *exporter_objects(cluster, settings=settings, operator_namespace=operator_namespace),
        *monitoring_objects(cluster, rule_groups=files.rule_groups, dashboards=files.dashboards),
    ]
    return tuple(_wanted(body) for body in bodies)


def hashes(cluster: Cluster, settings: ImageSettings) -> Hashes:
    """The restart hashes of the templates that are wanted now."""
    own = cluster.zookeeper.connect is None
    return Hashes(
        brokers=brokers.restart_hash(cluster, settings),
        ensemble=ensemble.restart_hash(cluster, settings) if own else None,
    )


def prune_selector(cluster: Cluster) -> str:
    """The label selector of what may be pruned of this cluster, in its namespace and of what belongs to none.

    Where a cluster was given another ensemble, its own one stays with all that it needs: a slip in `connect` must not
    cost the cluster its memory. A person deletes it.
    """
    everything = selector_of(cluster.namespace, cluster.name)
    if cluster.zookeeper.connect is None:
        return everything
    return f"{everything},{names.COMPONENT_LABEL}!={Component.ZOOKEEPER.value}"


def selector_of(namespace: str, cluster: str) -> str:
    """The label selector of every object of a cluster, also of one whose resource is gone."""
    own = {
        names.CLUSTER_LABEL: cluster,
        names.NAMESPACE_LABEL: namespace,
        names.MANAGED_BY_LABEL: names.FIELD_MANAGER,
    }
    return ",".join(f"{label}={value}" for label, value in own.items())


def _wanted(body: Object) -> WantedObject:
    metadata = body["metadata"]
    return WantedObject(
        api_version=body["apiVersion"],
        kind=body["kind"],
        name=metadata["name"],
        namespace=metadata.get("namespace"),
        body=body,
        owned="ownerReferences" in metadata,
    )
