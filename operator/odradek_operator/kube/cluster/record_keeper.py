"""Writes the record of a cluster to a ConfigMap that outlives StatefulSets and the Cluster resource.

The ConfigMap is written only if it differs, and only over the version that was read: an operator that was replaced
fails instead of overwriting. The loop of a cluster calls it before and after it applies objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odradek_operator.crds import Cluster
from odradek_operator.kube.api.api_client import KubernetesClient
from odradek_operator.kube.api.object_kinds import Kind, Object, Reference
from odradek_operator.lifecycle.cluster_record import read_record, record_data
from odradek_operator.lifecycle.observed_cluster import Record
from odradek_operator.objects import names
from odradek_operator.objects.names import Component
from odradek_operator.objects.parts import metadata


async def keep_record(client: KubernetesClient, cluster: Cluster, present: Object | None, record: Record) -> Object:
    """Write the record unless `present`, the ConfigMap that was read, contains it. Returns the ConfigMap.

    Raises `KubernetesError` with status 409 if it was changed since.
    """
    owners = _owners(cluster)
    if present is not None and _is_same(present, record, owners):
        return present
    data = record_data(record)
    name = names.record(cluster.name)
    if present is not None:
        # None removes a field in a merge patch.
        change = {"resourceVersion": present["metadata"]["resourceVersion"], "ownerReferences": owners or None}
        which = Reference(kind=Kind.CONFIG_MAP, namespace=cluster.namespace, name=name)
        written = await client.merge(which, {"metadata": change, "data": data})
        if written is not None:
            return written
    return await client.create(
        {
            "apiVersion": Kind.CONFIG_MAP.api_version,
            "kind": Kind.CONFIG_MAP.word,
            "metadata": {
                "name": name,
                "namespace": cluster.namespace,
                # Without the label by which obsolete objects are found and deleted.
                "labels": names.labels(cluster.name, Component.KAFKA),
                **({"ownerReferences": owners} if owners else {}),
            },
            "data": {key: value for key, value in data.items() if value is not None},
        }
    )


def _is_same(present: Object, record: Record, owners: list[Any]) -> bool:
    same_owners = (present["metadata"].get("ownerReferences") or []) == owners
    data: Mapping[str, object] = present.get("data") or {}
    return same_owners and read_record(data) == record


def _owners(cluster: Cluster) -> list[Any]:
    """Return the owner references of the record: the Cluster if all claims are deleted with it, else none."""
    goes = cluster.brokers.delete_claims and (cluster.zookeeper.connect is not None or cluster.zookeeper.delete_claims)
    owners: list[Any] = metadata(cluster, Component.KAFKA, names.record(cluster.name))["ownerReferences"]
    return owners if goes else []
