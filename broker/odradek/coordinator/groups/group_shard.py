"""The groups of one `__consumer_offsets` partition: finds the group of each request, and writes its records.

The runtime creates a shard for each partition that this broker leads, replays the log into it, and drops it when the
partition moves. `group_coordinator` runs requests on it. All methods are synchronous and run on the event loop, one at
a time. Invariant: when every queued append has a result, the visible state is the same as after another replay of the
log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from odradek.base.errors import (
    GroupIdNotFoundError,
    IllegalGenerationError,
    NonEmptyGroupError,
    NotCoordinatorError,
    ProtocolError,
    UnknownMemberIdError,
)
from odradek.base.ports import Clock
from odradek.base.types import Offset, TopicPartition
from odradek.coordinator.coordinator_ports import KeyValue, RecordLog, Respond
from odradek.coordinator.groups.classic.classic_group import ClassicGroup, GroupState
from odradek.coordinator.groups.classic.delayed_rebalances import Heartbeats, Rebalances
from odradek.coordinator.groups.classic.membership import Membership
from odradek.coordinator.groups.classic.rebalancing import Rebalancer
from odradek.coordinator.groups.consumer.cluster_topics import ClusterTopics
from odradek.coordinator.groups.consumer.consumer_group import ConsumerGroup, ConsumerGroupServices
from odradek.coordinator.groups.consumer.consumer_values import (
    NEW_GROUP,
    ConsumerGroupImage,
    DescribedConsumerGroup,
    HeartbeatResult,
    MemberHeartbeat,
    RuleContext,
)
from odradek.coordinator.groups.conversions import Conversions
from odradek.coordinator.groups.group_events import GroupEvents
from odradek.coordinator.groups.group_records import GroupKey, encode_group_key
from odradek.coordinator.groups.group_replay import Replay
from odradek.coordinator.groups.group_requests import (
    UNKNOWN_MEMBER_ID,
    CommitRequest,
    DescribedGroup,
    FetchedOffset,
    GroupSettings,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    MemberCheck,
    SyncRequest,
    SyncResult,
    TransactionalCommitRequest,
)
from odradek.coordinator.groups.offset_commits import CommitResult, OffsetCommits, client_error, tombstones
from odradek.coordinator.groups.transactional_offsets import TransactionalOffsets

logger = logging.getLogger(__name__)


class GroupShard:
    """The state machine of one partition."""

    def __init__(
        self,
        *,
        settings: GroupSettings,
        clock: Clock,
        log: RecordLog,
        heartbeats: Heartbeats,
        rebalances: Rebalances,
        topics: ClusterTopics,
        events: GroupEvents,
    ) -> None:
        """All partitions of a broker share the purgatories, the topics and the counts of events."""
        self.groups: Final[dict[str, ClassicGroup | ConsumerGroup]] = {}
        self._clock = clock
        self._log = log
        self._events = events
        self._replay: Replay | None = Replay()
        self._rebalancer = Rebalancer(
            settings=settings, clock=clock, log=log, heartbeats=heartbeats, rebalances=rebalances, events=events
        )
        services = ConsumerGroupServices(
            settings=settings.consumer,
            clock=clock,
            log=log,
            topics=topics,
            events=events,
            classic_max_size=settings.max_size,
            group_value_version=settings.group_value_version,
            on_downgrade=lambda group, state, value: self._conversions.downgrade(group, state, value),
        )
        self._conversions: Final = Conversions(
            groups=self.groups, services=services, rebalancer=self._rebalancer, clock=clock
        )
        self._membership = Membership(settings=settings, clock=clock, rebalancer=self._rebalancer)
        self._offsets = OffsetCommits(settings=settings, clock=clock, log=log, events=events)
        self._transactional = TransactionalOffsets(
            settings=settings, clock=clock, log=log, groups=self.groups, events=events
        )

    # Loading and unloading

    def replay(self, records: bytes) -> Iterator[int]:
        """Apply a record set of the log. See `Replay.read`."""
        if self._replay is None:
            raise RuntimeError("the partition is already loaded")
        return self._replay.read(records)

    def on_loaded(self) -> None:
        """Create the groups in the log, and start to wait for heartbeats of their members."""
        replay, self._replay = self._replay, None
        if replay is not None:
            self._restore(replay)

    def _restore(self, replay: Replay) -> None:
        now_ms = self._clock.wall_ms()
        for group_id, value in replay.groups.items():
            try:
                self.groups[group_id] = ClassicGroup.loaded(group_id, value, now_ms)
            except ValueError as error:
                replay.unreadable += 1
                logger.error("the record of group %r is inconsistent and is skipped: %s", group_id, error)
        for group_id, builder in replay.consumer_groups.items():
            self._conversions.load(group_id, builder.build())
        for group_id, committed in replay.offsets.items():
            if committed:
                self._group(group_id).offsets.take(committed)
        for producer_id, offsets in replay.transactions.items():
            for (group_id, topic_partition), entry in offsets.items():
                self._transactional.restore(self._group(group_id), producer_id, topic_partition, entry)
        for group in list(self.groups.values()):
            if isinstance(group, ClassicGroup):
                self._rebalancer.on_loaded(group)
        logger.info(
            "loaded %d groups and %d offsets; skipped %d records of unknown types and %d that cannot be read",
            len(self.groups),
            sum(map(len, replay.offsets.values())),
            replay.unknown_keys,
            replay.unreadable,
        )

    def on_unloaded(self) -> None:
        """End all groups. Waiting requests get an error that makes clients look up the new coordinator."""
        moved = NotCoordinatorError("The group has moved to another broker.")
        for group in list(self.groups.values()):
            self._end(group, moved)
        self.groups.clear()

    def _end(self, group: ClassicGroup | ConsumerGroup, error: ProtocolError) -> None:
        if isinstance(group, ConsumerGroup):
            group.close(error)
        else:
            self._rebalancer.kill(group, error)

    def _group(self, group_id: str) -> ClassicGroup | ConsumerGroup:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id, self._clock.wall_ms())
        return group

    def _member_group(self, group_id: str) -> ClassicGroup | ConsumerGroup:
        """Return the group of a classic member. Raises `UnknownMemberIdError` if it does not exist."""
        group = self.groups.get(group_id)
        if group is None:
            raise UnknownMemberIdError(f"Group {group_id!r} does not exist.")
        return group

    def _known_group(self, group_id: str) -> ClassicGroup | ConsumerGroup:
        group = self.groups.get(group_id)
        if group is None:
            raise GroupIdNotFoundError(f"Group {group_id!r} does not exist.")
        return group

    # Members

    def join(self, request: JoinRequest, respond: Respond[JoinResult]) -> None:
        """Handle JoinGroup. A member without an id creates the group if it does not exist. An empty consumer group
        becomes a classic group. In a consumer group with members, it becomes a classic member."""
        is_unknown = request.member_id == UNKNOWN_MEMBER_ID
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            group.join(request, self._membership.new_member_id(request), respond)
            return
        if isinstance(group, ConsumerGroup) and is_unknown:
            self._join_instead(group, request, respond)
            return
        if isinstance(group, ConsumerGroup) or (group is None and not is_unknown):
            raise UnknownMemberIdError(f"Group {request.group_id!r} has no member with the id {request.member_id!r}.")
        classic = group
        if classic is None:
            classic = self.groups[request.group_id] = ClassicGroup(request.group_id, self._clock.wall_ms())
        try:
            self._membership.join(classic, request, respond)
        finally:
            self._drop_if_unused(classic)

    def _join_instead(self, group: ConsumerGroup, request: JoinRequest, respond: Respond[JoinResult]) -> None:
        """Let a member join when the records of an empty consumer group are removed, and the group is classic."""

        def reset(error: ProtocolError | None) -> None:
            if error is not None and not isinstance(error, NonEmptyGroupError):
                respond(error)
                return
            try:
                self.join(request, respond)
            except ProtocolError as refusal:
                respond(refusal)

        self._reset(group, (), reset)

    def _drop_if_unused(self, group: ClassicGroup | ConsumerGroup) -> None:
        """Drop a group that a rejected request has created. It has no record in the log."""
        if group.is_unused and self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]

    def consumer_heartbeat(
        self,
        request: MemberHeartbeat,
        respond: Respond[HeartbeatResult],
        may_describe: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Handle ConsumerGroupHeartbeat. The first member creates the group; a classic group of consumers becomes one.

        `may_describe`: whether the client may see a topic. Raises `GroupIdNotFoundError` if the group does not exist or
        may not become a consumer group.
        """
        group = self.groups.get(request.group_id)
        if not isinstance(group, ConsumerGroup):
            group = self._conversions.joined_by_consumer(group, request, may_describe)
        group.heartbeat(request, respond, may_describe)

    def sync(self, request: SyncRequest, respond: Respond[SyncResult]) -> None:
        """SyncGroup."""
        group = self._member_group(request.member.group_id)
        if isinstance(group, ConsumerGroup):
            group.sync(request, respond)
        else:
            self._membership.sync(group, request, respond)

    def heartbeat(self, check: MemberCheck) -> None:
        """Heartbeat."""
        group = self._member_group(check.group_id)
        if isinstance(group, ConsumerGroup):
            group.classic_heartbeat(check)
        else:
            self._membership.heartbeat(group, check)

    def leave(self, group_id: str, members: Sequence[LeavingMember], respond: Respond[list[LeaveResult]]) -> None:
        """Handle LeaveGroup. An administrator can remove static members of a consumer group with it, too."""
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            respond(self._membership.leave(group, members))
        elif group is not None:
            group.leave(members, respond)
        else:
            respond([_left(leaving, UnknownMemberIdError.code) for leaving in members])

    # Offsets

    def commit(self, request: CommitRequest, respond: Respond[CommitResult]) -> None:
        """Handle OffsetCommit. Without a generation, it creates a group that only stores offsets."""
        check = request.member
        group = self.groups.get(check.group_id)
        if group is None and check.generation >= 0:
            raise IllegalGenerationError(
                f"Group {check.group_id!r} does not exist, so it has no generation {check.generation}."
            )
        if group is None:
            group = self._group(check.group_id)
        try:
            self._offsets.commit(group, request, respond)
        finally:
            self._drop_if_unused(group)
        if isinstance(group, ClassicGroup):
            self._membership.committed(group, check)

    def commit_transactional(self, request: TransactionalCommitRequest, respond: Respond[CommitResult]) -> None:
        """Handle TxnOffsetCommit. The offsets become visible when `complete_transaction` reports a commit marker.

        Raises `UnknownMemberIdError`, also if the group does not exist, `FencedInstanceIdError` and
        `IllegalGenerationError`.
        """
        group = self._group(request.member.group_id)
        try:
            self._transactional.commit(group, request, respond)
        finally:
            self._drop_if_unused(group)

    def complete_transaction(self, producer_id: int, is_commit: bool, marker_offset: Offset) -> None:
        """Apply or drop the offsets of a producer before a marker that is committed in the log, in all groups.

        It does not matter if the replay has already seen the marker, or if it is reported more than once.
        """
        self._transactional.complete(producer_id, marker_offset, is_commit=is_commit)

    def fetch(
        self,
        group_id: str,
        wanted: Sequence[TopicPartition] | None,
        *,
        require_stable: bool,
        member: MemberCheck | None = None,
    ) -> dict[TopicPartition, FetchedOffset]:
        """Handle OffsetFetch. If `wanted` is None, all offsets are returned. `member`: the member that fetches, if it
        names itself. Raises `UnknownMemberIdError` or `StaleMemberEpochError` if it may not."""
        group = self.groups.get(group_id)
        if group is not None and member is not None:
            group.check_fetch(member)
        return self._offsets.fetch(group, wanted, require_stable=require_stable)

    def delete_offsets(self, group_id: str, wanted: Sequence[TopicPartition], respond: Respond[CommitResult]) -> None:
        """Handle OffsetDelete. Responds with an error code per partition when the tombstones are committed.

        A partition without an offset is not an error. Raises `GroupIdNotFoundError` and `NonEmptyGroupError`.
        """
        group = self._known_group(group_id)
        result = self._offsets.deletable(group, wanted)
        known = group.offsets.partitions()
        doomed = [key for key, code in result.items() if not code and key in known]
        if not doomed:
            respond(result)
            return

        def removed(error: ProtocolError | None) -> None:
            if error is None:
                self._events.deletions += len(doomed)
            respond(result if error is None else error)

        self._remove(group, doomed, removed)

    def expire(self) -> None:
        """Remove expired offsets, and groups that have no other state."""
        for group in list(self.groups.values()):
            expired = self._offsets.expired(group)
            self._remove(group, expired, partial(self._count_expired, len(expired)))

    def _count_expired(self, count: int, error: ProtocolError | None) -> None:
        if error is None:
            self._events.expirations += count

    def forget_partitions(self, topic_partitions: frozenset[TopicPartition]) -> None:
        """Remove the offsets of deleted partitions."""
        for group in list(self.groups.values()):
            gone = [key for key in group.offsets.partitions() if key in topic_partitions]
            if gone:
                self._remove(group, gone, lambda error: None)

    # Whole groups

    def describe(self, group_id: str) -> DescribedGroup:
        """Return a group. An unknown group, and a consumer group, have the state Dead."""
        group = self.groups.get(group_id)
        return DescribedGroup(group_id=group_id, state=GroupState.DEAD.value) if group is None else group.describe()

    def describe_consumer_group(self, group_id: str) -> DescribedConsumerGroup:
        """Return a consumer group. Raises `GroupIdNotFoundError` for other groups."""
        group = self._known_group(group_id)
        if not isinstance(group, ConsumerGroup):
            raise GroupIdNotFoundError(f"Group {group_id!r} is not a consumer group.")
        return group.describe_members()

    def delete(self, group_id: str, respond: Respond[None]) -> None:
        """Remove an empty group and its offsets. Raises `GroupIdNotFoundError` and `NonEmptyGroupError`."""
        group = self._known_group(group_id)
        if not group.is_empty:
            raise NonEmptyGroupError(f"Group {group_id!r} cannot be deleted: its state is {group.listing().state}.")
        if isinstance(group, ConsumerGroup):
            self._reset(group, None, respond)
        else:
            self._remove(group, list(group.offsets.partitions()), respond)

    def _remove(
        self, group: ClassicGroup | ConsumerGroup, topic_partitions: list[TopicPartition], respond: Respond[None]
    ) -> None:
        """Write tombstones for offsets, and for the group if it has no other state. Remove both when they are
        committed.

        If a member joins or commits meanwhile, the group is kept, and its new records follow the tombstones in the log.
        """
        leaves_nothing = group.is_empty and group.offsets.partitions() <= set(topic_partitions)
        if isinstance(group, ConsumerGroup):
            # A busy group is removed later: another offset may be committed until its turn.
            if leaves_nothing and not group.is_busy:
                self._reset(group, topic_partitions, respond)
            else:
                self._remove_offsets(group, topic_partitions, None, respond)
            return
        is_removed = leaves_nothing and not group.pending_members
        self._remove_offsets(group, topic_partitions, group.generation if is_removed else None, respond)

    def _remove_offsets(
        self,
        group: ClassicGroup | ConsumerGroup,
        topic_partitions: list[TopicPartition],
        generation: int | None,
        respond: Respond[None],
    ) -> None:
        """Remove offsets. `generation`: that of an empty classic group that is removed, too."""
        records = tombstones(group.group_id, topic_partitions)
        if generation:
            records.append((encode_group_key(GroupKey(group.group_id)), None))
        if not records:
            self._removed(group, [], generation)
            respond(None)
            return

        def appended(outcome: Offset | ProtocolError) -> None:
            if isinstance(outcome, ProtocolError):
                logger.warning("%r: the tombstones were not stored: %s", group, outcome)
                respond(client_error(outcome))
            else:
                self._removed(group, topic_partitions, generation)
                respond(None)

        self._log.append(records, appended)

    def _removed(
        self,
        group: ClassicGroup | ConsumerGroup,
        topic_partitions: list[TopicPartition],
        empty_generation: int | None,
    ) -> None:
        """Remove the offsets and the group that the tombstones deleted. `empty_generation` is the generation of the
        deleted group; None if only offsets were deleted.

        A later generation has another record after the tombstones and is not removed.
        """
        group.offsets.remove(topic_partitions)
        if isinstance(group, ConsumerGroup) or not group.is_empty or group.generation != empty_generation:
            return
        if group.offsets.is_idle and not group.pending_members:
            self._forget(group)
        else:
            group.forget_generation()

    def _reset(
        self, group: ConsumerGroup, topic_partitions: Sequence[TopicPartition] | None, respond: Respond[None]
    ) -> None:
        """Remove the records of an empty consumer group, and these offsets; all for None.

        When that is committed, the group is dropped. If it still has offsets, it becomes a classic group, which only
        stores offsets. Responds with `NonEmptyGroupError` if a member joins before.
        """
        removed: list[TopicPartition] = []

        def apply(state: ConsumerGroupImage, context: RuleContext) -> tuple[ConsumerGroupImage, None]:
            if not state.is_empty:
                raise NonEmptyGroupError(f"Group {group.group_id!r} has members.")
            return NEW_GROUP, None

        def records() -> list[KeyValue]:
            removed.extend(group.offsets.partitions() if topic_partitions is None else topic_partitions)
            return tombstones(group.group_id, removed)

        def committed(outcome: ProtocolError | None) -> None:
            if outcome is None:
                group.offsets.remove(removed)
                classic = self._conversions.become_classic(group)
                if classic is not None:
                    self._drop_if_unused(classic)
            respond(outcome)

        group.submit(apply, committed, records=records)

    def _forget(self, group: ClassicGroup) -> None:
        self._rebalancer.kill(group, UnknownMemberIdError("The group was removed."))
        if self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]


def _left(leaving: LeavingMember, code: int) -> LeaveResult:
    return LeaveResult(member_id=leaving.member_id, instance_id=leaving.instance_id, error_code=code)
