"""One installation by Helm and the cluster of the examples, for all tests of this folder, and how long they took."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from typing import Final

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from support.guide import run_guide
from support.images import Images
from support.kubernetes import Kubernetes
from support.product import EXAMPLES, EXTERNAL, IMAGES, NAMESPACE, Demo, Release, Times, make_default
from support.volumes import Volumes
from support.waiting import eventually

DISKS_EACH: Final = 12
"""The disks of each node: one for a broker, one for a ZooKeeper member, and more for small clusters of some tests."""


RESTRICTED: Final = {"pod-security.kubernetes.io/enforce": "restricted"}
"""The label of a namespace that enforces the Pod Security Standard `restricted`."""


@pytest.fixture(scope="package")
def release(kubernetes: Kubernetes, images: Images) -> Iterator[tuple[Release, float]]:
    """The operator, and how many seconds its installation took."""
    images.bring(*IMAGES)
    made = Release(helm=kubernetes.helm, kubectl=kubernetes.kubectl.within(NAMESPACE))
    there = kubernetes.helm.releases(namespace=NAMESPACE)
    assert not there, f"somebody's release is in {NAMESPACE} already: these tests would take it away"
    kubernetes.make_namespace(NAMESPACE, RESTRICTED)
    began = time.monotonic()
    try:
        made.install()
        yield made, time.monotonic() - began
    finally:
        made.remove()


@pytest.fixture(scope="package")
def operator_release(release: tuple[Release, float]) -> Release:
    """The operator, installed by Helm."""
    return release[0]


@pytest.fixture(scope="package")
def first_cluster(kubernetes: Kubernetes, release: tuple[Release, float]) -> Iterator[tuple[Demo, Times]]:
    """The examples' cluster as soon as it is Ready, and how long that took."""
    namespace = f"e2e-{secrets.token_hex(3)}"
    kubernetes.make_namespace(namespace, RESTRICTED)
    volumes = Volumes(kubectl=kubernetes.kubectl, own=kubernetes.own, prefix=namespace)
    volumes.provide(DISKS_EACH, size="100Gi")
    if kubernetes.own is not None:
        make_default(kubernetes.kubectl, volumes.storage_class)
    made = Demo(kubectl=kubernetes.kubectl.within(namespace), storage_class=volumes.storage_class)
    try:
        began = time.monotonic()
        run_guide(made.kubectl, "3. Make a cluster")
        made.apply(EXAMPLES)
        made.await_ready()
        yield made, Times(install=release[1], ready=time.monotonic() - began)
    finally:
        made.remove()
        kubernetes.remove_namespace(namespace, then=volumes.erase)
        volumes.withdraw()


@pytest.fixture(scope="package")
def times(first_cluster: tuple[Demo, Times]) -> Times:
    """How long the installation and the start of the cluster took."""
    return first_cluster[1]


@pytest.fixture(scope="package")
def demo(first_cluster: tuple[Demo, Times]) -> Demo:
    """The examples' cluster once it is Ready."""
    return first_cluster[0]


@pytest.fixture(scope="package")
def outside(demo: Demo) -> str:
    """The address under which this machine reaches the cluster.

    The fixture adds the node port listener of the example, which causes a rolling restart.
    """
    wanted = yaml.safe_load((EXTERNAL / "cluster.yaml").read_text(encoding="utf-8"))
    # Also add zones, as in the example for production, so that the brokers restart only once for both changes.
    wanted["spec"]["brokers"]["rack"] = {"topologyKey": "topology.kubernetes.io/zone"}
    demo.kubectl.apply(wanted)
    demo.await_ready()
    return eventually(lambda: demo.bootstrap("external"), what="an address for clients from outside")


@pytest.fixture(scope="package")
def admin(outside: str) -> AdminClient:
    """librdkafka's admin client, to check what the brokers themselves report."""
    return AdminClient({"bootstrap.servers": outside})
