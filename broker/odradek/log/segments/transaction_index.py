"""The transaction index of one segment: the aborted transactions, whose records read-committed consumers skip.

Entries are added when an abort marker is appended or found in recovery. `log/segments/segment` owns one index per
segment. The file is Kafka's `.txnindex`: big-endian entries of 34 bytes (version int16 0, then int64 producer id, first
offset, last offset, last stable offset). Invariant: last offsets, which are those of the markers, strictly increase.
"""

from __future__ import annotations

from bisect import bisect_left
from struct import Struct
from typing import Final, NamedTuple

TRANSACTION_ENTRY_BYTES: Final = 34
TRANSACTION_ENTRY_VERSION: Final = 0
_ENTRY_MEMORY_BYTES: Final = 208
"""Approximate memory of an entry: a tuple of four integers and its slot in the list."""
_ENTRY: Final = Struct(">hqqqq")


class AbortedTxn(NamedTuple):
    """One aborted transaction."""

    producer_id: int
    first_offset: int
    """Offset of its first record."""
    last_offset: int
    """Offset of its abort marker."""
    last_stable_offset: int
    """The log's last stable offset once the marker was appended: no later transaction begins below it."""


class TransactionIndex:
    """The aborted transactions whose markers are in one segment, by the offset of the marker."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        """Create an empty index."""
        self._entries: list[AbortedTxn] = []

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._entries)

    @property
    def memory_bytes(self) -> int:
        """Approximate memory of the entries."""
        return _ENTRY_MEMORY_BYTES * len(self._entries)

    def entries(self) -> tuple[AbortedTxn, ...]:
        """Return all entries."""
        return tuple(self._entries)

    def append(self, aborted: AbortedTxn) -> None:
        """Add an entry at the end. Raises `ValueError` if its marker is not above all others."""
        if self._entries and aborted.last_offset <= self._entries[-1].last_offset:
            raise ValueError(f"{aborted} does not follow {self._entries[-1]}")
        self._entries.append(aborted)

    def collect(self, offset: int, upper_offset: int) -> tuple[list[AbortedTxn], bool]:
        """Return the entries that overlap [`offset`, `upper_offset`), and whether no later entry can overlap it.

        The second value is true once an entry's last stable offset reaches `upper_offset`: later markers then end
        transactions that begin at or above it.
        """
        found = []
        first = bisect_left(self._entries, offset, key=_last_offset)
        for entry in self._entries[first:]:
            if entry.first_offset < upper_offset:
                found.append(entry)
            if entry.last_stable_offset >= upper_offset:
                return found, True
        return found, False

    def truncate(self, offset: int) -> bool:
        """Remove the entries whose markers are at or above `offset`. Returns whether there were any."""
        kept = bisect_left(self._entries, offset, key=_last_offset)
        dropped = kept < len(self._entries)
        del self._entries[kept:]
        return dropped

    def encode(self) -> bytes:
        """Return the content of the `.txnindex` file."""
        return b"".join(_ENTRY.pack(TRANSACTION_ENTRY_VERSION, *entry) for entry in self._entries)

    @classmethod
    def decode(cls, content: bytes, base_offset: int = 0) -> TransactionIndex | None:
        """Return the index in a file; None if its size, version, order or offsets show that it is corrupt."""
        if len(content) % TRANSACTION_ENTRY_BYTES:
            return None
        index = cls()
        previous = base_offset - 1
        for version, *fields in _ENTRY.iter_unpack(content):
            entry = AbortedTxn._make(fields)
            if version != TRANSACTION_ENTRY_VERSION or entry.last_offset <= previous or entry.first_offset < 0:
                return None
            previous = entry.last_offset
            index._entries.append(entry)
        return index


def _last_offset(entry: AbortedTxn) -> int:
    return entry.last_offset
