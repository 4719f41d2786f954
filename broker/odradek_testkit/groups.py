"""The group coordinator in memory: a shard on a manual clock, with a log that the test commits or fails.

`GroupLab` plays members of groups without a thread, a task or a socket: requests give a `Reply` that is filled when the
coordinator answers, `settle` commits what was appended, `lab.clock.advance` lets time pass, `reload` moves the
partition. `MemoryPartition` is a partition for the runtime, as writer and reader. `logged` is what a log amounts to.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from odradek.base.errors import ProtocolError
from odradek.base.types import Offset, TopicPartition
from odradek.coordinator.classic_group import ClassicGroup
from odradek.coordinator.coordinator_ports import KeyValue
from odradek.coordinator.delayed_rebalances import DelayedHeartbeat, DelayedRebalance
from odradek.coordinator.group_requests import (
    CommitRequest,
    FetchedOffset,
    GroupSettings,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    MemberCheck,
    OffsetToCommit,
    SyncRequest,
    SyncResult,
)
from odradek.coordinator.shard import GroupShard
from odradek.records.v2.batch import BatchBuilder, read_header
from odradek.timer.purgatory import Purgatory
from odradek_testkit.loop import ManualClock

T = TypeVar("T")

SETTINGS: Final = GroupSettings(
    min_session_timeout_ms=6000,
    max_session_timeout_ms=1_800_000,
    initial_rebalance_delay_ms=3000,
    max_size=100,
    offset_metadata_max=4096,
    offsets_retention_ms=7 * 24 * 3_600_000,
    retention_check_interval_ms=600_000,
)
SESSION_MS: Final = 10_000
REBALANCE_MS: Final = 60_000
RANGE: Final = (("range", b"\x00\x00\x00\x00\x00\x01\x00\x06events\xff\xff\xff\xff"),)
"""A consumer's subscription to the topic `events`, for the assignor `range`."""


class Reply(Generic[T]):
    """The answer to a request, once it is there."""

    def __init__(self) -> None:
        """Not answered yet."""
        self._answers: list[T | ProtocolError] = []

    def __call__(self, answer: T | ProtocolError) -> None:
        """Take the answer."""
        self._answers.append(answer)
        if len(self._answers) > 1:
            raise AssertionError(f"answered more than once: {self._answers}")

    @property
    def count(self) -> int:
        """How often it was answered."""
        return len(self._answers)

    @property
    def is_parked(self) -> bool:
        """No answer yet."""
        return not self._answers

    @property
    def value(self) -> T:
        """The answer; an error is raised, and so is the lack of one."""
        if not self._answers:
            raise AssertionError("not answered yet")
        answer = self._answers[0]
        if isinstance(answer, ProtocolError):
            raise answer
        return answer


class MemoryLog:
    """`RecordLog` whose appends wait until the test decides on them."""

    def __init__(self) -> None:
        """Empty."""
        self.record_sets: list[bytes] = []
        self.next_offset = 0
        self.waiting: list[tuple[Sequence[KeyValue], Callable[[Offset | ProtocolError], None]]] = []

    def append(self, records: Sequence[KeyValue], done: Callable[[Offset | ProtocolError], None]) -> None:
        """Queue records."""
        self.waiting.append((records, done))

    def commit_next(self) -> None:
        """Write and commit the oldest queued append."""
        records, done = self.waiting.pop(0)
        builder = BatchBuilder(limit_bytes=1 << 20)
        for key, value in records:
            builder.append(key, value, timestamp_ms=0)
        offset = self.next_offset
        self.record_sets.append(builder.build(base_offset=offset, leader_epoch=0))
        self.next_offset += len(records)
        done(Offset(offset))

    def fail_next(self, error: ProtocolError) -> None:
        """Refuse the oldest queued append; nothing is written."""
        _, done = self.waiting.pop(0)
        done(error)

    def settle(self) -> None:
        """Commit everything, also what the commits lead to."""
        while self.waiting:
            self.commit_next()


