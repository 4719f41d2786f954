"""Loads the state of one log from its files, after a clean shutdown or a crash.

`log.manager` calls `load` on worker threads; it touches only its arguments. The result, a `LoadedLog`, is what
`PartitionLog` is built from. After a clean shutdown `load` reads only names, sizes and the last entries of indexes.
After a crash it scans every segment from the one that contains the recovery point on, batch by batch, by header and
CRC. The log then ends before the first invalid batch, and its indexes, leader epochs and producer state are rebuilt.
Interrupted file operations are completed or undone first.

The presence of index files shows that a segment is valid: they are written after its batches are synced. They are
removed before the segment is written to again, by the first append and not by `load`; the flush that raises the
recovery point above what that append wrote makes the removal durable. Before the segment is truncated they are removed
durably at once. A recovery point that is too high, as after a truncation until the next checkpoint, is therefore
harmless: segments written since have no index files and are scanned.

Compaction leaves gaps within and between segments. These are below the recovery point, or at least in segments with
index files. A gap after a segment that has neither shows that a crash lost whole batches.

Invariant: `load` may be interrupted at any point and run again with the same result.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from odradek.base.config import TopicConfig
from odradek.base.errors import CorruptMessageError, StorageError
from odradek.base.ports import File, Files
from odradek.base.types import NO_TIMESTAMP, TopicPartition
from odradek.log import checkpoints
from odradek.log.epoch_cache import EpochCache
from odradek.log.producers.producer_files import (
    Expiration,
    load_producers,
    newest_snapshot,
    read_marker,
    remove_stray_snapshots,
    replay,
)
from odradek.log.producers.producer_state import ProducerState
from odradek.log.recovery.interrupted import finish_interrupted
from odradek.log.segments.indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetIndex, TimeIndex
from odradek.log.segments.segment import (
    INDEX_SUFFIX,
    INT32_MAX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
    file_name,
    offset_of,
)
from odradek.log.segments.transaction_index import AbortedTxn, TransactionIndex
from odradek.records.formats import MIN_ENTRY_SIZE, check_entry, read_entry
from odradek.records.v2.batch import HEADER_SIZE, BatchHeader

logger = logging.getLogger(__name__)

WALK_BYTES: Final = 1 << 20
"""Bytes per read of a scan; a larger batch is read on its own."""

_ZEROS: Final = bytes(WALK_BYTES)
_TIME_ENTRY: Final = struct.Struct(">qi")


@dataclass(slots=True, kw_only=True)
class LoadedLog:
    """The initial state of a `PartitionLog`. `segments` is never empty."""

    topic_partition: TopicPartition
    directory: str
    segments: tuple[Segment, ...]
    log_start_offset: int
    recovery_point: int
    checkpointed: int
    """Lower bound of the recovery point in the checkpoint on disk."""
    next_offset: int
    epochs: EpochCache
    producers: ProducerState
    topic_id: UUID | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """What is known about a log before it is read.

    `recovery_point` and `log_start_offset` come from the checkpoints (0: none). `clean`: the broker shut down cleanly.
    `now_ms`: wall time. `producer_expiration_ms`: idle time after which producers are dropped; None for never.
    """

    topic_partition: TopicPartition
    directory: str
    config: TopicConfig
    now_ms: int
    recovery_point: int = 0
    log_start_offset: int = 0
    clean: bool = False
    producer_expiration_ms: int | None = None


def load(files: Files, request: LoadRequest) -> LoadedLog:
    """Load a log directory; create the first segment if there is none. Raises `StorageError`."""
    directory = request.directory
    finish_interrupted(files, directory)
    recovery = _Recovery(files, request, _load_epochs(files, directory))
    recovery.run()
    segments, next_offset, epochs = recovery.kept, recovery.next_offset, recovery.epochs
    if segments and next_offset < request.log_start_offset:
        # The records up to the log start were lost or never synced; all that is left is below the log start.
        for segment in segments:
            _remove_segment(files, segment)
        segments = []
    if segments:
        # Trusted index files are removed by the first append: removing those of thousands of logs delays a start.
        if not segments[-1].indexes_valid:
            segments[-1].remove_indexes()
    else:
        first = Segment(files, directory, request.log_start_offset, created_ms=request.now_ms)
        first.create(request.config.segment_bytes if request.config.preallocate else 0)
        segments, next_offset = [first], first.base_offset
    log_start_offset = max(request.log_start_offset, segments[0].base_offset)
    # In this order an empty log keeps no entry, so that the next start has nothing to change.
    epochs.truncate_from_start(log_start_offset)
    epochs.truncate_from_end(next_offset)
    producers = recovery.producers_at_end(log_start_offset) if segments is recovery.kept else None
    if producers is None:
        producers = load_producers(files, segments, range(log_start_offset, next_offset), _expiration(request))
    for segment in segments:
        _ = segment.changed_ms  # The event loop uses it later, and must not wait for the disk then.
    remove_stray_snapshots(files, directory, [*(segment.base_offset for segment in segments), next_offset])
    return LoadedLog(
        topic_partition=request.topic_partition,
        directory=directory,
        segments=tuple(segments),
        log_start_offset=log_start_offset,
        recovery_point=next_offset if request.clean else min(request.recovery_point, next_offset),
        checkpointed=min(request.recovery_point, next_offset),
        next_offset=next_offset,
        epochs=epochs,
        producers=producers,
        topic_id=_load_topic_id(files, directory),
    )


def _expiration(request: LoadRequest) -> Expiration | None:
    after_ms = request.producer_expiration_ms
    return None if after_ms is None else Expiration(request.now_ms, after_ms)


# Segments


def _open_segments(files: Files, request: LoadRequest) -> list[Segment]:
    """Return the segments of the `.log` files in order; remove index files without a `.log` file."""
    names = files.list(request.directory)
    bases = sorted(offset for name in names if name.endswith(LOG_SUFFIX) and (offset := offset_of(name)) is not None)
    known = set(bases)
    for name in names:
        if name.endswith(SEGMENT_SUFFIXES) and offset_of(name) not in known:
            files.remove(f"{request.directory}/{name}")
    present = frozenset(names)
    segments = []
    for base_offset in bases:
        segment = Segment(files, request.directory, base_offset, created_ms=request.now_ms)
        segment.size = files.size(segment.path())
        segment.has_aborted = file_name(base_offset, TRANSACTION_INDEX_SUFFIX) in present
        segments.append(segment)
    return segments


class _Recovery:
    """One pass over the segments of a log in order; each is trusted because of its index files, or scanned."""

    def __init__(self, files: Files, request: LoadRequest, epochs: EpochCache) -> None:
        self.files = files
        self.request = request
        self.epochs = epochs
        self.kept: list[Segment] = []
        """Segments with whole batches, whose state is set."""
        self.next_offset = 0
        """Offset after the last batch of the kept segments."""
        self._producers: ProducerState | None = None
        self._walked_from: int | None = None

    def producers_at_end(self, log_start_offset: int) -> ProducerState | None:
        """Return the producer state at the log end if the scan has built it; None if it has to be loaded."""
        known, producers = self._walked_from, self._producers
        if known is None or known < log_start_offset or producers is None or producers.end_offset != self.next_offset:
            return None
        producers.start_at(log_start_offset)
        return producers

    def run(self) -> None:
        segments = _open_segments(self.files, self.request)
        if not self.request.clean:
            # A snapshot that a clean shutdown left within a segment may describe records that were truncated and
            # replaced since: like the truncation, its removal is durable only with the next flush.
            remove_stray_snapshots(self.files, self.request.directory, (segment.base_offset for segment in segments))
        for place, segment in enumerate(segments):
            following = segments[place + 1 :]
            successor = following[0].base_offset if following else None
            whole = self._check(segment, successor)
            self.kept.append(segment)
            if following:
                segment.seal()
            if not whole:
                if following:
                    logger.warning(
                        "%s ends at offset %d; the %d segments after it are dropped",
                        segment.path(),
                        self.next_offset,
                        len(following),
                    )
                for later in reversed(following):
                    _remove_segment(self.files, later)
                return
            if following:
                # Otherwise the files and indexes of all segments of a log would stay loaded until the last is checked.
                segment.release()

    def _check(self, segment: Segment, successor: int | None) -> bool:
        """Set the state of a segment and `next_offset`. Returns whether `successor` may follow."""
        request = self.request
        # A crash may have lost anything from the recovery point on, hence also in the segment that contains it.
        suspect = not request.clean and (successor is None or successor > request.recovery_point)
        plausible = _indexes_are_plausible(self.files, segment)
        if suspect:
            # The scanned batches give the epochs more reliably than a checkpoint, which may be older.
            self.epochs.truncate_from_end(segment.base_offset)
        whole = True
        if suspect or not plausible or not _adopt(self.files, segment, is_last=successor is None):
            whole = self._walk(segment, successor)
            self.next_offset = segment.next_offset()
        else:
            self.next_offset = segment.next_offset() if successor is None else successor
        if successor is None:
            return whole
        return whole and _joins(self.next_offset, successor, gap_is_loss=suspect and not plausible)

    def _walk(self, segment: Segment, successor: int | None) -> bool:
        producers = self._producers_at(segment.base_offset)
        walk = SegmentWalk(
            segment, epochs=self.epochs, producers=producers, interval=self.request.config.index_interval_bytes
        )
        return walk.recover(successor)

    def _producers_at(self, offset: int) -> ProducerState:
        """Return the producer state at the start of a segment, from which transaction indexes are rebuilt."""
        producers = self._producers
        if producers is None or producers.end_offset > offset:
            # Records below the first segment are gone: a snapshot from there describes another log, or nothing.
            start = max(self.request.log_start_offset, self.kept[0].base_offset if self.kept else offset)
            offsets = range(min(start, offset), offset)
            expiration = _expiration(self.request)
            producers = newest_snapshot(self.files, self.request.directory, offsets, expiration, removes=False)
            self._walked_from = offset
        if producers.end_offset < offset:
            replay(producers, self.kept, range(producers.end_offset, offset))
            self.kept[-1].release()
        self._producers = producers
        return producers


def _joins(end_offset: int, successor: int, *, gap_is_loss: bool) -> bool:
    """Whether a segment that begins at `successor` may follow a segment that ends at `end_offset`.

    A log starts a segment where its last batch ends. Until compaction, the only gaps between segments are those that
    are too large for relative offsets.
    """
    if end_offset > successor:
        return False
    return not gap_is_loss or end_offset == successor or successor - end_offset > INT32_MAX


def _remove_segment(files: Files, segment: Segment) -> None:
    segment.close()
    # Remove the log file last: while it exists, an interrupted recovery finds the segment again.
    for suffix in (*SEGMENT_SUFFIXES[1:], SNAPSHOT_SUFFIX, LOG_SUFFIX):
        files.remove(segment.path(suffix))


# Trusted index files


def _indexes_are_plausible(files: Files, segment: Segment) -> bool:
    """Whether the index files exist, with possible sizes and valid transactions."""
    try:
        offset_bytes = files.size(segment.path(INDEX_SUFFIX))
        time_bytes = files.size(segment.path(TIME_INDEX_SUFFIX))
    except StorageError as error:
        if error.missing:
            return False
        raise
    if offset_bytes % OFFSET_ENTRY_BYTES or time_bytes % TIME_ENTRY_BYTES:
        return False
    if segment.has_aborted:
        index = TransactionIndex.decode(files.read(segment.path(TRANSACTION_INDEX_SUFFIX)), segment.base_offset)
        segment.has_aborted = bool(index)
        return index is not None
    return True


def _adopt(files: Files, segment: Segment, *, is_last: bool) -> bool:
    """Load the state of a segment from its plausible index files; False if they prove to be wrong."""
    segment.indexes_written = True
    try:
        return _adopt_last(files, segment) if is_last else _adopt_newest_timestamp(files, segment)
    except CorruptMessageError:
        return False


def _adopt_last(files: Files, segment: Segment) -> bool:
    """Load the indexes of the last segment, which gets more batches, and scan its tail.

    This happens only after a clean shutdown, which sealed the segment; Apache Kafka also completes the time index then.
    """
    offset_index = OffsetIndex.decode(files.read(segment.path(INDEX_SUFFIX)))
    time_index = TimeIndex.decode(files.read(segment.path(TIME_INDEX_SUFFIX)))
    if offset_index is None or time_index is None or offset_index.last()[1] > segment.size:
        return False
    if not len(time_index) and len(offset_index) and segment.load_first_timestamp() >= 0:
        return False
    segment.set_indexes(offset_index, time_index, segment.transaction_index)
    segment.restore_max_timestamp(was_sealed=True)
    segment.load_first_timestamp()
    segment.indexes_written = segment.indexes_valid = _position_after_last(segment) == segment.size
    return segment.indexes_valid


def _position_after_last(segment: Segment) -> int:
    _, end = segment.offset_index.last()
    for position, header in segment.headers(end):
        end = position + header.size
    return end


def _adopt_newest_timestamp(files: Files, segment: Segment) -> bool:
    path = segment.path(TIME_INDEX_SUFFIX)
    time_bytes = files.size(path)
    if not time_bytes:
        # In a sealed segment, only records without timestamps leave no entry.
        return not segment.size or segment.load_first_timestamp() < 0
    file = files.open(path, read_only=True)
    try:
        timestamp, relative_offset = _TIME_ENTRY.unpack(file.pread(TIME_ENTRY_BYTES, time_bytes - TIME_ENTRY_BYTES))
    finally:
        file.close()
    segment.max_timestamp = timestamp
    segment.max_timestamp_offset = segment.base_offset + relative_offset
    plausible: bool = timestamp >= 0 and relative_offset >= 0
    return plausible


# Scan


@dataclass(slots=True, kw_only=True)
class SegmentWalk:
    """Scans one segment by header and CRC and rebuilds its indexes.

    `epochs` and `producers` are those at the start of the segment; the scan updates them up to its end.
    """

    segment: Segment = field(kw_only=False)
    epochs: EpochCache
    producers: ProducerState
    interval: int

    def recover(self, successor: int | None) -> bool:
        """Truncate the segment before its first invalid batch. Returns whether nothing was lost.

        A batch is invalid if it is incomplete, fails its CRC, or has offsets that do not follow. Zeros after the last
        batch are preallocated space, unless the segment then ends before its `successor` begins. Raises
        `StorageError`.
        """
        segment = self.segment
        file_size = segment.file.size()
        segment.size = 0
        segment.max_timestamp, segment.max_timestamp_offset = NO_TIMESTAMP, segment.base_offset
        segment.first_timestamp = NO_TIMESTAMP
        segment.bytes_since_index_entry = 0
        segment.set_indexes(OffsetIndex(), TimeIndex(), TransactionIndex())
        next_offset = segment.base_offset
        for header, content in good_batches(segment.file, file_size, segment.base_offset):
            if not self._take(header, content):
                break
            next_offset = header.next_offset
        self.producers.end_offset = next_offset
        if segment.size == file_size:
            return True
        empty = _is_zero(segment.file, segment.size, file_size) and successor in (None, next_offset)
        logger.log(
            logging.DEBUG if empty else logging.WARNING,
            "%s is truncated from %d to %d bytes: %s",
            segment.path(),
            file_size,
            segment.size,
            "zeros follow" if empty else "no complete batch follows",
        )
        segment.file.truncate(segment.size)
        if not empty:
            # Otherwise another crash could bring the damage back under batches that overwrite it, whose offsets and
            # epochs are not covered by the checksum.
            segment.file.sync()
        return empty

    def _take(self, header: BatchHeader, content: memoryview) -> bool:
        segment = self.segment
        marker = None
        if header.is_control:
            try:
                marker = read_marker(content, 0, header)
            except CorruptMessageError:
                return False
        segment.rebuild_note(header, self.interval)
        if header.leader_epoch > self.epochs.latest_epoch:
            self.epochs.assign(header.leader_epoch, header.base_offset)
        ended = self.producers.record(header, header.base_offset, marker)
        if ended is not None and ended.is_aborted:
            segment.add_aborted(AbortedTxn(*ended[:4]))
        return True


def good_batches(file: File, file_size: int, base_offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the header and bytes of each entry from the start of a file up to the first invalid one.

    The bytes are valid until the next step. Raises `StorageError`.
    """
    position, next_offset, needed = 0, base_offset, 0
    while file_size - position >= MIN_ENTRY_SIZE:
        chunk = memoryview(file.pread(min(max(needed, WALK_BYTES), file_size - position), position))
        at = needed = 0
        while True:
            try:
                header = read_entry(chunk[at : at + HEADER_SIZE])
                if at + header.size > len(chunk):
                    needed = header.size
                    break
                if header.base_offset < next_offset or header.last_offset - base_offset > INT32_MAX:
                    return
                check_entry(chunk, at, header)
            except CorruptMessageError:
                # A header that is cut off at the end of the chunk is read again with the next chunk.
                if len(chunk) - at >= HEADER_SIZE or position + len(chunk) >= file_size:
                    return
                break
            yield header, chunk[at : at + header.size]
            next_offset = header.next_offset
            at += header.size
        position += at
        if needed > file_size - position or (at == 0 and needed <= len(chunk)):
            return


def _is_zero(file: File, position: int, end: int) -> bool:
    while position < end:
        chunk = file.pread(min(WALK_BYTES, end - position), position)
        if chunk != _ZEROS[: len(chunk)] or not chunk:
            return False
        position += len(chunk)
    return True


# Leader epochs, topic id


def _load_epochs(files: Files, directory: str) -> EpochCache:
    path = f"{directory}/{checkpoints.LEADER_EPOCH_FILE}"
    try:
        return EpochCache(checkpoints.decode_epochs(files.read(path), path))
    except checkpoints.MalformedCheckpointError as error:
        logger.warning("%s; leader epochs are rebuilt from the batches that are scanned", error)
    except StorageError as error:
        if not error.missing:
            raise
    return EpochCache()


def _load_topic_id(files: Files, directory: str) -> UUID | None:
    """Return the topic id; None if unknown. It is written without a sync, so a crash may leave an empty file."""
    path = f"{directory}/{checkpoints.PARTITION_METADATA_FILE}"
    try:
        return checkpoints.decode_partition_metadata(files.read(path), path)
    except checkpoints.MalformedCheckpointError as error:
        logger.warning("%s; the topic id is treated as unknown", error)
    except StorageError as error:
        if not error.missing:
            raise
    return None
