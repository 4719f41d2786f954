"""The hash of Java's strings, compared with values that Java computed."""

from __future__ import annotations

import pytest

from odradek.base.topic_rules import java_string_hash, partition_for


@pytest.mark.parametrize(
    ("text", "value", "partition"),
    [
        ("", 0, 0),
        ("a", 97, 47),
        ("group", 98629247, 47),
        ("grüppe", -1233264812, 12),
        ("😀-group", -1198440043, 43),
        ("console-consumer-12345", 158455506, 6),
        ("test-group-0", 2060176935, 35),
        ("polygenelubricants", -(1 << 31), 0),
    ],
)
def test_hash_and_partition_of_fifty(text: str, value: int, partition: int) -> None:
    assert java_string_hash(text) == value
    assert partition_for(text, 50) == partition


def test_the_lowest_hash_goes_to_partition_0_whatever_the_count() -> None:
    assert partition_for("polygenelubricants", 7) == 0
