"""Groups of several brokers in a running embedded cluster: sizes, rolls, and the loss of a group, under load."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from odradek.testing.plugin import ClusterFactory
from odradek.testing.running_cluster import RunningCluster
from odradek_operator.topics.zookeeper_state import Snapshot

from .following import PARTITIONS, Followed, is_action, under_load

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(600)]


async def started(factory: ClusterFactory, *, groups: int, per_pod: int) -> Followed:
    topic = {"partitions": PARTITIONS, "replicas": groups, "deletion": "Delete"}

    def start() -> RunningCluster:
        return factory(brokers=groups, per_pod=per_pod, slots=2, topics={"load": topic})

    return Followed(await asyncio.to_thread(start), replicas=groups, topic=topic)


def replicas(snapshot: Snapshot, topic: str = "load") -> Mapping[int, tuple[int, ...]]:
    return {number: assignment.replicas for number, assignment in snapshot.topics[topic].assignment.partitions.items()}


def events(followed: Followed, action: str) -> list[Any]:
    return [broker for name, broker in followed.actions() if name == action]


@pytest.mark.parametrize("groups", [1, 2])
async def test_brokers_are_added_to_each_group_and_drained_again(
    odradek_cluster_factory: ClusterFactory, groups: int
) -> None:
    followed = await started(odradek_cluster_factory, groups=groups, per_pod=1)
    first, second = list(range(groups)), [1000 + number for number in range(groups)]
    async with under_load(followed.cluster.bootstrap) as load:
        followed.change(brokers={"perPod": 2})
        await followed.until(is_action("LiftThrottle"), "the end of the rebalancing")
        assert events(followed, "AddBroker") == second
        assert sorted(followed.cluster.pids) == [*first, *second]
        grown = await followed.snapshot()
        assert grown.machines() == {broker: f"machine-{broker % 1000}" for broker in [*first, *second]}
        held = replicas(grown).values()
        assert sum(broker in one for one in held for broker in second) >= PARTITIONS * groups // 2 - groups
        assert all(len({broker % 1000 for broker in one}) == groups for one in held)
        await load.goes_on()

        followed.change()
        await followed.until(lambda event: event.details.get("reason") == "BrokersChanged", "the former size")
        shrunk = await followed.snapshot()
    assert sorted(events(followed, "RemoveBroker")) == second
    assert all(broker < 1000 for one in replicas(shrunk).values() for broker in one)
    # No broker that stays was restarted.
    assert followed.cluster.pids == followed.first_pids


async def test_a_group_restarts_at_once_and_its_loss_costs_no_record(odradek_cluster_factory: ClusterFactory) -> None:
    followed = await started(odradek_cluster_factory, groups=2, per_pod=2)
    cluster = followed.cluster
    assert cluster.broker_ids == [0, 1, 1000, 1001]
    assert all(len({broker % 1000 for broker in one}) == 2 for one in replicas(await followed.snapshot()).values())
    async with under_load(cluster.bootstrap) as load:
        controller = (await followed.snapshot()).controller_id
        assert controller is not None
        followed.change(brokers={"perPod": 2, "config": {"num.partitions": 3}})
        await followed.until_rolled()
        order = [int(broker) % 1000 for broker in events(followed, "RestartBroker")]
        assert order in ([0, 0, 1, 1], [1, 1, 0, 0])
        assert order[-1] == controller % 1000
        assert [event.message for event in followed.events if not event.good] == []
        await load.goes_on()

        for broker in (0, 1000):
            await asyncio.to_thread(cluster.kill, broker)
        await load.goes_on()
        for broker in (0, 1000):
            await asyncio.to_thread(cluster.start_broker, broker)
        await load.goes_on()
