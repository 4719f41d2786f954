"""Transactional ids from request to markers, with appends and markers that the test ends."""

from __future__ import annotations

import pytest

from odradek.base.errors import (
    ConcurrentTransactionsError,
    CoordinatorNotAvailableError,
    InvalidProducerIdMappingError,
    InvalidTransactionStateError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    ProducerFencedError,
    RequestTimedOutError,
    TransactionAbortableError,
    TransactionalIdNotFoundError,
)
from odradek.base.types import TopicPartition
from odradek.coordinator.transactions.transaction_shard import RETRY_MS
from odradek.coordinator.transactions.transaction_values import (
    MarkerOutcome,
    ProducerIdAndEpoch,
    TransactionMarker,
    TransactionState,
)
from odradek_testkit.transactions import EVENTS, TIMEOUT_MS, TransactionLab

S = TransactionState
OTHER = TopicPartition("other", 0)


@pytest.fixture
def lab() -> TransactionLab:
    return TransactionLab()


def marker(producer: ProducerIdAndEpoch, *, is_commit: bool, coordinator_epoch: int = 0) -> TransactionMarker:
    return TransactionMarker(producer.producer_id, producer.epoch, is_commit, coordinator_epoch, EVENTS)


def test_an_id_is_given_when_it_is_in_the_log(lab: TransactionLab) -> None:
    reply = lab.init()
    assert reply.is_parked
    with pytest.raises(TransactionalIdNotFoundError):
        lab.state()
    lab.log.settle()
    assert reply.value == ProducerIdAndEpoch(1000, 0)
    assert lab.state().state is S.EMPTY
    assert lab.producer() == ProducerIdAndEpoch(1000, 1)
    assert lab.producer("other") == ProducerIdAndEpoch(1001, 0)
    assert len(lab.shard) == 2


def test_an_id_that_was_not_stored_is_forgotten(lab: TransactionLab) -> None:
    reply = lab.init()
    lab.log.fail_next(NotEnoughReplicasError("no"))
    with pytest.raises(CoordinatorNotAvailableError):
        _ = reply.value
    assert len(lab.shard) == 0
    assert lab.producer() == ProducerIdAndEpoch(1001, 0)


@pytest.mark.parametrize("is_commit", [True, False])
def test_from_the_first_partition_to_the_last_marker(lab: TransactionLab, is_commit: bool) -> None:
    producer = lab.producer()
    added = lab.add(producer)
    assert added.is_parked
    lab.log.settle()
    assert added.value is None
    assert lab.state().state is S.ONGOING

    ended = lab.end(producer, is_commit=is_commit)
    assert ended.is_parked
    assert not lab.markers.sent, "the decision is not committed yet"
    lab.log.commit_next()
    assert ended.value == producer
    assert lab.state().state is (S.PREPARE_COMMIT if is_commit else S.PREPARE_ABORT)
    assert lab.markers.sent == [marker(producer, is_commit=is_commit)]

    lab.markers.end()
    lab.log.settle()
    done = lab.state()
    assert (done.state, done.partitions) == (S.COMPLETE_COMMIT if is_commit else S.COMPLETE_ABORT, frozenset())
    assert lab.end(producer, is_commit=is_commit).value == producer, "repeated after a lost response"
    with pytest.raises(InvalidTransactionStateError):
        lab.end(producer, is_commit=not is_commit)


def test_partitions_that_are_part_of_it_need_no_record(lab: TransactionLab) -> None:
    producer = lab.begin()
    assert lab.add(producer).value is None
    assert not lab.log.waiting
    lab.add(producer, [OTHER])
    lab.log.settle()
    assert lab.state().partitions == {*EVENTS, OTHER}


def test_one_transition_at_a_time(lab: TransactionLab) -> None:
    producer = lab.producer()
    lab.add(producer)
    for request in (lambda: lab.add(producer, [OTHER]), lambda: lab.end(producer), lab.init):
        with pytest.raises(ConcurrentTransactionsError):
            request()
    with pytest.raises(ConcurrentTransactionsError):
        lab.shard.verify("tx", producer, EVENTS)
    lab.log.settle()
    lab.end(producer)
    lab.log.settle()
    for request in (lambda: lab.add(producer), lambda: lab.end(producer), lab.init):
        with pytest.raises(ConcurrentTransactionsError):
            request()
    lab.markers.end()
    for request in (lambda: lab.add(producer), lambda: lab.end(producer), lab.init):
        with pytest.raises(ConcurrentTransactionsError):
            request()
    lab.log.settle()
    lab.add(producer)
    lab.log.settle()
    assert lab.state().state is S.ONGOING


