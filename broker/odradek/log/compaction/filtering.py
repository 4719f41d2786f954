"""Builds the new bytes of one entry (a batch or message) after compaction has decided which records to keep.

`log/compaction/compaction_pass` calls it in a worker with headers, markers, record sections and decisions; the result
is the bytes to keep, or nothing. Invariant: offsets, order, sequences, epochs and the last offset of a batch never
change. An entry whose records are all kept is copied unchanged, so that case does not reach this module.

Records of aborted transactions are removed at once. A marker must not be removed before the data of its transaction.
It may be removed only if a pass found no data of the transaction, and then, like a tombstone, only after a delete
horizon: the pass that finds no data writes the horizon into the batch (KIP-534: attribute bit 0x40, with the horizon
as the base timestamp), and a later pass removes it. A batch without records is kept if its header still matters: for
the last sequence of a producer, or at the end of the cleaned range.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from heapq import heapify, heappop
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odradek.base.errors import CorruptMessageError
from odradek.base.ports import Buffer
from odradek.base.types import NO_TIMESTAMP
from odradek.compression import compress
from odradek.log.compaction.cleaning_decisions import LastRecord
from odradek.records.legacy.writing import encode_set
from odradek.records.v2.batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    LOG_APPEND_TIME_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    ControlType,
    TimestampType,
    assemble,
    assemble_pieces,
)
from odradek.records.v2.record import Message
from odradek.records.v2.record_starts import find_record_starts
from odradek.records.v2.varint import decode_varint, encode_varint

Integers = NDArray[np.int64]

_EMPTY_ATTRIBUTES: Final = LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG
_MOST_TABLES: Final = 8
"""Maximum number of size changes between records; with more, copying run by run is as fast."""
_MIN_INT64: Final = -(1 << 63)
_MAX_INT64: Final = (1 << 63) - 1


class AbortedRange(NamedTuple):
    """An aborted transaction, identified by its first offset."""

    producer_id: int
    first_offset: int


class TransactionTracker:
    """Tracks the open transactions while the entries of a log are read in order."""

    __slots__ = ("_aborted", "_committed", "_waiting")

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        """`aborted`: (producer id, first offset) of every aborted transaction that overlaps the entries read."""
        self._waiting = [(first_offset, producer_id) for producer_id, first_offset in aborted]
        heapify(self._waiting)
        # Producer id -> (first offset, whether one of its batches was found).
        self._aborted: dict[int, tuple[int, bool]] = {}
        self._committed: set[int] = set()

    def _begin_up_to(self, offset: int) -> None:
        while self._waiting and self._waiting[0][0] <= offset:
            first_offset, producer_id = heappop(self._waiting)
            self._aborted.setdefault(producer_id, (first_offset, False))

    def is_aborted(self, header: BatchHeader) -> bool:
        """Record a data batch. Returns whether it belongs to an aborted transaction."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        transaction = self._aborted.get(header.producer_id)
        if transaction is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = (transaction[0], True)
        return True

    def end(self, header: BatchHeader, kind: ControlType | None) -> MarkerFate:
        """Record a control batch of type `kind`; None for a type that ends no transaction."""
        self._begin_up_to(header.last_offset)
        if kind is ControlType.ABORT:
            transaction = self._aborted.pop(header.producer_id, None)
            if transaction is None or not transaction[1]:
                return MarkerFate(superfluous=True)
            return MarkerFate(superfluous=False, aborted=AbortedRange(header.producer_id, transaction[0]))
        if kind is ControlType.COMMIT:
            met = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return MarkerFate(superfluous=not met)
        return MarkerFate(superfluous=False)


class MarkerFate(NamedTuple):
    """Whether a marker is still needed."""

    superfluous: bool
    """No batch of its transaction was found."""
    aborted: AbortedRange | None = None
    """The aborted transaction, if data of it was found; the transaction index then keeps it."""


class Retention(Enum):
    """What compaction does with a format 2 batch if it keeps none of its records."""

    KEEP_EMPTY = "the header is kept"
    DROP_EMPTY = "the batch is removed"
    DROP = "the batch is removed without reading its records"


class FilterRules(NamedTuple):
    """The rules for batches in one pass."""

    producers: Mapping[int, LastRecord]
    end_offset: int
    """End of the cleaned range: the batch that ends here is kept, so that no gap hides offsets of the log."""
    now_ms: int

    def of_data(self, header: BatchHeader, *, aborted: bool) -> Retention:
        """Return the retention of a data batch."""
        return self._of(header, discarded=aborted)

    def of_marker(self, header: BatchHeader, *, superfluous: bool) -> tuple[Retention, bool]:
        """Return the retention of a control batch, and whether its record is removed now."""
        horizon_ms = header.delete_horizon_ms
        discarded = superfluous and horizon_ms is not None and horizon_ms <= self.now_ms
        return self._of(header, discarded=discarded), discarded

    def _of(self, header: BatchHeader, *, discarded: bool) -> Retention:
        if header.next_offset == self.end_offset or self._is_last_of_producer(header):
            return Retention.KEEP_EMPTY
        return Retention.DROP if discarded else Retention.DROP_EMPTY

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self.producers.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.last_data_offset >= 0:
            return header.last_offset == last.last_data_offset
        if header.producer_epoch != last.producer_epoch:
            return False
        if last.last_sequence >= 0:
            return not header.is_control and header.last_sequence == last.last_sequence
        # Only markers of this producer are left: they carry its epoch.
        return header.is_control


