from __future__ import annotations

import pytest

from odradek.zk import layout
from odradek.zk.acl import acls_for

OPEN = [(31, "world", "anyone")]
CREATOR = [(31, "auth", "")]
CREATOR_AND_READERS = [(31, "auth", ""), (1, "world", "anyone")]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", CREATOR_AND_READERS),
        ("/kafka", CREATOR_AND_READERS),
        ("/controller", CREATOR_AND_READERS),
        (layout.broker_path(7), CREATOR_AND_READERS),
        ("/config", CREATOR_AND_READERS),
        ("/config/topics/t", CREATOR_AND_READERS),
        ("/config/changes", CREATOR_AND_READERS),
        ("/kafka-acl/Topic/t", CREATOR_AND_READERS),
        ("/consumers", OPEN),
        ("/consumers/group", CREATOR_AND_READERS),
        ("/config/users", CREATOR),
        ("/config/users/alice", CREATOR),
        ("/config/brokers/<default>", CREATOR),
        ("/delegation_token", CREATOR_AND_READERS),
        ("/delegation_token/tokens", CREATOR),
        ("/delegation_token/tokens/abc", CREATOR),
    ],
)
def test_acls_are_the_same_as_in_kafka(path: str, expected: list[tuple[int, str, str]]) -> None:
    assert list(acls_for(path, secure=True)) == expected
    assert list(acls_for(path, secure=False)) == OPEN
