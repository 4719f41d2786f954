"""Volume claims of brokers and of the ensemble. Pure.

Enters: a Cluster. Leaves: claim templates, what becomes of claims, mounts, and the claims' names for whoever gives a
lost one up. Claim templates are immutable in Kubernetes: volumes, sizes and classes are those of a cluster's birth.
"""

from __future__ import annotations

from typing import Final

from odradek_operator.crds.types import Brokers, Cluster, Volume
from odradek_operator.objects import names
from odradek_operator.objects.names import Component
from odradek_operator.objects.parts import Object

DEFAULT_BROKER_SIZE: Final = "10Gi"
"""Of the one volume of a broker whose resource names none, from the default storage class."""
DEFAULT_ZOOKEEPER_SIZE: Final = "10Gi"
ZOOKEEPER_CLAIM: Final = "data"
ZOOKEEPER_DATA: Final = f"{names.DATA_FOLDER}/data"


def volumes(brokers: Brokers) -> tuple[Volume, ...]:
    """The disks of each broker, by id; at least one."""
    return tuple(sorted(brokers.volumes, key=lambda volume: volume.id)) or (Volume(id=0, size=DEFAULT_BROKER_SIZE),)


def log_dirs(brokers: Brokers) -> tuple[str, ...]:
    """The brokers' log directories, one on each volume."""
    return tuple(names.log_dir(volume.id) for volume in volumes(brokers))


def broker_mounts(brokers: Brokers) -> list[Object]:
    """Where a broker's volumes are in its container."""
    disks = volumes(brokers)
    return [
        {
            "name": names.volume_claim_template(volume.id, volumes=len(disks)),
            "mountPath": f"{names.DATA_FOLDER}/data-{volume.id}",
        }
        for volume in disks
    ]


def broker_claims(cluster: Cluster) -> list[Object]:
    """Claim templates of the brokers' StatefulSet."""
    disks = volumes(cluster.brokers)
    return [
        claim_template(
            cluster.name,
            Component.KAFKA,
            name=names.volume_claim_template(volume.id, volumes=len(disks)),
            size=volume.size,
            storage_class=volume.storage_class,
        )
        for volume in disks
    ]


def broker_claim_names(cluster: Cluster, broker_id: int) -> tuple[str, ...]:
    """The claims of one broker."""
    disks = volumes(cluster.brokers)
    pod = names.broker_pod(cluster.name, broker_id)
    return tuple(f"{names.volume_claim_template(volume.id, volumes=len(disks))}-{pod}" for volume in disks)


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
