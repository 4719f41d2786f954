"""Records of one size are read the same way at once as one by one, and damaged ones are refused by both."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.base.errors import CorruptMessageError
from odradek.compression import Codec
from odradek.records import frame_columns, regular_records
from odradek.records.v2 import batch
from odradek.records.v2.batch import BatchBuilder, Headers
from odradek.records.v2.record import Record, decode_batch
from odradek_testkit.batches import frame_records, iterate

LIMIT = 1 << 22
no_deadline = settings(deadline=None)


@pytest.fixture(autouse=True, scope="module")
def few_rows() -> Iterator[None]:
    """Use the fast form for a few records, too, so that examples are small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regular_records, "FEWEST_ROWS", 4)
        yield


def one_by_one(raw: bytes) -> list[Record]:
    return [record for at, header in iterate(raw) for record in decode_batch(raw, at, header, limit=LIMIT)]


@st.composite
def shapes(draw: st.DrawFn) -> tuple[int, bytes | None, bytes | None, int, Headers]:
    """Number of records, key, value, distance of the timestamps and headers."""
    size = st.sampled_from([0, 1, 3, 63, 64, 200, 9000])
    return (
        draw(st.sampled_from([1, 2, 5, 63, 64, 70, 130])),
        draw(st.none() | size.map(bytes)),
        draw(st.none() | size.map(bytes)),
        draw(st.sampled_from([0, 1, -1, 100, 1 << 20, 1 << 34, 1 << 40])),
        draw(st.sampled_from([(), (), (("n", b"v"), ("m", None))])),
    )


@st.composite
def regular_sets(draw: st.DrawFn, *codecs: Codec) -> bytes:
    """Some batches of each of a few shapes."""
    parts = []
    offset = draw(st.integers(0, 1 << 40))
    for count, key, value, step_ms, headers in draw(st.lists(shapes(), min_size=1, max_size=3)):
        builder = BatchBuilder(codec=draw(st.sampled_from(codecs)), limit_bytes=1 << 30)
        for number in range(count):
            builder.append(key, value, timestamp_ms=1_700_000_000_000 + number * step_ms, headers=headers)
        section = builder.build()
        for _ in range(draw(st.integers(1, 5))):
            header = batch.read_header(section)._replace(base_offset=offset)
            parts.append(batch.assemble(header, section[batch.HEADER_SIZE :]))
            offset += count + draw(st.sampled_from([0, 0, 0, 7]))
    return b"".join(parts)


@no_deadline
@given(regular_sets(*Codec), st.sampled_from([1, 64, 10_000]), st.data())
def test_regular_records_are_read_as_one_by_one(raw: bytes, rows: int, data: st.DataObject) -> None:
    records = one_by_one(raw)
    assert frame_records(raw, rows=rows, limit=LIMIT) == records
    start = data.draw(st.integers(records[0].offset, records[-1].offset + 1))
    end = data.draw(st.integers(start, records[-1].offset + 2))
    found = frame_records(raw, rows=rows, limit=LIMIT, start_offset=start, end_offset=end)
    assert found == [record for record in records if start <= record.offset < end]


@settings(max_examples=300, deadline=None)
@given(regular_sets(Codec.NONE), st.data())
def test_damaged_records_are_refused_by_both_forms_or_by_neither(raw: bytes, data: st.DataObject) -> None:
    damaged = bytearray(raw)
    places = [at + batch.HEADER_SIZE for at, _ in iterate(raw)]
    for _ in range(data.draw(st.integers(1, 3))):
        # Mostly at the begin of a section, where the lengths are.
        place = data.draw(st.sampled_from(places)) + data.draw(st.integers(0, 40) | st.integers(0, 5000))
        if place < len(damaged) and all(not at - batch.HEADER_SIZE <= place < at for at in places):
            damaged[place] = data.draw(st.integers(0, 255))
    try:
        expected = one_by_one(bytes(damaged))
    except CorruptMessageError:
        expected = None
    try:
        found = frame_records(bytes(damaged), limit=LIMIT, check_crcs=False)
    except CorruptMessageError:
        found = None
    assert found == expected


def batches(sizes: list[int], copies: int = 1, count: int = 300) -> bytes:
    parts = []
    for number in range(copies):
        builder = BatchBuilder(limit_bytes=1 << 30)
        for index in range(count):
            builder.append(b"%08d" % index, bytes(sizes[index % len(sizes)]), timestamp_ms=index)
        parts.append(builder.build(base_offset=number * count))
    return b"".join(parts)


def regular_calls(raw: bytes, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return for each attempt whether the records of a group were regular. A group is one batch."""
    calls: list[bool] = []
    read = frame_columns.read_regular

    def counted(*arguments: object) -> object:
        found = read(*arguments)  # type: ignore[arg-type]
        calls.append(found is not None)
        return found

    monkeypatch.setattr(frame_columns, "read_regular", counted)
    assert frame_records(raw, rows=300) == one_by_one(raw)
    return calls


def test_records_of_one_size_take_the_fast_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regular_records, "FEWEST_ROWS", 256)
    assert regular_calls(batches([100], copies=3), monkeypatch) == [True] * 3


def test_uneven_records_are_tried_ever_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regular_records, "FEWEST_ROWS", 256)
    # After 1, 2, 4 and 8 skipped groups.
    assert regular_calls(batches([100, 90, 80, 110], copies=20), monkeypatch) == [False] * 5


def test_a_regular_group_ends_the_skipping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regular_records, "FEWEST_ROWS", 256)
    mixed = batches([100, 90, 80, 110], copies=3)
    regular = batches([100], copies=4)
    raw = b"".join(
        batch.assemble(header._replace(base_offset=300 * number), part[at + batch.HEADER_SIZE : at + header.size])
        for number, (part, at, header) in enumerate(
            [(part, at, header) for part in (mixed, regular) for at, header in iterate(part)]
        )
    )
    assert regular_calls(raw, monkeypatch) == [False, False, True, True]
