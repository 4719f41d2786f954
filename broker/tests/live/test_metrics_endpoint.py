"""/metrics, /healthz and /readyz of three real brokers with traffic, read in the same way as Prometheus."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import NamedTuple
from uuid import uuid4

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from odradek.metrics.series import SERIES, SeriesType
from odradek.testing.running_cluster import RunningCluster
from odradek.testing.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.slow]

PARTITIONS, REPLICAS, RECORDS = 4, 3, 400
VALUE = b"v" * 100
TOPIC_METRICS = "kafka_server_brokertopicmetrics_"


class Traffic(NamedTuple):
    """A topic to which records were written once. It is replicated to all brokers and was read once."""

    topic: str
    scrapes: list[Scrape]

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of all brokers."""
        return sum(scrape.value(name, **labels) for scrape in self.scrapes)

    def of_topic(self, suffix: str) -> float:
        """Return a brokertopicmetrics counter of the topic, as the sum of all brokers."""
        return self.total(f"{TOPIC_METRICS}{suffix}_total", topic=self.topic)


class Scrape:
    """The metrics of one broker."""

    def __init__(self, url: str) -> None:
        """Read the metrics."""
        with urllib.request.urlopen(url, timeout=120) as response:
            assert response.headers["Content-Type"].startswith("text/plain")
            text = response.read().decode()
        self.families: list[Metric] = list(text_string_to_metric_families(text))
        self.samples = {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in self.families
            for sample in family.samples
        }
        assert len(self.samples) == sum(len(family.samples) for family in self.families), "a series occurs twice"

    def value(self, name: str, **labels: str) -> float:
        """Return a sample; 0 if there is none with these labels, as in a sum in PromQL."""
        return self.samples.get((name, *sorted(labels.items())), 0.0)

    def values(self, name: str) -> list[float]:
        """Return all samples of a series, with any labels."""
        return [value for key, value in self.samples.items() if key[0] == name]


def scrape(cluster: RunningCluster) -> list[Scrape]:
    return [Scrape(url) for url in cluster.metrics_urls]


