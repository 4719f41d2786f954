"""`odradek up` and the test kit's cluster, tested from the outside with real processes and manifests."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from odradek.testing.plugin import ClusterFactory
from odradek.testing.running_cluster import RunningCluster
from odradek.testing.waiting import wait_until
from odradek.zk.kazoo_client import KazooZkClient
from odradek.zk.port import ZkSettings
from odradek_operator.embedded.progress import ProgressKind
from odradek_operator.topics.zookeeper_reader import read_snapshot
from odradek_operator.topics.zookeeper_state import Snapshot

from .up_process import CLUSTER, Up, is_ready, lives, rows, topic

pytestmark = [pytest.mark.java, pytest.mark.slow]


def scraped(prometheus: Path) -> list[str]:
    """Return the targets that Prometheus scrapes with this configuration."""
    (job,) = yaml.safe_load(prometheus.read_text())["scrape_configs"]
    files = [Path(file) for config in job["file_sd_configs"] for file in config["files"]]
    groups = [group for file in files for group in json.loads(file.read_text())]
    return sorted(target for group in groups for target in group["targets"])


def test_manifests_are_followed_and_everything_stops_in_order(up: Callable[..., Up], folder: Path) -> None:
    one = up()
    ready = one.until(is_ready)
    zookeeper, base, metrics, monitoring = one.ports
    assert ready["bootstrap"] == f"127.0.0.1:{base},127.0.0.1:{base + 1}"
    assert ready["message"] == f"bootstrap {ready['bootstrap']} zookeeper 127.0.0.1:{zookeeper}"
    assert ready["metrics"][0] == f"http://127.0.0.1:{metrics}/metrics"
    assert ready["monitoring"]["operator"] == f"http://127.0.0.1:{monitoring}/metrics"
    ports = [metrics, metrics + 1, *range(monitoring, monitoring + 3)]
    assert scraped(Path(ready["prometheus"])) == sorted(f"127.0.0.1:{port}" for port in ports)
    manifest = folder / "manifests" / "cluster.yaml"

    manifest.write_text(CLUSTER + topic(3))
    grown = one.until(lambda event: event["event"] == "action")
    assert (grown["subject"], grown["action"]) == ("topic orders", "AddPartitions")

    manifest.write_text(CLUSTER + topic(0))
    refused = one.until(lambda event: event["event"] == "notice")
    assert "spec.partitions: must be a whole number from 1" in refused["message"]

    manifest.write_text(CLUSTER)
    deleted = one.until(lambda event: event["event"] == "action")
    assert (deleted["subject"], deleted["action"]) == ("topic orders", "DeleteTopic")

    one.process.send_signal(signal.SIGINT)
    one.until(lambda event: event["event"] == "stopped")
    assert one.end() == (0, "")
    ended = [event["subject"] for event in one.events if event["message"] == "stopped"]
    assert ended == ["broker 1", "broker 0", "zookeeper"]
    assert not any(map(lives, ready["brokers"].values()))


def test_a_topic_that_is_removed_while_nothing_runs_goes_at_the_next_start(up: Callable[..., Up], folder: Path) -> None:
    one = up()
    one.until(is_ready)
    one.process.send_signal(signal.SIGTERM)
    assert one.end()[0] == 0
    (folder / "manifests" / "cluster.yaml").write_text(CLUSTER)
    two = up()
    deleted = two.until(lambda event: event["event"] == "action")
    assert (deleted["subject"], deleted["action"]) == ("topic orders", "DeleteTopic")
    two.until(is_ready)


def test_a_broker_that_dies_comes_back_and_nothing_outlives_a_killed_parent(up: Callable[..., Up]) -> None:
    one = up()
    ready = one.until(is_ready)
    pid = ready["brokers"]["0"]
    subprocess.run(["kill", "-KILL", str(pid)], check=True)
    died = one.until(lambda event: event.get("exit_code") == -9)
    assert died["subject"] == "broker 0"
    again = one.until(lambda event: event["subject"] == "broker 0" and event["message"] == "started")
    pids = [again["pid"], ready["brokers"]["1"]]
    assert again["pid"] != pid
    one.until(lambda event: event["subject"] == "broker 0" and event["message"] == "ready")
    one.process.kill()
    wait_until(lambda: not any(map(lives, pids)), what="the end of the brokers")


def test_two_cannot_share_a_data_folder(up: Callable[..., Up]) -> None:
    one = up()
    one.until(lambda event: event["subject"] == "zookeeper")
    code, errors = up().end()
    assert code == 1
    assert f"is in use by process {one.process.pid}" in errors
    assert "Traceback" not in errors


def test_a_port_in_use_is_told_before_anything_starts(up: Callable[..., Up]) -> None:
    with socket.socket() as taken:
        # The port must be outside of the range of outgoing connections, one of which could use the next port, that of
        # broker 1.
        port = rows()[1]
        taken.bind(("127.0.0.1", port))
        taken.listen()
        one = up("--base-port", str(port))
        code, errors = one.end()
    assert code == 1
    assert errors == (
        f"Error: Port {port} (for broker 0) of 127.0.0.1 is in use: stop what listens there, or change --base-port.\n"
    )


@pytest.fixture
def pair(odradek_cluster_factory: ClusterFactory) -> RunningCluster:
    return odradek_cluster_factory(brokers=2, topics={"orders": {"partitions": 2, "replicas": 2}})


def condition(cluster: RunningCluster, subject: str) -> object:
    """Return the reason of the last reported condition of a resource."""
    statuses = [event for event in cluster.events if event.kind is ProgressKind.STATUS and event.subject == subject]
    return statuses[-1].details["reason"] if statuses else None


async def seen(cluster: RunningCluster) -> Snapshot:
    """Return a snapshot of all the data in the cluster's ZooKeeper."""
    zk = KazooZkClient(ZkSettings(connect=cluster.zookeeper))
    await zk.start()
    try:
        return await read_snapshot(zk, None)
    finally:
        await zk.close()


