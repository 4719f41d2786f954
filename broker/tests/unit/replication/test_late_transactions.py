"""The counts of producers and of transactions that hang."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from odradek.base.types import TopicPartition
from odradek.records.checks.validate import AppendOrigin
from odradek.records.v2.batch import BatchBuilder, ControlType
from odradek.records.v2.transactions import marker_batch
from odradek.replication.replica_manager import LATE_TRANSACTION_MS
from odradek.replication.replica_requests import AppendRequest, AppendResult
from odradek_testkit.loop import VirtualClock
from odradek_testkit.replicas import LED, MemoryBroker, assume

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
MAX_TIMEOUT_MS = 900_000
Play = Callable[..., None]


def batch(producer_id: int, timestamp_ms: int, sequence: int = 0, *, is_transactional: bool = True) -> bytes:
    builder = BatchBuilder(limit_bytes=1 << 20)
    builder.append(None, b"value", timestamp_ms=timestamp_ms)
    built = builder.build(
        producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=is_transactional
    )
    return bytes(built)


def write(broker: MemoryBroker, topic_partition: TopicPartition, records: bytes, **options: Any) -> None:
    results: list[AppendResult] = []
    entry = (topic_partition, memoryview(bytearray(records)))
    broker.replicas.append(AppendRequest(1, 1000, [entry], **options), results.extend)
    assert [result.error_code for result in results] == [0]


def test_a_transaction_is_late_five_minutes_after_the_largest_timeout(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker, LED, TP, OTHER)
        began_ms = clock.wall_ms()

        def late() -> int:
            return broker.replicas.late_transaction_count(MAX_TIMEOUT_MS)

        write(broker, TP, batch(1, began_ms))
        write(broker, TP, batch(2, began_ms + 5_000))
        write(broker, OTHER, batch(1, began_ms + 1_000))
        write(broker, OTHER, batch(3, began_ms, is_transactional=False))
        assert broker.replicas.producer_count() == 4
        await clock.sleep_ms(MAX_TIMEOUT_MS + LATE_TRANSACTION_MS)
        assert late() == 0
        await clock.sleep_ms(1)
        assert late() == 1
        await clock.sleep_ms(1_000)
        assert late() == 2
        write(broker, OTHER, batch(1, clock.wall_ms(), 1))
        assert late() == 1, "the last batch counts"
        abort = marker_batch(
            ControlType.ABORT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=clock.wall_ms()
        )
        write(broker, TP, abort, origin=AppendOrigin.COORDINATOR)
        assert late() == 0, "the transaction of the other producer began later"
        await clock.sleep_ms(5_000)
        assert late() == 1
        assume(broker, replace(LED, leader=2, replicas=(1, 2), leader_epoch=LED.leader_epoch + 1), TP)
        assert late() == 0, "only the leader counts it"
        assert broker.replicas.producer_count() == 4

    play(scenario)
