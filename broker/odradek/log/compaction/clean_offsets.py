"""The clean offset of each log, stored in `cleaner-offset-checkpoint`, Kafka's file in each log directory.

`log/compaction/cleaner` owns the only instance. It writes an offset after a pass was swapped in, and reads it at the
next check, also after a restart. Invariant: a log is clean up to its offset; if it was truncated below, it is dirty
from there on.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from odradek.base.errors import StorageError
from odradek.base.ports import Files
from odradek.base.types import TopicPartition
from odradek.log import checkpoints
from odradek.log.log_manager import LogManager
from odradek.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

CLEANER_CHECKPOINT_FILE: Final = "cleaner-offset-checkpoint"


def root_of(log: PartitionLog) -> str:
    """Return the path of the log directory that contains a log."""
    return log.directory.rpartition("/")[0]


class CleanOffsets:
    """The clean offsets of all logs, in memory and on disk."""

    def __init__(self, logs: LogManager, files: Files) -> None:
        """A directory's file is read when one of its logs is first looked up."""
        self._logs = logs
        self._files = files
        self._written: dict[str, dict[TopicPartition, int]] = {}
        # Leader epoch of the last clean record, from when the offset was written or first looked up.
        self._epochs: dict[TopicPartition, int] = {}

    async def of(self, log: PartitionLog) -> int | None:
        """Return the offset below which a log is clean; None if it was never cleaned. Raises `StorageError`."""
        offset = (await self._load(root_of(log))).get(log.topic_partition)
        return None if offset is None else self._last_valid_offset(log, offset)

    def written(self, log: PartitionLog) -> int | None:
        """Return the offset in the checkpoint file, if that file was read."""
        return self._written.get(root_of(log), {}).get(log.topic_partition)

    def _last_valid_offset(self, log: PartitionLog, offset: int) -> int:
        """Return the offset. If the log was truncated below it and has grown since, return where it was truncated.

        After a truncation the log is written by another leader, so another epoch at the offset shows the truncation.
        """
        epoch = log.epoch_of(offset - 1)
        known = self._epochs.setdefault(log.topic_partition, epoch)
        if epoch == known or offset > log.log_end_offset:
            return offset
        del self._epochs[log.topic_partition]
        end_offset = log.end_offset_for_epoch(known).end_offset
        return min(offset, end_offset) if end_offset >= 0 else log.log_start_offset

    async def write(self, log: PartitionLog, offset: int) -> None:
        """Record that a log is clean below `offset`; drop partitions that have no log in the directory.

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
            work = partial(self._files.write_atomically, path, content)
            await self._logs.worker_at(root).run(f"write of {path}", work)
        except StorageError as error:
            self._logs.directory_failed(log, error)

    def forget_gone(self) -> None:
        """Drop the epochs of partitions that no longer have a log."""
        self._epochs = {each: epoch for each, epoch in self._epochs.items() if self._logs.get(each) is not None}

    def _lies_in(self, topic_partition: TopicPartition, root: str) -> bool:
        log = self._logs.get(topic_partition)
        return log is not None and root_of(log) == root

    async def _load(self, root: str) -> dict[TopicPartition, int]:
        known = self._written.get(root)
        if known is None:
            path, work = f"{root}/{CLEANER_CHECKPOINT_FILE}", partial(_read, self._files, root)
            known = self._written[root] = await self._logs.worker_at(root).run(f"read of {path}", work)
        return known


def _read(files: Files, root: str) -> dict[TopicPartition, int]:
    """Read a directory's file. A missing or malformed file counts as empty: cleaning starts at each log's start."""
    path = f"{root}/{CLEANER_CHECKPOINT_FILE}"
    try:
        return checkpoints.decode_offsets(files.read(path), path)
    except checkpoints.MalformedCheckpointError as error:
        logger.warning("%s; cleaning starts at the beginning of each log", error)
    except StorageError as error:
        if not error.missing:
            raise
    return {}
