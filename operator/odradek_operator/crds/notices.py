"""Messages about parts of a resource that have no effect, or that expose the cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from odradek.base.config import Effect, broker_effect
from odradek_operator.crds.broker_types import is_sensitive, unknown_setting
from odradek_operator.crds.cluster_types import Cluster
from odradek_operator.crds.listener_types import ListenerType
from odradek_operator.objects.names import REPLICATION_PORT


def notices_of(cluster: Cluster) -> tuple[str, ...]:
    """Return a message for each part of the resource that has no effect, or that exposes the cluster.

    An unknown broker property of a stored resource is not an error, because an error would stop everything else.
    """
    return (*_exposures(cluster), *_without_effect(cluster))


def unknown_field(kind: str, name: str, path: str) -> str:
    """Return the notice about a field that only a newer resource definition has."""
    return (
        f"{kind} {name}: this version of the operator does not know {path}, which has no effect. Upgrade the operator."
    )


def _exposures(cluster: Cluster) -> Iterator[str]:
    """Yield notices about what the API server refuses in a new resource. An older resource may still have it."""
    for listener in cluster.listeners:
        if listener.is_exposed and not listener.insecure:
            yield (
                f"Cluster {cluster.name}: everybody who reaches listener {listener.name} ({listener.type.value}) can "
                "read, write and delete everything. Set authentication, or set insecure: true to accept that."
            )
    for key in sorted(filter(is_sensitive, cluster.brokers.config)):
        yield (
            f"Cluster {cluster.name}: {key} is a password in spec.brokers.config, which is written to a ConfigMap. "
            "Move it to a Secret and name the Secret in spec.brokers.configFrom."
        )
    if cluster.network_policies and cluster.replication_is_open:
        yield (
            f"Cluster {cluster.name}: everybody reaches port {REPLICATION_PORT}, because brokers outside of this "
            "cluster may replicate from it. Name them in spec.networkAccess.replication, or set it to [] if there are "
            "none."
        )


def _without_effect(cluster: Cluster) -> Iterator[str]:
    for listener in cluster.listeners:
        if listener.annotations and listener.type is ListenerType.INTERNAL:
            yield f"Cluster {cluster.name}: listener {listener.name} is internal: its annotations have no effect."
        if listener.source_ranges and listener.type is not ListenerType.LOAD_BALANCER:
            yield (
                f"Cluster {cluster.name}: listener {listener.name} is not of type loadbalancer: its sourceRanges have "
                "no effect."
            )
    for path in cluster.unknown_fields:
        yield unknown_field("Cluster", cluster.name, path)
    for key in cluster.brokers.config:
        match broker_effect(key):
            case Effect.UNKNOWN:
                yield f"Cluster {cluster.name}: {key} {unknown_setting(key)} It is ignored."
            case Effect.IDLE:
                yield f"Cluster {cluster.name}: {key} is a setting of Apache Kafka that has no effect here."
