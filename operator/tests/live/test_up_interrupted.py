"""`odradek up` is stopped in the middle of a change and continues the change at the next start."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from odradek.testing.waiting import wait_until

from .up_process import Up, is_ready, lives

pytestmark = [pytest.mark.java, pytest.mark.slow]


def write(folder: Path, *, brokers: int, partitions: int = 2, replicas: int = 1, **spec: Any) -> None:
    """Write a Cluster and a topic. At most one partition moves at a time."""
    of_brokers = {"replicas": brokers, "rebalance": {"partitions": 1}, "config": spec}
    resources = [
        ("Cluster", "demo", {"brokers": of_brokers}),
        ("Topic", "orders", {"cluster": "demo", "partitions": partitions, "replicas": replicas}),
    ]
    documents = [
        {"apiVersion": "odradek.dev/v1", "kind": kind, "metadata": {"name": name}, "spec": fields}
        for kind, name, fields in resources
    ]
    (folder / "manifests" / "cluster.yaml").write_text(yaml.safe_dump_all(documents))


def is_action(name: str) -> Callable[[dict[str, Any]], bool]:
    return lambda event: bool(event.get("action") == name)


def test_ctrl_c_in_the_middle_of_a_roll_stops_everything_in_order(up: Callable[..., Up], folder: Path) -> None:
    write(folder, brokers=2, replicas=2)
    one = up()
    ready = one.until(is_ready)
    write(folder, brokers=2, replicas=2, **{"num.partitions": 3})
    restarted = one.until(is_action("RestartBroker"))
    assert restarted["properties"] == ["num.partitions"]
    one.process.send_signal(signal.SIGINT)
    one.until(lambda event: event["event"] == "stopped")
    assert one.end() == (0, "")
    pids = [*ready["brokers"].values(), *(event["pid"] for event in one.events if "pid" in event)]
    assert not any(map(lives, pids))
    stopped = [event["subject"] for event in one.events if event["message"] == "stopped"]
    assert stopped[-1] == "zookeeper"

    # Every broker starts with the new properties, so no restart is left to do.
    two = up("--no-console")
    assert "console" in ready and "console" not in two.until(is_ready)
    for broker in range(2):
        properties = (folder / "data" / f"broker-{broker}" / "server.properties").read_text()
        assert "num.partitions=3" in properties
    assert not any(map(is_action("RestartBroker"), two.events))


def test_a_drain_continues_at_the_next_start(up: Callable[..., Up], folder: Path) -> None:
    write(folder, brokers=2, partitions=8)
    one = up()
    one.until(is_ready)
    write(folder, brokers=1, partitions=8)
    moved = one.until(is_action("MoveReplicas"))
    assert moved["message"].startswith("replicas: broker 1 is drained: 1 partition moves")
    assert (moved["partitions"], moved["total"]) == (1, 8)
    one.process.send_signal(signal.SIGINT)
    assert one.end() == (0, "")
    assert json.loads((folder / "data" / "members.json").read_text())["brokers"] == "2"

    two = up()
    ready = two.until(is_ready)
    assert sorted(ready["brokers"]) == ["0", "1"]
    two.until(is_action("RemoveBroker"))
    changed = two.until(lambda event: event.get("reason") == "BrokersChanged")
    assert changed["count"] == 1
    assert not lives(ready["brokers"]["1"])
    assert json.loads((folder / "data" / "members.json").read_text())["brokers"] == "1"


def test_a_new_broker_waits_for_its_port(up: Callable[..., Up], folder: Path) -> None:
    write(folder, brokers=1)
    one = up()
    one.until(is_ready)
    port = one.ports[1] + 1
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        write(folder, brokers=2)
        reported = one.until(lambda event: event["subject"] == "broker 1" and not event["good"])
        assert reported["message"] == (
            f"cannot be started, and is tried again: Port {port} (for broker 1) of 127.0.0.1 is in use: stop what "
            "listens there, or change --base-port."
        )
    one.until(lambda event: event["subject"] == "broker 1" and event["message"] == "ready")
    reports = [event for event in one.events if event["message"] == reported["message"]]
    assert len(reports) == 1


def test_a_volume_with_replicas_stays_until_it_is_empty(up: Callable[..., Up], folder: Path) -> None:
    write(folder, brokers=1, partitions=4)
    manifest = folder / "manifests" / "cluster.yaml"
    first = manifest.read_text()
    one = up()
    one.until(is_ready)
    manifest.write_text(first.replace("brokers:\n", "brokers:\n    storage: {volumes: [{id: 1, size: 1Gi}]}\n", 1))
    kept = one.until(lambda event: event["event"] == "notice")
    assert kept["message"].startswith("Volume 0 is not in spec.brokers.storage any more, but broker 0 keeps using it")
    one.until(lambda event: event.get("reason") == "RolledOut")
    properties = (folder / "data" / "broker-0" / "server.properties").read_text()
    (directories,) = [line for line in properties.splitlines() if line.startswith("log.dirs=")]
    assert [Path(path).name for path in directories.removeprefix("log.dirs=").split(",")] == ["volume-1", "volume-0"]
    wait_until(lambda: (folder / "data" / "broker-0" / "volume-0" / "orders-0").is_dir(), what="the replica")
