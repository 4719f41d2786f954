"""Moves replicas between the log directories of this broker: fills future logs and swaps them in (KIP-113).

`log_dir_changes` and, after a restart, `replica_manager` start moves; `LogManager` creates, swaps and drops the logs. A
move copies batches from the current log in steps of `replica.fetch.max.bytes`. The worker of the current log's
directory reads them and the worker of the other directory writes them, so that a slow disk does not block the loop.
Whatever the role of the replica, the future log follows the current one: it copies what is appended, is truncated when
the current log is (by leader epochs, like a follower's), and adopts the log start.

When the future log has reached the end, it is flushed and marked. One call on the loop then copies what has arrived
meanwhile and swaps the logs: nothing is appended in between, so nothing is lost.

Invariants: a partition has at most one move; until the swap, clients and replication append only to the current log; a
move that cannot continue (a full or failed directory) does not affect the current log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, TypeVar

from odradek.base.config import BrokerConfig
from odradek.base.errors import (
    CorruptMessageError,
    KafkaStorageError,
    OdradekError,
    OffsetNotAvailableError,
    StorageError,
)
from odradek.base.ports import Clock
from odradek.base.tasks import TaskOwner
from odradek.base.types import TopicPartition
from odradek.log.log_manager import LogManager
from odradek.log.lookups import LogLookups
from odradek.log.partition_log import PartitionLog
from odradek.log.values import LogSlice
from odradek.replication.partition import EpochEnd, truncation_target
from odradek.replication.partition_table import HostedPartition, PartitionTable

TAIL_SHARE: Final = 4
"""A step that copied at most 1/4 of the step size is close enough to the end for the swap."""
FLUSH_BYTES: Final = 64 << 20
"""A future log is flushed after this many bytes, so that the last flush is short."""
RETRY_MS: Final = 5000
"""Delay before a move continues whose target currently accepts no writes."""

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Cleaning(Protocol):
    """Pauses compaction of a log while it moves: compaction must not rewrite what is being copied."""

    async def abort_and_pause(self, topic_partition: TopicPartition) -> None:
        """Abort a compaction of this log, and start none until `resume` was called once for each call."""
        ...

    def resume(self, topic_partition: TopicPartition) -> None:
        """Undo one `abort_and_pause`."""
        ...


class MoveThrottle:
    """Limits the rate of all moves together."""

    __slots__ = ("_clock", "_free_ms")

    def __init__(self, clock: Clock) -> None:
        """Start with no bytes used."""
        self._clock: Final = clock
        self._free_ms = 0.0

    def use(self, size_bytes: int, bytes_per_second: int) -> float:
        """Return how many milliseconds to wait after copying these bytes."""
        now_ms = self._clock.monotonic_ms()
        self._free_ms = max(self._free_ms, now_ms) + size_bytes * 1000.0 / bytes_per_second
        return self._free_ms - now_ms


class _Move:
    """One replica that moves."""

    __slots__ = ("future", "generation", "is_ready", "partition", "unflushed_bytes")

    def __init__(self, partition: HostedPartition, future: PartitionLog) -> None:
        self.partition: Final = partition
        self.future: Final = future
        self.generation = -1
        """Generation of the current log when the two logs were last compared."""
        self.unflushed_bytes = 0
        self.is_ready = False
        """Whether the future log is flushed and marked, so that only the newest records are missing."""


class ReplicaMover:
    """The moves of one broker. Everything but the copying runs on the event loop."""

    def __init__(
        self,
        table: PartitionTable,
        log_manager: LogManager,
        clock: Clock,
        config: BrokerConfig,
        *,
        on_moved: Callable[[TopicPartition], None],
        on_log_start: Callable[[TopicPartition], None],
        cleaning: Cleaning | None = None,
    ) -> None:
        """`on_moved` is called after a swap, `on_log_start` when a future log has adopted a log start.

        `cleaning` is paused for logs that move; None: nothing is compacted.
        """
        self._table: Final = table
        self._logs: Final = log_manager
        self._lookups: Final = LogLookups(log_manager.worker_of)
        self._clock: Final = clock
        self._config = config
        self._step_bytes: Final = config.replica_fetch_max_bytes
        self._tail_bytes: Final = self._step_bytes // TAIL_SHARE
        self._on_moved: Final = on_moved
        self._on_log_start: Final = on_log_start
        self.cleaning = cleaning
        """Paused for logs that move."""
        self._throttle: Final = MoveThrottle(clock)
        self._slots: Final = asyncio.Semaphore(config.num_replica_alter_log_dirs_threads or len(config.log_dirs))
        self._moves: dict[TopicPartition, _Move] = {}
        self._tasks: Final = TaskOwner()
        self._is_closed = False

    def reconfigure(self, config: BrokerConfig) -> None:
        """Apply a new rate (`replica.alter.log.dirs.io.max.bytes.per.second`)."""
        self._config = config

    @property
    def moving(self) -> int:
        """Number of replicas that move."""
        return len(self._moves)

    def max_lag(self) -> int:
        """Return the largest number of records by which a future log is behind the current one."""
        return max(
            (move.partition.log.log_end_offset - move.future.log_end_offset for move in self._moves.values()), default=0
        )

    # Start and stop

    def start(self, partition: HostedPartition) -> None:
        """Start to fill the partition's future log, if it has one that is not being filled."""
        topic_partition = partition.topic_partition
        future = self._logs.future(topic_partition)
        known = self._moves.get(topic_partition)
        if self._is_closed or future is None or (known is not None and known.future is future):
            return
        if not _is_same_topic(partition.log, future):
            logger.warning(
                "%s: the future log belongs to another topic with the same name; its move is cancelled", topic_partition
            )
            self.cancel(topic_partition)
            return
        future.update_config(partition.log.config)
        move = self._moves[topic_partition] = _Move(partition, future)
        task = self._tasks.spawn(self._run(move), name=f"move-{topic_partition}")
        task.add_done_callback(lambda _: self._ended(move))

    def cancel(self, topic_partition: TopicPartition) -> None:
        """Cancel a move: the replica stays in its directory. The result of a step in progress is ignored."""
        self._logs.drop_future(topic_partition)
        self._moves.pop(topic_partition, None)

    def _ended(self, move: _Move) -> None:
        if self._moves.get(move.partition.topic_partition) is move:
            del self._moves[move.partition.topic_partition]

    async def close(self) -> None:
        """Stop all moves after their current steps; they continue after a restart. Idempotent."""
        self._is_closed = True
        await self._tasks.close()

    # One move

    def _is_current(self, move: _Move) -> bool:
        """Whether the replica is still on this broker and still moves to this log."""
        topic_partition = move.partition.topic_partition
        return (
            self._table.online.get(topic_partition) is move.partition
            and self._logs.future(topic_partition) is move.future
        )

    async def _run(self, move: _Move) -> None:
        cleaning = self.cleaning
        if cleaning is None:
            await self._move(move)
            return
        topic_partition = move.partition.topic_partition
        try:
            await cleaning.abort_and_pause(topic_partition)
            await self._move(move)
        finally:
            cleaning.resume(topic_partition)

    async def _move(self, move: _Move) -> None:
        while True:
            async with self._slots:
                is_over = await self._advance(move)
            if is_over:
                return
            await self._clock.sleep_ms(RETRY_MS)

    async def _advance(self, move: _Move) -> bool:
        """Copy until the swap. Returns False if the target or the current log is temporarily unusable."""
        try:
            await self._copy_all(move)
        except _UnreadableError as error:
            self._logs.directory_failed(move.partition.log, error)
        except StorageError as error:
            if not self._is_current(move):
                return True
            if error.full:
                return self._rests(move, error)
            self._logs.directory_failed(move.future, error)
        except (KafkaStorageError, OffsetNotAvailableError, CorruptMessageError) as error:
            return not self._is_current(move) or self._rests(move, error)
        return True

    def _rests(self, move: _Move, error: OdradekError) -> bool:
        if move.generation == move.partition.log.generation:
            logger.warning("%s: the move is suspended: %s", move.partition.topic_partition, error)
        return False

    async def _copy_all(self, move: _Move) -> None:
        """Copy and swap, or return when the move has ended otherwise."""
        while self._is_current(move):
            self._follow(move)
            copied = await self._step(move)
            if not self._is_current(move):
                return
            if copied > self._tail_bytes:
                await self._rest(copied)
            elif not move.is_ready:
                await self._blocking(move, f"sync of {move.future.directory}", partial(self._make_ready, move))
                move.is_ready = True
            elif await self._end(move):
                return

    async def _end(self, move: _Move) -> bool:
        """Copy the rest and swap while no thread writes to the current log. Returns whether the move is over."""
        current = move.partition.log
        queue = await self._logs.writes.pause(current)
        if queue is None:
            return self._finish(move)
        try:
            return not self._is_current(move) or self._finish(move)
        finally:
            self._logs.writes.resume(queue, current, move.partition.log)

    async def _rest(self, copied_bytes: int) -> None:
        wait_ms = self._throttle.use(copied_bytes, self._config.replica_alter_log_dirs_io_max_bytes_per_second)
        await self._clock.sleep_ms(max(wait_ms, 0))

    async def _step(self, move: _Move) -> int:
        """Copy the next records. Returns the number of bytes, 0 at the end."""
        found = await self._lookups.read(move.partition.log, move.future.log_end_offset, max_bytes=self._step_bytes)
        if not found.length or not self._is_current(move):
            return 0
        data = await self._load(move, found)
        if not self._is_current(move):
            return 0
        what = f"write of moved records to {move.future.directory}"
        await self._blocking(move, what, partial(move.future.append_as_follower, memoryview(data)))
        move.unflushed_bytes += found.length
        if move.unflushed_bytes >= FLUSH_BYTES and self._is_current(move):
            await self._blocking(move, f"sync of {move.future.directory}", move.future.flush)
            move.unflushed_bytes = 0
        return found.length

    def _next(self, move: _Move) -> LogSlice:
        current, future = move.partition.log, move.future
        return current.read(future.log_end_offset, max_bytes=self._step_bytes, min_one_batch=True)

    def _make_ready(self, move: _Move) -> None:
        move.future.flush()
        self._logs.mark_future(move.future)
        move.unflushed_bytes = 0

    def _finish(self, move: _Move) -> bool:
        """Copy the rest and swap, in one call. Returns False if the rest is too large to do so on the loop."""
        partition, future = move.partition, move.future
        self._follow(move)
        left, copied = self._next(move), 0
        if left.length > self._tail_bytes:
            return False
        while left.length:
            _append(future, left)
            copied += left.length
            if copied > self._step_bytes:
                return False
            left = self._next(move)
        current = partition.log
        if future.recovery_point < current.recovery_point:
            # Keep durable what was durable; this is fast, because most was flushed just before.
            future.flush()
        self._follow_start(move)
        partition.log = self._logs.swap_future(partition.topic_partition)
        self._on_moved(partition.topic_partition)
        return True

    # Following the current log

    def _follow(self, move: _Move) -> None:
        """Apply changes of the current log other than appends."""
        current, future = move.partition.log, move.future
        if move.generation != current.generation:
            _cut(current, future)
            move.generation = current.generation
        self._follow_start(move)

    def _follow_start(self, move: _Move) -> None:
        current, future = move.partition.log, move.future
        if future.log_end_offset < current.log_start_offset:
            future.truncate_fully_and_start_at(current.log_start_offset)
        future.high_watermark = max(min(current.high_watermark, future.log_end_offset), future.log_start_offset)
        start = min(current.log_start_offset, future.high_watermark)
        if start > future.log_start_offset:
            future.increment_log_start_offset(start)
            self._on_log_start(move.partition.topic_partition)

    # Threads

    async def _load(self, move: _Move, records: LogSlice) -> bytes:
        """Read a slice of the current log. Raises `_UnreadableError`, `KafkaStorageError`."""
        current = move.partition.log
        worker = self._logs.worker_of(current)
        return await worker.run(f"read of {current.directory} for a move", partial(_loaded, records), patience=None)

    async def _blocking(self, move: _Move, what: str, work: Callable[[], T]) -> T:
        """Run work on the future log on its worker; its requests to the log manager are passed on afterwards.

        A cancelled caller still waits for the end of the work, because the log must not be used meanwhile. Raises
        what the work raises, and `StorageError` if the directory goes offline.
        """
        host = self._logs.future_host(move.future)
        worker = self._logs.worker_of(move.future)
        host.pause()
        job = worker.run(what, work, patience=None)
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            await asyncio.gather(job, return_exceptions=True)
            raise
        finally:
            # In an offline directory the thread may still run, and the log manager ignores the log's requests.
            if worker.failure is None:
                host.resume()


