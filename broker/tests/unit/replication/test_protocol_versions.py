"""Versions of the requests between brokers, by inter-broker protocol (Kafka's own table of them)."""

from __future__ import annotations

import pytest

from odradek.protocol.apis import ApiKey
from odradek.replication.protocol_versions import has_alter_partition, highest_version


@pytest.mark.parametrize(
    ("setting", "fetch", "epochs", "offsets"),
    [
        ("3.9", 17, 4, 8),
        ("3.9-IV0", 17, 4, 8),
        ("3.7-IV3", 15, 4, 8),
        ("3.7", 16, 4, 8),
        ("3.5-IV0", 14, 4, 8),
        ("3.4", 13, 4, 7),
        ("3.0", 12, 4, 7),
        ("3.0-IV0", 12, 4, 6),
        ("2.8", 12, 4, 6),
        ("2.7", 12, 3, 5),
        ("2.7-IV0", 11, 3, 5),
        ("2.3-IV0", 10, 2, 5),
        ("2.1-IV1", 8, 2, 4),
        ("1.1", 7, 0, 2),
        ("0.11.0", 5, 0, 2),
        ("0.10.2", 3, 0, 1),
    ],
)
def test_versions_of_a_release(setting: str, fetch: int, epochs: int, offsets: int) -> None:
    apis = (ApiKey.FETCH, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.LIST_OFFSETS)
    assert tuple(highest_version(api_key, setting) for api_key in apis) == (fetch, epochs, offsets)


@pytest.mark.parametrize(("setting", "has"), [("2.7", True), ("2.7-IV2", True), ("2.7-IV1", False), ("2.6", False)])
def test_who_commits_in_sync_sets(setting: str, has: bool) -> None:
    assert has_alter_partition(setting) is has
