"""Asks the coordinators of transactions whether a transaction includes a partition (KIP-890, AddPartitionsToTxn).

The leader of a partition asks before it appends the first records of a transaction. For a producer of transaction
version 2, it asks the coordinator to add the partition. The coordinator is the leader of
the transactional id's partition of `__transaction_state`: this broker, which answers at once, or another one. One
request per broker is in progress, and the transactions that wait go into the next one.

Invariants: each call completes, at the latest with the deadline of its request or with `close`; calls for the same
producer complete in their order, also if its coordinator moves between them. A merged call was not sent before, so
every verification begins after its call.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from odradek.base.errors import (
    NONE,
    BrokerNotAvailableError,
    ConcurrentTransactionsError,
    CoordinatorNotAvailableError,
    InvalidProducerEpochError,
    NetworkError,
    OdradekError,
    ProtocolError,
    UnknownServerError,
    UnsupportedVersionError,
)
from odradek.base.ports import Clock, Timer
from odradek.base.tasks import TaskOwner
from odradek.base.types import TopicPartition
from odradek.cluster import MetadataCache
from odradek.coordinator.broker_links import BrokerLinks
from odradek.coordinator.coordinator_ports import TransactionalWriter
from odradek.coordinator.transactions.sender_requests import (
    VERIFICATION_SINCE,
    WantedVerification,
    producer_code,
    verification_codes,
    verification_message,
)
from odradek.coordinator.transactions.transaction_values import ProducerIdAndEpoch
from odradek.protocol.codec import Message
from odradek.protocol.keys import ApiKey
from odradek.protocol.messages.transactions import AddPartitionsToTxnResponse

logger = logging.getLogger(__name__)

TRANSACTIONS_PER_REQUEST: Final = 1_000
"""Largest number of transactions in one request, because a coordinator handles a request without interruption."""

ADDITION_RETRY_MS: Final = 20.0
ADDITION_RETRIES: Final = 5
"""Pause and number of retries while the markers of the previous transaction are written, so that the producer rarely
has to wait for its own retry. The values are those of Kafka 4 (`add.partitions.to.txn.retry.backoff.ms` and
`add.partitions.to.txn.retry.backoff.max.ms`)."""

VerifyHere = Callable[[str, ProducerIdAndEpoch, Sequence[TopicPartition]], Mapping[TopicPartition, int]]
"""Asks the coordinator of this broker for an error code per partition. Raises `ProtocolError` for a whole
transaction."""

AddHere = Callable[[str, ProducerIdAndEpoch, Sequence[TopicPartition]], Awaitable[Mapping[TopicPartition, int]]]
"""Makes the coordinator of this broker add partitions. Returns and raises as `VerifyHere`."""


class _Call:
    """One call of `verify`."""

    __slots__ = ("attempts", "codes", "outcome", "partitions")

    def __init__(self, partitions: Sequence[TopicPartition]) -> None:
        self.partitions: Final = partitions
        self.outcome: Final[asyncio.Future[Mapping[TopicPartition, int]]] = asyncio.get_running_loop().create_future()
        self.codes: dict[TopicPartition, int] | None = None
        """The result, which waits until earlier calls of the producer have theirs."""
        self.attempts = 0
        """Number of retries."""


class _Verification:
    """The calls for one transaction that go into the same request."""

    __slots__ = ("calls", "writer")

    def __init__(self, writer: TransactionalWriter) -> None:
        self.writer: Final = writer
        self.calls: Final[list[_Call]] = []

    def wanted(self) -> WantedVerification:
        partitions = dict.fromkeys(partition for call in self.calls for partition in call.partitions)
        return WantedVerification(self.writer, partitions)


_Waiting = OrderedDict[tuple[str, int, bool], _Verification]
"""The next requests to a broker, by transactional id, producer id and whether partitions are added."""


class VerificationSender:
    """Implements `TransactionVerifier`.

    A broker that does not support AddPartitionsToTxn version 4 cannot verify: Kafka before 3.6, in a cluster with
    brokers of several versions. As in Kafka, its transactions count as verified, because their producers could not
    write otherwise. They may hang as they could before KIP-890, until that broker is upgraded.
    """

    def __init__(
        self,
        *,
        broker_id: int,
        cluster: MetadataCache,
        links: BrokerLinks,
        clock: Clock,
        partition_of: Callable[[str], TopicPartition],
        verify_here: VerifyHere,
        add_here: AddHere,
    ) -> None:
        """`broker_id`: id of this broker. `links`: channels that nothing else uses; the caller closes them.

        `partition_of` returns the partition of `__transaction_state` for a transactional id.
        """
        self._broker_id: Final = broker_id
        self._cluster: Final = cluster
        self._links: Final = links
        self._clock: Final = clock
        self._partition_of: Final = partition_of
        self._verify_here: Final = verify_here
        self._add_here: Final = add_here
        self._queues: Final[dict[int, _Waiting]] = {}
        """By broker id. A queue exists while its task runs."""
        self._calls: Final[dict[int, deque[_Call]]] = {}
        """Calls without a result, by producer id and in their order."""
        self._unable: Final[set[int]] = set()
        """Brokers that could not verify when they were last asked."""
        self._timers: Final[dict[_Call, Timer]] = {}
        """The calls that wait for their next attempt."""
        self._tasks: Final = TaskOwner()
        self._failures = 0
        self._is_closed = False

    @property
    def failure_count(self) -> int:
        """Number of partitions, since the start, whose verification failed; for Kafka's `VerificationFailureRate`."""
        return self._failures

    def verify(
        self, writer: TransactionalWriter, partitions: Sequence[TopicPartition]
    ) -> Awaitable[Mapping[TopicPartition, int]]:
        """Return an error code per partition, 0 if the transaction is open and includes the partition.

        If the `writer` adds partitions, the coordinator adds those that are missing. Codes are those of the
        coordinator, except that PRODUCER_FENCED is INVALID_PRODUCER_EPOCH, which producers expect here. For a partition
        that is not in the transaction, Kafka has INVALID_TXN_STATE before 3.8 and TRANSACTION_ABORTABLE since.
        INVALID_PRODUCER_EPOCH if a later epoch of the producer is to be verified. COORDINATOR_NOT_AVAILABLE if the
        coordinator is not known, and after `close`; NETWORK_EXCEPTION if it does not answer in time. Calls for the same
        producer complete in the order of the calls.
        """
        call = _Call(partitions)
        self._calls.setdefault(writer.producer_id, deque()).append(call)
        self._start(writer, call)
        return call.outcome

    async def close(self) -> None:
        """End all verifications; their result is COORDINATOR_NOT_AVAILABLE. Idempotent."""
        self._is_closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        await self._tasks.close()
        for calls in self._calls.values():
            for call in calls:
                if not call.outcome.done():
                    unanswered = dict.fromkeys(call.partitions, CoordinatorNotAvailableError.code)
                    call.outcome.set_result(unanswered if call.codes is None else call.codes)
        self._calls.clear()

    # Coordinators

    def _coordinator(self, transactional_id: str) -> int | None:
        """Return the id of the coordinator's broker; None if it is not known or has no address."""
        if self._is_closed:
            return None
        state = self._cluster.image.partition(self._partition_of(transactional_id))
        if state is None or (state.leader != self._broker_id and not self._links.reaches(state.leader)):
            return None
        return state.leader

    def _codes_here(
        self, writer: TransactionalWriter, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        producer = ProducerIdAndEpoch(writer.producer_id, writer.producer_epoch)
        try:
            codes = self._verify_here(writer.transactional_id, producer, partitions)
        except ProtocolError as error:
            return dict.fromkeys(partitions, producer_code(error.code))
        return {partition: producer_code(codes[partition]) for partition in partitions}

    # Queues

    def _start(self, writer: TransactionalWriter, call: _Call) -> None:
        """Ask the coordinator of this time."""
        self._timers.pop(call, None)
        broker_id = self._coordinator(writer.transactional_id)
        if broker_id is None:
            self._fail(writer, [call], CoordinatorNotAvailableError.code)
        elif broker_id == self._broker_id and not writer.adds:
            self._complete(writer, call, self._codes_here(writer, call.partitions))
        else:
            self._enqueue(broker_id, writer, call)

    def _enqueue(self, broker_id: int, writer: TransactionalWriter, call: _Call) -> None:
        queue = self._queues.get(broker_id)
        if queue is None:
            queue = self._queues[broker_id] = OrderedDict()
            self._tasks.spawn(self._drain(broker_id, queue), name=f"verify-at-broker-{broker_id}")
        key = (writer.transactional_id, writer.producer_id, writer.adds)
        waiting = queue.get(key)
        if waiting is not None and waiting.writer.producer_epoch > writer.producer_epoch:
            self._fail(writer, [call], InvalidProducerEpochError.code)
            return
        if waiting is not None and waiting.writer.producer_epoch < writer.producer_epoch:
            del queue[key]
            self._fail(waiting.writer, waiting.calls, InvalidProducerEpochError.code)
            waiting = None
        if waiting is None:
            waiting = queue[key] = _Verification(writer)
        waiting.calls.append(call)

    async def _drain(self, broker_id: int, queue: _Waiting) -> None:
        try:
            while batch := _take(queue):
                if broker_id == self._broker_id:
                    await asyncio.gather(*(self._deliver_here(each) for each in batch))
                else:
                    await self._deliver(broker_id, batch)
        finally:
            del self._queues[broker_id]

    async def _deliver_here(self, verification: _Verification) -> None:
        """Add partitions to a transaction of this broker, and complete its calls."""
        writer, partitions = verification.wanted()
        found: Mapping[TopicPartition, int] = {}
        try:
            found = await self._add_here(
                writer.transactional_id, ProducerIdAndEpoch(writer.producer_id, writer.producer_epoch), list(partitions)
            )
            otherwise = UnknownServerError.code
        except ProtocolError as error:
            otherwise = producer_code(error.code)
        except Exception:
            # A bug. Every call gets a result: a producer that waits for one could not write any more.
            otherwise = UnknownServerError.code
            logger.exception("partitions could not be added to the transaction of %r", writer.transactional_id)
        codes = {partition: producer_code(code) for partition, code in found.items()}
        self._complete_all(verification, codes, otherwise)

    async def _deliver(self, broker_id: int, batch: Sequence[_Verification]) -> None:
        """Send one request, and complete the calls of its transactions."""
        found: Mapping[str, Mapping[TopicPartition, int]] = {}
        try:
            response = await self._ask(broker_id, batch)
            otherwise = producer_code(response.error_code) or UnknownServerError.code
            if response.error_code:
                logger.error("broker %d refused to verify transactions: error code %d", broker_id, response.error_code)
            else:
                found = verification_codes(response)
        except OdradekError as error:
            otherwise = self._code_without_response(broker_id, error)
            if otherwise == NONE:
                self._complete_unverified(batch)
                return
        except Exception:
            # A bug. Every call gets a result: a producer that waits for one could not write any more.
            otherwise = UnknownServerError.code
            logger.exception("broker %d could not be asked about %d transactions", broker_id, len(batch))
        for verification in batch:
            self._complete_all(verification, found.get(verification.writer.transactional_id, {}), otherwise)

    def _complete_unverified(self, batch: Sequence[_Verification]) -> None:
        """Complete the calls of transactions whose coordinator cannot verify. It cannot add partitions either."""
        for verification in batch:
            code = CoordinatorNotAvailableError.code if verification.writer.adds else NONE
            self._complete_all(verification, {}, code)

    def _complete_all(self, verification: _Verification, codes: Mapping[TopicPartition, int], otherwise: int) -> None:
        for call in verification.calls:
            answered = {partition: codes.get(partition, otherwise) for partition in call.partitions}
            if (
                verification.writer.adds
                and ConcurrentTransactionsError.code in answered.values()
                and call.attempts < ADDITION_RETRIES
                and not self._is_closed
            ):
                call.attempts += 1
                again = partial(self._start, verification.writer, call)
                self._timers[call] = self._clock.call_later(ADDITION_RETRY_MS, again)
            else:
                self._complete(verification.writer, call, answered)

    async def _ask(self, broker_id: int, batch: Sequence[_Verification]) -> AddPartitionsToTxnResponse:
        def message(version: int) -> Message:
            if version < VERIFICATION_SINCE:
                raise UnsupportedVersionError(f"AddPartitionsToTxn version {version} cannot verify")
            return verification_message(verification.wanted() for verification in batch)

        response: AddPartitionsToTxnResponse = await self._links.ask(broker_id, ApiKey.ADD_PARTITIONS_TO_TXN, message)
        self._unable.discard(broker_id)
        return response

    def _code_without_response(self, broker_id: int, error: OdradekError) -> int:
        """Return the result of verifications that a broker did not answer."""
        if isinstance(error, UnsupportedVersionError):
            if broker_id not in self._unable:
                self._unable.add(broker_id)
                logger.warning("transactions that broker %d coordinates are not verified: %s", broker_id, error)
            return NONE
        logger.debug("broker %d did not answer AddPartitionsToTxn: %s", broker_id, error)
        if isinstance(error, BrokerNotAvailableError):
            return CoordinatorNotAvailableError.code
        # A failed login is a problem of the brokers, too, so the producer gets an error after which it tries again.
        return NetworkError.code

    # Results

    def _fail(self, writer: TransactionalWriter, calls: Iterable[_Call], code: int) -> None:
        for call in calls:
            self._complete(writer, call, dict.fromkeys(call.partitions, code))

    def _complete(self, writer: TransactionalWriter, call: _Call, codes: dict[TopicPartition, int]) -> None:
        """Set the result of a call. The caller gets it when all earlier calls of the producer have theirs."""
        self._failures += sum(code != NONE for code in codes.values())
        call.codes = codes
        calls = self._calls[writer.producer_id]
        while calls and (result := calls[0].codes) is not None:
            first = calls.popleft()
            if not first.outcome.done():
                first.outcome.set_result(result)
        if not calls:
            del self._calls[writer.producer_id]


def _take(queue: _Waiting) -> list[_Verification]:
    """Remove the transactions of the next request. A response has them by transactional id, so each id goes once."""
    batch: dict[str, _Verification] = {}
    postponed: list[tuple[tuple[str, int, bool], _Verification]] = []
    while queue and len(batch) < TRANSACTIONS_PER_REQUEST:
        key, verification = queue.popitem(last=False)
        if key[0] in batch:
            postponed.append((key, verification))
        else:
            batch[key[0]] = verification
    for key, verification in reversed(postponed):
        queue[key] = verification
        queue.move_to_end(key, last=False)
    return list(batch.values())
