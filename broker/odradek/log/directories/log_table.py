"""The table of a broker's logs and the directory of each.

`log.manager` owns it; loading, disk work, moves and schedules use it. It touches no files. Invariants: a partition has
at most one current log and at most one future log, in different directories (KIP-113); each log is in one directory,
which is online; a partition whose directory failed is `offline` and has no current log.
"""

from __future__ import annotations

from collections import Counter

from odradek.base.errors import KafkaStorageError, RequestTimedOutError
from odradek.base.types import TopicPartition
from odradek.log.directories.directory import LogDirectory
from odradek.log.partition_log import PartitionLog


class LogTable:
    """Logs and their directories."""

    __slots__ = (
        "_counts",
        "_deleted",
        "_homes",
        "configured",
        "current",
        "deletions",
        "directories",
        "failed",
        "future",
        "offline",
        "preferred",
    )

    def __init__(self) -> None:
        """Create an empty table."""
        self.directories: dict[str, LogDirectory] = {}
        """Online directories by path."""
        self.failed: dict[str, str] = {}
        """Failed directories: path and reason."""
        self.current: dict[TopicPartition, PartitionLog] = {}
        self.future: dict[TopicPartition, PartitionLog] = {}
        """Logs that are being filled to replace the current one."""
        self.deletions = 0
        """Number of deletions of logs."""
        self._deleted: dict[str, dict[TopicPartition, int]] = {}
        """Logs of each directory that may come back after a power failure, with the numbers of their deletions."""
        self.offline: set[TopicPartition] = set()
        self.configured: set[TopicPartition] = set()
        """Partitions whose topic settings are known."""
        self.preferred: dict[TopicPartition, str] = {}
        """The directory in which to create a log that does not exist yet."""
        self._homes: dict[PartitionLog, LogDirectory] = {}
        self._counts: Counter[str] = Counter()
        """Number of logs per directory; kept because a controller creates thousands of logs at once."""

    def add(self, directory: LogDirectory, log: PartitionLog) -> None:
        """Add the current log of a partition."""
        self.current[log.topic_partition] = log
        self._settle(log, directory)

    def add_future(self, directory: LogDirectory, log: PartitionLog) -> None:
        """Add the future log of a partition."""
        self.future[log.topic_partition] = log
        self._settle(log, directory)

    def note_deleted(self, topic_partition: TopicPartition, path: str) -> None:
        """Record that a log in a directory was deleted, and that this is not durable yet."""
        self.deletions += 1
        self._deleted.setdefault(path, {})[topic_partition] = self.deletions

    def deletions_are_durable(self, path: str, up_to: int) -> None:
        """Record that the deletions in a directory up to that number are durable."""
        deleted = self._deleted.get(path, {})
        self._deleted[path] = {each: number for each, number in deleted.items() if number > up_to}

    def undurable_deletion(self, topic_partition: TopicPartition) -> KafkaStorageError | RequestTimedOutError | None:
        """Return an error if a power failure could bring a deleted log of this partition back."""
        paths = [path for path, deleted in self._deleted.items() if topic_partition in deleted]
        for path in paths:
            if path in self.failed:
                return KafkaStorageError(
                    f"{path} failed before the deletion of {topic_partition} was durable: restart the broker"
                )
        if not paths:
            return None
        return RequestTimedOutError(f"the deletion of {topic_partition} is not durable yet: {paths[0]} is slow")

    def remove(self, log: PartitionLog) -> LogDirectory | None:
        """Remove a current or future log. Returns its directory; None if the log is not in the table."""
        for logs in (self.current, self.future):
            if logs.get(log.topic_partition) is log:
                del logs[log.topic_partition]
        return self._leave(log)

    def promote(self, topic_partition: TopicPartition) -> PartitionLog:
        """Replace the current log with the future log. Returns the replaced log."""
        replaced = self.current[topic_partition]
        self.current[topic_partition] = self.future.pop(topic_partition)
        self._leave(replaced)
        return replaced

    def _settle(self, log: PartitionLog, directory: LogDirectory) -> None:
        self._leave(log)
        self._homes[log] = directory
        log.write_queue = directory.write_queue
        self._counts[directory.path] += 1

    def _leave(self, log: PartitionLog) -> LogDirectory | None:
        home = self._homes.pop(log, None)
        if home is not None:
            self._counts[home.path] -= 1
        return home

    def home(self, log: PartitionLog) -> LogDirectory | None:
        """Return the directory of a log; None if the log is no longer in the table."""
        return self._homes.get(log)

    def within(self, directory: LogDirectory) -> list[PartitionLog]:
        """Return the current and future logs in a directory."""
        return [log for log, home in self._homes.items() if home is directory]

    def is_future(self, log: PartitionLog) -> bool:
        """Whether the log is a future log."""
        return self.future.get(log.topic_partition) is log

    def choose(self, topic_partition: TopicPartition) -> LogDirectory:
        """Choose the directory of a new log: the preferred one if it is online, else the one with the fewest logs.

        Raises `KafkaStorageError` if no directory is online.
        """
        preferred = self.directories.get(self.preferred.get(topic_partition, ""))
        if preferred is not None:
            return preferred
        if not self.directories:
            raise KafkaStorageError("no log directory is online")
        return self.directories[min(self.directories, key=lambda path: self._counts[path])]
