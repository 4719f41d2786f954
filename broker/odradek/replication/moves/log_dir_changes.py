"""AlterReplicaLogDirs (KIP-113): assigns replicas to log directories of this broker.

`server/admin/log_dir_handlers` calls it through `ReplicaManager` with a directory for each partition, and gets an error
code for each. A hosted replica begins to move, or cancels an earlier move. For a replica that is not hosted yet the
directory is remembered, and the answer is REPLICA_NOT_AVAILABLE. `mover` does the work.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from odradek.base.errors import (
    KafkaStorageError,
    NotLeaderOrFollowerError,
    ProtocolError,
    ReplicaNotAvailableError,
)
from odradek.base.types import TopicPartition
from odradek.log.directories.directory import future_name
from odradek.log.log_manager import LogManager
from odradek.replication.moves.mover import ReplicaMover
from odradek.replication.partition_table import PartitionTable

LONGEST_UNIQUE: Final = "0" * 32

logger = logging.getLogger(__name__)


class LogDirChanges:
    """Changes the log directories of one broker's replicas."""

    def __init__(self, table: PartitionTable, log_manager: LogManager, mover: ReplicaMover) -> None:
        """Used on the event loop only."""
        self._table: Final = table
        self._logs: Final = log_manager
        self._mover: Final = mover

    def alter(self, directories: Mapping[TopicPartition, str]) -> dict[TopicPartition, int]:
        """Begin to move replicas to directories. Returns an error code for each."""
        codes: dict[TopicPartition, int] = {}
        for topic_partition, path in directories.items():
            try:
                self._alter(topic_partition, path)
                codes[topic_partition] = 0
            except NotLeaderOrFollowerError as error:
                logger.info("%s does not move to %s yet: %s", topic_partition, path, error)
                codes[topic_partition] = ReplicaNotAvailableError.code
            except ProtocolError as error:
                logger.warning("%s does not move to %s: %s", topic_partition, path, error)
                codes[topic_partition] = error.code
        return codes

    def _alter(self, topic_partition: TopicPartition, path: str) -> None:
        logs = self._logs
        future_name(topic_partition, LONGEST_UNIQUE)
        target = logs.online_directory(path)
        if topic_partition in self._table.offline:
            raise KafkaStorageError(f"the log directory of {topic_partition} has failed")
        partition = self._table.online.get(topic_partition)
        if partition is not None and logs.future_directory(topic_partition) not in (None, target):
            self._mover.cancel(topic_partition)
        if partition is None:
            if logs.get(topic_partition) is None:
                logs.prefer(topic_partition, target)
            raise self._table.missing(topic_partition)(f"{topic_partition} has no replica on this broker")
        if logs.directory_of(topic_partition) == target or logs.future(topic_partition) is not None:
            return  # it is there already, or is moving
        logs.create_future(topic_partition, target)
        self._mover.start(partition)
