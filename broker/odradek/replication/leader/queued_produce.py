"""Records of producers that wait until a thread of a slow log directory has written them.

`ReplicaManager.append` creates one `QueuedProduce` for each partition whose log has a queue, and one `DelayedWrites`
for the request. When each of them has a result, the request continues as after an append on the event loop: it waits
for required flushes and the ISR, or is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from odradek.base.errors import KafkaStorageError, NotLeaderOrFollowerError, ProtocolError, RequestTimedOutError
from odradek.base.types import TopicPartition
from odradek.log.write_group import WriteGroup
from odradek.replication.partition_table import HostedPartition, PartitionTable
from odradek.replication.replica_requests import AppendRequest, AppendResult
from odradek.timer.purgatory import DelayedOperation, Purgatory


class Append(Protocol):
    """Appends to a partition, or stages the append in a group; `ReplicaManager._append`."""

    def __call__(
        self,
        partition: HostedPartition,
        records: memoryview,
        request: AppendRequest,
        group: WriteGroup | None = None,
        /,
    ) -> AppendResult:
        """Return the result. Raises `GroupFullError`."""
        ...


class QueuedProduce:
    """The `QueuedAppend` of a leader."""

    __slots__ = (
        "_append",
        "_epoch",
        "_partition",
        "_purgatory",
        "_records",
        "_request",
        "is_done",
        "place",
        "result",
        "size_bytes",
    )

    def __init__(
        self,
        partition: HostedPartition,
        records: memoryview,
        request: AppendRequest,
        *,
        append: Append,
        purgatory: Purgatory[DelayedOperation],
        place: int,
    ) -> None:
        """Copies the records, because their memory is borrowed.

        `append` validates and stages the records. The request waits in `purgatory`. `place`: its index in the request.
        """
        self._partition: Final = partition
        self._records: Final = bytearray(records)
        # Without the entries, which refer to the borrowed memory.
        self._request: Final = AppendRequest(
            request.acks,
            request.timeout_ms,
            (),
            request.origin,
            zstd_allowed=request.zstd_allowed,
            any_format=request.any_format,
            guards=request.guards,
            needs_guards=request.needs_guards,
        )
        self._append: Final = append
        self._purgatory: Final = purgatory
        self._epoch = -1
        self.place: Final = place
        self.size_bytes = len(records)
        self.is_done = False
        """Whether `result` is final."""
        self.result = AppendResult(partition.topic_partition, RequestTimedOutError.code)

    def submit(self) -> None:
        """Put the append into the queue of its log."""
        log = self._partition.log
        assert log.write_queue is not None
        try:
            log.write_queue.submit(log, self)
        except KafkaStorageError as error:
            self.result = _failed(self.result, error)
            self.is_done = True

    def finish(self, code: int) -> None:
        """Answer now, because of a timeout or a lost role: it is not written if that has not begun."""
        self.result.error_code = code
        self.is_done = True

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return self._partition.topic_partition

    # QueuedAppend

    @property
    def is_current(self) -> bool:
        """See `QueuedAppend`."""
        return self._partition.is_leader and self._partition.leader_epoch == self._epoch

    def stage(self, group: WriteGroup) -> bool:
        """See `QueuedAppend`."""
        if self.is_done:
            return False
        before = group.end_offset
        result = self._append(self._partition, memoryview(self._records), self._request, group)
        self._epoch = self._partition.leader_epoch
        self.result = result
        if group.end_offset != before:
            return True
        self._answer()  # refused, or a duplicate
        return False

    def written(self) -> None:
        """See `QueuedAppend`."""
        self.is_done = True

    def failed(self, error: ProtocolError) -> None:
        """See `QueuedAppend`."""
        if not self.is_done:
            self.result = _failed(self.result, error)
            self._answer()

    def _answer(self) -> None:
        self.is_done = True
        self._purgatory.check(self._partition.topic_partition)


def _failed(result: AppendResult, error: ProtocolError) -> AppendResult:
    return AppendResult(result.topic_partition, error.code, error_message=str(error), size_bytes=result.size_bytes)


class DelayedWrites(DelayedOperation):
    """Waits until slow directories have written the records of a request."""

    __slots__ = ("_queued", "_results", "_table", "_written")

    def __init__(
        self,
        timeout_ms: float,
        table: PartitionTable,
        results: list[AppendResult],
        queued: Sequence[QueuedProduce],
        written: Callable[[], None],
    ) -> None:
        """`results` are those of all entries, with placeholders for `queued`; `written` continues the request."""
        super().__init__(timeout_ms)
        self._table: Final = table
        self._results: Final = results
        self._queued: Final = queued
        self._written: Final = written

    def keys(self) -> list[TopicPartition]:
        """Return the partitions to wait for."""
        return [one.topic_partition for one in self._queued]

    def try_complete(self) -> bool:
        """Whether all records are written or refused."""
        for one in self._queued:
            if not one.is_done:
                partition = self._table.online.get(one.topic_partition)
                if partition is None:
                    one.finish(self._table.missing(one.topic_partition).code)
                elif not partition.is_leader:
                    one.finish(NotLeaderOrFollowerError.code)
        return all(one.is_done for one in self._queued)

    def on_complete(self) -> None:
        """Continue; what is not written yet has timed out."""
        for one in self._queued:
            if not one.is_done:
                one.finish(RequestTimedOutError.code)
            self._results[one.place] = one.result
        self._written()