def deliver(bootstrap: str, topic: str) -> None:
    """Produce `RECORDS` records with acks=all and consume them all."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 50})
    for number in range(RECORDS):
        producer.produce(topic, VALUE, partition=number % PARTITIONS)
    assert producer.flush(120) == 0
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found = 0
    while found < RECORDS:
        messages = consumer.consume(RECORDS, timeout=120)
        assert messages, f"only {found} records came"
        assert all(message.error() is None for message in messages)
        found += len(messages)
    consumer.close()


@pytest.fixture(scope="module")
def traffic(odradek_cluster: RunningCluster) -> Iterator[Traffic]:
    topic = f"metrics-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": odradek_cluster.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, REPLICAS)])[topic].result(60)
    deliver(odradek_cluster.bootstrap, topic)
    yield Traffic(topic, scrape(odradek_cluster))
    admin.delete_topics([topic])[topic].result(60)


def test_every_declared_series_is_exposed_with_its_kind(traffic: Traffic) -> None:
    kinds = {SeriesType.COUNTER: "counter", SeriesType.GAUGE: "gauge", SeriesType.SUMMARY: "summary"}
    expected = {(name.removesuffix("_total"), kinds[series.kind]) for name, series in SERIES.items()}
    for broker in traffic.scrapes:
        assert expected <= {(family.name.removesuffix("_total"), family.type) for family in broker.families}


def test_no_series_has_a_label_of_prometheus(traffic: Traffic) -> None:
    labels = {label for broker in traffic.scrapes for key in broker.samples for label, _ in key[1:]}
    assert not labels & {"namespace", "pod", "container", "instance", "job"}


def test_traffic_is_counted_once(traffic: Traffic) -> None:
    assert traffic.of_topic("messagesin") == RECORDS
    taken = traffic.of_topic("bytesin")
    assert RECORDS * len(VALUE) < taken < 2 * RECORDS * len(VALUE)
    # Each record was sent to one consumer and two followers. Only the former counts as bytes out.
    assert taken <= traffic.of_topic("bytesout") < 2 * taken
    assert traffic.of_topic("totalproducerequests") >= PARTITIONS
    assert traffic.of_topic("totalfetchrequests") >= PARTITIONS
    assert traffic.of_topic("failedproducerequests") == 0
    assert traffic.of_topic("failedfetchrequests") == 0


def test_the_sums_of_a_broker_hold_its_topics(traffic: Traffic) -> None:
    for broker in traffic.scrapes:
        for suffix in ("messagesin", "bytesin", "bytesout", "totalproducerequests", "totalfetchrequests"):
            name = f"{TOPIC_METRICS}{suffix}_total"
            whole = broker.value(name)
            assert sum(broker.values(name)) - whole <= whole


def test_partitions_and_replicas_add_up(odradek_cluster: RunningCluster, traffic: Traffic) -> None:
    admin = AdminClient({"bootstrap.servers": odradek_cluster.bootstrap})

    def settled() -> bool:
        # Topics of other tests may still be in deletion.
        topics = admin.list_topics(timeout=120).topics.values()
        partitions = [partition for topic in topics for partition in topic.partitions.values()]
        now = Traffic(traffic.topic, scrape(odradek_cluster))
        return (
            now.total("kafka_server_replicamanager_leadercount") == len(partitions)
            and now.total("kafka_controller_kafkacontroller_globalpartitioncount") == len(partitions)
            and now.total("kafka_controller_kafkacontroller_globaltopiccount") == len(topics)
            and now.total("kafka_server_replicamanager_partitioncount")
            == sum(len(partition.replicas) for partition in partitions)
        )

    wait_until(settled, what="agreement of metrics and metadata")


def test_each_partition_has_one_leader_and_three_replicas(traffic: Traffic) -> None:
    for number in map(str, range(PARTITIONS)):
        here = {"topic": traffic.topic, "partition": number}
        assert sorted(broker.value("kafka_cluster_partition_replicascount", **here) for broker in traffic.scrapes) == [
            0,
            0,
            REPLICAS,
        ]
        assert traffic.total("kafka_cluster_partition_underminisr", **here) == 0
        assert traffic.total("kafka_cluster_partition_atminisr", **here) == 0
        sizes = {broker.value("kafka_log_log_size", **here) for broker in traffic.scrapes}
        assert len(sizes) == 1
        assert sizes.pop() > RECORDS / PARTITIONS * len(VALUE)
        ends = [broker.value("kafka_log_log_logendoffset", **here) for broker in traffic.scrapes]
        assert ends == [RECORDS / PARTITIONS] * REPLICAS


def test_the_cluster_is_healthy(traffic: Traffic) -> None:
    assert sorted(
        broker.value("kafka_controller_kafkacontroller_activecontrollercount") for broker in traffic.scrapes
    ) == [0, 0, 1]
    for zero in (
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        "kafka_server_replicamanager_underreplicatedpartitions",
        "kafka_server_replicamanager_underminisrpartitioncount",
        "kafka_server_replicamanager_offlinereplicacount",
        "kafka_log_logmanager_offlinelogdirectorycount",
        "kafka_server_sessionexpirelistener_zookeeperexpires_total",
    ):
        assert traffic.total(zero) == 0, zero


def test_each_process_exposes_its_metrics(traffic: Traffic) -> None:
    for broker in traffic.scrapes:
        assert broker.value("kafka_server_kafkaserver_brokerstate") == 3
        assert broker.value("process_open_fds") > 10
        assert broker.value("jvm_memory_used_bytes", area="heap") > 10_000_000
        assert broker.value("jvm_threads_current") >= 1
        assert broker.value("jvm_gc_collection_seconds_count", gc="python") > 0
        assert broker.value("kafka_server_kafkaserver_linux_disk_write_bytes") > 0
        (connections,) = broker.values("kafka_server_socket_server_metrics_connection_count")
        assert connections >= REPLICAS - 1, "the followers' connections at least"
        for idle in (
            "kafka_network_socketserver_networkprocessoravgidle_percent",
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        ):
            assert 0 <= broker.value(idle) <= 1


def test_request_times_have_the_quantiles_that_dashboards_select(traffic: Traffic) -> None:
    name = "kafka_network_requestmetrics_totaltimems"
    wanted = ["0.50", "0.75", "0.95", "0.98", "0.99", "0.999"]
    for broker in traffic.scrapes:
        for request in ("Produce", "Fetch", "ApiVersions"):
            values = [broker.samples[name, ("quantile", text), ("request", request)] for text in wanted]
            assert values == sorted(values)
            assert values[0] > 0
            count = broker.value(f"{name}_count", request=request)
            versions = [
                value
                for key, value in broker.samples.items()
                if key[0] == "kafka_network_requestmetrics_requests_total" and ("request", request) in key
            ]
            assert count == sum(versions) > 0


@pytest.mark.parametrize(("path", "status"), [("/healthz", 200), ("/readyz", 200), ("/elsewhere", 404)])
def test_probes(odradek_cluster: RunningCluster, path: str, status: int) -> None:
    for url in odradek_cluster.metrics_urls:
        try:
            with urllib.request.urlopen(url.removesuffix("/metrics") + path, timeout=120) as response:
                found = response.status
        except urllib.error.HTTPError as error:
            with error:
                found = error.code
        assert found == status
