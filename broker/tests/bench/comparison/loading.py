"""Fills topics quickly, with large batches in pipelined requests to one broker."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

import numpy as np

from comparison.batches import Keys, batch, filler
from comparison.wire import Address, Connection, produce_frame, produce_result
from odradek.base.types import TopicPartition

_UNDER_WAY: Final = 4
_BATCH_BYTES: Final = 900_000
"""Size of a batch, below the default of `message.max.bytes`."""
_RECORD_OVERHEAD: Final = 24


def records_in_a_batch(record_bytes: int) -> int:
    """Return the number of records of this size in one batch."""
    return max(1, _BATCH_BYTES // (record_bytes + _RECORD_OVERHEAD))


def fill(address: Address, topic: str, partitions: int, *, records: int, record_bytes: int, batch_records: int) -> None:
    """Write at least `records` records of one size without keys, in batches over the partitions round-robin."""
    records_of = batch(filler(record_bytes), batch_records, timestamp_ms=_now_ms())
    _send(address, topic, partitions, -(-records // batch_records), lambda _: records_of)


def fill_repeating(address: Address, topic: str, partitions: int, *, batches: int, content: bytes) -> None:
    """Write the same batch again and again, over the partitions round-robin."""
    _send(address, topic, partitions, batches, lambda _: content)


def fill_keyed(address: Address, topic: str, *, records: int, record_bytes: int, keys: int) -> None:
    """Write records to partition 0 with random keys out of a number of keys, the same in every run."""
    count = records_in_a_batch(record_bytes)
    generator = np.random.Generator(np.random.PCG64(11))
    value = filler(record_bytes)

    def make(_: int) -> bytes:
        drawn: Keys = generator.integers(0, keys, count)
        return batch(value, count, timestamp_ms=_now_ms(), keys=drawn)

    _send(address, topic, 1, -(-records // count), make)


def _send(address: Address, topic: str, partitions: int, batches: int, make: Callable[[int], bytes]) -> None:
    under_way: deque[int] = deque()
    with Connection(address, timeout_seconds=120) as connection:
        for number in range(batches):
            connection.send(produce_frame(TopicPartition(topic, number % partitions), make(number)))
            under_way.append(number)
            if len(under_way) == _UNDER_WAY:
                _expect_success(connection, topic, under_way.popleft())
        while under_way:
            _expect_success(connection, topic, under_way.popleft())


def _expect_success(connection: Connection, topic: str, number: int) -> None:
    code, _ = produce_result(connection.receive(), topic)
    if code:
        raise RuntimeError(f"batch {number} of {topic} was answered with error {code}")


def _now_ms() -> int:
    return int(time.time() * 1000)
