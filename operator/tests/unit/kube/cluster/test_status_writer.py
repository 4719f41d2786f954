"""A status is written when it changes. Limits of the writes make thousands of topics possible."""

from __future__ import annotations

import asyncio
from uuid import UUID

from odradek.base.types import Endpoint
from odradek.zk.layout import BrokerRegistration, PartitionState, ReplicaAssignment, TopicAssignment
from odradek.zk.ownership import ManagedTopic
from odradek_operator.crds import Cluster, Listener, ListenerType, Topic
from odradek_operator.crds.types import Brokers
from odradek_operator.exporter.report import Report, TopicReport
from odradek_operator.kube.api.object_kinds import Object
from odradek_operator.kube.cluster.cluster_view import View
from odradek_operator.kube.cluster.status_writer import (
    FIGURES_SECONDS,
    SETTLE_SECONDS,
    TOPICS_A_ROUND,
    Findings,
    Statuses,
    bootstrap,
)
from odradek_operator.lifecycle.steps import ClusterDecision
from odradek_operator.topics.reconcile import Outcome
from odradek_operator.topics.topic_plan import Wanted, make_plan
from odradek_operator.topics.zookeeper_state import ObservedConfig, ObservedOwnership, ObservedTopic, Snapshot
from odradek_operator_testkit.api import KubernetesApi
from odradek_operator_testkit.client import MemoryClient
from odradek_operator_testkit.surroundings import cluster_body, condition, topic_body
from odradek_testkit.loop import run_virtual

CLUSTER = Cluster(name="demo", namespace="shop", uid="1", brokers=Brokers(replicas=1))


def _owned(name: str) -> ObservedOwnership:
    managed = ManagedTopic(
        topic=name, topic_id=_observed(name).assignment.topic_id, resource="", owned=frozenset(), preserved=frozenset()
    )
    return ObservedOwnership(record=managed, version=0)


class Round:
    """The input of rounds, and the statuses that they write."""

    def __init__(self, *topics: str) -> None:
        self.api = KubernetesApi()
        self.statuses = Statuses(MemoryClient(self.api, writes_per_second=100_000))
        self.there: set[str] = set()
        """Topics in ZooKeeper."""
        self.report: Report | None = None
        self.trouble = ""
        self.invalid: dict[str, str] = {}
        self.api.put(cluster_body())
        for name in topics:
            self.api.put(topic_body(name))

    def bodies(self) -> dict[str, Object]:
        resource = self.api.place("/apis/odradek.dev/v1/topics").resource
        return {body["metadata"]["name"]: body for body in self.api.store.all(resource, None)}

    async def write(self) -> list[str]:
        """Run a round and return the names of the resources whose status was written."""
        topics = {
            name: Topic(name=name, cluster="demo", replicas=1) for name in self.bodies() if name not in self.invalid
        }
        snapshot = Snapshot(
            cluster_id="the-id",
            controller_id=0,
            controller_epoch_version=1,
            brokers={0: BrokerRegistration(broker_id=0, endpoints=(Endpoint("OUTSIDE", "host", 9094),))},
            topics={name: _observed(name) for name in self.there},
            configs={name: ObservedConfig(values={}, version=0) for name in self.there},
            ownership={name: _owned(name) for name in self.there},
        )
        resource = self.api.place("/apis/odradek.dev/v1/clusters").resource
        (cluster,) = self.api.store.all(resource, None)
        plan = make_plan(Wanted(cluster=CLUSTER, topics=topics), snapshot)
        before = len(self.api.writes)
        await self.statuses.write(
            Findings(
                cluster=CLUSTER,
                view=View(cluster=cluster, topics=self.bodies()),
                topics=topics,
                invalid=self.invalid,
                outcome=None if self.trouble else Outcome(snapshot=snapshot, plan=plan),
                trouble=self.trouble,
                decision=ClusterDecision(broker_count=1),
                report=self.report,
                notices=(),
            )
        )
        assert all(asked.path.endswith("/status") for asked in self.api.writes[before:])
        return [asked.path.split("/")[-2] for asked in self.api.writes[before:]]


def _observed(name: str) -> ObservedTopic:
    return ObservedTopic(
        assignment=TopicAssignment(topic=name, topic_id=UUID(int=1), partitions={0: ReplicaAssignment(replicas=(0,))}),
        version=0,
        states={0: PartitionState(leader=0, leader_epoch=0, isr=(0,), controller_epoch=1)},
    )


