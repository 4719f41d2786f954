"""Rows: they have exactly the Arrow layout that PySpark requires, and the values of the records."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from odradek.base.errors import ConfigError, CorruptMessageError
from odradek.base.types import TopicPartition
from odradek.compression import Codec
from odradek.records.frame_columns import FrameDecoder
from odradek.records.v2 import batch
from odradek.records.v2.batch import BatchBuilder, Headers
from pyspark_odradek.decoding.row_batches import BatchMaker
from pyspark_odradek.decoding.row_schema import CORRUPT, RowSchema

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


def made(
    raw: bytes, *, include_headers: bool = True, start_offset: int = 0, schema: RowSchema | None = None
) -> pa.RecordBatch:
    schema = schema or RowSchema.full(include_headers=include_headers)
    maker = BatchMaker(TopicPartition("flights", 3), schema)
    batches = []
    # The decoder uses its buffer again, so each batch is made before the next columns.
    for columns in FrameDecoder(schema.fields, rows=50_000, limit=LIMIT).decode(raw, start_offset=start_offset):
        batches.append(maker.make(columns))
        batches[-1].validate(full=True)
    return pa.Table.from_batches(batches, schema=schema.arrow).combine_chunks().to_batches()[0]


@pytest.mark.parametrize("include_headers", [False, True])
def test_the_layout_is_exactly_what_pyspark_compares_with(include_headers: bool) -> None:
    columns = RowSchema.full(include_headers=include_headers)
    expected = to_arrow_schema(columns.spark, timezone="UTC")
    for rows in (ROWS, ROWS[:1]):
        assert made(raw_of(rows), include_headers=include_headers).schema == expected
    assert columns.names[:7] == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def projected(*names: str) -> RowSchema:
    full = RowSchema.full(include_headers=True)
    return full.project(StructType([full.spark[name] for name in names]))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize(
    "names", [("offset",), ("partition", "topic"), ("timestamp",), ("value", "key"), ("headers", "offset"), ("key",)]
)
def test_a_projection_has_the_wanted_columns_in_their_order(names: tuple[str, ...], codec: Codec) -> None:
    raw = raw_of(ROWS, base_offset=4, codec=codec)
    found = made(raw, schema=projected(*names))
    assert found.schema.names == list(names)
    assert found.to_pydict() == {name: made(raw).to_pydict()[name] for name in names}


def test_offsets_alone_are_read_from_the_headers_of_batches() -> None:
    # The records are damaged, but nothing looks at them.
    header = batch.read_header(raw_of(ROWS, base_offset=9))
    raw = batch.assemble(header, b"\xff" * (header.size - batch.HEADER_SIZE))
    assert made(raw, schema=projected("offset")).to_pydict() == {"offset": [9, 10, 11, 12]}
    with pytest.raises(CorruptMessageError):
        made(raw, schema=projected("offset", "key"))


@pytest.mark.parametrize(
    "fields",
    [
        [StructField("key", StringType())],
        [StructField("offset", LongType()), StructField("offset", LongType())],
        [StructField("other", BinaryType())],
        [StructField("key", BinaryType(), nullable=False)],
        [],
    ],
)
def test_other_schemas_are_refused(fields: list[StructField]) -> None:
    with pytest.raises(ConfigError, match="the schema is not allowed"):
        RowSchema.full(include_headers=True).project(StructType(fields))


class Numbers:
    """A value decoder for decimal numbers."""

    value_type = LongType()

    def decode(self, values: pa.BinaryArray) -> tuple[pa.Array, pa.Array]:
        content = values.to_pylist()
        good = [value is not None and value.isdigit() for value in content]
        numbers = [int(value) if fine else None for value, fine in zip(content, good, strict=True)]
        return pa.array(numbers, pa.int64()), pa.array(
            [None if fine else value for value, fine in zip(content, good, strict=True)], pa.binary()
        )


def test_a_value_decoder_makes_typed_values() -> None:
    schema = RowSchema.full(include_headers=False, value_type=LongType())
    assert schema.names[-1] == CORRUPT
    wanted = schema.project(StructType([schema.spark[CORRUPT], schema.spark["value"]]))
    maker = BatchMaker(TopicPartition("flights", 3), wanted, Numbers())
    raw = raw_of([(None, b"12", 0, ()), (None, b"x", 0, ()), (None, None, 0, ())])
    (columns,) = FrameDecoder(wanted.fields, rows=10, limit=LIMIT).decode(raw)
    assert maker.make(columns).to_pydict() == {CORRUPT: [None, b"x", None], "value": [12, None, None]}


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
    for milliseconds in (2**62, -(2**63)):
        with pytest.raises(CorruptMessageError, match="KAFKA_MALFORMED_RECORD_TIMESTAMP"):
            made(raw_of([(None, None, milliseconds, ())]))
