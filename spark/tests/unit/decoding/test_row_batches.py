"""Rows: they have exactly the Arrow layout that PySpark requires, and the values of the records."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from odradek.base.errors import CorruptMessageError
from odradek.base.types import TopicPartition
from odradek.compression import Codec
from odradek.records import columns
from odradek.records.v2 import batch
from odradek.records.v2.batch import BatchBuilder, Headers
from pyspark_odradek.decoding.row_batches import BatchMaker, row_schema

LIMIT = 1 << 24
Row = tuple[bytes | None, bytes | None, int, Headers]
ROWS: list[Row] = [
    (b"k", b"v", 1_700_000_000_123, ()),
    (None, b"", -1, [("h", b"x"), ("h", None), ("\N{SNOWMAN}", b"")]),
    (b"", None, 0, ()),
    (b"key", b"value", 5, [("z", b"z")]),
]


def raw_of(rows: list[Row], *, base_offset: int = 0, codec: Codec = Codec.NONE) -> bytes:
    builder = BatchBuilder(codec=codec, limit_bytes=LIMIT)
    for key, value, timestamp_ms, headers in rows:
        builder.append(key, value, timestamp_ms=timestamp_ms, headers=headers)
    return builder.build(base_offset=base_offset)


def made(raw: bytes, *, include_headers: bool = True, start_offset: int = 0) -> pa.RecordBatch:
    maker = BatchMaker(TopicPartition("flights", 3), include_headers=include_headers)
    unpacked = list(columns.unpack(raw, limit=LIMIT))
    found = columns.decode(unpacked, start_offset=start_offset, with_headers=include_headers)
    made_batch = maker.make(found)
    made_batch.validate(full=True)
    return made_batch


@pytest.mark.parametrize("include_headers", [False, True])
def test_the_layout_is_exactly_what_pyspark_compares_with(include_headers: bool) -> None:
    expected = to_arrow_schema(row_schema(include_headers=include_headers), timezone="UTC")
    for rows in (ROWS, ROWS[:1]):
        assert made(raw_of(rows), include_headers=include_headers).schema == expected
    assert row_schema(include_headers=include_headers).names[:7] == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType",
    ]  # fmt: skip


def test_records_become_rows() -> None:
    raw = raw_of(ROWS[:2], base_offset=40, codec=Codec.LZ4) + raw_of(ROWS[2:], base_offset=50)
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

    def at(milliseconds: int) -> datetime.datetime:
        return epoch + datetime.timedelta(milliseconds=milliseconds)

    rows = [tuple(row.values()) for row in made(raw).to_pylist()]
    assert rows == [
        (b"k", b"v", "flights", 3, 40, at(1_700_000_000_123), 0, None),
        (None, b"", "flights", 3, 41, at(-1), 0, [
            {"key": "h", "value": b"x"}, {"key": "h", "value": None}, {"key": "\N{SNOWMAN}", "value": b""},
        ]),
        (b"", None, "flights", 3, 50, at(0), 0, None),
        (b"key", b"value", "flights", 3, 51, at(5), 0, [{"key": "z", "value": b"z"}]),
    ]  # fmt: skip


def test_log_append_time_is_told() -> None:
    raw = bytearray(raw_of(ROWS[:1]))
    batch.stamp_log_append_time(raw, 0, batch.read_header(raw), 77)
    row = made(bytes(raw) + raw_of(ROWS[:1], base_offset=1)).to_pylist()
    assert [(entry["timestamp"].microsecond, entry["timestampType"]) for entry in row] == [(77_000, 1), (123_000, 0)]


def test_more_rows_than_the_constants_are_kept_for() -> None:
    rows: list[Row] = [(b"%d" % number, b"v", number, ()) for number in range(20_000)]
    made_batch = made(raw_of(rows), include_headers=False, start_offset=1)
    assert made_batch.num_rows == 19_999
    assert made_batch.column("topic").unique().to_pylist() == ["flights"]
    assert made_batch.column("key").to_pylist() == [b"%d" % number for number in range(1, 20_000)]


def test_header_names_that_are_no_utf8_are_made_readable() -> None:
    raw = raw_of([(None, None, 0, [("n\N{LATIN SMALL LETTER E WITH ACUTE}", b"v")])])
    at = raw.index("\N{LATIN SMALL LETTER E WITH ACUTE}".encode())
    broken = bytearray(raw)
    broken[at] = 0xFF
    fixed = batch.assemble(batch.read_header(raw), bytes(broken[batch.HEADER_SIZE :]))
    (row,) = made(fixed).to_pylist()
    assert row["headers"][0]["key"].startswith("n\N{REPLACEMENT CHARACTER}")


def test_a_timestamp_beyond_microseconds_is_refused() -> None:
    with pytest.raises(CorruptMessageError, match="KAFKA_MALFORMED_RECORD_TIMESTAMP"):
        made(raw_of([(None, None, 2**62, ())]))


def test_no_rows_are_a_batch_all_the_same() -> None:
    assert made(raw_of(ROWS), start_offset=9).num_rows == 0
