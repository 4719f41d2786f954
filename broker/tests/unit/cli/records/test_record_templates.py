"""Rendering of records as lines."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cli.records.record_templates import json_lines, template
from odradek.cli.records.value_decoders import Decoders, RecordDecodingError
from odradek.client.models import ConsumerRecord

RECORD = ConsumerRecord("orders", 3, 42, 1357016400000, 0, b"key", "välue".encode(), (("h", b"1"), ("n", None)))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{value}", "välue"),
        ("{topic}-{partition}@{offset}", "orders-3@42"),
        (r"{key}\t{timestamp}", "key\t1357016400000"),
        ("{{{key}}}", "{key}"),
        ("{headers}", "h=1,n=null"),
        ("plain", "plain"),
        ("{time} {timestamp_type}", "2013-01-01T05:00:00.000Z CreateTime"),
        ("{key_size}+{value_size}", "3+6"),
        ("{header:h} {header:n} {header:missing}", "1 null null"),
        ("{key:hex} {value:base64} {value}", "6b6579 dsOkbHVl välue"),
    ],
)
def test_templates(text: str, line: str) -> None:
    assert template(text)(RECORD) == line


def test_missing_keys_and_invalid_utf8_are_rendered() -> None:
    odd = RECORD._replace(key=None, value=b"a\xff")
    assert template("{key} {value}")(odd) == r"null a\xff"


@pytest.mark.parametrize(
    "text",
    [
        "{colour}",
        "{}",
        "{key!r}",
        "{key:>10}",
        "{key.real}",
        "{0}",
        "{key",
        "{header}",
        "{headers:hex}",
        "{topic:hex}",
        "{key:utf8}",
    ],
)
def test_an_unknown_field_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        template(text)


def test_json() -> None:
    assert json.loads(json_lines()(RECORD)) == {
        "topic": "orders",
        "partition": 3,
        "offset": 42,
        "timestamp": 1357016400000,
        "key": "key",
        "value": "välue",
        "headers": [{"name": "h", "value": "1"}, {"name": "n", "value": None}],
    }


@given(st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=20))
def test_json_contains_every_byte(key: bytes | None, value: bytes | None) -> None:
    line = json_lines()(RECORD._replace(key=key, value=value))
    assert "\n" not in line
    found = json.loads(line)
    assert (bytes_of(found, "key"), bytes_of(found, "value")) == (key, value)


def bytes_of(found: dict[str, str | None], name: str) -> bytes | None:
    if f"{name}_base64" in found:
        return base64.b64decode(str(found[f"{name}_base64"]))
    text = found[name]
    return None if text is None else text.encode()


def test_a_record_without_timestamp_key_and_value_is_rendered() -> None:
    bare = RECORD._replace(timestamp=-1, key=None, value=None)
    assert template("{time} {timestamp_type} {key_size} {value_size} {key:int}")(bare) == "null null -1 -1 null"


def test_decoders_of_a_template_and_of_json() -> None:
    record = RECORD._replace(
        key=(5).to_bytes(8, "big"), value=b'{"a": [1, "x"]}', headers=(("h", b"\x00\x02"), ("n", None))
    )
    decoders = Decoders(key="long", value="json", header="short")
    assert template("{key} {value} {headers} {header:h}", decoders)(record) == '5 {"a": [1, "x"]} h=2,n=null 2'
    found = json.loads(json_lines(decoders)(record))
    assert (found["key"], found["value"]) == (5, {"a": [1, "x"]})
    assert found["headers"] == [{"name": "h", "value": 2}, {"name": "n", "value": None}]


@pytest.mark.parametrize(
    ("decoders", "message"),
    [
        (
            Decoders(key="int"),
            "The key of the record at offset 42 of orders-3 cannot be decoded as int: it has 3",
        ),
        (Decoders(value="json"), "The value of the record .* as json: it is not JSON"),
        (Decoders(header="long"), "The header h of the record .* as long: it has 1 bytes, long needs 8"),
    ],
)
def test_what_cannot_be_decoded_is_named(decoders: Decoders, message: str) -> None:
    for render in (template("{key} {value} {headers}", decoders), json_lines(decoders)):
        with pytest.raises(RecordDecodingError, match=message):
            render(RECORD)
