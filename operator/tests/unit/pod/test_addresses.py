"""Advertised addresses, from nodes and Services of the API server."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_operator.errors import PodError
from odradek_operator.pod.addresses import Address, AddressPending, advertised, node_address, rack, service_name
from odradek_operator.pod.identity import BrokerPod, PodListener

INSIDE = PodListener(name="plain", port=9092, type="internal")
NODE_PORT = PodListener(name="out", port=9094, type="nodeport")
BALANCED = PodListener(name="lb", port=9095, type="loadbalancer")
POD = BrokerPod(
    cluster="demo", name="demo-kafka-1", namespace="events", node="a", broker_id=1, listeners=(), rack_key=None
)


def node(*addresses: tuple[str, str], **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "a", "labels": labels},
        "status": {"addresses": [{"type": kind, "address": address} for kind, address in addresses]},
    }


def service(*ports: dict[str, int], ingress: list[dict[str, str]] | None = None) -> dict[str, Any]:
    status = {"loadBalancer": {} if ingress is None else {"ingress": ingress}}
    return {"metadata": {"name": "s"}, "spec": {"ports": list(ports)}, "status": status}


def test_an_internal_listener_advertises_the_name_of_the_pod() -> None:
    expected = Address("demo-kafka-1.demo-kafka-brokers.events.svc", 9092)
    assert advertised(POD, INSIDE, None, None) == expected
    assert service_name(POD, INSIDE) is None


def test_services_are_named_for_listener_and_broker() -> None:
    assert service_name(POD, NODE_PORT) == "demo-kafka-out-1"
    assert service_name(POD, BALANCED) == "demo-kafka-lb-1"


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        ([("InternalIP", "10.0.0.1")], "10.0.0.1"),
        ([("InternalIP", "10.0.0.1"), ("ExternalIP", "1.2.3.4"), ("Hostname", "a")], "1.2.3.4"),
        ([("InternalIP", "10.0.0.1"), ("ExternalIP", "")], "10.0.0.1"),
    ],
)
def test_the_nodes_address(addresses: list[tuple[str, str]], expected: str) -> None:
    assert node_address(node(*addresses)) == expected


@pytest.mark.parametrize("what", [node(), node(("Hostname", "a")), {}, {"status": {"addresses": None}}])
def test_a_node_without_an_address_is_an_error(what: dict[str, Any]) -> None:
    with pytest.raises(PodError, match="no address of type ExternalIP or InternalIP"):
        node_address(what)


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (service({"port": 9094, "nodePort": 31_000}), Address("10.0.0.1", 31_000)),
        (service({"port": 1, "nodePort": 31_001}, {"port": 9094, "nodePort": 31_002}), Address("10.0.0.1", 31_002)),
        (service({"port": 1, "nodePort": 31_003}), Address("10.0.0.1", 31_003)),
        (service({"port": 1, "nodePort": 1}, {"port": 2, "nodePort": 2}), "Service s has no node port"),
        (service({"port": 9094}), "Service s has no node port"),
        (service(), "Service s has no node port"),
    ],
)
def test_a_node_port_listener_advertises_the_node_and_the_port_of_the_service(
    what: dict[str, Any], expected: Address | str
) -> None:
    found = advertised(POD, NODE_PORT, node(("InternalIP", "10.0.0.1")), what)
    if isinstance(found, AddressPending):
        assert isinstance(expected, str)
        assert found.reason.startswith(expected)
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("ingress", "expected"),
    [
        ([{"ip": "1.2.3.4"}], "1.2.3.4"),
        ([{"hostname": "lb.example", "ip": "1.2.3.4"}], "lb.example"),
        ([{}, {"hostname": "second.example"}], "second.example"),
    ],
)
def test_a_load_balancer_listener_advertises_the_address_of_the_service(
    ingress: list[dict[str, str]], expected: str
) -> None:
    assert advertised(POD, BALANCED, None, service(ingress=ingress)) == Address(expected, 9095)


@pytest.mark.parametrize("ingress", [None, [], [{"hostname": ""}]])
def test_an_address_that_a_load_balancer_has_not_assigned_is_pending(ingress: list[dict[str, str]] | None) -> None:
    found = advertised(POD, BALANCED, None, service(ingress=ingress))
    assert isinstance(found, AddressPending)
    assert "load balancer" in found.reason


def test_the_rack_is_a_label_of_the_node() -> None:
    assert rack(node(zone="z1"), "zone") == "z1"
    for what in (node(), node(zone=""), {"metadata": {"name": "a", "labels": None}}):
        with pytest.raises(PodError, match="The node a has no label zone"):
            rack(what, "zone")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from("spec status ports loadBalancer ingress hostname port nodePort addresses type".split()),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["spec", "status", "metadata"]), JSON))
def test_any_service_gives_an_address_or_a_reason(what: dict[str, Any]) -> None:
    found = advertised(POD, BALANCED, None, what)
    assert isinstance(found, AddressPending) or found.host
    found = advertised(POD, NODE_PORT, node(("InternalIP", "10.0.0.1")), what)
    assert isinstance(found, AddressPending) or found.port > 0
