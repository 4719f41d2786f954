"""Transactions as readers of a log see them (KIP-98): their markers, and which batches are aborted.

The clients and `records/columns` skip aborted batches; compaction and the log tools read the markers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from odradek.base.ports import Buffer
from odradek.records.v2.batch import BatchHeader, ControlType, read_control_type
from odradek.records.v2.record import decode_batch

MARKER_LIMIT_BYTES: Final = 64 * 1024
"""Maximum decompressed size of a control batch, which contains one small record."""


def read_marker_type(buffer: Buffer, position: int, header: BatchHeader) -> ControlType | None:
    """Return how the control batch at `position` ends its transaction.

    None if compaction removed its record, or if the record has another type. Raises `CorruptMessageError` for an
    invalid batch.
    """
    records = decode_batch(buffer, position, header, limit=MARKER_LIMIT_BYTES)
    return read_control_type(records[0].key) if records else None


class AbortedTransactions:
    """Detects the batches of aborted transactions. Pass the batches in the order of their offsets."""

    __slots__ = ("_open", "_waiting")

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        """`aborted`: producer id and first offset of each transaction, as in a read-committed fetch response."""
        self._waiting = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
        self._open: set[int] = set()

    def cover(self, header: BatchHeader, buffer: Buffer, position: int) -> bool:
        """Whether the batch at `position` is part of an aborted transaction. Its marker ends the transaction."""
        while self._waiting and self._waiting[-1][1] <= header.last_offset:
            self._open.add(self._waiting.pop()[0])
        if header.producer_id not in self._open:
            return False
        if header.is_control and read_marker_type(buffer, position, header) is ControlType.ABORT:
            self._open.discard(header.producer_id)
        return header.is_transactional
