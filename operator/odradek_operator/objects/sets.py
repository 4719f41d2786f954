"""The StatefulSets of brokers and ensemble. Their update strategy leaves restarts to the operator. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from odradek_operator.crds.types import Cluster
from odradek_operator.objects import names, storage
from odradek_operator.objects.names import Component
from odradek_operator.objects.parts import Object, metadata
from odradek_operator.objects.podspec import annotated, spread_over_nodes


def stateful_set(
    cluster: Cluster,
    component: Component,
    name: str,
    *,
    service: str,
    replicas: int,
    first_ordinal: int = 0,
    template: Object,
    restart_hash: str,
    claims: Sequence[Object],
    delete_claims: bool,
    spread: bool,
) -> Object:
    """Return the StatefulSet. Pods start in parallel, because they need each other.

    `spread`: whether the scheduler must spread them over nodes.
    """
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata(cluster, component, name),
        "spec": {
            "replicas": replicas,
            **({"ordinals": {"start": first_ordinal}} if first_ordinal else {}),
            "serviceName": service,
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "revisionHistoryLimit": 3,
            "persistentVolumeClaimRetentionPolicy": storage.retention(delete_claims=delete_claims),
            "selector": {"matchLabels": names.selector(cluster.name, component)},
            "template": annotated(
                spread_over_nodes(template, cluster, component) if spread else template, restart_hash
            ),
            "volumeClaimTemplates": list(claims),
        },
    }
