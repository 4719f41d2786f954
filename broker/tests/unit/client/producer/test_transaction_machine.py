"""The states of a transactional producer: which calls are allowed, and what each error means."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from odradek.base.errors import (
    BY_CODE,
    ConcurrentTransactionsError,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    InvalidConfigError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTransactionStateError,
    MessageTooLargeError,
    NetworkError,
    NotCoordinatorError,
    OdradekError,
    PolicyViolationError,
    ProducerFencedError,
    TopicAuthorizationFailedError,
    TransactionAbortableError,
    TransactionalIdAuthorizationFailedError,
    UnknownProducerIdError,
    UnsupportedVersionError,
)
from odradek.base.types import TopicPartition
from odradek.client.producer.sequences import ProducerIdentity
from odradek.client.producer.transaction_machine import (
    Consequence,
    TransactionMachine,
    TransactionPhase,
    TransactionStep,
    consequence,
)

FIRST: Final = TopicPartition("t", 0)
SECOND: Final = TopicPartition("t", 1)
RETRY, GIVE_UP, ABORT, NEW_EPOCH, FATAL = Consequence
COORDINATED: Final = [step for step in TransactionStep if step is not TransactionStep.PRODUCE]


def ready() -> TransactionMachine:
    machine = TransactionMachine()
    machine.start_initializing()
    machine.initialized(ProducerIdentity(7, 0))
    return machine


def in_transaction() -> TransactionMachine:
    machine = ready()
    machine.begin()
    machine.include(FIRST)
    machine.partitions_added([FIRST])
    return machine


@pytest.mark.parametrize("step", COORDINATED)
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConcurrentTransactionsError, RETRY),
        (NotCoordinatorError, RETRY),
        (NetworkError, RETRY),
        (InvalidProducerIdMappingError, NEW_EPOCH),
        (UnknownProducerIdError, NEW_EPOCH),
        (TransactionAbortableError, ABORT),
        (GroupAuthorizationFailedError, ABORT),
        (TopicAuthorizationFailedError, ABORT),
        (IllegalGenerationError, ABORT),
        (FencedInstanceIdError, ABORT),
        (ProducerFencedError, FATAL),
        (InvalidProducerEpochError, FATAL),
        (TransactionalIdAuthorizationFailedError, FATAL),
        (InvalidTransactionStateError, FATAL),
        (UnsupportedVersionError, FATAL),
    ],
)
def test_errors_of_coordinators(step: TransactionStep, error: type[OdradekError], expected: Consequence) -> None:
    if step is TransactionStep.PREPARE and error is UnsupportedVersionError:
        expected = GIVE_UP
    assert consequence(step, error("")) is expected


@pytest.mark.parametrize(
    ("step", "error", "expected"),
    [
        (TransactionStep.PRODUCE, InvalidProducerEpochError, ABORT),
        (TransactionStep.PRODUCE, MessageTooLargeError, ABORT),
        (TransactionStep.PRODUCE, NetworkError, ABORT),
        (TransactionStep.PRODUCE, ProducerFencedError, FATAL),
        (TransactionStep.PRODUCE, TransactionalIdAuthorizationFailedError, FATAL),
        (TransactionStep.ADD_PARTITIONS, InvalidConfigError, ABORT),
        (TransactionStep.END, InvalidConfigError, FATAL),
        (TransactionStep.PREPARE, InvalidConfigError, FATAL),
        (TransactionStep.PREPARE, PolicyViolationError, GIVE_UP),
        (TransactionStep.END, PolicyViolationError, FATAL),
    ],
)
def test_errors_with_a_meaning_of_their_own(
    step: TransactionStep, error: type[OdradekError], expected: Consequence
) -> None:
    assert consequence(step, error("")) is expected


def test_a_transaction_from_begin_to_end() -> None:
    machine = TransactionMachine()
    assert machine.phase is TransactionPhase.UNINITIALIZED
    machine.start_initializing()
    machine.initialized(ProducerIdentity(7, 3))
    assert (machine.phase, machine.identity) == (TransactionPhase.READY, ProducerIdentity(7, 3))
    machine.begin()
    machine.check_open()
    assert machine.include(SECOND)
    assert machine.include(FIRST)
    assert not machine.include(FIRST)
    assert machine.partitions_to_add() == [FIRST, SECOND]
    assert not machine.may_send(FIRST)
    assert not machine.must_tell_coordinator
    machine.partitions_added([FIRST, SECOND])
    assert machine.may_send(FIRST)
    assert machine.partitions_to_add() == []
    machine.start_committing()
    assert machine.may_send(FIRST)
    assert machine.must_tell_coordinator
    machine.ended()
    assert (machine.phase, machine.identity) == (TransactionPhase.READY, ProducerIdentity(7, 3))
    machine.begin()
    assert machine.include(FIRST)


def test_the_coordinator_does_not_hear_of_an_empty_transaction() -> None:
    machine = ready()
    machine.begin()
    machine.start_committing()
    assert not machine.must_tell_coordinator
    machine.ended()
    assert machine.phase is TransactionPhase.READY


def test_offsets_alone_open_a_transaction() -> None:
    machine = ready()
    machine.begin()
    machine.offsets_added()
    machine.start_committing()
    assert machine.must_tell_coordinator


@pytest.mark.parametrize(
    ("phase", "refused", "advice"),
    [
        (TransactionMachine, ("begin", "check_open", "start_committing", "start_aborting"), "init_transactions"),
        (ready, ("start_initializing", "check_open", "start_committing", "start_aborting"), "begin_transaction"),
        (in_transaction, ("start_initializing", "begin"), "commit_transaction or abort_transaction"),
    ],
)
def test_a_call_in_the_wrong_phase_changes_nothing(
    phase: type[TransactionMachine], refused: tuple[str, ...], advice: str
) -> None:
    for name in refused:
        machine = phase()
        before = machine.phase
        with pytest.raises(InvalidTransactionStateError, match=f"call {advice} first"):
            getattr(machine, name)()
        assert machine.phase is before


def test_an_error_before_the_first_epoch_can_be_tried_again() -> None:
    machine = TransactionMachine()
    machine.start_initializing()
    assert not machine.failed(TransactionStep.INITIALIZE, TransactionalIdAuthorizationFailedError("no"))
    machine.start_initializing()
    machine.initialized(ProducerIdentity(7, 0))
    assert machine.phase is TransactionPhase.READY


def test_an_abortable_error_allows_only_the_abort() -> None:
    machine = in_transaction()
    assert not machine.failed(TransactionStep.ADD_PARTITIONS, TopicAuthorizationFailedError("no"))
    assert machine.phase is TransactionPhase.ABORTABLE_ERROR
    assert not machine.may_send(FIRST)
    for call in (machine.check_open, machine.start_committing, machine.begin, machine.start_initializing):
        with pytest.raises(TransactionAbortableError, match="must be aborted, because of an error: no"):
            call()
    machine.start_aborting()
    assert machine.failure is None
    assert machine.must_tell_coordinator
    machine.ended()
    assert machine.phase is TransactionPhase.READY


def test_a_fatal_error_allows_nothing() -> None:
    machine = in_transaction()
    assert not machine.failed(TransactionStep.ADD_OFFSETS, ProducerFencedError("gone"))
    machine.failed(TransactionStep.ADD_OFFSETS, TransactionAbortableError("later"))
    machine.batch_failed(MessageTooLargeError("later"), was_sent=True)
    assert machine.phase is TransactionPhase.FATAL_ERROR
    for call in (machine.check_open, machine.start_committing, machine.start_aborting, machine.begin):
        with pytest.raises(ProducerFencedError, match="must be closed, because of an error: gone"):
            call()


@pytest.mark.parametrize(
    ("was_sent", "expected"), [(True, TransactionPhase.INITIALIZING), (False, TransactionPhase.READY)]
)
def test_a_batch_that_may_be_in_the_log_makes_another_epoch_necessary(
    was_sent: bool, expected: TransactionPhase
) -> None:
    machine = in_transaction()
    machine.batch_failed(NetworkError("timed out"), was_sent=was_sent)
    assert machine.phase is TransactionPhase.ABORTABLE_ERROR
    machine.start_aborting()
    machine.ended()
    assert machine.phase is expected
    if was_sent:
        machine.initialized(ProducerIdentity(7, 1))
    machine.begin()
    machine.start_aborting()
    machine.ended()
    assert machine.phase is TransactionPhase.READY


def test_a_batch_that_fails_during_the_abort_makes_another_epoch_necessary() -> None:
    machine = in_transaction()
    machine.start_aborting()
    machine.batch_failed(TransactionAbortableError("aborted"), was_sent=True)
    assert machine.failure is None
    machine.ended()
    assert machine.phase is TransactionPhase.INITIALIZING


def test_a_batch_that_fails_during_the_commit_makes_the_abort_necessary() -> None:
    machine = in_transaction()
    machine.start_committing()
    machine.batch_failed(MessageTooLargeError("large"), was_sent=True)
    assert isinstance(machine.failure, TransactionAbortableError)
    machine.start_aborting()


@pytest.mark.parametrize("during_abort", [True, False])
def test_an_unknown_producer_id_is_replaced_without_end_txn(during_abort: bool) -> None:
    machine = in_transaction()
    if during_abort:
        machine.start_aborting()
        assert not machine.failed(TransactionStep.END, InvalidProducerIdMappingError("expired"))
    else:
        assert not machine.failed(TransactionStep.ADD_PARTITIONS, InvalidProducerIdMappingError("expired"))
        machine.start_aborting()
    assert not machine.must_tell_coordinator
    machine.ended()
    assert machine.phase is TransactionPhase.INITIALIZING


def test_a_lost_response_may_have_opened_the_transaction() -> None:
    machine = ready()
    machine.begin()
    machine.include(FIRST)
    machine.answer_lost()
    machine.start_aborting()
    assert machine.must_tell_coordinator
    assert not machine.failed(TransactionStep.END, InvalidTransactionStateError("no transaction"))
    assert machine.phase is TransactionPhase.ABORTING
    machine.ended()
    # A copy of the lost request may still arrive. With another epoch, the coordinator refuses it.
    assert machine.phase is TransactionPhase.INITIALIZING


def test_the_refusal_of_an_abort_is_fatal_if_there_is_a_transaction() -> None:
    machine = in_transaction()
    machine.start_aborting()
    assert not machine.failed(TransactionStep.END, InvalidTransactionStateError("strange"))
    assert machine.phase is TransactionPhase.FATAL_ERROR


@pytest.mark.parametrize("error", [TransactionAbortableError, ProducerFencedError, InvalidConfigError])
def test_without_the_next_epoch_the_producer_is_lost(error: type[OdradekError]) -> None:
    machine = in_transaction()
    machine.batch_failed(NetworkError("timed out"), was_sent=True)
    machine.start_aborting()
    machine.ended()
    assert not machine.failed(TransactionStep.INITIALIZE, error("no"))
    assert machine.phase is TransactionPhase.FATAL_ERROR


@pytest.mark.parametrize("is_batch", [True, False])
def test_an_error_after_the_end_of_its_transaction_ends_the_producer(is_batch: bool) -> None:
    """The transaction may have been committed without the record."""
    machine = in_transaction()
    machine.start_committing()
    machine.ended()
    cause: OdradekError = NetworkError("lost")
    if is_batch:
        machine.batch_failed(cause, was_sent=True)
    else:
        cause = GroupAuthorizationFailedError("lost")
        assert not machine.failed(TransactionStep.ADD_OFFSETS, cause)
    assert machine.phase is TransactionPhase.FATAL_ERROR
    with pytest.raises(InvalidTransactionStateError, match="failed while the producer was ready: lost") as caught:
        machine.begin()
    assert caught.value.__cause__ is not None
    assert caught.value.__cause__.__cause__ is cause


def test_an_error_after_the_end_of_its_transaction_ends_the_producer_before_the_next_epoch() -> None:
    machine = in_transaction()
    machine.batch_failed(NetworkError("timed out"), was_sent=True)
    machine.start_aborting()
    machine.ended()
    machine.batch_failed(NetworkError("lost"), was_sent=True)
    assert machine.phase is TransactionPhase.FATAL_ERROR


def test_a_batch_that_fails_before_the_initialization_ends_the_producer() -> None:
    machine = TransactionMachine()
    machine.batch_failed(NetworkError("lost"), was_sent=False)
    with pytest.raises(InvalidTransactionStateError, match="failed while the producer was uninitialized: lost"):
        machine.start_initializing()


def test_a_prepared_transaction_without_one_of_its_batches_can_only_be_aborted() -> None:
    machine = in_transaction()
    machine.start_preparing()
    machine.prepared()
    machine.batch_failed(NetworkError("lost"), was_sent=True)
    with pytest.raises(TransactionAbortableError):
        machine.start_committing()
    machine.start_aborting()
    assert machine.must_tell_coordinator
    machine.ended()
    assert machine.phase is TransactionPhase.INITIALIZING


CALLS: Final = ["begin", "start_preparing", "start_committing", "start_aborting"]
RESULTS: Final = {
    "added": (TransactionPhase.IN_TRANSACTION, TransactionPhase.PREPARING, TransactionPhase.COMMITTING),
    "prepared": (TransactionPhase.PREPARING,),
    "cannot_prepare": (TransactionPhase.PREPARING,),
    "ended": (TransactionPhase.COMMITTING, TransactionPhase.ABORTING),
    "initialized": (TransactionPhase.INITIALIZING,),
}
"""Results of requests, and the phases in which they can arrive."""

events = st.lists(
    st.one_of(
        st.sampled_from([*CALLS, *RESULTS]),
        st.tuples(st.sampled_from(list(TransactionStep)), st.sampled_from(sorted(BY_CODE))),
    ),
    max_size=40,
)


def apply(machine: TransactionMachine, event: str) -> None:
    """Call the machine for an event without an error."""
    if event == "initialized":
        machine.initialized(ProducerIdentity(7, 1))
    elif event == "added":
        machine.include(FIRST)
        machine.partitions_added([FIRST])
    else:
        getattr(machine, event)()


@given(events=events)
@example(events=[(TransactionStep.PRODUCE, -1), "begin", "start_committing", "ended"])
@example(events=[(TransactionStep.ADD_PARTITIONS, UnknownProducerIdError.code), "begin", "start_committing", "ended"])
@example(events=["begin", "start_preparing", "prepared", (TransactionStep.PRODUCE, -1), "start_committing", "ended"])
def test_no_sequence_of_events_ends_outside_of_the_table(events: list[str | tuple[TransactionStep, int]]) -> None:
    """After a fatal error there is no other phase, and a failed transaction is never committed."""
    machine = ready()
    for event in events:
        before = machine.phase
        if isinstance(event, tuple):
            step, code = event
            error = BY_CODE[code]("an error")
            if step is TransactionStep.PRODUCE:
                machine.batch_failed(error, was_sent=True)
            elif (step is TransactionStep.INITIALIZE) == (before is TransactionPhase.INITIALIZING):
                machine.failed(step, error)
        elif event in RESULTS:
            if before in RESULTS[event]:
                apply(machine, event)
        else:
            try:
                apply(machine, event)
            except (InvalidTransactionStateError, TransactionAbortableError, type(machine.failure or ValueError())):
                assert machine.phase is before
        if before is TransactionPhase.FATAL_ERROR:
            assert machine.phase is before
        if before is TransactionPhase.ABORTABLE_ERROR:
            assert machine.phase in (before, TransactionPhase.ABORTING, TransactionPhase.FATAL_ERROR)
        assert (machine.failure is not None) == (
            machine.phase in (TransactionPhase.ABORTABLE_ERROR, TransactionPhase.FATAL_ERROR)
        )


@pytest.mark.parametrize("commits", [True, False])
def test_a_prepared_transaction_is_followed_by_another_epoch(commits: bool) -> None:
    machine = in_transaction()
    machine.start_preparing()
    assert machine.may_send(FIRST)
    with pytest.raises(InvalidTransactionStateError, match="call prepare_transaction first"):
        machine.start_committing()
    machine.prepared()
    assert machine.phase is TransactionPhase.PREPARED
    assert not machine.may_send(FIRST)
    for refused in (machine.check_open, machine.begin, machine.start_preparing, machine.start_initializing):
        with pytest.raises(InvalidTransactionStateError, match="commit_transaction or abort_transaction first"):
            refused()
    (machine.start_committing if commits else machine.start_aborting)()
    assert machine.must_tell_coordinator
    machine.ended()
    assert machine.phase is TransactionPhase.INITIALIZING
    machine.initialized(ProducerIdentity(7, 1))
    machine.begin()
    machine.start_committing()
    machine.ended()
    assert machine.phase is TransactionPhase.READY


def test_a_transaction_that_cannot_be_prepared_goes_on() -> None:
    machine = in_transaction()
    machine.start_preparing()
    assert not machine.failed(TransactionStep.PREPARE, UnsupportedVersionError("no"))
    machine.cannot_prepare()
    machine.check_open()
    machine.start_committing()
    machine.ended()
    assert machine.phase is TransactionPhase.READY


def test_an_error_of_a_batch_ends_the_preparation() -> None:
    machine = in_transaction()
    machine.start_preparing()
    machine.batch_failed(MessageTooLargeError("large"), was_sent=False)
    assert machine.phase is TransactionPhase.ABORTABLE_ERROR
    with pytest.raises(TransactionAbortableError):
        machine.start_preparing()