@dataclass
class GroupLab:
    """One shard, and the members that talk to it."""

    settings: GroupSettings = SETTINGS
    group_id: str = "group"
    clock: ManualClock = field(default_factory=ManualClock)
    log: MemoryLog = field(default_factory=MemoryLog)

    def __post_init__(self) -> None:
        """Start with an empty partition."""
        self.heartbeats: Purgatory[DelayedHeartbeat] = Purgatory(self.clock, "heartbeat")
        self.rebalances: Purgatory[DelayedRebalance] = Purgatory(self.clock, "rebalance")
        self.shard = self.load()

    def load(self) -> GroupShard:
        """A shard with what the log holds now; the present one is left as it is."""
        shard = GroupShard(
            settings=self.settings,
            clock=self.clock,
            log=self.log,
            heartbeats=self.heartbeats,
            rebalances=self.rebalances,
        )
        for records in self.log.record_sets:
            for _ in shard.replay(records):
                pass
        shard.on_loaded()
        return shard

    def reload(self) -> None:
        """Move the partition away and back."""
        self.shard.on_unloaded()
        self.shard = self.load()

    @property
    def group(self) -> ClassicGroup:
        """The group of the lab."""
        return self.shard.groups[self.group_id]

    def join(self, member_id: str = "", **changes: Any) -> Reply[JoinResult]:
        """JoinGroup of a consumer."""
        options: dict[str, Any] = {
            "group_id": self.group_id,
            "client_id": "client",
            "client_host": "/127.0.0.1",
            "rebalance_timeout_ms": REBALANCE_MS,
            "session_timeout_ms": SESSION_MS,
            "protocol_type": "consumer",
            "protocols": RANGE,
        }
        reply: Reply[JoinResult] = Reply()
        self.shard.join(JoinRequest(member_id=member_id, **(options | changes)), reply)
        return reply

    def check(self, member_id: str, generation: int, instance_id: str | None = None) -> MemberCheck:
        """Who asks, in the lab's group."""
        return MemberCheck(group_id=self.group_id, member_id=member_id, instance_id=instance_id, generation=generation)

    def sync(
        self, member_id: str, generation: int, assignments: Mapping[str, bytes] | None = None, **changes: Any
    ) -> Reply[SyncResult]:
        """SyncGroup; of the leader with assignments."""
        instance_id = changes.pop("instance_id", None)
        reply: Reply[SyncResult] = Reply()
        check = self.check(member_id, generation, instance_id)
        self.shard.sync(SyncRequest(member=check, assignments=assignments or {}, **changes), reply)
        return reply

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> None:
        """Heartbeat; raises what the member has to do."""
        self.shard.heartbeat(self.check(member_id, generation, instance_id))

    def leave(self, *members: LeavingMember) -> list[LeaveResult]:
        """LeaveGroup."""
        return self.shard.leave(self.group_id, members)

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetToCommit], member_id: str = "", generation: int = -1
    ) -> Reply[Mapping[TopicPartition, int]]:
        """OffsetCommit."""
        reply: Reply[Mapping[TopicPartition, int]] = Reply()
        self.shard.commit(CommitRequest(member=self.check(member_id, generation), offsets=offsets), reply)
        return reply

    def fetch(
        self, wanted: Sequence[TopicPartition] | None = None, *, require_stable: bool = False
    ) -> dict[TopicPartition, FetchedOffset]:
        """OffsetFetch."""
        return self.shard.fetch(self.group_id, wanted, require_stable=require_stable)

    def delete_offsets(self, *wanted: TopicPartition) -> Reply[Mapping[TopicPartition, int]]:
        """OffsetDelete."""
        reply: Reply[Mapping[TopicPartition, int]] = Reply()
        self.shard.delete_offsets(self.group_id, wanted, reply)
        return reply

    def form(self, *instance_ids: str | None) -> list[str]:
        """A stable group with one member for each argument, static ones where it is an id; their member ids."""
        replies = [self.join(instance_id=instance_id) for instance_id in instance_ids]
        while any(reply.is_parked for reply in replies):
            self.clock.advance(self.settings.initial_rebalance_delay_ms)
        member_ids = [reply.value.member_id for reply in replies]
        leader, generation = replies[0].value.leader, replies[0].value.generation
        assignments = {member_id: b"assigned to " + member_id.encode() for member_id in member_ids}
        for member_id in sorted(member_ids, key=lambda other: other == leader):
            self.sync(member_id, generation, assignments if member_id == leader else None)
        self.log.settle()
        return member_ids


def visible(shard: GroupShard) -> dict[str, Any]:
    """What of a shard must survive a reload: offsets, and generations with their members and assignments.

    A group in the middle of a rebalance comes back as its last stored generation, so only its offsets count; a group
    with neither a generation nor an offset has left no trace.
    """
    state: dict[str, Any] = {}
    for group_id, group in shard.groups.items():
        committed = dict(group.offsets.committed())
        if group.generation and group.state.value in ("Stable", "Empty"):
            value = group.value({member.member_id: member.assignment for member in group.members.values()})
            members = sorted(value.members, key=lambda member: member.member_id)
            state[group_id] = (committed, value.generation, value.protocol_type, value.protocol, value.leader, members)
        elif committed:
            state[group_id] = (committed,)
    return state


class MemoryPartition:
    """`PartitionWriter` and `PartitionReader` of one partition."""

    def __init__(self) -> None:
        """Empty; appends succeed at once."""
        self.record_sets: list[bytes] = []
        self.next_offset = 0
        self.appends = 0
        self.failures: list[BaseException] = []
        """Errors of the next appends, the first one first."""
        self.read_failures: list[BaseException] = []
        self.before_append: Callable[[], Any] | None = None
        """Awaited before each append takes place."""
        self.before_read: Callable[[], Any] | None = None

    async def append(self, topic_partition: TopicPartition, records: bytes) -> Offset:
        """Append and commit."""
        self.appends += 1
        if self.before_append is not None:
            await self.before_append()
        if self.failures:
            raise self.failures.pop(0)
        offset = self.next_offset
        self.record_sets.append(records)
        self.next_offset += read_header(records).record_count
        return Offset(offset)

    async def read(self, topic_partition: TopicPartition) -> AsyncIterator[bytes]:
        """All that was appended, or a failure."""
        if self.before_read is not None:
            await self.before_read()
        for records in list(self.record_sets):
            yield records
        if self.read_failures:
            raise self.read_failures.pop(0)
