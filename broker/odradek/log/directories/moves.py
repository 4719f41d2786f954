"""Moves of logs between the directories of a broker (KIP-113): create, drop and swap in future logs.

`replication/moves/mover` fills future logs and calls this module through `LogManager`; `interrupted_moves` completes at
startup what a shutdown or crash interrupted.

A swap is one call on the loop, so that no append happens during it: the directory of the future log gets the final
name, the table and the log follow, then the old directory is renamed to be deleted. A crash may leave the partition's
final name in two directories. A marker file in the future log then shows which one is newer: it is durable before the
swap and removed once both renames are durable.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from posixpath import dirname
from typing import Final
from uuid import UUID

from odradek.base.config import BrokerConfig
from odradek.base.errors import KafkaStorageError, StorageError
from odradek.base.ports import Clock, Files
from odradek.base.types import TopicPartition
from odradek.log import checkpoints
from odradek.log.directories.background import Background
from odradek.log.directories.directory import LogDirectory, deleted_name, future_name
from odradek.log.directories.disk_work import DiskWork
from odradek.log.directories.log_table import LogTable
from odradek.log.partition_log import PartitionLog
from odradek.log.recovery.log_recovery import LoadRequest, load
from odradek.log.values import LogContext, LogHost

logger = logging.getLogger(__name__)

MARKER_FILE: Final = "odradek.moved"
"""Marks a log as newer than a log of the same name in another directory. Kafka ignores such files."""


class FutureHost:
    """A `LogHost` between a future log and its manager, while a thread writes the log.

    After `pause`, requests of the log are queued; `resume`, called on the loop, passes them to the manager. Flushes are
    ignored: the mover that fills the log flushes it.
    """

    __slots__ = ("_host", "_is_paused", "_queued")

    def __init__(self, host: LogHost[PartitionLog]) -> None:
        """`host` is the manager."""
        self._host = host
        self._is_paused = False
        self._queued: list[Callable[[], None]] = []

    def pause(self) -> None:
        """Queue requests from now on; call it before a thread writes the log."""
        self._is_paused = True

    def resume(self) -> None:
        """Make the queued requests; call it when the thread has ended. Raises what they raise."""
        self._is_paused = False
        queued, self._queued = self._queued, []
        for request in queued:
            request()

    def _pass(self, request: Callable[[], None]) -> None:
        if self._is_paused:
            self._queued.append(request)
        else:
            request()

    def flush_soon(self, log: PartitionLog) -> None:
        """Do nothing: the mover that fills the log flushes it."""

    def sync_soon(self, log: PartitionLog) -> None:
        """Do nothing, as `flush_soon`: nothing that is read from a future log is acknowledged before the swap."""

    def checkpoint_soon(self, log: PartitionLog) -> None:
        """See `LogHost`."""
        self._pass(partial(self._host.checkpoint_soon, log))

    def checkpoint_now(self, log: PartitionLog) -> None:
        """See `LogHost`. Raises while paused; `resume` writes the checkpoint before the work is retried."""
        self._pass(partial(self._host.checkpoint_now, log))
        if self._is_paused:
            raise KafkaStorageError(f"{log.topic_partition}: a checkpoint has to be written first")

    def remove_later(self, paths: Sequence[str], delay_ms: int) -> None:
        """See `LogHost`."""
        self._pass(partial(self._host.remove_later, paths, delay_ms))

    def rename_expired_soon(self, log: PartitionLog) -> None:
        """See `LogHost`."""
        self._pass(partial(self._host.rename_expired_soon, log))

    def directory_failed(self, log: PartitionLog, error: StorageError) -> None:
        """See `LogHost`."""
        self._pass(partial(self._host.directory_failed, log, error))

    def check_room(self, log: PartitionLog) -> None:
        """See `LogHost`; only checks, so it is not queued."""
        self._host.check_room(log)


class LogMoves:
    """The future logs of one broker: their files and table entries. Runs on the loop."""

    def __init__(
        self,
        files: Files,
        clock: Clock,
        config: BrokerConfig,
        *,
        table: LogTable,
        context: LogContext[PartitionLog],
        disk_work: DiskWork,
        background: Background,
        fail: Callable[[LogDirectory, StorageError], None],
    ) -> None:
        """`context.host` is the manager; `fail` takes a directory offline."""
        self._files = files
        self._clock = clock
        self._config = config
        self._table = table
        self._context = context
        self._disk_work = disk_work
        self._background = background
        self._fail = fail
        self.hosts: dict[PartitionLog, FutureHost] = {}

    def reconfigure(self, config: BrokerConfig, context: LogContext[PartitionLog]) -> None:
        """Apply new settings."""
        self._config = config
        self._context = context

    def future_context(self) -> tuple[LogContext[PartitionLog], FutureHost]:
        """Return the context and host of a new future log."""
        context = self._context
        host = FutureHost(context.host)
        return replace(context, host=host), host

    def create(self, topic_partition: TopicPartition, path: str) -> PartitionLog:
        """Create an empty future log in an online directory, beginning at the current log's start.

        Raises `InvalidTopicError` for a topic whose name is too long, `KafkaStorageError`.
        """
        table = self._table
        if table.failed:
            # The offline directory may hold a future log of the partition; there must never be two.
            raise KafkaStorageError(
                f"{topic_partition} cannot move while a directory is offline: {', '.join(table.failed)}"
            )
        current = table.current[topic_partition]
        directory = table.directories[path]
        name = future_name(topic_partition, self._clock.token_bytes(16).hex())
        request = LoadRequest(
            topic_partition=topic_partition,
            directory=f"{path}/{name}",
            config=current.config,
            now_ms=self._clock.wall_ms(),
            log_start_offset=current.log_start_offset,
            producer_expiration_ms=self._config.producer_id_expiration_ms,
        )
        # A recovery point that a former log of the partition left in this directory would apply to the new one.
        self._disk_work.checkpoint_now(directory)
        if directory.failure is not None:
            raise KafkaStorageError(f"{topic_partition} cannot move to {path}: {directory.failure}")
        try:
            self._files.make_directories(request.directory)
            loaded = load(self._files, request)
            if current.topic_id is not None:
                write_topic_id(self._files, request.directory, current.topic_id)
        except StorageError as error:
            if not error.full:
                self._fail(directory, error)
            raise KafkaStorageError(f"{topic_partition}: {error}") from error
        context, host = self.future_context()
        log = PartitionLog(context, loaded, current.config, current.topic_id)
        self.hosts[log] = host
        table.add_future(directory, log)
        return log

    def drop(self, topic_partition: TopicPartition) -> None:
        """Drop a future log; does nothing if there is none. If that fails, its directory goes offline."""
        log = self._table.future.get(topic_partition)
        if log is None:
            return
        directory = self._table.remove(log)
        self.hosts.pop(log, None)
        log.abandon()
        if directory is not None:
            self._discard(directory, log)

    def _discard(self, directory: LogDirectory, log: PartitionLog) -> None:
        """Rename the directory of a log to be deleted, and remove it later."""
        name = deleted_name(log.topic_partition, self._clock.token_bytes(16).hex())
        target = f"{directory.path}/{name}"
        try:
            log.release_names()
            self._files.rename(log.directory, target)
        except StorageError as error:
            self._fail(directory, error)
            return
        self._disk_work.checkpoint_soon(directory)
        self._background.spawn_later(
            self._config.log_segment_delete_delay_ms, partial(self._disk_work.remove_tree, directory, target)
        )

    # Swap

    def mark(self, log: PartitionLog) -> None:
        """Write the marker into a future log that lacks only the newest records. Blocks: call it off the loop.

        If a crash follows after the old directory was renamed, the next start uses the future log. Raises
        `StorageError`.
        """
        self._files.write_atomically(f"{log.directory}/{MARKER_FILE}", b"")
        self._files.sync_directory(dirname(log.directory))

    def swap(self, topic_partition: TopicPartition) -> PartitionLog:
        """Replace the current log with the future log, which is marked and ends at the same offset; return it.

        Raises `KafkaStorageError` if the future log's directory fails; the current log then stays in use. If the old
        directory fails, only that directory goes offline.
        """
        table = self._table
        future, current = table.future[topic_partition], table.current[topic_partition]
        source, target = table.home(current), table.home(future)
        assert source is not None
        assert target is not None
        final = target.log_path(topic_partition)
        try:
            self._files.rename(future.directory, final)
        except StorageError as error:
            self._fail(target, error)
            raise KafkaStorageError(f"{topic_partition} cannot move to {target.path}: {error}") from error
        future.take_over(current, final)
        table.promote(topic_partition)
        self.hosts.pop(future, None)
        logger.info("%s moved from %s to %s", topic_partition, source.path, target.path)
        current.abandon()
        self._discard(source, current)
        self._settle_swap(source, target, final)
        self._disk_work.checkpoint_soon(target)
        self._disk_work.flush_soon(future)
        return future

    def _settle_swap(self, source: LogDirectory, target: LogDirectory, final: str) -> None:
        """Make both renames durable and remove the marker.

        This comes first: neither a checkpoint without the old log nor another move may coexist with an old log that a
        crash brings back. Blocks the loop for three small syncs per move.
        """
        if source.failure is not None:
            return  # the marker is removed when the source directory can be read again
        try:
            self._files.sync_directory(source.path)
        except StorageError as error:
            self._fail(source, error)
            return
        try:
            self._files.sync_directory(target.path)
            remove_marker(self._files, final)
        except StorageError as error:
            self._fail(target, error)


def write_topic_id(files: Files, directory: str, topic_id: UUID) -> None:
    """Write a log's `partition.metadata` without a sync; a torn file counts as missing. Raises `StorageError`."""
    content = checkpoints.encode_partition_metadata(topic_id)
    file = files.open(f"{directory}/{checkpoints.PARTITION_METADATA_FILE}", create=True)
    try:
        file.pwritev((content,), 0)
        file.truncate(len(content))
    finally:
        file.close()


def remove_marker(files: Files, directory: str) -> None:
    """Remove a log's marker durably, if it exists. Raises `StorageError`."""
    if files.exists(f"{directory}/{MARKER_FILE}"):
        files.remove(f"{directory}/{MARKER_FILE}")
        files.sync_directory(directory)
