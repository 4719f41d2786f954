"""The transitions of a transactional id, as pure functions: state and request in, next state or error out.

`transaction_shard` calls them, writes the next state to the log and makes it current when it is committed. The rules,
their order and their errors are those of Apache Kafka 3.9, and for transaction version 2 (KIP-890) those of Apache
Kafka 4.1. Invariants: an epoch never decreases, except with a new
producer id; a decision to commit or abort (a Prepare state) is never reversed; a prepared transaction, which Kafka 3.9
does not have, is only ended by EndTxn with its producer id and epoch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from odradek.base.errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidTransactionStateError,
    ProducerFencedError,
)
from odradek.base.types import NO_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition
from odradek.coordinator.transactions.transaction_values import (
    EPOCH_BUMPS_SINCE,
    LARGEST_TIMEOUT_MS,
    PREPARED_TIMEOUT_MS,
    EndRequest,
    InitRequest,
    ProducerIdAndEpoch,
    Transaction,
    TransactionState,
)

LARGEST_EPOCH: Final = 2**15 - 1
LAST_EPOCH: Final = LARGEST_EPOCH - 1
"""A producer with this epoch gets a new id. The epoch after it remains for the abort of its last transaction."""

_IDLE: Final = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
DECIDED: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
"""States with a decision whose markers are not all written."""
_ENDED: Final = DECIDED | {TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}


def created(request: InitRequest, producer_id: int, now_ms: int) -> Transaction:
    """Return the state of a new transactional id, before its first epoch."""
    return Transaction(
        producer_id=producer_id,
        producer_epoch=NO_EPOCH,
        timeout_ms=min(request.timeout_ms, LARGEST_TIMEOUT_MS),
        state=TransactionState.EMPTY,
        updated_ms=now_ms,
    )


def needs_new_id(known: Transaction | None, expected: ProducerIdAndEpoch | None) -> bool:
    """Whether InitProducerId has to allocate a producer id: for a new transactional id, or after the last epoch."""
    return known is None or (
        known.producer_epoch >= LAST_EPOCH
        and known.state in _IDLE
        and (expected is None or expected.epoch == known.producer_epoch)
    )


def check_expected(known: Transaction, expected: ProducerIdAndEpoch | None) -> None:
    """Raise `ProducerFencedError` unless the producer that asks for an epoch owns the id (KIP-360).

    It also owns it if it has the id before the current one and its last epoch: it did not get the response.
    """
    if expected is None or known.producer_epoch == NO_EPOCH or expected.producer_id == known.producer_id:
        return
    if expected.producer_id == known.last_producer_id and expected.epoch >= LAST_EPOCH:
        return
    raise ProducerFencedError(
        f"The transactional id now has producer id {known.producer_id}, not {expected.producer_id}: "
        "a newer producer uses it."
    )


def check_not_prepared(known: Transaction) -> None:
    """Raise `ConcurrentTransactionsError` if InitProducerId, with any epoch, would end a prepared transaction."""
    if known.is_prepared:
        raise ConcurrentTransactionsError(
            f"The transaction of producer id {known.producer_id}, epoch {known.producer_epoch} is prepared: "
            "commit or abort it first."
        )


def init_producer(known: Transaction, request: InitRequest, new_id: int | None, now_ms: int) -> Transaction:
    """Return the state with the next epoch, or with a `new_id`, which is given if `needs_new_id` says so.

    Raises `ProducerFencedError`, and `ConcurrentTransactionsError` if a transaction is not complete.
    """
    if known.state not in _IDLE:
        raise ConcurrentTransactionsError("The previous transaction is not complete yet: try again.")
    expected = request.expected
    producer_id, epoch = known.producer_id, known.producer_epoch
    if new_id is not None and epoch != NO_EPOCH:
        producer_id, next_epoch = new_id, 0
        last_epoch = NO_EPOCH if expected is None else epoch
    elif expected is None:
        next_epoch, last_epoch = epoch + 1, NO_EPOCH
    elif epoch in (NO_EPOCH, expected.epoch):
        next_epoch, last_epoch = epoch + 1, epoch
    elif expected.epoch == known.last_producer_epoch:
        next_epoch, last_epoch = epoch, known.last_producer_epoch
    else:
        raise ProducerFencedError(
            f"The epoch {expected.epoch} of the producer is not the current one, {epoch}: a newer producer uses the id."
        )
    return Transaction(
        producer_id=producer_id,
        producer_epoch=next_epoch,
        timeout_ms=min(request.timeout_ms, LARGEST_TIMEOUT_MS),
        state=TransactionState.EMPTY,
        updated_ms=now_ms,
        last_producer_id=known.producer_id,
        last_producer_epoch=last_epoch,
    )


def check_producer(known: Transaction | None, producer: ProducerIdAndEpoch) -> Transaction:
    """Return the state if the producer is the current one.

    Raises `InvalidProducerIdMappingError` or `ProducerFencedError`, and `ConcurrentTransactionsError` if the producer
    gets this id when its previous transaction is complete.
    """
    if known is None:
        raise InvalidProducerIdMappingError("The transactional id is unknown here: call InitProducerId again.")
    if known.next_producer_id != NO_PRODUCER_ID and producer == known.identity:
        raise ConcurrentTransactionsError("The previous transaction is not complete yet: try again.")
    if known.producer_id != producer.producer_id:
        raise InvalidProducerIdMappingError(
            f"The transactional id belongs to producer id {known.producer_id}, not {producer.producer_id}."
        )
    if known.producer_epoch != producer.epoch:
        raise ProducerFencedError(
            f"The epoch {producer.epoch} of the producer is not the current one, {known.producer_epoch}."
        )
    return known


def add_partitions(
    known: Transaction, partitions: Iterable[TopicPartition], now_ms: int, *, client_version: int = 0
) -> Transaction | None:
    """Return the state with more partitions in its transaction, or None if they are all part of it already.

    Raises `ConcurrentTransactionsError` if the previous transaction is not complete, and `InvalidTransactionStateError`
    if the transaction is prepared.
    """
    if known.state in DECIDED:
        raise ConcurrentTransactionsError("The previous transaction is not complete yet: try again.")
    if known.is_prepared:
        raise InvalidTransactionStateError("The transaction is prepared: it can only be committed or aborted.")
    is_open = known.state is TransactionState.ONGOING
    together = known.partitions.union(partitions)
    if is_open and len(together) == len(known.partitions):
        return None
    return replace(
        known,
        state=TransactionState.ONGOING,
        partitions=together,
        client_version=client_version,
        updated_ms=now_ms,
        started_ms=known.started_ms if is_open else now_ms,
    )


def prepare(known: Transaction, now_ms: int) -> Transaction | None:
    """Return the state of the transaction after it was prepared, or None if it is prepared already.

    Raises `ConcurrentTransactionsError` while the transaction is being completed, and `InvalidTransactionStateError` if
    none is open.
    """
    if known.state in DECIDED:
        raise ConcurrentTransactionsError("The transaction is being completed: try again.")
    if known.state is not TransactionState.ONGOING:
        raise InvalidTransactionStateError(f"No transaction can be prepared in the state {known.state.text}.")
    if known.is_prepared:
        return None
    return replace(known, timeout_ms=PREPARED_TIMEOUT_MS, usual_timeout_ms=known.timeout_ms, updated_ms=now_ms)


def with_usual_timeout(known: Transaction, largest_ms: int) -> Transaction:
    """Return the state with the timeout that the next transaction of the producer has, if the current one is special.

    It is that from before the preparation, or `largest_ms` if a coordinator before this one knew it.
    """
    if known.timeout_ms != PREPARED_TIMEOUT_MS:
        return known
    usual_ms = known.usual_timeout_ms or min(largest_ms, LARGEST_TIMEOUT_MS)
    return replace(known, timeout_ms=usual_ms, usual_timeout_ms=0)


def is_repeated_end(known: Transaction, producer: ProducerIdAndEpoch) -> bool:
    """Whether the producer has the id and epoch before the end that raised its epoch: it did not get the response."""
    if known.client_version < EPOCH_BUMPS_SINCE or known.state not in _ENDED:
        return False
    if producer.producer_id == known.producer_id:
        return producer.epoch == known.producer_epoch - 1
    return (
        producer.producer_id == known.last_producer_id
        and producer.epoch == LAST_EPOCH
        and known.producer_epoch == 0
        and known.state in _IDLE
    )


def needs_next_id(known: Transaction | None, request: EndRequest) -> bool:
    """Whether EndTxn has to allocate a producer id, because the epoch can be raised only once more."""
    return (
        known is not None
        and request.bumps
        and known.producer_epoch >= LAST_EPOCH
        and request.producer == ProducerIdAndEpoch(known.producer_id, known.producer_epoch)
        and (known.state is TransactionState.ONGOING or (known.state in _IDLE and not request.is_commit))
    )


def end(known: Transaction, request: EndRequest, next_id: int | None, now_ms: int) -> Transaction | None:
    """Return the Prepare state of the decision, or None if the transaction has already ended so.

    The caller has checked the producer. `next_id` is given if `needs_next_id` says so. A producer of transaction
    version 2 may abort without a transaction, because it does not know whether a write has opened one: the raised epoch
    then fences that write.
    Raises `ConcurrentTransactionsError` while the same decision is being carried out, `InvalidTransactionStateError` if
    there is no transaction, or if it ended differently, and `ProducerFencedError` for the epoch of a fence.
    """
    is_commit = request.is_commit
    if known.state is TransactionState.ONGOING:
        return _decided(known, request, next_id, now_ms)
    prepared = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
    if known.state is prepared:
        raise ConcurrentTransactionsError("The transaction is being completed: try again.")
    complete = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
    is_repeated = is_repeated_end(known, request.producer)
    # An end that kept the epoch may be repeated with any version. But an abort of version 2 has to raise the epoch.
    kept_epoch = known.client_version < EPOCH_BUMPS_SINCE and (is_commit or not request.bumps)
    if known.state is complete and (is_repeated or kept_epoch):
        return None
    if known.state in _IDLE and not is_commit and not is_repeated and request.client_version >= EPOCH_BUMPS_SINCE:
        # Below level 2, no write of this client has opened a transaction, so nothing has to be fenced.
        return _decided(known, request, next_id, now_ms) if request.bumps else None
    raise InvalidTransactionStateError(
        f"The transaction cannot be {'committed' if is_commit else 'aborted'} in the state {known.state.text}."
    )


def _decided(known: Transaction, request: EndRequest, next_id: int | None, now_ms: int) -> Transaction:
    """Return the Prepare state of a request that is allowed."""
    following = replace(
        known,
        state=TransactionState.PREPARE_COMMIT if request.is_commit else TransactionState.PREPARE_ABORT,
        updated_ms=now_ms,
        started_ms=known.started_ms if known.state is TransactionState.ONGOING else now_ms,
        client_version=min(request.client_version, request.level),
    )
    if not request.bumps:
        return following
    if known.producer_epoch >= LARGEST_EPOCH:
        raise ProducerFencedError(f"No producer has the epoch {LARGEST_EPOCH}, which is for the abort of the last one.")
    assert (next_id is not None) == (known.producer_epoch == LAST_EPOCH), known
    return replace(
        following,
        producer_epoch=known.producer_epoch + 1,
        last_producer_id=known.producer_id,
        last_producer_epoch=known.producer_epoch,
        next_producer_id=NO_PRODUCER_ID if next_id is None else next_id,
    )


def fence(known: Transaction, now_ms: int) -> Transaction:
    """Return the state that aborts an open transaction with a higher epoch, so that its producer is fenced.

    The client version is 0, because a repeated end of the fenced producer must not be taken for one that raised the
    epoch.
    """
    assert known.state is TransactionState.ONGOING, known
    return replace(
        known,
        state=TransactionState.PREPARE_ABORT,
        producer_epoch=min(known.producer_epoch + 1, LARGEST_EPOCH),
        last_producer_epoch=NO_EPOCH,
        client_version=0,
        updated_ms=now_ms,
    )


def complete(known: Transaction, now_ms: int) -> Transaction:
    """Return the state after all markers of a decision were written. The next producer id, if any, is then current."""
    assert known.state in DECIDED, known
    is_commit = known.state is TransactionState.PREPARE_COMMIT
    state = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
    following = replace(known, state=state, partitions=frozenset(), updated_ms=now_ms)
    if known.next_producer_id == NO_PRODUCER_ID:
        return following
    return replace(
        following,
        producer_id=known.next_producer_id,
        producer_epoch=0,
        last_producer_id=known.producer_id,
        last_producer_epoch=LAST_EPOCH,
        next_producer_id=NO_PRODUCER_ID,
    )


def has_timed_out(known: Transaction, now_ms: int) -> bool:
    """Whether an open transaction has lasted longer than its timeout. A prepared one has none."""
    return (
        known.state is TransactionState.ONGOING
        and not known.is_prepared
        and known.started_ms != NO_TIMESTAMP
        and now_ms - known.started_ms > known.timeout_ms
    )


def has_expired(known: Transaction, now_ms: int, expiration_ms: int) -> bool:
    """Whether an id without a transaction has not been used for `transactional.id.expiration.ms`."""
    return known.state in _IDLE and now_ms - known.updated_ms >= expiration_ms
