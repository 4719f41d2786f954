"""CSV values: what is read, what is wrong, and that a wrong value affects no other."""

from __future__ import annotations

import csv
import datetime
import io
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_type

from odradek.base.errors import ConfigError
from pyspark_odradek.formats.csv_values import CsvDecoder
from pyspark_odradek.formats.ddl_types import parse_schema


def decode(ddl: str, *values: bytes | None, delimiter: str = ",") -> tuple[list[Any], list[bytes | None]]:
    made = CsvDecoder(parse_schema("valueSchema", ddl), delimiter=delimiter)
    typed, wrong = made.decode(pa.array(values, pa.binary()))
    assert typed.type == to_arrow_type(made.value_type, timezone="UTC")
    typed.validate(full=True)
    return [None if each is None else tuple(each.values()) for each in typed.to_pylist()], wrong.to_pylist()


@pytest.mark.parametrize(
    ("data_type", "text", "expected"),
    [
        ("INT", b"", None),
        ("INT", b"+007", 7),
        ("BIGINT", b"-9223372036854775808", -(2**63)),
        ("DOUBLE", b"-.5e1", -5.0),
        ("DOUBLE", b"-Inf", float("-inf")),
        ("DECIMAL(10, 2)", b"+1.5", Decimal("1.50")),
        ("BOOLEAN", b"True", True),
        ("STRING", b"", None),
        ("STRING", b'""', None),
        ("STRING", b'"a ""b"", c\r\nd"', 'a "b", c\r\nd'),
        ("STRING", b'a"b', 'a"b'),
        ("STRING", b" x ", " x "),
        ("BINARY", "ä".encode(), "ä".encode()),
        ("DATE", b"2026-01-31", datetime.date(2026, 1, 31)),
        ("TIMESTAMP_NTZ", b"2026-01-31 01:02", datetime.datetime(2026, 1, 31, 1, 2)),
        ("TIMESTAMP", b"2026-01-31", datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC)),
        ("TIMESTAMP", b"2026-01-31T01:02:03.25-01:00", datetime.datetime(2026, 1, 31, 2, 2, 3, 250000, datetime.UTC)),
    ],
)
def test_fields_are_read(data_type: str, text: bytes, expected: Any) -> None:
    assert decode(f"a INT, b {data_type}", b"1," + text) == ([(1, expected)], [None])


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"1",
        b"1,x,",
        b"x,y",
        b"1.5,y",
        b"2147483648,y",
        b'1,"y',
        b'1,"y"z',
        b"1,y\n",
        b"1\n,y",
        b"\xff,y",
        b"1\r,y",
    ],
)
def test_what_does_not_match_is_wrong_and_affects_no_other(value: bytes) -> None:
    typed, wrong = decode("a INT, b STRING", b"1,x", value, None, b'2,"x"')
    assert typed == [(1, "x"), None, None, (2, "x")]
    assert wrong == [None, value, None, None]


@given(rows=st.lists(st.tuples(st.integers(-9, 9), st.text(max_size=9), st.text(max_size=9)), max_size=20))
def test_random_records_are_as_they_were_written(rows: list[tuple[int, str, str]]) -> None:
    values = []
    for row in rows:
        text = io.StringIO()
        csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="").writerow(row)
        values.append(text.getvalue().encode(errors="replace"))
    expected = [
        tuple((each.encode(errors="replace").decode() or None) if isinstance(each, str) else each for each in row)
        for row in rows
    ]
    assert decode("a INT, b STRING, c STRING", *values) == (expected, [None] * len(rows))


def test_other_delimiters_and_a_single_column() -> None:
    assert decode("a INT, b STRING", b"1|x,y", delimiter="|") == ([(1, "x,y")], [None])
    assert decode("a INT", b"1", b"", b"x") == ([(1,), (None,), None], [None, None, b"x"])


def test_schemas_and_delimiters_that_csv_cannot_have() -> None:
    with pytest.raises(ConfigError, match="column a is a array<int>, which CSV cannot have"):
        decode("a ARRAY<INT>")
    for delimiter in ('"', "::", "ä", "\n"):
        with pytest.raises(ConfigError, match="valueDelimiter="):
            decode("a INT", delimiter=delimiter)
