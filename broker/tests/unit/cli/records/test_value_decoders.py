"""The decoders of `odradek consume`."""

from __future__ import annotations

import json
import struct

import pytest

from odradek.cli.records.value_decoders import DECODERS, RecordDecodingError, decoded_text, decoded_value


@pytest.mark.parametrize(
    ("name", "data", "value", "text"),
    [
        ("string", "ü".encode(), "ü", "ü"),
        ("hex", b"\x00\xff", "00ff", "00ff"),
        ("base64", b"\x00\xff", "AP8=", "AP8="),
        ("json", b'{"b": 1}', {"b": 1}, '{"b": 1}'),
        ("json", b'"x"', "x", '"x"'),
        ("short", struct.pack(">h", -2), -2, "-2"),
        ("int", struct.pack(">i", -3), -3, "-3"),
        ("long", struct.pack(">q", 1 << 40), 1 << 40, str(1 << 40)),
        ("float", struct.pack(">f", 0.5), 0.5, "0.5"),
        ("double", struct.pack(">d", 0.1), 0.1, "0.1"),
    ],
)
def test_values_and_texts(name: str, data: bytes, value: object, text: str) -> None:
    assert decoded_value(name, data) == value
    assert decoded_text(name, data) == text


@pytest.mark.parametrize("name", DECODERS)
def test_null_is_null(name: str) -> None:
    assert decoded_text(name, None) == "null"


def test_invalid_text_has_escapes_but_is_no_json_string() -> None:
    assert decoded_text("string", b"a\xff") == r"a\xff"
    with pytest.raises(RecordDecodingError, match="it is not text in UTF-8"):
        decoded_value("string", b"a\xff")


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_does_not_have_become_text(number: float) -> None:
    value = decoded_value("double", struct.pack(">d", number))
    assert json.loads(json.dumps(value, allow_nan=False)) == str(number)


@pytest.mark.parametrize(
    ("name", "data"), [("json", b"{"), ("json", b"NaN"), ("json", b"\xff"), ("int", b"123"), ("double", b"")]
)
def test_wrong_data_are_refused(name: str, data: bytes) -> None:
    with pytest.raises(RecordDecodingError, match=r"."):
        decoded_text(name, data)
