"""Objects of the exporter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from odradek_operator.crds.types import Brokers, Cluster, Listener, ListenerType, Monitoring, PodTemplate, ZooKeeper

Objects = dict[tuple[str, str], dict[str, Any]]
Build = Callable[..., Objects]


def container_of(objects: Objects) -> dict[str, Any]:
    (container,) = objects["Deployment", "demo-kafka-exporter"]["spec"]["template"]["spec"]["containers"]
    found: dict[str, Any] = container
    return found


@pytest.mark.parametrize(
    ("listeners", "bootstrap"),
    [
        ((Listener(name="plain", port=9092),), "demo-kafka-bootstrap.shop.svc:9092"),
        (
            (
                Listener(name="secret", port=9093, tls=True),
                Listener(name="nodes", port=9094, type=ListenerType.NODE_PORT),
                Listener(name="plain", port=9095),
            ),
            "demo-kafka-bootstrap.shop.svc:9095",
        ),
        ((Listener(name="nodes", port=9094, type=ListenerType.NODE_PORT),), "demo-kafka-brokers.shop.svc:9091"),
    ],
)
def test_where_it_begins(build: Build, listeners: tuple[Listener, ...], bootstrap: str) -> None:
    zookeeper = ZooKeeper(connect="zk:2181/kafka")
    objects = build(Cluster(name="demo", namespace="shop", uid="1", listeners=listeners, zookeeper=zookeeper))
    variables = {entry["name"]: entry.get("value") for entry in container_of(objects)["env"]}
    assert (variables["BOOTSTRAP_SERVERS"], variables["ZOOKEEPER_CONNECT"]) == (bootstrap, "zk:2181/kafka")
    host, port = bootstrap.split(":")
    service = objects["Service", host.split(".")[0]]["spec"]
    assert int(port) in [entry["port"] for entry in service["ports"]]


def test_there_is_never_more_than_one(build: Build) -> None:
    spec = build(Cluster(name="demo", uid="1"))["Deployment", "demo-kafka-exporter"]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_it_has_the_operators_image_and_the_brokers_secrets(build: Build) -> None:
    user = PodTemplate(image_pull_secrets=("registry",), node_selector={"disk": "ssd"})
    objects = build(Cluster(name="demo", uid="1", version="9.9.9", brokers=Brokers(template=user)))
    pod = objects["Deployment", "demo-kafka-exporter"]["spec"]["template"]["spec"]
    assert container_of(objects)["image"] == "odradek/operator:0.1.0"
    assert container_of(objects)["command"] == ["odradek-pod", "exporter"]
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert "nodeSelector" not in pod
    assert pod["automountServiceAccountToken"] is False


def test_the_operator_reads_it_by_its_service(build: Build) -> None:
    objects = build(Cluster(name="demo", uid="1"))
    assert [port["port"] for port in objects["Service", "demo-kafka-exporter"]["spec"]["ports"]] == [9404]


def test_it_can_be_switched_off(build: Build) -> None:
    objects = build(Cluster(name="demo", uid="1", monitoring=Monitoring(exporter=False)))
    assert not [name for _, name in objects if "exporter" in name]
