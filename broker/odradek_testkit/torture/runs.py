"""Long random runs of a broker's logs on a memory disk, with power failures, kills and interrupted recoveries.

`play` returns a `Report` or raises `TornLogError`. `tests/torture` plays a few seeds, `make torture` many. A run starts
one `LogManager` with two logs on two disks again and again. Each time it does random operations until the power fails
before a random disk operation, the process is killed, or it stops cleanly. After a power failure several outcomes are
tried, with different unsynced writes that survive. Each is recovered, compared with the model, recovered again (which
must change nothing), and recovered after an interrupted recovery. The run continues with one of them. Invariant: equal
seeds give equal runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, Final, TypeVar
from uuid import UUID

from odradek.base.config import BrokerConfig, TopicConfig
from odradek.base.types import TopicPartition
from odradek.compression import Codec
from odradek.log.checkpoints import CLEAN_SHUTDOWN_FILE, LEADER_EPOCH_FILE
from odradek.log.log_manager import LogManager
from odradek.log.partition_log import PartitionLog
from odradek.log.segments.segment import SNAPSHOT_SUFFIX
from odradek.log.values import AppendInfo
from odradek.log.write_group import GroupFullError, WriteGroup
from odradek.records.checks.validate import AppendOrigin
from odradek.records.legacy.writing import encode_set
from odradek.records.v2.batch import BatchBuilder, ControlType
from odradek.records.v2.transactions import marker_batch
from odradek_testkit.cleaning import compact
from odradek_testkit.disk import ANY_FATE, Fate, MemoryFiles, PowerCutError
from odradek_testkit.inline_ports import inline_threads, threads_that
from odradek_testkit.logs import is_flush, roll
from odradek_testkit.loop import WALL_START_MS, VirtualClock, run_virtual
from odradek_testkit.torture.model import LogModel, Row, TornLogError

T = TypeVar("T")

PLAIN: Final = TopicPartition("plain", 0)
COMPACTED: Final = TopicPartition("compacted", 0)
DISKS: Final = ("/disk1", "/disk2")
CONFIG: Final = replace(BrokerConfig(), log_dirs=DISKS, broker_id=1, log_dir_slow_ms=0)
TOPIC_ID: Final = UUID(int=4)

STEPS: Final = 250
"""Number of operations of one run."""
FUTURES: Final = 3
"""Number of outcomes that are tried for each power failure."""
LONGEST_BATCH: Final = 5
_KEYS: Final = (b"a", b"b", b"c", b"d", b"e" * 20, b"f")
_OLD_CODECS: Final = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
_SURVIVALS: Final = (ANY_FATE, ANY_FATE, (Fate.LOST,), (Fate.KEPT,), (Fate.LOST, Fate.KEPT), (Fate.TORN, Fate.KEPT))
_CONTROL_VALUES: Final = {ControlType.ABORT: b"\x00\x00\x00\x00", ControlType.COMMIT: b"\x00\x00\x00\x01"}


@dataclass(slots=True)
class Report:
    """Counts of a run."""

    steps: int = 0
    cuts: int = 0
    kills: int = 0
    stops: int = 0
    recoveries: int = 0
    cut_recoveries: int = 0
    by_operation: dict[str, int] = field(default_factory=dict)
    """Number of operations by kind."""


class _Subject:
    """One partition of a run."""

    def __init__(self, topic_partition: TopicPartition, config: TopicConfig) -> None:
        self.topic_partition = topic_partition
        self.config = config
        self.model = LogModel()
        self.epoch = 0
        self.clean_end = 0
        """Lower bound of truncations, because compaction has cleaned up to here."""
        self.producers: dict[int, int] = {}
        """Last sequence of each producer that may continue."""

    def learn(self, log: PartitionLog) -> None:
        """Read the producers from the log after a recovery or truncation."""
        self.producers = {
            each.producer_id: each.last_sequence for each in log.active_producers() if each.last_sequence >= 0
        }
        self.epoch = max(self.epoch, log.latest_epoch)


class Run:
    """The run of one seed."""

    def __init__(self, seed: int, *, steps: int = STEPS) -> None:
        """Choose the settings; starts nothing yet."""
        self.chance = chance = Random(seed)
        self.group_chance = Random(f"groups-{seed}")
        """Independent of the other random numbers, so that groups do not change those."""
        self.steps = steps
        self.report = Report()
        self.files = MemoryFiles()
        self.serial = 0
        self.logs: LogManager
        self.clock: VirtualClock
        common: dict[str, Any] = {
            "segment_bytes": chance.choice((800, 1200, 3000)),
            "index_interval_bytes": chance.choice((0, 150, 4096)),
            "file_delete_delay_ms": chance.choice((0, 60_000)),
            "preallocate": chance.random() < 0.3,
            "flush_messages": chance.choice((1, 7, 1 << 40)),
        }
        plain = replace(TopicConfig(), retention_bytes=chance.choice((-1, 3000)), **common)
        compacted = replace(
            TopicConfig(), cleanup_policy=("compact",), delete_retention_ms=chance.choice((0, 86_400_000)), **common
        )
        self.subjects = [_Subject(PLAIN, plain), _Subject(COMPACTED, compacted)]

    def play(self) -> Report:
        """Play the run. Raises `TornLogError`."""
        while self.report.steps < self.steps:
            ending = self.chance.choices((self._cut, self._kill, self._stop), (6, 2, 1))[0]
            ending()
        self._recover(self.files, self.subjects)
        return self.report

    # Lives

    def _cut(self) -> None:
        """Run until a power failure, and try several outcomes of it."""
        self.files.stop_after = self.files.operations + self.chance.randrange(1, 220)
        self._live(clean=False)
        if not self.files.is_off:
            self._killed()
            return
        self.report.cuts += 1
        for _ in range(FUTURES):
            self._try_future(self.files.fork())
        self.files.crash(self.chance, self.chance.choice(_SURVIVALS))

    def _kill(self) -> None:
        """Run until the process is killed: the kernel has all written data, so nothing may be lost."""
        self._live(clean=False)
        self._killed()

    def _killed(self) -> None:
        self.report.kills += 1
        self.files.kill()
        others = [copy(subject) for subject in self.subjects]
        for other in others:
            other.model = copy(other.model)
            other.model.flushed(1 << 62, self._starts[other.topic_partition])
        self._recover(self.files.fork(), others)

    def _stop(self) -> None:
        """Run until a clean stop, or a power failure during the stop."""
        if self.chance.random() < 0.5:
            self.files.stop_after = self.files.operations + self.chance.randrange(60, 400)
        self._live(clean=True)
        if self.files.is_off:
            self.report.cuts += 1
            self.files.crash(self.chance, self.chance.choice(_SURVIVALS))
            return
        self.report.stops += 1
        for subject in self.subjects:
            subject.model.flushed(1 << 62, self._starts[subject.topic_partition])
        if self.chance.random() < 0.5:
            # Everything was synced, so that even a power failure loses nothing.
            self.files.crash(self.chance, (Fate.LOST,))
        else:
            self.files.kill()

    def _live(self, *, clean: bool) -> None:
        count = self.chance.randrange(10, 60)
        with suppress(PowerCutError):
            self._run(self.files, self._life(count, clean=clean))

    def _run(self, files: MemoryFiles, life: Coroutine[Any, Any, None]) -> None:
        """Play a part of the run; a power failure in several tasks at once is raised as one error."""
        try:
            run_virtual(life)
        except BaseExceptionGroup as group:
            if not files.is_off or group.split(PowerCutError)[1] is not None:
                raise
            raise PowerCutError("the power is off") from group

    async def _life(self, count: int, *, clean: bool) -> None:
        self.clock = VirtualClock(self.chance.randrange(1 << 30))
        self.logs = logs = LogManager(self.files, self.clock, CONFIG, disk_threads=threads_that(self._off_the_loop))
        try:
            await self._start(logs, self.files, self.subjects)
            for subject in self.subjects:
                if logs.get(subject.topic_partition) is None:
                    subject.model.was_cut(0)
                subject.learn(logs.get_or_create(subject.topic_partition, TOPIC_ID, subject.config, is_new=True))
            self._look()
            for _ in range(count):
                await self._step(self.chance.choice(self.subjects))
                self._look()
            if clean:
                await logs.close()
                self._look()
        finally:
            self._starts = {
                subject.topic_partition: log.log_start_offset
                for subject in self.subjects
                if (log := logs.get(subject.topic_partition)) is not None
            }
            await logs.close(clean=False)

    async def _off_the_loop(self, function: Callable[[], T], /) -> T:
        """Run a function at once; a flush ends some turns of the event loop later, so that appends come in between.

        It begins at once, because the steps of a run also flush logs themselves, and a log has one flush at a time.
        """
        result = function()
        if is_flush(function):
            await _turns(self.chance.choice((0, 0, 3, 20)))
        return result

    async def _start(self, logs: LogManager, files: MemoryFiles, subjects: Sequence[_Subject]) -> None:
        await logs.start("cluster", 1)
        if files.is_off:
            raise PowerCutError("the power is off")
        self._check_online(logs)
        for subject in subjects:
            log = logs.get(subject.topic_partition)
            if log is None:
                if subject.model.durable:
                    raise TornLogError(f"the log is lost; it had the durable records {subject.model.durable}")
                continue
            subject.model.check(log)
            names = [name for name in files.list(log.directory) if name.endswith((".cleaned", ".swap", ".tmp"))]
            if names:
                raise TornLogError(f"left after a recovery: {names}")

    def _look(self) -> None:
        """Check after each step whether the power has failed, and report what is durable."""
        if self.files.is_off:
            raise PowerCutError("the power is off")
        self._check_online(self.logs)
        self._note(self.subjects)

    def _check_online(self, logs: LogManager) -> None:
        if logs.offline_directories:
            raise TornLogError(f"offline: {[each.failure for each in logs.directories()]}")

    def _note(self, subjects: Sequence[_Subject]) -> None:
        for subject in subjects:
            log = self._log(subject)
            # The new name of a log that has just moved is not durable yet, so its old recovery point applies.
            if not log._durability.has_new_names:
                durable = log.recovery_point
                if subject.config.flush_messages == 1:
                    # A broker acknowledges all records below the durable limit.
                    durable = min(log.durable_limit, log.log_end_offset)
                subject.model.flushed(durable, log.log_start_offset)

    def _log(self, subject: _Subject) -> PartitionLog:
        log = self.logs.get(subject.topic_partition)
        assert log is not None
        return log

    # Futures

    def _try_future(self, files: MemoryFiles) -> None:
        """Try one outcome of a power failure: recover, recover again, and recover after an interrupted recovery."""
        files.crash(self.chance, self.chance.choice(_SURVIVALS))
        cut = files.fork()
        before = files.operations
        was_stopped = any(files.exists(f"{disk}/{CLEAN_SHUTDOWN_FILE}") for disk in DISKS)
        self._recover(files, self.subjects)
        if was_stopped:
            # The power failed before the recovery did anything, so index files remain that a recovery rebuilds.
            self._recover(files, self.subjects)
        once = _lasting(files)
        self._recover(files, self.subjects)
        twice = _lasting(files)
        if twice != once:
            changed = {name for name, content in twice.items() if once.get(name, 0) != content}
            gone = once.keys() - twice.keys()
            raise TornLogError(f"a second recovery changes {sorted(changed)} and removes {sorted(gone)}")
        cut.stop_after = before + self.chance.randrange(max(files.operations - before, 2) // 2)
        try:
            self._recover(cut, self.subjects)
        except PowerCutError:
            self.report.cut_recoveries += 1
            cut.crash(self.chance, self.chance.choice(_SURVIVALS))
            self._recover(cut, self.subjects)

    def _recover(self, files: MemoryFiles, subjects: Sequence[_Subject]) -> None:
        """Start on a disk, compare the logs with the model, and end with a kill."""
        self.report.recoveries += 1
        others = [copy(subject) for subject in subjects]
        for other in others:
            other.model = copy(other.model)

        async def life() -> None:
            logs = LogManager(files, VirtualClock(), CONFIG, disk_threads=inline_threads)
            try:
                await self._start(logs, files, others)
                await _turns(100)
                if files.is_off:
                    raise PowerCutError("the power is off")
                self._check_online(logs)
            finally:
                await logs.close(clean=False)

        self._run(files, life())
        files.kill()

    # Steps

    async def _step(self, subject: _Subject) -> None:
        names = list(_OPERATIONS)
        name = self.chance.choices(names, [_OPERATIONS[each][0] for each in names])[0]
        self.report.steps += 1
        self.report.by_operation[name] = self.report.by_operation.get(name, 0) + 1
        await _OPERATIONS[name][1](self, subject)

    def _rows(self, subject: _Subject, count: int, *, with_time: bool = True) -> list[Row]:
        """Return new records for the end of the log; their values or timestamps are unique."""
        offset = self._log(subject).log_end_offset
        rows = []
        for place in range(count):
            self.serial += 1
            key = self.chance.choice(_KEYS)
            value: bytes | None = b"%d." % self.serial + b"v" * self.chance.choice((0, 3, 30, 90))
            if with_time and self.chance.random() < 0.1:
                value = None
            rows.append(Row(offset + place, WALL_START_MS + self.serial if with_time else -1, key, value))
        return rows

    def _batch(self, rows: Sequence[Row], **fields: Any) -> memoryview:
        builder = BatchBuilder(codec=self.chance.choice(tuple(Codec)), limit_bytes=1 << 30)
        for row in rows:
            builder.append(row.key, row.value, timestamp_ms=row.timestamp)
        return memoryview(bytearray(builder.build(**fields)))

    async def _append(self, subject: _Subject) -> None:
        """Append as a leader: plain, idempotent, or in a transaction."""
        log, chance, model = self._log(subject), self.chance, subject.model
        subject.epoch += chance.random() < 0.1
        rows = self._rows(subject, chance.randrange(1, LONGEST_BATCH + 1))
        fields: dict[str, Any] = {}
        if chance.random() < 0.6:
            fields = self._producer(subject, begins=not log.log_end_offset)
        around = {
            "producer_id": fields.get("producer_id", -1),
            "is_transactional": fields.get("is_transactional", False),
        }
        model.write(rows, leader_epoch=subject.epoch, **around)
        batch = self._batch(rows, **fields)
        again = memoryview(bytearray(batch))
        await self._drop_group(subject)
        appended = await self._in_group(log, partial(log.append_as_leader, batch, leader_epoch=subject.epoch))
        model.written(rows)
        if appended.duplicate or appended.first_offset != rows[0].offset:
            raise TornLogError(f"{rows} were appended with the result {appended}")
        if fields:
            last = fields["base_sequence"] + len(rows) - 1
            subject.producers[fields["producer_id"]] = last
            repeated = log.append_as_leader(again, leader_epoch=subject.epoch)
            if not repeated.duplicate or repeated.first_offset != rows[0].offset:
                raise TornLogError(f"the repeat of {rows} was appended with the result {repeated}")

    async def _in_group(self, log: PartitionLog, append: Callable[..., AppendInfo]) -> AppendInfo:
        """Append at once, or as if the directory was slow: flushes may come in between."""
        if self.group_chance.random() < 0.6:
            return append()
        group = log.open_group()
        appended = append(group=group)
        await self._run_group(log, group)
        log.end_write(group)
        return appended

    async def _run_group(self, log: PartitionLog, group: WriteGroup) -> None:
        log.begin_write(group)
        await _turns(self.group_chance.choice((0, 0, 2)))
        group.run()
        if group.error is not None:
            raise TornLogError(f"a group was not written: {group.error}")
        await _turns(self.group_chance.choice((0, 0, 2)))

    async def _drop_group(self, subject: _Subject) -> None:
        """Sometimes write records that do not become part of the log, because the leader epoch changes meanwhile."""
        if self.group_chance.random() < 0.9:
            return
        log, rows = self._log(subject), list[Row]()
        group = log.open_group()
        for _ in range(self.group_chance.randrange(1, 4)):
            self.serial += 1
            row = Row(group.end_offset, WALL_START_MS + self.serial, b"dropped", b"%d." % self.serial)
            try:
                log.append_as_leader(self._batch([row]), leader_epoch=subject.epoch, group=group)
            except GroupFullError:
                break
            rows.append(row)
        subject.model.write(rows, leader_epoch=subject.epoch)
        await self._run_group(log, group)
        log.drop_write(group)
        repair = log.open_group()
        await self._run_group(log, repair)
        log.end_write(repair)

    def _producer(self, subject: _Subject, *, begins: bool) -> dict[str, Any]:
        chance = self.chance
        begun, _ = subject.model.transactions(1 << 62)
        if subject.producers and chance.random() < 0.7:
            producer_id, last = chance.choice(list(subject.producers.items()))
        else:
            self.serial += 1
            producer_id, last = self.serial, -1
        is_open = producer_id in begun
        return {
            "producer_id": producer_id,
            "producer_epoch": 0,
            "base_sequence": last + 1,
            # An open transaction continues; half of the producers have transactions.
            "is_transactional": is_open or producer_id % 2 == 0,
        }

    async def _end_transaction(self, subject: _Subject) -> None:
        """Append a marker for one of the open transactions."""
        log, model = self._log(subject), subject.model
        begun, _ = model.transactions(1 << 62)
        if not begun:
            return
        producer_id = self.chance.choice(list(begun))
        kind = self.chance.choice((ControlType.ABORT, ControlType.COMMIT))
        self.serial += 1
        row = Row(log.log_end_offset, WALL_START_MS + self.serial, _CONTROL_VALUES[kind], b"\x00\x00\x00\x00\x00\x00")
        marker = marker_batch(
            kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=row.timestamp
        )
        model.write([row], leader_epoch=subject.epoch, producer_id=producer_id, is_transactional=True, ends=kind)
        records = memoryview(bytearray(marker))
        append = partial(log.append_as_leader, records, leader_epoch=subject.epoch, origin=AppendOrigin.COORDINATOR)
        await self._in_group(log, append)
        model.written([row])

    async def _follow(self, subject: _Subject) -> None:
        """Append as a follower: entries of any format, with offsets from a leader."""
        log, chance, model = self._log(subject), self.chance, subject.model
        magic = chance.randrange(3)
        rows = self._rows(subject, chance.randrange(1, LONGEST_BATCH + 1), with_time=magic > 0)
        if magic == 2:
            model.write(rows, leader_epoch=subject.epoch)
            records = self._batch(rows, base_offset=rows[0].offset, leader_epoch=subject.epoch)
        else:
            model.write(rows)
            messages = [(row.offset, row.timestamp, row.key, row.value) for row in rows]
            records = memoryview(bytearray(encode_set(messages, magic=magic, codec=chance.choice(_OLD_CODECS))))
        await self._in_group(log, partial(log.append_as_follower, records))
        model.written(rows)

    async def _roll(self, subject: _Subject) -> None:
        roll(self._log(subject))

    async def _flush(self, subject: _Subject) -> None:
        log = self._log(subject)
        log.flush()
        if log.recovery_point != log.log_end_offset:
            raise TornLogError(f"{log} is flushed up to {log.recovery_point}")

    async def _background(self, subject: _Subject) -> None:
        """Let waiting tasks run: flushes, checkpoints, removals."""
        await _turns(5)

    async def _time(self, subject: _Subject) -> None:
        """Let more than a minute pass, so that the schedules run."""
        for each in self.subjects:
            each.model.delete(self._log(each).active_segment.base_offset)
        await self.clock.sleep_ms(100_000)

    async def _checkpoint(self, subject: _Subject) -> None:
        await self.logs.write_checkpoints()
        if self.files.is_off:
            return
        for each in self.subjects:
            log = self._log(each)
            kept = log.log_start_offset > log.segments[0].base_offset
            each.model.start_floor = log.log_start_offset if kept else 0

    async def _truncate(self, subject: _Subject) -> None:
        log, model = self._log(subject), subject.model
        lowest = max(log.log_start_offset, subject.clean_end, log.log_end_offset - 25)
        offset = self.chance.randrange(lowest, max(log.log_end_offset, lowest) + 1)
        model.cut(offset - LONGEST_BATCH)
        log.truncate_to(offset)
        model.was_cut(log.log_end_offset)
        subject.learn(log)

    async def _restart_at(self, subject: _Subject) -> None:
        """Restart the log at another offset, as a follower whose leader no longer has its records."""
        log, model = self._log(subject), subject.model
        model.cut(0)
        model.start_floor = 0
        log.truncate_fully_and_start_at(self.chance.randrange(log.log_end_offset + 50))
        model.was_cut(0)
        subject.clean_end = 0
        subject.learn(log)

    async def _delete_records(self, subject: _Subject) -> None:
        log = self._log(subject)
        log.high_watermark = log.log_end_offset
        offset = self.chance.randrange(log.log_start_offset, log.log_end_offset + 1)
        subject.model.delete(offset)
        log.delete_records_before(offset)

    async def _retain(self, subject: _Subject) -> None:
        for each in self.subjects:
            log = self._log(each)
            log.high_watermark = log.log_end_offset
            each.model.delete(log.active_segment.base_offset)
        await self.logs.apply_retention()

    async def _compact(self, subject: _Subject) -> None:
        if not subject.config.compacted:
            return
        log, model = self._log(subject), subject.model
        log.high_watermark = log.log_end_offset
        segments = log.cleanable()
        if not segments:
            return
        first_dirty = subject.clean_end if self.chance.random() < 0.5 else 0
        end_offset = segments[-1].next_offset
        model.compact(end_offset, log.recovery_point)
        subject.clean_end = max(subject.clean_end, end_offset)
        compact(self.files, log, self.clock, first_dirty if first_dirty < end_offset else 0)

    async def _move(self, subject: _Subject) -> None:
        """Move the log to the other disk; sometimes leave the move unfinished."""
        logs, partition, log = self.logs, subject.topic_partition, self._log(subject)
        logs.drop_future(partition)
        target = next(disk for disk in DISKS if disk != logs.directory_of(partition))
        future = logs.create_future(partition, target)
        while future.log_end_offset < log.log_end_offset:
            content = log.read(max(future.log_end_offset, log.log_start_offset), max_bytes=700).load()
            future.append_as_follower(memoryview(content))
        future.high_watermark = future.log_end_offset
        future.increment_log_start_offset(log.log_start_offset)
        if self.chance.random() < 0.2:
            return
        future.flush()
        logs.mark_future(future)
        # The checkpoint with the log start of the new directory is written after the swap.
        subject.model.start_floor = 0
        logs.swap_future(partition)


# A torn or old producer snapshot is removed when it is read. An epoch that began before a log start with an old format
# is removed when the log is scanned again.
_PASSING: Final = (SNAPSHOT_SUFFIX, LEADER_EPOCH_FILE)


def _lasting(files: MemoryFiles) -> dict[str, bytes | None]:
    """Return the content of the disk, except for files that a later recovery may change."""
    return {path: content for path, content in files.content().items() if not path.endswith(_PASSING)}


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


_OPERATIONS: Final[dict[str, tuple[int, Callable[[Run, _Subject], Awaitable[None]]]]] = {
    "append": (40, Run._append),
    "follow": (14, Run._follow),
    "end transaction": (10, Run._end_transaction),
    "roll": (4, Run._roll),
    "flush": (6, Run._flush),
    "background": (10, Run._background),
    "time": (1, Run._time),
    "checkpoint": (5, Run._checkpoint),
    "truncate": (5, Run._truncate),
    "restart": (1, Run._restart_at),
    "delete records": (2, Run._delete_records),
    "retention": (2, Run._retain),
    "compaction": (5, Run._compact),
    "move": (2, Run._move),
}
"""Weight and action of each step."""


def play(seed: int, *, steps: int = STEPS) -> Report:
    """Play one run. Raises `TornLogError`, and any other error."""
    # The log warns of the faults that were injected.
    logging.getLogger("odradek.log").setLevel(logging.CRITICAL + 1)
    return Run(seed, steps=steps).play()
