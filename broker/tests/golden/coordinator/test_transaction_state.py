"""Reads, encodes and replays a segment of `__transaction_state` that Apache Kafka 3.9.1 wrote.

`make_transaction_state.py` creates it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from odradek.base.types import TopicPartition
from odradek.coordinator.transactions.transaction_records import (
    decode_transaction_key,
    decode_transaction_value,
    encode_transaction_key,
    encode_transaction_value,
)
from odradek.coordinator.transactions.transaction_values import Transaction, TransactionState
from odradek.records.v2.record import Record, decode_batch
from odradek_testkit.batches import iterate
from odradek_testkit.transactions import TransactionLab

SEGMENT = (Path(__file__).parent / "transaction_state_kafka_3.9.1.log").read_bytes()
EVENTS_0, EVENTS_1, OTHERS_0 = TopicPartition("events", 0), TopicPartition("events", 1), TopicPartition("others", 0)
EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
COMMITTED = [EMPTY, ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT]
ABORTED = [EMPTY, ONGOING, TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT]


def records() -> Iterator[Record]:
    for position, header in iterate(SEGMENT):
        yield from decode_batch(SEGMENT, position, header, limit=1 << 20)


def histories() -> dict[str, list[Transaction]]:
    """Return the values of each transactional id in order."""
    found: dict[str, list[Transaction]] = {}
    for record in records():
        assert record.key is not None and record.value is not None
        transactional_id = decode_transaction_key(record.key)
        assert transactional_id is not None
        found.setdefault(transactional_id, []).append(decode_transaction_value(record.value))
    return found


def test_records_are_not_changed_by_a_round_trip() -> None:
    count = 0
    for record in records():
        assert record.key is not None and record.value is not None
        transactional_id, transaction = decode_transaction_key(record.key), decode_transaction_value(record.value)
        assert transactional_id is not None
        assert encode_transaction_key(transactional_id) == record.key
        encoded = encode_transaction_value(transaction)
        assert decode_transaction_value(encoded) == transaction
        assert len(encoded) == len(record.value)
        if len(transaction.partitions) < 2:  # Kafka writes several in the order of a hash map.
            assert encoded == record.value
        count += 1
    assert count > 20


def test_what_each_transactional_id_went_through() -> None:
    found = histories()
    assert {name: [value.state for value in values] for name, values in found.items()} == {
        "empty-ünï": [EMPTY],
        "committed": COMMITTED,
        "aborted": ABORTED,
        "fenced": [*ABORTED, EMPTY],
        "several": COMMITTED,
        "offsets": COMMITTED,
        "open": [EMPTY, ONGOING],
    }
    assert found["empty-ünï"][0].timeout_ms == 12_345
    assert [value.producer_epoch for value in found["fenced"]] == [0, 0, 1, 1, 2]
    assert found["several"][1].partitions == {EVENTS_0, EVENTS_1, OTHERS_0}
    assert found["offsets"][2].partitions == {TopicPartition("__consumer_offsets", 0)}
    assert all(not value.partitions for values in found.values() for value in values if value.state is EMPTY)
    assert not any(value.is_prepared for values in found.values() for value in values)


def test_a_coordinator_takes_the_segment_over() -> None:
    lab = TransactionLab()
    shard = lab.load()
    assert sum(shard.replay(SEGMENT)) == sum(map(len, histories().values()))
    shard.on_loaded()
    assert {name: shard.describe(name) for name in histories()} == {
        name: values[-1] for name, values in histories().items()
    }
    assert shard.describe("open").partitions == {EVENTS_0}
    assert not lab.markers.sent, "no transaction was in a Prepare state"
    shard.on_unloaded()
