from __future__ import annotations

from random import Random

import pytest

from odradek.base.errors import CorruptMessageError, KafkaStorageError, StorageError
from odradek.log.compaction.cleaned_segment import SegmentWriter
from odradek.log.partition_log import PartitionLog
from odradek.log.segments.transaction_index import AbortedTxn
from odradek.log.values import CleanedSwap
from odradek.records.checks.validate import AppendOrigin
from odradek.records.v2.batch import ControlType
from odradek_testkit.batches import iterate
from odradek_testkit.cleaning import compact, records_of
from odradek_testkit.disk import Fate, MemoryFiles
from odradek_testkit.logs import DIRECTORY, RecordingHost, batch, marker, open_log, small_segments
from odradek_testkit.loop import WALL_START_MS, ManualClock

CONFIG = small_segments(segment_bytes=160)
T0 = 1_600_000_000_000
DATED = 1_650_000_000_000


def filled(files: MemoryFiles, clock: ManualClock, host: RecordingHost) -> PartitionLog:
    """Return a durable log with segments of two single-record batches at 0, 2, 4, 6, and one in the active segment."""
    log = open_log(files, clock, host=host, config=CONFIG)
    for number in range(9):
        records = batch(
            b"v%d" % number, timestamp_ms=T0 + number, producer_id=1, producer_epoch=0, base_sequence=number
        )
        log.append_as_leader(records, leader_epoch=number // 3)
    log.high_watermark = log.log_end_offset
    log.flush()
    log.checkpointed(log.recovery_point)
    host.flushes.clear()
    return log


def clean(files: MemoryFiles, base: int, *offsets: int, aborted: AbortedTxn | None = None) -> None:
    """Write the `.cleaned` files of a segment with some of its records."""
    writer = SegmentWriter(files, DIRECTORY, base, 0)
    for offset in offsets:
        entry = bytes(batch(b"v%d" % offset, timestamp_ms=T0 + offset, base_offset=offset, leader_epoch=offset // 3))
        writer.append(entry, offset, T0 + offset)
    if aborted is not None:
        writer.note_aborted(aborted)
    writer.finish(DATED)


def offsets(log: PartitionLog) -> list[int]:
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        batches = [header for _, header in iterate(log.read(offset, max_bytes=1 << 20).load())]
        found += [header.base_offset for header in batches]
        offset = batches[-1].next_offset
    return found


def names(files: MemoryFiles, ending: str) -> list[int]:
    return [int(name.split(".")[0]) for name in files.list(DIRECTORY) if name.endswith(ending)]


@pytest.fixture
def log(files: MemoryFiles, clock: ManualClock, host: RecordingHost) -> PartitionLog:
    return filled(files, clock, host)


# Cleanable segments


def test_sealed_durable_segments_may_be_cleaned(log: PartitionLog, files: MemoryFiles) -> None:
    views = log.cleanable()
    assert [(view.base_offset, view.next_offset) for view in views] == [(0, 2), (2, 4), (4, 6), (6, 8)]
    first = views[0]
    assert (first.size, first.newest_ms, first.path) == (files.size(first.path), T0 + 1, log.segments[0].path())
    assert not first.has_aborted


def test_nothing_above_what_is_replicated_stable_and_checkpointed(log: PartitionLog) -> None:
    log.high_watermark = 5
    assert [view.base_offset for view in log.cleanable()] == [0, 2]
    log.high_watermark = 9
    log.checkpointed(6)
    assert [view.base_offset for view in log.cleanable()] == [0, 2, 4]
    open_transaction = batch(b"v", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.append_as_leader(open_transaction, leader_epoch=3)
    log.append_as_leader(batch(b"v"), leader_epoch=3)
    log.flush()
    log.high_watermark = log.log_end_offset
    log.checkpointed(log.recovery_point)
    assert log.cleanable()[-1].next_offset <= 9


def test_a_truncation_takes_back_what_was_checkpointed(log: PartitionLog) -> None:
    log.truncate_to(3)
    log.high_watermark = 3
    for number in range(5):
        log.append_as_leader(batch(b"w%d" % number, timestamp_ms=T0), leader_epoch=9)
    log.high_watermark = log.log_end_offset
    log.flush()
    assert [view.base_offset for view in log.cleanable()] == [0]
    log.checkpointed(log.recovery_point)
    assert len(log.cleanable()) > 1


def in_transaction(sequence: int) -> memoryview:
    return batch(
        b"t%d" % sequence,
        producer_id=7,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
        timestamp_ms=T0,
    )


def begun(log: PartitionLog, host: RecordingHost) -> None:
    """An open transaction begins at 9, in sealed and durable segments."""
    for sequence in range(4):
        log.append_as_leader(in_transaction(sequence), leader_epoch=3)
    log.flush()
    log.checkpointed(log.recovery_point)
    host.flushes.clear()


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_a_transaction_may_be_cleaned_when_its_marker_is_durable(
    log: PartitionLog, host: RecordingHost, kind: ControlType
) -> None:
    begun(log, host)
    log.high_watermark = log.log_end_offset
    assert log.cleanable()[-1].next_offset <= 9
    assert not host.flushes  # it would not end the transaction
    log.append_as_leader(marker(kind, producer_id=7), leader_epoch=3, origin=AppendOrigin.COORDINATOR)
    log.high_watermark = log.log_end_offset
    assert log.first_unstable_offset is None
    host.flushes.clear()
    assert log.cleanable()[-1].next_offset <= 9
    assert host.flushes == [log]
    host.run_flushes()
    log.checkpointed(log.recovery_point)
    assert log.cleanable()[-1].next_offset > 9
    assert not host.flushes


def test_a_truncated_marker_decides_nothing(log: PartitionLog, host: RecordingHost) -> None:
    begun(log, host)
    end = log.log_end_offset
    abort = marker(ControlType.ABORT, producer_id=7)
    log.append_as_leader(memoryview(bytearray(abort)), leader_epoch=3, origin=AppendOrigin.COORDINATOR)
    log.flush()
    log.truncate_to(end)
    log.append_as_leader(memoryview(bytearray(abort)), leader_epoch=4, origin=AppendOrigin.COORDINATOR)
    log.high_watermark = log.log_end_offset
    log.checkpointed(log.recovery_point)
    assert log.cleanable()[-1].next_offset <= 9
    log.flush()
    log.checkpointed(log.recovery_point)
    assert log.cleanable()[-1].next_offset > 9


def test_a_log_start_within_a_transaction_decides_nothing(log: PartitionLog, host: RecordingHost) -> None:
    """Deleted records may reappear after a crash, and a marker that is not replicated may be truncated."""
    begun(log, host)
    end = log.log_end_offset
    log.append_as_leader(marker(ControlType.ABORT, producer_id=7), leader_epoch=3, origin=AppendOrigin.COORDINATOR)
    log.flush()
    log.checkpointed(log.recovery_point)
    log.high_watermark = end
    log.delete_records_before(end)
    assert log.first_unstable_offset == end
    assert log.cleanable()[-1].next_offset <= 9
    log.high_watermark = log.log_end_offset
    assert log.cleanable()[-1].next_offset > 9


def test_after_a_kill_a_marker_decides_with_the_next_flush(
    files: MemoryFiles, clock: ManualClock, log: PartitionLog, host: RecordingHost
) -> None:
    begun(log, host)
    point = log.recovery_point
    abort = marker(ControlType.ABORT, producer_id=7)
    log.append_as_leader(abort, leader_epoch=3, origin=AppendOrigin.COORDINATOR)
    again = open_log(files, clock, host=host, config=CONFIG, recovery_point=point)
    again.high_watermark = again.log_end_offset
    assert again.first_unstable_offset is None
    assert again.cleanable() == ()
    again.flush()
    again.checkpointed(again.recovery_point)
    assert again.cleanable()[-1].next_offset > 9


def test_a_transaction_that_loses_its_marker_keeps_its_records(
    files: MemoryFiles, clock: ManualClock, log: PartitionLog, host: RecordingHost
) -> None:
    files.sync_directory("/")
    begun(log, host)
    point, end = log.recovery_point, log.log_end_offset
    abort = marker(ControlType.ABORT, producer_id=7)
    log.append_as_leader(abort, leader_epoch=3, origin=AppendOrigin.COORDINATOR)
    log.high_watermark = log.log_end_offset
    compact(files, log, clock)
    files.sync_directory(DIRECTORY)
    files.crash(Random(0), (Fate.LOST,))
    again = open_log(files, clock, config=CONFIG, recovery_point=point)
    again.high_watermark = again.log_end_offset
    assert (again.first_unstable_offset, again.log_end_offset) == (9, end)
    assert [record.value for record in records_of(again) if record.offset >= 9] == [b"t0", b"t1", b"t2", b"t3"]


@pytest.mark.parametrize("how", ["offline", "abandoned"])
def test_an_offline_log_has_nothing_to_clean(log: PartitionLog, how: str) -> None:
    if how == "offline":
        log.take_offline(StorageError("broken"))
    else:
        log.abandon()
    assert log.cleanable() == ()


# The swap


def test_cleaned_segments_take_the_place_of_old_ones(
    log: PartitionLog, files: MemoryFiles, host: RecordingHost, clock: ManualClock
) -> None:
    held = log.read(0, max_bytes=1 << 20)
    before = held.load()
    clean(files, 0, 1, 4)
    assert log.swap_cleaned(CleanedSwap(generation=log.generation, replaced=(0, 2, 4), cleaned=(0,)))
    assert [segment.base_offset for segment in log.segments] == [0, 6, 8]
    assert offsets(log) == [1, 4, 6, 7, 8]
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, 9, 9)
    # A reader continues; a read of a removed offset returns the next one.
    assert held.load() == before
    assert next(iterate(log.read(2, max_bytes=1 << 20).load()))[1].base_offset == 4
    found = log.offset_for_timestamp(T0 + 2)
    assert found is not None
    assert found.offset == 4
    assert names(files, ".snapshot") == [6, 8]
    assert not [name for name in files.list(DIRECTORY) if name.endswith((".cleaned", ".swap", ".deleted"))]
    assert host.removed[-1][1] == CONFIG.file_delete_delay_ms
    assert host.flushes == [log]
    assert log.segments[0].changed_ms == WALL_START_MS
    for is_clean in (False, True):
        if is_clean:
            log.close()
        log = open_log(files, clock, config=CONFIG, recovery_point=9, clean=is_clean)
        assert offsets(log) == [1, 4, 6, 7, 8]
        assert log.active_producers()[0].last_sequence == 8


def test_several_cleaned_segments_and_an_empty_one(log: PartitionLog, files: MemoryFiles, clock: ManualClock) -> None:
    clean(files, 0)
    clean(files, 4, 5, aborted=AbortedTxn(3, 4, 5, 6))
    assert log.swap_cleaned(CleanedSwap(generation=log.generation, replaced=(0, 2, 4), cleaned=(0, 4)))
    assert [(segment.base_offset, bool(segment.size)) for segment in log.segments] == [
        (0, False),
        (4, True),
        (6, True),
        (8, True),
    ]
    assert offsets(log) == [5, 6, 7, 8]
    assert log.aborted_transactions(0, 9) == ((3, 4),)
    assert [view.has_aborted for view in log.cleanable()] == [False, True, False]
    log = open_log(files, clock, config=CONFIG, recovery_point=9)
    assert offsets(log) == [5, 6, 7, 8]
    assert log.aborted_transactions(0, 9) == ((3, 4),)


def changed(log: PartitionLog, how: str) -> None:
    if how == "truncated":
        log.truncate_to(7)
    elif how == "retention":
        log.increment_log_start_offset(2)
        log.delete_expired(0)
    elif how == "restarted":
        log.truncate_fully_and_start_at(50)


@pytest.mark.parametrize("how", ["truncated", "retention", "restarted"])
def test_a_log_that_changed_meanwhile_is_not_swapped(log: PartitionLog, files: MemoryFiles, how: str) -> None:
    generation = log.generation
    clean(files, 0, 1)
    changed(log, how)
    before = [segment.base_offset for segment in log.segments]
    assert not log.swap_cleaned(CleanedSwap(generation=generation, replaced=(0, 2), cleaned=(0,)))
    assert [segment.base_offset for segment in log.segments] == before
    assert not names(files, ".cleaned")


@pytest.mark.parametrize(
    ("replaced", "cleaned"), [((0, 4), (0,)), ((6, 8), (6,)), ((2, 4), (0,)), ((), ()), ((1, 2), (1,))]
)
def test_only_a_run_of_sealed_segments_is_replaced(
    log: PartitionLog, files: MemoryFiles, replaced: tuple[int, ...], cleaned: tuple[int, ...]
) -> None:
    for base in cleaned:
        clean(files, base, base)
    assert not log.swap_cleaned(CleanedSwap(generation=log.generation, replaced=replaced, cleaned=cleaned))
    assert offsets(log) == list(range(9))
    assert not names(files, ".cleaned")


def test_a_swap_of_an_offline_log_changes_no_file(log: PartitionLog, files: MemoryFiles) -> None:
    """The topic may exist again, with files of the same names."""
    clean(files, 0, 1)
    log.abandon()
    before = files.operations
    assert not log.swap_cleaned(CleanedSwap(generation=log.generation, replaced=(0, 2), cleaned=(0,)))
    assert files.operations == before


def test_leftovers_below_do_not_void_a_swap(log: PartitionLog, files: MemoryFiles) -> None:
    clean(files, 0, 1)
    clean(files, 2, 3)
    assert log.swap_cleaned(CleanedSwap(generation=log.generation, replaced=(2, 4), cleaned=(2,)))
    assert not names(files, ".cleaned")
    assert offsets(log) == [0, 1, 3, 6, 7, 8]


def test_half_an_index_is_refused_before_anything_is_done(log: PartitionLog, files: MemoryFiles) -> None:
    clean(files, 0, 1)
    files.write_atomically(f"{DIRECTORY}/{0:020d}.timeindex.cleaned", b"12345")
    with pytest.raises(CorruptMessageError):
        log.swap_cleaned(CleanedSwap(generation=log.generation, replaced=(0, 2), cleaned=(0,)))
    assert offsets(log) == list(range(9))
    assert not log.is_offline


def test_a_disk_that_fails_in_a_swap_ends_the_log(log: PartitionLog, files: MemoryFiles, host: RecordingHost) -> None:
    clean(files, 0, 1)
    files.fail = lambda operation, where: StorageError("broken", path=where) if operation == "rename" else None
    with pytest.raises(KafkaStorageError):
        log.swap_cleaned(CleanedSwap(generation=log.generation, replaced=(0, 2), cleaned=(0,)))
    assert log.is_offline
    assert host.failures


# Gaps in recovery


def test_gaps_of_compaction_are_no_loss_even_without_indexes_or_checkpoint(
    log: PartitionLog, files: MemoryFiles, clock: ManualClock
) -> None:
    clean(files, 0, 1)
    assert log.swap_cleaned(CleanedSwap(generation=log.generation, replaced=(0, 2, 4), cleaned=(0,)))
    # Everything is scanned, because the recovery point is lost.
    assert offsets(open_log(files, clock, config=CONFIG)) == [1, 6, 7, 8]
    # The index files are lost, of segments below the recovery point.
    files.remove(f"{DIRECTORY}/{0:020d}.index")
    files.remove(f"{DIRECTORY}/{6:020d}.timeindex")
    assert offsets(open_log(files, clock, config=CONFIG, recovery_point=9)) == [1, 6, 7, 8]


def test_a_truncation_checkpoints_before_the_next_segment(log: PartitionLog, host: RecordingHost) -> None:
    log.truncate_to(7)
    assert host.checkpoints == 1
    log.append_as_leader(batch(b"w", timestamp_ms=T0), leader_epoch=9)
    assert host.forced_checkpoints == 0
    log.append_as_leader(batch(b"w", timestamp_ms=T0), leader_epoch=9)
    log.append_as_leader(batch(b"w", timestamp_ms=T0), leader_epoch=9)
    assert host.forced_checkpoints == 1
    log.truncate_to(9)
    log.checkpointed(log.recovery_point)
    for _ in range(3):
        log.append_as_leader(batch(b"w", timestamp_ms=T0), leader_epoch=9)
    assert host.forced_checkpoints == 1
