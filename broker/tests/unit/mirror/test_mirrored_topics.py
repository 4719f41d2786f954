"""The records of the topics that a mirror has created."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from odradek.base.errors import ConfigError
from odradek.base.types import ZERO_UUID
from odradek.mirror.following.mirrored_topics import MirroredTopic
from odradek.security.acls.model import AclOperation, AclPermission, AclRule
from odradek.security.principals import Principal

RULE = AclRule(Principal("User", "CN=a:b"), AclPermission.DENY, AclOperation.DESCRIBE_CONFIGS, "::1")
TOPIC = MirroredTopic(
    name="east.orders",
    source="east",
    source_topic="orders",
    source_id=UUID(int=7),
    target_id=UUID(int=8),
    origins=("a", "b"),
    rules=frozenset({RULE}),
)


@pytest.mark.parametrize("topic", [TOPIC, replace(TOPIC, target_id=None, origins=(), rules=frozenset())])
def test_a_record_is_read_as_it_was_written(topic: MirroredTopic) -> None:
    assert MirroredTopic.decode(topic.key(), topic.value()) == topic


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b"{}",
        TOPIC.value().replace(b"DENY", b"MAYBE"),
        TOPIC.value().replace(b"User:CN=a:b", b"alice"),
        TOPIC.value().replace(b"0000", b"x"),
    ],
)
def test_other_records_are_refused(value: bytes) -> None:
    with pytest.raises(ConfigError):
        MirroredTopic.decode(TOPIC.key(), value)


def test_ids_tell_whether_the_topic_is_still_the_same() -> None:
    assert TOPIC.is_copy(UUID(int=8)) and TOPIC.is_copy(ZERO_UUID)
    assert not TOPIC.is_copy(UUID(int=9))
    assert replace(TOPIC, target_id=None).is_copy(UUID(int=9))
