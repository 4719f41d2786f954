"""Odradek as its users install it: the release of the chart and the cluster of the examples.

`Release` and `Demo` are for the tests of the product. They need a Kubernetes cluster with the images and disks.
Invariant: tests apply the same files as users; on a foreign cluster only the names of storage classes differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from support.helm import Helm
from support.images import ROOT
from support.kubectl import Kubectl
from support.values import Object, Pod, condition
from support.waiting import eventually, scaled

CHART: Final = ROOT / "charts" / "odradek"
EXAMPLES: Final = ROOT / "manifests" / "examples"
EXTERNAL: Final = EXAMPLES / "external"
IMAGES: Final = ("broker", "operator", "zookeeper")
CRDS: Final = (
    "clusters.odradek.dev",
    "topics.odradek.dev",
    "users.odradek.dev",
    "pipelines.odradek.dev",
    "mirrors.odradek.dev",
)
NODE_READER: Final = "odradek-node-reader"
CLUSTER: Final = "cluster.odradek.dev"
TOPIC: Final = "topic.odradek.dev"
PIPELINE: Final = "pipeline.odradek.dev"
MIRROR: Final = "mirror.odradek.dev"
USER: Final = "user.odradek.dev"
NAMESPACE: Final = "odradek-system"
READY_SECONDS: Final = 240.0
_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The operator, installed by Helm."""

    helm: Helm
    kubectl: Kubectl
    """kubectl in the operator's namespace."""
    name: str = "odradek"

    def install(self, **values: Any) -> None:
        """Install or upgrade, and wait until the operator is ready."""
        self.helm.install(self.name, CHART, namespace=self.kubectl.namespace, values=values)

    def uninstall(self) -> None:
        """Uninstall the release. CRDs and resources stay."""
        self.helm.uninstall(self.name, namespace=self.kubectl.namespace)
        eventually(self.pods, lambda pods: not pods, what="the end of the operator's pods")

    def test(self) -> str:
        """Run `helm test` and return its output."""
        return self.helm.run("test", self.name, "--namespace", self.kubectl.namespace)

    def pods(self) -> tuple[Pod, ...]:
        """The operator's pods."""
        return self.kubectl.pods("app.kubernetes.io/component=operator")

    def remove(self) -> None:
        """Uninstall the release, and remove what an uninstall leaves."""
        self.uninstall()
        self.kubectl.delete("namespace", self.kubectl.namespace)
        self.kubectl.delete("crd", *CRDS)
        self.kubectl.delete("clusterrole", NODE_READER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """The cluster of the examples, in a namespace by itself."""

    kubectl: Kubectl
    storage_class: str
    name: str = "demo"

    def apply(self, folder: Path) -> None:
        """Run `kubectl apply -f` on a folder of examples."""
        self.kubectl.run("apply", "--filename", str(folder))

    def remove(self) -> None:
        """Delete the Cluster and its Topics while the operator runs, which removes the finalizers of Topics."""
        self.kubectl.delete(CLUSTER, "--all")
        self.kubectl.delete(TOPIC, "--all")

    def cluster(self) -> dict[str, Any]:
        """The Cluster resource."""
        return self.kubectl.require(CLUSTER, self.name)

    def topic(self, name: str) -> dict[str, Any]:
        """A Topic resource."""
        return self.kubectl.require(TOPIC, name)

    def make_topic(self, name: str, **spec: Any) -> None:
        """Apply a Topic and wait until it matches its specification."""
        self.kubectl.apply(topic_of(name, **spec))
        self.await_topic(name)

    def await_ready(self, seconds: float = READY_SECONDS) -> dict[str, Any]:
        """Wait until the Cluster matches its current specification, and return it."""
        return eventually(self.cluster, is_settled, what="readiness of the cluster", seconds=seconds)

    def await_topic(self, name: str) -> dict[str, Any]:
        """Wait until the Topic matches its current specification, and return it."""
        return eventually(lambda: self.topic(name), is_settled, what=f"readiness of topic {name}")

    def pods(self, component: str = "") -> tuple[Pod, ...]:
        """The cluster's pods of a component (kafka, zookeeper or exporter), or all of them."""
        chosen = f",app.kubernetes.io/component={component}" if component else ""
        return self.kubectl.pods(f"odradek.dev/cluster={self.name}{chosen}")

    def bootstrap(self, listener: str) -> str:
        """The bootstrap address of a listener in the status, empty while it is unknown."""
        listeners = self.cluster().get("status", {}).get("listeners", [])
        return next((str(entry.get("bootstrap", "")) for entry in listeners if entry["name"] == listener), "")

    def command(self, *arguments: str, stdin: str | None = None) -> str:
        """Run `odradek` in the pod of broker 0."""
        return self.kubectl.execute(f"{self.name}-kafka-0", "odradek", *arguments, container="kafka", stdin=stdin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Durations in seconds, measured when the nodes already had the images."""

    install: float
    ready: float
    """From `kubectl apply` of the examples until the Cluster was Ready."""


def topic_of(name: str, **spec: Any) -> Object:
    """A Topic resource of the example cluster."""
    return {
        "apiVersion": "odradek.dev/v1",
        "kind": "Topic",
        "metadata": {"name": name},
        "spec": {"cluster": "demo", "partitions": 3, "replicas": 3, **spec},
    }


def small_cluster(demo: Demo, name: str, listeners: list[dict[str, Any]], *, brokers: int) -> dict[str, Any]:
    """The secured Cluster of the examples with fewer pods and, unless the list is empty, other listeners."""
    wanted = yaml.safe_load((EXAMPLES / "secured" / "cluster.yaml").read_text(encoding="utf-8"))
    wanted["metadata"]["name"] = name
    spec = wanted["spec"]
    spec["brokers"] |= {"replicas": brokers, "resources": {"requests": {"cpu": "50m", "memory": "200Mi"}}}
    spec["brokers"]["storage"] = {"volumes": [{"id": 0, "size": "1Gi", "storageClass": demo.storage_class}]}
    spec["brokers"]["config"] = {"min.insync.replicas": min(2, brokers)}
    spec["zookeeper"] = {"replicas": 1, "storage": {"size": "1Gi", "storageClass": demo.storage_class}}
    spec["listeners"] = listeners or spec["listeners"]
    return dict(wanted)


def is_settled(resource: Object) -> bool:
    """Return whether a resource is Ready and its status belongs to its newest specification."""
    seen = resource.get("status", {}).get("observedGeneration")
    return condition(resource, "Ready") and seen == resource["metadata"]["generation"]


def make_default(kubectl: Kubectl, storage_class: str) -> None:
    """Make this the default storage class. The examples name no class for ZooKeeper's claims."""
    kubectl.run("annotate", "storageclass", storage_class, "--overwrite", f"{_DEFAULT_CLASS}=true")


def example(name: str) -> Object:
    """An example file with one document."""
    found: Object = yaml.safe_load((EXAMPLES / name).read_text(encoding="utf-8"))
    return found


def patience(seconds: float) -> str:
    """A deadline in the form of a kubectl option."""
    return f"--timeout={scaled(seconds):g}s"
