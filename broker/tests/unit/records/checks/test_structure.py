"""Validation of every record, and the records that its errors report."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.base.errors import InvalidRecordError, InvalidTimestampError
from odradek.base.types import NO_TIMESTAMP
from odradek.records.checks import structure
from odradek.records.checks.structure import MAX_RECORD_ERRORS, check_messages, check_records
from odradek.records.checks.survey import survey
from odradek.records.checks.validate import AppendRules
from odradek.records.v2 import batch
from odradek.records.v2.batch import BatchBuilder, BatchHeader, TimestampType
from odradek.records.v2.varint import encode_varint

NOW_MS = 1_000_000
MANY = 300
"""Enough records for the validation by columns."""


def rules(**changes: Any) -> AppendRules:
    return AppendRules(**{"max_message_bytes": 1 << 20, "now_ms": NOW_MS, **changes})


def record(
    number: int,
    *,
    timestamp_delta: int = 0,
    key: bytes | None = b"k",
    value: bytes | None = b"v" * 70,
    headers: bytes = b"\x00",
    attributes: bytes = b"\x00",
) -> bytes:
    body = attributes + encode_varint(timestamp_delta) + encode_varint(number)
    for content in (key, value):
        body += encode_varint(-1) if content is None else encode_varint(len(content)) + content
    return encode_varint(len(body + headers)) + body + headers


def header_of(count: int, **changes: int) -> BatchHeader:
    builder = BatchBuilder(limit_bytes=1 << 20)
    builder.append(b"k", b"v", timestamp_ms=NOW_MS)
    made = batch.read_header(builder.build())
    return made._replace(record_count=count, last_offset_delta=count - 1, **changes)


def checked(records: list[bytes], count: int | None = None, **changes: object) -> int:
    section = memoryview(b"".join(records))
    return check_records(section, header_of(len(records) if count is None else count), rules(**changes))


@pytest.mark.parametrize("count", [1, 127, 128, MANY, 9000])
def test_the_newest_timestamp_comes_out(count: int) -> None:
    records = [record(number, timestamp_delta=number % 5 - 2) for number in range(count)]
    assert checked(records) == NOW_MS + max(number % 5 - 2 for number in range(count))


def test_records_without_a_timestamp_have_none() -> None:
    assert checked([record(number, timestamp_delta=-NOW_MS - 1) for number in range(MANY)]) == NO_TIMESTAMP
    assert checked([record(0, timestamp_delta=-NOW_MS - 9)]) == NO_TIMESTAMP


BROKEN: list[tuple[str, bytes]] = [
    ("length 0", b"\x00"),
    ("negative length", b"\x01" + record(1)[1:]),
    ("length without end", b"\xff" * 11),
    ("length beyond the section", encode_varint(1 << 40)),
    ("offset delta too high", record(2)),
    ("offset delta too low", record(0)),
    ("negative offset delta", record(-2)),
    ("length too small", encode_varint(len(record(1)) - 3) + record(1)[2:]),
    ("length too large", encode_varint(len(record(1)) - 1) + record(1)[2:] + b"\x00"),
    ("key length -2", record(1, key=None).replace(b"\x02\x01", b"\x02\x03")),
    ("value length -2", b"\x0e\x00\x00\x02\x02k\x03\x00"),
    ("key beyond the record", record(1).replace(b"\x02\x02k", b"\x02\xfe\x7fk")),
    ("header count too high", record(1, headers=encode_varint(100))),
    ("negative header count", record(1, headers=encode_varint(-1))),
    ("header without a name", record(1, headers=b"\x02\x01\x02v")),
    ("header beyond the record", record(1, headers=b"\x02\x02n\x10v")),
    ("header value length -2", record(1, headers=b"\x02\x02n\x03")),
    ("bytes behind the headers", record(1, headers=b"\x00\x00")),
]


@pytest.mark.parametrize("tail", [0, MANY], ids=["few", "many"])
@pytest.mark.parametrize("broken", [row[1] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_a_broken_record_is_named(broken: bytes, tail: int) -> None:
    records = [record(0), broken, *(record(number) for number in range(2, 2 + tail))]
    with pytest.raises(InvalidRecordError) as caught:
        checked(records)
    ((number, fault),) = caught.value.record_errors
    assert number == 1
    assert fault in str(caught.value)


@pytest.mark.parametrize("count", [2, MANY])
def test_too_many_and_too_few_records_are_refused(count: int) -> None:
    records = [record(number) for number in range(count)]
    for claimed in (count - 1, count + 1):
        with pytest.raises(InvalidRecordError):
            checked(records, claimed)


def test_a_timestamp_of_more_than_64_bits_is_refused() -> None:
    with pytest.raises(InvalidRecordError):
        checked([record(0, timestamp_delta=(1 << 63) - 1)])
    records = [record(number, timestamp_delta=(1 << 63) - 1) for number in range(MANY)]
    with pytest.raises(InvalidRecordError):
        checked(records)


@pytest.mark.parametrize("count", [3, MANY])
def test_records_without_a_key_are_named(count: int) -> None:
    keyless = {1, 2}
    records = [record(number, key=None if number in keyless else b"k") for number in range(count)]
    checked(records)
    with pytest.raises(InvalidRecordError) as caught:
        checked(records, compacted=True)
    assert {number for number, _ in caught.value.record_errors} == keyless


@pytest.mark.parametrize("count", [4, MANY])
def test_records_out_of_time_are_named(count: int) -> None:
    deltas = {0: -11, 1: -10, 2: 11, 3: -NOW_MS - 1}
    records = [record(number, timestamp_delta=deltas.get(number, 0)) for number in range(count)]
    bounds = {"timestamp_before_max_ms": 10, "timestamp_after_max_ms": 10}
    with pytest.raises(InvalidTimestampError) as caught:
        checked(records, **bounds)
    assert [number for number, _ in caught.value.record_errors] == [0, 2]
    assert checked(records) == NOW_MS + 11
    assert checked(records, **bounds, timestamp_type=TimestampType.LOG_APPEND_TIME) == NOW_MS + 11


def test_a_missing_timestamp_does_not_hide_one_that_is_out_of_bounds() -> None:
    deltas = [-NOW_MS - 1, -500, *([0] * MANY)]
    records = [record(number, timestamp_delta=delta) for number, delta in enumerate(deltas)]
    with pytest.raises(InvalidTimestampError) as caught:
        checked(records, timestamp_before_max_ms=10)
    assert [number for number, _ in caught.value.record_errors] == [1]


def test_a_wrong_time_outweighs_a_missing_key() -> None:
    with pytest.raises(InvalidTimestampError) as caught:
        checked(
            [record(0, key=None), record(1, timestamp_delta=11)],
            compacted=True,
            timestamp_after_max_ms=10,
        )
    assert [number for number, _ in caught.value.record_errors] == [0, 1]


def test_a_million_faults_make_a_short_answer() -> None:
    with pytest.raises(InvalidRecordError) as caught:
        checked([record(number, key=None) for number in range(500)], compacted=True)
    assert len(caught.value.record_errors) == MAX_RECORD_ERRORS


def test_old_messages_have_the_same_rules() -> None:
    messages = [(0, NOW_MS, b"k", b"v"), (1, NOW_MS - 11, None, b"v"), (2, -1, b"k", None)]
    check_messages(messages, rules())
    with pytest.raises(InvalidRecordError) as keyless:
        check_messages(messages, rules(compacted=True))
    assert [number for number, _ in keyless.value.record_errors] == [1]
    with pytest.raises(InvalidTimestampError) as late:
        check_messages(messages, rules(timestamp_before_max_ms=10))
    assert [number for number, _ in late.value.record_errors] == [1]


HEADERS = b"\x06" + b"\x02n\x01" + b"\x02n\x02v" + b"\x04nn\x00"

SURVEYED: list[tuple[str, list[bytes]]] = [
    ("lengths of two bytes", [record(number) for number in range(MANY)]),
    ("lengths of one byte", [record(number, value=b"v") for number in range(MANY)]),
    ("lengths of three bytes", [record(number, value=bytes(9000)) for number in range(MANY)]),
    ("large records", [record(number, value=bytes(1000)) for number in range(MANY)]),
    ("payloads that look like records", [record(number, value=b"\x80\x01\x00" * 40) for number in range(MANY)]),
    ("attributes", [record(number, attributes=b"\x07") for number in range(MANY)]),
    ("headers", [record(number, headers=HEADERS if number % 3 else b"\x00") for number in range(MANY)]),
    ("timestamps far apart", [record(number, timestamp_delta=(-3) ** (number % 30)) for number in range(MANY)]),
    ("nulls", [record(number, key=None, value=None if number % 2 else b"v" * 90) for number in range(MANY)]),
    ("all alike", [record(number, timestamp_delta=number // 3) for number in range(MANY)]),
    ("alike in turns", [record(number, value=bytes(50 + number // 40)) for number in range(MANY)]),
    ("alike with ages", [record(number, timestamp_delta=-number) for number in range(MANY)]),
    ("alike in three bytes", [record(number, value=bytes(9000)) for number in range(100)]),
    ("alike, more than a chunk", [record(number, value=None) for number in range(9000)]),
    ("values of 62 to 66 bytes", [record(number, value=bytes(62 + number % 5)) for number in range(MANY)]),
    ("more than a chunk", [record(number, value=b"v" * (number % 90)) for number in range(20_000)]),
]


@pytest.mark.parametrize("records", [row[1] for row in SURVEYED], ids=[row[0] for row in SURVEYED])
def test_the_look_at_columns_is_sure_of_ordinary_records(records: list[bytes]) -> None:
    facts = survey(b"".join(records), len(records))
    assert (facts.number, facts.end) == (len(records), len(b"".join(records)))
    assert NOW_MS + facts.newest_delta_ms == checked(records)


def test_a_wrong_offset_among_similar_records_is_reported() -> None:
    for false in (40, 64, 200):
        records = [record(number + (number == false)) for number in range(MANY)]
        with pytest.raises(InvalidRecordError) as caught:
            checked(records)
        assert [number for number, _ in caught.value.record_errors] == [false]


def test_unusual_records_are_checked_from_the_first_one_on() -> None:
    many_headers = encode_varint(20) + b"\x02n\x01" * 20
    records = [record(number, headers=many_headers if number == 20_000 else b"\x00") for number in range(20_001)]
    facts = survey(b"".join(records), len(records))
    assert 0 < facts.number < len(records)
    assert facts.end == len(b"".join(records[: facts.number]))
    records.append(record(20_001, timestamp_delta=9))
    assert checked(records) == NOW_MS + 9
    with pytest.raises(InvalidRecordError) as caught:
        checked([*records, b"\x00"])
    assert [number for number, _ in caught.value.record_errors] == [20_002]


def padded(number: int) -> bytes:
    """A number in four bytes, as no client writes it."""
    number <<= 1
    return bytes((number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14 & 0x7F | 0x80, number >> 21))


@pytest.mark.parametrize("each", [0, 100])
def test_the_check_of_unusual_records_has_a_limit(each: int, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 3000
    monkeypatch.setattr(structure, "MAX_STEPS", steps)
    headers = encode_varint(each) + b"\x00\x00" * each
    # Records of two sizes, because the survey verifies runs of similar records completely.
    bodies = [
        b"\x00\x00" + encode_varint(number) + (b"\x01\x01", b"\x01\x02v")[number % 2] + headers
        for number in range(steps // (1 + each))
    ]
    records = [padded(len(body)) + body for body in bodies]
    checked(records)
    one_more = b"\x00\x00" + encode_varint(len(records)) + b"\x01\x01" + headers
    with pytest.raises(InvalidRecordError) as caught:
        checked([*records, padded(len(one_more)) + one_more])
    assert [number for number, _ in caught.value.record_errors] == [len(records)]
