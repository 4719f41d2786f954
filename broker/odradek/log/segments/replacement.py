"""Replaces segments with rewritten ones, so that after a crash at any point either the old or the new ones are left.

`PartitionLog.swap_cleaned` calls it on the loop, with files that `log/compaction/compaction_pass` has written and
synced as `.cleaned`. First `.cleaned` is renamed to `.swap`, from the highest base offset to the lowest, so that a
remaining `.cleaned` file shows that the replacements from its offset on are incomplete. Then the old segments are
renamed to `.deleted`, from the lowest to the highest, and finally the `.swap` suffix is removed.
`log/recovery/interrupted` completes or undoes the rest. Invariant: renames in one directory become durable in order, as
in a journaling file system; nothing is synced here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from odradek.base.errors import CorruptMessageError
from odradek.base.ports import Files
from odradek.log.segments.expired_files import mark_deleted
from odradek.log.segments.indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from odradek.log.segments.segment import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
    offset_of,
)
from odradek.log.values import CleanedSwap, SegmentView

_TIME_ENTRY: Final = struct.Struct(">qi")


class Swapped(NamedTuple):
    """Result of a swap."""

    segments: tuple[Segment, ...]
    deleted: list[str]
    """Files to remove."""


def cleanable_segments(segments: Sequence[Segment], bound: int) -> tuple[SegmentView, ...]:
    """Return the sealed, durable segments from the first on that are wholly below `bound`. Raises `StorageError`."""
    views = []
    for segment, following in pairwise(segments):
        if following.base_offset > bound or not segment.indexes_written:
            break
        views.append(
            SegmentView(
                base_offset=segment.base_offset,
                next_offset=following.base_offset,
                size=segment.size,
                newest_ms=segment.newest_ms,
                path=segment.path(),
                changed_ms=segment.changed_ms,
                has_aborted=segment.has_aborted,
            )
        )
    return tuple(views)


def place_of(segments: Sequence[Segment], swap: CleanedSwap) -> int | None:
    """Return the index of the first replaced segment; None unless all are present, contiguous and sealed."""
    bases = [segment.base_offset for segment in segments[:-1]]
    if not swap.replaced or swap.cleaned[:1] != swap.replaced[:1] or swap.replaced[0] not in bases:
        return None
    place = bases.index(swap.replaced[0])
    return place if tuple(bases[place : place + len(swap.replaced)]) == swap.replaced else None


def remove_cleaned(files: Files, directory: str, below: int, bases: Iterable[int] = ()) -> None:
    """Remove the `.cleaned` files with base offsets below `below`, or among `bases`. Raises `StorageError`."""
    named = frozenset(bases)
    for name in files.list(directory):
        offset = offset_of(name)
        if name.endswith(CLEANED_SUFFIX) and offset is not None and (offset < below or offset in named):
            files.remove(f"{directory}/{name}")


def swap_segments(files: Files, segments: Sequence[Segment], place: int, swap: CleanedSwap) -> Swapped:
    """Swap the run of segments at index `place`.

    Raises `CorruptMessageError`, with nothing changed, if the cleaned files are not whole, and `StorageError`.
    """
    old = segments[place : place + len(swap.replaced)]
    directory = old[0].directory
    made = [_measured(files, directory, base_offset, old) for base_offset in swap.cleaned]
    # Files of an earlier pass below would make this swap look incomplete after a crash.
    remove_cleaned(files, directory, swap.cleaned[0])
    for segment in reversed(made):
        files.set_modified_ms(segment.path() + CLEANED_SUFFIX, segment.changed_ms)
        _rename(files, segment, CLEANED_SUFFIX, SWAP_SUFFIX)
    deleted: list[str] = []
    for segment in old:
        deleted += mark_deleted(segment, keep_snapshot=segment.base_offset in swap.cleaned)
        segment.release()
    for segment in made:
        _rename(files, segment, SWAP_SUFFIX, "")
    return Swapped((*segments[:place], *made, *segments[place + len(old) :]), deleted)


def _rename(files: Files, segment: Segment, source: str, target: str) -> None:
    for suffix in SEGMENT_SUFFIXES:
        path = segment.path(suffix)
        if suffix != TRANSACTION_INDEX_SUFFIX or segment.has_aborted:
            files.rename(path + source, path + target)


def _measured(files: Files, directory: str, base_offset: int, old: Sequence[Segment]) -> Segment:
    """Return a cleaned segment with its state, read from its `.cleaned` files."""
    segment = Segment(files, directory, base_offset, created_ms=old[-1].created_ms)
    segment.changed_ms = old[-1].changed_ms
    segment.size = files.size(segment.path(LOG_SUFFIX) + CLEANED_SUFFIX)
    segment.has_aborted = files.exists(segment.path(TRANSACTION_INDEX_SUFFIX) + CLEANED_SUFFIX)
    segment.indexes_written = True
    time_path = segment.path(TIME_INDEX_SUFFIX) + CLEANED_SUFFIX
    time_bytes = files.size(time_path)
    if time_bytes % TIME_ENTRY_BYTES or files.size(segment.path(INDEX_SUFFIX) + CLEANED_SUFFIX) % OFFSET_ENTRY_BYTES:
        raise CorruptMessageError(f"{segment.path()}{CLEANED_SUFFIX} has an index file of an impossible size")
    if time_bytes:
        file = files.open(time_path, read_only=True)
        try:
            timestamp, relative = _TIME_ENTRY.unpack(file.pread(TIME_ENTRY_BYTES, time_bytes - TIME_ENTRY_BYTES))
        finally:
            file.close()
        segment.max_timestamp, segment.max_timestamp_offset = timestamp, base_offset + relative
    return segment
