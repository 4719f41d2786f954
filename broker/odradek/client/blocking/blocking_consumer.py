"""`Consumer` for threads. In, out and invariants are those of `consumer`; made by `BlockingClient.consumer`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Self

from odradek.base.types import TopicPartition
from odradek.client.blocking.loop_thread import LoopThread
from odradek.client.consumer.consumer import Consumer, RebalanceListener
from odradek.client.models import ConsumerRecord, OffsetAndMetadata, OffsetAndTimestamp, RawFetch
from odradek.records.v2.record import Record


class BlockingConsumer:
    """Reads records from one thread at a time."""

    def __init__(self, loop: LoopThread, consumer: Consumer) -> None:
        """`consumer` is started."""
        self._loop: Final = loop
        self._consumer: Final = consumer

    def __enter__(self) -> Self:
        """The consumer itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close."""
        self.close()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """As `Consumer.assign`."""
        self._loop.call(lambda: self._consumer.assign(partitions))

    def subscribe(self, topics: Iterable[str], *, listener: RebalanceListener | None = None) -> None:
        """As `Consumer.subscribe`; the listener runs on the client's loop and must not block."""
        self._loop.call(lambda: self._consumer.subscribe(topics, listener=listener))

    def unsubscribe(self) -> None:
        """As `Consumer.unsubscribe`."""
        self._loop.run(self._consumer.unsubscribe())

    def assignment(self) -> set[TopicPartition]:
        """As `Consumer.assignment`."""
        return self._loop.call(self._consumer.assignment)

    def subscription(self) -> set[str]:
        """As `Consumer.subscription`."""
        return self._loop.call(self._consumer.subscription)

    def pause(self, *partitions: TopicPartition) -> None:
        """As `Consumer.pause`."""
        self._loop.call(lambda: self._consumer.pause(*partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        """As `Consumer.resume`."""
        self._loop.call(lambda: self._consumer.resume(*partitions))

    def paused(self) -> set[TopicPartition]:
        """As `Consumer.paused`."""
        return self._loop.call(self._consumer.paused)

    def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[Record]]:
        """As `Consumer.getmany`."""
        return self._loop.run(self._consumer.getmany(*partitions, timeout_ms=timeout_ms, max_records=max_records))

    def getmany_raw(self, *partitions: TopicPartition, timeout_ms: float = 0) -> list[RawFetch]:
        """As `Consumer.getmany_raw`."""
        return self._loop.run(self._consumer.getmany_raw(*partitions, timeout_ms=timeout_ms))

    def getone(self) -> ConsumerRecord:
        """As `Consumer.getone`."""
        return self._loop.run(self._consumer.getone())

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """The records, without end."""
        while True:
            yield self.getone()

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """As `Consumer.seek`."""
        self._loop.call(lambda: self._consumer.seek(partition, offset))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """As `Consumer.seek_to_beginning`."""
        self._loop.run(self._consumer.seek_to_beginning(*partitions))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """As `Consumer.seek_to_end`."""
        self._loop.run(self._consumer.seek_to_end(*partitions))

    def position(self, partition: TopicPartition) -> int:
        """As `Consumer.position`."""
        return self._loop.run(self._consumer.position(partition))

    def highwater(self, partition: TopicPartition) -> int | None:
        """As `Consumer.highwater`."""
        return self._loop.call(lambda: self._consumer.highwater(partition))

    def lag(self, partition: TopicPartition) -> int | None:
        """As `Consumer.lag`."""
        return self._loop.call(lambda: self._consumer.lag(partition))

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """As `Consumer.beginning_offsets`."""
        return self._loop.run(self._consumer.beginning_offsets(partitions))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """As `Consumer.end_offsets`."""
        return self._loop.run(self._consumer.end_offsets(partitions))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """As `Consumer.offsets_for_times`."""
        return self._loop.run(self._consumer.offsets_for_times(timestamps))

    def commit(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None) -> None:
        """As `Consumer.commit`."""
        self._loop.run(self._consumer.commit(offsets))

    def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """As `Consumer.committed`."""
        return self._loop.run(self._consumer.committed(partition))

    def close(self) -> None:
        """As `Consumer.close`."""
        self._loop.run(self._consumer.close())
