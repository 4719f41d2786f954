"""The names in the certificates of brokers are those that brokers advertise."""

from __future__ import annotations

from typing import Any

from odradek_operator.crds.types import Brokers, Cluster, Listener, ListenerType
from odradek_operator.security.broker_hosts import broker_hosts

INSIDE = Listener(name="in", port=9093, tls=True, alternative_names=("kafka.example",))
NODES = Listener(name="nodes", port=9094, type=ListenerType.NODE_PORT, tls=True)
BALANCED = Listener(name="lb", port=9095, type=ListenerType.LOAD_BALANCER, tls=True)


def cluster(*listeners: Listener) -> Cluster:
    return Cluster(name="demo", namespace="shop", brokers=Brokers(replicas=2, per_pod=2), listeners=listeners)


def service(name: str, **ingress: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"loadBalancer": {"ingress": [ingress]}}}


def test_brokers_of_a_pod_have_its_name_and_those_of_the_bootstrap_services() -> None:
    found = broker_hosts(cluster(INSIDE), [0, 1, 1000, 1001], services=(), node_addresses=["192.0.2.9"])
    assert found[1] == found[1001]
    assert "demo-kafka-1.demo-kafka-brokers.shop.svc" in found[1001]
    assert not {"demo-kafka-1.demo-kafka-brokers.shop.svc", "192.0.2.9"} & set(found[0])
    assert {"demo-kafka-bootstrap.shop.svc", "demo-kafka-bootstrap", "kafka.example"} <= set(found[0])


def test_node_ports_need_the_addresses_of_all_nodes() -> None:
    found = broker_hosts(cluster(NODES), [0], services=(), node_addresses=["192.0.2.9", "2001:db8::1"])
    assert {"192.0.2.9", "2001:db8::1", "demo-kafka-nodes-bootstrap.shop.svc"} <= set(found[0])


def test_load_balancers_need_their_addresses_once_they_have_them() -> None:
    services = [
        service("demo-kafka-lb-bootstrap", hostname="kafka.cloud.example"),
        service("demo-kafka-lb-0", ip="198.51.100.7"),
        service("other", ip="198.51.100.8"),
        {"metadata": {"name": "demo-kafka-lb-1"}, "status": {"loadBalancer": {}}},
    ]
    found = broker_hosts(cluster(BALANCED), [0, 1], services=services, node_addresses=["192.0.2.9"])
    assert {"198.51.100.7", "kafka.cloud.example"} <= set(found[0])
    assert "kafka.cloud.example" in found[1]
    assert not {"198.51.100.7", "198.51.100.8", "192.0.2.9"} & set(found[1])
