"""All Kubernetes objects of one cluster, in the order of application, and the kinds that may be pruned. Pure.

The order is: certificates, ensemble, brokers, exporter, monitoring. The same input always gives the same objects. The
loop of a cluster applies them and deletes obsolete objects of `PRUNED_KINDS`.
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
from odradek_operator.objects.certificate_objects import certificate_objects
from odradek_operator.objects.ensemble_objects import ensemble_objects
from odradek_operator.objects.exporter_objects import exporter_objects
from odradek_operator.objects.monitoring_objects import monitoring_objects
from odradek_operator.objects.names import Component
from odradek_operator.objects.parts import Object
from odradek_operator.objects.podspec import ImageSettings

PRUNED_KINDS: Final[tuple[tuple[str, str], ...]] = (
    ("cert-manager.io/v1", "Certificate"),
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
"""API versions and kinds of objects that are deleted when they are no longer needed. StatefulSets are not among them,
because their pods have data."""

UNOWNED_KINDS: Final[tuple[tuple[str, str], ...]] = (("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),)
"""Cluster-scoped kinds. Kubernetes does not delete them with the Cluster resource, so the operator deletes them by
`selector_of`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """Alert rules and dashboards, loaded from files."""

    rule_groups: tuple[Json, ...] = ()
    """Rule groups, as in a PrometheusRule."""
    dashboards: Mapping[str, str] = field(default_factory=dict)
    """Dashboards as JSON, by title (the file name without suffix)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedObject:
    """An object to apply."""

    api_version: str
    kind: str
    name: str
    namespace: str | None
    """None for cluster-scoped objects."""
    body: Object
    owned: bool
    """Whether Kubernetes deletes it with the Cluster resource. If not, the operator does (`UNOWNED_KINDS`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hashes:
    """The restart hashes of the current pod templates."""

    brokers: str
    ensemble: str | None
    """None if the cluster uses an existing ensemble."""


def wanted_objects(
    cluster: Cluster,
    *,
    settings: ImageSettings,
    broker_count: int,
    operator_namespace: str,
    extras: Extras | None = None,
    spread: frozenset[Component] = frozenset(),
    ensemble_formed: bool = False,
    reachable_slots: int | None = None,
) -> tuple[WantedObject, ...]:
    """Return all objects in the order of application. `cluster` must have the uid of its resource.

    The pod template has `perPod` brokers. `broker_count`: the number of pods. `reachable_slots`: the number of brokers
    in each pod that Services, NetworkPolicies and monitoring include, because pods that have not restarted yet may have
    more; by default those of the template.
    `operator_namespace`: the namespace of the operator, which needs access to ZooKeeper and the exporter. `spread`: the
    components whose pods must be spread over nodes. `ensemble_formed`: whether the cluster's own ensemble has held
    data.

    Raises `ValueError` for a cluster without a uid, because its objects would have no owner.
    """
    if not cluster.uid:
        raise ValueError(f"Cluster {cluster.name} has no uid, so its objects could not have an owner reference")
    files = extras or Extras()
    bodies = [
        *certificate_objects(cluster),
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
            reachable_slots=reachable_slots,
        ),
        *exporter_objects(cluster, settings=settings, operator_namespace=operator_namespace),
        *monitoring_objects(
            brokers.with_slots(cluster, reachable_slots), rule_groups=files.rule_groups, dashboards=files.dashboards
        ),
    ]
    return tuple(_wanted(body) for body in bodies)


def hashes(cluster: Cluster, settings: ImageSettings) -> Hashes:
    """Return the restart hashes of the current pod templates."""
    own = cluster.zookeeper.connect is None
    return Hashes(
        brokers=brokers.restart_hash(cluster, settings),
        ensemble=ensemble.restart_hash(cluster, settings) if own else None,
    )


def prune_selector(cluster: Cluster) -> str:
    """Return the label selector of objects that may be pruned.

    If the cluster uses an existing ensemble, the selector excludes the objects of its own ensemble, so that a mistake
    in `connect` does not delete metadata.
    """
    everything = selector_of(cluster.namespace, cluster.name)
    if cluster.zookeeper.connect is None:
        return everything
    return f"{everything},{names.COMPONENT_LABEL}!={Component.ZOOKEEPER.value}"


def selector_of(namespace: str, cluster: str) -> str:
    """Return the label selector of all objects of a cluster. It also works after its resource was deleted."""
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
