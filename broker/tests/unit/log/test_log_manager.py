from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from random import Random
from typing import Any, TypeVar
from uuid import UUID

import pytest
from crc32c import crc32c

from odradek.base.config import BrokerConfig, TopicConfig
from odradek.base.disk_threads import DaemonThreads
from odradek.base.errors import (
    ConfigError,
    InconsistentTopicIdError,
    InvalidRecordError,
    KafkaStorageError,
    StorageError,
)
from odradek.base.types import ZERO_UUID, TopicPartition
from odradek.log.log_manager import LogManager
from odradek.log.partition_log import PartitionLog
from odradek_testkit.disk import Fate, MemoryFiles
from odradek_testkit.inline_ports import inline_threads, threads_that
from odradek_testkit.logs import batch, small_segments
from odradek_testkit.loop import VirtualClock, run_virtual

T = TypeVar("T")

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
TOPIC_ID = UUID(int=77)
CONFIG = replace(BrokerConfig(), log_dirs=("/disk1", "/disk2"), broker_id=1)


class Broker:
    """A log manager with callbacks that record their calls."""

    def __init__(self, files: MemoryFiles, config: BrokerConfig = CONFIG) -> None:
        self.clock = VirtualClock()
        self.failures: list[tuple[str, frozenset[TopicPartition]]] = []
        self.fatal: list[str] = []
        self.logs = LogManager(
            files,
            self.clock,
            config,
            disk_threads=inline_threads,
            on_directory_failure=lambda path, partitions: self.failures.append((path, partitions)),
            on_fatal=self.fatal.append,
        )

    async def start(self) -> LogManager:
        await self.logs.start("cluster", 1)
        return self.logs


def make(logs: LogManager, partition: TopicPartition, config: TopicConfig | None = None) -> PartitionLog:
    return logs.get_or_create(partition, TOPIC_ID, config or TopicConfig(), is_new=True)


def append(log: PartitionLog, count: int = 1) -> None:
    for _ in range(count):
        log.append_as_leader(batch(b"v"), leader_epoch=0)


def after_a_power_cut(files: MemoryFiles) -> MemoryFiles:
    """Return the disk after a power failure that loses all unsynced data; the original disk does not change."""
    left = files.fork()
    left.crash(Random(0), (Fate.LOST,))
    return left


def run(main: Coroutine[Any, Any, None]) -> None:
    run_virtual(main)


def test_logs_go_to_the_emptiest_directory_and_come_back(files: MemoryFiles) -> None:
    async def main() -> None:
        logs = await Broker(files).start()
        made = [make(logs, partition) for partition in (A0, A1, B0)]
        assert sorted(log.directory.split("/")[1] for log in made) in (
            ["disk1", "disk1", "disk2"],
            ["disk1", "disk2", "disk2"],
        )
        append(made[0], 3)
        assert make(logs, A0) is made[0]
        await logs.close()

        logs = await Broker(files).start()
        assert {log.topic_partition for log in logs.logs()} == {A0, A1, B0}
        log = logs.get(A0)
        assert log is not None
        assert (log.log_end_offset, log.recovery_point, log.topic_id) == (3, 3, TOPIC_ID)
        assert logs.get(TopicPartition("c", 0)) is None
        await logs.close()

    run(main())


def test_an_unclean_stop_is_recovered_and_then_flushed(files: MemoryFiles) -> None:
    async def main() -> None:
        logs = await Broker(files).start()
        append(make(logs, A0), 4)
        await logs.close(clean=False)
        logs = await Broker(files).start()
        log = logs.get(A0)
        assert log is not None
        await asyncio.sleep(1)
        assert (log.log_end_offset, log.recovery_point) == (4, 4)
        await logs.close()
        assert files.exists("/disk1/.kafka_cleanshutdown")

    run(main())


@pytest.mark.parametrize("clean", [False, True])
def test_a_stop_waits_for_what_threads_have_begun(files: MemoryFiles, clean: bool) -> None:
    """They continue when the waiting tasks are cancelled, and would write during the stop or the next start."""

    async def slowly(function: Callable[[], T]) -> T:
        await asyncio.sleep(5)
        return function()

    def in_a_thread(function: Callable[[], T]) -> Awaitable[T]:
        return asyncio.shield(asyncio.ensure_future(slowly(function)))

    async def main() -> None:
        broker = Broker(files)
        logs = LogManager(files, broker.clock, CONFIG, disk_threads=threads_that(in_a_thread))
        await logs.start("cluster", 1)
        log = make(logs, A0, small_segments(segment_bytes=200))
        append(log, 6)
        await asyncio.sleep(1)
        assert not files.exists(f"{log.directory}/leader-epoch-checkpoint")
        await logs.close(clean=clean)
        assert files.exists(f"{log.directory}/leader-epoch-checkpoint")
        operations = files.operations
        await asyncio.sleep(60)
        assert files.operations == operations

    run(main())


