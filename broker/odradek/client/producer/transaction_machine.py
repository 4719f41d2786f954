"""The state of a transactional producer: which calls are allowed, which partitions are in the transaction, and what an
error means (KIP-98, KIP-360, KIP-588, KIP-890).

`transaction_requests` sends the requests and reports their results here. Invariants: a batch is only sent after the
coordinator has added its partition, except in transaction version 2, where the leader has it added; nothing is sent
after an error until the transaction is aborted; a transaction is only committed if all of its batches and offsets were
accepted.

    phase            event                                                  next
    UNINITIALIZED    `start_initializing`                                   INITIALIZING
    INITIALIZING     `initialized`                                          READY
    INITIALIZING     error, without a producer id                           UNINITIALIZED, raised
    READY            `begin`                                                IN_TRANSACTION
    IN_TRANSACTION   `start_committing`                                     COMMITTING
    IN_TRANSACTION   `start_aborting`                                       ABORTING
    IN_TRANSACTION   error that ends the transaction                        ABORTABLE_ERROR
    COMMITTING       error that ends the transaction                        ABORTABLE_ERROR
    COMMITTING       `ended`                                                READY
    IN_TRANSACTION   `start_preparing`                                      PREPARING
    PREPARING        error that ends the transaction                        ABORTABLE_ERROR
    PREPARING        `cannot_prepare`                                       IN_TRANSACTION
    PREPARING        `prepared`                                             PREPARED
    PREPARED         `start_committing`                                     COMMITTING
    PREPARED         `start_aborting`                                       ABORTING
    PREPARED         error that ends the transaction                        ABORTABLE_ERROR
    COMMITTING       `ended`, of a prepared transaction                     INITIALIZING
    ABORTABLE_ERROR  `start_aborting`                                       ABORTING
    ABORTING         `ended`                                                READY
    ABORTING         `ended`, and the producer needs another epoch          INITIALIZING
    ABORTABLE_ERROR  error that ends the transaction                        ABORTABLE_ERROR
    ABORTING         error that ends the transaction                        ABORTING
    UNINITIALIZED    error that ends the transaction                        FATAL_ERROR
    INITIALIZING     error that ends the transaction                        FATAL_ERROR
    READY            error that ends the transaction                        FATAL_ERROR
    any              error that ends the producer                           FATAL_ERROR

An error that ends the transaction comes from a batch or from a request other than InitProducerId. It cannot arrive
after the end of the transaction, because EndTxn waits for all batches and requests. If it does nevertheless, a
transaction may have been committed without one of its records, so the producer cannot be used any more, as in Kafka
(KAFKA-14831).

A detached transaction, which another client will end although the coordinator has not prepared it, takes the same
phases as a prepared one.

A producer that has ended a prepared transaction gets another epoch, so that id and epoch of a prepared transaction
never stand for a later one.

In transaction version 2, each end raises the epoch, so the producer never asks for another one after an end.

If a batch fails after it was sent, the brokers may have it or not, so the next sequence number is unknown. The producer
then gets another epoch after the abort, in which the sequence numbers start at 0.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from odradek.base.errors import (
    AuthenticationError,
    ClusterAuthorizationFailedError,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTransactionStateError,
    OdradekError,
    OffsetMetadataTooLargeError,
    PolicyViolationError,
    ProducerFencedError,
    ProtocolError,
    RebalanceInProgressError,
    TopicAuthorizationFailedError,
    TransactionAbortableError,
    TransactionalIdAuthorizationFailedError,
    UnknownMemberIdError,
    UnknownProducerIdError,
    UnsupportedVersionError,
    error_for,
)
from odradek.base.types import TopicPartition
from odradek.client.producer.sequences import ProducerIdentity


class TransactionPhase(Enum):
    """State of the producer; see the table above."""

    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in a transaction"
    PREPARING = "preparing its transaction"
    PREPARED = "waiting for the end of its prepared transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "abortable error"
    FATAL_ERROR = "fatal error"


class TransactionStep(Enum):
    """The request that an error answers."""

    INITIALIZE = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    ADD_OFFSETS = "AddOffsetsToTxn"
    COMMIT_OFFSETS = "TxnOffsetCommit"
    PREPARE = "PrepareTxn"
    END = "EndTxn"
    PRODUCE = "Produce"


class Consequence(Enum):
    """What to do after an error of a request, from mild to severe."""

    RETRY = 0
    """Send the request again."""
    GIVE_UP = 1
    """The request had no effect, and the transaction goes on without it."""
    ABORT = 2
    """The transaction can only be aborted."""
    ABORT_WITH_NEW_EPOCH = 3
    """As `ABORT`, and the producer needs another epoch before the next transaction."""
    FATAL = 4
    """The producer cannot be used any more."""


_FENCED: Final = (InvalidProducerEpochError, ProducerFencedError)
_ENDS_PRODUCER: Final = (
    AuthenticationError,
    ClusterAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
    UnsupportedVersionError,
)
_UNKNOWN_PRODUCER: Final = (InvalidProducerIdMappingError, UnknownProducerIdError)
"""The coordinator has another producer id for the transactional id, or none."""
_ENDS_TRANSACTION: Final = (
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    TopicAuthorizationFailedError,
    TransactionAbortableError,
    UnknownMemberIdError,
)
_NOT_PREPARABLE: Final = (PolicyViolationError, UnsupportedVersionError)
_MILD_BY_DEFAULT: Final = (TransactionStep.ADD_PARTITIONS, TransactionStep.PRODUCE)
"""Requests about single partitions. An unknown error of one does not mean that the producer is unusable."""


def consequence(step: TransactionStep, error: OdradekError) -> Consequence:
    """Return what an error of a request means, as the producer of Apache Kafka 3.9 decides it.

    An error of Produce is final: the sender has retried the batch. INVALID_PRODUCER_EPOCH from the leader of a
    partition may be the result of a timeout, so the transaction can be aborted (KIP-588). If the producer was fenced,
    the coordinator refuses the abort.

    PrepareTxn, which Kafka does not have, has no effect on a broker that does not support or not allow it.
    """
    if step is TransactionStep.PREPARE and isinstance(error, _NOT_PREPARABLE):
        return Consequence.GIVE_UP
    if step is TransactionStep.PRODUCE:
        return Consequence.FATAL if isinstance(error, (ProducerFencedError, *_ENDS_PRODUCER)) else Consequence.ABORT
    if isinstance(error, ProtocolError) and error.retriable:
        return Consequence.RETRY
    if isinstance(error, (*_FENCED, *_ENDS_PRODUCER, InvalidTransactionStateError)):
        return Consequence.FATAL
    if isinstance(error, _UNKNOWN_PRODUCER):
        return Consequence.ABORT_WITH_NEW_EPOCH
    if isinstance(error, _ENDS_TRANSACTION) or step in _MILD_BY_DEFAULT:
        return Consequence.ABORT
    return Consequence.FATAL


_GOING_ON: Final = (TransactionPhase.IN_TRANSACTION, TransactionPhase.PREPARING, TransactionPhase.COMMITTING)
_WITHOUT_TRANSACTION: Final = (
    TransactionPhase.UNINITIALIZED,
    TransactionPhase.INITIALIZING,
    TransactionPhase.READY,
)
_ALLOWED_BEFORE: Final = {
    TransactionPhase.INITIALIZING: (TransactionPhase.UNINITIALIZED,),
    TransactionPhase.IN_TRANSACTION: (TransactionPhase.READY,),
    TransactionPhase.PREPARING: (TransactionPhase.IN_TRANSACTION,),
    TransactionPhase.COMMITTING: (TransactionPhase.IN_TRANSACTION, TransactionPhase.PREPARED),
    TransactionPhase.ABORTING: (TransactionPhase.IN_TRANSACTION, TransactionPhase.PREPARED),
}
"""The phases after which the application may start another one. After an abortable error it may only abort."""


class TransactionMachine:
    """The transactions of one producer, one after the other."""

    def __init__(self) -> None:
        """Uninitialized."""
        self._phase = TransactionPhase.UNINITIALIZED
        self._identity: ProducerIdentity | None = None
        self._error: OdradekError | None = None
        self._needs_epoch = False
        self._new: set[TopicPartition] = set()
        self._added: set[TopicPartition] = set()
        self._is_open = False
        self._may_be_open = False
        self._is_forgotten = False
        self._was_prepared = False
        self._adds_by_writing = False

    @property
    def adds_by_writing(self) -> bool:
        """Whether the transaction has version 2: writes add partitions, and its end raises the epoch (KIP-890)."""
        return self._adds_by_writing

    @property
    def phase(self) -> TransactionPhase:
        """State of the producer."""
        return self._phase

    @property
    def identity(self) -> ProducerIdentity | None:
        """Producer id and epoch; None before the first `initialized`."""
        return self._identity

    @property
    def failure(self) -> ProtocolError | None:
        """The error to raise if the transaction or the producer has ended with an error, else None."""
        error = self._error
        if error is None:
            return None
        if self._phase is TransactionPhase.ABORTABLE_ERROR:
            text = f"the transaction must be aborted, because of an error: {error}"
            failure: ProtocolError = TransactionAbortableError(text)
        else:
            code = error.code if isinstance(error, ProtocolError) else ProtocolError.code
            failure = error_for(code, f"the producer must be closed, because of an error: {error}")
        failure.__cause__ = error
        return failure

    @property
    def is_going_on(self) -> bool:
        """Whether records of the transaction may be sent: it is neither prepared nor being aborted, nor has it
        failed."""
        return self._phase in _GOING_ON

    # Initialization

    def start_initializing(self) -> None:
        """Begin with InitProducerId. Raises `InvalidTransactionStateError` if it was done before."""
        self._enter(TransactionPhase.INITIALIZING, "initialized")

    def initialized(self, identity: ProducerIdentity) -> None:
        """Use this producer id and epoch from now on."""
        assert self._phase is TransactionPhase.INITIALIZING, self._phase
        self._identity = identity
        self._needs_epoch = False
        self._phase = TransactionPhase.READY

    # The transaction

    def begin(self, *, adds_by_writing: bool = False) -> None:
        """Begin a transaction. Raises `InvalidTransactionStateError` if the producer is not ready."""
        self._enter(TransactionPhase.IN_TRANSACTION, "begun")
        self._adds_by_writing = adds_by_writing

    def check_open(self) -> None:
        """Raise an error unless records and offsets can be added to the transaction now.

        Raises `InvalidTransactionStateError` without a transaction, `TransactionAbortableError` if it must be aborted,
        and the error that ended the producer.
        """
        self._raise_failure()
        if self._phase is not TransactionPhase.IN_TRANSACTION:
            raise InvalidTransactionStateError(
                f"records and offsets need a transaction, but the producer is {self._phase.value}: call"
                f" {self._advice()} first"
            )

    def include(self, topic_partition: TopicPartition) -> bool:
        """Note that the transaction has records for a partition. Return whether the coordinator must add it."""
        if topic_partition in self._added or topic_partition in self._new:
            return False
        if self._adds_by_writing:
            self._added.add(topic_partition)
            self._is_open = True
            return False
        self._new.add(topic_partition)
        return True

    def may_send(self, topic_partition: TopicPartition) -> bool:
        """Whether batches can be sent to a partition: the coordinator has added it, and there was no error."""
        return topic_partition in self._added and self.is_going_on

    def partitions_to_add(self) -> list[TopicPartition]:
        """Return the partitions that the coordinator must add, in order."""
        return sorted(self._new)

    def partitions_added(self, partitions: list[TopicPartition]) -> None:
        """Note that the coordinator has added these partitions."""
        self._new.difference_update(partitions)
        self._added.update(partitions)
        self._is_open = True

    def offsets_added(self) -> None:
        """Note that the coordinator has added the offsets of a group."""
        self._is_open = True

    def answer_lost(self) -> None:
        """Note that a request has no response, so the coordinator may have opened the transaction."""
        self._may_be_open = True

    # The preparation

    def start_preparing(self) -> None:
        """Begin to prepare. Raises the errors of `check_open`."""
        self._enter(TransactionPhase.PREPARING, "prepared")

    def cannot_prepare(self) -> None:
        """Go on with the transaction, which was not prepared and has not changed."""
        assert self._phase is TransactionPhase.PREPARING, self._phase
        self._phase = TransactionPhase.IN_TRANSACTION

    def prepared(self) -> None:
        """Note that the coordinator has the prepared transaction."""
        assert self._phase is TransactionPhase.PREPARING, self._phase
        self._phase = TransactionPhase.PREPARED
        self._is_open = self._was_prepared = True

    # The end

    def start_committing(self) -> None:
        """Begin to commit. Raises the errors of `check_open`."""
        self._enter(TransactionPhase.COMMITTING, "committed")

    def start_aborting(self) -> None:
        """Begin to abort. Raises `InvalidTransactionStateError` without a transaction, and the error that ended the
        producer."""
        if self._phase is TransactionPhase.ABORTABLE_ERROR:
            self._phase = TransactionPhase.ABORTING
            self._error = None
        else:
            self._enter(TransactionPhase.ABORTING, "aborted")

    @property
    def must_tell_coordinator(self) -> bool:
        """Whether the end needs EndTxn: the coordinator has, or may have, an open transaction of this producer."""
        return (self._is_open or self._may_be_open) and not self._is_forgotten

    def ended(self, identity: ProducerIdentity | None = None) -> None:
        """Note that the transaction has ended: committed, aborted, or empty.

        `identity`: the producer id and epoch for the next transaction, if the end has changed them.
        """
        needs_epoch = self._needs_epoch or (self._may_be_open and not self._is_open)
        assert self._phase is TransactionPhase.ABORTING or not needs_epoch, self._phase
        needs_epoch = needs_epoch or self._was_prepared
        if identity is not None and identity != self._identity:
            self._identity = identity
            needs_epoch = False
        self._phase = TransactionPhase.INITIALIZING if needs_epoch else TransactionPhase.READY
        self._needs_epoch = needs_epoch
        self._error = None
        self._new.clear()
        self._added.clear()
        self._is_open = self._may_be_open = self._is_forgotten = self._was_prepared = False

    # Errors

    def failed(self, step: TransactionStep, error: OdradekError) -> bool:
        """Change the phase after an error of a request. Return whether the request should be sent again."""
        found = consequence(step, error)
        if found is Consequence.RETRY:
            return True
        if found is Consequence.GIVE_UP:
            return False
        if step is TransactionStep.INITIALIZE and self._identity is None:
            self._phase = TransactionPhase.UNINITIALIZED
        elif step is TransactionStep.INITIALIZE:
            self._end_producer(error)
        elif step is TransactionStep.END and self._phase is TransactionPhase.ABORTING:
            self._abort_failed(found, error)
        else:
            self._apply(found, error)
        return False

    def _abort_failed(self, found: Consequence, error: OdradekError) -> None:
        # Without an open transaction, the coordinator refuses an abort unless the last transaction was aborted.
        was_never_open = isinstance(error, InvalidTransactionStateError) and not self._is_open
        if found is Consequence.ABORT_WITH_NEW_EPOCH or was_never_open:
            self._needs_epoch = self._is_forgotten = True
        else:
            self._end_producer(error)

    def batch_failed(self, error: OdradekError, *, was_sent: bool) -> None:
        """Change the phase because a batch has failed. `was_sent`: the brokers may have it."""
        self._needs_epoch = self._needs_epoch or was_sent
        self._apply(consequence(TransactionStep.PRODUCE, error), error)

    def _apply(self, found: Consequence, error: OdradekError) -> None:
        if found is Consequence.FATAL:
            self._end_producer(error)
            return
        if self._phase in _WITHOUT_TRANSACTION:
            self._end_producer(_late(self._phase, error))
            return
        if found is Consequence.ABORT_WITH_NEW_EPOCH:
            # The coordinator would refuse EndTxn with this producer id, too.
            self._needs_epoch = self._is_forgotten = True
        if self.is_going_on or self._phase is TransactionPhase.PREPARED:
            self._phase = TransactionPhase.ABORTABLE_ERROR
            self._error = error

    def _end_producer(self, error: OdradekError) -> None:
        if self._phase is not TransactionPhase.FATAL_ERROR:
            self._phase = TransactionPhase.FATAL_ERROR
            self._error = error

    def _enter(self, phase: TransactionPhase, verb: str) -> None:
        self._raise_failure()
        if self._phase not in _ALLOWED_BEFORE[phase]:
            raise InvalidTransactionStateError(
                f"nothing can be {verb} while the producer is {self._phase.value}: call {self._advice()} first"
            )
        self._phase = phase

    def _raise_failure(self) -> None:
        failure = self.failure
        if failure is not None:
            raise failure

    def _advice(self) -> str:
        """Return the call that ends the phase."""
        return {
            TransactionPhase.UNINITIALIZED: "init_transactions",
            TransactionPhase.INITIALIZING: "init_transactions",
            TransactionPhase.READY: "begin_transaction",
            TransactionPhase.PREPARING: "prepare_transaction",
            TransactionPhase.COMMITTING: "commit_transaction",
            TransactionPhase.ABORTING: "abort_transaction",
        }.get(self._phase, "commit_transaction or abort_transaction")


def _late(phase: TransactionPhase, error: OdradekError) -> InvalidTransactionStateError:
    """Return the error of a producer whose transaction had ended before one of its batches or requests failed."""
    late = InvalidTransactionStateError(f"a batch or a request failed while the producer was {phase.value}: {error}")
    late.__cause__ = error
    return late
