"""The accumulator: ready batches, retries, memory and expiry."""

from __future__ import annotations

import pytest

from odradek.base.errors import OdradekError, RequestTimedOutError
from odradek.base.types import TopicPartition
from odradek.client.models import BatchMetadata
from odradek.client.producer.accumulator import Accumulator, Limits, ProducerBatch
from odradek.client.producer.batch_builder import ClientBatchBuilder
from odradek.client.producer.sequences import Numbers
from odradek.compression import Codec
from odradek.records.v2.batch import check_crc, read_header
from odradek.records.v2.record import decode_batch

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
LIMITS = Limits(batch_size=200, linger_ms=50, buffer_memory=1_000, delivery_timeout_ms=1_000, max_in_flight=2)


def accumulator(**changes: float) -> Accumulator:
    limits = LIMITS._replace(**changes)  # type: ignore[arg-type]
    return Accumulator(limits, lambda: ClientBatchBuilder(Codec.NONE, limits.batch_size))


def put(kept: Accumulator, count: int, *, partition: TopicPartition = FIRST, now_ms: float = 0) -> list[ProducerBatch]:
    return [kept.append(partition, (None, b"x" * 50, 0), (), now_ms=now_ms)[0] for _ in range(count)]


def test_a_batch_waits_for_linger_or_until_it_is_full() -> None:
    kept = accumulator()
    put(kept, 1, now_ms=5)
    assert kept.ready(54) == ([], 55)
    assert kept.ready(55) == ([FIRST], None)
    put(kept, 2, now_ms=10)
    assert kept.ready(10) == ([FIRST], None)


def test_send_now_makes_everything_ready() -> None:
    kept = accumulator()
    put(kept, 1)
    kept.send_now = True
    assert kept.ready(0) == ([FIRST], None)


def test_a_closed_batch_accepts_no_records() -> None:
    kept = accumulator()
    (first,) = put(kept, 1)
    assert kept.take(FIRST) is first
    (second,) = put(kept, 1)
    assert second is not first


@pytest.mark.parametrize("record", [("text", b"v", 0), (None, "text", 0), (None, b"v", None)])
def test_a_record_of_another_type_leaves_no_trace(record: tuple[object, object, object]) -> None:
    """An empty batch could not be sent, and would end the sender of all records."""
    kept = accumulator()
    with pytest.raises(TypeError):
        kept.append(FIRST, record, (), now_ms=0)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        kept.append_many(FIRST, [record], now_ms=0)  # type: ignore[list-item]
    assert kept.is_empty
    (batch,) = put(kept, 1)
    used = batch.size_bytes
    with pytest.raises(TypeError):
        kept.append_many(FIRST, [(None, b"w", 1), record], now_ms=0)  # type: ignore[list-item]
    assert batch.record_count == 2
    assert batch.size_bytes > used
    taken = kept.take(FIRST)
    assert taken is batch
    kept.done(taken)
    assert kept.is_empty
    assert kept.has_room(LIMITS.buffer_memory)


def test_batches_in_flight_are_bounded() -> None:
    kept = accumulator()
    put(kept, 8)
    taken = [kept.take(FIRST), kept.take(FIRST)]
    assert kept.ready(0) == ([], None)
    kept.done(taken[0])
    assert kept.ready(0) == ([FIRST], None)


def test_a_returned_batch_is_sent_first_and_alone() -> None:
    kept = accumulator()
    put(kept, 8)
    first, second = kept.take(FIRST), kept.take(FIRST)
    kept.retry(first, 100)
    assert kept.ready(100) == ([], None)
    kept.retry(second, 20)
    assert kept.ready(0) == ([], 100)
    assert kept.ready(100) == ([FIRST], None)
    assert kept.take(FIRST) is first
    assert kept.ready(100) == ([], None)
    kept.done(first)
    assert kept.take(FIRST) is second
    assert first.attempts == second.attempts == 2


def test_partitions_are_served_in_rotation() -> None:
    kept = accumulator()
    put(kept, 8)
    put(kept, 8, partition=SECOND)
    order = []
    for _ in range(4):
        partition = kept.ready(0)[0][0]
        order.append(partition)
        kept.take(partition)
    assert order == [FIRST, SECOND, FIRST, SECOND]


def test_memory_is_counted_until_a_batch_is_complete() -> None:
    kept = accumulator()
    assert kept.has_room(5_000)
    put(kept, 3)
    used = kept.used_bytes
    assert used > 150
    assert kept.has_room(1_000 - used)
    assert not kept.has_room(1_001 - used)
    batch = kept.take(FIRST)
    assert kept.used_bytes == used
    kept.done(batch)
    kept.done(kept.take(FIRST))
    assert kept.used_bytes == 0
    assert kept.is_empty


def test_old_batches_expire() -> None:
    kept = accumulator()
    put(kept, 3, now_ms=0)
    in_flight = kept.take(FIRST)
    put(kept, 3, now_ms=600)
    assert kept.next_expiry_ms() == 1_000
    expired = kept.expire(1_000)
    assert [batch.created_ms for batch in expired] == [0]
    assert in_flight not in expired
    assert kept.expire(1_599) == []
    assert len(kept.expire(1_600)) == 1
    assert kept.next_expiry_ms() is None
    kept.done(in_flight)
    assert (kept.used_bytes, kept.is_empty) == (0, True)


def test_discarding_a_topic_keeps_the_others() -> None:
    kept = accumulator()
    other = TopicPartition("u", 0)
    put(kept, 1)
    (stays,) = put(kept, 1, partition=other)
    assert len(kept.discard_topic("t")) == 1
    assert kept.batches() == [stays]


class Receipt:
    def __init__(self) -> None:
        self.results: list[object] = []

    def acknowledged(self, batch: BatchMetadata) -> None:
        self.results.append(batch)

    def failed(self, error: OdradekError) -> None:
        self.results.append(error)


def test_every_waiter_is_notified() -> None:
    kept = accumulator()
    (batch,) = put(kept, 1)
    receipts = [Receipt(), Receipt()]
    batch.receipts += receipts
    error = RequestTimedOutError("late")
    batch.acknowledged(7, 99)
    batch.failed(error)
    for receipt in receipts:
        assert receipt.results == [BatchMetadata("t", 0, 7, 1, 99), error]


@pytest.mark.parametrize("codec", list(Codec))
def test_renumbering_keeps_the_records(codec: Codec) -> None:
    builder = ClientBatchBuilder(codec, 1_000)
    assert builder.append_many([(b"k", b"%d" % number, number) for number in range(5)], 0) == 5
    assert builder.append(b"k", None, 9, (("h", b"v"),))
    before = builder.build(Numbers(1, 2, 3))
    assert builder.build(Numbers(1, 2, 3)) is before
    after = builder.build(Numbers(4, 5, 6))
    header = read_header(after)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4, 5, 6)
    check_crc(after, 0, header)
    limit = 1 << 20
    assert decode_batch(after, 0, header, limit=limit) == decode_batch(before, 0, read_header(before), limit=limit)
