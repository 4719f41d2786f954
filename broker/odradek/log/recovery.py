"""The state of one log from its files, after a clean shutdown or a crash.

A directory enters; a `LoadedLog` leaves, from which `PartitionLog` is made. `log.manager` calls `load` on worker
threads: it touches nothing but its arguments. After a clean shutdown only names, sizes and the last entries of indexes
are looked at. After a crash every segment from the one that holds the recovery point on is walked batch by batch, by
header and CRC; the log ends before the first batch that is wrong, and its indexes, leader epochs and producer state
are made anew. Interrupted file operations are finished or undone first.

Index files vouch for their segment: they are written after its batches are synced, and removed, durably, before it
is written to again. So a recovery point that is too high, as a truncation leaves it until the next checkpoint, does no
harm: what was written since has no index files and is walked.

Invariant: `load` may be cut at any point and run again, with the same result.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from odradek.base.config import TopicConfig
from odradek.base.errors import CorruptMessageError, StorageError
from odradek.base.ports import Files
from odradek.base.types import NO_TIMESTAMP, TopicPartition
from odradek.log import checkpoints
from odradek.log.epoch_cache import EpochCache
from odradek.log.indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetIndex, TimeIndex
from odradek.log.producer_state import Marker, ProducerState
from odradek.log.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    INT32_MAX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
    file_name,
    walk_headers,
)
from odradek.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    check_crc,
    read_control_type,
    read_coordinator_epoch,
    read_header,
)
from odradek.records.record import decode_batch

logger = logging.getLogger(__name__)

WALK_BYTES: Final = 1 << 20
"""Read at once in a walk; a larger batch is read alone."""

CONTROL_BATCH_LIMIT: Final = 1 << 16
_TIME_ENTRY: Final = struct.Struct(">qi")


@dataclass(slots=True, kw_only=True)
class LoadedLog:
    """Everything that a `PartitionLog` begins with. `segments` is never empty."""

    topic_partition: TopicPartition
    directory: str
    segments: tuple[Segment, ...]
    log_start_offset: int
    recovery_point: int
    next_offset: int
    epochs: EpochCache
    producers: ProducerState
    topic_id: UUID | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """What is known of a log before it is read.

    `recovery_point` and `log_start_offset` are the checkpointed ones (0: none); `clean`: the broker stopped in order;
    `now_ms`: wall time.
    """

    topic_partition: TopicPartition
    directory: str
    config: TopicConfig
    now_ms: int
    recovery_point: int = 0
    log_start_offset: int = 0
    clean: bool = False


def load(files: Files, request: LoadRequest) -> LoadedLog:
    """Read a log directory; makes the first segment when there is none. Raises `StorageError`."""
    directory = request.directory
    _finish_interrupted(files, directory)
    epochs = _load_epochs(files, directory)
    segments = _open_segments(files, request)
    segments, next_offset = _check_segments(files, request, segments, epochs)
    if segments and next_offset < request.log_start_offset:
        # The records up to the log start were lost or never synced; what remains lies wholly below it.
        for segment in segments:
            _remove_segment(files, segment)
        segments = []
    if not segments:
        first = Segment(files, directory, request.log_start_offset, created_ms=request.now_ms)
        first.create()
        segments, next_offset = [first], first.base_offset
    log_start_offset = max(request.log_start_offset, segments[0].base_offset)
    epochs.truncate_from_end(next_offset)
    epochs.truncate_from_start(log_start_offset)
    producers = load_producers(files, directory, segments, log_start_offset, next_offset)
    remove_stray_snapshots(files, directory, segments, next_offset)
    return LoadedLog(
        topic_partition=request.topic_partition,
        directory=directory,
        segments=tuple(segments),
        log_start_offset=log_start_offset,
        recovery_point=next_offset if request.clean else min(request.recovery_point, next_offset),
        next_offset=next_offset,
        epochs=epochs,
        producers=producers,
        topic_id=_load_topic_id(files, directory),
    )


# Interrupted file operations


def _offset_of(name: str) -> int | None:
    digits = name.split(".", 1)[0]
    return int(digits) if digits.isdecimal() else None


def _finish_interrupted(files: Files, directory: str) -> None:
    """Remove what was marked deleted or half cleaned; put complete replacements (`.swap`) in place.

    A cleaned segment is written as `.cleaned`, renamed to `.swap` when complete, and then to its final name after the
    segments that it replaces are gone. A `.cleaned` file that is still there shows that the replacements from its
    offset on are incomplete.
    """
    names = files.list(directory)
    unfinished = [_offset_of(name) for name in names if name.endswith(CLEANED_SUFFIX)]
    first_unfinished = min((offset for offset in unfinished if offset is not None), default=None)
    swaps = []
    for name in names:
        offset = _offset_of(name)
        is_swap = name.endswith(SWAP_SUFFIX)
        void = is_swap and first_unfinished is not None and (offset is None or offset >= first_unfinished)
        if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, ".tmp")) or void:
            files.remove(f"{directory}/{name}")
        elif is_swap and offset is not None:
            swaps.append((offset, name))
    for offset, name in sorted(swaps, key=lambda swap: not swap[1].endswith(LOG_SUFFIX + SWAP_SUFFIX)):
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            _remove_replaced(files, directory, offset, name)
        files.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP_SUFFIX)}")


def _remove_replaced(files: Files, directory: str, base_offset: int, swap_name: str) -> None:
    """Remove the segments whose offsets the replacement covers, its own name excepted: the rename goes over that."""
    replacement = Segment(files, directory, base_offset, created_ms=0)
    file = files.open(f"{directory}/{swap_name}", read_only=True)
    try:
        end_offset = base_offset
        for _, header in walk_headers(file, 0, file.size()):
            end_offset = header.next_offset
    finally:
        file.close()
    for name in files.list(directory):
        offset = _offset_of(name)
        if offset is not None and base_offset < offset < end_offset and name.endswith(SEGMENT_SUFFIXES):
            files.remove(f"{directory}/{name}")
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        if not files.exists(replacement.path(suffix) + SWAP_SUFFIX):
            files.remove(replacement.path(suffix))


# Segments


def _open_segments(files: Files, request: LoadRequest) -> list[Segment]:
    """Segments of the `.log` files, in order; index files without one are removed."""
    names = files.list(request.directory)
    bases = sorted(offset for name in names if name.endswith(LOG_SUFFIX) and (offset := _offset_of(name)) is not None)
    known = set(bases)
    for name in names:
        if name.endswith(SEGMENT_SUFFIXES) and _offset_of(name) not in known:
            files.remove(f"{request.directory}/{name}")
    segments = []
    for base_offset in bases:
        segment = Segment(files, request.directory, base_offset, created_ms=request.now_ms)
        segment.size = files.size(segment.path())
        segments.append(segment)
    return segments


def _check_segments(
    files: Files, request: LoadRequest, segments: list[Segment], epochs: EpochCache
) -> tuple[list[Segment], int]:
    """Segments that hold whole batches, with their state set, and the offset after the last of them."""
    next_offset = segments[0].base_offset if segments else 0
    for place, segment in enumerate(segments):
        is_last = place == len(segments) - 1
        successor = None if is_last else segments[place + 1].base_offset
        # A crash may have lost anything from the recovery point on, and so in the segment that holds it.
        walked = not request.clean and (successor is None or successor > request.recovery_point)
        if walked:
            # The batches that are walked tell their epochs better than a checkpoint that may be older.
            epochs.truncate_from_end(segment.base_offset)
        whole = True
        if walked or not _adopt(files, segment, is_last=is_last):
            walked = not request.clean
            whole = recover_segment(files, segment, epochs, request.config.index_interval_bytes)
            next_offset = segment.next_offset()
        else:
            next_offset = segments[place + 1].base_offset if successor is not None else segment.next_offset()
        if successor is not None and not _joins(next_offset, successor, after_crash=walked):
            whole = False
        if not is_last:
            segment.seal()
        if not whole:
            if not is_last:
                logger.warning(
                    "%s ends at offset %d; the %d segments after it are dropped",
                    segment.path(),
                    next_offset,
                    len(segments) - place - 1,
                )
            for later in reversed(segments[place + 1 :]):
                _remove_segment(files, later)
            return segments[: place + 1], next_offset
    return segments, next_offset


def _joins(end_offset: int, successor: int, *, after_crash: bool) -> bool:
    """Whether a segment that begins at `successor` may follow.

    In what a crash may have touched, a gap shows that batches at the end were lost as whole ones. (A log begins
    segments where the last batch ends; only a gap that relative offsets can not span is left between segments. What
    compaction leaves out lies below the checkpointed recovery point, or else the cleaner has to put it there first.)
    """
    if end_offset > successor:
        return False
    return not after_crash or end_offset == successor or successor - end_offset > INT32_MAX


def _remove_segment(files: Files, segment: Segment) -> None:
    segment.close()
    # The log file goes last: while it is there, a recovery that is cut short finds the segment again.
    for suffix in (*SEGMENT_SUFFIXES[1:], SNAPSHOT_SUFFIX, LOG_SUFFIX):
        files.remove(segment.path(suffix))


def _adopt(files: Files, segment: Segment, *, is_last: bool) -> bool:
    """Trust a segment and its index files after a look at their sizes; whether they are plausible."""
    try:
        offset_bytes = files.size(segment.path(INDEX_SUFFIX))
        time_bytes = files.size(segment.path(TIME_INDEX_SUFFIX))
    except StorageError as error:
        if error.missing:
            return False
        raise
    if offset_bytes % OFFSET_ENTRY_BYTES or time_bytes % TIME_ENTRY_BYTES:
        return False
    if segment.size and not time_bytes and offset_bytes:
        return False
    segment.indexes_written = True
    if is_last:
        return _adopt_last(files, segment)
    return _adopt_newest_timestamp(files, segment, time_bytes)


def _adopt_last(files: Files, segment: Segment) -> bool:
    """The last segment gets more batches, so its indexes are read and its tail is walked."""
    offset_index = OffsetIndex.decode(files.read(segment.path(INDEX_SUFFIX)))
    time_index = TimeIndex.decode(files.read(segment.path(TIME_INDEX_SUFFIX)))
    if offset_index is None or time_index is None or offset_index.last()[1] > segment.size:
        return False
    segment.set_indexes(offset_index, time_index)
    try:
        segment.restore_max_timestamp()
        segment.load_first_timestamp()
        end = _position_after_last(segment)
    except CorruptMessageError:
        return False
    if end != segment.size:
        return False
    segment.remove_indexes()
    return True


def _position_after_last(segment: Segment) -> int:
    _, end = segment.offset_index.last()
    for position, header in segment.headers(end):
        end = position + header.size
    return end


def _adopt_newest_timestamp(files: Files, segment: Segment, time_bytes: int) -> bool:
    if not time_bytes:
        # Only records without timestamps leave no entry in a sealed segment.
        return True
    file = files.open(segment.path(TIME_INDEX_SUFFIX), read_only=True)
    try:
        timestamp, relative_offset = _TIME_ENTRY.unpack(file.pread(TIME_ENTRY_BYTES, time_bytes - TIME_ENTRY_BYTES))
    finally:
        file.close()
    segment.max_timestamp = timestamp
    segment.max_timestamp_offset = segment.base_offset + relative_offset
    plausible: bool = timestamp >= 0 and relative_offset >= 0
    return plausible


def recover_segment(files: Files, segment: Segment, epochs: EpochCache, interval: int) -> bool:
    """Walk a segment by header and CRC, cut it before the first wrong batch, and make its indexes anew.

    Whether nothing had to be cut. A batch is wrong when it is cut short, fails its CRC, or its offsets do not follow.
    """
    file_size = files.size(segment.path())
    segment.size = 0
    segment.max_timestamp, segment.max_timestamp_offset = NO_TIMESTAMP, segment.base_offset
    segment.first_timestamp = NO_TIMESTAMP
    segment.bytes_since_index_entry = 0
    segment.set_indexes(OffsetIndex(), TimeIndex())
    next_offset = segment.base_offset
    position = 0
    while position < file_size:
        header = _next_good_batch(segment, position, file_size, next_offset)
        if header is None:
            break
        segment.rebuild_note(header, interval)
        if header.leader_epoch > epochs.latest_epoch:
            epochs.assign(header.leader_epoch, header.base_offset)
        next_offset = header.next_offset
        position = segment.size
    if segment.size == file_size:
        return True
    logger.warning("%s is cut from %d to %d bytes: no whole batch follows", segment.path(), file_size, segment.size)
    segment.file.truncate(segment.size)
    return False


def _next_good_batch(segment: Segment, position: int, file_size: int, next_offset: int) -> BatchHeader | None:
    head = segment.file.pread(HEADER_SIZE, position)
    try:
        header = read_header(head)
        if header.size > file_size - position or not next_offset <= header.base_offset:
            return None
        if header.last_offset - segment.base_offset > INT32_MAX:
            return None
        check_crc(segment.read_batch(position, header), 0, header)
    except CorruptMessageError:
        return None
    return header


# Leader epochs, topic id


def _load_epochs(files: Files, directory: str) -> EpochCache:
    path = f"{directory}/{checkpoints.LEADER_EPOCH_FILE}"
    try:
        return EpochCache(checkpoints.decode_epochs(files.read(path), path))
    except checkpoints.MalformedCheckpointError as error:
        logger.warning("%s; leader epochs are taken from the batches that are walked", error)
    except StorageError as error:
        if not error.missing:
            raise
    return EpochCache()


def _load_topic_id(files: Files, directory: str) -> UUID | None:
    """The topic id; None when it is not known. It is written without a sync, so a crash may leave an empty file."""
    path = f"{directory}/{checkpoints.PARTITION_METADATA_FILE}"
    try:
        return checkpoints.decode_partition_metadata(files.read(path), path)
    except checkpoints.MalformedCheckpointError as error:
        logger.warning("%s; the topic id counts as unknown", error)
    except StorageError as error:
        if not error.missing:
            raise
    return None


# Producers


def load_producers(
    files: Files, directory: str, segments: Sequence[Segment], log_start_offset: int, end_offset: int
) -> ProducerState:
    """Producer state as of `end_offset`: the newest good snapshot at or below, and the batches after it.

    Snapshots that are corrupt or lie above `end_offset` are removed.
    """
    producers = _newest_snapshot(files, directory, log_start_offset, end_offset)
    start_offset = max(producers.end_offset, log_start_offset)
    for place, segment in enumerate(segments):
        successor = segments[place + 1].base_offset if place + 1 < len(segments) else end_offset
        if successor <= start_offset:
            continue
        begin = segment.locate(start_offset)
        if begin is None:
            continue
        for position, header in segment.headers(begin.position):
            if header.base_offset >= end_offset:
                break
            marker = read_marker(segment.read_batch(position, header), 0, header) if header.is_control else None
            producers.record(header, header.base_offset, marker)
    producers.end_offset = end_offset
    return producers


def _newest_snapshot(files: Files, directory: str, log_start_offset: int, end_offset: int) -> ProducerState:
    for name in reversed(files.list(directory)):
        offset = _offset_of(name)
        if offset is None or not name.endswith(SNAPSHOT_SUFFIX):
            continue
        path = f"{directory}/{name}"
        if offset <= end_offset:
            try:
                return ProducerState.decode(files.read(path), offset)
            except CorruptMessageError as error:
                logger.warning("%s: %s; an older one is used", path, error)
        files.remove(path)
    return ProducerState(log_start_offset)


def remove_stray_snapshots(files: Files, directory: str, segments: Sequence[Segment], end_offset: int) -> None:
    """Keep the snapshots of segment starts and of the log end; clean shutdowns leave others behind."""
    kept = {segment.base_offset for segment in segments} | {end_offset}
    for name in files.list(directory):
        if name.endswith(SNAPSHOT_SUFFIX) and _offset_of(name) not in kept:
            files.remove(f"{directory}/{name}")


def read_marker(buffer: bytes | memoryview, position: int, header: BatchHeader) -> Marker | None:
    """What a control batch says; None for one without a record or of a kind that ends no transaction."""
    for record in decode_batch(buffer, position, header, limit=CONTROL_BATCH_LIMIT):
        kind = read_control_type(record.key)
        return None if kind is None else Marker(kind, read_coordinator_epoch(record.value))
    return None


def write_snapshot(files: Files, directory: str, producers: ProducerState, offset: int) -> None:
    """Write the producers as of `offset`; not synced: a torn one fails its CRC. Raises `StorageError`."""
    content = producers.encode()
    file = files.open(f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}", create=True)
    try:
        file.pwritev((content,), 0)
        file.truncate(len(content))
    finally:
        file.close()
