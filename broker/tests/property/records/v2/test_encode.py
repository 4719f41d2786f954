"""Batches that are encoded column by column are those that `BatchBuilder` builds record by record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from odradek.compression import Codec
from odradek.records.v2.batch import BatchBuilder, Headers
from odradek.records.v2.encode import HeaderStrings, ProducerNumbers, RecordColumns, encode_groups, encode_records
from odradek.records.v2.encode_fields import ByteStrings

Row = tuple[bytes | None, bytes | None, int, Headers]

TEXTS = st.one_of(
    st.none(),
    st.binary(max_size=12),
    # Lengths around the steps of the varints and of the copies.
    st.sampled_from([0, 1, 63, 64, 65, 127, 128, 200, 8191, 8192, 9000])
    .map(lambda size: bytes(range(256)) * 36)
    .flatmap(lambda data: st.integers(0, 9000).map(lambda size: data[:size])),
)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=70))), max_size=4)
TIMES = st.one_of(
    st.integers(0, 2**41),
    st.integers(1_700_000_000_000, 1_700_000_000_200),
    # Differences of them are varints of 9 and 10 bytes, which do not fit into a word.
    st.sampled_from([0, 2**55, 2**62]),
)
ROWS = st.lists(st.tuples(TEXTS, TEXTS, TIMES, HEADERS), min_size=1, max_size=30)


def strings(values: Sequence[bytes | None], *, gap: int) -> ByteStrings:
    """Lay values out in one buffer, with unused bytes between them."""
    buffer = bytearray(gap)
    start, length = [], []
    for value in values:
        start.append(len(buffer))
        length.append(-1 if value is None else len(value))
        buffer += (value or b"") + bytes(gap)
    return ByteStrings(np.frombuffer(bytes(buffer), np.uint8), np.array(start, np.int64), np.array(length, np.int64))


def columns_of(rows: Sequence[Row], *, gap: int) -> RecordColumns:
    counts = np.array([len(row[3]) for row in rows], np.int64)
    flat = [header for row in rows for header in row[3]]
    return RecordColumns(
        count=len(rows),
        timestamp_ms=np.array([row[2] for row in rows], np.int64),
        keys=strings([row[0] for row in rows], gap=gap),
        values=strings([row[1] for row in rows], gap=gap),
        headers=HeaderStrings(
            np.cumsum(counts) - counts,
            counts,
            strings([name.encode() for name, _ in flat], gap=gap),
            strings([value for _, value in flat], gap=gap),
        ),
    )


def built(rows: Sequence[Row], limit_bytes: int, codec: Codec, numbers: ProducerNumbers) -> list[bytes]:
    builders = [BatchBuilder(codec=codec, limit_bytes=limit_bytes)]
    for key, value, timestamp_ms, headers in rows:
        if not builders[-1].append(key, value, timestamp_ms=timestamp_ms, headers=headers):
            builders.append(BatchBuilder(codec=codec, limit_bytes=limit_bytes))
            builders[-1].append(key, value, timestamp_ms=timestamp_ms, headers=headers)
    return [
        builder.build(
            producer_id=numbers.producer_id,
            producer_epoch=numbers.epoch,
            base_sequence=numbers.base_sequence,
            is_transactional=numbers.is_transactional,
        )
        for builder in builders
    ]


@given(
    rows=ROWS,
    limit_bytes=st.integers(62, 40_000),
    codec=st.sampled_from(Codec),
    numbers=st.builds(
        ProducerNumbers, st.integers(-1, 2**40), st.integers(-1, 9), st.integers(-1, 2**31 - 1), st.booleans()
    ),
    gap=st.integers(0, 3),
)
def test_batches_have_the_bytes_of_the_builder(
    rows: list[Row], limit_bytes: int, codec: Codec, numbers: ProducerNumbers, gap: int
) -> None:
    batches = encode_records(columns_of(rows, gap=gap), limit_bytes=limit_bytes, codec=codec)
    assert [bytes(batch.build(numbers)) for batch in batches] == built(rows, limit_bytes, codec, numbers)
    assert sum(batch.record_count for batch in batches) == len(rows)


@given(
    rows=ROWS,
    missing=st.sets(st.sampled_from(["keys", "values", "headers", "times"])),
    limit_bytes=st.integers(62, 40_000),
)
def test_columns_may_be_missing(rows: list[Row], missing: set[str], limit_bytes: int) -> None:
    rows = [
        (
            None if "keys" in missing else key,
            None if "values" in missing else value,
            7 if "times" in missing else time,
            () if "headers" in missing else headers,
        )
        for key, value, time, headers in rows
    ]
    columns = columns_of(rows, gap=0)
    columns = replace(
        columns,
        timestamp_ms=7 if "times" in missing else columns.timestamp_ms,
        **{name: None for name in ("keys", "values", "headers") if name in missing},
    )
    batches = encode_records(columns, limit_bytes=limit_bytes)
    assert [bytes(batch.build()) for batch in batches] == built(rows, limit_bytes, Codec.NONE, ProducerNumbers())


@given(rows=ROWS, data=st.data(), limit_bytes=st.integers(62, 40_000))
def test_chosen_rows_are_encoded_in_the_chosen_order(rows: list[Row], data: st.DataObject, limit_bytes: int) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, unique=True))
    taken = columns_of(rows, gap=1).take(np.array(chosen, np.int64))
    batches = encode_records(taken, limit_bytes=limit_bytes)
    expected = built([rows[row] for row in chosen], limit_bytes, Codec.NONE, ProducerNumbers())
    assert [bytes(batch.build()) for batch in batches] == expected


@given(rows=ROWS, data=st.data(), limit_bytes=st.integers(62, 40_000), codec=st.sampled_from(Codec))
def test_groups_are_encoded_as_each_one_alone(
    rows: list[Row], data: st.DataObject, limit_bytes: int, codec: Codec
) -> None:
    ends = [*sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=5))), len(rows)]
    columns = columns_of(rows, gap=0)
    groups = encode_groups(columns, ends, limit_bytes=limit_bytes, codec=codec)
    for begin, end, batches in zip([0, *ends], ends, groups, strict=False):
        alone = encode_records(columns.take(np.arange(begin, end)), limit_bytes=limit_bytes, codec=codec)
        assert [bytes(batch.build()) for batch in batches] == [bytes(batch.build()) for batch in alone]
    assert len(groups) == len(ends)
