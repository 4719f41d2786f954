"""Which logs a broker has, and in which directory each of them lies.

`log.manager` owns the table; loading, disk work, moves and schedules look things up in it. Nothing here touches a file.
Invariants: a partition has at most one current log and at most one future one, in another directory (KIP-113); each
log has one home, which is online; a partition whose directory failed is `offline` and has no current log.
"""

from __future__ import annotations

from odradek.base.errors import KafkaStorageError
from odradek.base.types import TopicPartition
from odradek.log.directory import LogDirectory
from odradek.log.partition_log import PartitionLog


class LogTable:
    """Logs and their directories."""

    __slots__ = ("_homes", "configured", "current", "directories", "failed", "future", "offline", "preferred")

    def __init__(self) -> None:
        """Empty."""
        self.directories: dict[str, LogDirectory] = {}
        """Directories that work, by path."""
        self.failed: dict[str, str] = {}
        """Path and reason of those that do not."""
        self.current: dict[TopicPartition, PartitionLog] = {}
        self.future: dict[TopicPartition, PartitionLog] = {}
        """Logs that are being filled to take the current one's place."""
        self.offline: set[TopicPartition] = set()
        self.configured: set[TopicPartition] = set()
        """Partitions whose topic's settings are known."""
        self.preferred: dict[TopicPartition, str] = {}
        """Where a log is to be made that does not exist yet."""
        self._homes: dict[PartitionLog, LogDirectory] = {}

    def add(self, directory: LogDirectory, log: PartitionLog) -> None:
        """Take in a partition's current log."""
        self.current[log.topic_partition] = log
        self._homes[log] = directory

    def add_future(self, directory: LogDirectory, log: PartitionLog) -> None:
        """Take in a log that is to become a partition's current one."""
        self.future[log.topic_partition] = log
        self._homes[log] = directory

    def remove(self, log: PartitionLog) -> LogDirectory | None:
        """Forget a log, current or future; its home, None when it was not here."""
        for logs in (self.current, self.future):
            if logs.get(log.topic_partition) is log:
                del logs[log.topic_partition]
        return self._homes.pop(log, None)

    def promote(self, topic_partition: TopicPartition) -> PartitionLog:
        """Put the future log in the current one's place; the log that was current."""
        replaced = self.current[topic_partition]
        self.current[topic_partition] = self.future.pop(topic_partition)
        del self._homes[replaced]
        return replaced

    def home(self, log: PartitionLog) -> LogDirectory | None:
        """The directory that a log lies in; None when the log is not here any more."""
        return self._homes.get(log)

    def within(self, directory: LogDirectory) -> list[PartitionLog]:
        """The logs in a directory, current and future."""
        return [log for log, home in self._homes.items() if home is directory]

    def is_future(self, log: PartitionLog) -> bool:
        """Whether the log is one that is being filled."""
        return self.future.get(log.topic_partition) is log

    def choose(self, topic_partition: TopicPartition) -> LogDirectory:
        """Where to make a new log: the preferred directory if it works, else the one with the fewest logs.

        Raises `KafkaStorageError` when no directory works.
        """
        preferred = self.directories.get(self.preferred.get(topic_partition, ""))
        if preferred is not None:
            return preferred
        if not self.directories:
            raise KafkaStorageError("no log directory is online")
        counts = dict.fromkeys(self.directories, 0)
        for home in self._homes.values():
            counts[home.path] += 1
        return self.directories[min(counts, key=lambda path: counts[path])]
