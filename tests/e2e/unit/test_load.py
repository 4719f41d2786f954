"""Tests the load with real brokers on this machine: it survives the loss of one, and detects a duplicated record."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer

from odradek.testing.plugin import ClusterFactory
from support import load
from support.load_child import encode

TOPIC = {"partitions": 3, "replicas": 3, "config": {"min.insync.replicas": 2}}


def test_a_load_bears_the_loss_of_a_broker(odradek_cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    cluster = odradek_cluster_factory(topics={"load": TOPIC}, config={"zookeeper.session.timeout.ms": 6000})

    with load.running(cluster.bootstrap, "load", partitions=3, folder=tmp_path) as running:
        running.await_more()
        cluster.kill(1)
        running.await_more(500)
        cluster.start_broker(1)
        running.await_more()
        outcome = running.finish()

    assert outcome.verdict.good, outcome.verdict
    assert outcome.verdict.failed == 0
    assert outcome.verdict.seen == outcome.verdict.acknowledged >= 700


def test_a_load_sees_a_record_that_came_twice(odradek_cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    cluster = odradek_cluster_factory(brokers=1, topics={"load": {"partitions": 1, "replicas": 1}})

    with load.running(cluster.bootstrap, "load", partitions=1, folder=tmp_path, producers=1) as running:
        running.await_more()
        second = Producer({"bootstrap.servers": cluster.bootstrap})
        second.produce("load", encode("producer-0", 7, 50), partition=0)
        assert second.flush(60) == 0
        outcome = running.finish()

    assert outcome.verdict.doubled == ("producer-0/0:7",)
    assert not outcome.verdict.lost and not outcome.verdict.reordered
