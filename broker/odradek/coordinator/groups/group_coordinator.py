"""The group coordinator of a broker: finds the partition of a group and runs requests on its shard.

`server/groups` calls the request methods, which raise errors of `base.errors`. `replication` calls
`on_leader` and `on_follower`. The hash of a group id determines its partition of `__consumer_offsets`. The leader of
the partition serves the group after it has replayed the partition. The errors of whole requests are the same as in
Apache Kafka 3.9 in ZooKeeper mode, which avoids errors that old clients do not expect (see `heartbeat` and `sync`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final, TypeVar

from odradek.base.errors import (
    NONE,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    RebalanceInProgressError,
    UnsupportedVersionError,
)
from odradek.base.ports import Clock, Timer
from odradek.base.topic_rules import partition_for
from odradek.base.types import GROUP_METADATA_TOPIC, Offset, TopicPartition
from odradek.coordinator.coordinator_ports import RecordLog, Respond, Runtime, VerifyTransaction
from odradek.coordinator.groups.classic.classic_group import ClassicGroup, GroupState
from odradek.coordinator.groups.classic.delayed_rebalances import DelayedHeartbeat, DelayedRebalance
from odradek.coordinator.groups.consumer.cluster_topics import ClusterTopics
from odradek.coordinator.groups.consumer.consumer_group import ConsumerGroup
from odradek.coordinator.groups.consumer.consumer_rules import check_heartbeat
from odradek.coordinator.groups.consumer.consumer_values import (
    ConsumerGroupPhase,
    DescribedConsumerGroup,
    HeartbeatResult,
    MemberHeartbeat,
)
from odradek.coordinator.groups.group_events import GroupEvents
from odradek.coordinator.groups.group_kinds import CLASSIC_GROUP_TYPE, CONSUMER_GROUP_TYPE, AnyGroup
from odradek.coordinator.groups.group_requests import (
    CommitRequest,
    DescribedGroup,
    FetchedOffset,
    GroupList,
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
from odradek.coordinator.groups.group_shard import GroupShard
from odradek.coordinator.groups.offset_commits import CommitResult
from odradek.timer.purgatory import Purgatory

Result = TypeVar("Result")


class CoordinatedGroup:
    """A group in its shard, see `lag_values.ObservedGroup`."""

    __slots__ = ("_group", "_shard")

    def __init__(self, group: AnyGroup, shard: GroupShard) -> None:
        """The group was found in the shard."""
        self._group: Final = group
        self._shard: Final = shard

    @property
    def group_id(self) -> str:
        """The id."""
        return self._group.group_id

    @property
    def member_count(self) -> int:
        """Number of members now."""
        return self._group.member_count

    @property
    def is_coordinated(self) -> bool:
        """Whether the group is still in the shard, which is emptied when the partition moves."""
        return self._shard.groups.get(self._group.group_id) is self._group

    def committed_offsets(self) -> dict[TopicPartition, int]:
        """Return the committed offsets, without those of open transactions."""
        return {partition: value.offset for partition, value in self._group.offsets.committed().items()}


def _partition_of(group_id: str, partitions: int) -> TopicPartition:
    """Return the partition of a group among `partitions`."""
    return TopicPartition(GROUP_METADATA_TOPIC, partition_for(group_id, partitions))


_cached_partition_of: Final = lru_cache(maxsize=1 << 15)(_partition_of)
"""For heartbeats. Only for short ids, so that the cache is small whatever clients send."""
_CACHED_CHARACTERS: Final = 256


class GroupCoordinator:
    """Handles the requests of all groups that this broker coordinates."""

    def __init__(
        self,
        *,
        settings: GroupSettings,
        clock: Clock,
        runtime: Runtime[GroupShard],
        partition_count: Callable[[], int],
        verify: VerifyTransaction,
        topics: ClusterTopics,
    ) -> None:
        """`partition_count` returns the number of partitions of `__consumer_offsets`, or the configured number before
        the topic exists. `topics`: those to which consumer groups can subscribe."""
        self._settings = settings
        self._clock = clock
        self._runtime = runtime
        self._partition_count = partition_count
        self._verify = verify
        self._topics = topics
        self._heartbeats: Purgatory[DelayedHeartbeat] = Purgatory(clock, "Heartbeat")
        self._rebalances: Purgatory[DelayedRebalance] = Purgatory(clock, "Rebalance")
        self._expiry: Timer | None = None
        self._is_closed = False
        self.events: Final = GroupEvents()
        """Counts of what happened to the groups, for metrics."""

    @property
    def purgatories(self) -> tuple[Purgatory[DelayedHeartbeat], Purgatory[DelayedRebalance]]:
        """The purgatories of members and rebalances, for metrics."""
        return self._heartbeats, self._rebalances

    def group_count(self, state: GroupState | ConsumerGroupPhase | None = None) -> int:
        """Return the number of groups that this broker coordinates, or of those of one kind in a state, for metrics."""
        if state is None:
            return sum(len(shard.groups) for shard in self._runtime.shards())
        return sum(group.state is state for group in self._classic_groups()) + sum(
            group.phase is state for group in self._consumer_groups()
        )

    def counts_by_type(self) -> dict[str, int]:
        """Return the number of groups of each type, for metrics."""
        counts = dict.fromkeys((CLASSIC_GROUP_TYPE, CONSUMER_GROUP_TYPE), 0)
        for shard in self._runtime.shards():
            for group in shard.groups.values():
                counts[group.group_type] += 1
        return counts

    def _classic_groups(self) -> Iterator[ClassicGroup]:
        for shard in self._runtime.shards():
            yield from (group for group in shard.groups.values() if isinstance(group, ClassicGroup))

    def _consumer_groups(self) -> Iterator[ConsumerGroup]:
        for shard in self._runtime.shards():
            yield from (group for group in shard.groups.values() if isinstance(group, ConsumerGroup))

    def offset_count(self) -> int:
        """Return the number of committed offsets of all these groups, for metrics."""
        return sum(group.offsets.count for shard in self._runtime.shards() for group in shard.groups.values())

    def coordinated(self) -> list[CoordinatedGroup]:
        """Return all groups that this broker coordinates, for the measurement of their lag."""
        return [CoordinatedGroup(group, shard) for shard in self._runtime.shards() for group in shard.groups.values()]

    # Lifecycle

    def start(self) -> None:
        """Start to look for expired offsets every `offsets.retention.check.interval.ms`."""
        interval_ms = self._settings.retention_check_interval_ms
        self._expiry = self._clock.call_later(interval_ms, self._expire)

    def _expire(self) -> None:
        for shard in self._runtime.shards():
            shard.expire()
        self.start()

    async def close(self) -> None:
        """Stop. Waiting requests get an error that makes clients look up the coordinator again. Idempotent."""
        self._is_closed = True
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        await self._runtime.close()
        self._heartbeats.close()
        self._rebalances.close()

    def on_leader(self, topic_partition: TopicPartition, epoch: int) -> None:
        """Load a partition of `__consumer_offsets` that this broker leads now. Ignores other topics."""
        if topic_partition.topic == GROUP_METADATA_TOPIC:
            self._runtime.load(topic_partition, epoch, self._make_shard)

    def on_follower(self, topic_partition: TopicPartition) -> None:
        """Drop the groups of a partition that this broker no longer leads or no longer has."""
        if topic_partition.topic == GROUP_METADATA_TOPIC:
            self._runtime.unload(topic_partition)

    def on_partitions_deleted(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Remove the offsets that groups committed for deleted partitions."""
        gone = frozenset(topic_partitions)
        if gone:
            for shard in self._runtime.shards():
                shard.forget_partitions(gone)

    def _make_shard(self, log: RecordLog) -> GroupShard:
        return GroupShard(
            settings=self._settings,
            clock=self._clock,
            log=log,
            heartbeats=self._heartbeats,
            rebalances=self._rebalances,
            topics=self._topics,
            events=self.events,
        )

    # The partition of a group

    def partition_for(self, group_id: str) -> TopicPartition:
        """Return the partition of `__consumer_offsets` whose leader coordinates the group."""
        find = _cached_partition_of if len(group_id) <= _CACHED_CHARACTERS else _partition_of
        return find(group_id, self._partition_count())

    def _member_partition(self, group_id: str, instance_id: str | None) -> TopicPartition:
        """Return the group's partition for a request of a member. Also raises `UnsupportedVersionError` for a static
        member, as long as there may be brokers that do not support them."""
        self._check_static(instance_id)
        return self._checked(group_id)

    def _check_static(self, instance_id: str | None) -> None:
        if instance_id is not None and not self._settings.allows_static_members:
            raise UnsupportedVersionError(
                "Static members are not allowed while inter.broker.protocol.version is below 2.3."
            )

    def _checked(self, group_id: str) -> TopicPartition:
        """Return the group's partition for an API of members. Raises `InvalidGroupIdError` for an empty id.

        Requests for offsets, and DescribeGroups and DeleteGroups, accept the empty id, because some clients have stored
        offsets with it.
        """
        if not group_id:
            raise InvalidGroupIdError("The group id is empty.")
        return self._partition(group_id)

    def _partition(self, group_id: str) -> TopicPartition:
        if self._is_closed:
            raise CoordinatorNotAvailableError("The broker is stopping.")
        return self.partition_for(group_id)

    async def _call(
        self, partition: TopicPartition, operation: Callable[[GroupShard, Respond[Result]], None]
    ) -> Result:
        return await self._runtime.call(partition, operation)

    # Members

    async def join(self, request: JoinRequest) -> JoinResult:
        """Handle JoinGroup. Returns when the member's next generation begins. The result may contain an error.

        Also raises `InvalidSessionTimeoutError`, `InconsistentGroupProtocolError`, `UnknownMemberIdError` and
        `FencedInstanceIdError`.
        """
        partition = self._member_partition(request.group_id, request.instance_id)
        low, high = self._settings.min_session_timeout_ms, self._settings.max_session_timeout_ms
        self._runtime.shard(partition)
        if not low <= request.session_timeout_ms <= high:
            raise InvalidSessionTimeoutError(
                f"The session timeout of {request.session_timeout_ms} ms is not between {low} and {high} ms."
            )
        return await self._call(partition, lambda shard, respond: shard.join(request, respond))

    async def sync(self, request: SyncRequest) -> SyncResult:
        """Handle SyncGroup. Returns the member's assignment when it is committed.

        While the partition is loading, members must join again, because old clients do not expect
        COORDINATOR_LOAD_IN_PROGRESS in the response.
        """
        partition = self._member_partition(request.member.group_id, request.member.instance_id)
        try:
            return await self._call(partition, lambda shard, respond: shard.sync(request, respond))
        except CoordinatorLoadInProgressError as error:
            raise RebalanceInProgressError(str(error)) from error

    def heartbeat(self, check: MemberCheck) -> None:
        """Handle Heartbeat. Raises an error if the member must join again. Succeeds while the partition is loading."""
        partition = self._member_partition(check.group_id, check.instance_id)
        try:
            shard = self._runtime.shard(partition)
        except CoordinatorLoadInProgressError:
            return
        shard.heartbeat(check)

    async def leave(self, group_id: str, members: Sequence[LeavingMember]) -> list[LeaveResult]:
        """Handle LeaveGroup. Returns one result per member."""
        partition = self._checked(group_id)
        return await self._call(partition, lambda shard, respond: shard.leave(group_id, members, respond))

    # Members of consumer groups

    def _check_enabled(self) -> None:
        if not self._settings.consumer.is_enabled:
            raise UnsupportedVersionError(
                "Consumer groups are disabled: group.coordinator.rebalance.protocols does not include consumer, or "
                "inter.broker.protocol.version is below 3.5."
            )

    async def consumer_heartbeat(
        self, request: MemberHeartbeat, may_describe: Callable[[str], bool] = lambda _: True
    ) -> HeartbeatResult:
        """Handle ConsumerGroupHeartbeat (KIP-848). `may_describe`: whether the client may see a topic.

        Raises the errors of `consumer_rules.heartbeat` and `leave`, `GroupIdNotFoundError` for another kind of group,
        and `UnsupportedVersionError` if consumer groups are disabled.
        """
        self._check_enabled()
        check_heartbeat(request, self._settings.consumer)
        partition = self._partition(request.group_id)
        return await self._call(
            partition, lambda shard, respond: shard.consumer_heartbeat(request, respond, may_describe)
        )

    async def describe_consumer_group(self, group_id: str) -> DescribedConsumerGroup:
        """Handle ConsumerGroupDescribe for one group (KIP-848). Raises `GroupIdNotFoundError`, and
        `UnsupportedVersionError` if consumer groups are disabled."""
        self._check_enabled()
        return self._runtime.shard(self._checked(group_id)).describe_consumer_group(group_id)

    # Offsets

    async def commit(self, request: CommitRequest) -> CommitResult:
        """Handle OffsetCommit. Returns an error code per partition when the offsets are committed."""
        self._check_static(request.member.instance_id)
        partition = self._partition(request.member.group_id)
        return await self._call(partition, lambda shard, respond: shard.commit(request, respond))

    async def commit_transactional(self, request: TransactionalCommitRequest) -> CommitResult:
        """Handle TxnOffsetCommit. Returns an error code per partition when the records are committed (KIP-98, KIP-447).

        The offsets become visible with the commit marker of the transaction, see `complete_transaction`.
        """
        partition = self._checked(request.member.group_id)
        self._runtime.shard(partition)
        # This may take long, so it precedes the append: the appends of a partition wait for each other.
        verified = replace(request, writer=await self._verify(partition, request.writer))
        return await self._call(partition, lambda shard, respond: shard.commit_transactional(verified, respond))

    def complete_transaction(
        self, topic_partition: TopicPartition, producer_id: int, is_commit: bool, marker_offset: Offset
    ) -> None:
        """Apply or drop the offsets of a producer's transaction, because its marker is committed at `marker_offset`.

        Ignores partitions of other topics, and partitions that this broker does not lead. If the partition is being
        loaded, this happens afterwards, because the replay may have read the log before the marker was appended.
        """
        if topic_partition.topic == GROUP_METADATA_TOPIC:
            self._runtime.when_loaded(
                topic_partition, lambda shard: shard.complete_transaction(producer_id, is_commit, marker_offset)
            )

    async def fetch(
        self,
        group_id: str,
        wanted: Sequence[TopicPartition] | None,
        *,
        require_stable: bool = False,
        member: MemberCheck | None = None,
    ) -> dict[TopicPartition, FetchedOffset]:
        """Handle OffsetFetch. Returns the committed offsets of the requested partitions, or of all for None (KIP-88,
        KIP-447).

        `member`: the member of a consumer group that fetches, if it names itself (KIP-848, from version 9). Raises
        `UnknownMemberIdError` and `StaleMemberEpochError` for it.
        """
        shard = self._runtime.shard(self._partition(group_id))
        return shard.fetch(group_id, wanted, require_stable=require_stable, member=member)

    async def delete_offsets(self, group_id: str, wanted: Sequence[TopicPartition]) -> CommitResult:
        """Handle OffsetDelete. Returns an error code per partition when the offsets are deleted (KIP-496).

        Also raises `GroupIdNotFoundError`, and `NonEmptyGroupError` for members that are not consumers.
        """
        partition = self._checked(group_id)
        return await self._call(partition, lambda shard, respond: shard.delete_offsets(group_id, wanted, respond))

    # Whole groups

    async def list(self, *, states: Iterable[str] = (), types: Iterable[str] = ()) -> GroupList:
        """Handle ListGroups. Returns the groups of this broker in these states and of these types. An empty collection
        means all (KIP-518, KIP-848)."""
        if self._is_closed:
            raise CoordinatorNotAvailableError("The broker is stopping.")
        wanted_states = {state.lower() for state in states}
        wanted_types = {name.lower() for name in types}
        found = [
            item
            for shard in self._runtime.shards()
            for item in (group.listing() for group in shard.groups.values())
            if (not wanted_types or item.group_type in wanted_types)
            and (not wanted_states or item.state.lower() in wanted_states)
        ]
        code = CoordinatorLoadInProgressError.code if self._runtime.is_loading else NONE
        return GroupList(error_code=code, groups=found)

    async def describe(self, group_id: str) -> DescribedGroup:
        """Handle DescribeGroups for one group. The state of a group that does not exist is Dead."""
        return self._runtime.shard(self._partition(group_id)).describe(group_id)

    async def delete(self, group_id: str) -> None:
        """Handle DeleteGroups for one group. Raises `GroupIdNotFoundError` and `NonEmptyGroupError`."""
        return await self._call(self._partition(group_id), lambda shard, respond: shard.delete(group_id, respond))
