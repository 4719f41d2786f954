"""Parsing of the input of `odradek produce`."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cli.records.record_input import InputError, LineFormat, OutgoingRecord, json_records
from odradek.cli.records.record_templates import json_lines
from odradek.client.models import ConsumerRecord, TimestampType


def parsed(line: bytes, **options: object) -> OutgoingRecord:
    (record,) = LineFormat(**options).records([line], first_number=1)  # type: ignore[arg-type]
    return record


def test_without_options_lines_are_values() -> None:
    found = LineFormat().records([b"a:b", b""], first_number=1)
    assert found == [OutgoingRecord(None, b"a:b"), OutgoingRecord(None, b"")]


def test_the_line_is_split_at_the_first_separator() -> None:
    found = LineFormat(key_separator=b":").records([b"k:v:w", b":v", b"k:"], first_number=1)
    assert [(record.key, record.value) for record in found] == [(b"k", b"v:w"), (b"", b"v"), (b"k", b"")]


@pytest.mark.parametrize(
    ("line", "headers", "key", "value"),
    [
        (b"a:1,b:2\tk=v", (("a", b"1"), ("b", b"2")), b"k", b"v"),
        (b"\tk=v", (), b"k", b"v"),
        (b"a:\tk=v", (("a", b""),), b"k", b"v"),
        (b"a:x:y\tk=NULL", (("a", b"x:y"),), b"k", None),
        (b"a:NULL\tNULL=v", (("a", None),), None, b"v"),
        (b"a:1\tk=", (("a", b"1"),), b"k", None),
    ],
)
def test_headers_precede_key_and_value(
    line: bytes, headers: tuple[tuple[str, bytes | None], ...], key: bytes | None, value: bytes | None
) -> None:
    form = {"headers_delimiter": b"\t", "key_separator": b"=", "null_marker": b"NULL", "empty_as_null": True}
    assert parsed(line, **form) == OutgoingRecord(key, value, headers)


def test_lines_of_tombstones_are_keys() -> None:
    assert parsed(b"alice", keys_only=True) == OutgoingRecord(b"alice", None)
    assert parsed(b"a:1\talice", keys_only=True, headers_delimiter=b"\t").headers == (("a", b"1"),)


@pytest.mark.parametrize(
    ("options", "line", "message"),
    [
        ({"key_separator": b":"}, b"v", "Line 7 does not contain the key separator ':': see --key-separator"),
        ({"headers_delimiter": b"\t"}, b"v", r"Line 7 does not contain the headers delimiter '\\t'"),
        ({"headers_delimiter": b"\t"}, b"a\tv", "the separator of a header's name ':': see --header-key-separator"),
        ({"headers_delimiter": b"\t"}, b"\xff:1\tv", "Line 7 has a header whose name is not text in UTF-8"),
    ],
)
def test_a_wrong_line_is_reported_with_its_number(options: dict[str, bytes], line: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        LineFormat(**options).records([line], first_number=7)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "record"),
    [
        ('{"value": "v"}', OutgoingRecord(None, b"v")),
        ('{"key": "k", "value": null}', OutgoingRecord(b"k", None)),
        ('{"key_base64": "AP8=", "value_base64": "/w=="}', OutgoingRecord(b"\x00\xff", b"\xff")),
        ('{"key": 5, "value": {"a": [1, "ü"]}}', OutgoingRecord(b"5", '{"a":[1,"ü"]}'.encode())),
        ('{"value": "v", "headers": {"a": "1", "b": null}}', OutgoingRecord(None, b"v", (("a", b"1"), ("b", None)))),
        (
            '{"value": "v", "headers": [{"name": "a", "value": "1"}, {"name": "a", "value_base64": "/w=="}]}',
            OutgoingRecord(None, b"v", (("a", b"1"), ("a", b"\xff"))),
        ),
        ('{"value": "v", "timestamp": 5, "partition": 2}', OutgoingRecord(None, b"v", (), 5, 2)),
        ('{"value": "v", "timestamp": "1970-01-01T00:00:01"}', OutgoingRecord(None, b"v", (), 1000)),
        ('{"value": "v", "topic": "other", "offset": 4}', OutgoingRecord(None, b"v")),
    ],
)
def test_json_objects(text: str, record: OutgoingRecord) -> None:
    assert json_records([text.encode(), b"  "], first_number=1) == [record]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Line 3 is not JSON"),
        ("[" * 100_000, "Line 3 is not JSON"),
        ("[]", "Line 3 is not a record: it is not a JSON object"),
        ("{}", "neither value nor value_base64; for a tombstone, value is null"),
        ('{"value": "v", "vlue": 1}', "the unknown field 'vlue'"),
        ('{"value": "v", "value_base64": "/w=="}', "both value and value_base64"),
        ('{"value_base64": "?"}', "value_base64 is not base64"),
        ('{"value_base64": 1}', "value_base64 is not text"),
        ('{"value": "v", "headers": "a"}', "headers is neither a list nor an object"),
        ('{"value": "v", "headers": [{"value": "a"}]}', "a header needs a name"),
        ('{"value": "v", "timestamp": "noon"}', "timestamp is neither"),
        ('{"value": "v", "timestamp": -1}', "timestamp is neither"),
        ('{"value": "v", "partition": -1}', "partition is not a number of at least 0"),
        ('{"value": "v", "partition": true}', "partition is not a number of at least 0"),
    ],
)
def test_wrong_json_is_reported_with_the_number_of_the_line(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        json_records([text.encode()], first_number=3)


CONTENT = st.none() | st.binary(max_size=20)


@given(CONTENT, CONTENT, st.lists(st.tuples(st.text(max_size=5), CONTENT), max_size=3), st.integers(0, 1 << 41))
def test_the_output_of_consume_is_parsed_to_the_same_record(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], timestamp: int
) -> None:
    record = ConsumerRecord("t", 3, 9, timestamp, TimestampType.CREATE_TIME, key, value, tuple(headers))
    line = json_lines()(record)
    assert json.loads(line)["offset"] == 9
    assert json_records([line.encode()], first_number=1) == [OutgoingRecord(key, value, tuple(headers), timestamp, 3)]
