"""What remains of one entry of a log when compaction has decided on its records.

Headers, markers, records sections and decisions enter; the bytes to be kept, or nothing, leave. `log.cleaning` calls
it in a worker. Invariant: offsets, order, sequences, epochs and the last offset of a batch never change; an entry of
which everything stays is kept as the very bytes that it is, which is why that case does not come here.

Theory of operation. Transactions: records of aborted ones go at once. A marker has to outlive the data that it decides
on, so it may only go when a pass met none of its transaction, and then, as tombstones, not before a delete horizon has
passed: the pass that finds it superfluous writes the horizon into the batch (KIP-534: attribute bit 0x40, and the
base timestamp is the horizon), a later pass removes it. Empty batches stay where a header still tells something: the
last sequence of a producer, or where the cleaned range ends.
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
from odradek.log.compaction import LastRecord
from odradek.records.batch import (
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
from odradek.records.begins import find_begins
from odradek.records.message_set import encode_set
from odradek.records.record import Message
from odradek.records.varint import decode_varint, encode_varint

Integers = NDArray[np.int64]

_EMPTY_ATTRIBUTES: Final = LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG
_MOST_TABLES: Final = 8
"""Sizes may change so often before copying run by run is as fast."""
_MIN_INT64: Final = -(1 << 63)
_MAX_INT64: Final = (1 << 63) - 1


class AbortedRange(NamedTuple):
    """An aborted transaction, by its begin."""

    producer_id: int
    first_offset: int


class TransactionTracker:
    """Which transactions are under way while the entries of a log are walked in order."""

    __slots__ = ("_aborted", "_committed", "_waiting")

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        """`aborted`: (producer id, first offset) of every aborted transaction that touches the walk."""
        self._waiting = [(first_offset, producer_id) for producer_id, first_offset in aborted]
        heapify(self._waiting)
        # Producer id -> (first offset, whether a batch of it was met).
        self._aborted: dict[int, tuple[int, bool]] = {}
        self._committed: set[int] = set()

    def _begin_up_to(self, offset: int) -> None:
        while self._waiting and self._waiting[0][0] <= offset:
            first_offset, producer_id = heappop(self._waiting)
            self._aborted.setdefault(producer_id, (first_offset, False))

    def is_aborted(self, header: BatchHeader) -> bool:
        """Take note of a batch with data; whether it belongs to an aborted transaction."""
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
        """Take note of a control batch of `kind`; None for a kind that ends no transaction."""
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
    """What a marker still stands for."""

    superfluous: bool
    """No batch of its transaction was met."""
    aborted: AbortedRange | None = None
    """The aborted transaction of which there was data, and which the index therefore keeps."""


class Retention(Enum):
    """What happens to a batch of format 2 of which no record stays."""

    KEEP_EMPTY = "its header stays"
    DROP_EMPTY = "it goes"
    DROP = "it goes, and its records need not be looked at"


class RetentionRules(NamedTuple):
    """What decides on batches in one pass."""

    producers: Mapping[int, LastRecord]
    end_offset: int
    """Where the cleaned range ends: the batch before it stays, so that no gap hides the log's offsets."""
    now_ms: int

    def of_data(self, header: BatchHeader, *, aborted: bool) -> Retention:
        """For a batch with data."""
        return self._of(header, discarded=aborted)

    def of_marker(self, header: BatchHeader, *, superfluous: bool) -> tuple[Retention, bool]:
        """For a control batch, and whether its record goes now."""
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
        # A producer of which only markers are left: they tell its epoch.
        return header.is_control


# Format 2


def empty_batch(header: BatchHeader) -> bytes:
    """The header alone, which still tells offsets, sequences and epochs."""
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
    """The batch with those of its records whose place in `keep` is 1, at least one.

    `section` is the unpacked records section. Kept records are its very bytes, unless `horizon_ms` makes a new base
    timestamp: then their deltas are written anew. The codec stays. `max_timestamp` is the newest one that is kept;
    with log-append time the old one stays. `places`, if known: where each record begins in `section`, and where the
    last one ends; other bytes may then stand around them.
    `CorruptMessageError` when the section does not hold as many records.
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
    """Where each record begins, and where the last one ends."""
    parts, end = find_begins(data, 0, header.record_count)
    if end != len(data):
        raise CorruptMessageError(f"the records of the batch at offset {header.base_offset} do not fill it")
    return np.concatenate((*parts, np.array([end])))


def _kept_parts(data: bytes, places: Integers, keep: bytes) -> Sequence[Buffer]:
    """The bytes of the kept records. Where many in a row have one size, they are the rows of a table."""
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
    """The kept records with `shift_ms` added to their timestamp deltas."""
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
    """A message or wrapper of format 0 or 1 with the messages that are kept, at least one, at their offsets."""
    append_time_ms = header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else None
    return encode_set(kept, magic=header.magic, codec=header.codec, append_time_ms=append_time_ms)
