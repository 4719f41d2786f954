"""Where and how pods connect: by the listeners of a Cluster and by a User."""

from __future__ import annotations

from typing import Any

import pytest

from odradek_operator.crds import Cluster, User, read_object
from odradek_operator.security.client_connection import (
    ClientConnection,
    ConnectionWish,
    NoConnection,
    client_connection,
)

PLAIN = {"name": "plain", "port": 9092}
TLS = {"name": "tls", "port": 9093, "tls": True}
PODS = {"name": "pods", "port": 9094, "tls": True, "authentication": {"type": "serviceaccount"}}
SCRAM = {"name": "scram", "port": 9095, "tls": True, "authentication": {"type": "scram-sha-512"}}
OUTSIDE = {**SCRAM, "name": "outside", "port": 9096, "type": "nodeport"}


def cluster(*listeners: dict[str, Any]) -> Cluster:
    found = read_object(
        {
            "apiVersion": "odradek.dev/v1",
            "kind": "Cluster",
            "metadata": {"name": "demo", "namespace": "shop"},
            "spec": {"listeners": list(listeners)},
        }
    )
    assert isinstance(found, Cluster)
    return found


def user(of: str = "demo", **authentication: Any) -> User:
    spec = {"cluster": of, **({"authentication": authentication} if authentication else {})}
    metadata = {"name": "alice", "namespace": "shop"}
    found = read_object({"apiVersion": "odradek.dev/v1", "kind": "User", "metadata": metadata, "spec": spec})
    assert isinstance(found, User)
    return found


def wish(**fields: Any) -> ConnectionWish:
    return ConnectionWish(**{"field": "spec", "account": "demo-pods", "cluster": "demo", **fields})


ADDRESS = "demo-kafka-bootstrap.shop.svc"
CA = "demo-cluster-ca-cert"


@pytest.mark.parametrize(
    ("listeners", "expected"),
    [
        ([PLAIN], ClientConnection(bootstrap_servers=f"{ADDRESS}:9092")),
        ([SCRAM, TLS], ClientConnection(bootstrap_servers=f"{ADDRESS}:9093", authority=CA)),
        (
            [PLAIN, SCRAM, PODS],
            ClientConnection(bootstrap_servers=f"{ADDRESS}:9094", audience="shop.demo", authority=CA),
        ),
    ],
)
def test_without_a_user(listeners: list[dict[str, Any]], expected: ClientConnection) -> None:
    assert client_connection(wish(), cluster(*listeners), None) == expected


def test_with_a_user() -> None:
    found = client_connection(wish(user="alice"), cluster(OUTSIDE, PODS, SCRAM), user(type="scram-sha-512"))
    assert found == ClientConnection(bootstrap_servers=f"{ADDRESS}:9095", secret="alice")


def test_addresses_of_another_cluster() -> None:
    what = wish(cluster=None, bootstrap_servers="kafka:9092")
    assert client_connection(what, None, None) == ClientConnection(bootstrap_servers="kafka:9092")
    with_secret = wish(cluster=None, bootstrap_servers="kafka:9092", secret="kafka-login")
    assert client_connection(with_secret, None, None) == ClientConnection(
        bootstrap_servers="kafka:9092", secret="kafka-login"
    )


def test_messages_name_the_field_of_the_resource() -> None:
    found = client_connection(wish(field="spec.target"), cluster(SCRAM), None)
    assert isinstance(found, NoConnection)
    assert "spec.target.user" in found.message
    found = client_connection(wish(field="spec.target", user="alice"), cluster(SCRAM), user())
    assert isinstance(found, NoConnection)
    assert "remove spec.target.user and give a User of type serviceaccount the name demo-pods" in found.message


@pytest.mark.parametrize(
    ("name", "of", "who", "reason"),
    [
        (None, None, None, "NoCluster"),
        (None, cluster(SCRAM), None, "NoListener"),
        ("alice", cluster(SCRAM), None, "NoUser"),
        ("alice", cluster(SCRAM), user(), "UserWithoutSecret"),
        ("alice", cluster(SCRAM), user(type="serviceaccount", serviceAccount={"name": "a"}), "UserWithoutSecret"),
        ("alice", cluster(SCRAM), user("other", type="scram-sha-512"), "UserOfAnotherCluster"),
        ("alice", cluster(PODS), user(type="scram-sha-512"), "NoListener"),
        ("alice", cluster(OUTSIDE), user(type="scram-sha-512"), "NoListener"),
    ],
)
def test_why_pods_cannot_connect(name: str | None, of: Cluster | None, who: User | None, reason: str) -> None:
    found = client_connection(wish(user=name), of, who)
    assert isinstance(found, NoConnection)
    assert found.reason == reason
    assert found.message.endswith(".")
