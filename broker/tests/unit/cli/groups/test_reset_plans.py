"""Scopes, durations, CSV files and limits of `odradek group reset`."""

from __future__ import annotations

import click
import pytest

from odradek.base.errors import ConfigError
from odradek.base.types import TopicPartition
from odradek.cli.groups import reset_plans
from odradek.cli.groups.reset_plans import LogRange, Move

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
OTHER = TopicPartition("stock", 0)


def test_scopes() -> None:
    assert reset_plans.parse_scope(["orders:0,1", "orders:1,2", "stock"]) == {"orders": (0, 1, 2), "stock": ()}
    assert reset_plans.parse_scope(["orders:0", "orders"]) == {"orders": ()}
    assert reset_plans.in_scope({"orders": (4,), "stock": ()}, [FIRST, OTHER]) == [TopicPartition("orders", 4), OTHER]


@pytest.mark.parametrize("value", ["", ":1", "orders:", "orders:a", "orders:-1", "orders:1,"])
def test_invalid_scopes(value: str) -> None:
    with pytest.raises(click.BadParameter):
        reset_plans.parse_scope([value])


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("P7D", 604_800_000),
        ("PT1H30M", 5_400_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("pt0s", 0),
        ("PT0,25S", 250),
    ],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert reset_plans.duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1h", "P1H", "PT-5M", "P1M"])
def test_invalid_durations(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        reset_plans.duration_ms(text)


def test_offsets_outside_the_log_are_moved_into_it() -> None:
    limits = {FIRST: LogRange(5, 10), SECOND: LogRange(0, 3), OTHER: LogRange(0, 8)}
    clamped = reset_plans.clamp("g", {FIRST: 4, SECOND: 9, OTHER: 8}, limits)
    assert clamped.offsets == {FIRST: 5, SECOND: 3, OTHER: 8}
    assert clamped.warnings == [
        "Offset 4 of orders-0 is before the start of the log: group g gets 5.",
        "Offset 9 of orders-1 is after the end of the log: group g gets 3.",
    ]


def test_the_csv_format() -> None:
    moves = [Move("a,b", FIRST, 1, 5), Move("a,b", OTHER, None, 0)]
    assert reset_plans.write_csv(moves, with_group=False) == "orders,0,5\nstock,0,0\n"
    with_group = reset_plans.write_csv(moves, with_group=True)
    assert with_group == '"a,b",orders,0,5\n"a,b",stock,0,0\n'
    expected = {"a,b": {FIRST: 5, OTHER: 0}}
    assert reset_plans.read_csv(with_group, ["a,b"]) == expected
    assert reset_plans.read_csv("orders,0,5\r\n\r\nstock, 0, 0\r\n", ["a,b"]) == expected
    assert reset_plans.read_csv("other,orders,0,5\n" + with_group, ["a,b"]) == expected


@pytest.mark.parametrize(
    ("text", "groups", "words"),
    [
        ("orders,0,5\n", ["a", "b"], "line 1 of the file has no group, but 2 groups"),
        ("a,orders,0,5\n", ["a", "b"], "no offsets of group b"),
        ("", ["a"], "no offsets of group a"),
        ("orders,0\n", ["a"], "line 1 of the file is not of the form"),
        ("orders,0,5\norders,x,5\n", ["a"], "line 2 of the file is not of the form"),
        ("orders,0,-5\n", ["a"], "line 1 of the file is not of the form"),
    ],
)
def test_invalid_csv_files(text: str, groups: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        reset_plans.read_csv(text, groups)


def test_the_table_of_changes() -> None:
    moves = [Move("g", FIRST, 7, 5), Move("g", SECOND, 3, 3), Move("g", OTHER, None, 0)]
    table = reset_plans.moves_table(moves, executed=False)
    assert table.rows == (
        ("g", "orders", "0", "7", "5", "-2"),
        ("g", "orders", "1", "3", "3", "0"),
        ("g", "stock", "0", "-", "0", "-"),
    )
    assert table.marked == {0, 2}
    assert reset_plans.moves_table(moves, executed=True).marked == frozenset()
    assert reset_plans.moves_value(moves[:1], executed=True) == {
        "executed": True,
        "offsets": [{"group": "g", "topic": "orders", "partition": 0, "old_offset": 7, "new_offset": 5}],
    }
