"""Compares both ways of the down-conversion, by runs and record by record, with the conversion of single messages."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from odradek.records.conversion import down as conversion
from odradek.records.conversion.down import Converted, down
from odradek.records.legacy.writing import encode_set
from odradek.records.v2.batch import HEADER_SIZE, BatchBuilder, assemble, read_header
from odradek.records.v2.record import decode_batch

LIMIT = 1 << 24
BASE_MS = 1_700_000_000_000

sizes = st.none() | st.integers(0, 200)
runs = st.lists(
    st.tuples(
        st.integers(1, 300),
        sizes,
        sizes,
        st.sampled_from([0, 1, -1, 63, 64, 1 << 20, 1 << 40]),
        st.sampled_from([0, 0, 0, 1, 40]),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


def built(records: list[tuple[int, int | None, int | None, int, int, bool]]) -> bytes:
    """A batch of runs: count, key and value bytes, timestamp, its step, whether one in the middle has a header."""
    builder = BatchBuilder(limit_bytes=LIMIT)
    place = 0
    for count, key_bytes, value_bytes, start, step, with_header in records:
        for number in range(count):
            mark = b"%03d" % (place % 1000)
            builder.append(
                None if key_bytes is None else (mark * 70)[:key_bytes],
                None if value_bytes is None else (mark[::-1] * 70)[:value_bytes],
                timestamp_ms=BASE_MS + start + step * number,
                headers=[("h", b"x")] if with_header and number == count // 2 else [],
            )
            place += 1
    return builder.build()


def down_both_ways(content: bytes, *, magic: int, max_bytes: int | None = None) -> Converted:
    """Convert as in the interpreter and, record by record, as in compiled code. Both results must be equal."""
    results = []
    for compiled in (False, True):
        with patch.object(conversion, "IS_COMPILED", compiled):
            results.append(down(content, magic=magic, max_bytes=max_bytes))
    assert results[0] == results[1]
    return results[0]


@given(runs, st.sampled_from([0, 1]), st.booleans())
def test_similar_records_are_converted_like_single_ones(
    records: list[tuple[int, int | None, int | None, int, int, bool]], magic: int, append_time: bool
) -> None:
    content = built(records)
    header = read_header(content)
    if append_time:
        header = header._replace(attributes=header.attributes | 8, max_timestamp=BASE_MS + 99)
        content = assemble(header, content[HEADER_SIZE:])
        header = read_header(content)
    wanted = [
        (each.offset, each.timestamp, each.key, each.value) for each in decode_batch(content, 0, header, limit=LIMIT)
    ]
    expected = encode_set(wanted, magic=magic, append_time_ms=BASE_MS + 99 if append_time else None)
    made = down_both_ways(content, magic=magic)
    assert made.records == expected
    assert made.record_count == header.record_count


@given(st.lists(runs, min_size=1, max_size=3), st.sampled_from([0, 1]), st.integers(-60, 60), st.data())
def test_the_limit_is_kept(
    batches: list[list[tuple[int, int | None, int | None, int, int, bool]]],
    magic: int,
    difference: int,
    data: st.DataObject,
) -> None:
    """The limit is near the end of one of the converted batches."""
    contents = [built(records) for records in batches]
    ends = []
    size = 0
    for content in contents:
        size += len(down(content, magic=magic).records)
        ends.append(size)
    limit = max(0, data.draw(st.sampled_from(ends)) + difference)
    made = down_both_ways(b"".join(contents), magic=magic, max_bytes=limit)
    fitting = [end for end in ends if end <= limit] or ends[:1]
    assert len(made.records) == fitting[-1]
    assert made.consumed_bytes == sum(map(len, contents[: len(fitting)]))
