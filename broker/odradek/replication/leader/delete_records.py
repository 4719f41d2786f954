"""DeleteRecords (KIP-107): the leader raises its log start, and the answer waits until all live replicas have followed.

`server/data/record_handlers` calls it through `ReplicaManager` with an offset for each partition, and gets an error or
a low watermark for each, once, on the loop. Followers learn the new log start from a fetch and report theirs with the
next.

Invariant: a partition without an error in the answer had no live replica, and no future log, that began below the
requested offset.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from odradek.base.errors import (
    InvalidTopicError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    ProtocolError,
    RequestTimedOutError,
)
from odradek.base.ports import Clock
from odradek.base.types import INTERNAL_TOPICS, NO_OFFSET, TopicPartition
from odradek.log.partition_log import PartitionLog
from odradek.replication.partition_table import HostedPartition, PartitionTable
from odradek.timer.purgatory import DelayedOperation, Purgatory

HIGH_WATERMARK: Final = -1
"""Requests the high watermark as offset: delete all committed records."""

logger = logging.getLogger(__name__)


class DeletedRecords(NamedTuple):
    """Result for one partition."""

    error_code: int = 0
    low_watermark: int = NO_OFFSET
    """Smallest log start offset of the live replicas; -1 if this broker does not know it."""


Respond = Callable[[dict[TopicPartition, DeletedRecords]], None]


class DelayedDeleteRecords(DelayedOperation):
    """Waits until the low watermark of every partition has reached the requested offset."""

    __slots__ = ("_ask", "_pending", "_respond", "_results")

    def __init__(
        self,
        timeout_ms: float,
        results: dict[TopicPartition, DeletedRecords],
        pending: Mapping[TopicPartition, int],
        *,
        ask: Callable[[TopicPartition], DeletedRecords],
        respond: Respond,
    ) -> None:
        """`pending` are the requested offsets; `ask` returns the state of a partition."""
        super().__init__(timeout_ms)
        self._results: Final = results
        self._pending = dict(pending)
        self._ask: Final = ask
        self._respond: Final = respond

    def try_complete(self) -> bool:
        """Whether every partition has reached its offset or has failed."""
        for topic_partition, offset in list(self._pending.items()):
            found = self._ask(topic_partition)
            if found.error_code or found.low_watermark >= offset:
                self._results[topic_partition] = found
                del self._pending[topic_partition]
        return not self._pending

    def on_complete(self) -> None:
        """Answer; what is still pending has timed out. The leader has deleted its records nevertheless."""
        for topic_partition in self._pending:
            known = self._results[topic_partition]
            self._results[topic_partition] = known._replace(error_code=RequestTimedOutError.code)
        self._respond(self._results)


class RecordDeletion:
    """Deletes records from the partitions of one table."""

    def __init__(
        self,
        table: PartitionTable,
        clock: Clock,
        *,
        find: Callable[[TopicPartition], HostedPartition],
        future: Callable[[TopicPartition], PartitionLog | None],
        purge_interval: int,
    ) -> None:
        """`find` returns the hosted partition or raises; `future` returns its future log, if it moves.

        `purge_interval`: see `Purgatory`.
        """
        self._table: Final = table
        self._find: Final = find
        self._future: Final = future
        self.purgatory: Final[Purgatory[DelayedDeleteRecords]] = Purgatory(
            clock, "DeleteRecords", purge_interval=purge_interval
        )

    def delete(self, offsets: Mapping[TopicPartition, int], timeout_ms: float, respond: Respond) -> None:
        """Raise the log starts of leaders. Answers when the replicas have followed, or on timeout."""
        results: dict[TopicPartition, DeletedRecords] = {}
        pending: dict[TopicPartition, int] = {}
        for topic_partition, offset in offsets.items():
            try:
                target = self._delete(topic_partition, offset)
            except ProtocolError as error:
                logger.info("%s: records are not deleted: %s", topic_partition, error)
                results[topic_partition] = DeletedRecords(error.code)
                continue
            found = results[topic_partition] = self._ask(topic_partition)
            if not found.error_code and found.low_watermark < target:
                pending[topic_partition] = target
        if not pending:
            respond(results)
            return
        operation = DelayedDeleteRecords(timeout_ms, results, pending, ask=self._ask, respond=respond)
        self.purgatory.try_complete_else_watch(operation, list(pending))

    def _delete(self, topic_partition: TopicPartition, offset: int) -> int:
        """Raise one leader's log start. Returns the offset that its replicas have to reach."""
        if topic_partition.topic in INTERNAL_TOPICS:
            raise InvalidTopicError(f"records of the internal topic {topic_partition.topic} cannot be deleted")
        partition = self._find(topic_partition)
        if not partition.is_leader:
            raise NotLeaderOrFollowerError(f"{topic_partition} is led by broker {partition.leader_id}")
        log = partition.log
        policy = log.config.cleanup_policy
        if "compact" in policy and "delete" not in policy:
            raise PolicyViolationError(
                f"records of {topic_partition} cannot be deleted: its cleanup.policy does not include delete"
            )
        target = log.high_watermark if offset == HIGH_WATERMARK else offset
        if target < 0:
            raise OffsetOutOfRangeError(f"offset {target} of {topic_partition} is out of range")
        log.delete_records_before(target)
        return target

    def _ask(self, topic_partition: TopicPartition) -> DeletedRecords:
        """Return the low watermark of the partition, or the error why this broker does not know it."""
        partition = self._table.online.get(topic_partition)
        if partition is None:
            return DeletedRecords(self._table.missing(topic_partition).code)
        if not partition.is_leader:
            return DeletedRecords(NotLeaderOrFollowerError.code)
        return DeletedRecords(0, self.low_watermark(partition))

    def low_watermark(self, partition: HostedPartition) -> int:
        """Return the smallest log start offset of the leader, its live followers and the leader's future log."""
        low = partition.log.log_start_offset
        for broker_id in partition.replicas:
            replica = partition.remote_replica(broker_id)
            if replica is not None and replica.log_start_offset < low and self._table.is_alive(broker_id):
                low = replica.log_start_offset
        future = self._future(partition.topic_partition)
        return low if future is None else min(low, future.log_start_offset)
