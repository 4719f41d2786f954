"""The group coordinator in memory: a shard on a manual clock, with a log whose appends the test commits or fails.

`GroupLab` acts as the members of groups, without threads, tasks or sockets. A request returns a `Reply` that is set
when the coordinator answers. `settle` commits the appended records, `lab.clock.advance` advances the time, `reload`
moves the partition to another coordinator, and `end` ends a transaction. `MemoryPartition` is a partition for the
runtime, as writer and reader. `visible` returns the durable state of a shard.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar
from uuid import NAMESPACE_DNS, uuid5

from odradek.base.errors import ProtocolError
from odradek.base.types import NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, Offset, TopicPartition
from odradek.cluster import ClusterImage, PartitionMetadata
from odradek.coordinator.coordinator_ports import KeyValue, TransactionalWriter
from odradek.coordinator.groups.classic.classic_group import ClassicGroup
from odradek.coordinator.groups.classic.delayed_rebalances import DelayedHeartbeat, DelayedRebalance
from odradek.coordinator.groups.consumer.cluster_topics import ClusterTopics
from odradek.coordinator.groups.consumer.consumer_group import ConsumerGroup
from odradek.coordinator.groups.consumer.consumer_values import NEW_GROUP, HeartbeatResult, MemberHeartbeat
from odradek.coordinator.groups.group_events import GroupEvents
from odradek.coordinator.groups.group_requests import (
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
    TransactionalCommitRequest,
)
from odradek.coordinator.groups.group_shard import GroupShard
from odradek.records.v2.batch import BatchBuilder, ControlType, read_header
from odradek.records.v2.transactions import marker_batch
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
"""The protocols of a consumer that subscribes to the topic `events` with the assignor `range`."""


class Reply(Generic[T]):
    """The answer to a request, once it has arrived."""

    def __init__(self) -> None:
        """Create a reply without an answer."""
        self._answers: list[T | ProtocolError] = []

    def __call__(self, answer: T | ProtocolError) -> None:
        """Receive the answer."""
        self._answers.append(answer)
        if len(self._answers) > 1:
            raise AssertionError(f"answered more than once: {self._answers}")

    @property
    def count(self) -> int:
        """Number of answers received."""
        return len(self._answers)

    @property
    def is_parked(self) -> bool:
        """Whether there is no answer yet."""
        return not self._answers

    @property
    def value(self) -> T:
        """Return the answer. Raises it if it is an error, and `AssertionError` if there is none."""
        if not self._answers:
            raise AssertionError("not answered yet")
        answer = self._answers[0]
        if isinstance(answer, ProtocolError):
            raise answer
        return answer


class MemoryLog:
    """A `RecordLog` whose appends wait until the test commits or refuses them.

    Committing has two steps, so that other events can happen between them: the records are written, and the caller is
    told.
    """

    def __init__(self) -> None:
        """Empty."""
        self.record_sets: list[bytes] = []
        self.next_offset = 0
        self.leader_epoch = 0
        self.waiting: list[
            tuple[Sequence[KeyValue], Callable[[Offset | ProtocolError], None], TransactionalWriter | None]
        ] = []
        self.untold: list[tuple[Callable[[Offset | ProtocolError], None], Offset | ProtocolError]] = []
        """Appends whose records are written and whose results have not been delivered."""

    def append(
        self,
        records: Sequence[KeyValue],
        done: Callable[[Offset | ProtocolError], None],
        transaction: TransactionalWriter | None = None,
    ) -> None:
        """Queue records."""
        self.waiting.append((records, done, transaction))

    def commit_next(self, error: ProtocolError | None = None) -> None:
        """Write the oldest queued append, and deliver its result and those of earlier ones.

        With an `error`, the caller gets this, and does not learn that the records are written.
        """
        self.write_next(error)
        while self.untold:
            self.tell_next()

    def tell_next(self) -> None:
        """Deliver the result of the oldest append that was written."""
        done, outcome = self.untold.pop(0)
        done(outcome)

    def write_next(self, error: ProtocolError | None = None) -> None:
        """Write the oldest queued append. Its result is its offset, or the `error`."""
        records, done, transaction = self.waiting.pop(0)
        builder = BatchBuilder(limit_bytes=1 << 20)
        for key, value in records:
            builder.append(key, value, timestamp_ms=0)
        offset = self.next_offset
        self.record_sets.append(
            builder.build(
                base_offset=offset,
                leader_epoch=0,
                producer_id=NO_PRODUCER_ID if transaction is None else transaction.producer_id,
                producer_epoch=NO_EPOCH if transaction is None else transaction.producer_epoch,
                base_sequence=NO_SEQUENCE if transaction is None else 0,
                is_transactional=transaction is not None,
            )
        )
        self.next_offset += len(records)
        self.untold.append((done, Offset(offset) if error is None else error))

    def write_marker(self, producer_id: int, *, is_commit: bool) -> Offset:
        """Write a marker that ends a producer's transaction, after the appends that are written. Return its offset."""
        offset = Offset(self.next_offset)
        self.record_sets.append(
            marker_batch(
                ControlType.COMMIT if is_commit else ControlType.ABORT,
                producer_id=producer_id,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp_ms=0,
                base_offset=offset,
            )
        )
        self.next_offset += 1
        return offset

    def fail_next(self, error: ProtocolError) -> None:
        """Refuse the oldest queued append, which writes nothing."""
        while self.untold:
            self.tell_next()
        _, done, _ = self.waiting.pop(0)
        done(error)

    def settle(self) -> None:
        """Commit all queued appends, including those that the commits cause."""
        while self.waiting or self.untold:
            if self.untold:
                self.tell_next()
            else:
                self.commit_next()


