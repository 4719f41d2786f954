"""Reads partitions for one Fetch request: checks, bounds and log slices, for consumers and followers.

Fetch entries enter, one result for each leaves, in the same order; `manager` and `delayed` call. A follower's fetch
also tells how far that follower has come: `FollowerNotes` takes that down and collects what follows from it (a risen
high watermark, a replica that shall join the in-sync set), for the caller to act upon after the answer.

Invariant: at most `max_bytes` in all, except that the first partition with data gives at least one whole batch
(KIP-74). A partition without news costs a few attribute reads and its result.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from odradek.base.errors import KafkaStorageError, ProtocolError
from odradek.base.types import ZERO_UUID, TopicPartition
from odradek.replication.partition import (
    FENCED_LEADER_EPOCH,
    NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_LEADER_EPOCH,
    EpochEnd,
    IsrProposal,
    is_diverging,
)
from odradek.replication.requests import Fetchable, FetchParams, FetchResult
from odradek.replication.table import HostedPartition, PartitionTable

OFFSET_OUT_OF_RANGE: Final = 1
INCONSISTENT_TOPIC_ID: Final = 103

logger = logging.getLogger(__name__)


class ReadOutcome(NamedTuple):
    """Results in the order of the entries."""

    results: list[FetchResult]
    size_bytes: int
    is_urgent: bool
    """There is an error or a divergence to tell at once."""


class FollowerNotes:
    """What one follower's fetch tells about its replicas. `advanced`: partitions whose high watermark rose."""

    __slots__ = ("_follower_id", "_now_ms", "advanced", "proposals")

    def __init__(self, follower_id: int, now_ms: float) -> None:
        """`now_ms`: when the fetch arrived."""
        self._follower_id: Final = follower_id
        self._now_ms: Final = now_ms
        self.advanced: list[HostedPartition] = []
        self.proposals: list[tuple[HostedPartition, IsrProposal]] = []
        """Where the follower may join the in-sync set; pending already."""

    def note(self, partition: HostedPartition, entry: Fetchable) -> None:
        """Take down the follower's position in one partition, which `read` has found valid."""
        replica = partition.remote_replica(self._follower_id)
        if replica is None:
            return
        offset, previous, now_ms = entry.fetch_offset, replica.log_end_offset, self._now_ms
        replica.fetched(offset, entry.log_start_offset, now_ms, partition.log.log_end_offset)
        if partition.should_expand(replica):
            # Before the mark rises: while the proposal is pending the mark waits for this replica, too.
            self.proposals.append((partition, partition.propose_expansion(self._follower_id)))
        if offset != previous and partition.advance(now_ms):
            self.advanced.append(partition)


class PartitionReader:
    """Reads from the partitions of one table."""

    def __init__(self, table: PartitionTable, on_storage_failure: Callable[[TopicPartition], None]) -> None:
        """`on_storage_failure` takes a partition offline whose log cannot be read."""
        self._table: Final = table
        self._on_storage_failure: Final = on_storage_failure

    def read(
        self, params: FetchParams, entries: Sequence[Fetchable], notes: FollowerNotes | None = None
    ) -> ReadOutcome:
        """Read every entry; with `notes` also take down the follower's positions."""
        results: list[FetchResult] = []
        find = self._table.online.get
        size_bytes = 0
        is_urgent = False
        for entry in entries:
            partition = find(entry.topic_partition)
            if partition is None:
                result = FetchResult(self._table.missing(entry.topic_partition).code)
            else:
                refused = _refusal(partition, entry, params)
                if refused is None:
                    if notes is not None:
                        notes.note(partition, entry)
                    result = self._data(partition, entry, params, size_bytes)
                else:
                    result = refused
            results.append(result)
            if result.records is not None:
                size_bytes += result.records.length
            elif result.error_code or result.diverging_epoch is not None:
                is_urgent = True
        return ReadOutcome(results, size_bytes, is_urgent)

    def _data(self, partition: HostedPartition, entry: Fetchable, params: FetchParams, taken_bytes: int) -> FetchResult:
        """Marks and records of one partition, after `taken_bytes` of the others."""
        log = partition.log
        mark, stable = log.high_watermark, partition.last_stable_offset
        offset, upper = entry.fetch_offset, upper_bound(partition, params)
        if offset >= upper:
            return FetchResult(0, mark, stable, log.log_start_offset)
        limit = min(entry.max_bytes, params.max_bytes - taken_bytes)
        if limit <= 0 and taken_bytes:
            return FetchResult(0, mark, stable, log.log_start_offset)
        try:
            found = log.read(offset, max_bytes=max(0, limit), max_offset=upper, min_one_batch=not taken_bytes)
        except KafkaStorageError:
            logger.exception("%s cannot be read", partition.topic_partition)
            self._on_storage_failure(partition.topic_partition)
            return FetchResult(KafkaStorageError.code)
        except ProtocolError as error:
            return FetchResult(error.code)
        if not found.length or found.first_batch_incomplete:
            return FetchResult(0, mark, stable, log.log_start_offset)
        aborted: tuple[tuple[int, int], ...] | None = () if params.read_committed else None
        return FetchResult(0, mark, stable, log.log_start_offset, found, aborted_transactions=aborted)


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
    if params.replica_id >= 0 and partition.remote_replica(params.replica_id) is None:
        return failed_result(
            partition,
            UNKNOWN_LEADER_EPOCH if entry.current_leader_epoch > partition.leader_epoch else NOT_LEADER_OR_FOLLOWER,
        )
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
