"""The timestamp of the first record at or after an offset."""

from __future__ import annotations

import pytest

from odradek.compression import Codec
from odradek.records.first_record import FirstRecord, first_record
from odradek.records.v2.batch import BatchBuilder, ControlType, TimestampType, read_header, stamp, stamp_log_append_time
from odradek.records.v2.transactions import marker_batch


def batch(base_offset: int, *timestamps: int, codec: Codec = Codec.NONE) -> bytearray:
    builder = BatchBuilder(codec=codec, limit_bytes=1 << 16)
    for timestamp in timestamps:
        builder.append(None, b"value", timestamp_ms=timestamp)
    content = bytearray(builder.build())
    stamp(content, 0, base_offset, 0)
    return content


def marker(base_offset: int) -> bytearray:
    content = marker_batch(ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=99)
    marked = bytearray(content)
    stamp(marked, 0, base_offset, 0)
    return marked


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize(
    ("offset", "found"),
    [
        (0, FirstRecord(30, 13)),
        (10, FirstRecord(30, 13)),
        (11, FirstRecord(20, 13)),
        (12, FirstRecord(40, 13)),
        (13, FirstRecord(50, 14)),
        (14, FirstRecord(None, 14)),
    ],
)
def test_the_record_at_or_after_an_offset(codec: Codec, offset: int, found: FirstRecord) -> None:
    assert first_record(batch(10, 30, 20, 40, codec=codec) + batch(13, 50), offset) == found


def test_markers_are_not_records() -> None:
    assert first_record(marker(5), 5) == FirstRecord(None, 6)
    assert first_record(marker(5) + batch(6, 70), 5) == FirstRecord(70, 7)


def test_without_a_whole_batch_nothing_is_found() -> None:
    assert first_record(b"", 4) == FirstRecord(None, 4)
    assert first_record(batch(4, 1)[:-1], 4) == FirstRecord(None, 4)


def test_the_append_time_of_a_batch_is_that_of_its_records() -> None:
    content = batch(0, 1, 2)
    stamp_log_append_time(content, 0, read_header(content), 500)
    assert read_header(content).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert first_record(content, 0).timestamp == first_record(content, 1).timestamp == 500


def test_a_record_without_a_timestamp() -> None:
    assert first_record(batch(0, -1), 0) == FirstRecord(-1, 1)