# Format 2


def empty_batch(header: BatchHeader) -> bytes:
    """Return the header without records, which keeps offsets, sequences and epochs."""
    return assemble(
        header._replace(attributes=header.attributes & _EMPTY_ATTRIBUTES, base_timestamp=NO_TIMESTAMP, record_count=0),
        b"",
    )


def rebuild_batch(
    header: BatchHeader,
    section: Buffer,
    keep: bytes,
    *,
    max_timestamp: int,
    horizon_ms: int | None = None,
    places: Integers | None = None,
) -> bytearray:
    """Rebuild a batch with the records whose flag in `keep` is 1; at least one.

    `section` is the decompressed records section. Records are copied unchanged, unless `horizon_ms` sets a new base
    timestamp: then their timestamp deltas are rewritten. The codec does not change. `max_timestamp` is the largest
    one that is kept; a log append time does not change. `places`, if known, has the start of each record in `section`
    and the end of the last; other bytes may surround them.
    Raises `CorruptMessageError` if the section does not contain the number of records in the header.
    """
    data = bytes(section)
    if places is None:
        places = _record_places(data, header)
    parts: Sequence[Buffer]
    if horizon_ms is None:
        parts = _kept_parts(data, places, keep)
    else:
        parts = _rebased(data, places.tolist(), keep, header.base_timestamp - horizon_ms)
        header = header._replace(attributes=header.attributes | DELETE_HORIZON_FLAG, base_timestamp=horizon_ms)
    if header.timestamp_type is not TimestampType.LOG_APPEND_TIME:
        header = header._replace(max_timestamp=max_timestamp)
    header = header._replace(record_count=keep.count(1))
    if header.attributes & CODEC_MASK:
        parts = (compress(header.codec, b"".join(parts)),)
    return assemble_pieces(header, parts)


def _record_places(data: bytes, header: BatchHeader) -> Integers:
    """Return the start of each record, and the end of the last one."""
    parts, end = find_record_starts(data, 0, header.record_count)
    if end != len(data):
        raise CorruptMessageError(f"the records of the batch at offset {header.base_offset} do not fill it")
    return np.concatenate((*parts, np.array([end])))


def _kept_parts(data: bytes, places: Integers, keep: bytes) -> Sequence[Buffer]:
    """Return the bytes of the kept records. Many consecutive records of one size are copied as rows of a table."""
    sizes = np.diff(places)
    edges = np.flatnonzero(sizes[1:] != sizes[:-1]) + 1
    if len(edges) > _MOST_TABLES:
        return _kept_runs(data, places, keep)
    flags = np.frombuffer(keep, dtype=np.bool_)
    parts: list[Buffer] = []
    for begin, end in pairwise((0, *edges.tolist(), len(sizes))):
        row = np.dtype((np.void, int(sizes[begin])))
        table = np.frombuffer(data, dtype=row, count=end - begin, offset=int(places[begin]))
        parts.append(table[flags[begin:end]].view(np.uint8).data)
    return parts


def _kept_runs(data: bytes, begins: Integers, keep: bytes) -> list[bytes]:
    flags = np.frombuffer(b"\0%b\0" % keep, dtype=np.uint8)
    edges = begins[np.flatnonzero(flags[1:] != flags[:-1])].tolist()
    return [data[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)]


def _rebased(data: bytes, begins: Sequence[int], keep: bytes, shift_ms: int) -> list[bytes]:
    """Return the kept records with `shift_ms` added to their timestamp deltas."""
    parts: list[bytes] = []
    for place, kept in enumerate(keep):
        if not kept:
            continue
        _, start = decode_varint(data, begins[place])
        delta, behind = decode_varint(data, start + 1)
        delta += shift_ms
        if not _MIN_INT64 <= delta <= _MAX_INT64:
            raise CorruptMessageError("a record's timestamp is too far from its batch's delete horizon")
        encoded = encode_varint(delta)
        end = begins[place + 1]
        length = 1 + len(encoded) + end - behind
        parts += (encode_varint(length), data[start : start + 1], encoded, data[behind:end])
    return parts


# Formats 0 and 1


def rebuild_messages(header: BatchHeader, kept: Sequence[Message]) -> bytes:
    """Rebuild a format 0 or 1 message or wrapper with the kept messages, at least one, at their original offsets."""
    append_time_ms = header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else None
    return encode_set(kept, magic=header.magic, codec=header.codec, append_time_ms=append_time_ms)
