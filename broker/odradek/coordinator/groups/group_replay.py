"""Rebuilds the state of a `__consumer_offsets` partition from its log: the newest record of each key.

`group_shard` uses it while its partition is loading, and then takes `groups`, `consumer_groups`, `offsets` and
`transactions`. A later record of a key replaces an earlier one, and a tombstone removes it. The offsets of a
transaction are applied at its commit marker and dropped at an abort marker. A transaction without a marker stays open.
As compaction keeps the last record of a key, the position of an offset's record counts, not that of the marker: a plain
commit or a tombstone between them supersedes the offset of the transaction. Records of other types of groups and
invalid values are skipped and counted, so that one of them does not make all groups of the partition unavailable.
Committed offsets are most of the records of a log; `offset_columns` decodes whole runs of them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from odradek.base.errors import MalformedFrameError
from odradek.base.types import TopicPartition
from odradek.coordinator.groups.consumer.consumer_records import ConsumerRecordKey, StateBuilder
from odradek.coordinator.groups.group_offsets import Committed
from odradek.coordinator.groups.group_records import (
    GroupKey,
    GroupValue,
    OffsetKey,
    UnknownKey,
    decode_group_value,
    decode_key,
    decode_offset_value,
)
from odradek.coordinator.groups.offset_columns import OffsetColumns
from odradek.coordinator.record_replay import replay_records
from odradek.records.columns import Unpacked
from odradek.records.formats import check_entry, iterate_entries
from odradek.records.v2.batch import MAGIC, BatchHeader, ControlType
from odradek.records.v2.record import UNPACKED_LIMIT_BYTES, Record, record_bytes

logger = logging.getLogger(__name__)

RUN_RECORDS: Final = 1000
"""Number of records from which on a run of batches is applied. This takes one or two milliseconds."""

GroupPartition = tuple[str, TopicPartition]


class _Run:
    """Consecutive plain batches of a record set, from the position `begin` to `end`."""

    __slots__ = ("batches", "begin", "count", "end")

    def __init__(self, begin: int = 0) -> None:
        self.batches: Final[list[Unpacked]] = []
        self.begin: Final = begin
        self.end = begin
        self.count = 0

    def add(self, header: BatchHeader, records: bytes | memoryview) -> None:
        self.batches.append((header, records))
        self.count += header.record_count
        self.end += header.size


class Replay:
    """The state after the records read so far."""

    def __init__(self) -> None:
        """Without records."""
        self.groups: Final[dict[str, GroupValue]] = {}
        """Classic groups."""
        self.consumer_groups: Final[dict[str, StateBuilder]] = {}
        self.offsets: Final[dict[str, dict[TopicPartition, Committed]]] = {}
        """Offsets by group; a group may have none any more."""
        self.transactions: Final[dict[int, dict[GroupPartition, Committed]]] = {}
        """Offsets of open transactions by producer id."""
        self.unknown_keys = 0
        self.unreadable = 0
        self._columns: Final = OffsetColumns()

    def read(self, records: bytes) -> Iterator[int]:
        """Apply a record set. Yields the number of records after each batch or run of batches.

        Raises `CorruptMessageError` or `InvalidRecordError` if a batch, or a message from before Kafka 0.11, is
        corrupt. The partition must not be served then.
        """
        run = _Run()
        for position, header in iterate_entries(records):
            is_plain = header.magic == MAGIC and not (header.is_control or header.is_transactional)
            if run.batches and (not is_plain or run.count >= RUN_RECORDS):
                yield self._take_run(records, run)
                run = _Run(position)
            if not is_plain:
                yield from self.read_singly(records[position : position + header.size])
                run = _Run(position + header.size)
            else:
                check_entry(records, position, header)
                run.add(header, record_bytes(records, position, header, limit=UNPACKED_LIMIT_BYTES))
        if run.batches:
            yield self._take_run(records, run)

    def read_singly(self, records: bytes) -> Iterator[int]:
        """Apply a record set record by record; the result is the same. Yields and raises as `read`."""
        return replay_records(records, self._take, self._end_transaction)

    def _take_run(self, records: bytes, run: _Run) -> int:
        """Apply a run of batches. Returns the number of records; at least 1."""
        found = self._columns.newest(run.batches)
        if found is None or self.transactions:
            # A tombstone also removes open offsets that precede it, and a later record of the key may hide it.
            for _ in self.read_singly(records[run.begin : run.end]):
                pass
            return max(run.count, 1)
        offsets = self.offsets
        for group, topic_partition, entry in found:
            of_group = offsets.get(group)
            if of_group is None:
                of_group = offsets[group] = {}
            if entry is not None:
                of_group[topic_partition] = entry
            else:
                of_group.pop(topic_partition, None)
        return max(run.count, 1)

    def _end_transaction(self, header: BatchHeader, end: ControlType) -> None:
        ended = self.transactions.pop(header.producer_id, {})
        if end is ControlType.COMMIT:
            for key, entry in ended.items():
                self._put(key, entry)

    def _take(self, header: BatchHeader, record: Record) -> None:
        try:
            self._apply(header, record)
        except MalformedFrameError as error:
            self.unreadable += 1
            logger.error("record %d of the group log cannot be read and is skipped: %s", record.offset, error)

    def _apply(self, header: BatchHeader, record: Record) -> None:
        if record.key is None:
            raise MalformedFrameError("it has no key")
        key = decode_key(record.key)
        if isinstance(key, UnknownKey):
            self.unknown_keys += 1
        elif isinstance(key, GroupKey):
            self._apply_group(key, record.value)
        elif isinstance(key, ConsumerRecordKey):
            self._apply_consumer_group(key, record.value)
        else:
            self._apply_offset(header, key, record.value)

    def _apply_group(self, key: GroupKey, value: bytes | None) -> None:
        if value is None:
            self.groups.pop(key.group, None)
        else:
            self.groups[key.group] = decode_group_value(value)

    def _apply_consumer_group(self, key: ConsumerRecordKey, value: bytes | None) -> None:
        builder = self.consumer_groups.get(key.group)
        if builder is None:
            builder = StateBuilder()
        builder.apply(key, value)
        if builder.is_empty:
            self.consumer_groups.pop(key.group, None)
        else:
            self.consumer_groups[key.group] = builder

    def _apply_offset(self, header: BatchHeader, key: OffsetKey, value: bytes | None) -> None:
        group_partition = (key.group, TopicPartition(key.topic, key.partition))
        if value is None:
            self._remove(header, group_partition)
            return
        # The position of the batch orders commits: the coordinator learns only this one from its appends.
        entry = Committed(decode_offset_value(value), header.base_offset)
        if header.is_transactional:
            self.transactions.setdefault(header.producer_id, {})[group_partition] = entry
        else:
            self._put(group_partition, entry)

    def _remove(self, header: BatchHeader, key: GroupPartition) -> None:
        if header.is_transactional:
            self.transactions.get(header.producer_id, {}).pop(key, None)
            return
        group, topic_partition = key
        self.offsets.get(group, {}).pop(topic_partition, None)
        for offsets in self.transactions.values():
            offsets.pop(key, None)

    def _put(self, key: GroupPartition, entry: Committed) -> None:
        group, topic_partition = key
        offsets = self.offsets.setdefault(group, {})
        known = offsets.get(topic_partition)
        if known is None or known.record_offset <= entry.record_offset:
            offsets[topic_partition] = entry
