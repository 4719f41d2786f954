"""Labels and types of every series that dashboards and alerts for Kafka use, on real brokers with traffic.

The table of the series is repeated here on purpose: a wrong name in the broker's own table would not be noticed.
"""

from __future__ import annotations

import random
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from odradek.testing.running_cluster import RunningCluster
from odradek.testing.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.slow]

TOPIC: Final = "asked-for"


class Asked(NamedTuple):
    """A series: the name of its samples without `_total` or `_count`, its type, and its required labels."""

    name: str
    kind: str
    labels: tuple[str, ...] = ()


def named(prefix: str, kind: str, names: str, *labels: str) -> list[Asked]:
    return [Asked(prefix + name, kind, labels) for name in names.split()]


COUNTER, GAUGE, SUMMARY = "counter", "gauge", "summary"
PANELS: Final = [
    *named("kafka_server_replicamanager_", GAUGE, "leadercount partitioncount underreplicatedpartitions"),
    *named("kafka_controller_kafkacontroller_", GAUGE, "activecontrollercount offlinepartitionscount"),
    *named("kafka_controller_controllerstats_", COUNTER, "uncleanleaderelections"),
    *named("kafka_cluster_partition_", GAUGE, "atminisr underminisr replicascount", "topic", "partition"),
    *named("process_", GAUGE, "open_fds"),
    *named("jvm_", GAUGE, "memory_used_bytes memory_bytes_used", "area"),
    *named("jvm_", GAUGE, "threads_current"),
    *named(
        "kafka_server_brokertopicmetrics_",
        COUNTER,
        "bytesin bytesout messagesin totalproducerequests failedproducerequests totalfetchrequests failedfetchrequests",
        "topic",
    ),
    *named("kafka_network_socketserver_", GAUGE, "networkprocessoravgidle_percent"),
    *named("kafka_server_kafkarequesthandlerpool_", GAUGE, "requesthandleravgidle_percent"),
    *named("kafka_server_kafkaserver_", GAUGE, "linux_disk_write_bytes linux_disk_read_bytes"),
    *named("kafka_server_socket_server_metrics_", GAUGE, "connection_count", "listener", "networkProcessor"),
    *named("kafka_log_log_", GAUGE, "size", "topic", "partition"),
    *named("kafka_server_zookeeperclientmetrics_", SUMMARY, "zookeeperrequestlatencyms", "quantile"),
]
BROKER_WIDE: Final = named(
    "kafka_server_brokertopicmetrics_",
    COUNTER,
    "replicationbytesin replicationbytesout bytesrejected producemessageconversions fetchmessageconversions "
    "invalidmagicnumberrecords invalidmessagecrcrecords invalidoffsetorsequencerecords nokeycompactedtopicrecords",
)
ALERTS: Final = [
    *named("kafka_server_replicamanager_", GAUGE, "underminisrpartitioncount"),
    *named("kafka_log_logmanager_", GAUGE, "offlinelogdirectorycount"),
]
OTHERS: Final = [
    *named(
        "kafka_server_socket_server_metrics_",
        COUNTER,
        "connection_creation connection_close successful_authentication failed_authentication "
        "successful_reauthentication failed_reauthentication",
        "listener",
        "networkProcessor",
    ),
    *named(
        "kafka_server_socket_server_metrics_",
        GAUGE,
        "expired_connections_killed_count",
        "listener",
        "networkProcessor",
    ),
    *named("kafka_network_requestmetrics_", COUNTER, "requests", "request", "version"),
    *named("kafka_network_requestmetrics_", COUNTER, "errors", "request", "error"),
    *named(
        "kafka_network_requestmetrics_",
        SUMMARY,
        "totaltimems requestqueuetimems localtimems remotetimems responsequeuetimems responsesendtimems",
        "request",
        "quantile",
    ),
    *named("kafka_network_requestchannel_", GAUGE, "requestqueuesize"),
    *named("kafka_network_socketserver_", GAUGE, "memorypoolavailable memorypoolused"),
    *named("kafka_server_socket_server_metrics_", GAUGE, "memorypooldepletedtimetotal"),
    *named("kafka_server_delayedoperationpurgatory_", GAUGE, "purgatorysize numdelayedoperations", "delayedOperation"),
    *named("kafka_server_replicamanager_", COUNTER, "isrshrinks isrexpands"),
    *named("kafka_server_replicamanager_", GAUGE, "offlinereplicacount atminisrpartitioncount reassigningpartitions"),
    *named("kafka_server_replicafetchermanager_", GAUGE, "maxlag", "clientId"),
    *named("kafka_server_fetcherlagmetrics_", GAUGE, "consumerlag", "clientId", "topic", "partition"),
    *named(
        "kafka_controller_kafkacontroller_",
        GAUGE,
        "globaltopiccount globalpartitioncount preferredreplicaimbalancecount controllerstate",
    ),
    *named("kafka_controller_controllerstats_", SUMMARY, "leaderelectionrateandtimems", "quantile"),
    *named("kafka_log_log_", GAUGE, "logstartoffset logendoffset numlogsegments", "topic", "partition"),
    *named("kafka_log_logflushstats_", SUMMARY, "logflushrateandtimems", "quantile"),
    *named(
        "kafka_server_sessionexpirelistener_", COUNTER, "zookeeperdisconnects zookeeperexpires zookeepersyncconnects"
    ),
    *named("kafka_server_kafkaserver_", GAUGE, "brokerstate"),
]
QUANTILES: Final = {"0.50", "0.75", "0.95", "0.98", "0.99", "0.999"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Two brokers that follow each other and flush. One is the controller, and the other was restarted."""
    config = {"log.flush.scheduler.interval.ms": 100, "log.flush.interval.ms": 100}
    made = RunningCluster(tmp_path_factory.mktemp("asked"), brokers=2, config=config)
    made.start()
    try:
        # A controller that is elected after both have registered has handled no registration.
        made.stop_broker(1)
        made.start_broker(1)
        traffic(made.bootstrap)
        yield made
    finally:
        made.close()


def traffic(bootstrap: str) -> None:
    """Produce, fetch in a group, and send a request that is refused."""
    for server in bootstrap.split(","):
        # A client that knows several brokers may request metadata from one of them only.
        AdminClient({"bootstrap.servers": server}).list_topics(timeout=60)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 4, 2)])[TOPIC].result(60)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(200):
        producer.produce(TOPIC, b"v" * 100, partition=number % 4)
    assert producer.flush(60) == 0
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([TOPIC])
    found = 0
    while found < 200:
        found += len(consumer.consume(200, timeout=60))
    consumer.commit(asynchronous=False)
    consumer.close()
    with suppress(confluent_kafka.KafkaException):
        admin.create_topics([NewTopic(TOPIC, 4, 2)])[TOPIC].result(60)


def families(url: str) -> dict[str, Metric]:
    with urllib.request.urlopen(url, timeout=60) as response:
        return {family.name: family for family in text_string_to_metric_families(response.read().decode())}


@pytest.fixture(scope="module")
def scraped(cluster: RunningCluster) -> list[dict[str, Metric]]:
    return [families(url) for url in cluster.metrics_urls]


@pytest.mark.parametrize("asked", [*PANELS, *BROKER_WIDE, *ALERTS, *OTHERS], ids=lambda asked: asked.name)
def test_every_broker_has_the_series(scraped: list[dict[str, Metric]], asked: Asked) -> None:
    for broker in scraped:
        family = broker[asked.name]
        assert family.type == asked.kind
        own = asked.name + {COUNTER: "_total"}.get(asked.kind, "")
        samples = [sample for sample in family.samples if sample.name == own and set(sample.labels) == {*asked.labels}]
        assert samples, f"no sample of {asked.name} has just the labels {asked.labels}"
        if asked.kind == SUMMARY:
            assert {sample.labels["quantile"] for sample in samples} == QUANTILES
            assert [sample for sample in family.samples if sample.name == f"{asked.name}_count"]


def test_garbage_collections_are_counted(scraped: list[dict[str, Metric]]) -> None:
    for broker in scraped:
        family = broker["jvm_gc_collection_seconds"]
        names = {sample.name for sample in family.samples if sample.labels == {"gc": "python"}}
        assert (family.type, names) == (SUMMARY, {f"{family.name}_sum", f"{family.name}_count"})


def test_topics_are_counted_broker_wide_too(scraped: list[dict[str, Metric]]) -> None:
    for broker in scraped:
        for asked in PANELS:
            if asked.name.startswith("kafka_server_brokertopicmetrics_"):
                assert [sample for sample in broker[asked.name].samples if not sample.labels]


def value(broker: dict[str, Metric], name: str, sample: str = "", **labels: str) -> float:
    """Return the sum of those samples of a series that have at least these labels."""
    return sum(
        each.value
        for each in broker[name].samples
        if each.name == (sample or name) and labels.items() <= each.labels.items()
    )


PREFIX: Final = "kafka_network_requestmetrics_"
PARTS: Final = "requestqueue local remote responsequeue responsesend total".split()


def test_the_parts_of_a_request_are_timed(scraped: list[dict[str, Metric]]) -> None:
    for request in ("Produce", "Fetch", "Metadata"):
        for broker in scraped:
            names = [f"{PREFIX}{part}timems" for part in PARTS]
            counts = {value(broker, name, f"{name}_count", request=request) for name in names}
            assert len(counts) == 1
            assert counts.pop() > 0
            longest = {
                part: value(broker, f"{PREFIX}{part}timems", request=request, quantile="0.999") for part in PARTS
            }
            # The sum of the quantiles of the parts is above the quantile of the sums. Each quantile is accurate to a
            # tenth.
            assert all(longest[part] <= longest["total"] * 1.21 for part in PARTS)


def test_followers_wait_at_their_leaders(scraped: list[dict[str, Metric]]) -> None:
    # A follower that has all records gets a response after replica.fetch.wait.max.ms, 500 ms.
    name = f"{PREFIX}remotetimems"
    assert max(value(broker, name, request="Fetch", quantile="0.999") for broker in scraped) > 100
    assert max(value(broker, f"{PREFIX}localtimems", request="Fetch", quantile="0.50") for broker in scraped) < 100


def test_errors_have_the_names_of_the_protocol(scraped: list[dict[str, Metric]]) -> None:
    name = f"{PREFIX}errors"
    total = f"{name}_total"
    refused = {"request": "CreateTopics", "error": "TOPIC_ALREADY_EXISTS"}
    assert sum(value(broker, name, total, **refused) for broker in scraped) >= 1
    for broker in scraped:
        whole = value(broker, f"{PREFIX}requests", f"{PREFIX}requests_total", request="Metadata")
        assert value(broker, name, total, request="Metadata", error="NONE") == whole


TOPICS: Final = "kafka_server_brokertopicmetrics_"


def counted(cluster: RunningCluster, name: str, **labels: str) -> float:
    """Return the sum of a counter over all brokers, of the samples with these labels."""
    return sum(
        sample.value
        for url in cluster.metrics_urls
        for sample in families(url)[TOPICS + name].samples
        if sample.name == f"{TOPICS}{name}_total" and sample.labels == labels
    )


def test_offset_commits_count_as_bytes_in_of_their_topic(cluster: RunningCluster) -> None:
    for name in ("messagesin", "bytesin", "totalproducerequests"):
        assert counted(cluster, name, topic="__consumer_offsets") > 0


def test_replication_is_counted_on_both_sides(cluster: RunningCluster) -> None:
    def caught_up() -> bool:
        copied, sent = (counted(cluster, f"replicationbytes{way}") for way in ("in", "out"))
        return copied == sent > 200 * 100

    wait_until(caught_up, what="the same bytes at leaders and followers")


def test_refusals_and_conversions_are_counted(cluster: RunningCluster) -> None:
    topic = "refusing"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    config = {"cleanup.policy": "compact", "max.message.bytes": "1000", "compression.type": "gzip"}
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(60)
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0})
    errors: list[object] = []
    for key, value in ((b"k", b"v"), (None, b"v"), (b"k", random.Random(1).randbytes(5000))):
        producer.produce(topic, value, key, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(60) == 0
    assert [error is None for error in errors] == [True, False, False]
    for labels in ({}, {"topic": topic}):
        assert counted(cluster, "nokeycompactedtopicrecords", **labels) == 1
        assert counted(cluster, "producemessageconversions", **labels) == 1
        assert counted(cluster, "bytesrejected", **labels) > 5000


def test_the_controller_has_handled_new_brokers(cluster: RunningCluster) -> None:
    name = "kafka_controller_controllerstats_leaderelectionrateandtimems"

    def counted() -> bool:
        return sum(value(families(url), name, f"{name}_count") for url in cluster.metrics_urls) >= 1

    wait_until(counted, what="a change of the live brokers")


def test_followers_expose_their_lag_by_loop_and_partition(scraped: list[dict[str, Metric]]) -> None:
    seen: set[str] = set()
    for number, broker in enumerate(scraped):
        for sample in broker["kafka_server_fetcherlagmetrics_consumerlag"].samples:
            assert sample.labels["clientId"] == f"ReplicaFetcherThread-0-{1 - number}"
            if sample.labels["topic"] == TOPIC:
                seen.add(sample.labels["partition"])
    assert seen == {"0", "1", "2", "3"}


def test_logs_are_flushed_and_connections_made(cluster: RunningCluster) -> None:
    name = "kafka_log_logflushstats_logflushrateandtimems"

    def flushed() -> bool:
        return all(value(families(url), name, f"{name}_count") > 0 for url in cluster.metrics_urls)

    wait_until(flushed, what="flushes")
    for url in cluster.metrics_urls:
        connects = "kafka_server_sessionexpirelistener_zookeepersyncconnects"
        assert value(families(url), connects, f"{connects}_total") >= 1
