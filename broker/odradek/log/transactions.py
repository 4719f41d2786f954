"""The aborted transactions of one segment: what a consumer that reads committed records has to leave out.

Entries enter when an abort marker is appended or found in recovery, those that overlap a fetch leave; `log.segment`
owns one index a segment. The file is Kafka's `.txnindex`: entries of 34 bytes, big endian (version int16 0, producer
id, first offset, last offset, last stable offset, each int64). Invariant: last offsets, those of the markers, rise
strictly.
"""

from __future__ import annotations

from bisect import bisect_left
from struct import Struct
from typing import Final, NamedTuple

TRANSACTION_ENTRY_BYTES: Final = 34
TRANSACTION_ENTRY_VERSION: Final = 0
_ENTRY: Final = Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    """One transaction that was aborted."""

    producer_id: int
    first_offset: int
    """Offset of its first record."""
    last_offset: int
    """Offset of its abort marker."""
    last_stable_offset: int
    """The log's last stable offset once the marker was appended: below it no later transaction begins."""


class TransactionIndex:
    """Aborted transactions whose markers lie in one segment, by the offset of the marker."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        """An empty index."""
        self._entries: list[AbortedTransaction] = []

    def __len__(self) -> int:
        """Number of entries."""
        return len(self._entries)

    def entries(self) -> tuple[AbortedTransaction, ...]:
        """All of them."""
        return tuple(self._entries)

    def append(self, aborted: AbortedTransaction) -> None:
        """Add an entry at the end; `ValueError` when its marker does not lie above all others."""
        if self._entries and aborted.last_offset <= self._entries[-1].last_offset:
            raise ValueError(f"{aborted} does not follow {self._entries[-1]}")
        self._entries.append(aborted)

    def collect(self, offset: int, upper_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Those that overlap the offsets from `offset` to below `upper_offset`, and whether no later one can.

        The second is true once an entry's last stable offset reaches `upper_offset`: later markers then end
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
        """Drop the entries whose markers lie at or above `offset`; whether there were any."""
        kept = bisect_left(self._entries, offset, key=_last_offset)
        dropped = kept < len(self._entries)
        del self._entries[kept:]
        return dropped

    def encode(self) -> bytes:
        """Content of the `.txnindex` file."""
        return b"".join(_ENTRY.pack(TRANSACTION_ENTRY_VERSION, *entry) for entry in self._entries)

    @classmethod
    def decode(cls, content: bytes, base_offset: int = 0) -> TransactionIndex | None:
        """The index of a segment's file; None when size, version, order or offsets show that it is corrupt."""
        if len(content) % TRANSACTION_ENTRY_BYTES:
            return None
        index = cls()
        previous = base_offset - 1
        for version, *fields in _ENTRY.iter_unpack(content):
            entry = AbortedTransaction._make(fields)
            if version != TRANSACTION_ENTRY_VERSION or entry.last_offset <= previous or entry.first_offset < 0:
                return None
            previous = entry.last_offset
            index._entries.append(entry)
        return index


def _last_offset(entry: AbortedTransaction) -> int:
    return entry.last_offset
