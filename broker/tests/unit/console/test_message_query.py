"""Parameters of a search, paths into JSON, and filters."""

from __future__ import annotations

import json
from typing import Any

import pytest

from odradek.base.errors import ConfigError
from odradek.client.models import ConsumerRecord
from odradek.console.json_paths import is_equal, parse_path, values_at
from odradek.console.message_query import Start, format_positions, parse_query, parse_time_ms
from odradek.records.v2.batch import TimestampType

ORDER: dict[str, Any] = {"id": 7, "items": [{"sku": "a"}, {"sku": "b c"}], "a b": {"x": None}, "open": True}


def record(key: bytes | None, value: bytes | None, *headers: tuple[str, bytes | None]) -> ConsumerRecord:
    return ConsumerRecord("t", 0, 7, 1000, TimestampType.CREATE_TIME, key, value, headers)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$.id", [7]),
        ("id", [7]),
        ("$.items[0].sku", ["a"]),
        ("$.items[-1].sku", ["b c"]),
        ("items[*].sku", ["a", "b c"]),
        ("items.*.sku", ["a", "b c"]),
        ("$['a b'].x", [None]),
        ('$["a b"]["x"]', [None]),
        ("$.items[2].sku", []),
        ("$.id.x", []),
        ("$.items.sku", []),
    ],
)
def test_a_path_selects_values(path: str, found: list[object]) -> None:
    assert list(values_at(ORDER, parse_path(path))) == found


@pytest.mark.parametrize("path", ["", "$", "$..id", "$.items[?@.sku]", "a[", "a..b", "$.items[x]", ".".join("a" * 33)])
def test_other_paths_are_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="JSON path"):
        parse_path(path)


@pytest.mark.parametrize(
    ("value", "text", "equal"),
    [
        ("a", "a", True),
        ("a", '"a"', True),
        (7, "7", True),
        (7, "7.0", True),
        (True, "true", True),
        (1, "true", False),
        (True, "1", False),
        (None, "null", True),
        ("7", "7", True),
        (7, "seven", False),
        ({"a": 1}, '{"a": 1}', True),
    ],
)
def test_values_are_compared_as_typed(value: object, text: str, equal: bool) -> None:
    assert is_equal(value, text) is equal


@pytest.mark.parametrize(
    ("parameters", "matching"),
    [
        ({}, True),
        ({"key": "cust"}, True),
        ({"key": "Cust"}, False),
        ({"value": '"id": 7'}, True),
        ({"header": "trace=ab"}, True),
        ({"header": "=ab"}, True),
        ({"header": "x=ab"}, False),
        ({"path": "$.id"}, True),
        ({"path": "$.id", "equals": "7"}, True),
        ({"path": "$.id", "equals": "8"}, False),
        ({"path": "$.items[*].sku", "equals": "a", "key": "nobody"}, False),
    ],
)
def test_a_record_must_match_all_filters(parameters: dict[str, str], matching: bool) -> None:
    query = parse_query(parameters, 500)
    assert query.matches(record(b"customer-1", json.dumps(ORDER).encode(), ("trace", b"abc"))) is matching
    assert query.has_filter == bool(parameters)


@pytest.mark.parametrize("value", [None, b"", b"text", b"\xff", b"[" * 100_000, b'{"id": 7' + b" " * (1 << 20) + b"}"])
def test_a_value_that_is_not_short_json_has_no_paths(value: bytes | None) -> None:
    assert not parse_query({"path": "$.id"}, 500).matches(record(None, value))
    assert not parse_query({"key": "a"}, 500).matches(record(None, value))


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"from": "middle"}, "from=middle"),
        ({"from": "offset"}, "offset is missing"),
        ({"from": "time"}, "time is missing"),
        ({"from": "time", "time": "soon"}, "time=soon"),
        ({"limit": "501"}, "limit=501"),
        ({"limit": "0"}, "limit=0"),
        ({"partition": "-1"}, "partition=-1"),
        ({"offset": "9" * 30, "from": "offset"}, "offset=9"),
        ({"equals": "7"}, "needs a path"),
        ({"from": "positions", "positions": "1:x"}, "PARTITION:OFFSET"),
        ({"value": "x" * 1001}, "value is too long"),
    ],
)
def test_wrong_parameters_are_named(parameters: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        parse_query(parameters, 500)


def test_a_search_continues_at_its_positions() -> None:
    text = format_positions({2: 70, 0: 5})
    assert text == "0:5,2:70"
    query = parse_query({"from": "positions", "positions": text}, 500)
    assert (query.start, query.positions) == (Start.POSITIONS, {0: 5, 2: 70})


@pytest.mark.parametrize(
    ("text", "time_ms"), [("1000", 1000), ("1970-01-01T00:00:02", 2000), ("1970-01-01T01:00:02+01:00", 2000)]
)
def test_times(text: str, time_ms: int) -> None:
    assert parse_time_ms(text) == time_ms
