"""A group member with a coordinator that returns prescribed errors, in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from odradek.base.errors import (
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    ProtocolError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    UnsupportedVersionError,
)
from odradek.base.types import TopicPartition
from odradek.client.consumer.consumer import Consumer
from odradek.client.consumer.group_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from odradek.client.models import GroupMetadata
from odradek.client.settings import ClientSettings
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.records.v2.batch import BatchBuilder
from odradek_testkit.loop import VirtualClock, run_virtual

SETTINGS = ClientSettings.of("fake:9001", group_id="g", auto_offset_reset="earliest", heartbeat_interval_ms=1_000)
MEMBER_ID_REQUIRED, UNKNOWN_MEMBER, ILLEGAL_GENERATION, REBALANCING, NOT_COORDINATOR, LOADING = 79, 25, 22, 27, 16, 14


class Coordinator:
    """The coordinator of a group with one member, which is the leader."""

    def __init__(self, cluster: Any) -> None:
        self.join_codes: list[int] = []
        self.sync_codes: list[int] = []
        self.heartbeat_codes: list[int] = []
        self.commit_codes: list[int] = []
        self.joins: list[str] = []
        self.generation = 0
        self.left: list[str] = []
        self.committed: dict[TopicPartition, int] = {}
        self.committers: list[tuple[str, int]] = []
        self.assignment: bytes | None = None
        self.others: list[tuple[str, bytes]] = []
        """Ids and subscriptions of other members."""
        self.assigned: dict[str, tuple[TopicPartition, ...]] = {}
        """What the leader assigned to each member."""
        for name in ("join_group", "sync_group", "heartbeat", "leave_group", "offset_commit", "offset_fetch"):
            cluster.answers[ApiKey[name.upper()]] = getattr(self, name)

    def join_group(self, request: Any) -> Message:
        self.joins.append(request.member_id)
        code = self.join_codes.pop(0) if self.join_codes else 0
        if code == 0:
            self.generation += 1
        metadata = bytes(request.protocols[0].metadata)
        assert decode_subscription(metadata).topics == ("t",)
        member_id = request.member_id or "m1"
        members = [
            {"member_id": member, "group_instance_id": None, "metadata": subscription}
            for member, subscription in [(member_id, metadata), *self.others]
        ]
        return {
            "error_code": code,
            "generation_id": self.generation if code == 0 else -1,
            "protocol_type": "consumer",
            "protocol_name": request.protocols[0].name,
            "leader": member_id if code == 0 else "",
            "member_id": member_id,
            "members": members if code == 0 else [],
        }

    def sync_group(self, request: Any) -> Message:
        code = self.sync_codes.pop(0) if self.sync_codes else 0
        assert request.generation_id == self.generation
        by_member = {each.member_id: bytes(each.assignment) for each in request.assignments}
        self.assigned = {member: decode_assignment(assignment) for member, assignment in by_member.items()}
        given = by_member[request.member_id]
        return {"error_code": code, "assignment": b"" if code else self.assignment or given}

    def heartbeat(self, request: Any) -> Message:
        return {"error_code": self.heartbeat_codes.pop(0) if self.heartbeat_codes else 0}

    def leave_group(self, request: Any) -> Message:
        self.left += [member.member_id for member in request.members]
        return {"error_code": 0, "members": []}

    def offset_commit(self, request: Any) -> Message:
        code = self.commit_codes.pop(0) if self.commit_codes else 0
        self.committers.append((request.member_id, request.generation_id_or_member_epoch))
        topics = []
        for topic in request.topics:
            rows = [{"partition_index": item.partition_index, "error_code": code} for item in topic.partitions]
            topics.append({"name": topic.name, "partitions": rows})
            for item in topic.partitions:
                if code == 0:
                    self.committed[TopicPartition(str(topic.name), item.partition_index)] = item.committed_offset
        return {"topics": topics}

    def offset_fetch(self, request: Any) -> Message:
        group = request.groups[0]
        topics = [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": number,
                        "committed_offset": self.committed.get(TopicPartition(str(topic.name), number), -1),
                        "metadata": "",
                        "error_code": 0,
                    }
                    for number in topic.partition_indexes
                ],
            }
            for topic in group.topics
        ]
        return {"groups": [{"group_id": group.group_id, "topics": topics, "error_code": 0}]}


class Listener:
    def __init__(self) -> None:
        self.events: list[str] = []

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(f"revoked {len(partitions)}")

    async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(f"assigned {len(partitions)}")


def consumer_of(cluster: Any, *topics: str, **changes: Any) -> Consumer:
    return Consumer(SETTINGS.replace(**changes), *topics, clock=VirtualClock(), connect=cluster.connect)


@pytest.mark.parametrize(
    ("codes", "joins"),
    [
        pytest.param([], [""], id="at once"),
        pytest.param([MEMBER_ID_REQUIRED], ["", "m1"], id="member id required"),
        pytest.param([UNKNOWN_MEMBER], ["", ""], id="unknown member"),
        pytest.param([NOT_COORDINATOR, LOADING], ["", "", ""], id="coordinator moved and loading"),
    ],
)
def test_joining_follows_the_coordinators_errors(fakes: Any, codes: list[int], joins: list[str]) -> None:
    cluster = fakes.cluster({"t": 3})
    coordinator = Coordinator(cluster)
    coordinator.join_codes = codes

    async def main() -> None:
        async with consumer_of(cluster, "t") as consumer:
            await consumer.getmany(timeout_ms=5_000)
            assert consumer.assignment() == {TopicPartition("t", number) for number in range(3)}

    run_virtual(main())
    assert coordinator.joins == joins
    assert coordinator.left == ["m1"]
    assert cluster.open_links == 0


@pytest.mark.parametrize("code", [REBALANCING, NOT_COORDINATOR, ILLEGAL_GENERATION])
def test_a_failed_sync_joins_again(fakes: Any, code: int) -> None:
    cluster = fakes.cluster({"t": 1})
    coordinator = Coordinator(cluster)
    coordinator.sync_codes = [code]

    async def main() -> None:
        async with consumer_of(cluster, "t") as consumer:
            await consumer.getmany(timeout_ms=5_000)
            assert len(consumer.assignment()) == 1

    run_virtual(main())
    assert coordinator.joins == ["", "m1"]


PERMANENT_ERRORS = [
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    UnsupportedVersionError,
]


@pytest.mark.parametrize("request_name", ["join", "sync", "heartbeat"])
@pytest.mark.parametrize("error", PERMANENT_ERRORS)
def test_permanent_errors_are_raised_and_not_retried(fakes: Any, request_name: str, error: type[ProtocolError]) -> None:
    """The member joins again only when the application polls again, and a fenced one keeps the id that is fenced."""
    cluster = fakes.cluster({"t": 1})
    coordinator = Coordinator(cluster)
    setattr(coordinator, f"{request_name}_codes", [error.code])
    listener = Listener()

    async def main() -> None:
        async with consumer_of(cluster, group_instance_id="one") as consumer:
            consumer.subscribe(["t"], listener=listener)
            with pytest.raises(error):
                await consumer.getmany(timeout_ms=60_000)
            assert len(coordinator.joins) == 1
            await VirtualClock().sleep_ms(60_000)
            assert len(coordinator.joins) == 1, "nothing is sent until the next poll"
            await consumer.getmany(timeout_ms=5_000)
            assert len(consumer.assignment()) == 1

    run_virtual(main())
    keeps_id = request_name != "join" and (error is FencedInstanceIdError or request_name == "sync")
    assert coordinator.joins == ["", "m1" if keeps_id else ""]
    assert listener.events == ["assigned 1", "revoked 1"] * (2 if request_name == "heartbeat" else 1)


@pytest.mark.parametrize(
    ("code", "commits", "joins"),
    [
        pytest.param(REBALANCING, True, ["", "m1"], id="rebalance"),
        pytest.param(UNKNOWN_MEMBER, False, ["", ""], id="lost"),
        pytest.param(ILLEGAL_GENERATION, False, ["", ""], id="generation over"),
    ],
)
def test_heartbeat_errors_cause_rebalances(fakes: Any, code: int, commits: bool, joins: list[str]) -> None:
    cluster = fakes.cluster({"t": 2})
    coordinator = Coordinator(cluster)
    coordinator.heartbeat_codes = [0, code]
    listener = Listener()

    async def main() -> None:
        async with consumer_of(cluster, auto_commit_interval_ms=1_000_000) as consumer:
            consumer.subscribe(["t"], listener=listener)
            await consumer.getmany(timeout_ms=5_000)
            assert listener.events == ["assigned 2", "revoked 2", "assigned 2"]

    run_virtual(main())
    assert coordinator.joins == joins
    assert (("m1", 1) in coordinator.committers) is commits
    assert listener.events[3:] == ["revoked 2"]


def test_a_fenced_member_raises(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    coordinator = Coordinator(cluster)
    coordinator.heartbeat_codes = [FencedInstanceIdError.code]

    async def main() -> None:
        async with consumer_of(cluster, "t", group_instance_id="one") as consumer:
            with pytest.raises(FencedInstanceIdError):
                await consumer.getmany(timeout_ms=60_000)

    run_virtual(main())
    assert coordinator.left == []


def test_a_member_that_is_not_polled_leaves_and_joins_again(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    coordinator = Coordinator(cluster)

    async def main() -> None:
        async with consumer_of(cluster, "t", max_poll_interval_ms=10_000) as consumer:
            await consumer.getmany(timeout_ms=100)
            await VirtualClock().sleep_ms(9_000)
            assert coordinator.left == []
            await VirtualClock().sleep_ms(3_000)
            assert coordinator.left == ["m1"]
            # A member that waits for records is not idle.
            await consumer.getmany(timeout_ms=60_000)
            assert coordinator.joins == ["", ""]

    run_virtual(main())


def test_positions_are_committed_periodically_and_on_close(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    coordinator = Coordinator(cluster)
    partition = TopicPartition("t", 0)

    async def main() -> None:
        async with consumer_of(cluster, "t", auto_commit_interval_ms=5_000) as consumer:
            await consumer.getmany(timeout_ms=1_000)
            assert coordinator.committed == {}
            await consumer.getmany(timeout_ms=20_000)
            assert coordinator.committed == {partition: 0}
            cluster.logs[partition].next_offset = 7
            consumer.seek(partition, 7)
        assert coordinator.committed == {partition: 7}

    run_virtual(main())


def test_an_automatic_commit_does_not_cover_the_records_that_the_same_call_returns(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    coordinator = Coordinator(cluster)
    partition = TopicPartition("t", 0)

    async def main() -> None:
        async with consumer_of(cluster, "t", auto_commit_interval_ms=5_000) as consumer:
            await consumer.getmany(timeout_ms=1_000)
            builder = BatchBuilder(limit_bytes=1 << 20)
            builder.append(None, b"value", timestamp_ms=0)
            cluster.logs[partition].append(memoryview(builder.build()))
            # The record arrives, and the commit is due, before the application asks again.
            await VirtualClock().sleep_ms(20_000)
            assert len((await consumer.getmany(timeout_ms=1_000))[partition]) == 1
            await VirtualClock().sleep_ms(1_000)
            assert coordinator.committed == {partition: 0}
        assert coordinator.committed == {partition: 1}

    run_virtual(main())


def test_nothing_is_committed_without_auto_commit(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    coordinator = Coordinator(cluster)

    async def main() -> None:
        async with consumer_of(cluster, "t", enable_auto_commit=False) as consumer:
            await consumer.getmany(timeout_ms=20_000)
            coordinator.commit_codes = [RebalanceInProgressError.code, IllegalGenerationError.code]
            with pytest.raises(RebalanceInProgressError):
                await consumer.commit()
            with pytest.raises(IllegalGenerationError):
                await consumer.commit()
            await consumer.getmany(timeout_ms=1_000)
            await consumer.commit({TopicPartition("t", 0): 5})

    run_virtual(main())
    assert coordinator.committed == {TopicPartition("t", 0): 5}
    assert coordinator.generation == 2


class CommittingListener:
    """An application that commits its processed records when its partitions are revoked."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.errors: list[type[Exception] | None] = []

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        try:
            await self._consumer.commit(dict.fromkeys(partitions, 3))
        except ProtocolError as error:
            self.errors.append(type(error))
        else:
            self.errors.append(None)

    async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        assert self._consumer.membership.member_id == "m1"