class _UnreadableError(StorageError):
    """The current log cannot be read."""


def _loaded(records: LogSlice) -> bytes:
    try:
        return records.load()
    except StorageError as error:
        raise _UnreadableError(str(error), path=error.path) from error


def _append(future: PartitionLog, records: LogSlice) -> None:
    """Append a slice of the current log to the future one.

    Raises `_UnreadableError`, `KafkaStorageError`, and `CorruptMessageError` for bytes that are not batches, for
    example if the current log was truncated and appended to during the read.
    """
    future.append_as_follower(memoryview(_loaded(records)))


def _is_same_topic(current: PartitionLog, future: PartitionLog) -> bool:
    return None in (current.topic_id, future.topic_id) or current.topic_id == future.topic_id


def _cut(current: PartitionLog, future: PartitionLog) -> None:
    """Truncate the future log where it diverges from the current one, which was itself truncated (KIP-101)."""
    while True:
        epoch = future.latest_epoch
        if epoch < 0:
            # Without epochs the divergence is unknown, but committed records were not truncated.
            future.truncate_to(max(min(current.high_watermark, current.log_end_offset), future.log_start_offset))
            return
        end = current.end_offset_for_epoch(epoch)
        if end.end_offset < 0:
            future.truncate_fully_and_start_at(
                current.log_start_offset
            )  # the current log no longer has any of its records
            return
        own = future.end_offset_for_epoch(end.leader_epoch)
        target = truncation_target(
            EpochEnd(end.leader_epoch, end.end_offset),
            EpochEnd(own.leader_epoch, own.end_offset),
            log_end_offset=future.log_end_offset,
            high_watermark=min(current.high_watermark, future.log_end_offset),
        )
        future.truncate_to(target.offset)
        if target.is_complete:
            return
