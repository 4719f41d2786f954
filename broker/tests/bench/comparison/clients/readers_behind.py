"""Consumers of one partition that read different parts of its log: each has a connection and one request in flight.

Options: address, topic, first offset of each consumer, records that each reads, bytes of a fetch. Figures: requests,
records and megabytes per second of all consumers together. Requests are sent in turn, so the broker never reads the
same segment twice in a row. Batches are counted without decoding their records.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

from comparison.batches import count_batches
from comparison.clients.calling import answer, options
from comparison.wire import Address, Connection, fetch_frame, fetched
from odradek.base.types import TopicPartition


class Reader:
    """One consumer."""

    def __init__(self, connection: Connection, partition: TopicPartition, offsets: range, fetch_bytes: int) -> None:
        """It reads at least the records in `offsets`."""
        self._connection = connection
        self._partition = partition
        self._fetch_bytes = fetch_bytes
        self._end = offsets.stop
        self.following = offsets.start
        """Offset of the next fetch."""
        self.requests = 0
        self.bytes = 0

    @property
    def is_done(self) -> bool:
        """Whether it has read its records."""
        return self.following >= self._end

    def send(self) -> None:
        """Send the next fetch."""
        self._connection.send(fetch_frame(self._partition, self.following, fetch_bytes=self._fetch_bytes))

    def receive(self) -> None:
        """Receive the answer to a fetch. Raises `RuntimeError` unless it continues at the requested offset."""
        code, records = fetched(self._connection.receive(), self._partition.topic)
        if code:
            raise RuntimeError(f"the fetch at offset {self.following} failed with error {code}")
        count, size, after = count_batches(records)
        if not count or after - count != self.following:
            raise RuntimeError(f"the fetch at offset {self.following} returned {count} records that end at {after}")
        self.following = after
        self.requests += 1
        self.bytes += size


def main() -> None:
    """Read with all consumers and return the figures."""
    wanted = options()
    address, partition = Address(wanted["host"], wanted["port"]), TopicPartition(wanted["topic"], 0)
    with ExitStack() as stack:
        readers = [
            Reader(
                stack.enter_context(Connection(address)),
                partition,
                range(offset, offset + wanted["records"]),
                wanted["fetch_bytes"],
            )
            for offset in wanted["offsets"]
        ]
        began = time.perf_counter()
        for reader in readers:
            reader.send()
        reading = list(readers)
        while reading:
            for reader in reading:
                reader.receive()
                if not reader.is_done:
                    reader.send()
            reading = [reader for reader in reading if not reader.is_done]
        seconds = time.perf_counter() - began
    records = sum(reader.following - offset for reader, offset in zip(readers, wanted["offsets"], strict=True))
    answer(
        {
            "requests_per_s": sum(reader.requests for reader in readers) / seconds,
            "records_per_s": records / seconds,
            "megabytes_per_s": sum(reader.bytes for reader in readers) / seconds / (1 << 20),
        }
    )


if __name__ == "__main__":
    main()
