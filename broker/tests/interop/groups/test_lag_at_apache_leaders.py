"""A broker measures the lag of its groups in partitions that a broker of Apache Kafka leads."""

from __future__ import annotations

import time
import urllib.request
from pathlib import Path
from typing import Final
from uuid import uuid4

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from prometheus_client.parser import text_string_to_metric_families

from odradek.testing.free_ports import free_ports
from odradek.testing.waiting import wait_until
from odradek_testkit.broker_process import OdradekBroker
from odradek_testkit.interop.apache import ApacheBroker, jars

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]

OURS, APACHE = 0, 7
TOPIC: Final = "led-by-both"
AGE_SECONDS: Final = 3_600
PROPERTIES: Final = {"zookeeper.session.timeout.ms": "6000", "offsets.topic.replication.factor": "1"}
LAG_PROPERTIES: Final = {"group.lag.metrics.enable": "true", "group.lag.refresh.interval.ms": "1000"}


def read(metrics_port: int, name: str) -> dict[int, float]:
    """Return the values of a series by partition."""
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=60) as response:
        families = text_string_to_metric_families(response.read().decode())
    return {
        int(sample.labels["partition"]): sample.value
        for family in families
        if family.name == name
        for sample in family.samples
    }


def new_root(zookeeper: str) -> str:
    """Return the connect string of a new znode, for one cluster."""
    client = KazooClient(hosts=zookeeper)
    client.start()
    root = f"/lag-{uuid4().hex[:8]}"
    client.create(root)
    client.stop()
    client.close()
    return zookeeper + root


def commit(bootstrap: str, *offsets: int) -> None:
    """Commit the offsets of the first partitions. Without offsets, only wait for the coordinator."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": "false"}
    consumer = confluent_kafka.Consumer(settings)
    positions = [confluent_kafka.TopicPartition(TOPIC, number, offset) for number, offset in enumerate(offsets)]
    consumer.committed(positions or [confluent_kafka.TopicPartition(TOPIC, 0)], timeout=60)
    if positions:
        consumer.commit(offsets=positions, asynchronous=False)
    consumer.close()


def fill(bootstrap: str) -> None:
    """Produce ten records to each partition."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    timestamp = int(time.time() * 1000) - 1000 * AGE_SECONDS
    for number in range(20):
        producer.produce(TOPIC, b"value", partition=number % 2, timestamp=timestamp)
    assert producer.flush(60) == 0


def test_lag_in_partitions_that_apache_kafka_leads(
    odradek_zookeeper: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    root, (metrics_port,) = new_root(odradek_zookeeper), free_ports(1)
    properties = {**PROPERTIES, **LAG_PROPERTIES, "metrics.port": str(metrics_port)}
    ours = OdradekBroker(tmp_path / "ours", zookeeper=root, properties=properties, broker_id=OURS)
    kafka = jars("3.9.1", Path(request.config.rootpath) / ".interop")
    apache = ApacheBroker(
        kafka,
        tmp_path / "apache",
        broker_id=APACHE,
        zookeeper=root,
        properties=PROPERTIES,
        heap="384m",
    )
    try:
        ours.start()
        bootstrap = f"127.0.0.1:{ours.port}"
        admin = AdminClient({"bootstrap.servers": bootstrap})
        # The topic of offsets is created while our broker is alone, so it coordinates the group.
        commit(bootstrap)
        apache.start()
        wait_until(lambda: APACHE in admin.list_topics(timeout=30).brokers, what="the broker of Apache Kafka")
        new = NewTopic(TOPIC, num_partitions=2, replica_assignment=[[APACHE], [OURS]])
        admin.create_topics([new])[TOPIC].result(60)
        fill(bootstrap)
        commit(bootstrap, 3, 4)
        wait_until(lambda: read(metrics_port, "kafka_consumergroup_lag") == {0: 7, 1: 6}, what="the lag")
        wait_until(lambda: len(read(metrics_port, "odradek_consumergroup_lag_seconds")) == 2, what="the ages")
        ages = read(metrics_port, "odradek_consumergroup_lag_seconds").values()
        assert all(AGE_SECONDS <= age < 2 * AGE_SECONDS for age in ages)
        # Without its leader, the lag of a partition is absent, and that of the other one is not affected.
        apache.stop(kill=True)
        wait_until(lambda: read(metrics_port, "kafka_consumergroup_lag") == {1: 6}, what="the end of the lag")
    finally:
        apache.stop(kill=True)
        ours.stop()
