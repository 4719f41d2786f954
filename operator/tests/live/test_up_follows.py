"""A running embedded cluster follows changes of its Cluster resource, under a small load that must lose no records."""

from __future__ import annotations

import asyncio
import socket

import pytest

from odradek.client.admin import Admin
from odradek.client.models import ConfigResource
from odradek.testing.free_ports import free_ports
from odradek.testing.plugin import ClusterFactory
from odradek.testing.running_cluster import RunningCluster
from odradek.testing.waiting import wait_until
from odradek_operator.embedded.ports import is_free
from odradek_operator.embedded.progress import ProgressKind

from .following import TOPIC, Followed, is_action, under_load

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(600)]

PLAIN = {"name": "plain", "port": 9092}


@pytest.fixture
async def followed(odradek_cluster_factory: ClusterFactory) -> Followed:
    def start() -> RunningCluster:
        return odradek_cluster_factory(brokers=3, topics={"load": TOPIC}, monitoring=True)

    return Followed(await asyncio.to_thread(start))


async def test_a_property_that_needs_a_restart_restarts_each_broker_once(followed: Followed) -> None:
    async with under_load(followed.cluster.bootstrap), Admin(followed.cluster.bootstrap) as admin:
        controller = (await followed.snapshot()).controller_id
        followed.change(brokers={"config": {"num.partitions": 3}})
        await followed.until_rolled()
        order = followed.restarted()
        assert sorted(order) == [0, 1, 2]
        assert order[-1] == controller
        values = await values_of(admin, "num.partitions")
    assert values == ["3", "3", "3"]
    assert not set(followed.cluster.pids.values()) & set(followed.first_pids.values())
    assert {action for action, _ in followed.actions()} == {"RestartBroker"}
    # A planned restart is not reported as a failure.
    assert [event.message for event in followed.events if not event.good] == []


async def values_of(admin: Admin, key: str) -> list[str | None]:
    """Return the value that each broker reports."""
    brokers = [ConfigResource.broker(number) for number in range(3)]
    described = await admin.describe_configs(brokers, keys=[key])
    return [described[one][key].value for one in brokers]


async def test_a_dynamic_property_changes_without_a_restart(followed: Followed) -> None:
    async with under_load(followed.cluster.bootstrap) as load, Admin(followed.cluster.bootstrap) as admin:
        followed.change(brokers={"config": {"log.retention.ms": 77_000_000}})
        reported = await followed.until(lambda event: "action" in event.details, "the change")
        assert reported.message == "log.retention.ms is set to 77000000"
        while await values_of(admin, "log.retention.ms") != ["77000000"] * 3:
            await load.goes_on()
        followed.change()
        reported = await followed.until(lambda event: "action" in event.details, "its removal")
        assert reported.message == "log.retention.ms is removed (was 77000000)"
        await load.goes_on()
    assert followed.cluster.pids == followed.first_pids
    assert followed.actions() == [("SetBrokerDefaults", None)]


async def test_a_broker_is_added_and_drained_again(followed: Followed) -> None:
    targets = followed.cluster.directory / "data" / "prometheus-targets.json"
    async with under_load(followed.cluster.bootstrap) as load:
        followed.change(brokers={"replicas": 4})
        await followed.until(is_action("LiftThrottle"), "the end of the rebalancing")
        assert followed.actions()[0] == ("AddBroker", 3)
        assert sorted(followed.cluster.pids) == [0, 1, 2, 3]
        grown = await followed.snapshot()
        held = [part.replicas for topic in grown.topics.values() for part in topic.assignment.partitions.values()]
        assert sum(3 in replicas for replicas in held) >= len(held) // 2
        assert "test-kafka-3" in targets.read_text()
        assert len(followed.cluster.metrics_urls) == 4
        process = followed.cluster.pids[3]
        await load.goes_on()

        followed.change()
        changed = await followed.until(lambda event: event.details.get("reason") == "BrokersChanged", "3 brokers")
        assert (changed.details["count"], changed.details["bootstrap"]) == (3, followed.cluster.bootstrap)
        shrunk = await followed.snapshot()
    assert followed.actions()[0][0] == "MoveReplicas"
    assert followed.actions()[-1] == ("RemoveBroker", 3) or followed.actions()[-1][0] == "LiftThrottle"
    assert not any(
        3 in part.replicas for topic in shrunk.topics.values() for part in topic.assignment.partitions.values()
    )
    assert followed.cluster.pids == followed.first_pids
    assert process not in followed.cluster.pids.values()
    assert "test-kafka-3" not in targets.read_text()


def free_row(count: int) -> int:
    """Return the first of `count` consecutive free ports."""
    while True:
        (port,) = free_ports(1)
        if all(is_free(port + number) for number in range(count)):
            return port


def serves(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_a_listener_is_added_moved_and_removed(followed: Followed) -> None:
    first, second = free_row(3), free_row(3)
    async with under_load(followed.cluster.bootstrap):
        followed.change(listeners=[PLAIN, {"name": "out", "port": first}])
        await listens(followed, first, True)
        await advertises(first, [first, first + 1, first + 2])
        assert followed.cluster.pids == followed.first_pids
        assert sorted(followed.actions(), key=str) == [("SetBrokerListeners", broker) for broker in range(3)]

        # A change of a listener's port needs a restart.
        followed.change(listeners=[PLAIN, {"name": "out", "port": second}])
        await followed.until_rolled()
        assert sorted(followed.restarted()) == [0, 1, 2]
        await listens(followed, second, True)
        await listens(followed, first, False)
        pids = followed.cluster.pids

        followed.change(listeners=[PLAIN])
        await listens(followed, second, False)
        assert followed.cluster.pids == pids


async def advertises(port: int, expected: list[int]) -> None:
    """Return when the metadata on a listener has these ports: it follows a moment after the listeners are open."""
    async with Admin(f"127.0.0.1:{port}") as admin, asyncio.timeout(60):
        while sorted(node.port for node in (await admin.describe_cluster()).brokers) != expected:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)


async def listens(followed: Followed, port: int, expected: bool) -> None:
    """Return when all brokers have opened, or closed, a listener."""
    await asyncio.to_thread(
        wait_until,
        lambda: all(serves(port + broker) is expected for broker in followed.cluster.pids),
        what=f"listener on {port}: {expected}",
    )


async def test_a_port_in_use_is_reported_and_tried_again(followed: Followed) -> None:
    port = free_row(3)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        followed.change(listeners=[PLAIN, {"name": "out", "port": port}])
        reported = await followed.until(lambda event: event.details.get("reason") == "PortInUse", "the report")
        assert f"Broker 0 cannot open listener OUT: port {port} of 127.0.0.1 is in use." in reported.message
    await listens(followed, port, True)


async def test_an_invalid_edit_changes_nothing_until_it_is_repaired(followed: Followed) -> None:
    async with under_load(followed.cluster.bootstrap) as load:
        followed.change(brokers={"replicas": 0, "config": {"log.retention.ms": 5}})
        reported = await followed.until(lambda event: event.kind is ProgressKind.NOTICE, "the report")
        assert reported.message.startswith("not applied; the last valid ones stay in force:\n")
        assert "spec.brokers.replicas: must be a whole number" in reported.message
        await load.goes_on()
        followed_events = list(followed.events)
        followed.change(brokers={"config": {"log.retention.ms": 77_000_000}})
        await followed.until(is_action("SetBrokerDefaults"), "the change")
    assert [event.message for event in followed_events] == [reported.message]
    assert [event.message for event in followed.events if event.kind is ProgressKind.NOTICE] == [
        "valid again, and in force"
    ]
    assert followed.cluster.pids == followed.first_pids
