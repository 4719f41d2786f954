"""Checks at the end of a run: compares the answers that clients received with the logs.

`play` calls it when all faults have ended. It raises `Violation` for the first difference. The invariants are 5 to 8 of
docs/design/0008-simulation.md. The logs are read directly and not with a client, because a client may have bugs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from odradek.base.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from odradek.log.partition_log import PartitionLog
from odradek.records.v2.batch import check_crc, read_header
from odradek.records.v2.record import iterate_batch
from odradek_testkit.batches import iterate
from odradek_testkit.simulation.errors import Violation
from odradek_testkit.simulation.history import Answer, GroupHistory, History, ProducerHistory, Reading
from odradek_testkit.simulation.log_reading import UNPACKED_BYTES, read_batches
from odradek_testkit.simulation.plan import Kind, Plan
from odradek_testkit.simulation.transactions.transaction_logs import judge_all
from odradek_testkit.simulation.wholeness import Tree, missing
from odradek_testkit.simulation.world import World

WHOLE_WITHIN_MS: Final = 120_000.0
"""Virtual time from the end of the last fault within which the cluster must become whole."""
_LOOK_MS: Final = 250.0
COMPACTED: Final = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC})


async def settle(world: World, plan: Plan) -> None:
    """Wait until the cluster is whole. Raises `Violation` "whole-again" after two minutes."""
    deadline_ms = world.now_ms + WHOLE_WITHIN_MS
    while left := missing(world):
        if world.now_ms >= deadline_ms:
            raise Violation("whole-again", f"after {WHOLE_WITHIN_MS / 1000:.0f} s without faults: {'; '.join(left)}")
        await world.clock.sleep_ms(_LOOK_MS)


@dataclass(frozen=True, slots=True)
class Contents:
    """The content of one log: values by offset, in order."""

    start: int
    end: int
    values: Mapping[int, bytes]


def judge(world: World, plan: Plan, history: History, committed: Mapping[str, Mapping[TopicPartition, int]]) -> None:
    """Check all histories. `committed` are the offsets of each group, as a client fetched them after `settle`."""
    _judge_replicas(world)
    logs = _contents(world, frozenset(topic.name for topic in plan.topics))
    clean = plan.kind is not Kind.UNCLEAN
    for producer in history.producers.values():
        judge_producer(producer, logs, clean=clean)
    if not clean:
        return
    for reader, readings in history.readings.items():
        for partition, reading in readings.items():
            judge_reading(reader, partition, reading, logs[partition])
    for group_id, group in history.groups.items():
        judge_group(group_id, group, logs, committed.get(group_id, {}))
    if plan.transactions.writers:
        judge_all(world, plan, history, committed)


# What the logs hold


def _contents(world: World, topics: frozenset[str]) -> dict[TopicPartition, Contents]:
    return {
        partition: _read(hosted.log)
        for machine in world.machines
        for partition, hosted in machine.partitions().items()
        if hosted.is_leader and partition.topic in topics
    }


def _read(log: PartitionLog) -> Contents:
    values: dict[int, bytes] = {}
    for _, data in read_batches(log, log.log_end_offset):
        for position, header in iterate(data):
            check_crc(data, position, header)
            if not header.is_control:
                for record in iterate_batch(data, position, header, limit=UNPACKED_BYTES):
                    values[record.offset] = record.value or b""
    return Contents(log.log_start_offset, log.log_end_offset, values)


# Replicas


def _judge_replicas(world: World) -> None:
    for partition, assignment in Tree(world).assignments().items():
        hosted = [world.machines[broker].partitions()[partition] for broker in assignment.replicas]
        end = min(replica.high_watermark for replica in hosted)
        first = hosted[0]
        model = read_batches(first.log, end)
        for other in hosted[1:]:
            names = f"brokers {first.local_id} and {other.local_id}"
            compare_batches(partition, names, model, read_batches(other.log, end))


def compare_batches(
    partition: TopicPartition, names: str, one: list[tuple[int, bytes]], two: list[tuple[int, bytes]]
) -> None:
    """Check that batches on both replicas are equal; only in a compacted topic may one replica lack some."""
    if partition.topic in COMPACTED:
        # Either replica may have been compacted further: then the sizes of a batch differ, or one has the time at which
        # its marker or tombstones will be removed.
        one, two = ([each for each in batches if not _has_horizon(each[1])] for batches in (one, two))
        other = {(base_offset, len(data)): data for base_offset, data in two}
        pairs = [(base, data, other[base, len(data)]) for base, data in one if (base, len(data)) in other]
    else:
        start = max(batches[0][0] if batches else 0 for batches in (one, two))
        left, right = ([each for each in batches if each[0] >= start] for batches in (one, two))
        if [base for base, _ in left] != [base for base, _ in right]:
            bases = next(((a, b) for (a, _), (b, _) in zip(left, right, strict=False) if a != b), "the end")
            raise Violation("same-bytes", f"{names} have different batches in {partition}, first at {bases}")
        pairs = [(base, a, b) for (base, a), (_, b) in zip(left, right, strict=True)]
    for base, a, b in pairs:
        if a != b:
            raise Violation("same-bytes", f"{names} differ in the batch at {base} of {partition}")


def _has_horizon(batch: bytes) -> bool:
    return read_header(batch, 0).delete_horizon_ms is not None


# Producers


def judge_producer(producer: ProducerHistory, logs: Mapping[TopicPartition, Contents], *, clean: bool) -> None:
    """Check that all acknowledged records are in the logs (unless an election was unclean), in order and once."""
    prefix = producer.name.encode() + b"-"
    sent = {record.record_id: record for record in producer.records}
    for record in producer.records:
        if record.answer is Answer.UNKNOWN:
            raise Violation("everything-is-answered", f"{record.record_id!r} has no answer")
    for partition, contents in logs.items():
        mine = [(offset, value) for offset, value in contents.values.items() if value.startswith(prefix)]
        for offset, value in mine:
            found = sent.get(value)
            if found is None or found.topic != partition.topic or found.partition not in (None, partition.partition):
                raise Violation("only-what-was-sent", f"{value!r} at {offset} of {partition} was never sent to it")
        if producer.idempotent:
            _judge_order(partition, mine)
    if producer.idempotent and clean:
        _judge_presence(producer, logs)


def _judge_order(partition: TopicPartition, mine: list[tuple[int, bytes]]) -> None:
    """Check that the numbers of one producer's records increase with the offsets, without duplicates."""
    for (at, before), (offset, value) in pairwise(mine):
        if value == before:
            raise Violation("no-doubles", f"{value!r} is at {at} and at {offset} of {partition}")
        if value < before:
            raise Violation("in-order", f"{before!r} at {at} precedes {value!r} at {offset} of {partition}")


