"""The User resource: identities, rules and quotas as Kafka has them, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.security.acls.model import AclOperation, AclPermission, PatternType, ResourceType
from odradek.security.quotas.quota_model import QuotaKind
from odradek_operator.crds import Resources, User, read_object
from odradek_operator.crds.documents import parse_documents
from odradek_operator.crds.problems import ResourceError
from odradek_operator.crds.reader import read_resources

TOPIC_RULE = {"resource": {"type": "topic", "name": "orders-", "pattern": "prefixed"}, "operations": ["Read", "Write"]}


def user(**spec: Any) -> User:
    found = read_object(
        {
            "apiVersion": "odradek.dev/v1",
            "kind": "User",
            "metadata": {"name": "alice", "namespace": "shop"},
            "spec": {"cluster": "demo", **spec},
        }
    )
    assert isinstance(found, User)
    return found


@pytest.mark.parametrize(
    ("authentication", "name", "has_secret"),
    [
        (None, "alice", False),
        ({"type": "scram-sha-512"}, "alice", True),
        ({"type": "tls"}, "CN=alice", True),
        (
            {"type": "serviceaccount", "serviceAccount": {"name": "spark"}},
            "system:serviceaccount:shop:spark",
            False,
        ),
        (
            {"type": "serviceaccount", "serviceAccount": {"name": "spark", "namespace": "jobs"}},
            "system:serviceaccount:jobs:spark",
            False,
        ),
    ],
)
def test_the_identity_of_a_user(authentication: Any, name: str, has_secret: bool) -> None:
    found = user(**({} if authentication is None else {"authentication": authentication}))
    assert (str(found.principal), found.has_secret) == (f"User:{name}", has_secret)


def test_rules_and_quotas_are_those_of_kafka() -> None:
    cluster = {"resource": {"type": "cluster"}, "operations": ["IdempotentWrite"], "effect": "deny", "host": "10.0.0.1"}
    found = user(acls=[TOPIC_RULE, cluster], quotas={"producerByteRate": 1_000, "controllerMutationRate": 0.5})
    first, second = found.acls
    assert first.resource.value == (ResourceType.TOPIC, "orders-", PatternType.PREFIXED)
    assert (first.values, first.permission, first.host) == (
        (AclOperation.READ, AclOperation.WRITE),
        AclPermission.ALLOW,
        "*",
    )
    assert second.resource.value == (ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL)
    assert (second.permission, second.host) == (AclPermission.DENY, "10.0.0.1")
    assert found.quotas is not None
    assert found.quotas.values == {QuotaKind.PRODUCER_BYTE_RATE: 1_000.0, QuotaKind.CONTROLLER_MUTATION_RATE: 0.5}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"authentication": {"type": "kerberos"}}, "spec.authentication.type: must be scram-sha-256, "),
        (
            {"authentication": {"type": "tls", "password": {"valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}}},
            "password: has a meaning for types with a password only",
        ),
        (
            {"authentication": {"type": "scram-sha-512", "password": {"valueFrom": {"secretKeyRef": {"name": "a"}}}}},
            "spec.authentication.password.valueFrom.secretKeyRef.key: ",
        ),
        ({"authentication": {"type": "serviceaccount"}}, "serviceAccount: must be set for type serviceaccount"),
        (
            {"authentication": {"type": "tls", "serviceAccount": {"name": "a"}}},
            "serviceAccount: must be set for type serviceaccount, and for no other type",
        ),
        ({"acls": [{"resource": {"type": "topic"}, "operations": ["Read"]}]}, r"acls\[0\].resource.name: must be the"),
        (
            {"acls": [{"resource": {"type": "cluster", "name": "x"}, "operations": ["Alter"]}]},
            r"acls\[0\].resource.name: must be kafka-cluster or not set",
        ),
        (
            {"acls": [{"resource": {"type": "group", "name": "x"}, "operations": ["Read", "Write"]}]},
            r"acls\[0\].operations\[1\]: must be one of All, Delete, Describe or Read for this type, found 'Write'",
        ),
        ({"acls": [{**TOPIC_RULE, "operations": []}]}, r"acls\[0\].operations: must have at least 1 entries"),
        ({"quotas": {"producerByteRate": -1}}, "producerByteRate: must be a whole number from 0 to"),
        ({"quotas": {"controllerMutationRate": "fast"}}, "controllerMutationRate: must be a number from 0 to"),
    ],
)
def test_what_is_refused(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ResourceError, match=message):
        user(**spec)


def manifests(cluster: str) -> Resources:
    text = f"""\
apiVersion: odradek.dev/v1
kind: Cluster
metadata: {{name: demo}}
spec: {{}}
---
apiVersion: odradek.dev/v1
kind: User
metadata: {{name: alice}}
spec: {{cluster: {cluster}}}
"""
    return read_resources(parse_documents(text, "a.yaml"))


def test_an_embedded_cluster_has_users() -> None:
    found = manifests("demo")
    assert list(found.users) == ["alice"]
    assert found.notices == ()
    with pytest.raises(ResourceError, match=r"a.yaml:9: User alice: spec.cluster: there is no Cluster dmo \(did you"):
        manifests("dmo")
