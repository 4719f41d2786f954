"""The rules that enforce NetworkPolicies: whom they let in, and what cannot be enforced."""

from __future__ import annotations

from typing import Any

import pytest

from kube.host import HarnessError
from kube.policies import Guarded, Opening, guarded_pods, ruleset


def pod(name: str, address: str, namespace: str = "shop", **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"nodeName": "node1"},
        "status": {"podIP": address},
    }


def policy(*ingress: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "shop"},
        "spec": {"podSelector": {"matchLabels": {"app": "kafka"}}, "ingress": list(ingress), **spec},
    }


PODS = [
    pod("kafka", "10.0.0.1", app="kafka"),
    pod("client", "10.0.0.2", app="client"),
    pod("same", "10.0.0.3", namespace="other", app="kafka"),
    pod("metrics", "10.0.0.4", namespace="other", app="prometheus"),
    {"metadata": {"name": "starting", "namespace": "shop"}, "spec": {}, "status": {}},
]
NAMESPACES = [{"metadata": {"name": name, "labels": {"name": name}}} for name in ("shop", "other")]


def openings(*rules: dict[str, Any]) -> tuple[Opening, ...]:
    (found,) = guarded_pods([policy(*rules)], PODS, NAMESPACES)
    assert (found.name, found.address, found.node) == ("shop/kafka", "10.0.0.1", "node1")
    return found.openings


def test_peers() -> None:
    client = {"podSelector": {"matchLabels": {"app": "client"}}}
    other = {"namespaceSelector": {"matchLabels": {"name": "other"}}}
    prometheus = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "prometheus"}}}
    block = {"ipBlock": {"cidr": "192.0.2.0/24"}}
    nobody = {"podSelector": {"matchLabels": {"app": "nobody"}}}
    port = [{"port": 9092, "protocol": "TCP"}]
    assert openings() == ()
    assert openings({"from": [client], "ports": port}) == (Opening(sources=("10.0.0.2",), ports=(9092,)),)
    assert openings({"from": [other]}) == (Opening(sources=("10.0.0.3", "10.0.0.4"), ports=()),)
    assert openings({"from": [prometheus, block]}) == (Opening(sources=("10.0.0.4", "192.0.2.0/24"), ports=()),)
    assert openings({"ports": port}) == (Opening(sources=("0.0.0.0/0",), ports=(9092,)),)
    assert openings({"from": [nobody]}) == ()


def test_rules_of_nftables() -> None:
    guarded = Guarded(
        name="shop/kafka",
        address="10.0.0.1",
        node="node1",
        openings=(
            Opening(sources=("10.0.0.2", "192.0.2.0/24"), ports=(9091, 9404)),
            Opening(sources=("0.0.0.0/0",), ports=(9092,)),
        ),
    )
    text = ruleset([guarded])
    assert "ip daddr 10.0.0.1 tcp flags & (syn | ack) == syn jump pod0" in text
    chain = text.split("chain pod0 {")[1].split("}\n}")[0]
    assert [line.strip() for line in chain.strip().splitlines()] == [
        "ip saddr { 10.0.0.2/32, 192.0.2.0/24 } tcp dport { 9091, 9404 } accept",
        "tcp dport { 9092 } accept",
        "drop",
    ]
    assert text.count("chain pod0 {") == 2, "routed and bridged packets"


@pytest.mark.parametrize(
    "unknown",
    [
        policy(policyTypes=["Ingress", "Egress"]),
        policy(podSelector={"matchExpressions": []}),
        policy({"ports": [{"port": "http"}]}),
        policy({"ports": [{"port": 53, "protocol": "UDP"}]}),
        policy({"from": [{"ipBlock": {"cidr": "192.0.2.0/24", "except": ["192.0.2.1/32"]}}]}),
    ],
)
def test_what_cannot_be_enforced_is_an_error(unknown: dict[str, Any]) -> None:
    with pytest.raises(HarnessError):
        guarded_pods([unknown], PODS, NAMESPACES)
