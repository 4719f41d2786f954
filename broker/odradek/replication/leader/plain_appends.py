"""Appends of small requests to the leaders' logs: one write for the batches that a connection sends to a log at once.

`server/data/small_produce` stages the batches of several requests, and then calls `flush`, all within one call of the
event loop. Everything else goes to `ReplicaManager.append`: batches that are not plain, logs that are not in their
usual state, and acks=all with followers. Invariant: a batch that was staged is part of the log after `flush`, or its
target has an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from odradek.base.errors import KafkaStorageError
from odradek.base.ports import Clock
from odradek.base.types import TopicPartition
from odradek.log.plain_group import PlainGroup
from odradek.replication.partition_table import HostedPartition, PartitionTable

LEADER_ACKS: Final = 1
ALL_ACKS: Final = -1

Wake = Callable[[Sequence[HostedPartition], Sequence[TopicPartition]], None]


class PlainTarget:
    """A partition and the group of batches that it gets."""

    __slots__ = ("error", "group", "log_start_offset", "partition", "topic")

    def __init__(self, partition: HostedPartition, group: PlainGroup, log_start_offset: int) -> None:
        """Without batches."""
        self.partition: Final = partition
        self.topic: Final = partition.topic_partition.topic
        self.group: Final = group
        self.log_start_offset: Final = log_start_offset
        self.error: KafkaStorageError | None = None
        """Why the batches are not in the log, after `flush`."""


class PlainAppends:
    """The targets of the requests that are handled now."""

    __slots__ = ("_clock", "_open", "_table", "_take_offline", "_wake")

    def __init__(
        self, table: PartitionTable, clock: Clock, *, wake: Wake, take_offline: Callable[[TopicPartition], None]
    ) -> None:
        """`wake` continues what waits for records of some partitions, and for the high watermark of others."""
        self._table: Final = table
        self._clock: Final = clock
        self._wake: Final = wake
        self._take_offline: Final = take_offline
        self._open: list[PlainTarget] = []

    def target(self, topic_partition: TopicPartition, acks: int, size: int) -> PlainTarget | None:
        """Return the target of a partition, to which at most `size` bytes are added. None if `ReplicaManager.append`
        has to decide."""
        partition = self._table.online.get(topic_partition)
        if partition is None or not partition.is_leader:
            return None
        if acks != LEADER_ACKS and (acks != ALL_ACKS or not partition.is_alone):
            return None
        for known in self._open:
            if known.partition is partition:
                return known
        log = partition.log
        group = log.open_plain(partition.leader_epoch, size)
        if group is None:
            return None
        target = PlainTarget(partition, group, log.log_start_offset)
        self._open.append(target)
        return target

    def flush(self) -> bool:
        """Write what was staged, and continue what waits for it. Returns whether all of it is in the logs."""
        opened, self._open = self._open, []
        appended: list[HostedPartition] = []
        advanced: list[TopicPartition] = []
        is_complete = True
        now_ms = self._clock.monotonic_ms()
        for target in opened:
            partition = target.partition
            if not target.group.batches:
                continue
            try:
                partition.log.write_plain(target.group)
            except KafkaStorageError as error:
                target.error = error
                is_complete = False
                if partition.log.is_offline:
                    self._take_offline(partition.topic_partition)
                continue
            appended.append(partition)
            if partition.advance(now_ms):
                advanced.append(partition.topic_partition)
        self._wake(appended, advanced)
        return is_complete
