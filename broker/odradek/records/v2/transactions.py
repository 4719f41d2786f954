"""Transactions in a log (KIP-98): the markers that end them, and which batches are aborted.

The leader of a partition writes markers. The clients and `records/columns` skip aborted batches; compaction and the log
tools read the markers.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

from odradek.base.ports import Buffer
from odradek.base.types import NO_EPOCH
from odradek.records.v2.batch import BatchBuilder, BatchHeader, ControlType, read_control_type
from odradek.records.v2.record import decode_batch

MARKER_LIMIT_BYTES: Final = 64 * 1024
"""Maximum decompressed size of a control batch, which contains one small record."""

_KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")
_VERSION: Final = 0
"""Version of key and value, the only one that exists."""


def marker_batch(
    kind: ControlType,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = NO_EPOCH,
) -> bytes:
    """Return the control batch that ends a transaction (KIP-98): one record, without a sequence number.

    The leader assigns `base_offset` and `leader_epoch` when it appends the batch. `coordinator_epoch` is the leader
    epoch of the partition of `__transaction_state`.
    """
    builder = BatchBuilder(limit_bytes=0)
    builder.append(_KEY.pack(_VERSION, kind), _VALUE.pack(_VERSION, coordinator_epoch), timestamp_ms=timestamp_ms)
    return builder.build(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


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
