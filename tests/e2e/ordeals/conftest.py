"""One installation and one cluster of three brokers for all tests of this folder, and loads on separate topics.

With $ODRADEK_E2E_CLUSTER both stay as they are at the end, and the next run uses them again.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from kube.cluster import Cluster
from support import load
from support.figures import tell
from support.images import Images
from support.kubectl import Kubectl
from support.kubernetes import Kubernetes
from support.load import Load
from support.product import EXTERNAL, IMAGES, NAMESPACE, Demo, Release, make_default
from support.volumes import Volumes
from support.waiting import eventually

KEPT: Final = "ODRADEK_E2E_CLUSTER" in os.environ
KEPT_NAMESPACE: Final = "e2e-ordeals"
DISKS_EACH: Final = 4
"""The disks of each node: for a broker, a member of ZooKeeper, a fourth broker, and a broker whose own node is lost."""
LOST_AFTER_SECONDS: Final = 20
LISTENER: Final = "external"
PARTITIONS: Final = 6
SMALL: Final = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}}

Loaded = Callable[[], AbstractContextManager[Load]]


@pytest.fixture(scope="package")
def release(kubernetes: Kubernetes, images: Images) -> Iterator[Release]:
    """A release with two operators: one is active, the other is on standby."""
    made = Release(helm=kubernetes.helm, kubectl=kubernetes.kubectl.within(NAMESPACE))
    try:
        if not (KEPT and kubernetes.helm.releases(namespace=NAMESPACE)):
            images.bring(*IMAGES)
            made.install(replicas=2)
        yield made
    finally:
        if not KEPT:
            made.remove()


@pytest.fixture(scope="package")
def package_namespace(kubernetes: Kubernetes) -> Iterator[str]:
    """The namespace of the cluster."""
    name = KEPT_NAMESPACE if KEPT else f"e2e-{secrets.token_hex(3)}"
    kubernetes.make_namespace(name)
    yield name
    if not KEPT:
        _mend(kubernetes)
        kubernetes.kubectl.delete("namespace", name)


@pytest.fixture(scope="package")
def disks(kubernetes: Kubernetes, package_namespace: str) -> Iterator[Volumes]:
    """Enough disks for all tests."""
    made = Volumes(kubectl=kubernetes.kubectl, own=kubernetes.own, prefix=package_namespace)
    if not (KEPT and made.phases()):
        made.provide(DISKS_EACH)
    if kubernetes.own is not None:
        make_default(kubernetes.kubectl, made.storage_class)
    yield made
    if not KEPT:
        _mend(kubernetes)
        kubernetes.kubectl.delete("namespace", package_namespace)
        made.remove()


@pytest.fixture(scope="package")
def installed(kubernetes: Kubernetes, release: Release, package_namespace: str, disks: Volumes) -> Demo:
    """The cluster of manifests/examples/external with smaller disks and a short timeout for lost nodes."""
    assert release.pods(), "the operator is there before the cluster is"
    demo = Demo(kubectl=kubernetes.kubectl.within(package_namespace), storage_class=disks.storage_class)
    wanted = yaml.safe_load((EXTERNAL / "cluster.yaml").read_text(encoding="utf-8"))
    brokers, zookeeper = wanted["spec"]["brokers"], wanted["spec"]["zookeeper"]
    brokers["storage"] = {
        "volumes": [{"id": 0, "size": "1Gi", "storageClass": disks.storage_class}],
        "releaseLostAfterSeconds": LOST_AFTER_SECONDS,
    }
    brokers["resources"] = SMALL
    brokers["rack"] = {"topologyKey": "topology.kubernetes.io/zone"}
    zookeeper["storage"] = {
        "size": "1Gi",
        "storageClass": disks.storage_class,
        "releaseLostAfterSeconds": LOST_AFTER_SECONDS,
    }
    wanted["spec"]["version"] = "0.1.0"
    demo.kubectl.apply(wanted)
    demo.await_ready()
    return demo


def _mend(kubernetes: Kubernetes) -> None:
    if kubernetes.own is not None:
        kubernetes.own.mend()


@pytest.fixture
def demo(installed: Demo) -> Demo:
    """The cluster once it is Ready, so that it has recovered from the previous test."""
    installed.await_ready()
    eventually(
        lambda: [pod.name for pod in installed.pods() if not pod.ready],
        lambda unready: not unready,
        what="readiness of all pods of the cluster",
        seconds=180,
    )
    return installed


@pytest.fixture
def mended(own_cluster: Cluster, disks: Volumes) -> Iterator[Cluster]:
    """The harness's cluster for a test that breaks it. It is repaired afterwards."""
    yield own_cluster
    own_cluster.mend()
    disks.recycle()


@pytest.fixture
def kubectl(demo: Demo) -> Kubectl:
    """kubectl in the cluster's namespace."""
    return demo.kubectl


@pytest.fixture
def bootstrap(demo: Demo) -> str:
    """The address under which this machine reaches the cluster."""
    return eventually(lambda: demo.bootstrap(LISTENER), what="an address for clients from outside")


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    """librdkafka's admin client, to check what the brokers themselves report."""
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def topic(demo: Demo) -> Iterator[str]:
    """A topic with three replicas for the load of one test."""
    with topic_made(demo, partitions=PARTITIONS) as name:
        yield name


@contextmanager
def topic_made(demo: Demo, **spec: Any) -> Iterator[str]:
    """Create a topic for the duration of the block. It is deleted afterwards with its records."""
    name = f"load-{secrets.token_hex(3)}"
    demo.make_topic(name, deletion="Delete", **spec)
    try:
        yield name
    finally:
        demo.kubectl.delete("topic.odradek.dev", name, wait=False)


@pytest.fixture
def loaded(demo: Demo, bootstrap: str, topic: str, tmp_path: Path) -> Loaded:
    """A load on the topic: producers with acks=all and idempotence, and a consumer that reads at the same time."""

    @contextmanager
    def begin() -> Iterator[Load]:
        with load.running(bootstrap, topic, partitions=PARTITIONS, folder=tmp_path, rate=50) as running:
            running.await_more()
            yield running

    return begin


def finish(running: Load) -> None:
    """Stop a load. Assert that every record exists once and in order, and that no delivery failed."""
    running.await_more()
    outcome = running.finish()
    tell(f"{outcome.verdict.acknowledged} records, pauses of at most {outcome.longest_produce_pause:.1f} s")
    assert outcome.verdict.good, str(outcome.verdict)
    assert outcome.verdict.failed == 0, str(outcome.verdict)
    assert outcome.verdict.acknowledged > 0, str(outcome.verdict)


def change(demo: Demo, spec: dict[str, Any]) -> None:
    """Merge a change into the specification of the Cluster."""
    demo.kubectl.patch("cluster.odradek.dev", demo.name, {"spec": spec})


def uids(demo: Demo, component: str) -> dict[str, str]:
    """The uids of pods by name. A pod with another uid is another pod."""
    return {pod.name: pod.uid for pod in demo.pods(component)}


def ready_condition(demo: Demo) -> dict[str, str]:
    """The Ready condition of the Cluster."""
    conditions = demo.cluster().get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == "Ready"), {})
