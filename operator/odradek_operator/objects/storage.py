"""The storage of brokers and ensemble: claims, mounts, and the retention of claims. Pure.

The claim templates of a StatefulSet are immutable. To grow a volume, the operator patches its claims (`volume_sizes`),
deletes the StatefulSet without its pods, and creates it again (`must_be_remade`). Until then, it applies the
StatefulSet with the existing sizes (`with_sizes_of`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from odradek_operator.crds.fields import quantity_value
from odradek_operator.crds.types import DEFAULT_ZOOKEEPER_SIZE, Brokers, Cluster, Json
from odradek_operator.objects import names
from odradek_operator.objects.names import Component
from odradek_operator.objects.parts import Object

ZOOKEEPER_CLAIM: Final = "data"
ZOOKEEPER_DATA: Final = f"{names.DATA_FOLDER}/data"
_POD_VOLUME: Final = "data"


def log_dirs(brokers: Brokers) -> tuple[str, ...]:
    """Return the brokers' log directories, one on each volume."""
    return tuple(names.log_dir(volume_id) for volume_id in _volume_ids(brokers))


def broker_mounts(brokers: Brokers) -> list[Object]:
    """Return the volume mounts of a broker."""
    ids = _volume_ids(brokers)
    return [
        {
            "name": names.volume_claim_template(volume_id, volumes=len(ids)),
            "mountPath": f"{names.DATA_FOLDER}/data-{volume_id}",
        }
        for volume_id in ids
    ]


def broker_pod_volumes(brokers: Brokers) -> list[Object]:
    """Return the ephemeral volume of a broker; none if it has persistent volumes."""
    return [] if brokers.volumes else [{"name": _POD_VOLUME, "emptyDir": {}}]


def broker_claims(cluster: Cluster) -> list[Object]:
    """Return the claim templates of the brokers' StatefulSet."""
    volumes = cluster.brokers.volumes
    return [
        claim_template(
            cluster.name,
            Component.KAFKA,
            name=names.volume_claim_template(volume.id, volumes=len(volumes)),
            size=volume.size,
            storage_class=volume.storage_class,
        )
        for volume in sorted(volumes, key=lambda volume: volume.id)
    ]


def ensemble_claims(cluster: Cluster) -> list[Object]:
    """Return the claim templates of the ensemble's StatefulSet."""
    wanted = cluster.zookeeper
    size = wanted.size or DEFAULT_ZOOKEEPER_SIZE
    return [
        claim_template(
            cluster.name,
            Component.ZOOKEEPER,
            name=ZOOKEEPER_CLAIM,
            size=size,
            storage_class=wanted.storage_class,
        )
    ]


def _volume_ids(brokers: Brokers) -> tuple[int, ...]:
    return tuple(sorted(volume.id for volume in brokers.volumes)) or (0,)


def claim_template(cluster: str, component: Component, *, name: str, size: str, storage_class: str | None) -> Object:
    """Return a claim template. Without a class, Kubernetes uses its default StorageClass.

    The template, including its labels, must be the same in all operator versions: otherwise Kubernetes would reject
    every change of existing StatefulSets.
    """
    spec: Object = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    return {"metadata": {"name": name, "labels": names.labels(cluster, component)}, "spec": spec}


def retention(*, delete_claims: bool) -> Object:
    """Return the retention policy of claims. `delete_claims` applies to a deleted StatefulSet.

    The claims of pods that a smaller StatefulSet no longer has are always retained.
    """
    return {"whenDeleted": "Delete" if delete_claims else "Retain", "whenScaled": "Retain"}


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeSize:
    """The specified size of one volume that every pod of a StatefulSet has."""

    stateful_set: str
    template: str
    """Name of the claim template."""
    field: str
    """Path of the field with the size, for messages."""
    size: str
    claims: Mapping[int, str]
    """Names of the pods' claims, by ordinal number."""


def volume_sizes(cluster: Cluster, *, broker_count: int) -> list[VolumeSize]:
    """Return the specified sizes of the brokers' volumes and of the volume of the cluster's own ensemble."""
    volumes = sorted(cluster.brokers.volumes, key=lambda volume: volume.id)
    found = [
        _volume_size(
            claim,
            names.kafka(cluster.name),
            cluster.brokers.ordinals(broker_count),
            field=f"spec.brokers.storage.volumes[id={volume.id}].size",
        )
        for volume, claim in zip(volumes, broker_claims(cluster), strict=True)
    ]
    if cluster.zookeeper.connect is None:
        name, members = names.zookeeper(cluster.name), range(cluster.zookeeper.replicas)
        found += [
            _volume_size(claim, name, members, field="spec.zookeeper.storage.size")
            for claim in ensemble_claims(cluster)
        ]
    return found


def _volume_size(claim: Object, stateful_set: str, ordinals: range, *, field: str) -> VolumeSize:
    template = claim["metadata"]["name"]
    return VolumeSize(
        stateful_set=stateful_set,
        template=template,
        field=field,
        size=_size(claim),
        claims={ordinal: f"{template}-{stateful_set}-{ordinal}" for ordinal in ordinals},
    )


def must_be_remade(present: Json, wanted: Json) -> bool:
    """Whether an existing StatefulSet must be deleted and created again, because sizes in its claim templates changed.

    Kubernetes rejects an update of these sizes. If the StatefulSet is deleted without its pods (`propagationPolicy:
    Orphan`) and created again, it adopts the existing pods and claims.
    """
    before, after = template_sizes(present), template_sizes(wanted)
    return before.keys() == after.keys() and any(
        quantity_value(before[name]) != quantity_value(after[name]) for name in after
    )


def with_sizes_of(present: Json, wanted: Object) -> Object:
    """Return the specified StatefulSet with the claim sizes of the existing one, so that Kubernetes accepts the
    update."""
    sizes = template_sizes(present)
    claims = []
    for claim in wanted["spec"]["volumeClaimTemplates"]:
        requests = {"storage": sizes[claim["metadata"]["name"]]}
        claims.append({**claim, "spec": {**claim["spec"], "resources": {"requests": requests}}})
    return {**wanted, "spec": {**wanted["spec"], "volumeClaimTemplates": claims}}


def template_sizes(stateful_set: Json) -> dict[str, str]:
    """Return the sizes in a StatefulSet's claim templates, by name."""
    return {claim["metadata"]["name"]: _size(claim) for claim in stateful_set["spec"].get("volumeClaimTemplates", [])}


def _size(claim: Mapping[str, Any]) -> str:
    return str(claim["spec"]["resources"]["requests"]["storage"])
