"""Reading the log of a coordinator: records, markers of transactions, and the number of records of each batch."""

from __future__ import annotations

import pytest

from odradek.base.errors import CorruptMessageError
from odradek.coordinator.record_replay import replay_records
from odradek.log.compaction.filtering import empty_batch
from odradek.records.v2.batch import BatchBuilder, BatchHeader, ControlType, read_header
from odradek.records.v2.record import Record
from odradek.records.v2.transactions import marker_batch

Seen = list[tuple[int, bytes | ControlType | None]]
"""Producer ids, each with the key of a record or the end of a transaction."""


def data_batch(*keys: bytes, producer_id: int = -1) -> bytes:
    builder = BatchBuilder(limit_bytes=1 << 20)
    for key in keys:
        builder.append(key, b"value", timestamp_ms=0)
    return builder.build(producer_id=producer_id, is_transactional=producer_id >= 0)


def control_batch(key: bytes | None) -> bytes:
    """Return a control batch with a record that has this key."""
    builder = BatchBuilder(limit_bytes=1 << 20)
    builder.append(key, b"", timestamp_ms=0)
    return builder.build(producer_id=7, producer_epoch=0, is_transactional=True, is_control=True)


def marker(producer_id: int, kind: ControlType) -> bytes:
    return marker_batch(kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0)


def compacted(batch: bytes) -> bytes:
    """Return a batch without its records, as compaction leaves it."""
    return empty_batch(read_header(batch))


def replayed(records: bytes, *, with_markers: bool = True) -> tuple[Seen, list[int]]:
    """Return what is found, and the counts."""
    seen: Seen = []

    def take(header: BatchHeader, record: Record) -> None:
        seen.append((header.producer_id, record.key))

    def end(header: BatchHeader, kind: ControlType) -> None:
        seen.append((header.producer_id, kind))

    counts = list(replay_records(records, take, end if with_markers else None))
    return seen, counts


def test_records_and_markers_are_passed_on_in_their_order() -> None:
    records = (
        data_batch(b"a", b"b")
        + data_batch(b"c", producer_id=7)
        + marker(7, ControlType.COMMIT)
        + data_batch(b"d")
        + marker(8, ControlType.ABORT)
    )
    found = [(-1, b"a"), (-1, b"b"), (7, b"c"), (7, ControlType.COMMIT), (-1, b"d"), (8, ControlType.ABORT)]
    assert replayed(records) == (found, [2, 1, 1, 1, 1])


def test_each_count_comes_after_the_records_of_its_batch() -> None:
    taken: list[bytes | None] = []
    steps = replay_records(data_batch(b"a", b"b") + data_batch(b"c"), lambda _, record: taken.append(record.key))
    assert not taken
    assert next(steps) == 2
    assert taken == [b"a", b"b"]
    assert next(steps) == 1
    assert taken == [b"a", b"b", b"c"]


def test_markers_can_be_ignored() -> None:
    records = data_batch(b"a") + marker(7, ControlType.COMMIT) + control_batch(None)
    assert replayed(records, with_markers=False) == ([(-1, b"a")], [1, 1, 1])


def test_control_records_of_other_types_are_no_markers() -> None:
    assert replayed(control_batch(b"\x00\x00\x00\x05")) == ([], [1])


def test_batches_that_compaction_has_emptied_count_as_one_record() -> None:
    empty = compacted(data_batch(b"x", b"y", producer_id=7))
    without_marker = compacted(marker(7, ControlType.COMMIT))
    assert replayed(empty + without_marker + data_batch(b"a")) == ([(-1, b"a")], [1, 1, 1])


@pytest.mark.parametrize("is_marker", [True, False])
def test_a_damaged_batch_stops_the_replay_after_those_before_it(is_marker: bool) -> None:
    damaged = bytearray(marker(7, ControlType.COMMIT) if is_marker else data_batch(b"b"))
    damaged[-1] ^= 1
    taken: list[bytes | None] = []
    steps = replay_records(data_batch(b"a") + bytes(damaged), lambda _, record: taken.append(record.key))
    assert next(steps) == 1
    with pytest.raises(CorruptMessageError):
        next(steps)
    assert taken == [b"a"]


def test_a_marker_with_a_damaged_key_stops_the_replay() -> None:
    with pytest.raises(CorruptMessageError):
        replayed(control_batch(None))
