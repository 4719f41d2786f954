"""The coordinator of a broker: routing, errors of whole requests, expiration, start and stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from odradek.base.errors import (
    NONE,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    InvalidTransactionStateError,
    NotCoordinatorError,
    ProtocolError,
    RebalanceInProgressError,
    UnsupportedVersionError,
)
from odradek.base.types import GROUP_METADATA_TOPIC, TopicPartition
from odradek.cluster import ClusterImage
from odradek.coordinator.coordinator_ports import TransactionalWriter
from odradek.coordinator.coordinator_runtime import CoordinatorRuntime
from odradek.coordinator.groups.classic.classic_group import GroupState
from odradek.coordinator.groups.consumer.cluster_topics import ClusterTopics
from odradek.coordinator.groups.group_coordinator import GroupCoordinator
from odradek.coordinator.groups.group_requests import (
    CommitRequest,
    JoinRequest,
    LeavingMember,
    MemberCheck,
    OffsetToCommit,
    SyncRequest,
    TransactionalCommitRequest,
)
from odradek.coordinator.groups.group_shard import GroupShard
from odradek_testkit.groups import RANGE, SETTINGS, MemoryPartition
from odradek_testkit.loop import VirtualClock, run_virtual

EVENTS_0 = TopicPartition("events", 0)
PARTITION_0 = TopicPartition(GROUP_METADATA_TOPIC, 0)
PARTITIONS = [TopicPartition(GROUP_METADATA_TOPIC, number) for number in range(2)]


class Office:
    """A coordinator with two partitions in memory."""

    def __init__(self, **changes: Any) -> None:
        self.clock = VirtualClock()
        self.partition = MemoryPartition()
        runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            writer=self.partition, reader=self.partition, clock=self.clock, batch_limit_bytes=1 << 20
        )
        self.groups = GroupCoordinator(
            settings=replace(SETTINGS, initial_rebalance_delay_ms=100, **changes),
            clock=self.clock,
            runtime=runtime,
            partition_count=lambda: len(PARTITIONS),
            verify=self.verify,
            topics=ClusterTopics(ClusterImage),
        )
        self.groups.start()
        self.confirmed = asyncio.Event()
        self.confirmed.set()
        self.unverified: ProtocolError | None = None
        """The error of verifications, once they are confirmed."""

    async def verify(self, partition: TopicPartition, writer: TransactionalWriter) -> TransactionalWriter:
        await self.confirmed.wait()
        if self.unverified is not None:
            raise self.unverified
        return writer._replace(guard=(partition, writer.producer_id))

    async def lead(self, *partitions: TopicPartition) -> None:
        for partition in partitions or PARTITIONS:
            self.groups.on_leader(partition, 0)
        await self.clock.sleep_ms(1)

    def check(self, group_id: str = "b", member_id: str = "", generation: int = -1) -> MemberCheck:
        return MemberCheck(group_id=group_id, member_id=member_id, generation=generation)

    async def commit(self, group_id: str = "b") -> int:
        request = CommitRequest(member=self.check(group_id), offsets={EVENTS_0: OffsetToCommit(offset=5)})
        return (await self.groups.commit(request))[EVENTS_0]

    def join_request(self, group_id: str = "b", session_timeout_ms: int = 10_000) -> JoinRequest:
        return JoinRequest(
            group_id=group_id,
            rebalance_timeout_ms=60_000,
            session_timeout_ms=session_timeout_ms,
            protocol_type="consumer",
            protocols=RANGE,
        )


def virtual(test: Callable[[Office], Awaitable[None]], **changes: Any) -> None:
    async def main() -> None:
        office = Office(**changes)
        try:
            await test(office)
        finally:
            await office.groups.close()

    run_virtual(main())


def test_the_hash_of_a_group_id_determines_its_partition() -> None:
    async def scenario(office: Office) -> None:
        assert office.groups.partition_for("b") == PARTITION_0
        await office.lead(PARTITION_0)
        assert await office.commit("b") == NONE
        with pytest.raises(NotCoordinatorError):
            await office.commit("a")

    virtual(scenario)


def test_other_topics_are_ignored() -> None:
    async def scenario(office: Office) -> None:
        await office.lead(TopicPartition("events", 0))
        with pytest.raises(NotCoordinatorError):
            await office.commit()
        await office.lead()
        office.groups.on_follower(TopicPartition("events", 0))
        assert await office.commit() == NONE

    virtual(scenario)


def test_a_whole_rebalance() -> None:
    async def scenario(office: Office) -> None:
        await office.lead()
        first, second = await asyncio.gather(
            office.groups.join(office.join_request()), office.groups.join(office.join_request())
        )
        leader, follower = (first, second) if first.members else (second, first)
        assignments = {leader.member_id: b"one", follower.member_id: b"two"}
        one, two = await asyncio.gather(
            office.groups.sync(SyncRequest(member=office.check("b", leader.member_id, 1), assignments=assignments)),
            office.groups.sync(SyncRequest(member=office.check("b", follower.member_id, 1), assignments={})),
        )
        assert (one.assignment, two.assignment) == (b"one", b"two")
        assert office.groups.events.rebalances == 1
        office.groups.heartbeat(office.check("b", follower.member_id, 1))
        assert (await office.groups.describe("b")).state == "Stable"
        (result,) = await office.groups.leave("b", [LeavingMember(member_id=leader.member_id)])
        assert result.error_code == NONE
        with pytest.raises(RebalanceInProgressError):
            office.groups.heartbeat(office.check("b", follower.member_id, 1))

    virtual(scenario)


def test_errors_while_loading_are_those_that_old_clients_know() -> None:
    async def scenario(office: Office) -> None:
        office.partition.before_read = asyncio.Event().wait
        await office.lead()
        office.groups.heartbeat(office.check("b", "member", 1))
        with pytest.raises(RebalanceInProgressError):
            await office.groups.sync(SyncRequest(member=office.check("b", "member", 1), assignments={}))
        for attempt in (
            office.commit(),
            office.groups.join(office.join_request()),
            office.groups.fetch("b", None),
            office.groups.describe("b"),
            office.groups.delete("b"),
            office.groups.leave("b", []),
        ):
            with pytest.raises(CoordinatorLoadInProgressError):
                await attempt
        assert (await office.groups.list()).error_code == CoordinatorLoadInProgressError.code

    virtual(scenario)


def test_only_requests_for_offsets_accept_the_empty_group_id() -> None:
    async def scenario(office: Office) -> None:
        await office.lead()
        for attempt in (
            office.groups.join(office.join_request("")),
            office.groups.sync(SyncRequest(member=office.check(""), assignments={})),
            office.groups.leave("", []),
            office.groups.delete_offsets("", [EVENTS_0]),
        ):
            with pytest.raises(InvalidGroupIdError):
                await attempt
        with pytest.raises(InvalidGroupIdError):
            office.groups.heartbeat(office.check(""))
        assert await office.commit("") == NONE
        assert (await office.groups.fetch("", None))[EVENTS_0].offset == 5
        assert (await office.groups.describe("")).state == "Empty"
        await office.groups.delete("")
        with pytest.raises(GroupIdNotFoundError):
            await office.groups.delete("")

    virtual(scenario)


@pytest.mark.parametrize("session_timeout_ms", [5999, 1_800_001, -1])
def test_session_timeouts_are_limited(session_timeout_ms: int) -> None:
    async def scenario(office: Office) -> None:
        await office.lead()
        with pytest.raises(InvalidSessionTimeoutError):
            await office.groups.join(office.join_request(session_timeout_ms=session_timeout_ms))

    virtual(scenario)


def test_lists_are_filtered_by_state_and_type_without_regard_to_case() -> None:
    async def scenario(office: Office) -> None:
        await office.lead()
        await office.commit("b")
        await office.groups.join(office.join_request("a"))

        async def listed(**filters: list[str]) -> set[str]:
            return {group.group_id for group in (await office.groups.list(**filters)).groups}

        assert await listed() == {"a", "b"}
        assert await listed(states=["EMPTY"]) == {"b"}
        assert await listed(states=["stable", "completingrebalance"]) == {"a"}
        assert await listed(types=["Classic"]) == {"a", "b"}
        assert await listed(types=["consumer"]) == set()
        assert (await office.groups.list()).error_code == NONE

    virtual(scenario)


def test_groups_and_offsets_are_counted() -> None:
    async def scenario(office: Office) -> None:
        await office.lead()
        await office.commit("a")
        await office.commit("b")
        await office.groups.join(office.join_request("c"))
        assert (office.groups.group_count(), office.groups.offset_count()) == (3, 2)
        by_state = {state: office.groups.group_count(state) for state in GroupState if office.groups.group_count(state)}
        assert by_state == {GroupState.EMPTY: 2, GroupState.COMPLETING_REBALANCE: 1}

    virtual(scenario)


def test_groups_are_observed_while_this_broker_coordinates_them() -> None:
    async def scenario(office: Office) -> None:
        await office.lead()
        await office.commit("a")
        await office.groups.join(office.join_request("b"))
        found = {group.group_id: group for group in office.groups.coordinated()}
        assert {name: group.committed_offsets() for name, group in found.items()} == {"a": {EVENTS_0: 5}, "b": {}}
        assert [found[name].member_count for name in ("a", "b")] == [0, 1]
        await office.groups.delete("a")
        assert [found[name].is_coordinated for name in ("a", "b")] == [False, True]
        office.groups.on_follower(office.groups.partition_for("b"))
        await office.clock.sleep_ms(1)
        assert not found["b"].is_coordinated

    virtual(scenario)


def test_expired_offsets_are_removed_periodically() -> None:
    async def scenario(office: Office) -> None:
        await office.lead()
        await office.commit()
        await office.clock.sleep_ms(SETTINGS.offsets_retention_ms - SETTINGS.retention_check_interval_ms)
        assert len((await office.groups.list()).groups) == 1
        await office.clock.sleep_ms(2 * SETTINGS.retention_check_interval_ms)
        assert (await office.groups.list()).groups == []

    virtual(scenario)


def test_offsets_of_deleted_partitions_are_removed() -> None:
    async def scenario(office: Office) -> None:
        await office.lead()
        await office.commit()
        office.groups.on_partitions_deleted([EVENTS_0])
        await office.clock.sleep_ms(1)
        assert await office.groups.fetch("b", None) == {}

    virtual(scenario)


def test_a_closed_coordinator_ends_all_requests_with_an_error() -> None:
    async def scenario(office: Office) -> None:
        await office.lead()
        joining = asyncio.ensure_future(office.groups.join(office.join_request()))
        await office.clock.sleep_ms(1)
        await office.groups.close()
        await office.groups.close()
        assert (await joining).error_code == NotCoordinatorError.code
        for attempt in (office.commit(), office.groups.list(), office.groups.join(office.join_request())):
            with pytest.raises(CoordinatorNotAvailableError):
                await attempt
        assert [purgatory.size for purgatory in office.groups.purgatories] == [0, 0]

    virtual(scenario)


def transactional(group_id: str = "b") -> TransactionalCommitRequest:
    return TransactionalCommitRequest(
        member=MemberCheck(group_id=group_id, member_id=""),
        writer=TransactionalWriter("tx", 7, 0),
        offsets={EVENTS_0: OffsetToCommit(offset=9)},
    )


def test_a_transactional_offset_is_visible_after_its_marker() -> None:
    async def scenario(office: Office) -> None:
        await office.lead()
        partition = office.groups.partition_for("b")
        other = next(one for one in PARTITIONS if one != partition)
        assert await office.groups.commit_transactional(transactional()) == {EVENTS_0: NONE}
        office.groups.complete_transaction(other, 7, True, office.partition.next_offset)
        office.groups.complete_transaction(EVENTS_0, 7, True, office.partition.next_offset)
        assert (await office.groups.fetch("b", [EVENTS_0]))[EVENTS_0].offset == -1
        office.groups.complete_transaction(partition, 7, True, office.partition.next_offset)
        assert (await office.groups.fetch("b", [EVENTS_0]))[EVENTS_0].offset == 9

    virtual(scenario)


def test_a_transactional_commit_is_appended_with_the_guard_of_its_verification() -> None:
    async def scenario(office: Office) -> None:
        await office.lead()
        partition = office.groups.partition_for("b")
        office.confirmed.clear()
        waiting = asyncio.create_task(office.groups.commit_transactional(transactional()))
        plain = CommitRequest(
            member=MemberCheck(group_id="b", member_id=""), offsets={EVENTS_0: OffsetToCommit(offset=3)}
        )
        assert await office.groups.commit(plain) == {EVENTS_0: NONE}, "others do not wait for the verification"
        office.confirmed.set()
        assert await waiting == {EVENTS_0: NONE}
        assert office.partition.transactions == [None, TransactionalWriter("tx", 7, 0, guard=(partition, 7))]

        office.unverified = InvalidTransactionStateError("not open")
        with pytest.raises(InvalidTransactionStateError):
            await office.groups.commit_transactional(transactional())
        assert len(office.partition.transactions) == 2

    virtual(scenario)


def test_a_marker_that_is_appended_during_the_load_is_applied_afterwards() -> None:
    async def scenario(office: Office) -> None:
        await office.lead()
        partition = office.groups.partition_for("b")
        office.groups.complete_transaction(partition, 7, True, 1)
        await office.groups.commit_transactional(transactional())
        office.groups.on_follower(partition)
        office.groups.complete_transaction(partition, 7, True, 1)
        office.groups.on_leader(partition, 1)
        office.groups.complete_transaction(partition, 7, True, 1)
        await office.clock.sleep_ms(1)
        assert (await office.groups.fetch("b", [EVENTS_0]))[EVENTS_0].offset == 9

    virtual(scenario)


def test_a_transactional_commit_needs_a_group_and_a_coordinator() -> None:
    async def scenario(office: Office) -> None:
        with pytest.raises(NotCoordinatorError):
            await office.groups.commit_transactional(transactional())
        await office.lead()
        with pytest.raises(InvalidGroupIdError):
            await office.groups.commit_transactional(transactional(""))

    virtual(scenario)


def test_static_members_wait_until_all_brokers_support_them() -> None:
    async def scenario(office: Office) -> None:
        await office.lead()
        static = MemberCheck(group_id="b", member_id="m", instance_id="static", generation=1)
        with pytest.raises(UnsupportedVersionError):
            await office.groups.join(replace(office.join_request(), instance_id="static"))
        with pytest.raises(UnsupportedVersionError):
            await office.groups.sync(SyncRequest(member=static, assignments={}))
        with pytest.raises(UnsupportedVersionError):
            office.groups.heartbeat(static)
        with pytest.raises(UnsupportedVersionError):
            await office.groups.commit(CommitRequest(member=static, offsets={EVENTS_0: OffsetToCommit(offset=5)}))
        assert await office.commit() == NONE

    virtual(scenario, allows_static_members=False)
