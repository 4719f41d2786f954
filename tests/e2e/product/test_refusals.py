"""Tests that `kubectl apply` refuses invalid resources with a message that says what to do, before the operator runs.

Each resource is sent as a dry run: the API server validates it but does not store it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any, Final

import pytest

from support.kubectl import KubectlError
from support.product import CLUSTER, TOPIC, Demo, example, topic_of
from support.values import Object

Change = Callable[[dict[str, Any]], None]


def judged(demo: Demo, resource: Object) -> str:
    """Return the API server's answer to a resource. Raise `KubectlError` with its message if it refuses."""
    return demo.kubectl.run("apply", "--dry-run=server", "--filename=-", stdin=json.dumps(resource))


def cluster_with(change: Change, name: str = "other") -> dict[str, Any]:
    """The example's cluster with a change and another name, so that it is validated as a new resource."""
    wanted = copy.deepcopy(dict(example("cluster.yaml")))
    wanted["metadata"]["name"] = name
    change(wanted["spec"])
    return wanted


def refusal(demo: Demo, resource: Object) -> str:
    with pytest.raises(KubectlError) as refused:
        judged(demo, resource)
    return str(refused.value)


def listeners(*wanted: dict[str, Any]) -> Change:
    return lambda spec: spec.update(listeners=list(wanted))


NEW_TOPICS: Final[dict[str, tuple[dict[str, Any], str, str]]] = {
    "no partitions": ({"partitions": 0}, "spec.partitions", "greater than or equal to 1"),
    "no replicas": ({"replicas": 0}, "spec.replicas", "greater than or equal to 1"),
    "an unknown field": ({"partition": 3}, "unknown field", "spec.partition"),
    "an unknown property": ({"config": {"retention": 1}}, "spec.config", "This is not a topic property"),
    "a strange retention": ({"config": {"retention.ms": -5}}, "retention.ms must be", "-1 for no bound"),
    "a strange policy": ({"config": {"cleanup.policy": "keep"}}, "cleanup.policy must be", "delete, compact"),
    "a strange deletion": ({"deletion": "Never"}, "spec.deletion", '"Protect", "Delete"'),
    "more in sync than there are": (
        {"replicas": 2, "config": {"min.insync.replicas": 3}},
        "min.insync.replicas is more than spec.replicas",
        "no producer could write",
    ),
}


@pytest.mark.parametrize("case", NEW_TOPICS)
def test_topics_that_make_no_sense(demo: Demo, case: str) -> None:
    spec, *words = NEW_TOPICS[case]

    message = refusal(demo, topic_of("refused", **spec))

    assert [word for word in words if word not in message] == [], message


NEW_CLUSTERS: Final[dict[str, tuple[Change, str, str]]] = {
    "no brokers": (lambda spec: spec["brokers"].update(replicas=0), "spec.brokers.replicas", "equal to 1"),
    "an even ensemble": (lambda spec: spec["zookeeper"].update(replicas=4), "replicas must be odd", "zookeeper"),
    "an unknown field": (lambda spec: spec.update(broker={}), "unknown field", "spec.broker"),
    "a listener that is open to the world": (
        listeners({"name": "outside", "port": 9094, "type": "nodeport"}),
        "everybody who reaches its port can read, write and delete everything",
        "Set authentication, or set insecure: true to accept that",
    ),
    "a password in the open": (
        lambda spec: spec["brokers"]["config"].update({"zookeeper.ssl.keystore.password": "x"}),
        "A property here is a password",
        "put it into a Secret and name the Secret in configFrom",
    ),
    "a password of a listener in the open": (
        lambda spec: spec["brokers"]["config"].update({"listener.name.plain.ssl.key.password": "x"}),
        "A property here is a password",
        "also with listener.name.NAME. before them",
    ),
    "a password of a mechanism in the open": (
        lambda spec: spec["brokers"]["config"].update({"listener.name.plain.plain.sasl.jaas.config": "x"}),
        "A property here is a password",
        "also with listener.name.NAME. before them",
    ),
    "a password of ZooKeeper in the open": (
        lambda spec: spec["zookeeper"].update(config={"ssl.keyStore.password": "x"}),
        "A property here is a password",
        "remove it",
    ),
    "a port that is taken": (
        listeners({"name": "plain", "port": 9091}),
        "The broker pods use the ports 9091 and 9404",
        "choose another",
    ),
    "two listeners of a name": (
        listeners({"name": "plain", "port": 9092}, {"name": "plain", "port": 9093}),
        "Duplicate value",
        "spec.listeners[1]",
    ),
    "two listeners of a port": (
        listeners({"name": "plain", "port": 9092}, {"name": "other", "port": 9092}),
        "Two listeners have the same port",
        "spec.listeners",
    ),
    "the brokers' own name": (
        listeners({"name": "replication", "port": 9092}),
        "The brokers use the name replication themselves",
        "choose another",
    ),
    "no listener": (listeners(), "spec.listeners", "at least 1"),
    "certificates without TLS": (
        listeners({"name": "secure", "port": 9093, "authentication": {"type": "tls"}}),
        "authentication of type tls needs certificates",
        "set tls: true",
    ),
    "a property of the operator": (
        lambda spec: spec["brokers"]["config"].update({"broker.id": 7}),
        "The operator sets one of these properties",
        "remove it",
    ),
    "two volumes of an id": (
        lambda spec: spec["brokers"]["storage"]["volumes"].append({"id": 0, "size": "1Gi"}),
        "Duplicate value",
        "spec.brokers.storage.volumes[1]",
    ),
    "a strange size": (
        lambda spec: spec["zookeeper"]["storage"].update(size="much"),
        "spec.zookeeper.storage.size",
        "Invalid value",
    ),
    "an ensemble that is there and a new one": (
        lambda spec: spec["zookeeper"].update(connect="zk-0:2181"),
        "connect names an existing ensemble",
        "remove replicas, storage",
    ),
}