def test_a_new_producer_aborts_the_transaction_of_the_old_one(lab: TransactionLab) -> None:
    old = lab.begin()
    with pytest.raises(ConcurrentTransactionsError):
        lab.init()
    lab.log.settle()
    fenced = ProducerIdAndEpoch(old.producer_id, old.epoch + 1)
    assert lab.markers.sent == [marker(fenced, is_commit=False)]
    lab.markers.end()
    lab.log.settle()
    for request in (lambda: lab.add(old), lambda: lab.end(old)):
        with pytest.raises(ProducerFencedError):
            request()
    assert lab.producer() == ProducerIdAndEpoch(old.producer_id, old.epoch + 2)


def test_only_the_current_producer_is_served(lab: TransactionLab) -> None:
    producer = lab.begin()
    with pytest.raises(InvalidProducerIdMappingError):
        lab.add(producer, transactional_id="unknown")
    with pytest.raises(InvalidProducerIdMappingError):
        lab.end(producer._replace(producer_id=5))
    with pytest.raises(ProducerFencedError):
        lab.end(producer._replace(epoch=9))


def test_verification_tells_what_is_part_of_the_transaction(lab: TransactionLab) -> None:
    producer = lab.begin(EVENTS[:1])
    abortable = TransactionAbortableError.code
    assert lab.shard.verify("tx", producer, [*EVENTS, OTHER]) == {EVENTS[0]: 0, EVENTS[1]: abortable, OTHER: abortable}
    with pytest.raises(InvalidProducerIdMappingError):
        lab.shard.verify("unknown", producer, EVENTS)
    with pytest.raises(ProducerFencedError):
        lab.shard.verify("tx", producer._replace(epoch=4), EVENTS)
    lab.end(producer)
    lab.log.settle()
    with pytest.raises(ConcurrentTransactionsError):
        lab.shard.verify("tx", producer, EVENTS)
    lab.markers.end()
    lab.log.settle()
    assert lab.shard.verify("tx", producer, EVENTS[:1]) == {EVENTS[0]: abortable}


def test_a_transaction_that_lasts_too_long_is_aborted(lab: TransactionLab) -> None:
    producer = lab.begin()
    lab.clock.advance(TIMEOUT_MS)
    lab.shard.abort_timed_out()
    assert not lab.log.waiting
    lab.clock.advance(1)
    lab.shard.abort_timed_out()
    lab.log.settle()
    fenced = ProducerIdAndEpoch(producer.producer_id, producer.epoch + 1)
    assert lab.markers.sent == [marker(fenced, is_commit=False)]
    with pytest.raises(ProducerFencedError):
        lab.end(producer)
    lab.shard.abort_timed_out()
    lab.markers.end()
    lab.log.settle()
    assert lab.state().state is S.COMPLETE_ABORT


def test_an_abort_that_is_not_stored_is_tried_again(lab: TransactionLab) -> None:
    lab.begin()
    lab.clock.advance(TIMEOUT_MS + 1)
    lab.shard.abort_timed_out()
    lab.log.fail_next(NotEnoughReplicasError("no"))
    assert lab.state().state is S.ONGOING
    lab.shard.abort_timed_out()
    lab.log.settle()
    assert lab.state().state is S.PREPARE_ABORT


def test_a_decision_that_is_not_stored_is_no_decision(lab: TransactionLab) -> None:
    producer = lab.begin()
    ended = lab.end(producer)
    lab.log.fail_next(NotLeaderOrFollowerError("moved"))
    with pytest.raises(NotCoordinatorError):
        _ = ended.value
    assert not lab.markers.sent
    assert lab.state().state is S.ONGOING
    lab.end(producer, is_commit=False)
    lab.log.settle()
    assert lab.markers.sent == [marker(producer, is_commit=False)]


def test_an_uncertain_decision_is_superseded_by_the_next_record(lab: TransactionLab) -> None:
    producer = lab.begin()
    lab.end(producer)
    lab.log.commit_next(RequestTimedOutError("late"))
    assert not lab.markers.sent
    lab.end(producer, is_commit=False)
    lab.log.settle()
    lab.reload()
    assert lab.state().state is S.PREPARE_ABORT
    assert [each.is_commit for each in lab.markers.sent] == [False, False]


def test_the_next_coordinator_completes_an_uncertain_decision(lab: TransactionLab) -> None:
    producer = lab.begin()
    lab.end(producer)
    lab.log.commit_next(RequestTimedOutError("late"))
    lab.reload()
    assert lab.markers.sent == [marker(producer, is_commit=True, coordinator_epoch=1)]


