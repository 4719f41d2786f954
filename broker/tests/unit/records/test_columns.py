"""Columns: aborted records with read_committed, skipped records, and refusals."""

from __future__ import annotations

import pytest

from odradek.base.errors import CorruptMessageError
from odradek.compression import Codec
from odradek.records import columns
from odradek.records.frame_columns import RecordFields
from odradek.records.legacy.writing import encode_set
from odradek.records.v2 import batch
from odradek.records.v2.batch import BatchBuilder, ControlType
from odradek.records.v2.transactions import marker_batch
from odradek.records.v2.varint import encode_varint
from odradek_testkit.batches import frame_records

LIMIT = 1 << 20
ONLY_OFFSETS = RecordFields(timestamp=False, key=False, value=False)


def batch_at(offset: int, *, producer_id: int = -1, count: int = 2) -> bytes:
    builder = BatchBuilder(limit_bytes=LIMIT)
    for _ in range(count):
        builder.append(None, b"v", timestamp_ms=0)
    transactional = producer_id >= 0
    return builder.build(base_offset=offset, producer_id=producer_id, is_transactional=transactional)


def marker_at(offset: int, producer_id: int, kind: ControlType) -> bytes:
    return marker_batch(
        kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0, base_offset=offset
    )


def offsets_of(raw: bytes, *, start_offset: int = 0, aborted: tuple[tuple[int, int], ...] = ()) -> list[int]:
    records = frame_records(raw, start_offset=start_offset, aborted=aborted)
    offsets = [record.offset for record in records]
    # Without a field of the records, the offsets come from the headers.
    counted = frame_records(raw, fields=ONLY_OFFSETS, start_offset=start_offset, aborted=aborted)
    assert [record.offset for record in counted] == offsets
    return offsets


INTERLEAVED = (
    batch_at(0, producer_id=1)
    + batch_at(2, producer_id=2)
    + batch_at(4)
    + marker_at(6, 1, ControlType.ABORT)
    + batch_at(7, producer_id=1)
    + marker_at(9, 2, ControlType.COMMIT)
    + marker_at(10, 1, ControlType.COMMIT)
)


def test_control_batches_are_no_records() -> None:
    assert offsets_of(INTERLEAVED) == [0, 1, 2, 3, 4, 5, 7, 8]


def test_aborted_transactions_end_at_their_marker() -> None:
    assert offsets_of(INTERLEAVED, aborted=((1, 0),)) == [2, 3, 4, 5, 7, 8]


def test_an_aborted_transaction_that_began_before_the_buffer() -> None:
    assert offsets_of(INTERLEAVED[len(batch_at(0)) :], start_offset=5, aborted=((1, 0), (9, 3))) == [5, 7, 8]


def test_no_batch_is_no_row() -> None:
    decoded = columns.decode([], with_headers=True)
    assert len(decoded) == 0
    assert decoded.headers is not None


def test_a_truncated_end_is_ignored() -> None:
    assert offsets_of(INTERLEAVED[:-1]) == [0, 1, 2, 3, 4, 5, 7, 8]
    assert offsets_of(batch_at(0) + batch_at(2)[:-1]) == [0, 1]


def test_a_wrong_crc_is_refused() -> None:
    raw = batch_at(0)
    with pytest.raises(CorruptMessageError):
        offsets_of(raw[:-1] + b"\x01")


def test_timestamps_do_not_wrap_around() -> None:
    body = b"\x00" + encode_varint(1) + b"\x00" + encode_varint(-1) * 2 + b"\x00"
    header = batch.read_header(batch_at(0, count=1))._replace(base_timestamp=2**63 - 1)
    with pytest.raises(CorruptMessageError):
        columns.decode([(header, encode_varint(len(body)) + body)])


OLD = (
    encode_set([(number, 7, b"k", b"v") for number in range(3)], magic=1, codec=Codec.GZIP)
    + encode_set([(3, -1, None, None)], magic=0)
    + batch_at(4)
)


def test_old_formats_come_as_batches() -> None:
    assert offsets_of(OLD) == [0, 1, 2, 3, 4, 5]
    assert offsets_of(OLD, start_offset=1) == [1, 2, 3, 4, 5]
    # The wrapper has the offset of its last message, after the requested range.
    assert [record.offset for record in frame_records(OLD, end_offset=2)] == [0, 1]


def test_a_wrong_crc_of_an_old_message_is_refused() -> None:
    with pytest.raises(CorruptMessageError):
        offsets_of(encode_set([(3, 1, None, b"v")], magic=1)[:-1] + b"w")
