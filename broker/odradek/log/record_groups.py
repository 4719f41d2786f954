"""Records of many entries side by side, so that compaction decides on thousands of them in one step.

Entries with their unpacked records enter; columns of keys, offsets and timestamps leave, whatever the format.
`log.cleaning` fills groups and works them off, in a worker. Invariant: a group holds open entries of one kind only,
batches or old messages, in the order of the log, and no more of them than its bounds allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odradek.base.ports import Buffer
from odradek.log.offset_map import Integers
from odradek.records.batch import MAGIC, BatchHeader
from odradek.records.columns import KeyColumns, decode, decode_keys
from odradek.records.formats import check_entry
from odradek.records.message_set import read_messages
from odradek.records.record import Message, record_bytes

Flags = NDArray[np.bool_]

UNPACKED_LIMIT: Final = 128 << 20
"""Largest entry, unpacked, that is looked into."""

GROUP_BYTES: Final = 4 << 20
GROUP_RECORDS: Final = 1 << 16
"""So many unpacked bytes or records are looked at together; a single entry may exceed them."""

_KEY_PADDING: Final = bytes(8)


class Rows(NamedTuple):
    """Records of several entries as columns; a key's length is -1 where it is null."""

    buffer: bytes
    begin: Integers | None
    """Where each record of a batch begins, and where the last one ends; old messages are no bytes any more."""
    offset: Integers
    timestamp_ms: Integers
    key_start: Integers
    key_length: Integers
    is_tombstone: Flags
    end: list[int]
    """Of each entry, the row behind its last one."""


@dataclass(slots=True)
class Entry:
    """One entry and what is known of its fate; with neither `section` nor `messages` it is settled."""

    header: BatchHeader
    raw: memoryview
    keeps_header: bool = False
    """Where no record stays, an empty batch has to."""
    section: bytes | memoryview | None = None
    messages: list[Message] | None = None
    output: Buffer | None = None

    @property
    def is_open(self) -> bool:
        return self.section is not None or self.messages is not None

    def unpack(self) -> int:
        """Make its records accessible; their unpacked bytes."""
        header = self.header
        check_entry(self.raw, 0, header)
        if header.magic == MAGIC:
            self.section = record_bytes(self.raw, 0, header, limit=UNPACKED_LIMIT)
            return len(self.section)
        self.messages = read_messages(self.raw, 0, header, limit=UNPACKED_LIMIT)
        return sum(len(key or b"") + len(value or b"") for _, _, key, value in self.messages)


@dataclass(slots=True)
class Group:
    """Entries that are looked at together; all open ones of batches, or all of old messages."""

    entries: list[Entry] = field(default_factory=list)
    size: int = 0
    records: int = 0
    of_batches: bool | None = None

    def takes(self, entry: Entry) -> bool:
        """Whether another entry may join before the group is worked off."""
        if self.size >= GROUP_BYTES or self.records >= GROUP_RECORDS:
            return False
        return self.of_batches is None or not entry.is_open or self.of_batches == (entry.section is not None)

    def add(self, entry: Entry, size: int) -> None:
        self.entries.append(entry)
        self.size += size
        if entry.is_open:
            self.of_batches = entry.section is not None
            self.records += entry.header.record_count if entry.messages is None else len(entry.messages)

    def rows(self) -> tuple[list[Entry], Rows]:
        """The open entries and their records."""
        entries = [entry for entry in self.entries if entry.is_open]
        return entries, _rows_of_batches(entries) if self.of_batches else _rows_of_messages(entries)

    def keys(self) -> KeyColumns:
        """The keys of the open entries' records."""
        entries = [entry for entry in self.entries if entry.is_open]
        if self.of_batches:
            return decode_keys(_sections(entries))
        rows = _rows_of_messages(entries)
        return KeyColumns(rows.buffer, rows.offset, rows.key_start, rows.key_length)


def _sections(entries: Sequence[Entry]) -> list[tuple[BatchHeader, bytes | memoryview]]:
    return [(entry.header, entry.section or b"") for entry in entries]


def _rows_of_batches(entries: Sequence[Entry]) -> Rows:
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


def _rows_of_messages(entries: Sequence[Entry]) -> Rows:
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