def test_completion_is_written_until_it_is_stored(lab: TransactionLab) -> None:
    producer = lab.begin()
    lab.end(producer)
    lab.log.settle()
    lab.markers.end()
    for _ in range(3):
        lab.log.fail_next(NotEnoughReplicasError("no"))
        with pytest.raises(ConcurrentTransactionsError):
            lab.add(producer)
        assert lab.shard.retry_count == 1
        lab.clock.advance(RETRY_MS)
    lab.log.settle()
    assert lab.shard.retry_count == 0
    assert lab.state().state is S.COMPLETE_COMMIT
    assert lab.clock.pending == 0


def test_a_fenced_coordinator_leaves_the_transaction_to_the_next(lab: TransactionLab) -> None:
    producer = lab.begin()
    lab.end(producer)
    lab.log.settle()
    lab.markers.end(MarkerOutcome.FENCED)
    assert not lab.log.waiting
    with pytest.raises(ConcurrentTransactionsError):
        lab.add(producer)
    lab.reload()
    lab.markers.end()
    lab.log.settle()
    assert lab.state().state is S.COMPLETE_COMMIT


def test_a_reload_continues_where_the_log_ends(lab: TransactionLab) -> None:
    producer = lab.begin()
    lab.reload()
    assert (lab.state().state, lab.state().partitions) == (S.ONGOING, set(EVENTS))
    lab.end(producer)
    lab.log.settle()
    lab.reload()
    assert [each.coordinator_epoch for each in lab.markers.sent] == [1, 2]
    assert len(lab.markers.waiting) == 1, "the former coordinator stopped"
    lab.markers.end()
    lab.log.settle()
    lab.reload()
    assert lab.state().state is S.COMPLETE_COMMIT
    assert not lab.markers.waiting
    lab.clock.advance(TIMEOUT_MS + 1)
    lab.shard.abort_timed_out()
    assert not lab.log.waiting


def test_results_that_arrive_after_a_move_change_nothing(lab: TransactionLab) -> None:
    producer = lab.begin()
    ended = lab.end(producer)
    lab.shard.on_unloaded()
    lab.log.settle()
    assert ended.value == producer, "the decision is committed"
    assert not lab.markers.sent, "the next coordinator sends the markers"
    assert len(lab.shard) == 0


def test_unused_ids_expire(lab: TransactionLab) -> None:
    lab.begin()
    lab.producer("idle")
    lab.clock.advance(lab.settings.id_expiration_ms)
    lab.producer("new")
    lab.shard.expire()
    with pytest.raises(ConcurrentTransactionsError):
        lab.init("idle")
    lab.log.settle()
    assert len(lab.shard) == 2
    with pytest.raises(TransactionalIdNotFoundError):
        lab.state("idle")
    lab.reload()
    assert len(lab.shard) == 2
    assert lab.producer("idle") == ProducerIdAndEpoch(1003, 0)


def test_an_expiry_that_is_not_stored_removes_nothing(lab: TransactionLab) -> None:
    lab.producer("idle")
    lab.clock.advance(lab.settings.id_expiration_ms)
    lab.shard.expire()
    lab.log.fail_next(NotEnoughReplicasError("no"))
    assert lab.producer("idle") == ProducerIdAndEpoch(1000, 1)


def test_listings(lab: TransactionLab) -> None:
    lab.begin()
    lab.clock.advance(500)
    lab.producer("idle")
    lab.init("not stored")

    def ids(**filters: object) -> list[str]:
        return sorted(each.transactional_id for each in lab.shard.listings(**filters))  # type: ignore[arg-type]

    assert ids() == ["idle", "tx"]
    assert ids(states=["Ongoing"]) == ["tx"]
    assert ids(producer_ids=[1001]) == ["idle"]
    assert ids(states=["Empty", "Ongoing"], producer_ids=[1000]) == ["tx"]
    assert ids(states=["Ongoing"], longer_than_ms=499) == ["tx"]
    assert ids(states=["Ongoing"], longer_than_ms=500) == []


def test_records_that_cannot_be_read_are_skipped(lab: TransactionLab, caplog: pytest.LogCaptureFixture) -> None:
    lab.producer()
    lab.log.append([(b"\x00\x00", b""), (b"\x00\x05", b"x"), (b"\x00\x00\x00\x01a", b"\x00\x09")], lambda outcome: None)
    lab.log.settle()
    lab.reload()
    assert len(lab.shard) == 1
    assert caplog.text.count("cannot be read and is skipped") == 3
