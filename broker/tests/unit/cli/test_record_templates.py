"""Rendering of records as lines."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cli.record_templates import as_json, template
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
    ],
)
def test_templates(text: str, line: str) -> None:
    assert template(text)(RECORD) == line


def test_missing_keys_and_invalid_utf8_are_rendered() -> None:
    odd = RECORD._replace(key=None, value=b"a\xff")
    assert template("{key} {value}")(odd) == r"null a\xff"


@pytest.mark.parametrize("text", ["{colour}", "{}", "{key!r}", "{key:>10}", "{key.real}", "{0}", "{key"])
def test_an_unknown_field_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        template(text)


def test_json() -> None:
    assert json.loads(as_json(RECORD)) == {
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
    line = as_json(RECORD._replace(key=key, value=value))
    assert "\n" not in line
    found = json.loads(line)
    assert (bytes_of(found, "key"), bytes_of(found, "value")) == (key, value)


def bytes_of(found: dict[str, str | None], name: str) -> bytes | None:
    if f"{name}_base64" in found:
        return base64.b64decode(str(found[f"{name}_base64"]))
    text = found[name]
    return None if text is None else text.encode()
