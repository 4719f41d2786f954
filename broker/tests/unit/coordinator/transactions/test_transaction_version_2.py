"""Transaction version 2 (KIP-890): raised epochs, repeated ends, new producer ids, moves and other versions."""

from __future__ import annotations

import pytest

from odradek.base.errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidTransactionStateError,
    ProducerFencedError,
)
from odradek.base.types import TopicPartition
from odradek.coordinator.transactions import transaction_rules as rules
from odradek.coordinator.transactions.transaction_values import (
    EndRequest,
    ProducerIdAndEpoch,
    Transaction,
    TransactionState,
)
from odradek_testkit.transactions import EVENTS, TransactionLab

S = TransactionState


@pytest.fixture
def lab() -> TransactionLab:
    """A shard of a cluster that has finalized level 2."""
    return TransactionLab(level=2)


def write(lab: TransactionLab, producer: ProducerIdAndEpoch) -> None:
    """Open a transaction with a write."""
    lab.add(producer, client_version=2)
    lab.log.settle()


def end(lab: TransactionLab, producer: ProducerIdAndEpoch, *, is_commit: bool = True) -> ProducerIdAndEpoch:
    """End a transaction, but do not write its markers. Return the id and epoch of the response."""
    reply = lab.end(producer, is_commit=is_commit, client_version=2)
    lab.log.settle()
    return reply.value


def complete(lab: TransactionLab) -> None:
    lab.markers.end()
    lab.log.settle()


def at_epoch(lab: TransactionLab, epoch: int) -> ProducerIdAndEpoch:
    """Return a producer whose epoch is this one, as if it had ended that many transactions."""
    producer = lab.producer()
    entry = lab.shard._entries["tx"]
    entry.current = Transaction(
        producer_id=producer.producer_id,
        producer_epoch=epoch,
        timeout_ms=60_000,
        state=S.EMPTY,
        updated_ms=lab.clock.wall_ms(),
    )
    return producer._replace(epoch=epoch)


@pytest.mark.parametrize("is_commit", [True, False])
def test_each_end_raises_the_epoch(lab: TransactionLab, is_commit: bool) -> None:
    producer = lab.producer()
    for number in range(3):
        assert producer.epoch == number
        write(lab, producer)
        following = end(lab, producer, is_commit=is_commit)
        assert following == producer._replace(epoch=number + 1)
        marker = lab.markers.sent[-1]
        assert (marker.producer_epoch, marker.is_commit) == (number + 1, is_commit), "it fences late writes"
        with pytest.raises(ConcurrentTransactionsError):
            lab.add(following, client_version=2)
        complete(lab)
        with pytest.raises(ProducerFencedError):
            lab.add(producer, client_version=2)
        producer = following


@pytest.mark.parametrize("moves", [False, True])
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_repeated_end_gets_the_same_answer(lab: TransactionLab, moves: bool, is_commit: bool) -> None:
    producer = lab.producer()
    write(lab, producer)
    following = end(lab, producer, is_commit=is_commit)
    if moves:
        lab.reload()
    with pytest.raises(ConcurrentTransactionsError):
        end(lab, producer, is_commit=is_commit)
    complete(lab)
    if moves:
        lab.reload()
    assert end(lab, producer, is_commit=is_commit) == following
    with pytest.raises(InvalidTransactionStateError):
        end(lab, producer, is_commit=not is_commit)
    write(lab, following)
    with pytest.raises(ProducerFencedError):
        end(lab, producer, is_commit=is_commit)
    assert end(lab, following) == following._replace(epoch=2)


@pytest.mark.parametrize("moves", [False, True])
def test_init_producer_id_after_a_lost_response_of_the_end(lab: TransactionLab, moves: bool) -> None:
    producer = lab.producer()
    write(lab, producer)
    following = end(lab, producer)
    complete(lab)
    if moves:
        lab.reload()
    reply = lab.init(expected=producer)
    lab.log.settle()
    assert reply.value == following


@pytest.mark.parametrize("moves", [False, True])
def test_after_the_last_epoch_the_producer_gets_another_id(lab: TransactionLab, moves: bool) -> None:
    last = at_epoch(lab, rules.LAST_EPOCH)
    write(lab, last)
    following = end(lab, last)
    assert following == ProducerIdAndEpoch(1001, 0)
    if moves:
        lab.reload()
    marker = lab.markers.sent[-1]
    assert (marker.producer_id, marker.producer_epoch) == (last.producer_id, rules.LARGEST_EPOCH)
    for request in (lambda: lab.add(following, client_version=2), lambda: end(lab, following), lambda: end(lab, last)):
        with pytest.raises(ConcurrentTransactionsError):
            request()
    complete(lab)
    if moves:
        lab.reload()
    assert end(lab, last) == following, "repeated after a lost response"
    with pytest.raises(InvalidTransactionStateError):
        end(lab, last, is_commit=False)
    reply = lab.init(expected=last)
    lab.log.settle()
    assert reply.value == following
    write(lab, following)
    with pytest.raises(InvalidProducerIdMappingError):
        end(lab, last)
    assert end(lab, following) == following._replace(epoch=1)


