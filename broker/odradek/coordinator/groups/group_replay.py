"""Rebuilds the state of a `__consumer_offsets` partition from its log: the newest record of each key.

`group_shard` uses it while its partition is loading, and then takes `groups`, `consumer_groups`, `offsets` and
`transactions`. A later record of a key replaces an earlier one, and a tombstone removes it. The offsets of a
transaction are applied at its commit marker and dropped at an abort marker. A transaction without a marker stays open.
As compaction keeps the last record of a key, the position of an offset's record counts, not that of the marker: a plain
commit or a tombstone between them supersedes the offset of the transaction. Records of other types of groups and
invalid values are skipped and counted, so that one of them does not make all groups of the partition unavailable.
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
from odradek.coordinator.record_replay import replay_records
from odradek.records.v2.batch import BatchHeader, ControlType
from odradek.records.v2.record import Record

logger = logging.getLogger(__name__)

GroupPartition = tuple[str, TopicPartition]


class Replay:
    """The state after the records read so far."""

    def __init__(self) -> None:
        """Without records."""
        self.groups: Final[dict[str, GroupValue]] = {}
        """Classic groups."""
        self.consumer_groups: Final[dict[str, StateBuilder]] = {}
        self.offsets: Final[dict[GroupPartition, Committed]] = {}
        self.transactions: Final[dict[int, dict[GroupPartition, Committed]]] = {}
        """Offsets of open transactions by producer id."""
        self.unknown_keys = 0
        self.unreadable = 0

    def read(self, records: bytes) -> Iterator[int]:
        """Apply a record set. Yields the number of records after each batch.

        Raises `CorruptMessageError` or `InvalidRecordError` if a batch, or a message from before Kafka 0.11, is
        corrupt. The partition must not be served then.
        """
        return replay_records(records, self._take, self._end_transaction)

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
        self.offsets.pop(key, None)
        for offsets in self.transactions.values():
            offsets.pop(key, None)

    def _put(self, key: GroupPartition, entry: Committed) -> None:
        known = self.offsets.get(key)
        if known is None or known.record_offset <= entry.record_offset:
            self.offsets[key] = entry
