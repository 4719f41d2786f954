"""The power fails after every operation of a short run, and again during each recovery.

The run appends, rolls, flushes, truncates, raises the log start, removes expired segments, restarts the log at another
offset, checkpoints and closes, as with a log manager. After each failure the disk keeps what the fault model of
`odradek_testkit/disk` allows, chosen by seeds. In the recovered log, every record that was synced, acknowledged and not
truncated since must exist; the records must be a contiguous range of written records; and an interrupted recovery, at
any operation, must end with the same log.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from odradek.base.errors import StorageError
from odradek.base.types import TopicPartition
from odradek.log import checkpoints
from odradek.log.partition_log import PartitionLog
from odradek.records.v2.record import decode_batch
from odradek_testkit.batches import iterate
from odradek_testkit.disk import MemoryFiles, PowerCutError
from odradek_testkit.logs import DIRECTORY, TP, RecordingHost, batch, open_log, small_segments
from odradek_testkit.loop import ManualClock

CONFIG = small_segments(segment_bytes=220, file_delete_delay_ms=0)
ROOT = DIRECTORY.rpartition("/")[0]
RECOVERY_POINTS = f"{ROOT}/{checkpoints.RECOVERY_POINT_FILE}"
LOG_STARTS = f"{ROOT}/{checkpoints.LOG_START_FILE}"
CLEAN_MARK = f"{ROOT}/{checkpoints.CLEAN_SHUTDOWN_FILE}"
SEEDS = range(6)


class Run:
    """A log on a disk, used as by a log manager, and the records that must exist after a crash."""

    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.files.make_directories(ROOT)
        self.files.sync_directory("/")
        self.clock = ManualClock()
        self.written: dict[int, set[bytes]] = {}
        """All values that were ever at an offset."""
        self.durable: dict[int, bytes] = {}
        """Records that were synced and acknowledged, and neither truncated nor deleted since."""
        self.current: dict[int, bytes] = {}
        self.count = 0

    def open(self) -> PartitionLog:
        """Load the log as at a start, with the checkpoints on the disk."""
        self.host = RecordingHost(self.files)
        self.host.holds_renames = True
        clean = self.files.exists(CLEAN_MARK)
        if clean:
            self.files.remove(CLEAN_MARK)
            self.files.sync_directory(ROOT)
        return open_log(
            self.files,
            self.clock,
            host=self.host,
            config=CONFIG,
            clean=clean,
            recovery_point=self._checkpointed(RECOVERY_POINTS),
            log_start_offset=self._checkpointed(LOG_STARTS),
        )

    def _checkpointed(self, path: str) -> int:
        try:
            return checkpoints.decode_offsets(self.files.read(path), path).get(TopicPartition(*TP), 0)
        except StorageError:
            return 0

    def append(self, log: PartitionLog, epoch: int) -> None:
        self.count += 1
        value = b"%d" % self.count
        self.written.setdefault(log.log_end_offset, set()).add(value)
        records = batch(value, timestamp_ms=self.clock.wall_ms() + self.count)
        self.current[log.append_as_leader(records, leader_epoch=epoch).first_offset] = value

    def flush(self, log: PartitionLog) -> None:
        self.host.flushes.clear()
        log.flush()
        # The directory of a new log is made durable by the checkpoint's directory sync.
        self.files.sync_directory(ROOT)
        self.durable = dict(self.current)

    def checkpoint(self, log: PartitionLog) -> None:
        self.files.write_atomically(RECOVERY_POINTS, checkpoints.encode_offsets({TP: log.recovery_point}))
        self.files.write_atomically(LOG_STARTS, checkpoints.encode_offsets({TP: log.log_start_offset}))

    def truncate(self, log: PartitionLog, offset: int) -> None:
        for kept in (self.durable, self.current):
            for gone in [known for known in kept if known >= offset]:
                del kept[gone]
        log.truncate_to(offset)
        self.checkpoint(log)

    def raise_start(self, log: PartitionLog, offset: int) -> None:
        log.high_watermark = log.log_end_offset
        for kept in (self.durable, self.current):
            for gone in [known for known in kept if known < offset]:
                del kept[gone]
        log.increment_log_start_offset(offset)
        self.checkpoint(log)
        log.delete_expired(0)

    def start_again(self, log: PartitionLog, offset: int) -> None:
        self.durable.clear()
        self.current.clear()
        log.truncate_fully_and_start_at(offset)
        self.checkpoint(log)

    def play(self) -> None:
        """Play the run: five starts of a log; all stops but the last are clean."""
        log = self.open()
        for number in range(5):
            self.append(log, number // 2)
        self.flush(log)
        self.checkpoint(log)
        for _ in range(3):
            self.append(log, 3)
        self.truncate(log, 6)
        for _ in range(4):
            self.append(log, 4)
        self.flush(log)
        self.raise_start(log, 3)
        self.append(log, 4)
        self.host.run_renames()
        log = self.restart(log)
        for _ in range(3):
            self.append(log, 7)
        self.flush(log)
        self.checkpoint(log)
        self.append(log, 8)
        self.truncate(log, 4)
        for _ in range(5):
            self.append(log, 9)
        self.flush(log)
        # Once truncate and once append first, while the index files of the clean stop still exist.
        log = self.restart(log)
        self.truncate(log, log.log_end_offset - 1)
        for _ in range(3):
            self.append(log, 10)
        self.flush(log)
        log = self.restart(log)
        self.flush(log)
        for _ in range(3):
            self.append(log, 11)
        self.flush(log)
        # Expired segments that wait for their renames, when the log starts again with their names and above them.
        for offset in (4, 30):
            self.raise_start(log, log.log_end_offset - 2)
            self.start_again(log, offset)
            for _ in range(3):
                self.append(log, 12)
            self.flush(log)
            self.host.run_renames()
        # The clean stop finishes the renames.
        self.raise_start(log, log.log_end_offset - 1)
        log = self.restart(log)

    def restart(self, log: PartitionLog) -> PartitionLog:
        """Stop cleanly and load the log again."""
        log.close()
        self.durable = dict(self.current)
        self.checkpoint(log)
        self.files.write_atomically(CLEAN_MARK, b"")
        return self.open()

    def demand(self, log: PartitionLog) -> dict[int, bytes]:
        """Check the recovered log and return its records."""
        found: dict[int, bytes] = {}
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            content = log.read(offset, max_bytes=1 << 20).load()
            batches = list(iterate(content))
            assert batches, f"nothing to read at {offset} of {log}"
            for position, header in batches:
                for record in decode_batch(content, position, header, limit=1 << 20):
                    assert record.value is not None
                    found[record.offset] = record.value
                offset = header.next_offset
        found = {offset: value for offset, value in found.items() if offset >= log.log_start_offset}
        assert list(found) == list(range(log.log_start_offset, log.log_end_offset))
        for offset, value in found.items():
            assert value in self.written[offset]
        missing = {
            offset: value
            for offset, value in self.durable.items()
            if offset >= log.log_start_offset and found.get(offset) != value
        }
        assert not missing, f"synced records are lost: {missing}"
        # The log start must be one of the raised log starts.
        assert log.log_start_offset <= min(self.durable, default=log.log_start_offset)
        epochs = [log.epoch_of(offset) for offset in found]
        assert epochs == sorted(epochs)
        return found


def operations_of(play: Callable[[], object], files: MemoryFiles) -> int:
    before = files.operations
    play()
    return files.operations - before


def length() -> int:
    run = Run()
    return operations_of(run.play, run.files)


LENGTH = length()


def crashed_after(operations: int, seed: int) -> Run:
    run = Run()
    run.files.stop_after = run.files.operations + operations
    with pytest.raises(PowerCutError):
        run.play()
    run.files.crash(random.Random(f"{operations}/{seed}"))
    return run


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_synced_survives_every_crash(seed: int) -> None:
    for operations in range(LENGTH):
        run = crashed_after(operations, seed)
        log = run.open()
        found = run.demand(log)
        # The log can be used, and is equal after another restart.
        run.current = dict(found)
        run.append(log, 20)
        run.flush(log)
        again = run.open()
        assert run.demand(again) == run.current


@pytest.mark.parametrize("seed", SEEDS)
def test_an_interrupted_recovery_can_be_repeated(seed: int) -> None:
    """Test every third crash of the run, and each crash during its recovery."""
    for operations in range(seed % 3, LENGTH, 3):
        cut = 0
        while True:
            run = crashed_after(operations, seed)
            run.files.stop_after = run.files.operations + cut
            try:
                log = run.open()
            except PowerCutError:
                run.files.crash(random.Random(f"{operations}/{seed}/{cut}"))
                run.demand(run.open())
                cut += 1
                continue
            run.files.stop_after = None
            run.demand(log)
            break


def test_the_run_is_long_enough_to_matter() -> None:
    """The run does all operations; otherwise the other tests in this file would prove nothing."""
    assert LENGTH > 100
