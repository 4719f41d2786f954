"""Versions of the requests between brokers by inter-broker protocol, as in Kafka's tables."""

from __future__ import annotations

import pytest

from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.release_versions import has_alter_partition, has_topic_ids, highest_version


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
def test_requests_of_followers_have_the_right_versions(setting: str, fetch: int, epochs: int, offsets: int) -> None:
    apis = (ApiKey.FETCH, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.LIST_OFFSETS)
    assert tuple(highest_version(api_key, setting) for api_key in apis) == (fetch, epochs, offsets)


@pytest.mark.parametrize(
    ("setting", "roles", "metadata", "stop"),
    [
        ("3.9", 7, 8, 4),
        ("3.4-IV0", 7, 8, 4),
        ("3.3", 6, 7, 3),
        ("3.1", 5, 7, 3),
        ("2.8", 5, 7, 3),
        ("2.8-IV0", 4, 6, 3),
        ("2.7", 4, 6, 3),
        ("2.5", 4, 6, 2),
        ("2.4-IV0", 3, 5, 1),
        ("2.2", 2, 5, 1),
        ("2.1", 1, 4, 0),
        ("1.0", 1, 4, 0),
        ("0.11.0", 0, 3, 0),
        ("0.10.2", 0, 2, 0),
        ("0.9.0", 0, 1, 0),
    ],
)
def test_requests_of_controllers_have_the_right_versions(setting: str, roles: int, metadata: int, stop: int) -> None:
    apis = (ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA, ApiKey.STOP_REPLICA)
    assert tuple(highest_version(api_key, setting) for api_key in apis) == (roles, metadata, stop)
    assert all(API_TABLE[api_key].serves(highest_version(api_key, setting)) for api_key in apis)


@pytest.mark.parametrize(("setting", "markers"), [("3.9", 1), ("2.8-IV0", 1), ("2.7", 0), ("0.11.0", 0)])
def test_markers_of_transactions_have_the_right_versions(setting: str, markers: int) -> None:
    assert highest_version(ApiKey.WRITE_TXN_MARKERS, setting) == markers


@pytest.mark.parametrize(("setting", "has"), [("3.9", True), ("2.8-IV0", True), ("2.7", False)])
def test_when_topics_have_ids(setting: str, has: bool) -> None:
    assert has_topic_ids(setting) is has


@pytest.mark.parametrize(("setting", "has"), [("2.7", True), ("2.7-IV2", True), ("2.7-IV1", False), ("2.6", False)])
def test_the_controller_commits_isr_changes_from_2_7_iv2_on(setting: str, has: bool) -> None:
    assert has_alter_partition(setting) is has
