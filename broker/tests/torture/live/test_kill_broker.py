"""Kills a broker under load that syncs every record; after the restart it has all acknowledged records."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from odradek.base.errors import OdradekError
from odradek.base.types import TopicPartition
from odradek.client.blocking.client import BlockingClient
from odradek.testing.running_cluster import RunningCluster
from odradek.testing.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(1200)]

TOPIC = "killed"
KILLS = 2
RECORDS_BETWEEN = 150


class Writer:
    """Sends numbered records one by one from a thread, and repeats those without an answer, until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._stopped = threading.Event()
        self.acknowledged: dict[int, bytes] = {}
        """Values by the offsets in the responses."""
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        number = 0
        with BlockingClient(self._bootstrap) as client, client.producer() as producer:
            while not self._stopped.is_set():
                value = b"%d" % number
                number += 1
                try:
                    answer = producer.send(TOPIC, value, partition=0).result(240)
                except OdradekError:
                    continue  # not acknowledged: it may be there or not
                self.acknowledged[answer.offset] = value

    def more(self) -> None:
        """Return when some more records are acknowledged."""
        target = len(self.acknowledged) + RECORDS_BETWEEN
        wait_until(lambda: len(self.acknowledged) >= target, what="progress of the producer", seconds=240)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(300)


def test_a_killed_broker_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    cluster = RunningCluster(
        tmp_path,
        brokers=1,
        topics={TOPIC: {"partitions": 1, "replicas": 1, "config": {"segment.bytes": 16384}}},
        config={"log.flush.interval.messages": 1},
    )
    cluster.start()
    try:
        with Writer(cluster.bootstrap) as writer:
            for _ in range(KILLS):
                writer.more()
                cluster.kill(0)
                cluster.start_broker(0)
            writer.more()
        with BlockingClient(cluster.bootstrap) as client, client.consumer() as consumer:
            partition = TopicPartition(TOPIC, 0)
            consumer.assign([partition])
            consumer.seek_to_beginning(partition)
            end = client.latest_offsets([partition])[partition]
            found: dict[int, bytes | None] = {}
            while len(found) < end:
                found.update(
                    (record.offset, record.value)
                    for batch in consumer.getmany(timeout_ms=5000).values()
                    for record in batch
                )
        assert sorted(found) == list(range(end))
        assert {offset: found.get(offset) for offset in writer.acknowledged} == writer.acknowledged
    finally:
        cluster.close()
