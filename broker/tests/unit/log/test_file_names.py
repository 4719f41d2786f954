"""Late flushes: once the event loop has changed names of a log's files, a flush that began before changes none."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from odradek.base.config import TopicConfig
from odradek.base.errors import KafkaStorageError, StorageError
from odradek.log import disk_lock
from odradek.log.file_names import FileNames, OutdatedFlushError
from odradek.log.flush import FlushTicket
from odradek.log.partition_log import PartitionLog
from odradek.records.checks.validate import AppendOrigin
from odradek.records.v2.batch import ControlType
from odradek_testkit.cleaning import records_of, write_cleaned
from odradek_testkit.disk import MemoryFiles
from odradek_testkit.logs import DIRECTORY, RecordingHost, batch, marker, open_log, roll
from odradek_testkit.loop import ManualClock

INDEXED = TopicConfig(index_interval_bytes=0, flush_messages=1)


@dataclass
class Bench:
    """A log with two sealed segments without index files, the first of which has an aborted transaction."""

    files: MemoryFiles
    clock: ManualClock
    log: PartitionLog = field(init=False)

    def __post_init__(self) -> None:
        self.log = log = self.open()
        transaction = batch(b"a", b"b", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
        log.append_as_leader(transaction, leader_epoch=0)
        abort = marker(ControlType.ABORT, producer_id=7)
        log.append_as_leader(abort, leader_epoch=0, origin=AppendOrigin.COORDINATOR)
        log.append_as_leader(batch(b"c"), leader_epoch=0)
        roll(log)
        append(log, b"d", b"e")
        roll(log)
        append(log, b"f")

    def open(self) -> PartitionLog:
        return open_log(self.files, self.clock, host=RecordingHost(self.files), config=INDEXED)


def append(log: PartitionLog, *values: bytes) -> None:
    for value in values:
        log.append_as_leader(batch(value), leader_epoch=0)


def begin(log: PartitionLog) -> FlushTicket:
    ticket = log.begin_flush()
    assert ticket is not None
    return ticket


def truncate(bench: Bench) -> None:
    """Make the first segment, which the flush takes for a sealed one, the active segment again."""
    bench.log.truncate_to(3)
    append(bench.log, b"new")


def restart(bench: Bench) -> None:
    """Begin again with a segment that has the name of the first one."""
    bench.log.truncate_fully_and_start_at(0)
    append(bench.log, b"new")


def delete(bench: Bench) -> None:
    bench.log.abandon()
    bench.log.release_names()
    bench.files.rename(DIRECTORY, f"{DIRECTORY}-delete")
    bench.log = bench.open()
    append(bench.log, b"new")


def expire(bench: Bench) -> None:
    bench.log.high_watermark = bench.log.log_end_offset
    bench.log.increment_log_start_offset(5)
    assert bench.log.delete_expired(0) == 1


def swap(bench: Bench) -> None:
    """Replace segments whose index files a flush still writes, as after a crash that lost the index files."""
    cleaned = write_cleaned(bench.files, bench.log, bench.clock, 2, lambda header: header.base_offset not in (4, 5))
    assert bench.log.swap_cleaned(cleaned)


CHANGES: tuple[Callable[[Bench], None], ...] = (truncate, restart, delete, expire, swap)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("sync", range(12))
def test_a_late_flush_changes_no_name(
    files: MemoryFiles, clock: ManualClock, sync: int, change: Callable[[Bench], None]
) -> None:
    """The event loop changes the names while the flush waits for one of its syncs."""
    bench = Bench(files, clock)
    ticket, syncs = begin(bench.log), list[str]()
    after: dict[str, bytes | None] = {}

    def interrupt(operation: str, path: str) -> None:
        if operation.startswith("sync"):
            syncs.append(path)
            if len(syncs) == sync + 1:
                files.on_change = None
                change(bench)
                after.update(files.content(DIRECTORY))

    files.on_change = interrupt
    with suppress(OutdatedFlushError):
        ticket.run(files)
    assert after, f"the flush has only the syncs {syncs}"
    assert files.content(DIRECTORY) == after
    before = records_of(bench.log)
    bench.log.flush()
    assert [record.value for record in records_of(bench.open())] == [record.value for record in before]


def test_the_index_files_of_a_segment_that_is_written_to_again_do_not_come_back(
    files: MemoryFiles, clock: ManualClock
) -> None:
    """Recovery would take batches that a power failure lost for a gap of compaction."""
    bench = Bench(files, clock)
    ticket = begin(bench.log)
    truncate(bench)
    with pytest.raises(OutdatedFlushError, match="the names of the log changed during its flush"):
        ticket.run(files)
    assert not [name for name in files.list(DIRECTORY) if "index" in name and not name.endswith(".deleted")]


def test_a_flush_that_began_after_the_change_writes_its_files(files: MemoryFiles, clock: ManualClock) -> None:
    bench = Bench(files, clock)
    truncate(bench)
    roll(bench.log)
    begin(bench.log).run(files)
    assert f"{0:020d}.index" in files.list(DIRECTORY)


class HeldRename:
    """Holds the thread that renames a file in the middle of the call."""

    def __init__(self, files: MemoryFiles) -> None:
        self.steps: list[str] = []
        self.began = threading.Event()
        self.ends = threading.Event()
        files.on_change = self._hold

    def _hold(self, operation: str, path: str) -> None:
        if operation == "rename":
            self.began.set()
            assert self.ends.wait(60)
            self.steps.append("renamed")


def test_the_event_loop_waits_for_a_thread_that_changes_a_name(files: MemoryFiles) -> None:
    files.make_directories(DIRECTORY)
    names, held = FileNames(), HeldRename(files)
    flush = names.begin_flush(files)
    thread = threading.Thread(target=flush.replace, args=(f"{DIRECTORY}/a", f"{DIRECTORY}/a.tmp", b"content"))

    def void() -> None:
        names.void()
        held.steps.append("void")

    loop = threading.Thread(target=void)
    thread.start()
    assert held.began.wait(60)
    loop.start()
    held.ends.set()
    thread.join()
    loop.join()
    assert held.steps == ["renamed", "void"]
    assert files.list(DIRECTORY) == ["a"]
    with pytest.raises(OutdatedFlushError):
        flush.remove(f"{DIRECTORY}/a")


def test_the_event_loop_does_not_wait_for_ever(files: MemoryFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_lock, "LONGEST_WAIT_S", 0.01)
    files.make_directories(DIRECTORY)
    names, held = FileNames(), HeldRename(files)
    flush = names.begin_flush(files)
    thread = threading.Thread(target=flush.replace, args=(f"{DIRECTORY}/a", f"{DIRECTORY}/a.tmp", b"content"))
    thread.start()
    assert held.began.wait(60)
    with pytest.raises(StorageError, match="the disk has not completed a change of the names of a log's files"):
        names.void()
    held.ends.set()
    thread.join()


def test_retention_takes_the_directory_offline_if_a_flush_is_stuck(
    files: MemoryFiles, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_lock, "LONGEST_WAIT_S", 0.01)
    bench = Bench(files, clock)
    held, ticket = HeldRename(files), begin(bench.log)
    thread = threading.Thread(target=ticket.run, args=(files,))
    thread.start()
    assert held.began.wait(60)
    with pytest.raises(KafkaStorageError, match="the disk has not completed a change of the names"):
        expire(bench)
    assert bench.log.segments[0].base_offset == 0
    held.ends.set()
    thread.join()
