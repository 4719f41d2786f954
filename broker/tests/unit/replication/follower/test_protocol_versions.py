"""What brokers may do among themselves, by inter-broker protocol."""

from __future__ import annotations

import pytest

from odradek.replication.follower.protocol_versions import has_alter_partition


@pytest.mark.parametrize(("setting", "has"), [("2.7", True), ("2.7-IV2", True), ("2.7-IV1", False), ("2.6", False)])
def test_who_commits_in_sync_sets(setting: str, has: bool) -> None:
    assert has_alter_partition(setting) is has
