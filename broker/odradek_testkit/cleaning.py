"""Compaction for tests: runs one complete pass over a log, without schedule and worker process.

Works with any implementation of `Files`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from odradek.base.ports import Clock, Files
from odradek.log.compaction.cleaned_segment import SegmentWriter
from odradek.log.compaction.cleaning_decisions import CleaningRequest, CleaningResult, LastRecord
from odradek.log.compaction.compaction_pass import clean_log
from odradek.log.partition_log import PartitionLog
from odradek.log.values import CleanedSwap
from odradek.records.formats import iterate_entries, iterate_records
from odradek.records.v2.batch import BatchHeader
from odradek.records.v2.record import Record

LIMIT = 1 << 24


def settle(log: PartitionLog) -> None:
    """Make all records durable, checkpointed and replicated, so that they may be cleaned."""
    log.high_watermark = log.log_end_offset
    log.flush()
    log.checkpointed(log.recovery_point)


def cleaning_request(
    log: PartitionLog, clock: Clock, first_dirty_offset: int = 0, **changes: object
) -> CleaningRequest:
    """Return a request for a pass over everything that may be cleaned; `changes` override its fields."""
    segments = log.cleanable()
    end_offset = segments[-1].next_offset if segments else log.log_start_offset
    request = CleaningRequest(
        name=str(log.topic_partition),
        directory=log.directory,
        segments=segments,
        first_dirty_offset=first_dirty_offset,
        end_offset=end_offset,
        now_ms=clock.wall_ms(),
        delete_retention_ms=log.config.delete_retention_ms,
        segment_bytes=log.config.segment_bytes,
        segment_index_bytes=log.config.segment_index_bytes,
        index_interval_bytes=log.config.index_interval_bytes,
        map_bytes=1 << 20,
        load_factor=0.9,
        read_bytes=4096,
        io_bytes_per_second=float("inf"),
        seed=b"sixteen bytes it",
        aborted=log.aborted_transactions(log.segments[0].base_offset, end_offset),
        producers={
            each.producer_id: LastRecord(each.producer_epoch, -1, each.last_sequence) for each in log.active_producers()
        },
    )
    return replace(request, **changes)  # type: ignore[arg-type]


def write_cleaned(
    files: Files,
    log: PartitionLog,
    clock: Clock,
    count: int,
    keeps: Callable[[BatchHeader], bool] = lambda header: True,
    *,
    first: int = 0,
) -> CleanedSwap:
    """Write `count` segments from number `first` on, which have no aborted transactions, as one cleaned segment.

    It contains the batches for which `keeps` is true. Returns the swap, which is not carried out.
    """
    segments = log.segments[first : first + count]
    base_offset = segments[0].base_offset
    writer = SegmentWriter(files, log.directory, base_offset, log.config.index_interval_bytes)
    for segment in segments:
        content = files.read(segment.path())
        for position, header in iterate_entries(content):
            if keeps(header):
                writer.append(content[position : position + header.size], header.last_offset, header.max_timestamp)
    writer.finish(clock.wall_ms())
    replaced = tuple(segment.base_offset for segment in segments)
    return CleanedSwap(generation=log.generation, replaced=replaced, cleaned=replaced[:1])


def compact(
    files: Files, log: PartitionLog, clock: Clock, first_dirty_offset: int = 0, **changes: object
) -> CleaningResult:
    """Run a pass over everything that may be cleaned, and swap in the result."""
    request = cleaning_request(log, clock, first_dirty_offset, **changes)
    result = clean_log(files, request)
    for group in result.groups:
        swap = CleanedSwap(generation=log.generation, replaced=group, cleaned=group[:1])
        if not log.swap_cleaned(swap):
            raise AssertionError(f"{swap} was refused")
    return result


def records_of(log: PartitionLog) -> list[Record]:
    """Return all records of a log without markers."""
    found: list[Record] = []
    for segment in log.segments:
        content = segment.file.pread(segment.size, 0)
        for position, header in iterate_entries(content):
            if not header.is_control:
                found += iterate_records(content, position, header, limit=LIMIT)
    return found