@pytest.mark.parametrize(
    ("code", "errors"),
    [
        pytest.param(REBALANCING, [None], id="rebalance"),
        pytest.param(UNKNOWN_MEMBER, [UnknownMemberIdError], id="lost"),
    ],
)
def test_a_member_that_lost_its_partitions_commits_nothing(
    fakes: Any, code: int, errors: list[type[Exception] | None]
) -> None:
    """Without a generation, a coordinator would accept the commit like one from outside the group."""
    cluster = fakes.cluster({"t": 1})
    coordinator = Coordinator(cluster)

    async def main() -> None:
        async with consumer_of(cluster, enable_auto_commit=False) as consumer:
            listener = CommittingListener(consumer)
            consumer.subscribe(["t"], listener=listener)
            with pytest.raises(RebalanceInProgressError):
                await consumer.commit({TopicPartition("t", 0): 1})
            await consumer.getmany(timeout_ms=1_000)
            coordinator.heartbeat_codes = [code]
            await consumer.getmany(timeout_ms=20_000)
            assert listener.errors == errors
            assert bool(coordinator.committed) == (errors == [None])

    run_virtual(main())


def test_the_group_metadata_is_that_of_the_current_member(fakes: Any) -> None:
    """Without a generation, a coordinator would accept offsets in a transaction from a member that it has removed."""
    cluster = fakes.cluster({"t": 1})
    coordinator = Coordinator(cluster)
    refused: list[str] = []

    class Listener:
        def __init__(self, consumer: Consumer) -> None:
            self._consumer = consumer

        async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
            if not refused:
                with pytest.raises(UnknownMemberIdError, match="has removed this member"):
                    self._consumer.group_metadata()
                refused.append("lost")

        async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            return

    async def main() -> None:
        async with consumer_of(cluster, enable_auto_commit=False) as consumer:
            assert consumer.group_metadata() == GroupMetadata("g")
            consumer.subscribe(["t"], listener=Listener(consumer))
            with pytest.raises(RebalanceInProgressError):
                consumer.group_metadata()
            await consumer.getmany(timeout_ms=1_000)
            assert consumer.group_metadata() == GroupMetadata("g", 1, "m1")
            coordinator.heartbeat_codes = [UNKNOWN_MEMBER]
            await consumer.getmany(timeout_ms=20_000)

    run_virtual(main())
    assert refused == ["lost"]


