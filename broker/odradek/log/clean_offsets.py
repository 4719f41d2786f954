"""Up to where each log is clean: `cleaner-offset-checkpoint`, Kafka's file in each log directory.

Offsets enter after a pass was swapped in and come back at the next look, also after a restart; `log.cleaner` owns the
only one. Invariant: an offset never says more than is true: a log that was truncated below it is dirty from there on.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from odradek.base.errors import StorageError
from odradek.base.ports import Files, RunBlocking
from odradek.base.types import TopicPartition
from odradek.log import checkpoints
from odradek.log.manager import LogManager
from odradek.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

CLEANER_CHECKPOINT_FILE: Final = "cleaner-offset-checkpoint"


def root_of(log: PartitionLog) -> str:
    """Path of the log directory that a log lies in."""
    return log.directory.rpartition("/")[0]


class CleanOffsets:
    """The clean offsets of all logs, in memory and on the disks."""

    def __init__(self, logs: LogManager, files: Files, run_blocking: RunBlocking) -> None:
        """Reads each directory's file when it is first asked for one of its logs."""
        self._logs = logs
        self._files = files
        self._run_blocking = run_blocking
        self._written: dict[str, dict[TopicPartition, int]] = {}
        # Leader epoch of the last clean record, as it was when the offset was written or first looked at.
        self._epochs: dict[TopicPartition, int] = {}

    async def of(self, log: PartitionLog) -> int | None:
        """The offset below which a log is clean; None when it was never cleaned. Raises `StorageError`."""
        offset = (await self._load(root_of(log))).get(log.topic_partition)
        return None if offset is None else self._where_it_still_holds(log, offset)

    def written(self, log: PartitionLog) -> int | None:
        """The offset as it stands in the file, if that was read."""
        return self._written.get(root_of(log), {}).get(log.topic_partition)

    def _where_it_still_holds(self, log: PartitionLog, offset: int) -> int:
        """The offset, or where the log was truncated below it and has grown anew.

        What comes after a truncation comes from another leader, so another epoch at the offset tells.
        """
        epoch = log.epoch_of(offset - 1)
        known = self._epochs.setdefault(log.topic_partition, epoch)
        if epoch == known or offset > log.log_end_offset:
            return offset
        del self._epochs[log.topic_partition]
        end_offset = log.end_offset_for_epoch(known).end_offset
        return min(offset, end_offset) if end_offset >= 0 else log.log_start_offset

    async def write(self, log: PartitionLog, offset: int) -> None:
        """Note that a log is clean below `offset`; partitions without a log in the directory are dropped.

        A failure takes the directory offline.
        """
        root = root_of(log)
        try:
            offsets = await self._load(root)
            offsets[log.topic_partition] = offset
            self._epochs[log.topic_partition] = log.epoch_of(offset - 1)
            for topic_partition in [each for each in offsets if not self._lies_in(each, root)]:
                del offsets[topic_partition]
            path, content = f"{root}/{CLEANER_CHECKPOINT_FILE}", checkpoints.encode_offsets(offsets)
            await self._run_blocking(partial(self._files.write_atomically, path, content))
        except StorageError as error:
            self._logs.directory_failed(log, error)

    def forget_gone(self) -> None:
        """Forget the epochs of partitions that have no log any more."""
        self._epochs = {each: epoch for each, epoch in self._epochs.items() if self._logs.get(each) is not None}

    def _lies_in(self, topic_partition: TopicPartition, root: str) -> bool:
        log = self._logs.get(topic_partition)
        return log is not None and root_of(log) == root

    async def _load(self, root: str) -> dict[TopicPartition, int]:
        known = self._written.get(root)
        if known is None:
            known = self._written[root] = await self._run_blocking(partial(_read, self._files, root))
        return known


def _read(files: Files, root: str) -> dict[TopicPartition, int]:
    """A file that is missing or malformed counts as empty: cleaning then begins at each log's start."""
    path = f"{root}/{CLEANER_CHECKPOINT_FILE}"
    try:
        return checkpoints.decode_offsets(files.read(path), path)
    except checkpoints.MalformedCheckpointError as error:
        logger.warning("%s; every log counts as dirty", error)
    except StorageError as error:
        if not error.missing:
            raise
    return {}