def test_an_abort_without_a_transaction_fences_late_writes(lab: TransactionLab) -> None:
    producer = lab.producer()
    aborted = end(lab, producer, is_commit=False)
    assert aborted == producer._replace(epoch=1)
    assert lab.state().state is S.COMPLETE_ABORT
    assert lab.markers.sent == []
    assert end(lab, producer, is_commit=False) == aborted, "repeated after a lost response"
    with pytest.raises(ProducerFencedError):
        lab.add(producer, client_version=2)
    again = end(lab, aborted, is_commit=False)
    assert again == producer._replace(epoch=2)
    with pytest.raises(InvalidTransactionStateError):
        end(lab, again)


def test_an_abort_without_a_transaction_at_the_last_epoch(lab: TransactionLab) -> None:
    last = at_epoch(lab, rules.LAST_EPOCH)
    assert end(lab, last, is_commit=False) == ProducerIdAndEpoch(1001, 0)
    assert lab.state().producer_id == 1001


def test_the_epoch_of_a_fence_belongs_to_no_producer(lab: TransactionLab) -> None:
    at_epoch(lab, rules.LAST_EPOCH)
    write(lab, ProducerIdAndEpoch(1000, rules.LAST_EPOCH))
    with pytest.raises(ConcurrentTransactionsError):
        lab.init()
    lab.log.settle()
    complete(lab)
    with pytest.raises(ProducerFencedError):
        end(lab, ProducerIdAndEpoch(1000, rules.LARGEST_EPOCH), is_commit=False)


@pytest.mark.parametrize("moves", [False, True])
def test_a_producer_whose_transaction_timed_out_is_fenced(lab: TransactionLab, moves: bool) -> None:
    """Its end must not be taken for a repeated one, although the abort has raised the epoch as well."""
    producer = lab.producer()
    write(lab, producer)
    lab.clock.advance(100_000)
    lab.shard.abort_timed_out()
    lab.log.settle()
    complete(lab)
    assert lab.markers.sent[-1].producer_epoch == producer.epoch + 1
    if moves:
        lab.reload()
    for is_commit in (True, False):
        with pytest.raises(ProducerFencedError):
            end(lab, producer, is_commit=is_commit)


def test_a_client_of_version_0_keeps_its_epoch(lab: TransactionLab) -> None:
    producer = lab.producer()
    for _ in range(2):
        lab.add(producer)
        lab.log.settle()
        reply = lab.end(producer)
        lab.log.settle()
        assert reply.value == producer
        complete(lab)
    assert lab.end(producer).value == producer, "repeated after a lost response"


def test_a_producer_changes_to_version_2_between_transactions(lab: TransactionLab) -> None:
    producer = lab.producer()
    lab.add(producer)
    lab.log.settle()
    lab.end(producer)
    lab.log.settle()
    complete(lab)
    write(lab, producer)
    assert end(lab, producer) == producer._replace(epoch=1)


def test_below_level_2_the_epoch_stays() -> None:
    lab = TransactionLab(level=1)
    producer = lab.producer()
    assert end(lab, producer, is_commit=False) == producer, "no write of this client has opened a transaction"
    lab.add(producer)
    lab.log.settle()
    assert end(lab, producer) == producer
    complete(lab)
    assert end(lab, producer, is_commit=False) == producer


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_prepared_transaction_ends(lab: TransactionLab, is_commit: bool) -> None:
    producer = lab.begin_prepared()
    following = end(lab, producer, is_commit=is_commit)
    assert following == producer._replace(epoch=1)
    complete(lab)
    lab.reload()
    assert end(lab, producer, is_commit=is_commit) == following
    with pytest.raises(InvalidTransactionStateError):
        end(lab, producer, is_commit=not is_commit)


def test_only_the_producer_of_the_last_epoch_needs_an_id() -> None:
    request = EndRequest(producer=ProducerIdAndEpoch(7, rules.LAST_EPOCH), is_commit=True, client_version=2, level=2)
    known = Transaction(
        producer_id=7,
        producer_epoch=rules.LAST_EPOCH,
        timeout_ms=1,
        state=S.ONGOING,
        partitions=frozenset({TopicPartition("t", 0)}),
        updated_ms=1,
    )
    assert rules.needs_next_id(known, request)
    assert not rules.needs_next_id(None, request)
    other = ProducerIdAndEpoch(7, 3)
    assert not rules.needs_next_id(known, EndRequest(producer=other, is_commit=True, client_version=2, level=2))
    assert not rules.needs_next_id(known, EndRequest(producer=request.producer, is_commit=True, client_version=2))


def test_all_partitions_are_added_by_writes(lab: TransactionLab) -> None:
    producer = lab.producer()
    for partition in EVENTS:
        lab.add(producer, [partition], client_version=2)
        lab.log.settle()
    assert lab.state().partitions == set(EVENTS)
    assert lab.state().client_version == 2
