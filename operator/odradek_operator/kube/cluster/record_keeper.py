"""Keeps the record of a cluster's sizes in a ConfigMap that outlives StatefulSets and the Cluster resource.

Enters: what was read of it, and what is to be remembered. Leaves: the ConfigMap, written only where it differs, and
only over what was read: an operator that another one has replaced fails instead of overwriting. Called by the loop of a
cluster before and after it applies.
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
    """Write the record unless `present`, the ConfigMap as it was read last, has it; the ConfigMap as it is then.

    Raises `KubernetesError` with status 409 when somebody else has written it since.
    """
    owners = _owners(cluster)
    if present is not None and _is_same(present, record, owners):
        return present
    data = record_data(record)
    name = names.record(cluster.name)
    if present is not None:
        # In a merge patch None removes a field.
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
                # Without the label of the namespace, by which objects that are wanted no longer are found and deleted.
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
    """Kubernetes deletes the record with the Cluster only when it deletes all claims, too."""
    goes = cluster.brokers.delete_claims and (cluster.zookeeper.connect is not None or cluster.zookeeper.delete_claims)
    owners: list[Any] = metadata(cluster, Component.KAFKA, names.record(cluster.name))["ownerReferences"]
    return owners if goes else []
