"""TLS, logins and access rules of listeners, in each phase of the change to TLS."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import pytest

from odradek_operator.crds.types import Brokers, Cluster, Listener, ListenerAuthentication, ListenerType
from odradek_operator.objects import names
from odradek_operator.objects.cluster_properties import split
from odradek_operator.objects.listener_security import protocol
from odradek_operator.objects.names import BrokerLink
from odradek_operator.objects.podspec import ImageSettings
from odradek_operator.objects.wanted import wanted_objects

CERTIFICATE = ListenerAuthentication(type="tls")
OPEN = Listener(name="open", port=9092)
SCRAM = Listener(name="scram", port=9093, tls=True, authentication=ListenerAuthentication(type="scram-sha-512"))
MUTUAL = Listener(name="mutual", port=9094, tls=True, authentication=CERTIFICATE, type=ListenerType.NODE_PORT)
CLUSTER = Cluster(name="demo", namespace="shop", uid="1", listeners=(OPEN, SCRAM, MUTUAL))


def at(link: BrokerLink, cluster: Cluster = CLUSTER) -> Cluster:
    return dataclasses.replace(cluster, broker_link=link)


def objects(cluster: Cluster) -> dict[tuple[str, str], Mapping[str, Any]]:
    wanted = wanted_objects(cluster, settings=ImageSettings(), broker_count=3, operator_namespace="system")
    return {(item.kind, item.name): item.body for item in wanted}


def container(cluster: Cluster) -> Mapping[str, Any]:
    found: Mapping[str, Any] = objects(cluster)["StatefulSet", "demo-kafka"]["spec"]["template"]["spec"]["containers"][
        0
    ]
    return found


@pytest.mark.parametrize(
    ("listener", "expected"),
    [
        (OPEN, "PLAINTEXT"),
        (SCRAM, "SASL_SSL"),
        (MUTUAL, "SSL"),
        (dataclasses.replace(SCRAM, tls=False), "SASL_PLAINTEXT"),
        (dataclasses.replace(SCRAM, authentication=None), "SSL"),
    ],
)
def test_protocols(listener: Listener, expected: str) -> None:
    assert protocol(listener) == expected


@pytest.mark.parametrize("link", BrokerLink)
def test_ports_between_brokers_follow_the_phase(link: BrokerLink) -> None:
    expected = {BrokerLink.PLAINTEXT: [9091], BrokerLink.TLS: [9090]}.get(link, [9091, 9090])
    found = objects(at(link))
    ports = [port["port"] for port in found["Service", "demo-kafka-brokers"]["spec"]["ports"]]
    assert [port for port in ports if port < 9092] == expected
    allowed = found["NetworkPolicy", "demo-kafka"]["spec"]["ingress"][0]
    assert [port["port"] for port in allowed["ports"]] == expected
    served = {port["containerPort"] for port in container(at(link))["ports"]}
    assert served & {9090, 9091} == set(expected)


@pytest.mark.parametrize("link", BrokerLink)
def test_secured_listeners_and_the_authorizer_come_with_the_last_phase(link: BrokerLink) -> None:
    static = split(at(link)).static
    is_last = link is BrokerLink.TLS
    assert ("authorizer.class.name" in static) == ("super.users" in static) == is_last
    variables = {one["name"]: one.get("value") for one in container(at(link))["env"]}
    listed = {one["name"]: one.get("protocol") for one in json.loads(variables["LISTENERS"])}
    assert listed == ({"open": None, "scram": "SASL_SSL", "mutual": "SSL"} if is_last else {"open": None})
    assert (("Service", "demo-kafka-mutual-bootstrap") in objects(at(link))) == is_last
    mounted = [mount["mountPath"] for mount in container(at(link))["volumeMounts"]]
    assert (names.CERTIFICATES_FOLDER in mounted) == (link is not BrokerLink.PLAINTEXT)


def test_a_cluster_without_secured_listeners_has_the_same_objects_as_before() -> None:
    plain = dataclasses.replace(CLUSTER, listeners=(OPEN,))
    text = json.dumps(list(objects(plain).values()))
    for word in ("BROKER_LINK", "certificates", "ssl.", "9090", "authorizer", 'protocol\\":'):
        assert word not in text, word


def test_super_users_are_brokers_operator_those_given_and_clients_of_open_listeners() -> None:
    brokers = Brokers(config={"super.users": "User:admin"})
    found = split(at(BrokerLink.TLS, dataclasses.replace(CLUSTER, brokers=brokers))).static["super.users"]
    assert found.split(";") == [
        "User:admin",
        "User:CN=demo-kafka,O=odradek.dev",
        "User:CN=demo-operator,O=odradek.dev",
        "User:ANONYMOUS",
    ]
    closed = dataclasses.replace(CLUSTER, listeners=(SCRAM,))
    assert "ANONYMOUS" not in split(at(BrokerLink.TLS, closed)).static["super.users"]
    encrypted = dataclasses.replace(SCRAM, authentication=None)
    open_but_encrypted = dataclasses.replace(CLUSTER, listeners=(encrypted,))
    assert "ANONYMOUS" in split(at(BrokerLink.TLS, open_but_encrypted)).static["super.users"]


def test_tokens_of_an_issuer() -> None:
    login = ListenerAuthentication(
        type="oauth", jwks_url="https://issuer.example/keys", issuer="https://issuer.example", audience="kafka"
    )
    tokens = dataclasses.replace(SCRAM, authentication=login)
    assert protocol(tokens) == "SASL_SSL"
    static = split(at(BrokerLink.TLS, dataclasses.replace(CLUSTER, listeners=(tokens,)))).static
    assert {key: value for key, value in static.items() if key.startswith("listener.name.scram.")} == {
        "listener.name.scram.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.scram.sasl.oauthbearer.jwks.endpoint.url": "https://issuer.example/keys",
        "listener.name.scram.sasl.oauthbearer.expected.issuer": "https://issuer.example",
        "listener.name.scram.sasl.oauthbearer.expected.audience": "kafka",
    }
    claim = dataclasses.replace(login, principal_claim="client_id")
    named = dataclasses.replace(CLUSTER, listeners=(dataclasses.replace(SCRAM, authentication=claim),))
    assert split(at(BrokerLink.TLS, named)).static["listener.name.scram.sasl.oauthbearer.sub.claim.name"] == "client_id"


def test_tokens_of_service_accounts_are_for_one_cluster_only() -> None:
    pods = dataclasses.replace(SCRAM, authentication=ListenerAuthentication(type="serviceaccount"))
    static = split(at(BrokerLink.TLS, dataclasses.replace(CLUSTER, listeners=(pods,)))).static
    assert {key: value for key, value in static.items() if key.startswith("listener.name.scram.")} == {
        "listener.name.scram.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.scram.sasl.oauthbearer.jwks.endpoint.url": (
            "file:///etc/odradek-certificates/service-account-keys.json"
        ),
        "listener.name.scram.sasl.oauthbearer.expected.audience": "shop.demo",
    }


def test_services_have_the_annotations_and_ranges_of_their_listener() -> None:
    balanced = Listener(
        name="lb",
        port=9095,
        type=ListenerType.LOAD_BALANCER,
        tls=True,
        authentication=CERTIFICATE,
        annotations={"cloud.example/internal": "true"},
        source_ranges=("192.0.2.0/24",),
    )
    found = objects(at(BrokerLink.TLS, dataclasses.replace(CLUSTER, listeners=(balanced,))))
    for name in ("demo-kafka-lb-bootstrap", "demo-kafka-lb-0", "demo-kafka-lb-2"):
        service = found["Service", name]
        assert service["metadata"]["annotations"] == {"cloud.example/internal": "true"}
        assert service["spec"]["loadBalancerSourceRanges"] == ["192.0.2.0/24"]


def test_the_exporter_uses_the_certificate_of_the_operator() -> None:
    pod = objects(at(BrokerLink.TLS))["Deployment", "demo-kafka-exporter"]["spec"]["template"]["spec"]
    variables = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
    assert variables["BOOTSTRAP_SERVERS"] == "demo-kafka-brokers.shop.svc:9090"
    assert variables["ODRADEK_COMMAND_CONFIG"] == "/etc/odradek-certificates/client.properties"
    assert names.operator_certs("demo") in json.dumps(pod["volumes"])
