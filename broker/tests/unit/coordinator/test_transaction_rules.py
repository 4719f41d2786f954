"""The transitions of a transactional id."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odradek.base.errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidTransactionStateError,
    ProducerFencedError,
    ProtocolError,
)
from odradek.base.types import TopicPartition
from odradek.coordinator.transactions import transaction_rules as rules
from odradek.coordinator.transactions.transaction_values import (
    EndRequest,
    InitRequest,
    ProducerIdAndEpoch,
    Transaction,
    TransactionState,
)

NOW_MS = 1_700_000_000_000
ZERO, ONE = TopicPartition("events", 0), TopicPartition("events", 1)
S = TransactionState


def transaction(state: TransactionState = S.EMPTY, epoch: int = 3, **changes: object) -> Transaction:
    base = Transaction(producer_id=7, producer_epoch=epoch, timeout_ms=60_000, state=state, updated_ms=NOW_MS)
    if state not in (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT):
        base = replace(base, partitions=frozenset({ZERO}), started_ms=NOW_MS)
    return replace(base, **changes)  # type: ignore[arg-type]


def init(expected: tuple[int, int] | None = None) -> InitRequest:
    given = None if expected is None else ProducerIdAndEpoch(*expected)
    return InitRequest(transactional_id="tx", timeout_ms=30_000, expected=given)


def ended(is_commit: bool) -> EndRequest:
    return EndRequest(producer=ProducerIdAndEpoch(7, 3), is_commit=is_commit)


IDLE = [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT]


# InitProducerId


def test_a_new_id_begins_with_epoch_0() -> None:
    assert rules.needs_new_id(None, None)
    first = rules.created(init(), 7, NOW_MS)
    following = rules.init_producer(first, init(), None, NOW_MS)
    assert (following.producer_id, following.producer_epoch, following.state) == (7, 0, S.EMPTY)
    assert (following.timeout_ms, following.started_ms) == (30_000, -1)


def test_a_producer_whose_id_has_expired_begins_with_epoch_0() -> None:
    first = rules.created(init((5, 9)), 7, NOW_MS)
    rules.check_expected(first, ProducerIdAndEpoch(5, 9))
    following = rules.init_producer(first, init((5, 9)), None, NOW_MS)
    assert (following.producer_id, following.producer_epoch) == (7, 0)


@pytest.mark.parametrize("state", IDLE)
def test_each_producer_gets_the_next_epoch(state: TransactionState) -> None:
    known = transaction(state)
    assert not rules.needs_new_id(known, None)
    following = rules.init_producer(known, init(), None, NOW_MS + 1)
    assert (following.producer_id, following.producer_epoch, following.last_producer_epoch) == (7, 4, -1)
    assert (following.state, following.timeout_ms, following.updated_ms) == (S.EMPTY, 30_000, NOW_MS + 1)


def test_a_producer_raises_its_own_epoch_and_may_repeat_it() -> None:
    raised = rules.init_producer(transaction(), init((7, 3)), None, NOW_MS)
    assert (raised.producer_epoch, raised.last_producer_epoch) == (4, 3)
    repeated = rules.init_producer(raised, init((7, 3)), None, NOW_MS)
    assert (repeated.producer_epoch, repeated.last_producer_epoch) == (4, 3)


def test_an_older_producer_is_fenced() -> None:
    with pytest.raises(ProducerFencedError, match="epoch 1 of the producer is not the current one, 3"):
        rules.init_producer(transaction(), init((7, 1)), None, NOW_MS)
    with pytest.raises(ProducerFencedError, match="producer id 7, not 6"):
        rules.check_expected(transaction(), ProducerIdAndEpoch(6, 3))


@pytest.mark.parametrize("state", [S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_no_epoch_before_the_transaction_is_complete(state: TransactionState) -> None:
    assert not rules.needs_new_id(transaction(state, rules.LAST_EPOCH), None)
    with pytest.raises(ConcurrentTransactionsError):
        rules.init_producer(transaction(state), init(), None, NOW_MS)


def test_after_the_last_epoch_there_is_a_new_producer_id() -> None:
    known = transaction(S.COMPLETE_COMMIT, rules.LAST_EPOCH)
    assert rules.needs_new_id(known, None)
    rotated = rules.init_producer(known, init(), 8, NOW_MS)
    assert (rotated.producer_id, rotated.producer_epoch) == (8, 0)
    assert (rotated.last_producer_id, rotated.last_producer_epoch) == (7, -1)


def test_a_producer_that_missed_its_new_producer_id_may_ask_again() -> None:
    last = ProducerIdAndEpoch(7, rules.LAST_EPOCH)
    known = transaction(S.COMPLETE_COMMIT, rules.LAST_EPOCH)
    assert rules.needs_new_id(known, last)
    rotated = rules.init_producer(known, init(last), 8, NOW_MS)
    rules.check_expected(rotated, last)
    assert not rules.needs_new_id(rotated, last)
    repeated = rules.init_producer(rotated, init(last), None, NOW_MS)
    assert (repeated.producer_id, repeated.producer_epoch) == (8, 0)
    with pytest.raises(ProducerFencedError):
        rules.check_expected(rotated, ProducerIdAndEpoch(7, 5))


# Partitions


def test_the_first_partition_opens_a_transaction() -> None:
    opened = rules.add_partitions(transaction(S.COMPLETE_ABORT), [ZERO], NOW_MS + 5)
    assert opened is not None
    assert (opened.state, opened.partitions, opened.started_ms) == (S.ONGOING, {ZERO}, NOW_MS + 5)
    more = rules.add_partitions(opened, [ONE], NOW_MS + 9)
    assert more is not None
    assert (more.partitions, more.started_ms, more.updated_ms) == ({ZERO, ONE}, NOW_MS + 5, NOW_MS + 9)
    assert rules.add_partitions(more, [ONE, ZERO], NOW_MS + 20) is None


def test_no_partition_is_added_while_a_transaction_ends() -> None:
    for state in (S.PREPARE_COMMIT, S.PREPARE_ABORT):
        with pytest.raises(ConcurrentTransactionsError):
            rules.add_partitions(transaction(state), [ONE], NOW_MS)


def test_only_the_current_producer_is_served() -> None:
    known = transaction()
    assert rules.check_producer(known, ProducerIdAndEpoch(7, 3)) is known
    cases: list[tuple[Transaction | None, tuple[int, int], type[ProtocolError]]] = [
        (None, (7, 3), InvalidProducerIdMappingError),
        (known, (8, 3), InvalidProducerIdMappingError),
        (known, (7, 2), ProducerFencedError),
        (known, (7, 4), ProducerFencedError),
    ]
    for state, producer, error in cases:
        with pytest.raises(error):
            rules.check_producer(state, ProducerIdAndEpoch(*producer))


# The end


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_ends(is_commit: bool) -> None:
    decided = rules.end(transaction(S.ONGOING), ended(is_commit), None, NOW_MS + 1)
    assert decided is not None
    assert decided.state is (S.PREPARE_COMMIT if is_commit else S.PREPARE_ABORT)
    assert decided.partitions == {ZERO}
    with pytest.raises(ConcurrentTransactionsError):
        rules.end(decided, ended(is_commit), None, NOW_MS)
    with pytest.raises(InvalidTransactionStateError, match=decided.state.text):
        rules.end(decided, ended(not is_commit), None, NOW_MS)
    done = rules.complete(decided, NOW_MS + 2)
    assert (done.state, done.partitions) == (S.COMPLETE_COMMIT if is_commit else S.COMPLETE_ABORT, frozenset())
    assert rules.end(done, ended(is_commit), None, NOW_MS) is None
    with pytest.raises(InvalidTransactionStateError):
        rules.end(done, ended(not is_commit), None, NOW_MS)


def test_without_a_transaction_nothing_ends() -> None:
    for is_commit in (True, False):
        with pytest.raises(InvalidTransactionStateError, match="Empty"):
            rules.end(transaction(), ended(is_commit), None, NOW_MS)


def test_a_fenced_transaction_is_aborted_with_a_higher_epoch() -> None:
    fenced = rules.fence(transaction(S.ONGOING, last_producer_epoch=2), NOW_MS)
    assert (fenced.state, fenced.producer_epoch, fenced.last_producer_epoch) == (S.PREPARE_ABORT, 4, -1)
    assert rules.fence(transaction(S.ONGOING, rules.LARGEST_EPOCH), NOW_MS).producer_epoch == rules.LARGEST_EPOCH


def test_times() -> None:
    open_one = transaction(S.ONGOING)
    assert not rules.has_timed_out(open_one, NOW_MS + 60_000)
    assert rules.has_timed_out(open_one, NOW_MS + 60_001)
    assert not rules.has_timed_out(transaction(S.COMPLETE_COMMIT), NOW_MS + 600_000)
    for state in IDLE:
        assert rules.has_expired(transaction(state), NOW_MS + 100, 100)
        assert not rules.has_expired(transaction(state), NOW_MS + 99, 100)
    for state in (S.ONGOING, S.PREPARE_ABORT, S.PREPARE_COMMIT):
        assert not rules.has_expired(transaction(state), NOW_MS + 10**9, 100)


def test_names_of_states() -> None:
    assert [state.text for state in S] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]
