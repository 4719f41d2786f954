"""Keys and values as text."""

from __future__ import annotations

import pytest

from odradek.client.models import ConsumerRecord
from odradek.console.shown_bytes import (
    VALUE_BYTES,
    WHOLE_BYTES,
    indented_json,
    safe_text,
    shown_bytes,
    shown_record,
    whole_record,
)
from odradek.records.v2.batch import TimestampType


def record(**fields: object) -> ConsumerRecord:
    values = {"key": None, "value": None, "headers": (), **fields}
    return ConsumerRecord("t", 0, 7, 1000, TimestampType.CREATE_TIME, **values)  # type: ignore[arg-type]


def test_null_differs_from_empty() -> None:
    assert (shown_bytes(None, 10).encoding, shown_bytes(b"", 10).encoding) == ("null", "utf-8")


@pytest.mark.parametrize(
    ("content", "limit", "text", "encoding"),
    [
        ("grün".encode(), 10, "grün", "utf-8"),
        ("grün".encode(), 3, "gr", "utf-8"),  # the limit is inside of ü
        (b"\xff\x00", 100, "ff 00", "hex"),
        (b"gr\xc3", 100, "67 72 c3", "hex"),  # not truncated, so it is not UTF-8
        (b"a\xff" + b"b" * 20, 40, "61 ff 62 62", "hex"),
        (b"\xff\x00", 4, "ff", "hex"),
        (b"a\x00\x1b[31m\tb\n", 20, "a\\u0000\\u001b[31m\tb\n", "utf-8"),
    ],
)
def test_bytes_are_text_or_hexadecimal(content: bytes, limit: int, text: str, encoding: str) -> None:
    shown = shown_bytes(content, limit)
    assert (shown.text, shown.encoding, shown.size_bytes) == (text, encoding, len(content))
    assert shown.is_truncated == (len(content) > (limit if encoding == "utf-8" else max(1, limit // 10)))


def test_marks_that_reverse_text_are_escaped() -> None:
    assert safe_text("abc\u202edcba\u2066") == "abc\\u202edcba\\u2066"


def test_a_list_has_only_the_beginning_of_a_huge_record() -> None:
    huge = record(value=b"x" * 10_000_000, headers=[(f"h{number}", b"y" * 100_000) for number in range(1000)])
    shown = shown_record(huge)
    assert len(shown.value.text) == VALUE_BYTES
    assert (len(shown.headers), shown.header_count) == (20, 1000)
    assert sum(len(value.text) for _, value in shown.headers) < 10_000
    assert len(whole_record(huge).value.text) == WHOLE_BYTES


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b'{"a":[1]}', '{\n  "a": [\n    1\n  ]\n}'),
        (b"7", None),
        (b"{", None),
        (b"[" * 100_000 + b"]" * 100_000, None),
        (b'{"a": ' + b"9" * 10_000 + b"}", None),
        (b"{" + b" " * WHOLE_BYTES + b"}", None),
        (None, None),
    ],
)
def test_json_is_indented_unless_it_is_hostile(content: bytes | None, text: str | None) -> None:
    assert indented_json(content) == text
