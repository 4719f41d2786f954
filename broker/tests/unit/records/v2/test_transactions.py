"""Transaction markers, and the batches of aborted transactions."""

from __future__ import annotations

import pytest

from odradek.base.errors import CorruptMessageError
from odradek.log.compaction.filtering import empty_batch
from odradek.records.v2.batch import BatchBuilder, ControlType, read_header
from odradek.records.v2.transactions import AbortedTransactions, marker_batch, read_marker_type


def data(offset: int, producer_id: int, *, is_transactional: bool = True) -> bytes:
    builder = BatchBuilder(limit_bytes=1 << 20)
    builder.append(None, b"v", timestamp_ms=0)
    return builder.build(base_offset=offset, producer_id=producer_id, is_transactional=is_transactional)


def marker(offset: int, producer_id: int, kind: ControlType = ControlType.ABORT) -> bytes:
    return marker_batch(
        kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0, base_offset=offset
    )


def covered(aborted: list[tuple[int, int]], *batches: bytes) -> list[bool]:
    transactions = AbortedTransactions(aborted)
    return [transactions.cover(read_header(batch), batch, 0) for batch in batches]


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_a_marker_contains_how_its_transaction_ended(kind: ControlType) -> None:
    batch = marker(0, 1, kind)
    assert read_marker_type(batch, 0, read_header(batch)) is kind


def test_a_control_batch_without_its_record_has_no_type() -> None:
    batch = empty_batch(read_header(marker(0, 1)))
    assert read_marker_type(batch, 0, read_header(batch)) is None


def test_a_damaged_marker_is_an_error() -> None:
    batch = marker(0, 1)
    with pytest.raises(CorruptMessageError):
        read_marker_type(batch[:-1], 0, read_header(batch))


def test_a_transaction_is_covered_from_its_first_offset_to_its_marker() -> None:
    batches = (data(0, 1), data(1, 1), data(2, 2), marker(3, 1), data(4, 1))
    assert covered([(1, 1)], *batches) == [False, True, False, True, False]


def test_only_an_abort_marker_ends_an_aborted_transaction() -> None:
    assert covered([(1, 1)], marker(0, 1, ControlType.COMMIT), data(1, 1), data(2, 1)) == [False, True, True]


def test_batches_outside_transactions_are_not_covered() -> None:
    assert covered([(1, 0)], data(0, 1, is_transactional=False), data(1, 1)) == [False, True]