@dataclass
class GroupLab:
    """One shard and the members that send requests to it."""

    settings: GroupSettings = SETTINGS
    group_id: str = "group"
    clock: ManualClock = field(default_factory=ManualClock)
    log: MemoryLog = field(default_factory=MemoryLog)

    image: ClusterImage = field(default_factory=ClusterImage)
    """The topics of the cluster."""

    def __post_init__(self) -> None:
        """Start with an empty partition."""
        self.heartbeats: Purgatory[DelayedHeartbeat] = Purgatory(self.clock, "Heartbeat")
        self.rebalances: Purgatory[DelayedRebalance] = Purgatory(self.clock, "Rebalance")
        self.events = GroupEvents()
        self.shard = self.load()

    def load(self) -> GroupShard:
        """Return a new shard loaded from the log; the current shard does not change."""
        shard = GroupShard(
            settings=self.settings,
            clock=self.clock,
            log=self.log,
            heartbeats=self.heartbeats,
            rebalances=self.rebalances,
            topics=ClusterTopics(lambda: self.image),
            events=self.events,
        )
        for records in self.log.record_sets:
            for _ in shard.replay(records):
                pass
        shard.on_loaded()
        return shard

    def reload(self) -> None:
        """Move the partition to another coordinator and back."""
        self.shard.on_unloaded()
        self.shard = self.load()

    def replayed(self) -> dict[str, Any]:
        """Return the `visible` state that another coordinator would load from the log."""
        shard = self.load()
        state = visible(shard)
        shard.on_unloaded()  # Otherwise its timers would write, too.
        return state

    @property
    def group(self) -> ClassicGroup:
        """The group of this lab, if it is a classic group."""
        group = self.shard.groups[self.group_id]
        assert isinstance(group, ClassicGroup)
        return group

    @property
    def consumer_group(self) -> ConsumerGroup:
        """The group of this lab, if it is a consumer group."""
        group = self.shard.groups[self.group_id]
        assert isinstance(group, ConsumerGroup)
        return group

    def join(self, member_id: str = "", **changes: Any) -> Reply[JoinResult]:
        """Send JoinGroup as a consumer."""
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
        """Return the identity of a member in the lab's group."""
        return MemberCheck(group_id=self.group_id, member_id=member_id, instance_id=instance_id, generation=generation)

    def sync(
        self, member_id: str, generation: int, assignments: Mapping[str, bytes] | None = None, **changes: Any
    ) -> Reply[SyncResult]:
        """Send SyncGroup; as the leader, with assignments."""
        instance_id = changes.pop("instance_id", None)
        reply: Reply[SyncResult] = Reply()
        check = self.check(member_id, generation, instance_id)
        self.shard.sync(SyncRequest(member=check, assignments=assignments or {}, **changes), reply)
        return reply

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> None:
        """Send a heartbeat. Raises the error that says what the member has to do."""
        self.shard.heartbeat(self.check(member_id, generation, instance_id))

    def leave(self, *members: LeavingMember) -> list[LeaveResult]:
        """LeaveGroup of members of a classic group, which is answered at once."""
        reply: Reply[list[LeaveResult]] = Reply()
        self.shard.leave(self.group_id, members, reply)
        return reply.value

    def consumer_heartbeat(self, member_id: str, epoch: int, **changes: Any) -> Reply[HeartbeatResult]:
        """Send ConsumerGroupHeartbeat; with epoch 0 as a consumer that joins and subscribes to the topic `events`."""
        joining: dict[str, Any] = {
            "rebalance_timeout_ms": REBALANCE_MS,
            "topics": frozenset({"events"}),
            "owned": {},
        }
        may_describe = changes.pop("may_describe", lambda _: True)
        options = (joining if epoch == 0 else {}) | changes
        reply: Reply[HeartbeatResult] = Reply()
        request = MemberHeartbeat(group_id=self.group_id, member_id=member_id, epoch=epoch, **options)
        self.shard.consumer_heartbeat(request, reply, may_describe)
        return reply

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetToCommit], member_id: str = "", generation: int = -1
    ) -> Reply[Mapping[TopicPartition, int]]:
        """OffsetCommit."""
        reply: Reply[Mapping[TopicPartition, int]] = Reply()
        self.shard.commit(CommitRequest(member=self.check(member_id, generation), offsets=offsets), reply)
        return reply

    def commit_transactional(
        self,
        offsets: Mapping[TopicPartition, OffsetToCommit],
        member_id: str = "",
        generation: int = -1,
        *,
        producer_id: int = 7,
        instance_id: str | None = None,
    ) -> Reply[Mapping[TopicPartition, int]]:
        """TxnOffsetCommit."""
        reply: Reply[Mapping[TopicPartition, int]] = Reply()
        request = TransactionalCommitRequest(
            member=self.check(member_id, generation, instance_id),
            writer=TransactionalWriter(f"producer-{producer_id}", producer_id, 0),
            offsets=offsets,
        )
        self.shard.commit_transactional(request, reply)
        return reply

    def end(self, producer_id: int = 7, *, is_commit: bool = True) -> None:
        """End a producer's transaction with a marker."""
        offset = self.log.write_marker(producer_id, is_commit=is_commit)
        self.shard.complete_transaction(producer_id, is_commit, offset)

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
        """Form a stable group with a member for each argument, static if it is an id. Returns the member ids."""
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