def _judge_presence(producer: ProducerHistory, logs: Mapping[TopicPartition, Contents]) -> None:
    for record in producer.records:
        if record.answer is not Answer.ACKNOWLEDGED or record.partition is None:
            continue
        partition = TopicPartition(record.topic, record.partition)
        contents = logs[partition]
        offset = record.offset
        if offset < 0:
            # A duplicate that is too old for the broker to know its offset is acknowledged without one.
            offset = next((at for at, value in contents.values.items() if value == record.record_id), -1)
        there = contents.values.get(offset)
        if there != record.record_id:
            what = f"{record.record_id!r} was acknowledged at {record.offset} of {partition}, where {there!r} is"
            raise Violation("nothing-acknowledged-is-lost", f"{what}; the log ends at {contents.end}")


# Readers and groups


def judge_reading(reader: str, partition: TopicPartition, reading: Reading, contents: Contents) -> None:
    """Check that all records that a reader saw are in the logs."""
    for offset, value in reading.records.items():
        there = contents.values.get(offset)
        if there != value:
            raise Violation("seen-stays", f"{reader} saw {value!r} at {offset} of {partition}, where {there!r} is")


def judge_group(
    group_id: str,
    group: GroupHistory,
    logs: Mapping[TopicPartition, Contents],
    committed: Mapping[TopicPartition, int],
) -> None:
    """Check that a group's offsets match the acknowledged commits, and that members received all records below them."""
    for partition in sorted(set(group.commits) | set(committed)):
        found = committed.get(partition)
        allowed = group.may_be_committed(partition)
        if found not in allowed:
            what = f"{group_id} has committed {found} of {partition}, its last acknowledged commits were {allowed}"
            raise Violation("commits-stay", what)
        handed = group.handed.get(partition, set())
        skipped = [offset for offset in logs[partition].values if offset < (found or 0) and offset not in handed]
        if skipped:
            what = f"{group_id} committed {found} of {partition}, but no member received {skipped[:5]}"
            raise Violation("handed-out", what)
