"""Where the records of brokers and of the ensemble are: claims, mounts, and what becomes of claims. Pure.

Enters: a Cluster. Leaves: parts of StatefulSets, and names and sizes of claims. Kubernetes never changes the claim
templates of a StatefulSet; where a volume shall grow, its claims are patched (`claim_sizes`) and the set is made anew
around its pods (`must_be_remade`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from odradek_operator.crds.types import Brokers, Cluster, Json
from odradek_operator.fields import quantity_value
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


def claim_sizes(cluster: Cluster, *, broker_count: int) -> dict[str, str]:
    """The size that each claim of a cluster's pods shall have, by the claim's name; a claim that is larger may stay."""
    brokers = {
        f"{claim['metadata']['name']}-{names.broker_pod(cluster.name, broker)}": _size(claim)
        for claim in broker_claims(cluster)
        for broker in range(broker_count)
    }
    members = range(cluster.zookeeper.replicas if cluster.zookeeper.connect is None else 0)
    ensemble = {
        f"{claim['metadata']['name']}-{names.zookeeper_pod(cluster.name, member)}": _size(claim)
        for claim in ensemble_claims(cluster)
        for member in members
    }
    return {**brokers, **ensemble}


def must_be_remade(present: Json, wanted: Json) -> bool:
    """Whether a StatefulSet that is there differs from the wanted one in a claim template's size.

    Kubernetes would refuse to change it. Deleted with its pods left alone (`propagationPolicy: Orphan`) and applied
    anew, it takes the same pods and claims over again.
    """
    before, after = _sizes(present), _sizes(wanted)
    return before.keys() == after.keys() and any(
        quantity_value(before[name]) != quantity_value(after[name]) for name in after
    )


def _sizes(stateful_set: Json) -> dict[str, str]:
    return {claim["metadata"]["name"]: _size(claim) for claim in stateful_set["spec"].get("volumeClaimTemplates", [])}


def _size(claim: Mapping[str, Any]) -> str:
    return str(claim["spec"]["resources"]["requests"]["storage"])
