"""The lag of groups as metrics of their coordinators, with leaders on other brokers."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from typing import Final

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from odradek.testing.running_cluster import RunningCluster
from odradek.testing.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.slow]

TOPIC: Final = "read-slowly"
GROUPS: Final = tuple(f"group-{number}" for number in range(6))
RECORDS: Final = 10
AGE_SECONDS: Final = 3_600

Readings = dict[tuple[str, int], float]
"""Values by group and partition."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Three brokers, a topic whose partitions have different leaders, and groups with several coordinators."""
    config = {"group.lag.metrics.enable": "true", "group.lag.refresh.interval.ms": 1000}
    made = RunningCluster(tmp_path_factory.mktemp("lag"), brokers=3, config=config)
    made.start()
    try:
        admin = AdminClient({"bootstrap.servers": made.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 3, 3)])[TOPIC].result(60)
        producer = confluent_kafka.Producer({"bootstrap.servers": made.bootstrap, "acks": "all"})
        began_ms = int(time.time() * 1000) - AGE_SECONDS * 1000
        for number in range(RECORDS):
            for partition in range(3):
                producer.produce(TOPIC, b"value", partition=partition, timestamp=began_ms + number)
        assert producer.flush(60) == 0
        for group in GROUPS:
            commit(made, group, {0: 4, 1: RECORDS, 2: RECORDS + 5})
        yield made
    finally:
        made.close()


def commit(cluster: RunningCluster, group: str, offsets: dict[int, int]) -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    positions = [confluent_kafka.TopicPartition(TOPIC, number, offset) for number, offset in offsets.items()]
    # This waits for the coordinator, which a commit does not.
    consumer.committed(positions, timeout=60)
    consumer.commit(offsets=positions, asynchronous=False)
    consumer.close()


def read(cluster: RunningCluster, name: str) -> Readings:
    """Return the values of a series from all brokers. Each one must come from one broker only."""
    found: Readings = {}
    for url in cluster.metrics_urls:
        with urllib.request.urlopen(url, timeout=60) as response:
            families = list(text_string_to_metric_families(response.read().decode()))
        (family,) = [each for each in families if each.name == name]
        for sample in family.samples:
            key = (sample.labels["consumergroup"], int(sample.labels.get("partition", -1)))
            assert key not in found
            found[key] = sample.value
    return found


def test_lag_is_provided_by_the_coordinator_of_each_group(cluster: RunningCluster) -> None:
    expected = {(group, number): lag for group in GROUPS for number, lag in ((0, RECORDS - 4), (1, 0), (2, 0))}
    wait_until(lambda: read(cluster, "kafka_consumergroup_lag") == expected, what="the lag of all groups")
    wait_until(
        lambda: read(cluster, "odradek_consumergroup_lag_seconds").keys() == expected.keys(), what="the lag in seconds"
    )
    for (_, number), seconds in read(cluster, "odradek_consumergroup_lag_seconds").items():
        assert AGE_SECONDS <= seconds < 2 * AGE_SECONDS if number == 0 else seconds == 0
    committed = read(cluster, "kafka_consumergroup_current_offset")
    assert {committed[group, 0] for group in GROUPS} == {4}
    assert set(read(cluster, "kafka_consumergroup_lag_sum").values()) == {RECORDS - 4}
    assert set(read(cluster, "kafka_consumergroup_members").values()) == {0}


def test_lag_follows_commits_and_ends_with_the_group(cluster: RunningCluster) -> None:
    group = "group-that-moves"
    commit(cluster, group, {0: 1})
    wait_until(lambda: read(cluster, "kafka_consumergroup_lag").get((group, 0)) == RECORDS - 1, what="the lag")
    commit(cluster, group, {0: RECORDS})
    wait_until(lambda: read(cluster, "kafka_consumergroup_lag").get((group, 0)) == 0, what="the next lag")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_consumer_groups([group])[group].result(60)
    assert (group, 0) not in read(cluster, "kafka_consumergroup_lag")
