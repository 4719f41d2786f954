"""Reads partitions for one Fetch request: checks, bounds and log slices, for consumers and followers.

Fetch entries enter, one result for each leaves, in the same order; `manager` and `delayed` call. A follower's fetch
also tells how far that follower has come: `FollowerNotes` takes that down and collects what follows from it (a risen
high watermark, a replica that shall join the in-sync set), for the caller to act upon after the answer.

Invariant: at most `max_bytes` in all, except that the first partition with data gives at least one whole batch
(KIP-74); with `hard_max_bytes` there is no exception, and a batch above the bound is cut off, which tells consumers of
that age to ask for more. A partition without news costs a few attribute reads and its result.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from math import inf
from typing import Final, NamedTuple
from uuid import UUID

from odradek.base.errors import KafkaStorageError, ProtocolError
from odradek.base.types import NO_EPOCH, ZERO_UUID, TopicPartition
from odradek.replication.partition import (
    FENCED_LEADER_EPOCH,
    NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_LEADER_EPOCH,
    EpochEnd,
    IsrProposal,
    is_diverging,
)
from odradek.replication.quota import ReplicationQuota
from odradek.replication.requests import Fetchable, FetchParams, FetchResult
from odradek.replication.resting import Rest
from odradek.replication.selector import ReplicaSelector, ReplicaView
from odradek.replication.table import HostedPartition, PartitionTable

OFFSET_OUT_OF_RANGE: Final = 1
INCONSISTENT_TOPIC_ID: Final = 103

logger = logging.getLogger(__name__)


class ReadOutcome(NamedTuple):
    """Results in the order of the entries."""

    results: list[FetchResult]
    size_bytes: int
    is_urgent: bool
    """There is an error, a divergence or another replica to tell at once."""


class FollowerNotes:
    """What one follower's fetch tells about its replicas. `advanced`: partitions whose high watermark rose."""

    __slots__ = ("_follower_epoch", "_follower_id", "_may_join", "_now_ms", "advanced", "proposals")

    def __init__(
        self, follower_id: int, now_ms: float, follower_epoch: int = NO_EPOCH, *, may_join: bool = True
    ) -> None:
        """`now_ms`: when the fetch arrived. `follower_epoch`: life of the follower's broker, -1: does not say.

        `may_join` an in-sync set: not a broker whose registration is gone.
        """
        self._follower_id: Final = follower_id
        self._follower_epoch: Final = follower_epoch
        self._now_ms: Final = now_ms
        self._may_join: Final = may_join
        self.advanced: list[HostedPartition] = []
        self.proposals: list[tuple[HostedPartition, IsrProposal]] = []
        """Where the follower may join the in-sync set; pending already."""

    def note(self, partition: HostedPartition, entry: Fetchable) -> None:
        """Take down the follower's position in one partition, which `read` has found valid."""
        replica = partition.remote_replica(self._follower_id)
        if replica is None:
            return
        offset, previous, now_ms = entry.fetch_offset, replica.log_end_offset, self._now_ms
        replica.live(self._follower_epoch)
        replica.fetched(offset, entry.log_start_offset, now_ms, partition.log.log_end_offset)
        if self._may_join and partition.should_expand(replica):
            # Before the mark rises: while the proposal is pending the mark waits for this replica, too.
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
        selector: ReplicaSelector | None = None,
        quota: ReplicationQuota | None = None,
    ) -> None:
        """`on_storage_failure` takes a partition offline whose log cannot be read.

        `selector` sends consumers to followers, `quota` holds followers back that are out of sync.
        """
        self._table: Final = table
        self._on_storage_failure: Final = on_storage_failure
        self._selector: Final = selector
        self._quota: Final = quota

    def read(
        self, params: FetchParams, entries: Sequence[Fetchable], notes: FollowerNotes | None = None
    ) -> ReadOutcome:
        """Read every entry; with `notes` also take down the follower's positions."""
        results: list[FetchResult] = []
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
                    result = elsewhere or self._data(partition, entry, params, size_bytes)
                else:
                    result = refused
            results.append(result)
            if result.records is not None:
                size_bytes += result.records.length
            elif result.error_code or result.diverging_epoch is not None or result.preferred_read_replica >= 0:
                is_urgent = True
        return ReadOutcome(results, size_bytes, is_urgent)

    def _data(self, partition: HostedPartition, entry: Fetchable, params: FetchParams, taken_bytes: int) -> FetchResult:
        """Marks and records of one partition, after `taken_bytes` of the others."""
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
                offset, max_bytes=max(0, limit), max_offset=upper, min_one_batch=not (taken_bytes or is_hard)
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
        """The answer that names a better replica for a consumer; None when it shall read here."""
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
        """What to wait for before reading again what gave nothing; None when the next read may give something else."""
        replica = None
        if params.replica_id >= 0:
            replica = partition.remote_replica(params.replica_id)
            if replica is None or not partition.is_settled(replica):
                return None
        elif self._selector is not None and params.rack_id:
            return None  # which replica is best changes without our knowing
        return Rest(partition, partition.leader_epoch, partition.is_leader, replica)

    def is_held_back(self, partition: HostedPartition, follower_id: int) -> bool:
        """Whether a follower has to wait for the quota; members of the in-sync set never have."""
        quota = self._quota
        return (
            quota is not None
            and quota.is_throttled(partition.topic_partition)
            and follower_id not in partition.in_sync.committed
            and quota.is_exceeded
        )

    def _committed(self, partition: HostedPartition, offset: int, result: FetchResult) -> FetchResult:
        """The same with what a reader of committed records has to leave out."""
        assert result.records is not None
        try:
            aborted = partition.log.aborted_within(offset, result.records)
        except KafkaStorageError:
            logger.exception("%s cannot be read", partition.topic_partition)
            self._on_storage_failure(partition.topic_partition)
            return FetchResult(KafkaStorageError.code)
        except ProtocolError as error:
            return FetchResult(error.code)
        return result._replace(aborted_transactions=aborted)


def upper_bound(partition: HostedPartition, params: FetchParams) -> int:
    """Offset below which this reader may read: followers all, consumers what is committed or stable."""
    if params.replica_id >= 0:
        return partition.log.log_end_offset
    return partition.last_stable_offset if params.read_committed else partition.log.high_watermark


def _refusal(partition: HostedPartition, entry: Fetchable, params: FetchParams) -> FetchResult | None:
    """The answer when the entry must not be read: wrong topic, epoch, reader, history or offset; else None."""
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
            return failed_result(partition, NOT_LEADER_OR_FOLLOWER)  # sent in a former life of that broker
    if entry.last_fetched_epoch >= 0:
        result = _divergence(partition, entry)
        if result is not None:
            return result
    if not log.log_start_offset <= entry.fetch_offset <= log.log_end_offset:
        return FetchResult(OFFSET_OUT_OF_RANGE)
    return None


def _is_same_topic(asked: UUID, hosted: UUID | None) -> bool:
    """Whether two topic ids agree as far as they are known. Told apart as numbers: comparing UUIDs is slow."""
    return hosted is None or asked is ZERO_UUID or asked.int in (hosted.int, 0)


def _divergence(partition: HostedPartition, entry: Fetchable) -> FetchResult | None:
    """Where the reader's history parts from this log (KIP-595); None when it does not."""
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
    """An error; with those that mean a stale client, the leader to turn to (KIP-951)."""
    if code in (NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH):
        return FetchResult(code, leader_id=partition.leader_id, leader_epoch=partition.leader_epoch)
    return FetchResult(code)
