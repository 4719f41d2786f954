"""Requests to brokers at the beginning of a reign and after a restart of a broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast
from uuid import UUID

import pytest

from odradek.base.config import BrokerConfig
from odradek.base.types import Endpoint, TopicPartition
from odradek.controller import controller_election as election
from odradek.controller.active import ActiveController
from odradek.controller.broker_requests.request_batch import BrokerRequest
from odradek.controller.broker_requests.request_sender import RequestSender
from odradek.controller.context import LiveBroker
from odradek.controller.reign import Environment
from odradek.protocol.apis import ApiKey
from odradek.testing.memory_zk import MemoryTree, MemoryZk
from odradek.zk import layout
from odradek.zk.layout import BrokerRegistration, PartitionState, ReplicaAssignment, TopicAssignment
from odradek.zk.registration import prepare
from odradek_testkit.loop import VirtualClock, run_virtual

ROLES, METADATA, STOP = ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA, ApiKey.STOP_REPLICA
T0 = TopicPartition("t", 0)


class SentRequests:
    """Replaces the dispatcher and records the requests to each broker epoch."""

    def __init__(self) -> None:
        self.lives: dict[int, int] = {}
        self.requests: list[BrokerRequest] = []

    def put_broker(self, broker: LiveBroker) -> None:
        self.lives[broker.registration.broker_id] = broker.epoch

    def remove_broker(self, broker_id: int) -> None:
        del self.lives[broker_id]

    def send(self, requests: Iterable[BrokerRequest]) -> None:
        self.requests += [one for one in requests if self.lives.get(one.broker) == one.broker_epoch]

    def take(self, api_key: ApiKey) -> dict[int, list[Mapping[str, Any]]]:
        """Return the partition states in the requests of an API by broker."""
        found: dict[int, list[Mapping[str, Any]]] = {}
        for request in self.requests:
            if request.api_key is api_key:
                topics = cast("list[Mapping[str, Any]]", request.message["topic_states"])
                found.setdefault(request.broker, []).extend(s for topic in topics for s in topic["partition_states"])
        return found


class Cluster:
    """ZooKeeper with brokers and one topic, and a broker that is the controller."""

    def __init__(self, protocol: str = "3.9") -> None:
        self.tree = MemoryTree()
        self.zk = MemoryZk(self.tree)
        self.sender = SentRequests()
        self.config = BrokerConfig.parse(
            {
                "broker.id": "1",
                "log.dirs": "nowhere",
                "zookeeper.connect": "localhost",
                "listeners": "PLAINTEXT://localhost:9092",
                "inter.broker.protocol.version": protocol,
            }
        )[0]
        self.sessions: dict[int, MemoryZk] = {}

    async def start(self, *brokers: int, replicas: tuple[int, ...] = (1, 2)) -> None:
        await prepare(self.zk)
        for broker in brokers:
            await self.up(broker)
        topic = TopicAssignment(topic="t", partitions={0: ReplicaAssignment(replicas=replicas)})
        await self.zk.create(topic.path, topic.encode())
        state = PartitionState(leader=replicas[0], leader_epoch=3, isr=replicas, controller_epoch=0)
        await self.zk.create(layout.partition_state_path(T0), state.encode(), make_parents=True)

    async def up(self, broker: int) -> None:
        zk = self.sessions[broker] = MemoryZk(self.tree)
        registration = BrokerRegistration(
            broker_id=broker, endpoints=(Endpoint("PLAINTEXT", "localhost", 9000 + broker),)
        )
        await zk.create(registration.path, registration.encode(), ephemeral=True)

    async def reign(self) -> ActiveController:
        clock = VirtualClock()
        election_result = await election.become_controller(self.zk, clock, 1)
        assert election_result is not None
        environment = Environment(
            zk=self.zk, clock=clock, config=self.config, broker_id=1, dispatcher=cast("RequestSender", self.sender)
        )
        active = ActiveController(environment, election_result, lambda event: None)
        await active.start()
        return active


def test_a_topic_in_deletion_gets_no_roles() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        await cluster.start(1, replicas=(1, 2))  # broker 2 is dead, so the deletion waits
        await cluster.zk.create(layout.delete_topic_path("t"))
        active = await cluster.reign()
        assert cluster.sender.take(ROLES) == {}
        assert {state["leader"] for state in cluster.sender.take(METADATA)[1]} == {-2}
        cluster.sender.requests.clear()
        await cluster.up(2)
        await active.brokers_changed()
        assert all(state["delete_partition"] for states in cluster.sender.take(STOP).values() for state in states)
        assert cluster.sender.take(STOP).keys() == {1, 2}
        active.stop()

    run_virtual(scenario())


def test_a_restarted_broker_does_not_get_stop_requests_for_its_earlier_epoch() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        await cluster.start(1, 2)
        active = await cluster.reign()
        cluster.sender.requests.clear()
        await cluster.sessions[2].close()
        await cluster.up(2)
        await active.brokers_changed()
        assert cluster.sender.take(STOP) == {}
        (role,) = cluster.sender.take(ROLES)[2]
        assert (role["leader"], role["isr"]) == (1, (1,))
        active.stop()

    run_virtual(scenario())


@pytest.mark.parametrize(("restarted", "epoch"), [(1, 4), (2, 3)])
def test_a_leader_that_restarted_without_a_controller_gets_a_new_epoch(restarted: int, epoch: int) -> None:
    """It may have lost records that its followers have. They find the difference only if the epochs differ."""

    async def scenario() -> None:
        cluster = Cluster()
        await cluster.start(1, 2)
        await cluster.sessions[restarted].close()
        await cluster.up(restarted)
        active = await cluster.reign()
        roles = cluster.sender.take(ROLES)
        assert {(role["leader"], role["leader_epoch"]) for states in roles.values() for role in states} == {(1, epoch)}
        active.stop()

    run_virtual(scenario())


@pytest.mark.parametrize(("protocol", "has"), [("3.9", True), ("2.8", True), ("2.7", False)])
def test_topics_get_ids_where_the_clusters_protocol_has_them(protocol: str, has: bool) -> None:
    async def scenario() -> None:
        cluster = Cluster(protocol)
        await cluster.start(1, 2)
        active = await cluster.reign()
        found = TopicAssignment.decode("t", (await cluster.zk.get(layout.topic_path("t")))[0])
        assert isinstance(found.topic_id, UUID) is has
        active.stop()

    run_virtual(scenario())
