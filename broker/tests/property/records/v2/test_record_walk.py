"""Compares the walk over records with an independent reader, which decodes one field after the other."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from odradek.records.v2.record_walk import Row, follow_lengths, record_fault, walk
from odradek.records.v2.varint import encode_varint

no_deadline = settings(max_examples=300, deadline=None)
"""No deadline: the duration of an example is meaningless on a shared machine."""
INT64 = st.integers(-(2**63), 2**63 - 1)
MAX_OFFSET_DELTA = 2**31 - 1


class Invalid(Exception):  # noqa: N818 - the expected end of a read, not an error of the test
    """The record is invalid."""


class Reader:
    """Reads the fields of one record after the other, and nothing beyond `end`."""

    def __init__(self, data: bytes, position: int) -> None:
        self.data, self.position, self.end = data, position, len(data)

    def byte(self) -> int:
        if self.position >= self.end:
            raise Invalid
        self.position += 1
        return self.data[self.position - 1]

    def number(self) -> int:
        encoded = 0
        for place in range(10):
            byte = self.byte()
            encoded += (byte % 128) * 128**place
            if byte < 128:
                if encoded >= 2**64:
                    raise Invalid
                return encoded // 2 if encoded % 2 == 0 else -(encoded // 2) - 1
        raise Invalid

    def field(self) -> tuple[int, int]:
        length = self.number()
        if length < -1 or length > self.end - self.position:
            raise Invalid
        start = self.position
        self.position += max(length, 0)
        return start, length

    def record(self) -> Row:
        self.end = len(self.data)
        length = self.number()
        if length < 0 or length > self.end - self.position:
            raise Invalid
        self.end = self.position + length
        self.byte()
        timestamp_delta, offset_delta = self.number(), self.number()
        key, value = self.field(), self.field()
        headers = self.number()
        if headers < 0:
            raise Invalid
        for _ in range(headers):
            if self.field()[1] < 0:
                raise Invalid
            self.field()
        if self.position != self.end or not 0 <= offset_delta <= MAX_OFFSET_DELTA:
            raise Invalid
        return (timestamp_delta, offset_delta, *key, *value, headers, self.end)


def read_naively(data: bytes, position: int, count: int) -> tuple[list[Row], bool]:
    """Return the rows of the records up to the first invalid one, and whether all are valid."""
    reader = Reader(data, position)
    rows: list[Row] = []
    try:
        rows.extend(reader.record() for _ in range(count))
    except Invalid:
        return rows, False
    return rows, True


def check_against_reference(data: bytes, position: int, count: int) -> None:
    expected, valid = read_naively(data, position, count)
    rows: list[Row] = []
    walked = walk(data, position, count, rows=rows, last_offset_delta=MAX_OFFSET_DELTA)
    assert rows == expected
    assert (walked is not None) == valid
    assert walk(data, position, count, last_offset_delta=MAX_OFFSET_DELTA) == walked
    if walked is None:
        end = rows[-1][-1] if rows else position
        assert record_fault(data, end, last_offset_delta=MAX_OFFSET_DELTA)
    else:
        deltas, offsets = [row[0] for row in rows], [row[1] for row in rows]
        all_keyed = all(row[3] >= 0 for row in rows)
        content = sum(max(row[3], 0) + max(row[5], 0) for row in rows)
        assert walked == (rows[-1][-1], min(deltas), max(deltas), all_keyed, offsets == list(range(count)), content)
    for row in rows:
        assert record_fault(data, position, last_offset_delta=MAX_OFFSET_DELTA) is None
        position = row[-1]


@st.composite
def numbers(draw: st.DrawFn, values: st.SearchStrategy[int]) -> bytes:
    """A number, sometimes in more bytes than it needs."""
    encoded = encode_varint(draw(values))
    more = draw(st.sampled_from([0, 0, 0, 0, 0, 1, 3, 9]))
    more = min(more, 10 - len(encoded))
    return encoded if not more else encoded[:-1] + bytes([encoded[-1] | 0x80]) + b"\x80" * (more - 1) + b"\x00"


@st.composite
def fields(draw: st.DrawFn, *, nullable: bool = True) -> bytes:
    content = draw(st.binary(max_size=9) | st.integers(60, 70).map(bytes) | st.sampled_from([bytes(8190), bytes(8200)]))
    if nullable and draw(st.booleans()):
        return draw(numbers(st.just(-1)))
    return draw(numbers(st.just(len(content)))) + content


@st.composite
def records(draw: st.DrawFn, place: int) -> bytes:
    offset_delta = draw(st.just(place) | st.integers(0, 300) | st.sampled_from([-1, 2**20, 2**31, 2**62, -(2**63)]))
    headers = draw(st.sampled_from([0, 0, 0, 1, 2, 70]))
    parts = [
        draw(st.binary(min_size=1, max_size=1)),
        draw(numbers(st.integers(-70, 70) | st.integers(-9000, 9000) | INT64)),
        draw(numbers(st.just(offset_delta))),
        draw(fields()),
        draw(fields()),
        draw(numbers(st.just(headers))),
        *(draw(fields(nullable=False)) + draw(fields()) for _ in range(min(headers, 2))),
        *[b"\x02n\x01"] * (headers - 2),
    ]
    body = b"".join(parts)
    return draw(numbers(st.just(len(body)))) + body


@st.composite
def sections(draw: st.DrawFn) -> tuple[bytes, int]:
    count = draw(st.integers(1, 6))
    return b"".join(draw(records(place)) for place in range(count)), count


@no_deadline
@given(sections(), st.binary(max_size=4), st.binary(max_size=4))
def test_valid_records(section: tuple[bytes, int], before: bytes, after: bytes) -> None:
    data, count = section
    check_against_reference(before + data + after, len(before), count)


@no_deadline
@given(sections(), st.data())
def test_truncated_records(section: tuple[bytes, int], data: st.DataObject) -> None:
    whole, count = section
    check_against_reference(whole[: data.draw(st.integers(0, len(whole) - 1))], 0, count)


@settings(max_examples=1000, deadline=None)
@given(sections(), st.data())
def test_damaged_records(section: tuple[bytes, int], data: st.DataObject) -> None:
    damaged = bytearray(section[0])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, min(len(damaged), 90) - 1) | st.integers(0, len(damaged) - 1))
        damaged[at] = data.draw(st.integers(0, 255) | st.sampled_from([0, 1, 2, 3, 0x80, 0xFF, damaged[at] ^ 1]))
    check_against_reference(bytes(damaged), 0, section[1] + data.draw(st.integers(0, 2)))


@settings(max_examples=1000, deadline=None)
@given(st.binary(max_size=60) | st.lists(st.sampled_from([0, 1, 2, 3, 14, 0x80, 0xFF])).map(bytes), st.integers(1, 9))
@example(b"\xfe" + b"\xff" * 8 + b"\x01" + bytes(9), 1)
@example(b"\x80" * 9 + b"\x01" + bytes(9), 1)
@example(b"\x0e\x00\x00\x00\xfe" + b"\xff" * 8 + b"\x01", 1)
@example(b"\x18\x00\x00\x00\x01\x01\xfe" + b"\xff" * 8 + b"\x01", 1)
def test_noise(noise: bytes, count: int) -> None:
    check_against_reference(noise, 0, count)


@no_deadline
@given(sections(), st.integers(0, 80))
def test_the_limit_of_headers_counts_those_of_all_records(section: tuple[bytes, int], most: int) -> None:
    data, count = section
    expected, valid = read_naively(data, 0, count)
    rows: list[Row] = []
    walked = walk(data, 0, count, rows=rows, last_offset_delta=MAX_OFFSET_DELTA, most_headers=most)
    total, allowed = 0, []
    for row in expected:
        total += row[6]
        if total > most:
            break
        allowed.append(row)
    assert rows == allowed
    assert (walked is not None) == (valid and len(allowed) == count)


@no_deadline
@given(sections(), st.integers(0, 3))
def test_lengths_lead_to_the_same_records(section: tuple[bytes, int], before: int) -> None:
    data, count = section
    expected, valid = read_naively(data, 0, count)
    begins, end = follow_lengths(b"\xff" * before + data, before, count)
    ends = [before + row[-1] for row in expected]
    assert [*begins, end][: len(ends) + 1] == [before, *ends]
    assert not valid or end == before + len(data)
