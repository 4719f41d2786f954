from __future__ import annotations

from dataclasses import replace
from typing import Any
from weakref import WeakSet

import pytest

from odradek.base.errors import StorageError
from odradek.log.epoch_cache import EpochEndOffset
from odradek.log.partition_log import PartitionLog
from odradek.log.recovery.log_recovery import LoadRequest, load
from odradek.records.checks.validate import AppendOrigin
from odradek.records.v2.batch import ControlType
from odradek.records.v2.transactions import marker_batch
from odradek_testkit import disk
from odradek_testkit.batches import iterate
from odradek_testkit.disk import MemoryFile, MemoryFiles
from odradek_testkit.logs import DIRECTORY, TP, RecordingHost, batch, open_log, small_segments
from odradek_testkit.loop import ManualClock

CONFIG = small_segments(segment_bytes=200)
T0 = 1_700_000_000_000


def path(offset: int, suffix: str = ".log") -> str:
    return f"{DIRECTORY}/{offset:020d}{suffix}"


def filled(files: MemoryFiles, clock: ManualClock, *, batches: int = 7) -> PartitionLog:
    """Return a log of one producer: single-record batches with different leader epochs, two in each segment."""
    log = open_log(files, clock, config=CONFIG)
    for number in range(batches):
        records = batch(b"v", producer_id=1, producer_epoch=0, base_sequence=number, timestamp_ms=T0 + number)
        log.append_as_leader(records, leader_epoch=number)
    return log


def reopened(files: MemoryFiles, clock: ManualClock, **known: int) -> PartitionLog:
    return open_log(files, clock, config=CONFIG, **known)  # type: ignore[arg-type]


def offsets(log: PartitionLog) -> list[int]:
    found = []
    for offset in range(log.log_start_offset, log.log_end_offset):
        content = log.read(offset, max_bytes=1).load()
        found += [header.base_offset for _, header in iterate(content)]
    return found


