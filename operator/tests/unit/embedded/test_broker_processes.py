"""Directories and properties of broker processes, and the report if a broker cannot be started."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.testing.free_ports import free_ports
from odradek_operator.crds import Brokers, Cluster, Listener, Volume
from odradek_operator.embedded.broker_processes import BrokerProcesses
from odradek_operator.embedded.layout import Ports, ServedListeners, Site
from odradek_operator.embedded.progress import Event
from odradek_operator.errors import EmbeddedError
from odradek_operator.topics.zookeeper_state import Snapshot

PLAIN = ServedListeners(first=Listener(name="plain", port=9092))
DEADLINE_SECONDS = 30.0


def with_volumes(*ids: int) -> Cluster:
    volumes = tuple(Volume(id=number, size="1Gi") for number in ids)
    return Cluster(name="demo", brokers=Brokers(replicas=2, volumes=volumes))


class RecordedEvents:
    """Records events and waits for expected ones."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._news = asyncio.Event()

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        self._news.set()

    async def until(self, wanted: Callable[[Event], bool]) -> Event:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not (found := [event for event in self.events if wanted(event)]):
                self._news.clear()
                await self._news.wait()
        return found[0]


@pytest.fixture
def recorded() -> RecordedEvents:
    return RecordedEvents()


@pytest.fixture
def ports() -> Ports:
    zookeeper, first, second, *metrics = free_ports(5)
    return Ports(zookeeper=zookeeper, brokers=(first, second), metrics=tuple(metrics))


@pytest.fixture
def brokers(tmp_path: Path, ports: Ports, recorded: RecordedEvents) -> BrokerProcesses:
    site = Site(data=tmp_path, ports=ports, zookeeper="127.0.0.1:1")
    processes = BrokerProcesses(site, recorded, grace_seconds=1.0)
    processes.follow(with_volumes(0), PLAIN)
    return processes


def replica(data: Path, broker: int, volume: int, name: str = "orders-0") -> None:
    (data / f"broker-{broker}" / f"volume-{volume}" / name).mkdir(parents=True)


def test_brokers_with_volumes_are_found_in_the_data_folder(brokers: BrokerProcesses, tmp_path: Path) -> None:
    assert brokers.stored() == []
    replica(tmp_path, 3, 0)
    (tmp_path / "broker-1" / "volume-2").mkdir(parents=True)
    (tmp_path / "broker-0").mkdir()
    (tmp_path / "broker-x" / "volume-0").mkdir(parents=True)
    assert brokers.stored() == [1, 3]


def test_a_removed_volume_is_kept_while_it_holds_replicas(brokers: BrokerProcesses, tmp_path: Path) -> None:
    replica(tmp_path, 0, 4)
    replica(tmp_path, 1, 4, "orders-0.0123456789abcdef-delete")
    (tmp_path / "broker-0" / "volume-7").mkdir()
    assert brokers.kept_volumes(0) == [4]
    assert brokers.kept_volumes(1) == []
    directories = [str(tmp_path / "broker-0" / f"volume-{volume}") for volume in (0, 4)]
    assert brokers.wanted(0).static["log.dirs"] == ",".join(directories)
    brokers.follow(with_volumes(4), PLAIN)
    assert brokers.kept_volumes(0) == []


async def test_a_broker_that_does_not_run_needs_no_restart(brokers: BrokerProcesses) -> None:
    brokers.add(0)
    (seen,) = await brokers.observe(Snapshot())
    assert (seen.process, seen.ready, seen.changed, seen.listeners) == (None, False, (), None)
    assert brokers.starting == {0}
    assert brokers.ids == [0]
    await brokers.remove(0)
    assert brokers.ids == []


async def test_a_port_in_use_is_reported_once_and_tried_again(
    brokers: BrokerProcesses, ports: Ports, recorded: RecordedEvents
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", ports.broker(0)))
        taken.listen()
        brokers.add(0)
        with pytest.raises(EmbeddedError, match=r"\(for broker 0\) of 127.0.0.1 is in use"):
            brokers.start(0)
        supervising = asyncio.create_task(brokers.supervise())
        reported = await recorded.until(lambda event: not event.good)
        assert reported.message.startswith("cannot be started, and is tried again: Port ")
        (seen,) = await brokers.observe(Snapshot())
        assert seen.trouble.startswith("Port ")
    await recorded.until(lambda event: event.message == "started")
    supervising.cancel()
    await brokers.stop_all(0.0)
    assert len([event for event in recorded.events if event.message == reported.message]) == 1
    assert brokers.pids == {}


async def test_properties_that_changed_since_the_start_are_named(
    brokers: BrokerProcesses, tmp_path: Path, recorded: RecordedEvents
) -> None:
    brokers.add(0)
    brokers.start(0)
    try:
        changed = {"num.partitions": "7", "log.retention.ms": "5"}
        cluster = with_volumes(0, 1)
        brokers.follow(
            dataclasses.replace(cluster, brokers=dataclasses.replace(cluster.brokers, config=changed)), PLAIN
        )
        out = ServedListeners(first=PLAIN.first, further=(Listener(name="out", port=9192),))
        (seen,) = await brokers.observe(Snapshot())
        assert seen.changed == ("log.dirs", "num.partitions")
        assert seen.listeners is not None
        assert seen.listeners.started == seen.listeners.wanted
        brokers.follow(with_volumes(0), out)
        (seen,) = await brokers.observe(Snapshot())
        assert seen.changed == (), "a further listener needs no restart"
        assert seen.listeners is not None
        assert seen.listeners.started != seen.listeners.wanted
    finally:
        await brokers.stop_all(0.0)
    assert [event.message for event in recorded.events] == ["started", "stopped"]