def test_only_a_clean_stop_writes_the_clean_shutdown_file(files: MemoryFiles) -> None:
    async def main() -> None:
        logs = await Broker(files).start()
        await logs.close(clean=False)
        assert not files.exists("/disk1/.kafka_cleanshutdown")
        logs = await Broker(files).start()
        await logs.close()
        await logs.close()
        assert files.read("/disk1/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":-1}'

    run(main())


def test_topic_ids_tell_topics_of_one_name_apart(files: MemoryFiles) -> None:
    async def main() -> None:
        logs = await Broker(files).start()
        log = logs.get_or_create(A0, ZERO_UUID, TopicConfig(), is_new=True)
        assert log.topic_id is None
        assert logs.get_or_create(A0, TOPIC_ID, TopicConfig()).topic_id == TOPIC_ID
        assert files.read(f"{log.directory}/partition.metadata").startswith(b"version: 0\ntopic_id: ")
        with pytest.raises(InconsistentTopicIdError):
            logs.get_or_create(A0, UUID(int=5), TopicConfig())
        assert logs.get_or_create(A0, ZERO_UUID, TopicConfig()) is log
        await logs.close()

    run(main())


def test_a_log_is_deleted_at_once_and_its_files_later(files: MemoryFiles) -> None:
    async def main() -> None:
        logs = await Broker(files).start()
        log = make(logs, A0)
        append(log)
        home = log.directory.rpartition("/")[0]
        logs.delete(A0)
        logs.delete(A0)
        assert logs.get(A0) is None
        (left,) = [name for name in files.list(home) if name.endswith("-delete")]
        assert left.startswith("a-0.")
        assert make(logs, A0).log_end_offset == 0
        await asyncio.sleep(CONFIG.log_segment_delete_delay_ms / 1000 + 1)
        assert not [name for name in files.list(home) if name.endswith("-delete")]
        await logs.close()

    run(main())


def test_a_power_failure_does_not_bring_a_deleted_log_back(files: MemoryFiles) -> None:
    async def main() -> None:
        logs = await Broker(files).start()
        log = make(logs, A0)
        append(log)
        log.flush()
        logs.delete(A0)
        assert after_a_power_cut(files).is_directory(log.directory)
        assert not await logs.undurable_deletions([A0])
        assert not after_a_power_cut(files).exists(log.directory)
        await logs.close()

    run(main())


def test_what_was_deleted_before_a_stop_is_removed_at_the_start(files: MemoryFiles) -> None:
    async def main() -> None:
        logs = await Broker(files).start()
        log = make(logs, A0)
        home = log.directory.rpartition("/")[0]
        logs.delete(A0)
        await logs.close()
        logs = await Broker(files).start()
        await asyncio.sleep(1)
        assert not [name for name in files.list(home) if name.endswith("-delete")]
        assert not logs.logs()
        await logs.close()

    run(main())


def test_the_directory_of_another_broker_is_refused_and_all_locks_are_released(files: MemoryFiles) -> None:
    async def main() -> None:
        files.make_directories("/disk2")
        files.write_atomically("/disk2/meta.properties", b"version=0\nbroker.id=9\n")
        with pytest.raises(ConfigError, match="belongs to broker 9"):
            await Broker(files).start()
        files.remove("/disk2/meta.properties")
        logs = await Broker(files).start()
        with pytest.raises(ConfigError, match="in use"):
            await Broker(files).start()
        await logs.close()

    run(main())


