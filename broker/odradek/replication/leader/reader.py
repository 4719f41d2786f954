"""Reads partitions for one Fetch request of a consumer or follower: checks, limits and log slices.

`replica_manager` and `delayed_requests` call it and get one result per entry, in the same order. A follower's fetch
also shows how far the follower has got: `FollowerNotes` records that and collects the consequences (a higher high
watermark, a replica to propose for the ISR), which the caller handles after the answer.

Invariant: the result has at most `max_bytes`, except that the first partition with data returns at least one whole
batch (KIP-74). With `hard_max_bytes` there is no exception: a larger batch is truncated, which makes old consumers
request more. A partition without new records costs a few attribute reads and its result.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Final, NamedTuple
from uuid import UUID

from odradek.base.errors import KafkaStorageError, ProtocolError
from odradek.base.types import NO_EPOCH, ZERO_UUID, TopicPartition
from odradek.log.segments.segment_lookups import NotInMemoryError
from odradek.replication.leader.cold_reads import ColdReads
from odradek.replication.partition import (
    FENCED_LEADER_EPOCH,
    NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_LEADER_EPOCH,
    EpochEnd,
    IsrProposal,
    is_diverging,
)
from odradek.replication.partition_table import HostedPartition, PartitionTable
from odradek.replication.quota import ReplicationQuota
from odradek.replication.replica_requests import Fetchable, FetchParams, FetchResult
from odradek.replication.sessions.resting import Rest

OFFSET_OUT_OF_RANGE: Final = 1
INCONSISTENT_TOPIC_ID: Final = 103

logger = logging.getLogger(__name__)


class ReplicaView(NamedTuple):
    """One replica as seen by the leader, ordered by its progress."""

    log_end_offset: int
    caught_up_ms: float
    """Monotonic time at which it last was caught up."""
    broker_id: int
    rack: str | None


ReplicaSelector = Callable[[str, ReplicaView, Iterable[ReplicaView]], int]
"""Returns the replica from which a consumer should read (KIP-392): (rack, leader, followers) -> broker id.

The followers have the requested offset. All are members of the ISR, so that a consumer is never redirected to a replica
that falls further behind.
"""


def rack_aware(rack: str, leader: ReplicaView, followers: Iterable[ReplicaView]) -> int:
    """Return the leader if it is in the client's rack, else the most advanced follower there, else the leader."""
    if not rack or leader.rack == rack:
        return leader.broker_id
    there = [view for view in followers if view.rack == rack]
    return max(there, key=lambda view: view[:3]).broker_id if there else leader.broker_id


RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

SELECTORS: Final[dict[str | None, ReplicaSelector]] = {RACK_AWARE: rack_aware}
"""Selectors that may return a follower, by `replica.selector.class`; otherwise consumers read from leaders."""


class ReadOutcome(NamedTuple):
    """The results in the order of the entries."""

    results: list[FetchResult]
    size_bytes: int
    is_urgent: bool
    """Whether an error, a divergence or another replica has to be returned at once."""
    cold: Sequence[int] = ()
    """Indices of the entries whose records are not in memory. Their results have no records, and lookups run."""


class FollowerNotes:
    """What one follower's fetch shows about its replicas. `advanced`: partitions whose high watermark rose."""

    __slots__ = ("_follower_epoch", "_follower_id", "_may_join", "_now_ms", "advanced", "proposals")

    def __init__(
        self, follower_id: int, now_ms: float, follower_epoch: int = NO_EPOCH, *, may_join: bool = True
    ) -> None:
        """`now_ms`: arrival time of the fetch. `follower_epoch`: the follower's broker epoch; -1: not specified.

        `may_join`: whether it may join an ISR, which requires that its broker is registered.
        """
        self._follower_id: Final = follower_id
        self._follower_epoch: Final = follower_epoch
        self._now_ms: Final = now_ms
        self._may_join: Final = may_join
        self.advanced: list[HostedPartition] = []
        self.proposals: list[tuple[HostedPartition, IsrProposal]] = []
        """Proposals that the follower joins the ISR; already pending."""

    def note(self, partition: HostedPartition, entry: Fetchable) -> None:
        """Record the follower's position in one partition, which `read` has validated."""
        replica = partition.remote_replica(self._follower_id)
        if replica is None:
            return
        offset, previous, now_ms = entry.fetch_offset, replica.log_end_offset, self._now_ms
        replica.live(self._follower_epoch)
        replica.fetched(offset, entry.log_start_offset, now_ms, partition.log.log_end_offset)
        if self._may_join and partition.should_expand(replica):
            # Before the high watermark rises: while the proposal is pending, it waits for this replica, too.
            self.proposals.append((partition, partition.propose_expansion(self._follower_id)))
        if offset != previous and partition.advance(now_ms):
            self.advanced.append(partition)


