"""Where and how a job connects: by the listeners of its Cluster and by its User."""

from __future__ import annotations

from typing import Any

import pytest

from odradek_operator.crds import Cluster, User, read_object
from odradek_operator.pipelines.connection import JobConnection, NoConnection, job_connection
from odradek_operator_testkit.pipelines import pipeline

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


ADDRESS = "demo-kafka-bootstrap.shop.svc"
CA = "demo-cluster-ca-cert"


@pytest.mark.parametrize(
    ("listeners", "expected"),
    [
        ([PLAIN], JobConnection(bootstrap_servers=f"{ADDRESS}:9092")),
        ([SCRAM, TLS], JobConnection(bootstrap_servers=f"{ADDRESS}:9093", authority=CA)),
        (
            [PLAIN, SCRAM, PODS],
            JobConnection(bootstrap_servers=f"{ADDRESS}:9094", audience="shop.demo", authority=CA),
        ),
    ],
)
def test_without_a_user(listeners: list[dict[str, Any]], expected: JobConnection) -> None:
    assert job_connection(pipeline(), cluster(*listeners), None) == expected


def test_with_a_user() -> None:
    found = job_connection(pipeline(user="alice"), cluster(OUTSIDE, PODS, SCRAM), user(type="scram-sha-512"))
    assert found == JobConnection(bootstrap_servers=f"{ADDRESS}:9095", user_secret="alice")


def test_addresses_of_another_cluster() -> None:
    what = pipeline(cluster=None, bootstrapServers="kafka:9092")
    assert job_connection(what, None, None) == JobConnection(bootstrap_servers="kafka:9092")


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
def test_why_a_job_cannot_connect(name: str | None, of: Cluster | None, who: User | None, reason: str) -> None:
    found = job_connection(pipeline(user=name), of, who)
    assert isinstance(found, NoConnection)
    assert found.reason == reason
    assert found.message.endswith(".")
