"""Property files in the syntax that users of Kafka write."""

from __future__ import annotations

import pytest

from odradek.app.broker_process import parse_overrides
from odradek.base.errors import ConfigError
from odradek.base.setting_definitions import parse_properties


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a=1\nb: 2\nc 3\nd", {"a": "1", "b": "2", "c": "3", "d": ""}),
        ("  a = 1  \n\n# b=2\n! c=3", {"a": "1"}),
        ("listeners=PLAINTEXT://h:9092", {"listeners": "PLAINTEXT://h:9092"}),
        ("a=one,\\\n   two", {"a": "one,two"}),
        ("a=x\\\\\nb=2", {"a": "x\\", "b": "2"}),
        ("a=1\na=2", {"a": "2"}),
        ("k\\=y=v\\u0041\\t.", {"k=y": "vA\t."}),
        ("a=1\\", {"a": "1"}),
    ],
)
def test_parse(text: str, pairs: dict[str, str]) -> None:
    assert parse_properties(text) == pairs


def test_overrides() -> None:
    assert parse_overrides(["a=1", "b = c=d"]) == {"a": "1", "b": "c=d"}
    with pytest.raises(ConfigError, match="key=value"):
        parse_overrides(["a"])


def test_an_escaped_space_at_the_end_of_a_value_is_kept() -> None:
    assert parse_properties("a=b \t\nc=d\\ \ne=f\\u0020\n") == {"a": "b", "c": "d ", "e": "f "}


def test_an_invalid_escape_sequence_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"invalid escape sequence \\u00x1"):
        parse_properties("a=\\u00x1\n")