@pytest.mark.parametrize("case", NEW_CLUSTERS)
def test_clusters_that_make_no_sense(demo: Demo, case: str) -> None:
    change, *words = NEW_CLUSTERS[case]

    message = refusal(demo, cluster_with(change))

    assert [word for word in words if word not in message] == [], message


def test_a_name_that_no_service_could_bear(demo: Demo) -> None:
    assert "The name of a Cluster must be" in refusal(demo, cluster_with(lambda spec: None, name="a.dotted.name"))


def test_what_makes_sense_is_taken(demo: Demo) -> None:
    """Without this test the refusals above would prove nothing."""
    assert "created" in judged(demo, cluster_with(lambda spec: None))
    assert "created" in judged(demo, cluster_with(listeners({"name": "secure", "port": 9093, "tls": True})))
    assert "created" in judged(demo, topic_of("refused"))


CHANGED_TOPICS: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "fewer partitions": ({"partitions": 11}, "Partitions cannot be removed"),
    "another cluster": ({"cluster": "other"}, "A topic cannot move to another cluster"),
}


@pytest.mark.parametrize("case", CHANGED_TOPICS)
def test_topics_cannot_become(demo: Demo, case: str) -> None:
    change, sentence = CHANGED_TOPICS[case]
    wanted = copy.deepcopy(dict(example("departures.yaml")))
    wanted["spec"] |= change
    before = demo.topic("departures")["spec"]

    with pytest.raises(KubectlError, match=sentence):
        demo.kubectl.apply(wanted)

    assert demo.topic("departures")["spec"] == before


CHANGED_CLUSTERS: Final[dict[str, tuple[Change, str]]] = {
    "of a disk without a unit": (
        lambda spec: spec["brokers"]["storage"]["volumes"][0].update(size="50"),
        "give it with its unit",
    ),
    "of another class": (
        lambda spec: spec["brokers"]["storage"]["volumes"][0].update(storageClass="another"),
        "The storageClass of a volume cannot change",
    ),
    "of another disk": (
        lambda spec: spec["brokers"]["storage"]["volumes"].append({"id": 1, "size": "1Gi"}),
        "Volumes cannot be added or removed later",
    ),
    "of another ensemble": (
        lambda spec: spec.update(zookeeper={"connect": "zk-0:2181"}),
        "A cluster cannot change between its own ensemble and an existing one",
    ),
}


@pytest.mark.parametrize("case", CHANGED_CLUSTERS)
def test_clusters_cannot_become(demo: Demo, case: str) -> None:
    change, sentence = CHANGED_CLUSTERS[case]
    wanted = demo.cluster()
    change(wanted["spec"])

    assert sentence in refusal(demo, {key: wanted[key] for key in ("apiVersion", "kind", "metadata", "spec")})


@pytest.mark.parametrize("kind", [CLUSTER, TOPIC])
def test_a_resource_without_a_specification_is_refused(demo: Demo, kind: str) -> None:
    bare = {"apiVersion": "odradek.dev/v1", "kind": kind.split(".")[0].title(), "metadata": {"name": "bare"}}

    assert "spec: Required value" in refusal(demo, bare)
