"""Local disks as in many production clusters: static `local` volumes with node affinity, bound on first use.

Creates persistent volumes of the storage class `local-ssd`, whose folders lie on the nodes' disks. The harness cannot
create folders on a foreign cluster: there `$ODRADEK_E2E_STORAGE_CLASS` names the class to use, and no volumes are
created.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kube.cluster import Cluster
from support.kubectl import Kubectl

CLASS_VARIABLE: Final = "ODRADEK_E2E_STORAGE_CLASS"
LOCAL_SSD: Final = "local-ssd"


def storage_class() -> dict[str, Any]:
    """A storage class without a provisioner. A claim waits until its pod is scheduled to a node."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": LOCAL_SSD},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
        "reclaimPolicy": "Retain",
    }


def local_volume(name: str, node: str, path: Path, size: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """A persistent volume on the disk of one node."""
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": LOCAL_SSD,
            "local": {"path": str(path)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }


@dataclass(slots=True, kw_only=True)
class Volumes:
    """Disks for one test; `prefix` starts their names. Call `remove`, or first `withdraw` and later `erase`."""

    kubectl: Kubectl
    own: Cluster | None
    prefix: str
    _made: dict[str, tuple[str, Path, str]] = field(default_factory=dict)

    @property
    def storage_class(self) -> str:
        """The storage class that claims must name."""
        return LOCAL_SSD if self.own else os.environ.get(CLASS_VARIABLE, LOCAL_SSD)

    def provide(self, each: int, *, size: str = "1Gi", nodes: tuple[int, ...] = ()) -> None:
        """Add disks: `each` on every node, or on the given nodes. Does nothing on a foreign cluster."""
        if self.own is None:
            return
        self.kubectl.apply(storage_class())
        volumes = []
        for number in nodes or self.own.run.numbers:
            for _ in range(each):
                name = f"{self.prefix}-node{number}-{len(self._made)}"
                path = self.own.node_folder(number) / "disks" / name
                path.mkdir(parents=True)
                self._made[name] = (f"node{number}", path, size)
                volumes.append(local_volume(name, f"node{number}", path, size, {"odradek-e2e": self.prefix}))
        self.kubectl.apply(*volumes)

    def path(self, name: str) -> Path:
        """The folder of a volume on this machine."""
        return self._made[name][1]

    def recycle(self) -> tuple[str, ...]:
        """Empty the disks whose claims are gone and offer them again, as a provisioner of local disks does."""
        found = [volume for volume in self._listed() if volume["status"]["phase"] == "Released"]
        for volume in found:
            metadata, spec = volume["metadata"], volume["spec"]
            path = Path(spec["local"]["path"])
            self.kubectl.delete("persistentvolume", metadata["name"])
            shutil.rmtree(path)
            path.mkdir()
            del spec["claimRef"]
            renewed = {"name": metadata["name"], "labels": metadata["labels"]}
            self.kubectl.apply({**volume, "metadata": renewed, "status": {}})
        return tuple(volume["metadata"]["name"] for volume in found)

    def phases(self) -> dict[str, str]:
        """The phase of each volume: Available, Bound, Released or Failed."""
        return {volume["metadata"]["name"]: volume["status"]["phase"] for volume in self._listed()}

    def _listed(self) -> list[dict[str, Any]]:
        return self.kubectl.list("persistentvolumes", f"odradek-e2e={self.prefix}")

    def remove(self) -> None:
        """Delete all volumes and their folders. Their claims must be gone."""
        self.withdraw()
        self.erase()

    def withdraw(self) -> None:
        """Delete the volumes, so that no new claim is bound to one. A bound volume stays until its claim is gone."""
        if self._made:
            self.kubectl.delete("persistentvolume", *self._made, wait=False)

    def erase(self) -> None:
        """Delete the folders of all volumes. Their claims must be gone."""
        for _, path, _ in self._made.values():
            shutil.rmtree(path, ignore_errors=True)
        self._made.clear()