def actions(cluster: RunningCluster) -> list[object]:
    return [
        event.details["action"]
        for event in cluster.events
        if event.subject == "cluster test" and event.details.get("action")
    ]


@pytest.mark.parametrize(("first", "then"), [(1, 2), (2, 1)])
def test_replicas_move_in_portions_to_another_factor(
    odradek_cluster_factory: ClusterFactory, first: int, then: int
) -> None:
    """Of the twelve partitions, at most ten move at once. At the end the throttle is removed."""
    cluster = odradek_cluster_factory(brokers=2, topics={"orders": {"partitions": 12, "replicas": first}})
    cluster.write_topics({"orders": {"partitions": 12, "replicas": then}})
    wait_until(lambda: "LiftThrottle" in actions(cluster), what="the end of all moves")
    assert actions(cluster) == ["MoveReplicas", "MoveReplicas", "LiftThrottle"]
    wait_until(lambda: condition(cluster, "topic orders") == "Reconciled", what="replicas in sync")
    now = asyncio.run(seen(cluster))
    replicas = [part.replicas for part in now.topics["orders"].assignment.partitions.values()]
    assert {len(of_one) for of_one in replicas} == {then}
    assert sorted(of_one[0] for of_one in replicas) == [0] * 6 + [1] * 6
    assert now.configs["orders"].values == {}
    assert now.broker_configs["<default>"].values == {}
    assert not now.reassignment_requested


def test_the_test_kits_cluster_can_be_hurt(pair: RunningCluster) -> None:
    first = pair.pids
    assert sorted(first) == [0, 1]
    pair.kill(0)
    assert sorted(pair.pids) == [1]
    wait_until(lambda: condition(pair, "cluster test") == "BrokersMissing", what="missing broker")
    pair.start_broker(0)
    assert pair.pids[0] != first[0]
    wait_until(lambda: condition(pair, "cluster test") == "Running", what="broker is back")
    wait_until(lambda: condition(pair, "topic orders") == "Reconciled", what="replicas in sync")
    pair.stop_broker(1)
    assert sorted(pair.pids) == [0]
    pair.start_broker(1)
    pair.write_topics({"orders": {"partitions": 3, "replicas": 2}, "more": {"replicas": 1}})
    wait_until(lambda: condition(pair, "topic more") == "Reconciled", what="new topic")
    assert "broker 0" in pair.logs([0])
    pair.close()
    assert pair.pids == {}
    assert not any(map(lives, first.values()))
