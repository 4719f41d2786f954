"""Delayed operations of replication: produces that wait for the ISR or a flush, and fetches that wait for data.

`replica_manager` watches them under the keys of their partitions, and checks these when a log end, a high watermark, a
durable limit or a role changes. Each operation answers exactly once through its `respond`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final, NamedTuple

from odradek.base.errors import RequestTimedOutError
from odradek.base.types import TopicPartition
from odradek.replication.leader.reader import PartitionReader, upper_bound
from odradek.replication.partition_table import HostedPartition, PartitionTable
from odradek.replication.replica_requests import AppendResult, Fetchable, FetchParams, FetchResult
from odradek.replication.sessions.fetch_session import FetchSession
from odradek.timer.purgatory import DelayedOperation

ProduceResponder = Callable[[list[AppendResult]], None]
FetchResponder = Callable[[list[FetchResult]], None]


class DelayedProduce(DelayedOperation):
    """Waits until the ISR of every partition has the appended records, with acks=1 until the leader's are durable."""

    __slots__ = ("_pending", "_respond", "_results", "_table", "_waits_for_isr")

    def __init__(
        self,
        timeout_ms: float,
        table: PartitionTable,
        results: list[AppendResult],
        respond: ProduceResponder,
        *,
        waits_for_isr: bool,
    ) -> None:
        """`results` has the result of the leader's append for each partition. The successful ones wait.

        `waits_for_isr`: whether they wait for the ISR (acks=all), or only for a required flush of the leader (acks=1).
        """
        super().__init__(timeout_ms)
        self._waits_for_isr: Final = waits_for_isr
        self._table: Final = table
        self._results: Final = results
        self._respond: Final = respond
        self._pending = [index for index, result in enumerate(results) if not result.error_code]

    def keys(self) -> list[TopicPartition]:
        """Return the partitions to wait for."""
        return [self._results[index].topic_partition for index in self._pending]

    def try_complete(self) -> bool:
        """Whether every partition is acknowledged or has failed."""
        left: list[int] = []
        for index in self._pending:
            result = self._results[index]
            partition = self._table.online.get(result.topic_partition)
            if partition is None:
                code: int | None = self._table.missing(result.topic_partition).code
            else:
                end = result.last_offset + 1
                code = partition.acknowledged(end) if self._waits_for_isr else partition.synced(end)
            if code is None:
                left.append(index)
            elif code:
                self._fail(index, code)
        self._pending = left
        return not left

    def on_complete(self) -> None:
        """Answer; partitions that are still pending have timed out."""
        for index in self._pending:
            self._fail(index, RequestTimedOutError.code)
        self._respond(self._results)

    def _fail(self, index: int, code: int) -> None:
        self._results[index].error_code = code


class _Awaited(NamedTuple):
    """State of a partition when the fetch began to wait."""

    partition: HostedPartition
    leader_epoch: int
    is_leader: bool
    offset: int
    max_bytes: int
    is_cold: bool
    """Whether its records are looked up on a thread."""


class DelayedFetch(DelayedOperation):
    """Waits until enough bytes are available or the state of a partition changes; then reads again."""

    __slots__ = ("_awaited", "_entries", "_params", "_reader", "_respond", "_session")

    def __init__(
        self,
        params: FetchParams,
        entries: Sequence[Fetchable],
        reader: PartitionReader,
        respond: FetchResponder,
        *,
        session: FetchSession | None = None,
    ) -> None:
        """All `entries` can be read now. Resting entries of `session` may be added during the wait."""
        super().__init__(params.max_wait_ms)
        self._params: Final = params
        self._entries: Final = entries
        self._reader: Final = reader
        self._respond: Final = respond
        self._session: Final = session
        self._awaited: list[_Awaited] = []

    def wait_for(
        self, find: Callable[[TopicPartition], HostedPartition | None], cold: Sequence[int] = ()
    ) -> list[Hashable]:
        """Record the state of the partitions. Returns the keys to watch: the partitions and the session.

        `cold`: indices of the entries whose records are looked up on a thread.
        """
        keys: list[Hashable] = [] if self._session is None else [self._session]
        for index, entry in enumerate(self._entries):
            partition = find(entry.topic_partition)
            if partition is not None:
                keys.append(entry.topic_partition)
                self._awaited.append(
                    _Awaited(
                        partition,
                        partition.leader_epoch,
                        partition.is_leader,
                        entry.fetch_offset,
                        entry.max_bytes,
                        index in cold,
                    )
                )
        return keys

    def try_complete(self) -> bool:
        """Whether `min_bytes` are available, or a change of role or epoch or a truncation has to be returned.

        Also after a later request of the session: the response is then an error.
        """
        params = self._params
        size_bytes = 0
        if self._session is not None:
            if self._session.is_overtaken(self._entries):
                return True
            for entry, rest in self._session.woken():
                self._awaited.append(
                    _Awaited(
                        rest.partition, rest.leader_epoch, rest.is_leader, entry.fetch_offset, entry.max_bytes, False
                    )
                )
        for partition, leader_epoch, is_leader, offset, max_bytes, is_cold in self._awaited:
            if partition.leader_epoch != leader_epoch or partition.is_leader is not is_leader:
                return True
            upper = upper_bound(partition, params)
            if offset < upper:
                size_bytes += self._available(partition, offset, upper, max_bytes, is_cold)
                if size_bytes >= params.min_bytes:
                    return True
            elif offset > partition.log.log_end_offset:
                return True
        return False

    def on_complete(self) -> None:
        """Answer with the data that can be read now."""
        if self._session is not None:
            self._session.refresh(self._entries)
        # The purgatory may keep a completed operation for a while; drop references to logs that may be deleted.
        self._awaited = []
        self._respond(self._reader.read(self._params, self._entries).results)

    def _available(self, partition: HostedPartition, offset: int, upper: int, max_bytes: int, is_cold: bool) -> int:
        params = self._params
        if params.replica_id >= 0 and self._reader.is_held_back(partition, params.replica_id):
            return 0
        if params.min_bytes <= 1 and not is_cold:
            return 1  # A single record is enough.
        if offset < partition.log.log_start_offset:
            return params.min_bytes  # Return the error immediately.
        if is_cold:
            return self._reader.available(partition, offset, upper, max_bytes, params)
        if partition.log.is_sealed_below(offset, upper):
            return params.min_bytes  # As in Kafka: this read can never return more.
        return self._reader.available(partition, offset, upper, max_bytes, params)
