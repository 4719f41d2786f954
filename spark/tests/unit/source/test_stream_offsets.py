"""The offsets of a stream: what travels beside them, and that other readers of a checkpoint ignore it."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from odradek.base.errors import ConfigError
from odradek.base.types import TopicPartition
from pyspark_odradek.offsets import from_spark
from pyspark_odradek.source.stream_offsets import StreamOffset

A0, A10, B0 = TopicPartition("a-b", 0), TopicPartition("a-b", 10), TopicPartition("b_.c", 0)
OFFSET = StreamOffset(
    {B0: 3, A10: 2, A0: 1}, {"b_.c": UUID(int=2), "a-b": UUID(int=1), "z": UUID(int=3)}, {A0: 0, B0: 3}
)


def test_everything_survives_its_text_and_other_sources_see_only_offsets() -> None:
    stored = json.loads(json.dumps(OFFSET.to_spark()))
    known = {"a-b": UUID(int=1), "b_.c": UUID(int=2)}
    assert StreamOffset.parse(stored) == StreamOffset(OFFSET.offsets, known, OFFSET.first)
    assert from_spark(stored) == OFFSET.offsets
    assert [name for name, partitions in stored.items() if partitions] == ["a-b", "b_.c"]
    assert StreamOffset.parse({"a-b": {"0": 1}}) == StreamOffset({A0: 1})


def test_equal_offsets_have_equal_text() -> None:
    other = StreamOffset({A0: 1, A10: 2, B0: 3}, {"a-b": UUID(int=1), "b_.c": UUID(int=2)}, {B0: 3, A0: 0})
    assert json.dumps(other.to_spark()) == json.dumps(OFFSET.to_spark())
    assert StreamOffset({}, {}, {}).to_spark() == {"odradek start:": {}}
    assert StreamOffset.parse({"odradek start:": {}}).first == {}


def test_topics_that_were_created_again() -> None:
    assert OFFSET.created_again({"a-b": UUID(int=9), "new": UUID(int=7)}) == {"a-b"}
    assert OFFSET.created_again(OFFSET.topic_ids) == frozenset()
    assert OFFSET.without({"a-b"}) == {B0: 3}


@pytest.mark.parametrize("member", ["odradek topic ids: a=1", "odradek start: a=5", "odradek start: a-0=x"])
def test_a_member_that_cannot_be_read(member: str) -> None:
    with pytest.raises(ConfigError, match=member):
        StreamOffset.parse({"a": {"0": 1}, member: {}})