def image_of(**partition_counts: int) -> ClusterImage:
    """Return a cluster of one broker that has these topics."""
    state = PartitionMetadata(leader=1, leader_epoch=0, isr=(1,), replicas=(1,))
    return ClusterImage().updated(
        controller_id=1,
        brokers=(),
        partitions=[
            (TopicPartition(name, partition), uuid5(NAMESPACE_DNS, name), state)
            for name, count in partition_counts.items()
            for partition in range(count)
        ],
    )


def visible(shard: GroupShard) -> dict[str, Any]:
    """Return the state of a shard that must survive a reload: offsets, those of open transactions by producer id and
    partition, and generations with members and assignments.

    A group that is rebalancing is reloaded with its last stored generation, so only its offsets are compared. A group
    without a generation and without offsets is not stored.
    """
    state: dict[str, Any] = {}
    for group_id, group in shard.groups.items():
        committed: dict[Any, Any] = dict(group.offsets.committed())
        for producer_id, offsets in group.offsets.open_transactions.items():
            committed |= {(producer_id, partition): entries[-1] for partition, entries in offsets.items()}
        if isinstance(group, ConsumerGroup) and group.state != NEW_GROUP:
            state[group_id] = (committed, group.state)
            continue
        if isinstance(group, ConsumerGroup):
            if committed:
                state[group_id] = (committed,)
            continue
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
        """Create an empty partition whose appends succeed at once."""
        self.record_sets: list[bytes] = []
        self.next_offset = 0
        self.appends = 0
        self.failures: list[BaseException] = []
        """Errors that the next appends raise, in order."""
        self.read_failures: list[BaseException] = []
        self.before_append: Callable[[], Any] | None = None
        """Awaited before each append."""
        self.transactions: list[TransactionalWriter | None] = []
        """The transaction of each append."""
        self.before_read: Callable[[], Any] | None = None

    async def append(
        self, topic_partition: TopicPartition, records: bytes, transaction: TransactionalWriter | None = None
    ) -> Offset:
        """Append and commit."""
        self.appends += 1
        self.transactions.append(transaction)
        if self.before_append is not None:
            await self.before_append()
        if self.failures:
            raise self.failures.pop(0)
        offset = self.next_offset
        self.record_sets.append(records)
        self.next_offset += read_header(records).record_count
        return Offset(offset)

    async def read(self, topic_partition: TopicPartition) -> AsyncIterator[bytes]:
        """Return everything that was appended, or raise the set failure."""
        if self.before_read is not None:
            await self.before_read()
        for records in list(self.record_sets):
            yield records
        if self.read_failures:
            raise self.read_failures.pop(0)
