"""Reads the transactions in the logs of a simulated cluster, and waits until they have ended.

`play` and `verdict` use it; `transaction_verdict` has the rules. Invariant: reading changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from odradek.base.types import TRANSACTION_STATE_TOPIC, TopicPartition
from odradek.coordinator.transactions.transaction_records import decode_transaction_key, decode_transaction_value
from odradek.coordinator.transactions.transaction_values import Transaction
from odradek.log.partition_log import PartitionLog
from odradek.records.v2.batch import check_crc, read_control_type, read_coordinator_epoch, read_header
from odradek.records.v2.record import decode_batch, iterate_batch
from odradek.replication.partition_table import HostedPartition
from odradek_testkit.simulation.errors import Violation
from odradek_testkit.simulation.history import History
from odradek_testkit.simulation.log_reading import UNPACKED_BYTES, read_batches
from odradek_testkit.simulation.plan import ACKED, Plan
from odradek_testkit.simulation.readers import COMMITTED_READER
from odradek_testkit.simulation.transactions.transaction_plan import COPIES
from odradek_testkit.simulation.transactions.transaction_verdict import (
    HANGING,
    LoggedBatch,
    LogTransactions,
    Marker,
    incomplete,
    judge_committed_reading,
    judge_copies,
    judge_index,
    judge_transactions,
    read_log,
)
from odradek_testkit.simulation.transactions.transactional_clients import COPIER
from odradek_testkit.simulation.world import World

GRACE_MS: Final = 15_000.0
"""Virtual time in a cluster without faults for the abort of a transaction that has timed out, and its markers."""
_LOOK_MS: Final = 500.0


def _led(world: World) -> Iterator[HostedPartition]:
    for machine in world.machines:
        yield from (hosted for hosted in machine.partitions().values() if hosted.is_leader)


async def until_ended(world: World, plan: Plan) -> None:
    """Wait until no transaction is open in any log, and all are complete in the logs of their coordinators.

    Raises `Violation` when every time-out, the interval of the coordinators and a grace period are over.
    """
    deadline_ms = world.now_ms + plan.transactions.timeout_ms + plan.transactions.abort_interval_ms + GRACE_MS
    while left := list(_unfinished(world)):
        if world.now_ms >= deadline_ms:
            raise Violation(HANGING, "; ".join(left[:8]))
        await world.clock.sleep_ms(_LOOK_MS)


def _unfinished(world: World) -> Iterator[str]:
    states: dict[str, Transaction] = {}
    for hosted in _led(world):
        if hosted.topic_partition.topic == TRANSACTION_STATE_TOPIC:
            states |= _states(hosted.log)
        elif (offset := hosted.log.first_unstable_offset) is not None:
            yield f"{hosted.topic_partition} has an open transaction at {offset}"
    yield from incomplete(states)


def _states(log: PartitionLog) -> dict[str, Transaction]:
    """Return the last record of each transactional id."""
    found: dict[str, Transaction] = {}
    for _, data in read_batches(log, log.log_end_offset):
        for record in decode_batch(data, 0, read_header(data, 0), limit=UNPACKED_BYTES):
            name = decode_transaction_key(record.key or b"")
            if name is not None and record.value is not None:
                found[name] = decode_transaction_value(record.value)
            elif name is not None:
                found.pop(name, None)
    return found


def _logged(log: PartitionLog) -> Iterator[LoggedBatch]:
    for _, data in read_batches(log, log.log_end_offset):
        header = read_header(data, 0)
        check_crc(data, 0, header)
        values: tuple[tuple[int, bytes], ...] = ()
        marker = None
        if header.is_control:
            record = decode_batch(data, 0, header, limit=UNPACKED_BYTES)[0]
            kind = read_control_type(record.key)
            assert kind is not None, record
            marker = Marker(kind, read_coordinator_epoch(record.value))
        else:
            values = tuple(
                (record.offset, record.value or b"") for record in iterate_batch(data, 0, header, limit=UNPACKED_BYTES)
            )
        yield LoggedBatch(
            header.base_offset, values, header.producer_id, header.producer_epoch, header.is_transactional, marker
        )


class LogEnd(NamedTuple):
    """The offsets up to which readers must read a log."""

    records: int
    """Offset after the last record."""
    visible: int
    """Offset after the last record that read_committed shows."""


class LogEnds:
    """Finds out how far readers must read. It reads a log again only when the log has grown."""

    def __init__(self, world: World, plan: Plan) -> None:
        """For the topics of the plan that readers read."""
        self._world: Final = world
        self._topics: Final = frozenset(topic.name for topic in plan.topics if topic.acks)
        self._has_transactions: Final = plan.transactions.writers > 0
        self._raises_epochs: Final = plan.transactions.raises_epochs
        self._known: Final[dict[TopicPartition, tuple[int, LogEnd]]] = {}

    def __call__(self) -> dict[TopicPartition, LogEnd]:
        """Return the ends of each partition, from its leader."""
        return {
            hosted.topic_partition: self._end(hosted)
            for hosted in _led(self._world)
            if hosted.topic_partition.topic in self._topics
        }

    def _end(self, hosted: HostedPartition) -> LogEnd:
        end = hosted.log.log_end_offset
        if not self._has_transactions:
            return LogEnd(end, end)
        known = self._known.get(hosted.topic_partition)
        if known is None or known[0] != end:
            batches = list(_logged(hosted.log))
            records = max((offset for batch in batches for offset, _ in batch.values), default=-1) + 1
            log = read_log(hosted.topic_partition, batches, raises_epochs=self._raises_epochs)
            visible = max(log.visible, default=-1) + 1
            known = self._known[hosted.topic_partition] = (end, LogEnd(records, visible))
        return known[1]


def judge_all(
    world: World, plan: Plan, history: History, committed: Mapping[str, Mapping[TopicPartition, int]]
) -> None:
    """Check all transactions of a run, after `until_ended`. `committed` are the offsets of each group."""
    names = {topic.name for topic in plan.topics if topic.acks} | {COPIES}
    logs: dict[TopicPartition, LogTransactions] = {}
    for hosted in _led(world):
        partition = hosted.topic_partition
        if partition.topic in names:
            logs[partition] = read_log(partition, _logged(hosted.log), raises_epochs=plan.transactions.raises_epochs)
    judge_transactions(history.transactions, logs)
    _judge_indexes(world, logs)
    for partition, reading in history.readings.get(COMMITTED_READER, {}).items():
        judge_committed_reading(COMMITTED_READER, partition, reading, logs[partition])
    if plan.transactions.copies:
        judge_copies(
            history.transactions.ids[COPIER],
            {partition: log for partition, log in logs.items() if partition.topic == ACKED},
            [log for partition, log in logs.items() if partition.topic == COPIES],
            committed.get(COPIER, {}),
        )


def _judge_indexes(world: World, logs: Mapping[TopicPartition, LogTransactions]) -> None:
    for machine in world.machines:
        for partition, hosted in machine.partitions().items():
            if partition in logs:
                log = hosted.log
                listed = log.aborted_transactions(log.log_start_offset, log.log_end_offset)
                judge_index(f"{machine.name}: {partition}", listed, logs[partition])
