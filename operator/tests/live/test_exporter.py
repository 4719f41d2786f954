"""The exporter as a process, with a real cluster, a group with lag, and offsets of an old consumer in ZooKeeper."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from prometheus_client.parser import text_string_to_metric_families

from odradek.base.types import TopicPartition
from odradek.client.admin import Admin
from odradek.client.metadata import ClusterView
from odradek.client.models import ListedOffset, OffsetAndMetadata
from odradek.testing.plugin import ClusterFactory
from odradek.testing.running_cluster import RunningCluster
from odradek.testing.waiting import wait_until
from odradek.zk import layout
from odradek.zk.kazoo_client import KazooZkClient
from odradek.zk.port import ZkSettings
from odradek_operator.exporter.report import Report, decode
from odradek_operator.exporter.series import SERIES

pytestmark = [pytest.mark.java, pytest.mark.slow]

TOPIC, PARTITIONS, RECORDS, READ = "orders", 4, 400, 250
OLD_OFFSET = 60
Labels = tuple[tuple[str, str], ...]


class Process:
    """A child process that runs the command of the exporter."""

    def __init__(self, cluster: RunningCluster, log: Path) -> None:
        code = "from odradek_operator.exporter.exporter_command import exporter; exporter()"
        options = "--host 127.0.0.1 --port 0 --interval 0.5 --sizes-interval 0.5 --request-timeout 2 --stale-after 6"
        environment = {"BOOTSTRAP_SERVERS": cluster.bootstrap, "ZOOKEEPER_CONNECT": cluster.zookeeper}
        self.log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code, *options.split()], stderr=output, env={**os.environ, **environment}
            )
        self.url = ""

    def wait_until_ready(self) -> None:
        def listens() -> bool:
            found = re.search(r"listening on port (\d+)", self.log.read_text())
            self.url = f"http://127.0.0.1:{found[1]}" if found else ""
            return bool(found)

        wait_until(listens, what="the exporter's port")
        wait_until(lambda: self.status("/readyz") == 200, what="the exporter's readiness")

    def status(self, path: str) -> int:
        try:
            return int(urllib.request.urlopen(self.url + path, timeout=30).status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(self.url + path, timeout=30) as response:
            body: bytes = response.read()
        return body

    def scrape(self) -> dict[tuple[str, Labels], float]:
        """Return the value of every sample by its name and sorted labels."""
        text = self._get("/metrics").decode()
        families = list(text_string_to_metric_families(text))
        samples = [sample for family in families for sample in family.samples]
        found = {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in samples}
        assert len(found) == len(samples), "a series is given twice"
        return found

    def report(self) -> Report:
        return decode(self._get("/topics"))

    def stop(self) -> int:
        self._process.terminate()
        return self._process.wait(30)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    topics = {TOPIC: {"partitions": PARTITIONS, "replicas": 1}}
    made = RunningCluster(tmp_path_factory.mktemp("exported"), brokers=2, topics=topics)
    made.start()
    try:
        fill(made.bootstrap)
        asyncio.run(keep_old_offset(made.zookeeper))
        yield made
    finally:
        made.close()


def fill(bootstrap: str) -> None:
    """Write records to every partition. The group `slow` reads and commits some of them."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(RECORDS):
        producer.produce(TOPIC, b"v" * 100, partition=number % PARTITIONS)
    assert producer.flush(60) == 0
    reader = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "slow",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    reader.subscribe([TOPIC])
    messages = reader.consume(READ, timeout=60)
    assert len(messages) == READ
    reader.commit(asynchronous=False)
    reader.close()


async def keep_old_offset(zookeeper: str) -> None:
    zk = KazooZkClient(ZkSettings(connect=zookeeper))
    await zk.start()
    path = layout.consumer_offset_path("ancient", TopicPartition(TOPIC, 1))
    await zk.create(path, layout.encode_consumer_offset(OLD_OFFSET), make_parents=True)
    await zk.create("/consumers/ancient/offsets/orders/2", b"no offset", make_parents=True)
    await zk.close()


