"""Where the records of brokers and of the ensemble are: claims, mounts, and what becomes of claims. Pure.

Enters: a Cluster. Leaves: parts of StatefulSets, and names and sizes of claims. Kubernetes never changes the claim
templates of a StatefulSet; when a volume grows, its claims are patched (`volume_sizes`), and then the set is created
again around its pods (`must_be_remade`). Until then it is applied with the sizes that it has (`with_sizes_of`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from odradek_operator.crds.fields import quantity_value
from odradek_operator.crds.types import Brokers, Cluster, Json
from odradek_operator.objects import names
from odradek_operator.objects.names import Component
from odradek_operator.objects.parts import Object

DEFAULT_ZOOKEEPER_SIZE: Final = "10Gi"
"""Of a member's claim whose resource names none."""
ZOOKEEPER_CLAIM: Final = "data"
ZOOKEEPER_DATA: Final = f"{names.DATA_FOLDER}/data"
_POD_VOLUME: Final = "data"


def log_dirs(brokers: Brokers) -> tuple[str, ...]:
    """The brokers' log directories, one on each volume."""
    return tuple(names.log_dir(volume_id) for volume_id in _volume_ids(brokers))


def broker_mounts(brokers: Brokers) -> list[Object]:
    """Where a broker's volumes are in its container."""
    ids = _volume_ids(brokers)
    return [
        {
            "name": names.volume_claim_template(volume_id, volumes=len(ids)),
            "mountPath": f"{names.DATA_FOLDER}/data-{volume_id}",
        }
        for volume_id in ids
    ]


def broker_pod_volumes(brokers: Brokers) -> list[Object]:
    """Without volumes of its own a broker has one that goes with its pod."""
    return [] if brokers.volumes else [{"name": _POD_VOLUME, "emptyDir": {}}]


def broker_claims(cluster: Cluster) -> list[Object]:
    """Claim templates of the brokers' StatefulSet."""
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
    """Claim templates of the ensemble's StatefulSet."""
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
    """A claim that each pod of a StatefulSet gets. Without a class Kubernetes takes its default one.

    Nothing here may change from one version of the operator to the next, the labels neither: Kubernetes would refuse
    every change of the StatefulSets that are there.
    """
    spec: Object = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    return {"metadata": {"name": name, "labels": names.labels(cluster, component)}, "spec": spec}


def retention(*, delete_claims: bool) -> Object:
    """What becomes of claims when their StatefulSet goes. Those of pods that are scaled away always stay."""
    return {"whenDeleted": "Delete" if delete_claims else "Retain", "whenScaled": "Retain"}


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeSize:
    """The size that the resource names for one volume of every pod of a StatefulSet."""

    stateful_set: str
    template: str
    """Name of the claim template."""
    field: str
    """Where the resource names the size, for people."""
    size: str
    claims: Mapping[int, str]
    """Names of the pods' claims, by ordinal."""


def volume_sizes(cluster: Cluster, *, broker_count: int) -> list[VolumeSize]:
    """One for each volume of the brokers, and one for the cluster's own ensemble."""
    volumes = sorted(cluster.brokers.volumes, key=lambda volume: volume.id)
    found = [
        _volume_size(
            claim,
            names.kafka(cluster.name),
            cluster.brokers.ids(broker_count),
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
    """Whether a StatefulSet that is there differs from the wanted one in a claim template's size.

    Kubernetes would refuse to change it. Deleted with its pods left alone (`propagationPolicy: Orphan`) and applied
    anew, it takes the same pods and claims over again.
    """
    before, after = template_sizes(present), template_sizes(wanted)
    return before.keys() == after.keys() and any(
        quantity_value(before[name]) != quantity_value(after[name]) for name in after
    )


def with_sizes_of(present: Json, wanted: Object) -> Object:
    """The wanted StatefulSet with the claim sizes of the one that is there, so that Kubernetes accepts the rest."""
    sizes = template_sizes(present)
    claims = []
    for claim in wanted["spec"]["volumeClaimTemplates"]:
        requests = {"storage": sizes[claim["metadata"]["name"]]}
        claims.append({**claim, "spec": {**claim["spec"], "resources": {"requests": requests}}})
    return {**wanted, "spec": {**wanted["spec"], "volumeClaimTemplates": claims}}


def template_sizes(stateful_set: Json) -> dict[str, str]:
    """The sizes in a StatefulSet's claim templates, by their names."""
    return {claim["metadata"]["name"]: _size(claim) for claim in stateful_set["spec"].get("volumeClaimTemplates", [])}


def _size(claim: Mapping[str, Any]) -> str:
    return str(claim["spec"]["resources"]["requests"]["storage"])
