"""The properties, ports and certificates of a cluster's own ensemble, at each step of its change to TLS."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from odradek_operator.crds.types import Cluster, Listener, ZooKeeper
from odradek_operator.objects import ensemble_objects, names
from odradek_operator.objects.cluster_properties import ensemble_properties, split, zookeeper_connect
from odradek_operator.objects.names import EnsembleLink
from odradek_operator.objects.podspec import ImageSettings
from odradek_operator.objects.properties_file import certificates_digest

CLUSTER = Cluster(
    name="demo",
    namespace="events",
    uid="uid",
    listeners=(Listener(name="secure", port=9093, tls=True),),
    zookeeper=ZooKeeper(replicas=3),
    ensemble_certificates="abc",
)
PLAINTEXT, BOTH, CHANGED, TLS, OWNED = EnsembleLink


def at(link: EnsembleLink) -> Cluster:
    return replace(CLUSTER, ensemble_link=link)


def objects(link: EnsembleLink) -> dict[tuple[str, str], Any]:
    bodies = ensemble_objects.ensemble_objects(at(link), settings=ImageSettings(), operator_namespace="system")
    return {(body["kind"], body["metadata"]["name"]): body for body in bodies}


@pytest.mark.parametrize(
    ("link", "ports"), [(PLAINTEXT, {2181}), (BOTH, {2181, 2182}), (CHANGED, {2181, 2182}), (TLS, {2182})]
)
def test_ports_for_clients_follow_the_link(link: EnsembleLink, ports: set[int]) -> None:
    found = objects(link)
    assert {one["port"] for one in found["Service", "demo-zookeeper-client"]["spec"]["ports"]} == ports
    policy = found["NetworkPolicy", "demo-zookeeper"]["spec"]["ingress"]
    assert {one["port"] for one in policy[0]["ports"]} == ports
    container = found["StatefulSet", "demo-zookeeper"]["spec"]["template"]["spec"]["containers"][0]
    assert ports <= {one["containerPort"] for one in container["ports"]}
    assert (2181 in {one["containerPort"] for one in container["ports"]}) == (2181 in ports)


def test_members_accept_what_members_of_the_next_step_use() -> None:
    flags = [
        (found.get("sslQuorum", "false"), found.get("portUnification", "false"), found.get("clientPortAddress"))
        for found in map(ensemble_properties, map(at, EnsembleLink))
    ]
    closed = ("true", "false", "127.0.0.1")
    assert flags == [("false", "false", None), ("false", "true", None), ("true", "true", None), closed, closed]


def test_the_resource_cannot_open_what_is_closed() -> None:
    config = {"ssl.clientAuth": "none", "clientPortAddress": "0.0.0.0", "tickTime": "3000"}
    cluster = replace(at(TLS), zookeeper=ZooKeeper(replicas=3, config=config))
    found = ensemble_properties(cluster)
    assert found["ssl.clientAuth"] == "need"
    assert found["clientPortAddress"] == "127.0.0.1"
    assert found["tickTime"] == "3000"


@pytest.mark.parametrize("link", EnsembleLink)
def test_brokers_connect_with_what_their_members_accept(link: EnsembleLink) -> None:
    static, port = split(at(link)).static, "2182" if link.connects_tls else "2181"
    assert all(server.endswith(f":{port}") for server in zookeeper_connect(at(link)).split(","))
    assert static.get("zookeeper.ssl.client.enable") == ("true" if link.connects_tls else None)
    assert static.get("zookeeper.set.acl") == ("true" if link.is_closed else None)


def test_members_restart_for_new_certificates_and_not_when_znodes_get_owners() -> None:
    settings = ImageSettings()
    hashes = {link: ensemble_objects.restart_hash(at(link), settings) for link in EnsembleLink}
    assert len(set(hashes.values())) == 4
    assert hashes[TLS] == hashes[OWNED]
    renewed = replace(at(TLS), ensemble_certificates="def")
    assert ensemble_objects.restart_hash(renewed, settings) != hashes[TLS]
    pod = objects(TLS)["StatefulSet", "demo-zookeeper"]["spec"]["template"]["spec"]
    assert {"name": names.CERTIFICATES_DIGEST, "value": "abc"} in pod["containers"][0]["env"]
    assert names.CERTIFICATES_FOLDER in {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert "demo-zookeeper-certs" in {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}


def test_a_digest_differs_with_each_name_and_content() -> None:
    found = [{"a": b"1", "b": b"2"}, {"a": b"12"}, {"a": b"1"}, {"b": b"1"}, {}]
    assert len({certificates_digest(files) for files in found}) == len(found)
    assert certificates_digest({"b": b"2", "a": b"1"}) == certificates_digest(found[0])
