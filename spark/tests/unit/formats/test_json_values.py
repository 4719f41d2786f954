"""JSON values: what is read, what is wrong, and that a wrong value affects no other."""

from __future__ import annotations

import base64
import datetime
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_type

from odradek.base.errors import ConfigError
from pyspark_odradek.formats.ddl_types import parse_schema
from pyspark_odradek.formats.json_values import JsonDecoder

SCHEMA = """
    a INT, b STRING, c ARRAY<STRUCT<x: DATE, y: BINARY>>, m MAP<STRING, ARRAY<MAP<STRING, INT>>>, t TIMESTAMP,
    n TIMESTAMP_NTZ, d DECIMAL(10, 2), f DOUBLE, z BOOLEAN
"""


def decoder(ddl: str = SCHEMA) -> JsonDecoder:
    return JsonDecoder(parse_schema("valueSchema", ddl))


def decode(made: JsonDecoder, *values: bytes | None) -> tuple[list[Any], list[bytes | None]]:
    typed, wrong = made.decode(pa.array(values, pa.binary()))
    assert typed.type == to_arrow_type(made.value_type, timezone="UTC")
    typed.validate(full=True)
    return typed.to_pylist(), wrong.to_pylist()


def one(ddl: str, value: bytes) -> Any:
    """The value of the only field, or the bytes of a wrong value."""
    (typed,), (wrong,) = decode(decoder(ddl), value)
    return wrong if typed is None else next(iter(typed.values()))


@pytest.mark.parametrize(
    ("ddl", "value", "expected"),
    [
        ("a TINYINT", b'{"a": -128}', -128),
        ("a INT", b'{"a": null}', None),
        ("a INT", b"{}", None),
        ("a INT", b'{"A": 1, "b": [{"a": 2}]}', None),
        ("a BIGINT", b'{"a": 9223372036854775807}', 2**63 - 1),
        ("a DOUBLE", b'{"a": 1}', 1.0),
        ("a DECIMAL(38, 3)", b'{"a": 12345678901234567890.125}', Decimal("12345678901234567890.125")),
        ("a STRING", '{"a": "ä\\ud83d\\ude00\\n"}'.encode(), "ä😀\n"),
        ("a BINARY", b'{"a": "YWI="}', b"ab"),
        ("a BINARY", b'{"a": ""}', b""),
        ("a DATE", b'{"a": "2026-01-31"}', datetime.date(2026, 1, 31)),
        ("a TIMESTAMP", b'{"a": "2026-01-31T01:02:03.5+02:00"}', datetime.datetime(2026, 1, 30, 23, 2, 3, 500000)),
        ("a TIMESTAMP_NTZ", b'{"a": "2026-01-31 01:02:03"}', datetime.datetime(2026, 1, 31, 1, 2, 3)),
        ("a ARRAY<INT>", b'{"a": [1, null]}', [1, None]),
        ("a MAP<STRING, INT>", b'{"a": {"x": 1, "y\\"}": null}}', [("x", 1), ('y"}', None)]),
        ("a MAP<STRING, INT>", b'{"a": {}}', []),
        ("a MAP<STRING, STRUCT<b: MAP<STRING, INT>>>", b'{"a":{"k":{"b":{"x":1}}}}', [("k", {"b": [("x", 1)]})]),
        ("a INT", b' \n{\n "a" :\t1\r\n}\n', 1),
    ],
)
def test_values_are_read(ddl: str, value: bytes, expected: Any) -> None:
    found = one(ddl, value)
    assert (found.replace(tzinfo=None) if isinstance(found, datetime.datetime) else found) == expected


@pytest.mark.parametrize(
    ("ddl", "value"),
    [
        *(
            ("a INT", value)
            for value in (b"", b" ", b"null", b"[]", b"1", b"{", b'{"a":1', b'{"a":1}}', b"\xff", b"{\x00}")
        ),
        *(("a INT", b'{"a":%s}' % value) for value in (b'"1"', b"1.5", b"1e3", b"2147483648", b"true", b"[]", b"{}")),
        ("a INT", b'{"a":1}{"a":2}'),
        ("a INT", b'{"a":1},{"a":2}'),
        ("a INT", b'{"a":1} x'),
        ("a INT", b'{"a":1,"a":2}'),
        ("a INT", b'{}]}\n{"v":[{}'),
        ("a STRING", b'{"a":1}'),
        ("a STRING", b'{"a":"x\ny"}'),
        ("a STRING", b'{"a":"\xff"}'),
        ("a BINARY", b'{"a":"YWI"}'),
        ("a BINARY", b'{"a":"Y=I="}'),
        ("a BINARY", b'{"a":"YW-="}'),
        ("a DATE", b'{"a":"2026-02-30"}'),
        ("a DATE", b'{"a":"2026-1-1"}'),
        ("a DECIMAL(3, 2)", b'{"a":1.234}'),
        *(
            ("a MAP<STRING, INT>", b'{"a":%s}' % value)
            for value in (b"[]", b'{"x"}', b'{"x":1,}', b"{1:2}", b"{null:1}", b'{"x":1:2,"y"}', b"{,}", b'{"x":"y"}')
        ),
        ("a MAP<STRING, INT>", b'{"a":[{"key":"x","value":1}]}'),
    ],
)
def test_what_does_not_match_is_wrong_and_affects_no_other(ddl: str, value: bytes) -> None:
    made = decoder(ddl)
    typed, wrong = decode(made, b"{}", value, None, b"{}")
    assert wrong == [None, value, None, None]
    assert [each is None for each in typed] == [False, True, True, False]


SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "a": st.integers(-(2**31), 2**31 - 1),
    "b": st.text(max_size=9),
    "d": st.decimals(-(10**7), 10**7, places=2).map(str),
    "f": st.floats(allow_nan=False, allow_infinity=False),
    "z": st.booleans(),
    "c": st.lists(
        st.fixed_dictionaries(
            {}, optional={"x": st.dates().map(str), "y": st.binary(max_size=5).map(base64.b64encode)}
        ),
        max_size=3,
    ),
    "m": st.dictionaries(st.text(max_size=3), st.lists(st.dictionaries(st.text(max_size=3), st.integers(0, 9)))),
    "unknown": st.recursive(
        st.none() | st.text(max_size=3), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    ),
}
RECORDS = st.fixed_dictionaries({}, optional=SCALARS)
WRONG = st.sampled_from(
    [b"{", b'{"a":"x"}', b'{"m":{"x":[{"y":"z"}]}}', b"", b"\xff", b'{"c":{}}', b'{"a":9999999999}']
)


def expected(record: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = dict.fromkeys("abcmtndfz")
    for name, value in record.items():
        if name == "c":
            value = [
                {
                    "x": datetime.date.fromisoformat(item["x"]) if "x" in item else None,
                    "y": base64.b64decode(item["y"]) if "y" in item else None,
                }
                for item in value
            ]
        elif name == "m":
            value = [(key, [[*inner.items()] for inner in items]) for key, items in value.items()]
        elif name == "d":
            value = Decimal(value)
        if name in found:
            found[name] = value
    return found


@given(
    values=st.lists(st.none() | WRONG | RECORDS, max_size=25),
    indent=st.sampled_from([None, 1]),
    ascii_only=st.booleans(),
)
def test_random_records_are_as_python_reads_them(values: list[Any], indent: int | None, ascii_only: bool) -> None:
    def text(record: dict[str, Any]) -> bytes:
        written = json.dumps(record, indent=indent, ensure_ascii=ascii_only, default=bytes.decode)
        return written.encode(errors="replace")

    given_values = [text(value) if isinstance(value, dict) else value for value in values]
    typed, wrong = decode(decoder(), *given_values)
    for value, raw, found, bytes_of_wrong in zip(values, given_values, typed, wrong, strict=True):
        if isinstance(value, dict):
            assert (found, bytes_of_wrong) == (expected(json.loads(raw)), None)
        else:
            assert (found, bytes_of_wrong) == (None, value)


@given(values=st.lists(RECORDS, min_size=3, max_size=9), data=st.data())
def test_a_damaged_record_affects_no_other(values: list[dict[str, Any]], data: st.DataObject) -> None:
    raw = [json.dumps(value, default=bytes.decode).encode() for value in values]
    number = data.draw(st.integers(0, len(raw) - 1))
    at = data.draw(st.integers(0, len(raw[number]) - 1))
    damaged = [*raw]
    damaged[number] = (
        raw[number][:at]
        + data.draw(st.sampled_from([b"", b'"', b"{", b"}", b"]", b",", b"\\", b"\n"]))
        + (raw[number][at + 1 :])
    )
    whole, _ = decode(decoder(), *raw)
    typed, wrong = decode(decoder(), *damaged)
    for index, (before, after) in enumerate(zip(whole, typed, strict=True)):
        if index != number:
            assert (before, wrong[index]) == (after, None)
    assert wrong[number] in (None, damaged[number])


@pytest.mark.parametrize(
    ("ddl", "problem"),
    [
        ("a MAP<INT, INT>", "only strings as keys of the map a"),
        ("a STRUCT<b: INT, b: INT>", "a has two fields of one name"),
        ("a STRUCT<>", "a has no field"),
    ],
)
def test_schemas_that_json_cannot_have(ddl: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        decoder(ddl)
