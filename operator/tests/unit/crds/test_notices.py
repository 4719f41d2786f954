"""Notices about parts of a resource that have no effect, or that expose the cluster."""

from __future__ import annotations

import pytest
import yaml

from odradek_operator.crds import Cluster, notices_of, read_object, read_resources
from odradek_operator.crds.documents import parse_documents
from odradek_operator.crds.problems import ResourceError

EXPOSED = "{name: outside, port: 9094, type: nodeport"


def stored_cluster(spec: str) -> Cluster:
    found = read_object(
        yaml.safe_load(f"{{apiVersion: odradek.dev/v1, kind: Cluster, metadata: {{name: demo}}, spec: {{{spec}}}}}")
    )
    assert isinstance(found, Cluster)
    return found


def test_an_exposed_listener_must_say_that_it_is_insecure() -> None:
    head = "apiVersion: odradek.dev/v1\nkind: Cluster\nmetadata: {name: demo}\nspec:\n  listeners:\n  - "
    with pytest.raises(ResourceError, match=r"insecure: must be true for a listener of type nodeport"):
        read_resources(parse_documents(f"{head}{EXPOSED}}}", "f"))
    resources = read_resources(parse_documents(f"{head}{EXPOSED}, insecure: true}}", "f"))
    (listener,) = resources.clusters["demo"].listeners
    assert listener.insecure


def test_a_stored_listener_from_before_the_rule_keeps_working_and_is_reported() -> None:
    (notice,) = notices_of(stored_cluster(f"listeners: [{EXPOSED}}}]"))
    assert "everybody who reaches listener outside (nodeport) can read, write and delete everything" in notice
    assert not notices_of(stored_cluster(f"listeners: [{EXPOSED}, insecure: true}}]"))


@pytest.mark.parametrize(
    "key",
    [
        "zookeeper.ssl.keystore.password",
        "listener.name.plain.ssl.key.password",
        "listener.name.plain.scram-sha-512.sasl.jaas.config",
        "delegation.token.secret.key",
    ],
)
def test_a_stored_password_is_reported_without_its_value(key: str) -> None:
    notices = notices_of(stored_cluster(f"brokers: {{config: {{{key}: hunter2}}}}"))
    assert [notice for notice in notices if f"{key} is a password" in notice]
    assert "hunter2" not in str(notices)


def test_an_open_replication_port_is_reported_until_its_peers_are_named() -> None:
    (notice,) = notices_of(stored_cluster("zookeeper: {connect: 'zk:2181'}"))
    assert "everybody reaches port 9091" in notice
    assert not notices_of(stored_cluster("zookeeper: {connect: 'zk:2181'}, networkAccess: {replication: []}"))


def test_a_misspelled_property_of_a_stored_resource_is_ignored_and_reported() -> None:
    """If the whole resource were refused, the operator could do nothing else for the cluster."""
    (notice,) = notices_of(stored_cluster("brokers: {config: {messag.max.bytes: 100}}"))
    assert notice.startswith("Cluster demo: messag.max.bytes is not a setting of this broker or of Apache Kafka 3.9")
    assert notice.endswith("(did you mean message.max.bytes?). It is ignored.")