class OpenFiles:
    """Counts the `.log` files that are open at the same time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most = 0
        self._open = WeakSet[MemoryFile]()
        note = self._note

        class TrackedFile(MemoryFile):
            def __init__(self, *arguments: Any, **options: Any) -> None:
                super().__init__(*arguments, **options)
                note(self)

        monkeypatch.setattr(disk, "MemoryFile", TrackedFile)

    def __len__(self) -> int:
        return len(self._open)

    def _note(self, file: MemoryFile) -> None:
        if file.path.endswith(".log"):
            self._open.add(file)
            self.most = max(self.most, len(self))


@pytest.mark.parametrize("known", [{"recovery_point": 0}, {"recovery_point": 40}, {"clean": True}])
def test_loading_has_few_files_open_however_many_segments_a_log_has(
    files: MemoryFiles, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, known: dict[str, Any]
) -> None:
    """Also without snapshots, so that the batches of all segments are replayed."""
    log = filled(files, clock, batches=41)
    log.flush()
    log.close()
    assert len(log.segments) == 21
    for segment in log.segments:
        files.remove(segment.path(".snapshot"))
    files.remove(path(41, ".snapshot"))
    producers = log.active_producers()
    opened = OpenFiles(monkeypatch)
    again = reopened(files, clock, **known)
    assert again.active_producers() == producers
    assert opened.most <= 2
    assert len(opened) <= 1


def test_a_truncation_leaves_no_files_of_replayed_segments_open(
    files: MemoryFiles, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(files, clock, batches=41).close()
    opened = OpenFiles(monkeypatch)
    log = reopened(files, clock, clean=True)
    for segment in log.segments:
        files.remove(segment.path(".snapshot"))
    log.read(3, max_bytes=1)
    is_read = log.segments[1]
    log.truncate_to(35)
    assert [producer.last_sequence for producer in log.active_producers()] == [34]
    assert [segment for segment in log.segments[:-1] if segment.is_open] == [is_read], "the cache still has it"
    assert len(opened) == 2


def test_after_a_kill_nothing_that_was_written_is_lost(files: MemoryFiles, clock: ManualClock) -> None:
    log = filled(files, clock)
    again = reopened(files, clock)
    assert (again.log_start_offset, again.log_end_offset, again.latest_epoch) == (0, 7, 6)
    assert offsets(again) == list(range(7))
    assert again.active_producers() == log.active_producers()
    assert again.end_offset_for_epoch(2) == EpochEndOffset(2, 3)
    assert again.offset_for_timestamp(T0 + 4) == log.offset_for_timestamp(T0 + 4)
    assert [segment.max_timestamp for segment in again.segments] == [T0 + 1, T0 + 3, T0 + 5, T0 + 6]


@pytest.mark.parametrize("damage", ["cut", "flip", "garbage"])
def test_the_log_ends_before_the_first_wrong_batch(files: MemoryFiles, clock: ManualClock, damage: str) -> None:
    log = filled(files, clock)
    size = log.segments[1].size
    file = files.open(path(2))
    if damage == "cut":
        file.truncate(size - 1)
    elif damage == "flip":
        (last,) = file.pread(1, size - 1)
        file.pwritev((bytes([last ^ 4]),), size - 1)
    else:
        file.pwritev((b"\x7f" * 100,), size)
    again = reopened(files, clock)
    kept = 3 if damage in ("cut", "flip") else 4
    assert again.log_end_offset == kept
    assert offsets(again) == list(range(kept))
    assert [segment.base_offset for segment in again.segments] == [0, 2]
    assert [producer.last_sequence for producer in again.active_producers()] == [kept - 1]
    assert again.latest_epoch == kept - 1
    assert files.size(path(2)) == again.segments[1].size
    # The truncated records do not reappear.
    once_more = reopened(files, clock)
    assert offsets(once_more) == list(range(kept))


def test_batches_that_a_crash_took_after_a_truncation_leave_no_hole(
    files: MemoryFiles, clock: ManualClock, host: RecordingHost
) -> None:
    """The recovery point was above the new end, but was checkpointed again before another segment could follow."""
    log = open_log(files, clock, host=host, config=CONFIG)
    for number in range(7):
        log.append_as_leader(batch(b"v", timestamp_ms=T0 + number), leader_epoch=number)
    log.flush()
    log.checkpointed(log.recovery_point)
    log.truncate_to(3)
    size = log.active_segment.size
    for number in range(3):
        log.append_as_leader(batch(b"w", timestamp_ms=T0 + number), leader_epoch=9)
    assert host.forced_checkpoints == 1
    assert len(log.segments) > 2
    files.open(path(2)).truncate(size)
    again = reopened(files, clock, recovery_point=log.recovery_point)
    assert offsets(again) == [0, 1, 2]


def test_segments_below_the_recovery_point_are_trusted(files: MemoryFiles, clock: ManualClock) -> None:
    log = filled(files, clock)
    log.flush()
    file = files.open(path(0))
    file.pwritev((b"\xff",), log.segments[0].size - 1)
    reads: list[str] = []
    files.fail = lambda operation, where: reads.append(where) if operation == "read" else None  # type: ignore[func-returns-value]
    again = reopened(files, clock, recovery_point=5)
    assert again.log_end_offset == 7
    assert path(0) not in reads
    assert path(4) in reads


def test_offsets_that_fall_are_wrong(files: MemoryFiles, clock: ManualClock) -> None:
    log = filled(files, clock, batches=2)
    content = files.read(path(0))
    log.segments[0].file.pwritev((content,), len(content))
    assert reopened(files, clock).log_end_offset == 2


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "short", "corrupt last"])
@pytest.mark.parametrize("segment", [2, 6])
def test_an_invalid_index_is_rebuilt_even_after_a_clean_stop(
    files: MemoryFiles, clock: ManualClock, suffix: str, damage: str, segment: int
) -> None:
    log = filled(files, clock)
    log.close()
    good = files.read(path(segment, suffix))
    if damage == "missing":
        files.remove(path(segment, suffix))
    elif damage == "short":
        files.write_atomically(path(segment, suffix), good[:-1])
    else:
        files.write_atomically(path(segment, suffix), good + b"\xff" * len(good))
    again = reopened(files, clock, clean=True)
    assert offsets(again) == list(range(7))
    assert again.offset_for_timestamp(T0 + 3) == log.offset_for_timestamp(T0 + 3)
    again.close()
    if damage != "corrupt last" or segment == 6:
        assert files.read(path(segment, suffix)) == good


def test_a_clean_start_reads_no_sealed_segment(files: MemoryFiles, clock: ManualClock) -> None:
    filled(files, clock).close()
    reads: list[str] = []
    files.fail = lambda operation, where: reads.append(where) if operation == "read" else None  # type: ignore[func-returns-value]
    again = reopened(files, clock, clean=True)
    assert again.log_end_offset == again.recovery_point == 7
    assert not {path(0), path(2), path(4)} & set(reads)


def test_a_clean_start_reads_no_more_of_the_last_segment_than_its_ends(files: MemoryFiles, clock: ManualClock) -> None:
    """For any record timestamps: here the newest comes first."""
    config = small_segments(segment_bytes=1 << 20)
    log = open_log(files, clock, config=config)
    for number in range(9):
        log.append_as_leader(batch(b"v", timestamp_ms=T0 - number), leader_epoch=0)
    log.close()
    file = files.open(path(0))
    middle = range(files.size(path(0)) // 3, 2 * files.size(path(0)) // 3)
    file.pwritev((b"\xff" * len(middle),), middle.start)
    again = open_log(files, clock, config=config, clean=True)
    (segment,) = again.segments
    assert (again.log_end_offset, segment.max_timestamp, segment.max_timestamp_offset) == (9, T0, 0)
    assert segment.first_timestamp == T0


def test_snapshots_that_are_torn_give_way_to_older_ones(files: MemoryFiles, clock: ManualClock) -> None:
    log = filled(files, clock)
    assert files.exists(path(6, ".snapshot"))
    log.flush()
    files.write_atomically(path(6, ".snapshot"), files.read(path(6, ".snapshot"))[:-3])
    again = reopened(files, clock, recovery_point=6)
    assert again.active_producers() == log.active_producers()
    assert not files.exists(path(6, ".snapshot"))
    assert files.exists(path(4, ".snapshot"))


@pytest.mark.parametrize("clean", [False, True])
def test_an_expired_producer_is_not_loaded(files: MemoryFiles, clock: ManualClock, clean: bool) -> None:
    """Except for the records that are read anyway, from which it is restored, as in Kafka."""
    log = filled(files, clock, batches=6)
    log.append_as_leader(batch(b"v", timestamp_ms=T0 + 6), leader_epoch=6)
    log.close()
    request = LoadRequest(
        topic_partition=TP,
        directory=DIRECTORY,
        config=CONFIG,
        now_ms=T0 + 1000,
        recovery_point=7,
        clean=clean,
        producer_expiration_ms=500,
    )
    assert not load(files, request).producers.active()
    assert load(files, replace(request, producer_expiration_ms=5000)).producers.active()


def test_stray_snapshots_go(files: MemoryFiles, clock: ManualClock) -> None:
    log = filled(files, clock)
    log.close()
    again = reopened(files, clock, clean=True)
    records = batch(b"v", producer_id=1, producer_epoch=0, base_sequence=7)
    again.append_as_leader(records, leader_epoch=9)
    again.close()
    names = [name for name in files.list(DIRECTORY) if name.endswith(".snapshot")]
    assert len(names) == 5
    reopened(files, clock, clean=True)
    left = [int(name.split(".")[0]) for name in files.list(DIRECTORY) if name.endswith(".snapshot")]
    assert left == [2, 4, 6, 8]


def test_a_snapshot_of_a_former_log_is_not_used(files: MemoryFiles, clock: ManualClock) -> None:
    """The renames of a truncation are durable up to some point: a file of a clean stop may exist without batches."""
    log = reopened(files, clock)
    opening = batch(b"v", producer_id=8, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.append_as_leader(opening, leader_epoch=0)
    log.close()
    stale = files.read(path(1, ".snapshot"))
    log = reopened(files, clock, clean=True)
    log.truncate_fully_and_start_at(5)
    log.append_as_leader(batch(b"w"), leader_epoch=1)
    log.flush()
    files.write_atomically(path(1, ".snapshot"), stale)
    again = reopened(files, clock)
    again.high_watermark = again.log_end_offset
    assert (offsets(again), again.active_producers(), again.first_unstable_offset) == ([5], [], None)
    assert not files.exists(path(1, ".snapshot"))


def test_a_snapshot_at_the_log_start_describes_only_deleted_records(files: MemoryFiles, clock: ManualClock) -> None:
    log = filled(files, clock, batches=2)
    log.append_as_leader(batch(b"w"), leader_epoch=2)
    for suffix in (".log", ".index", ".timeindex"):
        files.remove(path(0, suffix))
    assert files.exists(path(2, ".snapshot"))
    again = reopened(files, clock)
    assert (again.log_start_offset, again.log_end_offset, again.active_producers()) == (2, 3, [])


@pytest.mark.parametrize("log_start_offset", [0, 1])
def test_a_snapshot_of_truncated_records_is_not_used(
    files: MemoryFiles, clock: ManualClock, log_start_offset: int
) -> None:
    config = small_segments(segment_bytes=1 << 20)
    log = open_log(files, clock, config=config)
    log.append_as_leader(batch(b"a"), leader_epoch=0)
    log.append_as_leader(
        batch(b"b", producer_id=8, producer_epoch=0, base_sequence=0, is_transactional=True), leader_epoch=0
    )
    log.close()
    stale = files.read(path(2, ".snapshot"))
    log = open_log(files, clock, config=config, clean=True)
    log.truncate_to(1)
    for number in range(2):
        log.append_as_leader(batch(b"c%d" % number), leader_epoch=1)
    log.flush()
    files.write_atomically(path(2, ".snapshot"), stale)
    again = open_log(files, clock, config=config, log_start_offset=log_start_offset)
    again.high_watermark = again.log_end_offset
    assert (again.log_end_offset, again.active_producers(), again.first_unstable_offset) == (3, [], None)


def test_open_transactions_come_back(files: MemoryFiles, clock: ManualClock) -> None:
    log = open_log(files, clock)
    for producer_id in (1, 2):
        records = batch(b"v", producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
        log.append_as_leader(records, leader_epoch=0)
    marker = marker_batch(ControlType.ABORT, producer_id=1, producer_epoch=0, coordinator_epoch=5, timestamp_ms=T0)
    log.append_as_leader(memoryview(marker), leader_epoch=0, origin=AppendOrigin.COORDINATOR)
    for clean in (False, True):
        again = open_log(files, clock, clean=clean)
        again.high_watermark = again.log_end_offset
        assert again.first_unstable_offset == 1
        assert [producer.coordinator_epoch for producer in again.active_producers()] == [5, -1]
        again.close()


def test_deleted_and_incomplete_files_are_removed(files: MemoryFiles, clock: ManualClock) -> None:
    filled(files, clock)
    for name in ("00000000000000000000.log.deleted", "00000000000000000000.index.deleted", "x.tmp"):
        files.write_atomically(f"{DIRECTORY}/{name}", b"")
    files.write_atomically(path(99, ".index"), b"")
    again = reopened(files, clock)
    assert offsets(again) == list(range(7))
    assert not [name for name in files.list(DIRECTORY) if name.endswith((".deleted", ".tmp")) or "099" in name]


def swap(files: MemoryFiles, base: int, *numbers: int) -> None:
    content = b"".join(bytes(batch(b"w", base_offset=number, leader_epoch=number)) for number in numbers)
    files.write_atomically(path(base, ".log.swap"), content)


def test_a_complete_replacement_is_put_in_place(files: MemoryFiles, clock: ManualClock) -> None:
    """A cleaner merged [0, 1] and [2, 3] into one segment that kept 1 and 3, and was stopped before the last step."""
    filled(files, clock).close()
    swap(files, 0, 1, 3)
    files.write_atomically(path(0, ".index.swap"), b"")
    again = reopened(files, clock, clean=True)
    assert [segment.base_offset for segment in again.segments] == [0, 4, 6]
    assert offsets(again) == [1, 1, 3, 3, 4, 5, 6]
    assert not [name for name in files.list(DIRECTORY) if name.endswith(".swap")]


def test_an_incomplete_replacement_is_dropped(files: MemoryFiles, clock: ManualClock) -> None:
    """A remaining .cleaned file shows that the replacements from its offset on are incomplete."""
    filled(files, clock).close()
    swap(files, 0, 1, 3)
    files.write_atomically(path(0, ".timeindex.cleaned"), b"")
    again = reopened(files, clock, clean=True)
    assert offsets(again) == list(range(7))
    assert not [name for name in files.list(DIRECTORY) if name.endswith((".swap", ".cleaned"))]


def test_the_log_start_comes_from_the_checkpoint(files: MemoryFiles, clock: ManualClock) -> None:
    filled(files, clock)
    again = reopened(files, clock, log_start_offset=3)
    assert (again.log_start_offset, again.log_end_offset) == (3, 7)
    assert again.end_offset_for_epoch(0) == EpochEndOffset(0, 3)


def test_a_log_that_lost_everything_above_its_start_begins_there(files: MemoryFiles, clock: ManualClock) -> None:
    filled(files, clock)
    again = reopened(files, clock, log_start_offset=50)
    assert (again.log_start_offset, again.log_end_offset, again.size_bytes) == (50, 50, 0)
    assert [name for name in files.list(DIRECTORY) if name.endswith(".log")] == ["00000000000000000050.log"]


def test_a_recovery_point_above_the_end_is_lowered(files: MemoryFiles, clock: ManualClock) -> None:
    filled(files, clock)
    assert reopened(files, clock, recovery_point=5000).recovery_point == 7


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "partition.metadata"])
def test_malformed_small_files_are_no_obstacle(files: MemoryFiles, clock: ManualClock, name: str) -> None:
    filled(files, clock)
    files.write_atomically(f"{DIRECTORY}/{name}", b"\x00\x00\x00")
    again = reopened(files, clock)
    assert again.topic_id is None
    assert again.latest_epoch == 6


def test_a_disk_failure_is_raised(files: MemoryFiles, clock: ManualClock) -> None:
    filled(files, clock)
    files.fail = lambda operation, where: StorageError("broken", path=where) if operation == "read" else None
    with pytest.raises(StorageError, match="broken"):
        reopened(files, clock)


def test_recovered_indexes_reach_the_disk_with_the_next_flush(
    files: MemoryFiles, clock: ManualClock, host: RecordingHost
) -> None:
    filled(files, clock)
    again = open_log(files, clock, host=host, config=CONFIG)
    again.flush()
    assert files.size(path(2, ".index")) == 8
    assert files.size(path(2, ".timeindex")) == 12


def stopped(files: MemoryFiles, clock: ManualClock) -> None:
    """Return a log after a clean stop, with two segments of two batches and one batch."""
    filled(files, clock, batches=3).close()


def noted(files: MemoryFiles) -> list[tuple[str, str]]:
    """Return a list that records every later operation of the disk with its path."""
    done: list[tuple[str, str]] = []

    def note(operation: str, where: str) -> None:
        done.append((operation, where))

    files.fail = note
    return done


def test_index_files_of_a_clean_stop_stay_until_the_first_append(files: MemoryFiles, clock: ManualClock) -> None:
    stopped(files, clock)
    indexes = [path(2, ".index"), path(2, ".timeindex")]
    again = reopened(files, clock, recovery_point=3, clean=True)
    assert all(files.exists(each) for each in indexes)
    again.flush()
    again.append_as_leader(batch(b"v", timestamp_ms=T0 + 9), leader_epoch=9)
    assert not any(files.exists(each) for each in indexes)
    done = noted(files)
    again.flush()
    assert ("sync directory", DIRECTORY) in done, (
        "the recovery point would pass batches that the old index files mark as valid"
    )
    assert offsets(again) == [0, 1, 2, 3]


def test_index_files_of_a_clean_stop_go_durably_before_a_truncation(files: MemoryFiles, clock: ManualClock) -> None:
    stopped(files, clock)
    again = reopened(files, clock, recovery_point=3, clean=True)
    done = noted(files)
    again.truncate_to(2)
    operations = [where for operation, where in done if operation in ("remove", "sync directory", "truncate")]
    assert operations.index(path(2, ".index")) < operations.index(DIRECTORY) < operations.index(path(2))
    assert again.log_end_offset == 2


def test_an_unchanged_log_is_closed_without_a_write(files: MemoryFiles, clock: ManualClock) -> None:
    stopped(files, clock)
    again = reopened(files, clock, recovery_point=3, clean=True)
    again.flush()
    before = {name: files.read(f"{DIRECTORY}/{name}") for name in files.list(DIRECTORY)}
    done = noted(files)
    again.close()
    files.fail = None
    assert not [each for each in done if each[0] in ("write", "remove") and "index" in each[1]]
    assert {name: files.read(f"{DIRECTORY}/{name}") for name in files.list(DIRECTORY)} == before
    assert offsets(reopened(files, clock, recovery_point=3, clean=True)) == [0, 1, 2]
