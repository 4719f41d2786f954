"""Implements the port through which coordinators use the log, on top of the replica manager. Runs on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from odradek.base.errors import (
    CoordinatorLoadInProgressError,
    KafkaStorageError,
    NetworkError,
    NotLeaderOrFollowerError,
    StorageError,
    error_for,
)
from odradek.base.ports import Buffer
from odradek.base.types import NO_SEQUENCE, Offset, TopicPartition
from odradek.coordinator.coordinator_ports import TransactionalWriter
from odradek.coordinator.transactions.transaction_values import TransactionVerifier
from odradek.log.partition_log import PartitionLog
from odradek.log.producers.verification import VerificationGuard
from odradek.metrics.topic_stats import BrokerTopicStats
from odradek.records.checks.validate import AppendOrigin
from odradek.records.formats import iterate_entries
from odradek.replication.replica_manager import ReplicaManager
from odradek.replication.replica_requests import AppendRequest, AppendResult
from odradek.server.data.produce_and_fetch import count_append

ALL_ACKS: Final = -1


class CoordinatorLog:
    """Appends to and reads partitions of internal topics that this broker leads."""

    def __init__(
        self,
        replicas: ReplicaManager,
        topic_stats: BrokerTopicStats,
        *,
        commit_timeout_ms: int,
        load_bytes: int,
        verifier: TransactionVerifier | None = None,
        verifies: Callable[[], bool] = lambda: True,
    ) -> None:
        """`load_bytes`: bytes per read when a partition is loaded. Other tasks run after each read.

        `topic_stats` counts the appends. `verifier` asks the coordinators of transactions; without it, or while
        `verifies` returns false (`transaction.partition.verification.enable`), transactions are not verified.
        """
        self._replicas = replicas
        self._topic_stats = topic_stats
        self._commit_timeout_ms = commit_timeout_ms
        self._load_bytes = load_bytes
        self._verifier = verifier
        self._verifies = verifies

    async def append(
        self, topic_partition: TopicPartition, records: bytes, transaction: TransactionalWriter | None = None
    ) -> Offset:
        """Append records. Returns the offset of the first one when the ISR has them; raises the `ProtocolError`."""
        outcome: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()

        def respond(results: Sequence[AppendResult]) -> None:
            count_append(self._topic_stats, results[0])
            if not outcome.done():
                outcome.set_result(results[0])

        guard = None if transaction is None else transaction.guard
        request = AppendRequest(
            ALL_ACKS,
            self._commit_timeout_ms,
            # The log writes offsets into the buffer, so it gets a copy.
            [(topic_partition, memoryview(bytearray(records)))],
            AppendOrigin.COORDINATOR,
            guards={topic_partition: guard} if isinstance(guard, VerificationGuard) else {},
            needs_guards=transaction is not None
            and self._verifier is not None
            and (self._verifies() or transaction.adds),
        )
        self._replicas.append(request, respond)
        result = await outcome
        if result.error_code:
            raise error_for(result.error_code, result.error_message or f"the append to {topic_partition} failed")
        return Offset(result.first_offset)

    async def verify(self, topic_partition: TopicPartition, transaction: TransactionalWriter) -> TransactionalWriter:
        """Verify a transaction, or add the partition to it, unless it has records there; see `VerifyTransaction`.

        Raises the `ProtocolError` of the coordinator, and the errors of a partition that this broker does not lead.
        """
        if self._verifier is None or not (self._verifies() or transaction.adds):
            return transaction
        guard = self._begin(topic_partition, transaction)
        while guard is not None:
            codes = await self._verifier.verify(transaction, [topic_partition])
            code = codes[topic_partition]
            if code == NetworkError.code:
                raise CoordinatorLoadInProgressError("The coordinator of the transaction does not answer: try again.")
            if code:
                text = f"transaction {transaction.transactional_id!r} does not include {topic_partition}"
                raise error_for(code, text)
            current = self._begin(topic_partition, transaction) if transaction.adds else guard
            if current is guard:
                return transaction._replace(guard=guard)
            # The marker of the previous transaction has come since the guard was made. The new guard needs an answer
            # that is later than the marker.
            guard = current
        return transaction

    def _begin(self, topic_partition: TopicPartition, transaction: TransactionalWriter) -> VerificationGuard | None:
        log = self._replicas.leader(topic_partition).log
        return log.begin_verification(transaction.producer_id, transaction.producer_epoch, NO_SEQUENCE)

    async def read(self, topic_partition: TopicPartition) -> AsyncIterator[bytes]:
        """Yield record sets of whole batches, from the log start to the current log end.

        Raises `NotLeaderOrFollowerError` if this broker does not lead the partition or loses it meanwhile, and
        `KafkaStorageError`.
        """
        partition = self._replicas.leader(topic_partition)
        log, epoch = partition.log, partition.leader_epoch
        offset, end = log.log_start_offset, log.log_end_offset
        while offset < end:
            if not partition.is_leader or partition.leader_epoch != epoch:
                raise NotLeaderOrFollowerError(f"this broker stopped leading {topic_partition} while it read the log")
            log = partition.log  # the log changes if the replica moves to another directory
            try:
                data = await self._load(log, max(offset, log.log_start_offset), end)
            except (StorageError, KafkaStorageError) as error:
                if partition.log is not log:
                    continue
                self._replicas.take_offline(topic_partition)
                raise KafkaStorageError(f"{topic_partition} cannot be read: {error}") from error
            if partition.log is not log or not partition.is_leader or partition.leader_epoch != epoch:
                continue  # it may have been truncated during the read
            records, offset = _whole_batches(data, offset)
            if not records:
                return
            yield records
            await asyncio.sleep(0)

    async def _load(self, log: PartitionLog, offset: int, end: int) -> Buffer:
        lookups = self._replicas.lookups
        found = await lookups.read(log, offset, max_bytes=self._load_bytes, max_offset=end)
        return await lookups.load(log, found)


def _whole_batches(data: Buffer, offset: int) -> tuple[bytes, int]:
    """Return the whole batches at the start of `data`, and the offset after them."""
    length = 0
    for position, header in iterate_entries(data):
        length, offset = position + header.size, header.next_offset
    return bytes(memoryview(data)[:length]), offset
