"""The fast replay of committed offsets: whole runs of batches are decoded column by column.

`group_replay` passes runs of plain batches here: without transactions, markers and old formats. Of each key in a run,
only the newest record becomes an object. Keys repeat the names of groups and topics, so each name and each partition is
decoded once and then shared by all offsets.

Invariant: `newest` either returns exactly what a replay record by record would find, or None, and then the run must be
replayed in that way: it has a record that only this way treats right, such as one that cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odradek.base.errors import MalformedFrameError
from odradek.base.types import NO_TIMESTAMP, TopicPartition
from odradek.coordinator.groups.group_offsets import Committed
from odradek.coordinator.groups.group_records import (
    OFFSET_KEY_VERSION,
    OFFSET_VALUE_VERSION,
    OffsetKey,
    OffsetValue,
    decode_key,
    decode_offset_value,
)
from odradek.records.columns import Columns, Unpacked, decode
from odradek.records.record_cursors import Integers

_GROUP_AT: Final = 4
"""Position of the name of the group in a key: after the version and the length of the name."""
_SIMPLE_BYTES: Final = 24
"""Size of a value of version 3 without metadata."""
_SIMPLE: Final = {0: 0, 1: OFFSET_VALUE_VERSION, 14: 0, 15: 0}
"""The bytes of such a value by position: the version, and the length of the metadata."""
_new: Final = tuple.__new__
"""Creates a named tuple in half the time of its constructor."""

Flags = NDArray[np.bool_]


class Newest(NamedTuple):
    """The newest record of a key in a run. Without an entry, it is a tombstone."""

    group: str
    topic_partition: TopicPartition
    entry: Committed | None


class OffsetColumns:
    """Decodes runs of batches, and knows the names that have occurred."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._groups: Final[dict[bytes, str]] = {}
        self._partitions: Final[dict[bytes, TopicPartition]] = {}

    def newest(self, batches: Sequence[Unpacked]) -> list[Newest] | None:
        """Return the newest record of each key, or None if the run must be replayed record by record.

        Raises `CorruptMessageError` if the records of a batch do not fill it exactly or a number in it is invalid.
        """
        columns = decode(batches)
        if not len(columns):
            return []
        if len(columns.buffer) < _SIMPLE_BYTES:
            return None  # A record with a key of an offset and its value has more bytes.
        data = np.frombuffer(columns.buffer, dtype=np.uint8)
        simple = _simple_values(data, columns)
        if not _has_offset_keys(data, columns):
            return None
        try:
            return list(self._newest(batches, columns, data, simple))
        except (MalformedFrameError, _UnusualKeyError):
            return None

    def _newest(
        self, batches: Sequence[Unpacked], columns: Columns, data: NDArray[np.uint8], simple: Flags
    ) -> Iterator[Newest]:
        buffer, value_length = columns.buffer, columns.value_length
        starts = columns.key_start
        ends = (starts + columns.key_length).tolist()
        keys = [buffer[start:end] for start, end in zip(starts.tolist(), ends, strict=True)]
        unusual = {
            int(number): decode_offset_value(buffer[columns.value_start[number] :][: value_length[number]])
            for number in np.flatnonzero(~simple & (value_length >= 0))
        }
        last = dict(zip(keys, range(len(keys)), strict=True))
        numbers = np.fromiter(last.values(), dtype=np.int64, count=len(last))
        values = _simple_columns(data, columns.value_start[numbers], simple[numbers])
        bases = [header.base_offset for header, _ in batches for _ in range(header.record_count)]
        is_simple = simple[numbers].tolist()
        latest_ms = NO_TIMESTAMP
        for (key, number), usual, offset, epoch, time_ms in zip(last.items(), is_simple, *values, strict=True):
            entry = None
            if usual:
                if time_ms != latest_ms:
                    latest_ms = time_ms  # The offsets of a commit share one number.
                value = _new(OffsetValue, (offset, latest_ms, "", epoch, NO_TIMESTAMP))
                entry = _new(Committed, (value, bases[number]))
            elif number in unusual:
                entry = Committed(unusual[number], bases[number])
            yield _new(Newest, (*self._names(key), entry))

    def _names(self, key: bytes) -> tuple[str, TopicPartition]:
        """Return the group and the partition of a key. Raises `MalformedFrameError`, as `decode_key`."""
        end = _GROUP_AT + (key[2] << 8 | key[3])
        name, place = key[_GROUP_AT:end], key[end:]
        group, topic_partition = self._groups.get(name), self._partitions.get(place)
        if group is None or topic_partition is None:
            decoded = decode_key(key)
            if not isinstance(decoded, OffsetKey):
                raise _UnusualKeyError
            group = self._groups.setdefault(name, decoded.group)
            found = TopicPartition(decoded.topic, decoded.partition)
            topic_partition = self._partitions.setdefault(place, found)
        return group, topic_partition


class _UnusualKeyError(Exception):
    """The key is of another type."""


def _has_offset_keys(data: NDArray[np.uint8], columns: Columns) -> bool:
    """Whether all keys are long enough, and have the same version of committed offsets, 0 or 1.

    Keys of both versions may be about the same partition.
    """
    if int(columns.key_length.min()) < _GROUP_AT:
        return False
    high, low = data[columns.key_start], data[columns.key_start + 1]
    return not high.any() and int(low[0]) <= OFFSET_KEY_VERSION and bool((low == low[0]).all())


def _simple_values(data: NDArray[np.uint8], columns: Columns) -> Flags:
    """Return which records have a value of version 3 without metadata."""
    simple: Flags = columns.value_length == _SIMPLE_BYTES
    for at, expected in _SIMPLE.items():
        simple &= data[_positions(data, columns.value_start, simple) + at] == expected
    return simple


def _positions(data: NDArray[np.uint8], start: Integers, simple: Flags) -> Integers:
    """Return where the simple values begin, and for others a position that has as many bytes after it."""
    return np.where(simple, start, max(0, len(data) - _SIMPLE_BYTES))


def _simple_columns(data: NDArray[np.uint8], start: Integers, simple: Flags) -> tuple[list[int], list[int], list[int]]:
    """Return offset, leader epoch and commit time of simple values; any number for others."""
    rows = data[_positions(data, start, simple)[:, None] + np.arange(_SIMPLE_BYTES)]

    def column(begin: int, kind: str) -> list[int]:
        size = np.dtype(kind).itemsize
        numbers: list[int] = np.ascontiguousarray(rows[:, begin : begin + size]).view(kind).ravel().tolist()
        return numbers

    return column(2, ">i8"), column(10, ">i4"), column(16, ">i8")