def test_a_directory_that_fails_goes_offline_with_its_logs(files: MemoryFiles) -> None:
    async def main() -> None:
        broker = Broker(files)
        logs = await broker.start()
        one, two = make(logs, A0), make(logs, A1)
        failed = one.directory.rpartition("/")[0]
        files.fail = lambda operation, path: (
            StorageError("dead", path=path) if path.startswith(failed) and operation in ("sync", "write") else None
        )
        append(two)
        with pytest.raises(KafkaStorageError):
            one.flush()
            append(one)
            one.flush()
        await asyncio.sleep(0.1)
        assert broker.failures == [(failed, frozenset({A0}))]
        assert not broker.fatal
        assert logs.offline_directories == (failed,)
        assert logs.get(A0) is None
        assert logs.is_offline(A0)
        assert not logs.is_offline(A1)
        with pytest.raises(KafkaStorageError):
            logs.get_or_create(A0, TOPIC_ID, TopicConfig())
        # It may be in the failed directory, unless it is known to be new.
        with pytest.raises(KafkaStorageError):
            logs.get_or_create(B0, TOPIC_ID, TopicConfig())
        make(logs, B0)
        reports = {report.path: report for report in logs.directories()}
        assert reports[failed].failure == "dead"
        assert set(reports[two.directory.rpartition("/")[0]].sizes) == {A1, B0}
        await logs.close()

    run(main())


def test_when_all_directories_fail_it_is_fatal(files: MemoryFiles) -> None:
    async def main() -> None:
        broker = Broker(files)
        logs = await broker.start()
        make(logs, A0)
        make(logs, A1)
        files.fail = lambda operation, path: StorageError("dead", path=path) if operation == "sync" else None
        await asyncio.sleep(1)
        assert len(broker.failures) == 2
        assert len(broker.fatal) == 1
        with pytest.raises(KafkaStorageError):
            make(logs, B0)
        await logs.close()

    run(main())


def test_a_start_without_a_working_directory_is_refused(files: MemoryFiles) -> None:
    async def main() -> None:
        files.fail = lambda operation, path: StorageError("dead", path=path)
        with pytest.raises(StorageError, match="no log directory works"):
            await Broker(files).start()

    run(main())


def test_a_start_continues_without_a_failed_directory(files: MemoryFiles) -> None:
    async def main() -> None:
        logs = await Broker(files).start()
        for partition in (A0, A1):
            append(make(logs, partition))
        home = {log.topic_partition: log.directory for log in logs.logs()}
        await logs.close()
        files.fail = lambda operation, path: (
            StorageError("dead", path=path) if path.startswith(home[A0]) and operation == "list" else None
        )
        broker = Broker(files)
        logs = await broker.start()
        await asyncio.sleep(0.1)
        assert logs.is_offline(A0)
        assert logs.get(A1) is not None
        assert broker.failures[0][0] == home[A0].rpartition("/")[0]
        await logs.close()

    run(main())


def test_a_log_in_two_directories_takes_the_second_offline(files: MemoryFiles) -> None:
    async def main() -> None:
        for disk in ("/disk1", "/disk2"):
            files.make_directories(f"{disk}/a-0")
        broker = Broker(files)
        logs = await broker.start()
        assert len(logs.offline_directories) == 1
        assert not logs.logs() or logs.get(A0) is not None
        await asyncio.sleep(0.1)
        await logs.close()

    run(main())


def test_high_watermarks_are_kept_beside_their_logs(files: MemoryFiles) -> None:
    async def main() -> None:
        logs = await Broker(files).start()
        homes = {make(logs, partition).directory.rpartition("/")[0] for partition in (A0, A1)}
        assert len(homes) == 2
        await logs.checkpoint_high_watermarks({A0: 5, A1: 7, B0: 9})
        contents = sorted(files.read(f"{home}/replication-offset-checkpoint") for home in homes)
        assert contents == [b"0\n1\na 0 5\n", b"0\n1\na 1 7\n"]
        logs.write_high_watermarks({A0: 6})
        await logs.close()
        logs = await Broker(files).start()
        assert logs.read_high_watermarks() == {A0: 6}
        await logs.close()

    run(main())


def test_retention_waits_for_the_topics_settings(files: MemoryFiles) -> None:
    """Before the first LeaderAndIsr only the broker's defaults are known; they must not delete a topic's records."""

    async def main() -> None:
        config = replace(CONFIG, log_retention_ms=1, log_retention_check_interval_ms=1000, log_segment_bytes=200)
        logs = await Broker(files, config).start()
        append(make(logs, A0, small_segments(segment_bytes=200)), 9)
        await logs.close()

        logs = await Broker(files, config).start()
        log = logs.get(A0)
        assert log is not None
        log.high_watermark = 9
        await asyncio.sleep(config.log_initial_task_delay_ms / 1000 + 5)
        assert log.log_start_offset == 0
        logs.get_or_create(A0, TOPIC_ID, small_segments(segment_bytes=200, retention_ms=-1))
        await asyncio.sleep(5)
        assert log.log_start_offset == 0
        logs.get_or_create(A0, TOPIC_ID, small_segments(segment_bytes=200, retention_ms=1))
        await asyncio.sleep(5)
        assert log.log_start_offset == 9
        await asyncio.sleep(61)
        assert not [name for name in files.list(log.directory) if name.endswith(".deleted")]
        await logs.close()

    run(main())


