"""A member with the cooperative protocol and a coordinator that prescribes its assignments, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import pytest

from odradek.base.errors import GroupAuthorizationFailedError, RebalanceInProgressError
from odradek.base.types import TopicPartition
from odradek.client.consumer.assignor_values import Previous
from odradek.client.consumer.consumer import Consumer
from odradek.client.consumer.group_protocol import Subscription, decode_subscription, encode_assignment
from odradek.client.consumer.sticky_assignor import sticky_user_data
from odradek.client.settings import ClientSettings
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.records.v2.batch import BatchBuilder
from odradek_testkit.loop import VirtualClock, run_virtual

SETTINGS: Final = ClientSettings.of(
    "fake:9001",
    group_id="g",
    auto_offset_reset="earliest",
    heartbeat_interval_ms=1_000,
    partition_assignment_strategy=("cooperative-sticky",),
)
FIRST, SECOND, THIRD = (TopicPartition("t", number) for number in range(3))
UNKNOWN_TOPIC, UNKNOWN_MEMBER, REBALANCING, GROUP_DENIED = 3, 25, 27, 30


class Coordinator:
    """The coordinator of a group with one member, which is not the leader. Each generation has its own assignment."""

    def __init__(self, cluster: Any, *assignments: Sequence[TopicPartition]) -> None:
        self.assignments = list(assignments)
        self.heartbeat_codes: list[int] = []
        self.join_codes: list[int] = []
        self.commit_code = 0
        self.subscriptions: list[dict[str, Subscription]] = []
        """The subscription for each assignor, of every JoinGroup request."""
        self.committed: list[tuple[int, dict[TopicPartition, int]]] = []
        """Generation and offsets of each commit."""
        self.generation = 0
        for name in ("join_group", "sync_group", "heartbeat", "leave_group", "offset_commit", "offset_fetch"):
            cluster.answers[ApiKey[name.upper()]] = getattr(self, name)

    def join_group(self, request: Any) -> Message:
        found = {protocol.name: decode_subscription(bytes(protocol.metadata)) for protocol in request.protocols}
        self.subscriptions.append(found)
        if self.join_codes and (code := self.join_codes.pop(0)):
            refused = {"generation_id": -1, "protocol_name": "", "leader": "", "members": []}
            return {"error_code": code, "member_id": request.member_id, **refused}
        self.generation += 1
        return {
            "error_code": 0,
            "generation_id": self.generation,
            "protocol_type": "consumer",
            "protocol_name": request.protocols[0].name,
            "leader": "another",
            "member_id": "m1",
            "members": [],
        }

    def sync_group(self, request: Any) -> Message:
        assigned = self.assignments.pop(0) if len(self.assignments) > 1 else self.assignments[0]
        return {"error_code": 0, "assignment": encode_assignment(assigned)}

    def heartbeat(self, request: Any) -> Message:
        return {"error_code": self.heartbeat_codes.pop(0) if self.heartbeat_codes else 0}

    def leave_group(self, request: Any) -> Message:
        return {"error_code": 0, "members": []}

    def offset_commit(self, request: Any) -> Message:
        offsets = {
            TopicPartition(topic.name, item.partition_index): item.committed_offset
            for topic in request.topics
            for item in topic.partitions
        }
        self.committed.append((request.generation_id_or_member_epoch, offsets))
        rows = [{"partition_index": each.partition, "error_code": self.commit_code} for each in offsets]
        return {"topics": [{"name": "t", "partitions": rows}]}

    def offset_fetch(self, request: Any) -> Message:
        return {"groups": [{"group_id": "g", "topics": [], "error_code": 0}]}


class Listener:
    def __init__(self) -> None:
        self.events: list[tuple[str, list[int]]] = []

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(("revoked", [number for _, number in partitions]))

    async def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(("lost", [number for _, number in partitions]))

    async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(("assigned", [number for _, number in partitions]))


def consumer_of(cluster: Any, *topics: str, **changes: Any) -> Consumer:
    return Consumer(SETTINGS.replace(**changes), *topics, clock=VirtualClock(), connect=cluster.connect)


def write(cluster: Any, partition: TopicPartition) -> None:
    builder = BatchBuilder(limit_bytes=1 << 20)
    builder.append(None, b"value", timestamp_ms=0)
    cluster.logs[partition].append(memoryview(builder.build()))


async def read(consumer: Consumer) -> TopicPartition:
    """Return the partition of the next record."""
    while not (found := await consumer.getmany(timeout_ms=1_000, max_records=1)):
        pass
    return next(iter(found))


async def until_generation(consumer: Consumer, coordinator: Coordinator, generation: int) -> None:
    while coordinator.generation < generation:
        await consumer.getmany(timeout_ms=500)
    await consumer.getmany(timeout_ms=500)


def test_partitions_that_stay_are_read_during_the_rebalance(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 2})
    coordinator = Coordinator(cluster, [FIRST, SECOND])

    async def main() -> None:
        async with consumer_of(cluster, "t", enable_auto_commit=False) as consumer:
            await until_generation(consumer, coordinator, 1)
            joined = cluster.held_apis[ApiKey.JOIN_GROUP] = asyncio.Event()
            coordinator.heartbeat_codes = [REBALANCING]
            while len(coordinator.subscriptions) < 2:
                await consumer.getmany(timeout_ms=500)
            for partition in (FIRST, SECOND, FIRST):
                write(cluster, partition)
                assert await read(consumer) == partition
            assert consumer.assignment() == {FIRST, SECOND}
            with pytest.raises(RebalanceInProgressError):
                await consumer.commit()
            # Offsets in a transaction can be committed; the coordinator has advanced to this generation.
            assert consumer.group_metadata().generation_id == 1
            joined.set()
            # The first call may only find out that nothing is left of the last fetch.
            assert [await consumer.getmany(timeout_ms=500) for _ in range(2)] == [{}, {}]
            await consumer.commit()
            assert coordinator.committed == [(2, {FIRST: 2, SECOND: 1})]

    run_virtual(main())


def test_only_partitions_that_move_are_revoked_and_the_member_joins_again(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 3})
    coordinator = Coordinator(cluster, [FIRST, SECOND], [FIRST], [FIRST, THIRD])
    listener = Listener()

    async def main() -> None:
        async with consumer_of(cluster, auto_commit_interval_ms=1_000_000) as consumer:
            consumer.subscribe(["t"], listener=listener)
            await until_generation(consumer, coordinator, 1)
            coordinator.heartbeat_codes = [REBALANCING]
            await until_generation(consumer, coordinator, 3)
            assert consumer.assignment() == {FIRST, THIRD}
            assert coordinator.committed == [(2, {SECOND: 0})]

    run_virtual(main())
    assert listener.events == [
        ("assigned", [0, 1]),
        ("revoked", [1]),
        ("assigned", []),
        ("assigned", [2]),
        ("revoked", [0, 2]),
    ]
    sent = [subscriptions["cooperative-sticky"] for subscriptions in coordinator.subscriptions]
    assert [(each.owned, each.generation_id) for each in sent] == [((), -1), ((FIRST, SECOND), 1), ((FIRST,), 2)]
    assert [each.user_data for each in sent] == [b"\xff\xff\xff\xff", b"\0\0\0\1", b"\0\0\0\2"]


def test_partitions_are_revoked_after_the_application_has_processed_the_records(fakes: Any) -> None:
    """The rebalance ends while the application processes a record. Its offset is committed when it asks for more."""
    cluster = fakes.cluster({"t": 2})
    coordinator = Coordinator(cluster, [FIRST, SECOND], [FIRST])

    async def main() -> None:
        async with consumer_of(cluster, "t", auto_commit_interval_ms=1_000_000) as consumer:
            await until_generation(consumer, coordinator, 1)
            joined = cluster.held_apis[ApiKey.JOIN_GROUP] = asyncio.Event()
            coordinator.heartbeat_codes = [REBALANCING]
            while len(coordinator.subscriptions) < 2:
                await consumer.getmany(timeout_ms=500)
            write(cluster, SECOND)
            assert await read(consumer) == SECOND
            joined.set()
            await VirtualClock().sleep_ms(30_000)
            assert consumer.assignment() == {FIRST, SECOND}
            assert coordinator.committed == []
            # Records that arrive now are not returned before the end of the revocation.
            write(cluster, FIRST)
            write(cluster, SECOND)
            assert await read(consumer) == FIRST
            assert coordinator.committed == [(2, {SECOND: 1})]
            assert consumer.assignment() == {FIRST}

    run_virtual(main())


def test_a_waiting_revocation_proceeds_in_calls_without_timeout(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 2})
    coordinator = Coordinator(cluster, [FIRST, SECOND], [FIRST])

    async def main() -> None:
        async with consumer_of(cluster, "t") as consumer:
            await until_generation(consumer, coordinator, 1)
            coordinator.heartbeat_codes = [REBALANCING]
            while consumer.assignment() != {FIRST}:
                await consumer.getmany()
                await VirtualClock().sleep_ms(10)

    run_virtual(main())
    assert coordinator.committed


def test_a_member_that_the_group_has_removed_loses_its_partitions(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 2})
    coordinator = Coordinator(cluster, [FIRST, SECOND], [SECOND])
    listener = Listener()

    async def main() -> None:
        async with consumer_of(cluster) as consumer:
            consumer.subscribe(["t"], listener=listener)
            await until_generation(consumer, coordinator, 1)
            coordinator.heartbeat_codes = [REBALANCING]
            coordinator.join_codes = [UNKNOWN_MEMBER]
            await until_generation(consumer, coordinator, 2)
            assert consumer.assignment() == {SECOND}

    run_virtual(main())
    assert listener.events[:3] == [("assigned", [0, 1]), ("lost", [0, 1]), ("assigned", [1])]
    assert coordinator.subscriptions[-1]["cooperative-sticky"].owned == ()


def test_the_partitions_of_a_deleted_topic_are_revoked_without_waiting(fakes: Any) -> None:
    """A commit for a topic that does not exist is not repeated."""
    cluster = fakes.cluster({"t": 2})
    coordinator = Coordinator(cluster, [FIRST, SECOND], [FIRST])
    coordinator.commit_code = UNKNOWN_TOPIC

    async def main() -> None:
        async with consumer_of(cluster, "t", auto_commit_interval_ms=1_000_000) as consumer:
            await until_generation(consumer, coordinator, 1)
            coordinator.heartbeat_codes = [REBALANCING]
            await until_generation(consumer, coordinator, 2)
            assert consumer.assignment() == {FIRST}
            assert [offsets for _, offsets in coordinator.committed] == [{SECOND: 0}]

    run_virtual(main())


def test_a_failed_rebalance_keeps_the_partitions(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 2})
    coordinator = Coordinator(cluster, [FIRST, SECOND])

    async def main() -> None:
        async with consumer_of(cluster, "t") as consumer:
            await until_generation(consumer, coordinator, 1)
            coordinator.heartbeat_codes = [REBALANCING]
            coordinator.join_codes = [GROUP_DENIED]
            with pytest.raises(GroupAuthorizationFailedError):
                await consumer.getmany(timeout_ms=60_000)
            assert consumer.assignment() == {FIRST, SECOND}
            await until_generation(consumer, coordinator, 2)

    run_virtual(main())
    assert coordinator.subscriptions[-1]["cooperative-sticky"].owned == (FIRST, SECOND)


def test_topics_that_are_no_longer_subscribed_are_revoked_before_the_rebalance(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1, "u": 1})
    other = TopicPartition("u", 0)
    coordinator = Coordinator(cluster, [FIRST, other], [FIRST])
    listener = Listener()

    async def main() -> None:
        async with consumer_of(cluster) as consumer:
            consumer.subscribe(["t", "u"], listener=listener)
            await until_generation(consumer, coordinator, 1)
            consumer.subscribe(["t"])
            await until_generation(consumer, coordinator, 2)
            assert consumer.assignment() == {FIRST}

    run_virtual(main())
    assert coordinator.subscriptions[1]["cooperative-sticky"].owned == (FIRST,)
    assert [name for name, _ in listener.events] == ["assigned", "revoked", "assigned", "revoked"]


def test_a_subscription_that_changes_during_the_rebalance_causes_another(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1, "u": 1})
    coordinator = Coordinator(cluster, [FIRST], [TopicPartition("u", 0)])

    async def main() -> None:
        async with consumer_of(cluster, "t") as consumer:
            joined = cluster.held_apis[ApiKey.JOIN_GROUP] = asyncio.Event()
            await consumer.getmany(timeout_ms=500)
            consumer.subscribe(["u"])
            joined.set()
            await until_generation(consumer, coordinator, 2)
            assert consumer.assignment() == {TopicPartition("u", 0)}

    run_virtual(main())
    assert [each["cooperative-sticky"].topics for each in coordinator.subscriptions] == [("t",), ("u",)]


def test_with_an_eager_assignor_too_the_protocol_is_eager(fakes: Any) -> None:
    """This is the first step of the upgrade to `cooperative-sticky`."""
    cluster = fakes.cluster({"t": 2})
    coordinator = Coordinator(cluster, [FIRST, SECOND], [SECOND])
    listener = Listener()

    async def main() -> None:
        both = ("cooperative-sticky", "sticky")
        async with consumer_of(cluster, partition_assignment_strategy=both) as consumer:
            consumer.subscribe(["t"], listener=listener)
            await until_generation(consumer, coordinator, 1)
            coordinator.heartbeat_codes = [REBALANCING]
            await until_generation(consumer, coordinator, 2)

    run_virtual(main())
    assert listener.events[:3] == [("assigned", [0, 1]), ("revoked", [0, 1]), ("assigned", [1])]
    assert list(coordinator.subscriptions[1]) == ["cooperative-sticky", "sticky"]
    assert coordinator.subscriptions[1]["cooperative-sticky"].owned == ()
    assert coordinator.subscriptions[0]["sticky"].user_data is None
    assert coordinator.subscriptions[1]["sticky"].user_data == sticky_user_data(Previous((FIRST, SECOND), 1))
