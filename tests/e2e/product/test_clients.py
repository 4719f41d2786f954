"""Tests clients in a pod and outside: what one produces with acks=all, the other consumes, each record exactly once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from support.clients import consume_all, produce_all
from support.images import reference
from support.product import Demo
from support.waiting import eventually

RECORDS = 1000
USER = 10001
SCRIPT = f"""
seq 1 {RECORDS} | odradek produce inside -X acks=all -X compression.type=zstd
odradek consume inside --from-beginning --until-end --format 'record {{value}}'
"""


def job(name: str, bootstrap: str) -> dict[str, Any]:
    """A Job with the command line's producer and consumer, as restricted as the project's own pods."""
    container = {
        "name": "client",
        "image": reference("broker"),
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-ceu", SCRIPT],
        "env": [{"name": "ODRADEK_BOOTSTRAP_SERVER", "value": bootstrap}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    pod = {
        "restartPolicy": "Never",
        "containers": [container],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"backoffLimit": 0, "template": {"metadata": {"labels": {"app": name}}, "spec": pod}},
    }


@pytest.fixture(scope="module", autouse=True)
def topics(demo: Demo) -> None:
    """The topics to which the clients write. Two brokers must have a record before it is acknowledged."""
    for name in ("inside", "outside"):
        demo.make_topic(name, partitions=6, config={"min.insync.replicas": 2})


def test_a_client_in_a_pod_gets_every_record_back_once(demo: Demo) -> None:
    kubectl = demo.kubectl
    kubectl.apply(job("client", demo.bootstrap("plain")))

    ended = eventually(
        lambda: kubectl.require("job", "client").get("status", {}),
        lambda status: status.get("succeeded") or status.get("failed"),
        what="the end of the client's job",
    )
    (pod,) = kubectl.pods("app=client")
    output = kubectl.logs(pod.name)

    assert ended.get("succeeded") == 1, output
    found = Counter(line.removeprefix("record ") for line in output.splitlines() if line.startswith("record "))
    assert found == Counter(str(number) for number in range(1, RECORDS + 1))


def test_a_client_outside_gets_every_record_back_once(demo: Demo, outside: str) -> None:
    sent = [f"from outside {number}" for number in range(RECORDS)]

    produce_all(outside, "outside", sent)

    assert Counter(consume_all(outside, "outside", len(sent))) == Counter(sent)
    # A client at the other listener reads the same records: all listeners lead to the same cluster.
    assert Counter(demo.command("consume", "outside", "--from-beginning", "--until-end").splitlines()) == Counter(sent)


def test_every_broker_is_reached_from_outside_at_an_address_of_its_own(demo: Demo, admin: AdminClient) -> None:
    brokers = admin.list_topics(timeout=30).brokers

    assert sorted(brokers) == [0, 1, 2]
    services = {
        number: demo.kubectl.require("service", f"demo-kafka-external-{number}")["spec"]["ports"][0]["nodePort"]
        for number in brokers
    }
    nodes = {node.name: node.address for node in demo.kubectl.nodes()}
    hosts = {int(pod.name.rsplit("-", 1)[1]): nodes[pod.node] for pod in demo.pods("kafka")}
    assert {number: (broker.host, broker.port) for number, broker in brokers.items()} == {
        number: (hosts[number], services[number]) for number in brokers
    }