def test_a_log_start_where_a_segment_begins_is_checkpointed(files: MemoryFiles) -> None:
    """The removed segments below it reappear if the power fails before their removal is durable."""

    async def delete() -> MemoryFiles:
        logs = await Broker(files).start()
        log = make(logs, A0, small_segments(segment_bytes=200))
        append(log, 6)
        await asyncio.sleep(1)  # no later flush makes the names durable
        log.high_watermark = log.log_end_offset
        log.delete_records_before(4)
        assert log.delete_expired(0) == 2
        assert [segment.base_offset for segment in log.segments] == [4]
        home = log.directory.rpartition("/")[0]
        await logs.write_checkpoints()
        assert files.read(f"{home}/log-start-offset-checkpoint") == b"0\n1\na 0 4\n"
        left = after_a_power_cut(files)
        await logs.close()
        return left

    async def recover(left: MemoryFiles) -> None:
        logs = await Broker(left).start()
        log = logs.get(A0)
        assert log is not None
        assert [segment.base_offset for segment in log.segments] == [0, 2, 4]
        assert (log.log_start_offset, log.log_end_offset) == (4, 6)
        await logs.close()

    run(recover(run_virtual(delete())))


def test_a_checkpoint_that_comes_late_does_not_undo_one_that_was_written_at_once(files: MemoryFiles) -> None:
    """A worker thread has an older recovery point than the one that a truncation has written on the loop."""

    late: list[Callable[[], Any]] = []

    async def cut() -> bytes:
        meanwhile: list[Callable[[], None]] = []

        async def take_time(work: Callable[[], T]) -> T:
            while meanwhile:
                late.append(work)
                meanwhile.pop()()
            return work()

        logs = LogManager(files, VirtualClock(), CONFIG, disk_threads=threads_that(take_time))
        await logs.start("cluster", 1)
        log = make(logs, A0)
        append(log, 9)
        log.flush()

        def truncate() -> None:
            log.truncate_to(4)
            logs.checkpoint_now(log)

        meanwhile.append(truncate)
        await logs.checkpoint(log)
        assert len(late) == 1
        content = files.read(f"{logs.directory_of(A0)}/recovery-point-offset-checkpoint")
        await logs.close()
        return content

    assert run_virtual(cut()).split()[-1] == b"4"


def test_a_recreated_log_does_not_inherit_a_log_start(files: MemoryFiles) -> None:
    """The durable records of the new log end below the log start of the deleted one, and must not be lost."""

    async def replace_log() -> MemoryFiles:
        logs = await Broker(files).start()
        log = make(logs, A0)
        append(log, 9)
        log.high_watermark = log.log_end_offset
        log.delete_records_before(8)
        await logs.write_checkpoints()
        logs.delete(A0)
        log = make(logs, A0)
        append(log, 3)
        log.flush()
        left = after_a_power_cut(files)
        await logs.close()
        return left

    async def recover(left: MemoryFiles) -> None:
        logs = await Broker(left).start()
        log = logs.get(A0)
        assert log is not None
        assert (log.log_start_offset, log.log_end_offset) == (0, 3)
        await logs.close()

    run(recover(run_virtual(replace_log())))


def test_checkpoints_are_written_on_schedule(files: MemoryFiles) -> None:
    async def main() -> None:
        logs = await Broker(files).start()
        log = make(logs, A0)
        home = log.directory.rpartition("/")[0]
        append(log, 5)
        log.flush()
        log.high_watermark = 5
        log.increment_log_start_offset(2)
        await asyncio.sleep(200)
        assert files.read(f"{home}/recovery-point-offset-checkpoint") == b"0\n1\na 0 5\n"
        assert files.read(f"{home}/log-start-offset-checkpoint") == b"0\n1\na 0 2\n"
        await logs.close(clean=False)
        logs = await Broker(files).start()
        again = logs.get(A0)
        assert again is not None
        assert (again.log_start_offset, again.recovery_point) == (2, 5)
        await logs.close()

    run(main())


