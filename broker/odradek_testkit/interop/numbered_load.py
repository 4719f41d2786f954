"""A load of numbered records, by librdkafka, that shows whether a record was lost, duplicated or reordered.

Records may be repeated in one case, which is a limit of librdkafka (2.16) that also shows with Java brokers only. It
has several requests of a partition in flight. When the leader changes, the former leader answers batches that it has
appended with NOT_LEADER_OR_FOLLOWER. librdkafka sends them to the new leader, which rejects those that arrive before it
has handled its LeaderAndIsr request. The first new batch after that is out of order, so librdkafka raises its producer
epoch and numbers all unacknowledged records from 0. No broker can recognise them as repeats then.

In moves of four partitions between two pairs of brokers, the epoch was raised 2 times in 84 moves with Java brokers
only, once in 121 moves between Java brokers and ours, and 2 times in 388 moves between brokers of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, NamedTuple, Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from odradek.records.formats import iterate_entries
from odradek.records.v2.batch import BatchHeader
from odradek.testing.waiting import wait_until


class Repeat(NamedTuple):
    """A record that is in the log a second time."""

    offset: int
    first_offset: int


class NumberedLoad:
    """An idempotent producer that writes 0, 1, 2 and so on to each partition, and a group with one member.

    No record is lost or reordered if the numbers that are read for the first time are complete and ascending.
    """

    GROUP: Final = "readers"
    WINDOW: Final = 100
    """Maximum number of records of a partition that may be in flight."""
    EMPTY_POLLS: Final = 600
    """Maximum number of consecutive empty polls, which take a minute. Records that are missing then are lost."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.written = [0] * partitions
        """Number of acknowledged records of each partition."""
        self.read = [0] * partitions
        """Number of records of each partition that were read, without repeats."""
        self.repeats: list[list[Repeat]] = [[] for _ in range(partitions)]
        self.assignments = 0
        self.wrong: list[str] = []
        self._topic: Final = topic
        self._numbers: list[list[int]] = [[] for _ in range(partitions)]
        """The number at each offset."""
        self._clients: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._over = Event()
        self._threads = [Thread(target=self._guarded, args=(work,)) for work in (self._write, self._consume)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def more(self) -> None:
        """Return when fifty more records of each partition were acknowledged and read."""
        targets = [count + 50 for count in self.written]

        def is_done() -> bool:
            assert not self.wrong, self.wrong[:10]
            return all(count >= target for count, target in zip(self.read, targets, strict=True))

        wait_until(is_done, what=f"more records than {targets}")

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.wrong.append(repr(error))
            raise

    def _write(self) -> None:
        producer = Producer(
            {**self._clients, "enable.idempotence": True, "linger.ms": 5, "message.timeout.ms": 120_000}
        )
        sent = [0] * len(self.written)
        while not self._over.is_set():
            for number, count in enumerate(sent):
                if count - self.written[number] < self.WINDOW:
                    producer.produce(self._topic, str(count), partition=number, on_delivery=self._delivered)
                    sent[number] += 1
            producer.poll(0.01)
        if producer.flush(60):
            self.wrong.append("records were not acknowledged before the timeout")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        number = message.partition() or 0
        if error is not None or message.value() != str(self.written[number]).encode():
            self.wrong.append(f"acknowledged: {error}, {number}: {message.value()!r}, not {self.written[number]}")
        self.written[number] += 1

    def _consume(self) -> None:
        consumer = Consumer(
            {**self._clients, "group.id": self.GROUP, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 500}
        )
        consumer.subscribe([self._topic], on_assign=self._assigned)
        producer, empty_polls = self._threads[0], 0
        while not self.wrong and (producer.is_alive() or self.read != self.written) and empty_polls < self.EMPTY_POLLS:
            message = consumer.poll(0.1)
            if message is not None:
                self._take(message)
            empty_polls = empty_polls + 1 if message is None else 0
        consumer.close()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assignments += 1

    def _take(self, message: Message) -> None:
        error, partition, offset = message.error(), message.partition() or 0, message.offset() or 0
        if error is not None:
            self.wrong.append(f"read: {error}")
            return
        number, numbers = int(message.value() or b"-1"), self._numbers[partition]
        if offset < len(numbers):
            if number != numbers[offset]:
                self.wrong.append(f"read: {partition}: {number} at {offset}, where {numbers[offset]} was before")
        elif offset > len(numbers) or not 0 <= number <= self.read[partition]:
            self.wrong.append(f"read: {partition}: {number} at {offset}, after {numbers[-3:]} at {len(numbers) - 1}")
        else:
            if number < self.read[partition]:
                self.repeats[partition].append(Repeat(offset, numbers.index(number)))
            else:
                self.read[partition] += 1
            numbers.append(number)

    def check_repeats(self, partition: int, segment: Path) -> None:
        """Check that no broker could avoid the repeats in a partition: the producer had raised its epoch, and the
        leader had changed. `segment` is the only segment of the partition."""
        if not self.repeats[partition]:
            return
        headers = dict(_headers_by_offset(segment.read_bytes()))
        for repeat in self.repeats[partition]:
            first, second = headers[repeat.first_offset], headers[repeat.offset]
            assert first.producer_id == second.producer_id, repeat
            assert first.producer_epoch < second.producer_epoch, repeat
            assert first.leader_epoch < second.leader_epoch, repeat


def _headers_by_offset(content: bytes) -> Iterator[tuple[int, BatchHeader]]:
    for _, header in iterate_entries(content):
        for offset in range(header.base_offset, header.next_offset):
            yield offset, header