class PartitionReader:
    """Reads from the partitions of one table."""

    def __init__(
        self,
        table: PartitionTable,
        on_storage_failure: Callable[[TopicPartition], None],
        *,
        cold: ColdReads,
        selector: ReplicaSelector | None = None,
        quota: ReplicationQuota | None = None,
    ) -> None:
        """`on_storage_failure` takes a partition offline whose log cannot be read.

        `cold` looks up what is not in memory.
        `selector` redirects consumers to followers; `quota` delays followers that are out of sync.
        """
        self._table: Final = table
        self._on_storage_failure: Final = on_storage_failure
        self._cold: Final = cold
        self._selector: Final = selector
        self._quota: Final = quota

    def read(
        self, params: FetchParams, entries: Sequence[Fetchable], notes: FollowerNotes | None = None
    ) -> ReadOutcome:
        """Read every entry; with `notes`, also record the follower's positions."""
        results: list[FetchResult] = []
        cold: list[int] = []
        find = self._table.online.get
        size_bytes = 0
        is_urgent = False
        selects = self._selector is not None and params.rack_id != "" and params.replica_id < 0
        for entry in entries:
            partition = find(entry.topic_partition)
            if partition is None:
                result = FetchResult(self._table.missing(entry.topic_partition).code)
            else:
                refused = _refusal(partition, entry, params)
                if refused is None:
                    if notes is not None:
                        notes.note(partition, entry)
                    elsewhere = self._elsewhere(partition, entry, params) if selects else None
                    try:
                        result = elsewhere or self._data(partition, entry, params, size_bytes)
                    except NotInMemoryError as missing:
                        result = self._look_up(partition, missing)
                        cold.append(len(results))
                else:
                    result = refused
            results.append(result)
            if result.records is not None:
                size_bytes += result.records.length
            elif result.error_code or result.diverging_epoch is not None or result.preferred_read_replica >= 0:
                is_urgent = True
        return ReadOutcome(results, size_bytes, is_urgent, cold)

    def _look_up(self, partition: HostedPartition, missing: NotInMemoryError) -> FetchResult:
        """Look up on a thread what a read needs, and return a result without records, or the error of the last
        attempt."""
        log = partition.log
        error = self._cold.take_failure(missing)
        if error is not None:
            return FetchResult(error.code)
        self._cold.start(log, missing)
        return FetchResult(0, log.high_watermark, partition.last_stable_offset, log.log_start_offset)

    def available(
        self, partition: HostedPartition, offset: int, upper: int, max_bytes: int, params: FetchParams
    ) -> int:
        """Return the size of what a read would return now: 0 during a lookup, `min_bytes` instead of an error."""
        log = partition.log
        try:
            found = log.read(offset, max_bytes=max_bytes, max_offset=upper, waits=False)
            if params.read_committed:
                log.aborted_within(offset, found, waits=False)
        except NotInMemoryError as missing:
            if self._cold.has_failed(missing):
                return params.min_bytes
            self._cold.start(log, missing)
            return 0
        except ProtocolError:
            return params.min_bytes
        return found.length

    def _data(self, partition: HostedPartition, entry: Fetchable, params: FetchParams, taken_bytes: int) -> FetchResult:
        """Return offsets and records of one partition, after `taken_bytes` from the others.

        Raises `NotInMemoryError`.
        """
        log = partition.log
        mark, stable = log.high_watermark, partition.last_stable_offset
        offset, upper = entry.fetch_offset, upper_bound(partition, params)
        if offset >= upper:
            rest = self._rest(partition, params) if params.may_rest else None
            return FetchResult(0, mark, stable, log.log_start_offset, idle=rest)
        if params.replica_id >= 0 and self.is_held_back(partition, params.replica_id):
            return FetchResult(0, mark, stable, log.log_start_offset)
        limit = min(entry.max_bytes, params.max_bytes - taken_bytes)
        if limit <= 0 and taken_bytes:
            return FetchResult(0, mark, stable, log.log_start_offset)
        is_hard = params.hard_max_bytes
        try:
            found = log.read(
                offset,
                max_bytes=max(0, limit),
                max_offset=upper,
                min_one_batch=not (taken_bytes or is_hard),
                waits=False,
            )
        except KafkaStorageError:
            logger.exception("%s cannot be read", partition.topic_partition)
            self._on_storage_failure(partition.topic_partition)
            return FetchResult(KafkaStorageError.code)
        except ProtocolError as error:
            return FetchResult(error.code)
        if is_hard and found.first_batch_incomplete:
            found = found._replace(length=max(0, limit))
        elif not found.length or found.first_batch_incomplete:
            return FetchResult(0, mark, stable, log.log_start_offset)
        if not params.read_committed:
            return FetchResult(0, mark, stable, log.log_start_offset, found)
        return self._committed(partition, offset, FetchResult(0, mark, stable, log.log_start_offset, found))

    def _elsewhere(self, partition: HostedPartition, entry: Fetchable, params: FetchParams) -> FetchResult | None:
        """Return an answer that names a better replica for a consumer; None if it should read here."""
        assert self._selector is not None
        if not partition.is_leader:
            return None
        log, rack, offset = partition.log, self._table.rack, entry.fetch_offset
        in_sync = partition.in_sync.committed
        followers = [
            ReplicaView(replica.log_end_offset, replica.last_caught_up_ms, replica.broker_id, rack(replica.broker_id))
            for replica in partition.followers()
            if replica.broker_id in in_sync and replica.log_start_offset <= offset <= replica.log_end_offset
        ]
        leader = ReplicaView(log.log_end_offset, inf, partition.local_id, rack(partition.local_id))
        chosen = self._selector(params.rack_id, leader, followers)
        if chosen == partition.local_id:
            return None
        return FetchResult(
            0, log.high_watermark, partition.last_stable_offset, log.log_start_offset, preferred_read_replica=chosen
        )

    def _rest(self, partition: HostedPartition, params: FetchParams) -> Rest | None:
        """Return the state to wait on after an empty read; None if the next read may differ without a change of it."""
        replica = None
        if params.replica_id >= 0:
            replica = partition.remote_replica(params.replica_id)
            if replica is None or not partition.is_settled(replica):
                return None
        elif self._selector is not None and params.rack_id:
            return None  # the best replica may change without an event here
        return Rest(partition, partition.leader_epoch, partition.is_leader, replica)

    def is_held_back(self, partition: HostedPartition, follower_id: int) -> bool:
        """Whether a follower has to wait for the quota; members of the ISR never do."""
        quota = self._quota
        return (
            quota is not None
            and quota.is_throttled(partition.topic_partition)
            and follower_id not in partition.in_sync.committed
            and quota.is_exceeded
        )

    def _committed(self, partition: HostedPartition, offset: int, result: FetchResult) -> FetchResult:
        """Add the aborted transactions that a read-committed consumer has to skip to the result."""
        assert result.records is not None
        try:
            aborted = partition.log.aborted_within(offset, result.records, waits=False)
        except KafkaStorageError:
            logger.exception("%s cannot be read", partition.topic_partition)
            self._on_storage_failure(partition.topic_partition)
            return FetchResult(KafkaStorageError.code)
        except ProtocolError as error:
            return FetchResult(error.code)
        return result._replace(aborted_transactions=aborted)


