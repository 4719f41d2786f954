"""Prepared transactions: only EndTxn with their producer id and epoch ends them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odradek.base.config import BrokerConfig
from odradek.base.errors import (
    ConcurrentTransactionsError,
    CoordinatorNotAvailableError,
    InvalidProducerIdMappingError,
    InvalidTransactionStateError,
    NotEnoughReplicasError,
    ProducerFencedError,
    ProtocolError,
)
from odradek.base.types import TopicPartition
from odradek.coordinator.transactions import transaction_rules as rules
from odradek.coordinator.transactions.transaction_records import decode_transaction_value, encode_transaction_value
from odradek.coordinator.transactions.transaction_values import (
    LARGEST_TIMEOUT_MS,
    PREPARED_TIMEOUT_MS,
    InitRequest,
    ProducerIdAndEpoch,
    Transaction,
    TransactionSettings,
    TransactionState,
)
from odradek_testkit.transactions import EVENTS, TIMEOUT_MS, TransactionLab

S = TransactionState
NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
OTHER = TopicPartition("other", 0)
OPEN = Transaction(
    producer_id=7,
    producer_epoch=3,
    timeout_ms=60_000,
    state=S.ONGOING,
    partitions=frozenset(EVENTS),
    updated_ms=NOW_MS,
    started_ms=NOW_MS,
)


@pytest.fixture
def lab() -> TransactionLab:
    return TransactionLab()


def prepared() -> Transaction:
    found = rules.prepare(OPEN, NOW_MS + 5)
    assert found is not None
    return found


# Rules


def test_an_open_transaction_is_prepared_once() -> None:
    found = prepared()
    assert found == replace(OPEN, timeout_ms=2_147_483_647, usual_timeout_ms=60_000, updated_ms=NOW_MS + 5)
    assert (OPEN.is_prepared, found.is_prepared) == (False, True)
    assert rules.prepare(found, NOW_MS + 9) is None


@pytest.mark.parametrize("state", S)
def test_only_an_open_transaction_can_be_prepared(state: TransactionState) -> None:
    known = replace(prepared(), state=state)
    assert known.is_prepared == (state is S.ONGOING)
    if state is S.ONGOING:
        return
    error = ConcurrentTransactionsError if state in rules.DECIDED else InvalidTransactionStateError
    with pytest.raises(error):
        rules.prepare(known, NOW_MS)


def test_a_prepared_transaction_does_not_time_out() -> None:
    assert rules.has_timed_out(OPEN, NOW_MS + 60_001)
    assert not rules.has_timed_out(prepared(), NOW_MS + 60 * DAY_MS)
    assert not rules.has_expired(prepared(), NOW_MS + 60 * DAY_MS, 1)


def test_nothing_is_added_to_a_prepared_transaction() -> None:
    for partitions in (EVENTS, [OTHER]):
        with pytest.raises(InvalidTransactionStateError, match="prepared"):
            rules.add_partitions(prepared(), partitions, NOW_MS)


def test_a_timeout_of_a_producer_is_never_that_of_a_prepared_transaction() -> None:
    request = InitRequest(transactional_id="tx", timeout_ms=PREPARED_TIMEOUT_MS)
    created = rules.created(request, 7, NOW_MS)
    assert created.timeout_ms == LARGEST_TIMEOUT_MS == 2_147_483_646
    first = rules.init_producer(created, request, None, NOW_MS)
    opened = rules.add_partitions(first, EVENTS, NOW_MS)
    assert opened is not None
    assert (opened.timeout_ms, opened.is_prepared) == (LARGEST_TIMEOUT_MS, False)


def test_the_usual_timeout_returns() -> None:
    assert rules.with_usual_timeout(OPEN, 900_000) is OPEN
    assert rules.with_usual_timeout(prepared(), 900_000).timeout_ms == 60_000
    loaded = decode_transaction_value(encode_transaction_value(prepared()))
    assert loaded.is_prepared
    assert rules.with_usual_timeout(loaded, 900_000).timeout_ms == 900_000
    assert rules.with_usual_timeout(loaded, PREPARED_TIMEOUT_MS).timeout_ms == LARGEST_TIMEOUT_MS


# The shard


def test_it_is_prepared_when_the_log_has_it(lab: TransactionLab) -> None:
    producer = lab.begin()
    reply = lab.prepare(producer)
    assert reply.is_parked
    assert not lab.state().is_prepared
    for request in (lambda: lab.prepare(producer), lambda: lab.end(producer), lambda: lab.add(producer, [OTHER])):
        with pytest.raises(ConcurrentTransactionsError):
            request()
    lab.log.settle()
    assert reply.value is None
    assert lab.state().is_prepared
    assert lab.prepare(producer).value is None, "repeated after a lost response"
    assert not lab.log.waiting


def test_a_preparation_that_was_not_stored_is_repeated(lab: TransactionLab) -> None:
    producer = lab.begin()
    reply = lab.prepare(producer)
    lab.log.fail_next(NotEnoughReplicasError("no"))
    with pytest.raises(CoordinatorNotAvailableError):
        _ = reply.value
    assert not lab.state().is_prepared
    again = lab.prepare(producer)
    lab.log.settle()
    assert again.value is None
    assert lab.state().is_prepared


def test_only_its_producer_prepares_it(lab: TransactionLab) -> None:
    producer = lab.begin()
    wrong: list[tuple[ProducerIdAndEpoch, type[ProtocolError]]] = [
        (producer._replace(epoch=producer.epoch + 1), ProducerFencedError),
        (producer._replace(epoch=producer.epoch - 1), ProducerFencedError),
        (producer._replace(producer_id=5), InvalidProducerIdMappingError),
    ]
    for other, error in wrong:
        with pytest.raises(error):
            lab.prepare(other)
    with pytest.raises(InvalidProducerIdMappingError):
        lab.prepare(producer, "unknown")


def test_a_transaction_without_partitions_cannot_be_prepared(lab: TransactionLab) -> None:
    with pytest.raises(InvalidTransactionStateError, match="Empty"):
        lab.prepare(lab.producer())


@pytest.mark.parametrize("moves", [True, False])
@pytest.mark.parametrize("is_commit", [True, False])
def test_time_moves_and_new_producers_leave_it_alone(lab: TransactionLab, moves: bool, is_commit: bool) -> None:
    producer = lab.begin_prepared()
    if moves:
        lab.reload()
    assert [each.producer_id for each in lab.shard.prepared()] == [producer.producer_id]
    lab.clock.advance(60 * DAY_MS)
    lab.shard.abort_timed_out()
    lab.shard.expire()
    for expected in (None, producer, producer._replace(epoch=7), ProducerIdAndEpoch(3, 3)):
        with pytest.raises(ConcurrentTransactionsError, match="prepared: commit or abort it first"):
            lab.init(expected=expected)
    with pytest.raises(InvalidTransactionStateError):
        lab.add(producer, [OTHER])
    for fenced in (producer._replace(epoch=producer.epoch - 1), producer._replace(epoch=producer.epoch + 1)):
        with pytest.raises(ProducerFencedError):
            lab.end(fenced)
    assert not lab.log.waiting
    assert lab.shard.verify("tx", producer, EVENTS) == dict.fromkeys(EVENTS, 0)

    lab.end(producer, is_commit=is_commit)
    lab.log.settle()
    assert [(each.producer_epoch, each.is_commit) for each in lab.markers.sent] == [(producer.epoch, is_commit)]
    lab.markers.end()
    lab.log.settle()
    done = lab.state()
    assert done.state is (S.COMPLETE_COMMIT if is_commit else S.COMPLETE_ABORT)
    assert done.timeout_ms == (lab.settings.max_timeout_ms if moves else TIMEOUT_MS)
    assert list(lab.shard.prepared()) == []
    assert lab.end(producer, is_commit=is_commit).value == producer
    with pytest.raises(InvalidTransactionStateError):
        lab.end(producer, is_commit=not is_commit)
    assert lab.producer() == producer._replace(epoch=producer.epoch + 1)
    assert lab.state().timeout_ms == TIMEOUT_MS


def test_the_next_transaction_of_the_same_producer_times_out(lab: TransactionLab) -> None:
    producer = lab.begin_prepared()
    lab.end(producer)
    lab.log.settle()
    lab.markers.end()
    lab.log.settle()
    lab.add(producer)
    lab.log.settle()
    assert not lab.state().is_prepared
    lab.clock.advance(TIMEOUT_MS + 1)
    lab.shard.abort_timed_out()
    lab.log.settle()
    assert lab.state().state is S.PREPARE_ABORT


def test_the_timeout_that_a_coordinator_of_kafka_left_is_not_used(lab: TransactionLab) -> None:
    producer = lab.producer()
    left = replace(lab.state(), state=S.COMPLETE_COMMIT, timeout_ms=PREPARED_TIMEOUT_MS)
    lab.log.append([(b"\0\0\0\2tx", encode_transaction_value(left))], lambda outcome: None)
    lab.log.settle()
    lab.reload()
    lab.add(producer)
    lab.log.settle()
    assert (lab.state().is_prepared, lab.state().timeout_ms) == (False, lab.settings.max_timeout_ms)


def test_the_setting() -> None:
    assert TransactionSettings.of(BrokerConfig()).prepares
    off, _ = BrokerConfig.parse(
        {"zookeeper.connect": "z:2181", "broker.id": "1", "prepared.transactions.enable": "false"}
    )
    assert not TransactionSettings.of(off).prepares
