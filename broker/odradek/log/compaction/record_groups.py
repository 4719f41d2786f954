"""Groups the records of many entries, so that compaction decides on thousands of records in one step.

`log/compaction/compaction_pass` fills groups with unpacked entries in a worker, and reads their keys, offsets and
timestamps as columns, whatever the format. Invariant: the open entries of a group are of one kind, batches or old
messages, in log order, and within the size limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odradek.base.ports import Buffer
from odradek.log.compaction.offset_map import Integers
from odradek.records.columns import KeyColumns, decode, decode_keys
from odradek.records.formats import check_entry
from odradek.records.legacy.message_set import read_messages
from odradek.records.v2.batch import MAGIC, BatchHeader
from odradek.records.v2.record import UNPACKED_LIMIT_BYTES, Message, record_bytes

Flags = NDArray[np.bool_]

GROUP_BYTES: Final = 4 << 20
GROUP_RECORDS: Final = 1 << 16
"""Limits of a group in unpacked bytes and records; a single entry may exceed them."""

_KEY_PADDING: Final = bytes(8)


class Rows(NamedTuple):
    """The records of several entries as columns; a key length of -1 means a null key."""

    buffer: bytes
    begin: Integers | None
    """Start of each record of a batch, and the end of the last one; None for old messages, which are decoded."""
    offset: Integers
    timestamp_ms: Integers
    key_start: Integers
    key_length: Integers
    is_tombstone: Flags
    end: list[int]
    """For each entry, the index in these columns after its last record."""


@dataclass(slots=True)
class GroupEntry:
    """One entry and the decision on it. The decision is final if both `section` and `messages` are None."""

    header: BatchHeader
    raw: memoryview
    keeps_header: bool = False
    """Whether the batch is kept without records if none of its records is kept."""
    section: bytes | memoryview | None = None
    messages: list[Message] | None = None
    output: Buffer | None = None

    @property
    def is_open(self) -> bool:
        return self.section is not None or self.messages is not None

    def unpack(self) -> int:
        """Unpack the records. Returns the number of unpacked bytes."""
        header = self.header
        check_entry(self.raw, 0, header)
        if header.magic == MAGIC:
            self.section = record_bytes(self.raw, 0, header, limit=UNPACKED_LIMIT_BYTES)
            return len(self.section)
        self.messages = read_messages(self.raw, 0, header, limit=UNPACKED_LIMIT_BYTES)
        return sum(len(key or b"") + len(value or b"") for _, _, key, value in self.messages)


@dataclass(slots=True)
class Group:
    """Entries that are processed together; all open ones are batches, or all are old messages."""

    entries: list[GroupEntry] = field(default_factory=list)
    size: int = 0
    records: int = 0
    of_batches: bool | None = None

    def takes(self, entry: GroupEntry) -> bool:
        """Whether the entry may be added before the group is processed."""
        if self.size >= GROUP_BYTES or self.records >= GROUP_RECORDS:
            return False
        return self.of_batches is None or not entry.is_open or self.of_batches == (entry.section is not None)

    def add(self, entry: GroupEntry, size: int) -> None:
        self.entries.append(entry)
        self.size += size
        if entry.is_open:
            self.of_batches = entry.section is not None
            self.records += entry.header.record_count if entry.messages is None else len(entry.messages)

    def rows(self) -> tuple[list[GroupEntry], Rows]:
        """Return the open entries and their records."""
        entries = [entry for entry in self.entries if entry.is_open]
        return entries, _rows_of_batches(entries) if self.of_batches else _rows_of_messages(entries)

    def keys(self) -> KeyColumns:
        """Return the keys of the open entries' records."""
        entries = [entry for entry in self.entries if entry.is_open]
        if self.of_batches:
            return decode_keys(_sections(entries))
        rows = _rows_of_messages(entries)
        return KeyColumns(rows.buffer, rows.offset, rows.key_start, rows.key_length)


def _sections(entries: Sequence[GroupEntry]) -> list[tuple[BatchHeader, bytes | memoryview]]:
    return [(entry.header, entry.section or b"") for entry in entries]


def _rows_of_batches(entries: Sequence[GroupEntry]) -> Rows:
    sections = _sections(entries)
    columns = decode(sections)
    return Rows(
        columns.buffer,
        np.append(columns.begin, sum(len(section) for _, section in sections)),
        columns.offset,
        columns.timestamp_ms,
        columns.key_start,
        columns.key_length,
        columns.value_length < 0,
        np.cumsum([entry.header.record_count for entry in entries], dtype=np.int64).tolist(),
    )


def _rows_of_messages(entries: Sequence[GroupEntry]) -> Rows:
    messages = [message for entry in entries for message in entry.messages or ()]
    keys = [key or b"" for _, _, key, _ in messages]
    length = np.array([len(key) for key in keys], dtype=np.int64)
    start = np.cumsum(length) - length
    is_null = np.array([key is None for _, _, key, _ in messages], dtype=np.bool_)
    return Rows(
        b"".join((*keys, _KEY_PADDING)),
        None,
        np.array([offset for offset, _, _, _ in messages], dtype=np.int64),
        np.array([timestamp for _, timestamp, _, _ in messages], dtype=np.int64),
        start,
        np.where(is_null, -1, length),
        np.array([value is None for _, _, _, value in messages], dtype=np.bool_),
        np.cumsum([len(entry.messages or ()) for entry in entries], dtype=np.int64).tolist(),
    )
