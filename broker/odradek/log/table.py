"""Which logs a broker has, and in which directory each of them lies.

`log.manager` owns the table; loading, disk work, moves and schedules look things up in it. Nothing here touches a file.
Invariants: a partition has at most one current log and at most one future one, in another directory (KIP-113); each
log has one home, which is online; a partition whose directory failed is `offline` and has no current log.
"""

from __future__ import annotations

from collections import Counter

from odradek.base.errors import KafkaStorageError
from odradek.base.types import TopicPartition
from odradek.log.directory import LogDirectory
from odradek.log.partition_log import PartitionLog


class LogTable:
    """Logs and their directories."""

    __slots__ = (
        "_counts",
        "_homes",
        "configured",
        "current",
        "directories",
        "failed",
        "future",
        "offline",
        "preferred",
    )

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
        self._counts: Counter[str] = Counter()
        """How many logs each directory is home to: a controller has thousands made at once."""

    def add(self, directory: LogDirectory, log: PartitionLog) -> None:
        """Take in a partition's current log."""
        self.current[log.topic_partition] = log
        self._settle(log, directory)

    def add_future(self, directory: LogDirectory, log: PartitionLog) -> None:
        """Take in a log that is to become a partition's current one."""
        self.future[log.topic_partition] = log
        self._settle(log, directory)

    def remove(self, log: PartitionLog) -> LogDirectory | None:
        """Forget a log, current or future; its home, None when it was not here."""
        for logs in (self.current, self.future):
            if logs.get(log.topic_partition) is log:
                del logs[log.topic_partition]
        return self._leave(log)

    def promote(self, topic_partition: TopicPartition) -> PartitionLog:
        """Put the future log in the current one's place; the log that was current."""
        replaced = self.current[topic_partition]
        self.current[topic_partition] = self.future.pop(topic_partition)
        self._leave(replaced)
        return replaced

    def _settle(self, log: PartitionLog, directory: LogDirectory) -> None:
        self._leave(log)
        self._homes[log] = directory
        self._counts[directory.path] += 1

    def _leave(self, log: PartitionLog) -> LogDirectory | None:
        home = self._homes.pop(log, None)
        if home is not None:
            self._counts[home.path] -= 1
        return home

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
        return self.directories[min(self.directories, key=lambda path: self._counts[path])]
