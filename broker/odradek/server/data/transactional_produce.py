"""Produce requests with a transactional id: the first append of a transaction waits for its verification (KIP-890).

`server/data/produce_and_fetch` passes these requests on. For each partition in which the producer has no open
transaction, the coordinator is asked whether the transaction is open and includes the partition. From Produce version
12 on, it is asked to add the partition (transaction version 2). The records wait in a
queue of the producer and the partition, in the order of the requests. Everything else is appended at once.

Invariants: the batches of one producer and partition are appended in the order of their requests, although a client
sends the next request before the last one is answered; a request is answered once, when all its partitions have a
result; only records that wait are copied.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Final

from odradek.base.errors import (
    NONE,
    ClusterAuthorizationFailedError,
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    CorruptMessageError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTransactionStateError,
    NetworkError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    ProducerFencedError,
    ProtocolError,
    TransactionAbortableError,
    UnknownServerError,
)
from odradek.base.tasks import TaskOwner
from odradek.base.types import TopicPartition
from odradek.coordinator.coordinator_ports import TransactionalWriter
from odradek.coordinator.transactions.transaction_values import TransactionVerifier
from odradek.log.producers.verification import VerificationGuard
from odradek.records.v2.batch import BatchHeader, read_header
from odradek.replication.leader.delayed_requests import ProduceResponder
from odradek.replication.partition_table import HostedPartition
from odradek.replication.replica_manager import ReplicaManager
from odradek.replication.replica_requests import AppendRequest, AppendResult

_RETRIED: Final = frozenset(
    {
        ConcurrentTransactionsError.code,
        CoordinatorLoadInProgressError.code,
        CoordinatorNotAvailableError.code,
        NotCoordinatorError.code,
        NetworkError.code,
    }
)
"""Results of a verification for which the producer gets NOT_ENOUGH_REPLICAS: every producer retries it, without new
metadata."""

_OF_BROKERS: Final[Mapping[int, int]] = {
    ProducerFencedError.code: InvalidProducerEpochError.code,
    ClusterAuthorizationFailedError.code: InvalidTransactionStateError.code,
}
"""Errors between brokers, and what the producer gets instead."""

WAITING_BYTES: Final = 64 << 20
"""Maximum size of all records that wait. What exceeds it is refused with NOT_ENOUGH_REPLICAS, which producers retry."""

Entry = tuple[TopicPartition, memoryview]
_Key = tuple[TopicPartition, int]
"""A partition and a producer id."""


class _Verification:
    """A question to the coordinator, for the partitions of one request and the requests that join it."""

    __slots__ = ("codes", "connection", "keys", "writer")

    def __init__(self, writer: TransactionalWriter, connection: object) -> None:
        self.writer: Final = writer
        self.connection: Final = connection
        self.keys: list[_Key] = []
        self.codes: Mapping[TopicPartition, int] | None = None
        """The answer; None while it is awaited."""


class _Produce:
    """A request of which some records wait."""

    __slots__ = ("_left", "_respond", "_results", "adds", "knows_abortable", "number", "request")

    def __init__(
        self, request: AppendRequest, number: int, respond: ProduceResponder, *, knows_abortable: bool, adds: bool
    ) -> None:
        self.number: Final = number
        """Requests are numbered in the order of their arrival."""
        # Without the entries, which refer to the borrowed memory.
        self.request: Final = _part(request, (), {})
        self.knows_abortable: Final = knows_abortable
        self.adds: Final = adds
        self._left = len(request.entries)
        self._respond: Final = respond
        self._results: list[AppendResult] = []

    def add(self, results: Sequence[AppendResult]) -> None:
        """Add the results of some partitions; answer if they are the last ones."""
        self._results += results
        self._left -= len(results)
        if not self._left:
            self._respond(self._results)


class _Waiting:
    """The records of a request that wait in one queue."""

    __slots__ = ("guard", "key", "leader_epoch", "produce", "records", "verification")

    def __init__(
        self,
        produce: _Produce,
        key: _Key,
        records: memoryview,
        guard: VerificationGuard | None,
        *,
        verification: _Verification | None,
        leader_epoch: int,
    ) -> None:
        """Copies the records. Without a `verification`, they only wait for their predecessors."""
        self.produce: Final = produce
        self.key: Final = key
        self.records: Final = bytearray(records)
        self.guard = guard
        self.verification = verification
        self.leader_epoch: Final = leader_epoch

    @property
    def is_ready(self) -> bool:
        return self.verification is None or self.verification.codes is not None

    @property
    def code(self) -> int:
        """The answer of the coordinator."""
        if self.verification is None or self.verification.codes is None:
            return NONE
        return self.verification.codes.get(self.key[0], UnknownServerError.code)


class TransactionalProduce:
    """Appends for transactional producers. Runs on the event loop."""

    def __init__(
        self, replicas: ReplicaManager, verifier: TransactionVerifier | None, is_enabled: Callable[[], bool]
    ) -> None:
        """`is_enabled`: the current value of `transaction.partition.verification.enable`. If it is false, or without a
        `verifier`, transactions are not verified. Partitions are added even if it is false."""
        self._replicas: Final = replicas
        self._verifier: Final = verifier
        self._is_enabled: Final = is_enabled
        self._queues: dict[_Key, deque[_Waiting]] = {}
        self._count = 0
        self._waiting_bytes = 0
        self._answered: list[_Key] = []
        self._is_draining = False
        self._tasks: Final = TaskOwner()

    @property
    def waiting(self) -> int:
        """Number of record sets that wait."""
        return sum(len(queue) for queue in self._queues.values())

    async def close(self) -> None:
        """Answer all waiting requests with a retriable error. Idempotent."""
        await self._tasks.close()

    def append(
        self,
        request: AppendRequest,
        transactional_id: str,
        connection: object,
        respond: ProduceResponder,
        *,
        knows_abortable: bool,
        adds: bool = False,
    ) -> None:
        """Append as `ReplicaManager.append`, after the verification if one is needed.

        Batches that are not transactional are appended, too, as in Kafka. `connection`: only requests of the same one
        share a verification. `knows_abortable`: whether the client knows TRANSACTION_ABORTABLE (Produce 11 and later).
        `adds`: whether the partitions become part of the transaction (Produce 12 and later).
        """
        headers = [_transactional_header(records) for _, records in request.entries]
        producers = {(header.producer_id, header.producer_epoch) for header in headers if header is not None}
        if len(producers) > 1:
            respond([_failed(each, InvalidProducerIdMappingError.code, _SEVERAL) for each, _ in request.entries])
            return
        needs_guards = self._verifier is not None and (adds or self._is_enabled())
        if not producers or not (needs_guards or self._queues):
            self._replicas.append(request, respond)
            return
        request = AppendRequest(
            request.acks,
            request.timeout_ms,
            request.entries,
            request.origin,
            zstd_allowed=request.zstd_allowed,
            any_format=request.any_format,
            needs_guards=needs_guards,
        )
        self._count += 1
        produce = _Produce(request, self._count, respond, knows_abortable=knows_abortable, adds=adds)
        new = _Verification(TransactionalWriter(transactional_id, *producers.pop(), adds=adds), connection)
        at_once = [
            (topic_partition, records)
            for (topic_partition, records), header in zip(request.entries, headers, strict=True)
            if header is None or not self._waits(produce, topic_partition, records, header, new)
        ]
        if new.keys:
            self._start(new)
        if len(at_once) == len(request.entries):
            self._replicas.append(request, respond)
        elif at_once:
            self._replicas.append(_part(request, at_once, {}), produce.add)

    def _waits(
        self,
        produce: _Produce,
        topic_partition: TopicPartition,
        records: memoryview,
        header: BatchHeader,
        new: _Verification,
    ) -> bool:
        """Put records that cannot be appended yet into their queue, or refuse them. Returns False for others.

        `new`: the verification for all partitions of the request that need one.
        """
        key = topic_partition, header.producer_id
        queue = self._queues.get(key)
        partition = self._replicas.table.online.get(topic_partition)
        guard = None
        if produce.request.needs_guards and partition is not None and partition.is_leader:
            guard = partition.log.begin_verification(header.producer_id, header.producer_epoch, header.base_sequence)
        if guard is None and queue is None:
            return False
        if self._waiting_bytes + len(records) > WAITING_BYTES:
            produce.add([_failed(topic_partition, NotEnoughReplicasError.code, "too many records wait")])
            return True
        self._waiting_bytes += len(records)
        verification = None
        if guard is not None:
            verification = _joinable(queue or (), guard, new)
            if verification is None:
                verification = new
                new.keys.append(key)
        if queue is None:
            queue = self._queues[key] = deque()
        epoch = -1 if partition is None else partition.leader_epoch
        queue.append(_Waiting(produce, key, records, guard, verification=verification, leader_epoch=epoch))
        return True

    # Verification

    def _start(self, verification: _Verification) -> None:
        verifying = self._tasks.spawn(self._verify(verification), name="verify-transaction")
        verifying.add_done_callback(partial(self._verified, verification))

    async def _verify(self, verification: _Verification) -> Mapping[TopicPartition, int]:
        assert self._verifier is not None
        return await self._verifier.verify(verification.writer, [partition for partition, _ in verification.keys])

    def _verified(self, verification: _Verification, verifying: asyncio.Task[Mapping[TopicPartition, int]]) -> None:
        """Append what a verification has permitted, and answer the rest."""
        if verifying.cancelled():
            verification.codes = _for_all(verification, CoordinatorNotAvailableError.code)
        elif (error := verifying.exception()) is not None:
            # `TaskOwner` logs it.
            code = error.code if isinstance(error, ProtocolError) else UnknownServerError.code
            verification.codes = _for_all(verification, code)
        else:
            verification.codes = verifying.result()
        self._answered += verification.keys
        if not self._is_draining:
            self._is_draining = True
            try:
                while self._answered:
                    keys, self._answered = self._answered, []
                    self._drain(keys)
            finally:
                self._is_draining = False

    def _drain(self, keys: Iterable[_Key]) -> None:
        """Append the records at the heads of queues whose verification is complete.

        A response may make a connection deliver its next request, whose records join the queue. They must not overtake,
        so records stay in their queue until they are appended, and the queue is looked at again.
        """
        ready: list[_Waiting] = []
        for key in dict.fromkeys(keys):
            for one in self._queues.get(key, ()):
                if not one.is_ready or self._asks_again(one):
                    break
                ready.append(one)
        ready.sort(key=lambda one: one.produce.number)
        try:
            for produce, several in groupby(ready, key=attrgetter("produce")):
                self._append(produce, several)
        finally:
            for one in ready:
                queue = self._queues[one.key]
                queue.popleft()
                self._waiting_bytes -= len(one.records)
                if not queue:
                    del self._queues[one.key]
                elif queue[0].is_ready:
                    self._answered.append(one.key)

    def _asks_again(self, one: _Waiting) -> bool:
        """Ask again if the guard of records whose partition was added is outdated. Return whether they wait for it.

        Their producer may begin its next transaction while the markers of the last one are written. If this partition
        got its marker after the guard was made, the new guard needs an answer that is later than the marker.
        """
        old = one.verification
        partition = self._replicas.table.online.get(one.key[0])
        if old is None or not old.writer.adds or one.code or partition is None or not partition.is_leader:
            return False
        header = read_header(one.records)
        guard = partition.log.begin_verification(header.producer_id, header.producer_epoch, header.base_sequence)
        if guard is None or guard is one.guard:
            one.guard = guard
            return False
        new = _Verification(old.writer, old.connection)
        new.keys.append(one.key)
        for each in self._queues[one.key]:
            if each.verification is old:
                each.verification, each.guard = new, guard
        self._start(new)
        return True

    def _append(self, produce: _Produce, several: Iterable[_Waiting]) -> None:
        """Append the records of one request whose verifications have succeeded. Add the errors of the others."""
        entries: list[Entry] = []
        guards: dict[TopicPartition, VerificationGuard] = {}
        refused: list[AppendResult] = []
        for one in several:
            topic_partition = one.key[0]
            partition = self._replicas.table.online.get(topic_partition)
            if one.code:
                refused.append(_unverified(topic_partition, one.code, produce))
            elif partition is not None and partition.leader_epoch != one.leader_epoch:
                refused.append(_led_otherwise(partition))
            else:
                entries.append((topic_partition, memoryview(one.records)))
                if one.guard is not None:
                    guards[topic_partition] = one.guard
        if refused:
            produce.add(refused)
        if entries:
            self._replicas.append(_part(produce.request, entries, guards), produce.add)


def _transactional_header(records: memoryview) -> BatchHeader | None:
    """Return the header of a transactional batch; None for others, and for invalid ones, which the log refuses."""
    try:
        header = read_header(records)
    except CorruptMessageError:
        return None
    return header if header.is_transactional and header.producer_id >= 0 else None


def _joinable(queue: Iterable[_Waiting], guard: VerificationGuard, new: _Verification) -> _Verification | None:
    """Return the verification in a queue that answers the same question as a new one would.

    It has the same guard, so no marker came since. It belongs to the same connection, so it cannot be that of a request
    that was delayed for so long that the answer may be outdated.
    """
    for one in queue:
        verification = one.verification
        if (
            verification is not None
            and one.guard is guard
            and verification.writer == new.writer
            and verification.connection is new.connection
        ):
            return verification
    return None


def _for_all(verification: _Verification, code: int) -> Mapping[TopicPartition, int]:
    return {topic_partition: code for topic_partition, _ in verification.keys}


def _part(
    request: AppendRequest, entries: Sequence[Entry], guards: Mapping[TopicPartition, VerificationGuard]
) -> AppendRequest:
    """Return a request for some of the entries."""
    return AppendRequest(
        request.acks,
        request.timeout_ms,
        entries,
        request.origin,
        zstd_allowed=request.zstd_allowed,
        any_format=request.any_format,
        guards=guards,
        needs_guards=request.needs_guards,
    )


_SEVERAL: Final = "the transactional batches of a request must have one producer id and epoch"


def _failed(topic_partition: TopicPartition, code: int, reason: str | None) -> AppendResult:
    return AppendResult(topic_partition, code, error_message=reason)


def _led_otherwise(partition: HostedPartition) -> AppendResult:
    return AppendResult(
        partition.topic_partition,
        NotLeaderOrFollowerError.code,
        leader_id=partition.leader_id,
        leader_epoch=partition.leader_epoch,
    )


def _unverified(topic_partition: TopicPartition, code: int, produce: _Produce) -> AppendResult:
    """Return the error of a producer whose transaction could not be verified, or does not include the partition."""
    if code == ConcurrentTransactionsError.code and produce.adds:
        return _failed(topic_partition, code, "the previous transaction is not complete yet")
    if code in _RETRIED:
        reason = f"the transaction could not be verified (error {code})"
        return _failed(topic_partition, NotEnoughReplicasError.code, reason)
    code = _OF_BROKERS.get(code, code)
    is_abortable = code == TransactionAbortableError.code
    if code == InvalidTransactionStateError.code or (is_abortable and not produce.knows_abortable):
        reason = "the partition is not part of the transaction"
        return _failed(topic_partition, InvalidTransactionStateError.code, reason)
    return _failed(topic_partition, code, None)