def test_flush_by_time(files: MemoryFiles) -> None:
    async def main() -> None:
        config = replace(CONFIG, log_flush_scheduler_interval_ms=1000)
        logs = await Broker(files, config).start()
        quick, lazy = make(logs, A0, TopicConfig(flush_ms=5000)), make(logs, A1, TopicConfig(flush_ms=10**9))
        await asyncio.sleep(1)
        append(quick)
        append(lazy)
        await asyncio.sleep(config.log_initial_task_delay_ms / 1000 + 10)
        assert (quick.recovery_point, lazy.recovery_point) == (1, 0)
        await logs.close()

    run(main())


def test_a_roll_flushes_off_the_loop(files: MemoryFiles) -> None:
    async def main() -> None:
        logs = await Broker(files).start()
        log = make(logs, A0, small_segments(segment_bytes=200))
        append(log, 5)
        assert log.recovery_point == 0
        await asyncio.sleep(0.1)
        assert log.recovery_point == 5
        await logs.close()

    run(main())


def test_idle_producers_expire(files: MemoryFiles) -> None:
    async def main() -> None:
        broker = Broker(files, replace(CONFIG, producer_id_expiration_ms=60_000))
        logs = await broker.start()
        log = make(logs, A0)
        now_ms = broker.clock.wall_ms()
        records = batch(b"v", producer_id=1, producer_epoch=0, base_sequence=0, timestamp_ms=now_ms)
        log.append_as_leader(records, leader_epoch=0)
        await asyncio.sleep(10)
        assert len(log.active_producers()) == 1
        await asyncio.sleep(1200)
        assert log.active_producers() == []
        await logs.close()

    run(main())


def test_a_real_disk_and_real_threads(tmp_path: Any) -> None:
    """A test with the production ports: worker threads, fsync, locks."""
    from odradek.base.system_ports import SystemClock, SystemFiles

    async def main() -> None:
        config = replace(CONFIG, log_dirs=(f"{tmp_path}/disk",), num_recovery_threads_per_data_dir=2)
        logs = LogManager(SystemFiles(), SystemClock(), config, disk_threads=DaemonThreads)
        await logs.start("cluster", 1)
        for number in range(5):
            append(make(logs, TopicPartition("t", number), small_segments(segment_bytes=200)), 7)
        await logs.write_checkpoints()
        await logs.close(clean=False)
        logs = LogManager(SystemFiles(), SystemClock(), config, disk_threads=DaemonThreads)
        await logs.start("cluster", 1)
        assert {log.log_end_offset for log in logs.logs()} == {7}
        await logs.close()
        logs = LogManager(SystemFiles(), SystemClock(), config, disk_threads=DaemonThreads)
        await logs.start("cluster", 1)
        assert {log.recovery_point for log in logs.logs()} == {7}
        logs.delete(TopicPartition("t", 0))
        await logs.close()

    asyncio.run(main())


def test_other_settings_of_the_broker_hold_without_a_restart(files: MemoryFiles) -> None:
    async def main() -> None:
        broker = Broker(files)
        logs = await broker.start()
        lying = batch(b"one", b"two")
        # The second record is longer than the batch: only the validation of each record detects that.
        lying[-len(b"two") - 7] = 0x7E
        lying[17:21] = crc32c(lying[21:]).to_bytes(4, "big")
        for partition in (A0, A1):
            with pytest.raises(InvalidRecordError):
                make(logs, partition).append_as_leader(memoryview(bytearray(lying)), leader_epoch=0)
        changed = replace(
            CONFIG, log_record_validation="batch", log_segment_delete_delay_ms=10_000, log_dir_min_free_bytes=0
        )
        logs.reconfigure(changed)
        for partition in (A0, A1, B0):
            make(logs, partition).append_as_leader(memoryview(bytearray(lying)), leader_epoch=0)
        logs.reconfigure(replace(changed, log_record_validation="full"))
        with pytest.raises(InvalidRecordError):
            make(logs, A0).append_as_leader(memoryview(bytearray(lying)), leader_epoch=0)

        home = logs.directory_of(B0)
        assert home is not None
        logs.delete(B0)
        await asyncio.sleep(9)
        assert [name for name in files.list(home) if name.endswith("-delete")]
        await asyncio.sleep(2)
        assert not [name for name in files.list(home) if name.endswith("-delete")]
        await logs.close()

    run(main())