def upper_bound(partition: HostedPartition, params: FetchParams) -> int:
    """Return the limit for this reader: the log end for followers, committed or stable offsets for consumers."""
    if params.replica_id >= 0:
        return partition.log.log_end_offset
    return partition.last_stable_offset if params.read_committed else partition.log.high_watermark


def _refusal(partition: HostedPartition, entry: Fetchable, params: FetchParams) -> FetchResult | None:
    """Return the error if the entry must not be read: wrong topic, epoch, reader, divergence or offset; else None."""
    log = partition.log
    if entry.topic_id is not log.topic_id and not _is_same_topic(entry.topic_id, log.topic_id):
        return FetchResult(INCONSISTENT_TOPIC_ID)
    code = partition.leadership_error(entry.current_leader_epoch, params.leader_only or params.replica_id >= 0)
    if code:
        return failed_result(partition, code)
    if params.replica_id >= 0:
        replica = partition.remote_replica(params.replica_id)
        if replica is None:
            return failed_result(
                partition,
                UNKNOWN_LEADER_EPOCH if entry.current_leader_epoch > partition.leader_epoch else NOT_LEADER_OR_FOLLOWER,
            )
        if 0 <= params.replica_epoch < replica.broker_epoch:
            return failed_result(partition, NOT_LEADER_OR_FOLLOWER)  # the follower sent it before it restarted
    if entry.last_fetched_epoch >= 0:
        result = _divergence(partition, entry)
        if result is not None:
            return result
    if not log.log_start_offset <= entry.fetch_offset <= log.log_end_offset:
        return FetchResult(OFFSET_OUT_OF_RANGE)
    return None


def _is_same_topic(asked: UUID, hosted: UUID | None) -> bool:
    """Whether two topic ids match as far as they are known. Compared as numbers, because comparing UUIDs is slow."""
    return hosted is None or asked is ZERO_UUID or asked.int in (hosted.int, 0)


def _divergence(partition: HostedPartition, entry: Fetchable) -> FetchResult | None:
    """Return where the reader's log diverges from this log (KIP-595); None if it does not."""
    log, requested = partition.log, entry.last_fetched_epoch
    if requested == log.latest_epoch and entry.fetch_offset <= log.log_end_offset:
        return None
    found = log.end_offset_for_epoch(requested)
    end = EpochEnd(found.leader_epoch, found.end_offset)
    if end.leader_epoch < 0 or end.end_offset < 0 or entry.fetch_offset < log.log_start_offset:
        return FetchResult(OFFSET_OUT_OF_RANGE)
    if not is_diverging(requested, entry.fetch_offset, end):
        return None
    return FetchResult(
        0,
        log.high_watermark,
        partition.last_stable_offset,
        log.log_start_offset,
        diverging_epoch=(end.leader_epoch, end.end_offset),
    )


def failed_result(partition: HostedPartition, code: int) -> FetchResult:
    """Return an error result; with errors of stale clients, it contains the current leader (KIP-951)."""
    if code in (NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH):
        return FetchResult(code, leader_id=partition.leader_id, leader_epoch=partition.leader_epoch)
    return FetchResult(code)
