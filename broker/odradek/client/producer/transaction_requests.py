"""The transactions of a producer: the requests to the coordinators, and their retries (KIP-98, KIP-447).

`sender` owns it and asks it which partitions may be sent to; `producer` passes on the calls of the application. The
decisions are in `transaction_machine`. Invariants: the request of a call goes on if the caller stops waiting, and the
same call waits for it again; EndTxn is sent after every batch and every other request of the transaction has ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from odradek.base.errors import (
    ConcurrentTransactionsError,
    CoordinatorNotAvailableError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    NetworkError,
    NotCoordinatorError,
    OdradekError,
    OperationNotAttemptedError,
    PolicyViolationError,
    ProducerFencedError,
    ProtocolError,
    RequestTimedOutError,
    TransactionAbortableError,
    UnsupportedVersionError,
    error_for,
)
from odradek.base.tasks import TaskOwner, finish
from odradek.base.topic_rules import grouped_by_topic
from odradek.base.types import TopicPartition
from odradek.client.cluster_client import ANY_VERSION, Cluster, Coordinated
from odradek.client.models import GroupMetadata, OffsetAndMetadata, PreparedTransaction
from odradek.client.offsets import committed_topics
from odradek.client.producer.sequences import ProducerIdentity
from odradek.client.producer.transaction_machine import (
    TransactionMachine,
    TransactionPhase,
    TransactionStep,
    consequence,
)
from odradek.protocol.codec import Message, Response
from odradek.protocol.messages.produce import InitProducerIdResponse
from odradek.protocol.messages.transactions import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnResponse,
    EndTxnResponse,
    PrepareTxnResponse,
    TxnOffsetCommitResponse,
)

_LOG: Final = logging.getLogger(__name__)

_NOBODY: Final = ProducerIdentity(-1, -1)
_WITH_OLD_EPOCH: Final = (3, ANY_VERSION[1])
"""Versions of InitProducerId that replace an epoch without fencing a newer producer (KIP-360, Kafka 2.5)."""
_OF_CLIENTS: Final = (0, 3)
"""Versions of AddPartitionsToTxn for clients. Later ones are for brokers (KIP-890)."""
_WITH_MEMBER: Final = (3, ANY_VERSION[1])
"""Versions of TxnOffsetCommit with the member of the group (KIP-447, Kafka 2.5)."""
_PRODUCE_VERSIONS: Final = (0, 11)
_PRODUCE_THAT_ADDS: Final = (12, ANY_VERSION[1])
_END_VERSIONS: Final = (0, 4)
_END_WITH_NEW_EPOCH: Final = (5, ANY_VERSION[1])
_LAST_COMMIT_VERSION: Final = 4
_COMMIT_THAT_ADDS: Final = (5, ANY_VERSION[1])
"""Versions of Produce, EndTxn and TxnOffsetCommit: the later ones are for transaction version 2 only (KIP-890)."""
_VERSION_WITH_NEW_EPOCHS: Final = 2
FIRST_ADDITION_PAUSE_MS: Final = 20.0
"""Pause while the coordinator completes the last transaction. That takes less time than a usual retry backoff."""
_MOVED: Final = (NotCoordinatorError, CoordinatorNotAvailableError, RequestTimedOutError)

Flush = Callable[[], Awaitable[None]]
"""Returns when every batch was acknowledged or has failed."""


class Transactions:
    """The transactions of one producer."""

    def __init__(
        self, cluster: Cluster, *, on_change: Callable[[], None], on_failure: Callable[[str, BaseException], None]
    ) -> None:
        """`on_change` is called when other batches may be sent or must fail, `on_failure` after a bug in a task."""
        self._cluster = cluster
        self._clock: Final = cluster.clock
        self._on_change = on_change
        self._tasks = TaskOwner(on_failure)
        self._adding: asyncio.Task[None] | None = None
        self._offset_tasks: set[asyncio.Task[OdradekError | None]] = set()
        self._call_name = ""
        self._last_error: ProtocolError | None = None
        """Why the call that goes on had to send its last request again, if it had to."""
        self._call: asyncio.Task[OdradekError | None] | None = None
        self.machine: Final = TransactionMachine()
        """What is allowed now."""

    @property
    def _transactional_id(self) -> str:
        found = self._cluster.settings.transactional_id
        assert found is not None
        return found

    @property
    def _identity(self) -> ProducerIdentity:
        return self.machine.identity or _NOBODY

    @property
    def produce_versions(self) -> tuple[int, int]:
        """The lowest and the highest version of Produce for the current transaction."""
        return _PRODUCE_THAT_ADDS if self.machine.adds_by_writing else _PRODUCE_VERSIONS

    # Calls of the application

    async def initialize(self) -> None:
        """Get a producer id and an epoch. Raises as `Producer.init_transactions`."""
        await self._run_call("init_transactions", self.machine.start_initializing, self._initialize)

    def begin(self) -> None:
        """Begin a transaction. Raises as `Producer.begin_transaction`."""
        self.machine.begin(adds_by_writing=self._cluster.transaction_version >= _VERSION_WITH_NEW_EPOCHS)
        self._call = None

    def include(self, topic_partition: TopicPartition) -> None:
        """Have the coordinator add a partition, unless the transaction has it."""
        if self.machine.include(topic_partition) and (self._adding is None or self._adding.done()):
            self._adding = self._tasks.spawn(self._add_partitions(), name="partitions of the transaction")

    async def send_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata) -> None:
        """Commit offsets of a group with the transaction. Raises as `Producer.send_offsets_to_transaction`."""
        self.machine.check_open()
        if not offsets:
            return
        task = self._tasks.spawn(self._send_offsets(offsets, group), name="offsets of the transaction")
        self._offset_tasks.add(task)
        task.add_done_callback(self._offset_tasks.discard)
        await self._result_of(task, "send_offsets_to_transaction")

    async def prepare(self, flush: Flush) -> PreparedTransaction:
        """Prepare. Raises as `Producer.prepare_transaction`."""
        await self._run_call("prepare_transaction", self.machine.start_preparing, lambda: self._prepare(flush))
        return self._handle()

    async def detach(self, flush: Flush) -> PreparedTransaction:
        """Leave the transaction to another client. Raises as `Producer.detach_transaction`."""
        await self._run_call("detach_transaction", self.machine.start_preparing, lambda: self._detach(flush))
        return self._handle()

    def _handle(self) -> PreparedTransaction:
        producer_id, epoch = self._identity
        return PreparedTransaction(transactional_id=self._transactional_id, producer_id=producer_id, epoch=epoch)

    async def commit(self, flush: Flush) -> None:
        """Commit. Raises as `Producer.commit_transaction`."""
        await self._run_call("commit_transaction", self.machine.start_committing, lambda: self._commit(flush))

    async def abort(self, flush: Flush) -> None:
        """Abort. Raises as `Producer.abort_transaction`."""
        await self._run_call("abort_transaction", self.machine.start_aborting, lambda: self._abort(flush))

    async def abort_if_open(self, flush: Flush) -> None:
        """Abort if the transaction is neither being ended already nor lost with the producer."""
        if self.machine.phase in (TransactionPhase.IN_TRANSACTION, TransactionPhase.ABORTABLE_ERROR):
            await self.abort(flush)

    @asynccontextmanager
    async def whole(self, flush: Flush) -> AsyncIterator[None]:
        """A transaction around a block. Raises as `Producer.transaction`."""
        self.begin()
        try:
            yield
            await self.commit(flush)
        except BaseException:
            await finish(self.abort_if_open(flush))
            raise

    async def end_before_close(self, flush: Flush) -> None:
        """Abort an open transaction, or wait for the end that was requested, for up to `max_block_ms`."""
        reason: object = "its end takes too long"
        try:
            if self._call is not None:
                await asyncio.wait({self._call}, timeout=self._cluster.settings.max_block_ms / 1000)
            await self.abort_if_open(flush)
        except ProtocolError as error:
            reason = error
        if self.machine.phase is TransactionPhase.PREPARING:
            _LOG.warning(
                "the last transaction of %s may be prepared or not: if it is, somebody must commit or abort it",
                self._transactional_id,
            )
        if self.machine.phase in (TransactionPhase.COMMITTING, TransactionPhase.ABORTING):
            _LOG.warning(
                "the last transaction of %s may stay open for transaction.timeout.ms: %s",
                self._transactional_id,
                reason,
            )

    async def close(self) -> None:
        """End all requests. Idempotent."""
        await self._tasks.close()

    async def _run_call(
        self, name: str, start: Callable[[], None], work: Callable[[], Coroutine[Any, Any, OdradekError | None]]
    ) -> None:
        call = self._call
        if call is not None and name != self._call_name:
            if not call.done():
                raise InvalidTransactionStateError(f"{self._call_name} has not ended: call it again to wait for it")
            call = None
        if call is None:
            start()
            self._last_error = None
            call = self._call = self._tasks.spawn(work(), name=name)
            self._call_name = name
        await self._result_of(call, name)

    async def _result_of(self, call: asyncio.Task[OdradekError | None], name: str) -> None:
        limit_ms = self._cluster.settings.max_block_ms
        await asyncio.wait({call}, timeout=limit_ms / 1000)
        if not call.done():
            text = f"{name} has not ended within max.block.ms={limit_ms}, but goes on: call it again to wait for it"
            reason = "" if self._last_error is None else f" (the last error: {self._last_error})"
            raise RequestTimedOutError(text + reason) from self._last_error
        if self._call is call:
            self._call = None
        if call.cancelled():
            raise NetworkError("the producer is closed")
        error = call.result()
        if error is not None:
            raise error

    # What the calls do

    async def _initialize(self) -> OdradekError | None:
        known = self.machine.identity

        async def attempt() -> None:
            response = await self._ask(
                InitProducerIdResponse,
                {
                    "transactional_id": self._transactional_id,
                    "transaction_timeout_ms": self._cluster.settings.transaction_timeout_ms,
                    **_producer(self._identity),
                },
                ANY_VERSION if known is None else _WITH_OLD_EPOCH,
            )
            what = f"the coordinator gave the producer {self._transactional_id} no epoch"
            if response.error_code == ConcurrentTransactionsError.code:
                what += ", because the last transaction is still being ended, or is prepared"
            _check(response.error_code, what)
            self.machine.initialized(ProducerIdentity(response.producer_id, response.producer_epoch))

        return await self._settle(TransactionStep.INITIALIZE, attempt)

    async def _commit(self, flush: Flush) -> OdradekError | None:
        await flush()
        await self._finish_additions()
        failure = self.machine.failure or await self._end(committed=True)
        if failure is None and self.machine.phase is TransactionPhase.INITIALIZING:
            # The transaction is committed, whatever becomes of this: an error ends the producer, and the next call
            # raises it.
            await self._initialize()
        return failure

    async def _prepare(self, flush: Flush) -> OdradekError | None:
        failure = await self._refusal_to_prepare()
        if failure is None:
            failure = await self._complete(flush)
        if failure is None:
            failure = await self._settle(TransactionStep.PREPARE, self._ask_to_prepare)
        self._end_preparation(failure)
        return _explained(failure)

    async def _detach(self, flush: Flush) -> OdradekError | None:
        failure = await self._complete(flush)
        self._end_preparation(failure)
        return failure

    async def _complete(self, flush: Flush) -> OdradekError | None:
        """Wait for all records and requests. Return the error of one, or that of an empty transaction."""
        await flush()
        await self._finish_additions()
        failure = self.machine.failure
        if failure is None and not self.machine.must_tell_coordinator:
            text = "an empty transaction has nothing for another client to end: commit or abort it"
            failure = InvalidTransactionStateError(text)
        return failure

    def _end_preparation(self, failure: OdradekError | None) -> None:
        if self.machine.phase is TransactionPhase.PREPARING:
            if failure is None:
                self.machine.prepared()
            else:
                self.machine.cannot_prepare()

    async def _refusal_to_prepare(self) -> OdradekError | None:
        """Return an error if the coordinator does not have PrepareTxn, before anything is done for it."""

        async def attempt() -> None:
            await self._cluster.check_coordinator(
                self._transactional_id, PrepareTxnResponse, kind=Coordinated.TRANSACTIONAL_ID
            )

        return await self._settle(TransactionStep.PREPARE, attempt)

    async def _ask_to_prepare(self) -> None:
        response = await self._ask(
            PrepareTxnResponse, {"transactional_id": self._transactional_id, **_producer(self._identity)}
        )
        _check(response.error_code, f"the coordinator did not prepare the transaction of {self._transactional_id}")

    async def _abort(self, flush: Flush) -> OdradekError | None:
        self._on_change()
        await flush()
        await self._finish_additions()
        failure = self.machine.failure or await self._end(committed=False)
        if failure is None and self.machine.phase is TransactionPhase.INITIALIZING:
            failure = await self._initialize()
        return failure

    async def _finish_additions(self) -> None:
        """Wait for the requests that add to the transaction. Each one ends soon after an abort has begun."""
        left = {task for task in (self._adding, *self._offset_tasks) if task is not None and not task.done()}
        if left:
            await asyncio.wait(left)

    async def _end(self, *, committed: bool) -> OdradekError | None:
        following: ProducerIdentity | None = None

        async def attempt() -> None:
            nonlocal following
            response = await self._ask(
                EndTxnResponse,
                {
                    "transactional_id": self._transactional_id,
                    **_producer(self._identity),
                    "committed": committed,
                },
                _END_WITH_NEW_EPOCH if self.machine.adds_by_writing else _END_VERSIONS,
            )
            _check(response.error_code, f"the coordinator did not end the transaction of {self._transactional_id}")
            if self.machine.adds_by_writing:
                following = ProducerIdentity(response.producer_id, response.producer_epoch)

        if self.machine.must_tell_coordinator:
            error = await self._settle(TransactionStep.END, attempt)
            if error is not None and self.machine.phase is not TransactionPhase.ABORTING:
                return error
        self.machine.ended(following)
        return None

    async def _add_partitions(self) -> None:
        async def attempt() -> None:
            wanted = self.machine.partitions_to_add()
            response = await self._ask(
                AddPartitionsToTxnResponse,
                {
                    "v3_and_below_transactional_id": self._transactional_id,
                    **{f"v3_and_below_{name}": value for name, value in _producer(self._identity).items()},
                    "v3_and_below_topics": [
                        {"name": topic, "partitions": numbers} for topic, numbers in grouped_by_topic(wanted).items()
                    ],
                },
                _OF_CLIENTS,
            )
            _check_partitions(response)
            self.machine.partitions_added(wanted)

        while self.machine.is_going_on and self.machine.partitions_to_add():
            await self._settle(TransactionStep.ADD_PARTITIONS, attempt)
            self._on_change()

    async def _send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> OdradekError | None:
        async def add() -> None:
            response = await self._ask(
                AddOffsetsToTxnResponse,
                {
                    "transactional_id": self._transactional_id,
                    **_producer(self._identity),
                    "group_id": group.group_id,
                },
            )
            _check(response.error_code, f"the coordinator did not add the offsets of group {group.group_id}")
            self.machine.offsets_added()

        async def commit() -> None:
            response = await self._cluster.ask_coordinator(
                group.group_id,
                TxnOffsetCommitResponse,
                {
                    "transactional_id": self._transactional_id,
                    "group_id": group.group_id,
                    **_producer(self._identity),
                    "generation_id": group.generation_id,
                    "member_id": group.member_id,
                    "group_instance_id": group.group_instance_id,
                    "topics": committed_topics(offsets),
                },
                versions=self._commit_versions(group),
            )
            _check_offsets(response, group.group_id)

        error = None
        if self.machine.adds_by_writing:
            self.machine.offsets_added()
        else:
            error = await self._settle(TransactionStep.ADD_OFFSETS, add)
        if error is None:
            error = await self._settle(TransactionStep.COMMIT_OFFSETS, commit, group_id=group.group_id)
        return error

    def _commit_versions(self, group: GroupMetadata) -> tuple[int, int]:
        if self.machine.adds_by_writing:
            return _COMMIT_THAT_ADDS
        lowest, _ = ANY_VERSION if group == GroupMetadata(group.group_id) else _WITH_MEMBER
        return lowest, _LAST_COMMIT_VERSION

    # Requests

    async def _ask(
        self, expected: type[Response], message: Message, versions: tuple[int, int] = ANY_VERSION
    ) -> Response:
        return await self._cluster.ask_coordinator(
            self._transactional_id, expected, message, kind=Coordinated.TRANSACTIONAL_ID, versions=versions
        )

    async def _settle(
        self, step: TransactionStep, attempt: Callable[[], Awaitable[None]], *, group_id: str | None = None
    ) -> OdradekError | None:
        """Send a request until it succeeds, has a final error or is not needed any more. Return the error, if any.

        `group_id` is the group whose coordinator gets the request, instead of that of the transactional id.
        """
        failures = 0
        while True:
            try:
                await attempt()
                return None
            except ProtocolError as error:
                if not self.machine.failed(step, error):
                    self._on_change()
                    return error
                self._note_retry(step, error, group_id)
                failures += 1
                pause_ms = self._cluster.backoff.delay_ms(failures, self._clock.random())
                if isinstance(error, ConcurrentTransactionsError) and self._opens(step):
                    pause_ms = min(pause_ms, FIRST_ADDITION_PAUSE_MS)
            if self._is_needed(step):
                await self._clock.sleep_ms(pause_ms)
            if not self._is_needed(step):
                return TransactionAbortableError("the transaction was aborted")

    def _note_retry(self, step: TransactionStep, error: ProtocolError, group_id: str | None) -> None:
        self._last_error = error
        if isinstance(error, NetworkError | RequestTimedOutError) and self._opens(step):
            self.machine.answer_lost()
        if isinstance(error, _MOVED) and group_id is not None:
            self._cluster.forget_coordinator(group_id)
        elif isinstance(error, _MOVED):
            self._cluster.forget_coordinator(self._transactional_id, Coordinated.TRANSACTIONAL_ID)

    def _opens(self, step: TransactionStep) -> bool:
        """Whether the coordinator opens a transaction because of this request."""
        return step in _OPENING or (step is TransactionStep.COMMIT_OFFSETS and self.machine.adds_by_writing)

    def _is_needed(self, step: TransactionStep) -> bool:
        if step is TransactionStep.PREPARE:
            return self.machine.phase is TransactionPhase.PREPARING
        if step in (TransactionStep.INITIALIZE, TransactionStep.END):
            return self.machine.phase is not TransactionPhase.FATAL_ERROR
        return self.machine.is_going_on


_OPENING: Final = (TransactionStep.ADD_PARTITIONS, TransactionStep.ADD_OFFSETS)
"""Requests with which the coordinator opens a transaction."""


def _producer(identity: ProducerIdentity) -> dict[str, object]:
    return {"producer_id": identity.producer_id, "producer_epoch": identity.epoch}


def _error_of(code: int, what: str) -> ProtocolError:
    # Coordinators before Kafka 2.7 have no other code for a newer producer (KIP-588).
    return error_for(ProducerFencedError.code if code == InvalidProducerEpochError.code else code, what)


def _explained(error: OdradekError | None) -> OdradekError | None:
    """Return the error of a preparation, with what to do if the broker does not support or not allow it."""
    reasons: dict[type[ProtocolError], str] = {
        UnsupportedVersionError: "the coordinator is not a broker of Odradek, which alone has prepared transactions",
        PolicyViolationError: "prepared.transactions.enable is false on the coordinator",
    }
    for kind, reason in reasons.items():
        if isinstance(error, kind):
            explained = kind(f"the transaction cannot be prepared, because {reason}: commit or abort it instead")
            explained.__cause__ = error
            return explained
    return error


def _check(code: int, what: str) -> None:
    """Raise the error if `code` is one. `what` describes the failed request."""
    if code:
        raise _error_of(code, what)


def _check_partitions(response: AddPartitionsToTxnResponse) -> None:
    """Raise the most severe error of a partition. OPERATION_NOT_ATTEMPTED only says that another one has an error."""
    errors = [
        _error_of(row.partition_error_code, f"partition {topic.name}-{row.partition_index} cannot be in a transaction")
        for topic in response.results_by_topic_v3_and_below
        for row in topic.results_by_partition
        if row.partition_error_code
    ]
    if errors:
        told = [error for error in errors if not isinstance(error, OperationNotAttemptedError)] or errors
        raise max(told, key=lambda error: consequence(TransactionStep.ADD_PARTITIONS, error).value)


def _check_offsets(response: TxnOffsetCommitResponse, group_id: str) -> None:
    """Raise the most severe error of a partition."""
    errors = [
        _error_of(row.error_code, f"group {group_id} cannot commit an offset of {topic.name}-{row.partition_index}")
        for topic in response.topics
        for row in topic.partitions
        if row.error_code
    ]
    if errors:
        raise max(errors, key=lambda error: consequence(TransactionStep.COMMIT_OFFSETS, error).value)
