"""Tests the parser of kubectl's tables."""

from __future__ import annotations

from support.tables import parse

TABLE = """\
NAME    BROKERS   CONTROLLER   READY   MESSAGE
demo    3/3       0            True    Every broker is running: 0, 1, 2.
other   0/3                    False
"""


def test_values_stand_below_their_headings() -> None:
    assert parse(TABLE) == [
        {
            "NAME": "demo",
            "BROKERS": "3/3",
            "CONTROLLER": "0",
            "READY": "True",
            "MESSAGE": "Every broker is running: 0, 1, 2.",
        },
        {"NAME": "other", "BROKERS": "0/3", "CONTROLLER": "", "READY": "False", "MESSAGE": ""},
    ]


def test_a_heading_without_rows_is_an_empty_table() -> None:
    assert parse("NAME   READY\n") == []
