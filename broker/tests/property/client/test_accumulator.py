"""The accumulator compared with plain lists: no record is lost or reordered, and memory is counted."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.base.types import TopicPartition
from odradek.client.producer.accumulator import Accumulator, Limits, ProducerBatch
from odradek.client.producer.batch_builder import ClientBatchBuilder
from odradek.client.producer.sequences import Numbers
from odradek.compression import Codec
from odradek.records.v2.batch import read_header
from odradek.records.v2.record import decode_batch

PARTITIONS = [TopicPartition("t", number) for number in range(3)]
LIMITS = Limits(batch_size=150, linger_ms=10, buffer_memory=2_000, delivery_timeout_ms=500, max_in_flight=3)


def values(batch: ProducerBatch) -> list[int]:
    data = batch.builder.build(Numbers(-1, -1, -1))
    return [int(record.value or b"") for record in decode_batch(data, 0, read_header(data), limit=1 << 20)]


@dataclass
class Model:
    """A model of one partition: lists of all records and their results."""

    put: list[int] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)
    expired: list[int] = field(default_factory=list)


class AccumulatorMachine(RuleBasedStateMachine):
    """Random calls and random responses."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = Accumulator(LIMITS, lambda: ClientBatchBuilder(Codec.NONE, LIMITS.batch_size))
        self.models = {partition: Model() for partition in PARTITIONS}
        self.flight: list[ProducerBatch] = []
        self.now_ms = 0.0
        self.count = 0

    @rule(partition=st.sampled_from(PARTITIONS), count=st.integers(0, 12))
    def append_many(self, partition: TopicPartition, count: int) -> None:
        if not self.kept.has_room(count * 30):
            return
        records = [(None, b"%d" % (self.count + number), 0) for number in range(count)]
        batches = self.kept.append_many(partition, records, now_ms=self.now_ms)
        assert len(batches) == len(set(batches))
        self.models[partition].put += range(self.count, self.count + count)
        self.count += count

    @rule(partition=st.sampled_from(PARTITIONS), size=st.sampled_from([1, 100, 400]))
    def append(self, partition: TopicPartition, size: int) -> None:
        if not self.kept.has_room(size + 30):
            return
        record = (b"k" * size, b"%d" % self.count, 0)
        batch, place = self.kept.append(partition, record, (), now_ms=self.now_ms)
        assert values(batch)[place] == self.count
        self.models[partition].put.append(self.count)
        self.count += 1

    @rule(delay=st.sampled_from([1.0, 10.0, 100.0]), send_now=st.booleans())
    def time_passes(self, delay: float, send_now: bool) -> None:
        self.now_ms += delay
        self.kept.send_now = send_now
        for batch in self.kept.expire(self.now_ms):
            assert batch.created_ms + LIMITS.delivery_timeout_ms <= self.now_ms
            self.models[batch.topic_partition].expired += values(batch)

    @rule()
    def send(self) -> None:
        ready, next_ms = self.kept.ready(self.now_ms)
        assert next_ms is None or next_ms > self.now_ms
        for partition in ready:
            self.flight.append(self.kept.take(partition))

    @precondition(lambda self: self.flight)
    @rule(data=st.data(), good=st.booleans())
    def answer(self, data: st.DataObject, good: bool) -> None:
        # A broker responds to the batches of a partition in order.
        partition = data.draw(st.sampled_from(sorted({batch.topic_partition for batch in self.flight})))
        batch = next(batch for batch in self.flight if batch.topic_partition == partition)
        later = [b for b in self.flight if b.topic_partition == partition and b is not batch]
        self.flight.remove(batch)
        if good:
            self.kept.done(batch)
            self.models[partition].acknowledged += values(batch)
            return
        # The broker reports a gap for the batches after it.
        for each in [batch, *later]:
            self.kept.retry(each, self.now_ms + 5)
        self.flight = [each for each in self.flight if each not in later]

    @invariant()
    def nothing_is_lost_or_reordered(self) -> None:
        for partition, model in self.models.items():
            waiting = [n for b in self.kept.batches() if b.topic_partition == partition for n in values(b)]
            assert sorted(model.acknowledged + model.expired + waiting) == model.put
            assert model.acknowledged == sorted(model.acknowledged)

    @invariant()
    def memory_is_counted(self) -> None:
        assert self.kept.used_bytes == sum(batch.size_bytes for batch in self.kept.batches())
        assert self.kept.is_empty is (not self.kept.batches())

    @invariant()
    def flight_is_bounded(self) -> None:
        for partition in PARTITIONS:
            assert sum(batch.topic_partition == partition for batch in self.flight) <= LIMITS.max_in_flight


TestAccumulator = AccumulatorMachine.TestCase
TestAccumulator.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
