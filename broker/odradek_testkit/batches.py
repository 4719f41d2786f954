"""Record batches for tests: iteration over whole batches, and transaction markers."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from odradek.base.ports import Buffer
from odradek.base.types import NO_EPOCH
from odradek.records.v2.batch import HEADER_SIZE, BatchBuilder, BatchHeader, ControlType, read_header

_CONTROL_KEY: Final = Struct(">hh")
_END_TRANSACTION_VALUE: Final = Struct(">hi")


def iterate(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each whole batch; stops before an incomplete one, as fetches may truncate it."""
    position = 0
    end = len(buffer)
    while end - position >= HEADER_SIZE:
        header = read_header(buffer, position)
        following = position + header.size
        if following > end:
            return
        yield position, header
        position = following


def control_batch(
    control_type: ControlType,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = NO_EPOCH,
) -> bytes:
    """Build a transaction marker (KIP-98): one control record, with version 0 of key and value."""
    builder = BatchBuilder(limit_bytes=0)
    builder.append(
        _CONTROL_KEY.pack(0, control_type), _END_TRANSACTION_VALUE.pack(0, coordinator_epoch), timestamp_ms=timestamp_ms
    )
    return builder.build(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )
