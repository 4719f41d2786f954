"""Reads, encodes and replays a segment that Apache Kafka 3.9.1 wrote. README.md describes how it was created."""

from __future__ import annotations

import asyncio
from pathlib import Path

from odradek.base.types import TopicPartition
from odradek.coordinator.coordinator_ports import TransactionalWriter
from odradek.coordinator.groups.group_offsets import Committed
from odradek.coordinator.groups.group_records import (
    GroupKey,
    OffsetKey,
    OffsetValue,
    decode_group_value,
    decode_key,
    decode_offset_value,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from odradek.coordinator.groups.group_replay import Replay
from odradek.coordinator.journal import Journal
from odradek.records.v2.batch import stamp
from odradek.records.v2.record import Record, decode_batch
from odradek_testkit.batches import iterate
from odradek_testkit.groups import MemoryPartition
from odradek_testkit.loop import ManualClock, run_virtual

SEGMENT = (Path(__file__).parent / "consumer_offsets_kafka_3.9.1.log").read_bytes()
FLIGHTS_0, FLIGHTS_1, PLAIN_0 = TopicPartition("flights", 0), TopicPartition("flights", 1), TopicPartition("plain", 0)


def records() -> list[Record]:
    return [
        record
        for position, header in iterate(SEGMENT)
        if not header.is_control
        for record in decode_batch(SEGMENT, position, header, limit=1 << 20)
    ]


def encoded(record: Record) -> tuple[bytes, bytes | None]:
    """Return the record after decoding and encoding it."""
    assert record.key is not None
    key = decode_key(record.key)
    if isinstance(key, OffsetKey):
        value = None if record.value is None else encode_offset_value(decode_offset_value(record.value))
        return encode_offset_key(key), value
    assert isinstance(key, GroupKey)
    value = None if record.value is None else encode_group_value(decode_group_value(record.value))
    return encode_group_key(key), value


def test_records_are_not_changed_by_a_round_trip() -> None:
    found = records()
    assert len(found) == 16
    assert [encoded(record) for record in found] == [(record.key, record.value) for record in found]


def test_what_the_segment_amounts_to() -> None:
    replay = Replay()
    counts = list(replay.read(SEGMENT))
    assert sum(counts) == 18
    assert (replay.unknown_keys, replay.unreadable) == (0, 0)
    assert set(replay.groups) == {"static-java", "txn-group"}
    offsets = {
        (group, topic_partition): entry.value.offset
        for group, committed in replay.offsets.items()
        for topic_partition, entry in committed.items()
    }
    assert offsets == {
        ("simple-ütf", PLAIN_0): 7,
        ("simple-ütf", FLIGHTS_1): 3,
        ("static-java", FLIGHTS_0): 10,
        ("static-java", FLIGHTS_1): 10,
        ("txn-group", FLIGHTS_0): 5,
    }
    assert replay.offsets["simple-ütf"][PLAIN_0] == Committed(
        OffsetValue(offset=7, metadata="hello metadata", commit_timestamp_ms=1795263203044), record_offset=0
    )
    (open_offsets,) = replay.transactions.values()
    assert open_offsets["txn-group", FLIGHTS_1].value.offset == 4


def test_a_static_member_of_the_java_client() -> None:
    replay = Replay()
    list(replay.read(SEGMENT))
    group = replay.groups["static-java"]
    (member,) = group.members
    assert (group.generation, group.protocol_type, group.protocol) == (1, "consumer", "cooperative-sticky")
    assert group.leader == member.member_id == "inst-1-4765f890-9a5b-4471-9a9c-6f01fdd96be5"
    assert member.instance_id == "inst-1"
    assert (member.client_id, member.client_host) == ("console-consumer", "/127.0.0.1")
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (45_000, 300_000)
    assert b"flights" in member.subscription and b"flights" in member.assignment


def test_offsets_in_transactions_are_stored_in_the_same_batches() -> None:
    async def scenario() -> None:
        for position, header in iterate(SEGMENT):
            if header.is_control or not header.is_transactional:
                continue
            partition, clock = MemoryPartition(), ManualClock()
            clock.advance(header.base_timestamp - clock.wall_ms())
            journal = Journal(PLAIN_0, partition, clock, limit_bytes=1 << 20, leader_epoch=0)
            done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            found = [encoded(record) for record in decode_batch(SEGMENT, position, header, limit=1 << 20)]
            writer = TransactionalWriter("tx", header.producer_id, header.producer_epoch)
            journal.append(found, done.set_result, writer)
            assert await done == 0
            (batch,) = map(bytearray, partition.record_sets)
            stamp(batch, 0, header.base_offset, header.leader_epoch)
            assert bytes(batch) == SEGMENT[position : position + header.size]

    run_virtual(scenario())
