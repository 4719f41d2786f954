"""Random histories of a group and of transactions: a reload restores the same state, and every request is answered."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from odradek.base.errors import NotEnoughReplicasError, ProtocolError
from odradek.base.types import Offset, TopicPartition
from odradek.coordinator.groups.classic.classic_group import GroupState
from odradek.coordinator.groups.group_records import GroupKey, decode_group_value, decode_key
from odradek.coordinator.groups.group_requests import LeavingMember, OffsetToCommit
from odradek_testkit.groups import RANGE, GroupLab, Reply, visible

WHO = st.integers(0, 5)
INSTANCES = st.sampled_from([None, None, "static-1", "static-2"])
PROTOCOLS = st.sampled_from([RANGE, (*RANGE, ("sticky", b"")), (("sticky", b""), *RANGE)])
PARTITIONS = st.sampled_from([TopicPartition("events", 0), TopicPartition("other", 0)])
PRODUCERS = st.sampled_from([7, 8])
DELAYS_MS = st.sampled_from([1, 1000, 3000, 9000, 61_000, 400_000, 8 * 24 * 3_600_000])


class OffsetHistory(RuleBasedStateMachine):
    """Random commits and transactions, refused appends, and moves of the partition."""

    def __init__(self) -> None:
        super().__init__()
        self.lab = GroupLab()
        self.known: list[str] = []
        self.replies: list[Reply[Any]] = []
        self.markers: list[tuple[int, bool, Offset]] = []
        """Markers in the log that the coordinator has not been told about."""
        self.told: list[tuple[int, bool, Offset]] = []

    # What clients do

    def ask(self, call: Any, *args: Any, **options: Any) -> None:
        try:
            reply = call(*args, **options)
        except ProtocolError:
            return
        if isinstance(reply, Reply):
            self.replies.append(reply)

    def member(self, who: int) -> tuple[str, str | None]:
        """Return id and instance id of a current member, of a former one, or unknown ones."""
        group = self.lab.shard.groups.get("group")
        members = [] if group is None else list(group.members.values())
        if who < len(members):
            return members[who].member_id, members[who].instance_id
        return (self.known[who % len(self.known)] if self.known else "nobody"), None

    @property
    def generation(self) -> int:
        group = self.lab.shard.groups.get("group")
        return 0 if group is None else group.generation

    @rule(partition=PARTITIONS, offset=st.integers(0, 100), retention_ms=st.sampled_from([None, 5000]))
    def store_only(self, partition: TopicPartition, offset: int, retention_ms: int | None) -> None:
        self.ask(self.lab.commit, {partition: OffsetToCommit(offset=offset, retention_ms=retention_ms)})

    @rule(who=WHO, producer_id=PRODUCERS, partition=PARTITIONS, offset=st.integers(0, 100), names_member=st.booleans())
    def commit_transactional(
        self, who: int, producer_id: int, partition: TopicPartition, offset: int, names_member: bool
    ) -> None:
        member_id, instance_id = self.member(who) if names_member else ("", None)
        self.ask(
            self.lab.commit_transactional,
            {partition: OffsetToCommit(offset=offset)},
            member_id,
            self.generation if names_member else -1,
            producer_id=producer_id,
            instance_id=instance_id,
        )

    @rule(partition=PARTITIONS)
    def delete_offset(self, partition: TopicPartition) -> None:
        self.ask(self.lab.delete_offsets, partition)

    @rule(partition=PARTITIONS)
    def partition_is_deleted(self, partition: TopicPartition) -> None:
        self.lab.shard.forget_partitions(frozenset({partition}))

    @rule()
    def delete(self) -> None:
        reply: Reply[None] = Reply()
        self.ask(self.lab.shard.delete, "group", reply)

    # What happens to them

    @rule(delay_ms=DELAYS_MS)
    def time_passes(self, delay_ms: int) -> None:
        self.lab.clock.advance(delay_ms)

    @rule()
    def offsets_expire(self) -> None:
        self.lab.shard.expire()

    @rule()
    def one_append_commits(self) -> None:
        if self.lab.log.waiting:
            self.lab.log.commit_next()

    @rule()
    def one_append_is_written(self) -> None:
        if self.lab.log.waiting:
            self.lab.log.write_next()

    @rule()
    def one_result_arrives(self) -> None:
        if self.lab.log.untold:
            self.lab.log.tell_next()

    @rule(producer_id=PRODUCERS, is_commit=st.booleans(), is_told=st.booleans())
    def transaction_ends(self, producer_id: int, is_commit: bool, is_told: bool) -> None:
        offset = self.lab.log.write_marker(producer_id, is_commit=is_commit)
        self.markers.append((producer_id, is_commit, offset))
        while is_told and self.markers:
            self.marker_is_completed()

    @rule()
    def marker_is_completed(self) -> None:
        if self.markers:
            marker = self.markers.pop(0)
            self.lab.shard.complete_transaction(*marker)
            self.told.append(marker)

    @rule(data=st.data())
    def marker_is_completed_again(self, data: st.DataObject) -> None:
        if self.told:
            self.lab.shard.complete_transaction(*data.draw(st.sampled_from(self.told)))

    @rule()
    def appends_commit(self) -> None:
        self.lab.log.settle()

    @rule()
    def appends_fail(self) -> None:
        # As in Kafka, an empty generation that cannot be stored is only logged; the stored state then differs.
        if not any(self.is_empty_generation(records) for records, _, _ in self.lab.log.waiting):
            for _ in range(len(self.lab.log.waiting)):
                self.lab.log.fail_next(NotEnoughReplicasError("no"))

    @staticmethod
    def is_empty_generation(records: Any) -> bool:
        return any(
            isinstance(decode_key(key), GroupKey) and value is not None and not decode_group_value(value).members
            for key, value in records
        )

    @rule()
    def partition_moves(self) -> None:
        self.lab.log.settle()
        waiting = [reply for reply in self.replies if reply.is_parked]
        self.lab.reload()
        assert not any(reply.is_parked for reply in waiting)

    # What must hold

    @invariant()
    def reloaded_state_is_the_state(self) -> None:
        if self.lab.log.waiting or self.lab.log.untold or self.markers:
            return
        shard = self.lab.load()
        loaded, present = visible(shard), visible(self.lab.shard)
        group = self.lab.shard.groups.get("group")
        if group is not None and group.state not in (GroupState.STABLE, GroupState.EMPTY):
            assert loaded.get("group", ({},))[0] == present.get("group", ({},))[0]
        else:
            assert loaded == present
        shard.on_unloaded()

    @invariant()
    def the_group_is_sound(self) -> None:
        group = self.lab.shard.groups.get("group")
        for reply in self.replies:
            assert reply.count <= 1
        if group is None:
            return
        members = list(group.members.values())
        self.known += [member.member_id for member in members if member.member_id not in self.known]
        assert (group.leader_id in group.members) == bool(members)
        assert group.awaiting_join == sum(member.answer_join is not None for member in members)
        assert group.pending_sync <= set(group.members)
        statics = {member.instance_id: member.member_id for member in members if member.instance_id is not None}
        assert group.static_members == statics
        if group.state in (GroupState.EMPTY, GroupState.DEAD):
            assert not members
        if group.state is GroupState.COMPLETING_REBALANCE:
            assert members and group.protocol_name is not None

    def teardown(self) -> None:
        self.lab.log.settle()
        while self.markers:
            self.marker_is_completed()
        self.lab.log.settle()
        self.reloaded_state_is_the_state()
        self.lab.shard.on_unloaded()
        assert self.lab.heartbeats.size == self.lab.rebalances.size == 0
        assert not any(reply.is_parked for reply in self.replies)


class GroupHistory(OffsetHistory):
    """Members that join, commit and leave, too."""

    @rule(instance_id=INSTANCES, protocols=PROTOCOLS, known=st.booleans(), skips=st.booleans())
    def join(self, instance_id: str | None, protocols: Any, known: bool, skips: bool) -> None:
        self.ask(
            self.lab.join,
            instance_id=instance_id,
            protocols=protocols,
            requires_known_member_id=known and instance_id is None,
            supports_skipping_assignment=skips,
        )

    @rule(who=WHO, protocols=PROTOCOLS)
    def join_again(self, who: int, protocols: Any) -> None:
        member_id, instance_id = self.member(who)
        self.ask(self.lab.join, member_id, instance_id=instance_id, protocols=protocols)

    @rule()
    def all_join(self) -> None:
        for who in range(6):
            member_id, instance_id = self.member(who)
            self.ask(self.lab.join, member_id, instance_id=instance_id)

    @rule(who=WHO)
    def sync(self, who: int) -> None:
        member_id, instance_id = self.member(who)
        group = self.lab.shard.groups.get("group")
        ids = [] if group is None else list(group.members)
        assignments = {other: f"{self.generation} of {other}".encode() for other in ids}
        self.ask(self.lab.sync, member_id, self.generation, assignments, instance_id=instance_id)

    @rule(who=WHO, late=st.integers(0, 1))
    def heartbeat(self, who: int, late: int) -> None:
        member_id, instance_id = self.member(who)
        self.ask(self.lab.heartbeat, member_id, self.generation - late, instance_id)

    @rule(who=WHO)
    def leave(self, who: int) -> None:
        member_id, instance_id = self.member(who)
        self.ask(self.lab.leave, LeavingMember(member_id=member_id, instance_id=instance_id))

    @rule(who=WHO, partition=PARTITIONS, offset=st.integers(0, 100))
    def commit(self, who: int, partition: TopicPartition, offset: int) -> None:
        member_id, _ = self.member(who)
        self.ask(self.lab.commit, {partition: OffsetToCommit(offset=offset)}, member_id, self.generation)


TestOffsetHistory = OffsetHistory.TestCase
TestOffsetHistory.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestGroupHistory = GroupHistory.TestCase
TestGroupHistory.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
