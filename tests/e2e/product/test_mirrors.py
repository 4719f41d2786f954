"""Tests the example Mirror: it copies the departures into a secured cluster, while one of its pods dies.

Both topics are compared record by record.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pytest
import yaml
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from odradek_operator.mirrors import mirror_names as names
from support.figures import tell
from support.product import CLUSTER, EXAMPLES, MIRROR, USER, Demo, small_cluster
from support.tables import parse
from support.values import Pod
from support.waiting import eventually, scaled

pytestmark = pytest.mark.e2e_full

EXAMPLE: Final = EXAMPLES / "mirror" / "flights.yaml"
NAME: Final = "flights"
LOGIN: Final = "flights-mirror"
SOURCE: Final = "departures"
COPY: Final = "demo.departures"
TARGET: Final = "copies"
RECORDS: Final = 5_000
START_SECONDS: Final = 300.0
COPY_SECONDS: Final = 300.0

Found = dict[int, list[tuple[bytes | None, bytes | None, int]]]
"""Key, value and timestamp of the records of each partition, in their order."""


@pytest.fixture(scope="module")
def target(demo: Demo) -> Iterator[Demo]:
    """A secured cluster with one broker."""
    made = replace(demo, name=TARGET)
    made.kubectl.apply(small_cluster(demo, TARGET, [], brokers=1))
    try:
        made.await_ready()
        yield made
    finally:
        made.kubectl.delete(USER, LOGIN)  # The operator removes its finalizer.
        made.kubectl.delete(CLUSTER, TARGET)


@pytest.fixture(scope="module")
def mirror(demo: Demo, target: Demo) -> Iterator[None]:
    """The Mirror of the example and its User, with the small cluster as the target."""
    for document in yaml.safe_load_all(EXAMPLE.read_text(encoding="utf-8")):
        spec = document["spec"]
        if document["kind"] == "User":
            spec["cluster"] = target.name
        else:
            spec["target"]["cluster"] = target.name
            spec["resources"] = {"requests": {"cpu": "50m", "memory": "128Mi"}}
        demo.kubectl.apply(document)
    yield
    demo.kubectl.run("delete", MIRROR, NAME, "--ignore-not-found")


def produce(bootstrap: str, first: int) -> None:
    """Write records to the source."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 20})
    failed: list[Any] = []
    for number in range(first, first + RECORDS):
        text = f"mirrored {number}".encode()
        producer.produce(SOURCE, text, key=text, on_delivery=lambda error, _: error and failed.append(error))
        producer.poll(0)
    assert producer.flush(scaled(120)) == 0
    assert not failed, failed[0]


def login(target: Demo) -> dict[str, Any]:
    """librdkafka's properties for the User of the mirror."""
    data = target.kubectl.require("secret", LOGIN)["data"]
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.pem": base64.b64decode(data["ca.crt"]).decode(),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": LOGIN,
        "sasl.password": base64.b64decode(data["password"]).decode(),
    }


def read_all(topic: str, properties: dict[str, Any]) -> Found:
    """The committed records of a topic, up to the present end of each partition."""
    consumer = Consumer(
        {
            "group.id": "departures-check",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            **properties,
        }
    )
    found: Found = {}
    try:
        numbers = consumer.list_topics(topic, timeout=scaled(30)).topics[topic].partitions
        for number in numbers:
            records = found[number] = []
            consumer.assign([TopicPartition(topic, number, 0)])
            while True:
                message = consumer.poll(scaled(30))
                assert message is not None, f"{topic}-{number}: no answer after {len(records)} records"
                if (error := message.error()) is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    break
                records.append((message.key(), message.value(), message.timestamp()[1]))
    finally:
        consumer.close()
    return found


def row(demo: Demo) -> dict[str, str]:
    """What `kubectl get mirrors` shows of the Mirror."""
    rows = {each["NAME"]: each for each in parse(demo.kubectl.run("get", "mirrors"))}
    return rows[NAME]


def pods(demo: Demo) -> tuple[Pod, ...]:
    """The pods of the Mirror."""
    return demo.kubectl.pods(f"{names.MIRROR_LABEL}={NAME}")


@pytest.mark.usefixtures("mirror")
def test_every_record_is_copied_once_and_in_order(demo: Demo, target: Demo, outside: str) -> None:
    demo.await_topic(SOURCE)
    produce(outside, 0)
    eventually(lambda: row(demo)["PHASE"], lambda phase: phase == "Running", what="Running", seconds=START_SECONDS)
    killed = pods(demo)[0].name
    demo.kubectl.delete("pod", killed, force=True)
    produce(outside, RECORDS)
    eventually(
        lambda: row(demo),
        lambda found: (found["PHASE"], found["LAG"]) == ("Running", "0"),
        what="no lag",
        seconds=COPY_SECONDS,
    )
    wanted = read_all(SOURCE, {"bootstrap.servers": outside})
    assert sum(map(len, wanted.values())) >= 2 * RECORDS
    copies = {"bootstrap.servers": target.bootstrap("outside"), **login(target)}
    # The lag in the status may be some seconds old.
    eventually(lambda: read_all(COPY, copies), lambda found: found == wanted, what="equal topics", seconds=COPY_SECONDS)
    assert row(demo)["SOURCES"] == "demo"
    tell(f"a Mirror copied {sum(map(len, wanted.values()))} records once and in order, with {killed} killed")


@pytest.mark.usefixtures("mirror")
def test_a_suspended_mirror_has_no_pods_and_continues_later(demo: Demo, outside: str) -> None:
    demo.kubectl.patch(MIRROR, NAME, {"spec": {"suspend": True}})
    eventually(lambda: pods(demo), lambda left: not left, what="the end of the pods")
    eventually(lambda: row(demo)["PHASE"], lambda phase: phase == "Suspended", what="Suspended")
    produce(outside, 2 * RECORDS)
    demo.kubectl.patch(MIRROR, NAME, {"spec": {"suspend": False}})
    eventually(
        lambda: row(demo),
        lambda found: (found["PHASE"], found["LAG"]) == ("Running", "0"),
        what="no lag",
        seconds=COPY_SECONDS,
    )


@pytest.mark.usefixtures("mirror")
def test_deletion_removes_the_pods_and_keeps_the_copies(demo: Demo, target: Demo) -> None:
    demo.kubectl.delete(MIRROR, NAME)
    eventually(lambda: pods(demo), lambda left: not left, what="the end of the pods")
    assert demo.kubectl.list("configmaps", f"{names.MIRROR_LABEL}={NAME}") == []
    copies = {"bootstrap.servers": target.bootstrap("outside"), **login(target)}
    assert sum(map(len, read_all(COPY, copies).values())) > 0