def test_a_leader_rejoins_when_a_topic_gets_partitions(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    coordinator = Coordinator(cluster)

    async def main() -> None:
        async with consumer_of(cluster, "t", metadata_max_age_ms=2_000) as consumer:
            await consumer.getmany(timeout_ms=1_000)
            cluster.logs[TopicPartition("t", 1)] = type(cluster.logs[TopicPartition("t", 0)])(leader=2)
            await consumer.getmany(timeout_ms=5_000)
            assert len(consumer.assignment()) == 2

    run_virtual(main())
    assert coordinator.generation == 2


def test_a_leader_assigns_partitions_within_racks(fakes: Any) -> None:
    """The leaders of the partitions alternate between two nodes, each in its own rack."""
    cluster = fakes.cluster({"t": 4})
    cluster.racks = {1: "r1", 2: "r2"}
    coordinator = Coordinator(cluster)
    coordinator.others = [("m0", encode_subscription(Subscription(topics=("t",), rack_id="r1")))]

    async def main() -> None:
        async with consumer_of(cluster, "t", client_rack="r2") as consumer:
            await consumer.getmany(timeout_ms=1_000)

    run_virtual(main())
    numbers = {member: [number for _, number in partitions] for member, partitions in coordinator.assigned.items()}
    assert numbers == {"m0": [0, 2], "m1": [1, 3]}


def test_unsubscribe_leaves_the_group(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    coordinator = Coordinator(cluster)
    coordinator.assignment = encode_assignment([TopicPartition("t", 0)])

    async def main() -> None:
        async with consumer_of(cluster, "t") as consumer:
            await consumer.getmany(timeout_ms=1_000)
            assert consumer.subscription() == {"t"}
            await consumer.unsubscribe()
            assert (consumer.subscription(), consumer.assignment()) == (set(), set())
            consumer.assign([TopicPartition("t", 0)])
            await consumer.getmany(timeout_ms=1_000)

    run_virtual(main())
    assert coordinator.left == ["m1"]
    assert decode_assignment(coordinator.assignment) == (TopicPartition("t", 0),)


class LosingListener(Listener):
    """A listener that distinguishes lost partitions."""

    async def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(f"lost {len(partitions)}")


def test_lost_partitions_are_reported_as_lost(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 2})
    coordinator = Coordinator(cluster)
    coordinator.heartbeat_codes = [UNKNOWN_MEMBER]
    listener = LosingListener()

    async def main() -> None:
        async with consumer_of(cluster) as consumer:
            consumer.subscribe(["t"], listener=listener)
            await consumer.getmany(timeout_ms=5_000)

    run_virtual(main())
    assert listener.events == ["assigned 2", "lost 2", "assigned 2", "revoked 2"]
    assert {generation for _, generation in coordinator.committers} == {2}