def test_an_unchanged_status_is_not_written() -> None:
    async def run() -> None:
        found = Round("orders")
        found.there = {"orders"}
        assert await found.write() == ["demo", "orders"]
        assert condition(found.bodies()["orders"]) == ("True", "Reconciled")
        await asyncio.sleep(1_000)
        assert await found.write() == []

    run_virtual(run())


def test_the_status_of_a_new_topic_is_written_when_it_is_ready_or_after_a_delay() -> None:
    async def run() -> None:
        found = Round("orders", "slow")
        assert await found.write() == ["demo"]
        assert found.statuses.unsettled
        found.there = {"orders"}
        assert await found.write() == ["orders"]
        assert "status" not in found.bodies()["slow"]
        await asyncio.sleep(SETTLE_SECONDS)
        assert await found.write() == ["slow"]
        assert condition(found.bodies()["slow"])[0] == "False"

    run_virtual(run())


def test_a_topic_that_is_no_longer_ready_is_written_at_once() -> None:
    async def run() -> None:
        found = Round("orders")
        found.there = {"orders"}
        await found.write()
        found.there = set()
        assert await found.write() == ["orders"]
        assert condition(found.bodies()["orders"])[0] == "False"

    run_virtual(run())


def test_changes_of_figures_alone_are_written_periodically() -> None:
    async def run() -> None:
        found = Round("orders")
        found.there = {"orders"}
        await found.write()
        results = []
        for size in range(1, 61):
            found.report = Report(topics={"orders": TopicReport(partitions=1, size_bytes=size)})
            results.append(await found.write() == ["orders"])
            await asyncio.sleep(FIGURES_SECONDS / 10)
        assert results[0], "figures that the status does not have are written at once"
        assert 5 <= sum(results) <= 7
        found.there = set()
        found.report = Report(topics={"orders": TopicReport(partitions=1, size_bytes=99)})
        assert await found.write() == ["orders"], "figures are written at once together with another change"

    run_virtual(run())


def test_a_round_writes_a_limited_number_and_the_next_rounds_the_rest() -> None:
    async def run() -> None:
        names = [f"topic-{number:03}" for number in range(2 * TOPICS_A_ROUND + 3)]
        found = Round(*names)
        found.there = set(names)
        written = await found.write()
        assert len(written) == TOPICS_A_ROUND + 1
        assert found.statuses.unsettled
        for _ in range(2):
            written += await found.write()
        assert sorted(written) == sorted(["demo", *names])
        assert await found.write() == []

    run_virtual(run())


def test_invalid_topics_and_an_unreachable_zookeeper_are_reported() -> None:
    async def run() -> None:
        found = Round("orders", "wrong")
        found.there = {"orders"}
        found.invalid = {"wrong": "spec.partitions must be at least 1."}
        await found.write()
        await asyncio.sleep(SETTLE_SECONDS)
        await found.write()
        assert condition(found.bodies()["wrong"]) == ("False", "InvalidSpec")
        found.trouble = "Nobody answers."
        await found.write()
        orders = found.bodies()["orders"]
        assert condition(orders) == ("Unknown", "ZooKeeperUnreachable")
        assert orders["status"]["partitions"] == 1, "known figures are kept"

    run_virtual(run())


def test_a_topic_that_is_created_again_counts_as_new() -> None:
    async def run() -> None:
        found = Round("orders")
        await found.write()
        await asyncio.sleep(SETTLE_SECONDS)
        key = found.api.place("/apis/odradek.dev/v1/namespaces/shop/topics/orders").key("orders")
        found.api.store.delete(key, {})
        await found.write()
        found.api.put(topic_body("orders"))
        assert "orders" not in await found.write()

    run_virtual(run())


def test_bootstrap_addresses() -> None:
    listeners = (
        Listener(name="plain", port=9092),
        Listener(name="outside", port=9094, type=ListenerType.NODE_PORT),
        Listener(name="unknown", port=9095, type=ListenerType.LOAD_BALANCER),
    )
    cluster = Cluster(name="demo", namespace="shop", uid="1", listeners=listeners)
    snapshot = Snapshot(
        brokers={
            number: BrokerRegistration(broker_id=number, endpoints=(Endpoint("OUTSIDE", f"host-{number}", 30_094),))
            for number in (1, 0)
        }
    )
    assert bootstrap(cluster, snapshot) == {
        "plain": "demo-kafka-bootstrap.shop.svc:9092",
        "outside": "host-0:30094,host-1:30094",
    }
    assert bootstrap(cluster, None) == {"plain": "demo-kafka-bootstrap.shop.svc:9092"}