@pytest.fixture(scope="module")
def process(cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    made = Process(cluster, tmp_path_factory.mktemp("exporter") / "log")
    try:
        made.wait_until_ready()
        yield made
    finally:
        assert made.stop() == 0


def seen_by_admin(
    bootstrap: str,
) -> tuple[ClusterView, dict[TopicPartition, OffsetAndMetadata], dict[str, dict[TopicPartition, ListedOffset]]]:
    """Return the metadata, the committed offsets of the group, and both ends of every partition."""

    async def ask() -> tuple[
        ClusterView, dict[TopicPartition, OffsetAndMetadata], dict[str, dict[TopicPartition, ListedOffset]]
    ]:
        async with Admin(bootstrap) as admin:
            view = await admin._cluster.fresh_view(None)
            partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
            ends = {spec: await admin.list_offsets(dict.fromkeys(partitions, spec)) for spec in ("earliest", "latest")}
            return view, await admin.group_offsets("slow"), ends

    return asyncio.run(ask())


def expected(cluster: RunningCluster) -> dict[tuple[str, Labels], float]:
    """Return every series of the topic and its groups, computed from the answers of the admin client."""
    view, committed, ends = seen_by_admin(cluster.bootstrap)
    samples: dict[tuple[str, Labels], float] = {
        ("kafka_brokers", ()): 2,
        ("kafka_topic_partitions", (("topic", TOPIC),)): PARTITIONS,
    }
    for node in view.nodes.values():
        samples["kafka_broker_info", (("address", f"{node.host}:{node.port}"), ("id", str(node.node_id)))] = 1
    for number, partition in view.topics[TOPIC].partitions.items():
        key = TopicPartition(TOPIC, number)
        labels = (("partition", str(number)), ("topic", TOPIC))
        values = {
            "replicas": len(partition.replicas),
            "in_sync_replica": len(partition.isr),
            "under_replicated_partition": 0,
            "leader_is_preferred": int(partition.leader == partition.replicas[0]),
            "leader": partition.leader,
            "current_offset": ends["latest"][key].offset,
            "oldest_offset": ends["earliest"][key].offset,
        }
        samples |= {(f"kafka_topic_partition_{name}", labels): value for name, value in values.items()}
        if key in committed:
            of_group = (("consumergroup", "slow"), *labels)
            samples["kafka_consumergroup_current_offset", of_group] = committed[key].offset
            samples["kafka_consumergroup_lag", of_group] = ends["latest"][key].offset - committed[key].offset
    sums = (("consumergroup", "slow"), ("topic", TOPIC))
    samples["kafka_consumergroup_current_offset_sum", sums] = sum(each.offset for each in committed.values())
    samples["kafka_consumergroup_lag_sum", sums] = sum(
        ends["latest"][key].offset - each.offset for key, each in committed.items()
    )
    samples["kafka_consumergroup_members", (("consumergroup", "slow"),)] = 0
    old = (("consumergroup", "ancient"), ("partition", "1"), ("topic", TOPIC))
    samples["kafka_consumergroupzookeeper_lag_zookeeper", old] = (
        ends["latest"][TopicPartition(TOPIC, 1)].offset - OLD_OFFSET
    )
    return samples


def test_every_series_says_what_the_admin_client_says(cluster: RunningCluster, process: Process) -> None:
    wanted = expected(cluster)
    assert {name for name, _ in wanted} == {each.name for each in SERIES} - {"odradek_consumergroup_lag_seconds"}
    wait_until(lambda: wanted.items() <= process.scrape().items(), what="the same values as the admin client's")


def test_the_process_tells_of_itself(process: Process) -> None:
    found = process.scrape()
    assert found["process_open_fds", ()] > 5
    assert found["jvm_memory_used_bytes", (("area", "heap"),)] > 10_000_000
    assert found["jvm_threads_current", ()] >= 1
    assert found["odradek_exporter_collections_total", (("outcome", "succeeded"),)] >= 1
    assert process.status("/livez") == 200


def test_the_report_has_sizes_and_lag(cluster: RunningCluster, process: Process) -> None:
    _, committed, ends = seen_by_admin(cluster.bootstrap)

    def stored() -> int:
        directories = [path for path in cluster.directory.rglob(f"{TOPIC}-[0-9]") if path.is_dir()]
        return sum(path.stat().st_size for directory in directories for path in directory.glob("*.log"))

    # The followers may have copied less when the sizes were last read.
    wait_until(lambda: process.report().topics[TOPIC].size_bytes == stored() > 0, what="sizes in the report")
    topic = process.report().topics[TOPIC]
    assert topic.partitions == PARTITIONS
    # Groups of other tests in this module can also have offsets of the topic.
    (lag,) = [each for each in topic.groups if each.group == "slow"]
    assert lag.lag_records == sum(ends["latest"][key].offset - each.offset for key, each in committed.items()) > 0
    assert lag.lag_seconds is not None and 0 < lag.lag_seconds < 3600


def test_a_group_that_reads_has_members_and_loses_its_lag(cluster: RunningCluster, process: Process) -> None:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "busy", "auto.offset.reset": "latest"}
    )
    consumer.subscribe([TOPIC])
    members, first = (
        ("kafka_consumergroup_members", (("consumergroup", "busy"),)),
        (("consumergroup", "busy"), ("partition", "0"), ("topic", TOPIC)),
    )

    def is_member() -> bool:
        consumer.poll(0.1)
        return process.scrape().get(members) == 1

    def is_assigned() -> bool:
        consumer.poll(0.1)
        return process.scrape().get(("kafka_consumergroup_current_offset", first)) == -1

    wait_until(is_member, what="the member")
    wait_until(is_assigned, what="an assigned partition without a commit")
    assert ("kafka_consumergroup_lag", first) not in process.scrape()
    wait_until(lambda: bool(consumer.assignment()) or consumer.poll(0.1) is not None, what="the assignment")
    consumer.commit(offsets=[confluent_kafka.TopicPartition(TOPIC, 0, RECORDS // PARTITIONS)], asynchronous=False)
    wait_until(lambda: process.scrape().get(("kafka_consumergroup_lag", first)) == 0, what="the commit")
    consumer.close()
    wait_until(lambda: process.scrape().get(members) == 0, what="the end of the member")


def test_a_silent_broker_leaves_the_others_series(cluster: RunningCluster, process: Process) -> None:
    view, _, _ = seen_by_admin(cluster.bootstrap)
    leaders = {number: partition.leader for number, partition in view.topics[TOPIC].partitions.items()}
    assert set(leaders.values()) == {0, 1}

    def reported_partitions() -> set[int]:
        found = process.scrape()
        return {
            number
            for number in leaders
            if ("kafka_topic_partition_current_offset", (("partition", str(number)), ("topic", TOPIC))) in found
        }

    cluster.pause(1)
    try:
        wait_until(lambda: process.scrape()["odradek_exporter_failed_brokers", ()] == 1, what="the silence")
        assert reported_partitions() == set(leaders), "values went before they were old"
        mine = {number for number, leader in leaders.items() if leader == 0}
        wait_until(lambda: reported_partitions() == mine, what="the end of old values")
    finally:
        cluster.resume(1)
    wait_until(lambda: reported_partitions() == set(leaders), what="the values after the silence")


def test_without_brokers_it_is_alive_and_not_ready(odradek_cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    cluster = odradek_cluster_factory(brokers=1)
    process = Process(cluster, tmp_path / "log")
    try:
        process.wait_until_ready()
        cluster.kill(0)
        wait_until(lambda: process.status("/readyz") == 503, what="the end of readiness")
        wait_until(lambda: ("kafka_brokers", ()) not in process.scrape(), what="the end of old values")
        assert process.status("/livez") == 200
        assert process.report() == decode(json.dumps({"topics": {}}))
        cluster.start_broker(0)
        wait_until(lambda: process.status("/readyz") == 200, what="readiness after the outage")
    finally:
        assert process.stop() == 0
