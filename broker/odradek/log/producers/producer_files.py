"""Loads producer state from the `.snapshot` files of a log directory and the batches after the newest one.

`log/recovery/log_recovery` and `log.storage` use it. Snapshots are written where segments begin and at a clean
shutdown, so that seldom more than one segment has to be replayed. Invariant: the state is that of the batches from the
log start to `end_offset`, and does not depend on which snapshots exist.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from odradek.base.errors import CorruptMessageError
from odradek.base.ports import Files
from odradek.log.producers.producer_state import Marker, ProducerState
from odradek.log.segments.segment import SNAPSHOT_SUFFIX, Segment, file_name, offset_of
from odradek.records.v2.batch import BatchHeader, read_control_type, read_coordinator_epoch
from odradek.records.v2.record import decode_batch
from odradek.records.v2.transactions import MARKER_LIMIT_BYTES

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Expiration:
    """Producers that have been idle for `after_ms` at wall time `now_ms` are dropped from a snapshot."""

    now_ms: int
    after_ms: int


def load_producers(
    files: Files, segments: Sequence[Segment], offsets: range, expiration: Expiration | None = None
) -> ProducerState:
    """Load the producer state of the log in `offsets` (log start to log end): newest valid snapshot, then batches.

    Snapshots that are corrupt or out of range are removed, as in Kafka. Raises `StorageError`, `CorruptMessageError`.
    """
    producers = newest_snapshot(files, segments[0].directory, offsets, expiration, removes=True)
    replay(producers, segments, offsets)
    return producers


def replay(producers: ProducerState, segments: Sequence[Segment], offsets: range) -> None:
    """Replay the batches after `producers.end_offset` up to the end of `offsets`.

    Segments that this opens are released, except the last one, which may be the active segment. A log without snapshots
    may have more segments than the process may have open files.
    """
    start_offset, end_offset = max(producers.end_offset, offsets.start), offsets.stop
    for place, segment in enumerate(segments):
        successor = segments[place + 1].base_offset if place + 1 < len(segments) else end_offset
        if successor <= start_offset:
            continue
        was_open = segment.is_open
        _replay_segment(producers, segment, start_offset, end_offset)
        if not was_open and place + 1 < len(segments):
            segment.release()
    producers.start_at(offsets.start)
    producers.end_offset = end_offset


def _replay_segment(producers: ProducerState, segment: Segment, start_offset: int, end_offset: int) -> None:
    begin = segment.locate(start_offset)
    if begin is None:
        return
    for position, header in segment.headers(begin.position):
        if header.base_offset >= end_offset:
            return
        if header.producer_id >= 0:
            marker = read_marker(segment.read_batch(position, header), 0, header) if header.is_control else None
            producers.record(header, header.base_offset, marker)


def newest_snapshot(
    files: Files, directory: str, offsets: range, expiration: Expiration | None, *, removes: bool
) -> ProducerState:
    """Return the state of the newest valid snapshot within `offsets`, or an empty one; `removes` those outside."""
    for name in reversed(files.list(directory)):
        offset = offset_of(name)
        if offset is None or not name.endswith(SNAPSHOT_SUFFIX):
            continue
        path = f"{directory}/{name}"
        # A snapshot at the log start describes only deleted records.
        if not offsets.start < offset <= offsets.stop:
            if removes:
                files.remove(path)
            continue
        try:
            producers = ProducerState.decode(files.read(path), offset)
        except CorruptMessageError as error:
            logger.warning("%s: %s; an older one is used", path, error)
            files.remove(path)
            continue
        if expiration is not None:
            producers.expire(expiration.now_ms, expiration.after_ms)
        return producers
    return ProducerState(offsets.start)


def remove_stray_snapshots(files: Files, directory: str, kept: Iterable[int]) -> None:
    """Remove all snapshots but those at the `kept` offsets (segment starts, log end): clean shutdowns leave others."""
    offsets = set(kept)
    for name in files.list(directory):
        if name.endswith(SNAPSHOT_SUFFIX) and offset_of(name) not in offsets:
            files.remove(f"{directory}/{name}")


def read_marker(buffer: bytes | memoryview, position: int, header: BatchHeader) -> Marker | None:
    """Return the marker in a control batch; None if it has no record or a type that ends no transaction."""
    for record in decode_batch(buffer, position, header, limit=MARKER_LIMIT_BYTES):
        kind = read_control_type(record.key)
        return None if kind is None else Marker(kind, read_coordinator_epoch(record.value))
    return None


def write_snapshot(files: Files, directory: str, producers: ProducerState, offset: int) -> None:
    """Write a snapshot at `offset` without a sync: a torn one fails its CRC. Raises `StorageError`."""
    write_snapshot_content(files, directory, producers.encode(), offset)


def write_snapshot_content(files: Files, directory: str, content: bytes, offset: int) -> None:
    """Write the encoded snapshot at `offset`; see `write_snapshot`."""
    file = files.open(f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}", create=True)
    try:
        file.pwritev((content,), 0)
        file.truncate(len(content))
    finally:
        file.close()
