"""Selection of the replica to which a consumer is redirected."""

from __future__ import annotations

import pytest

from odradek.base.config import BrokerConfig
from odradek.base.errors import ConfigError
from odradek.replication.leader.reader import SELECTORS, ReplicaView, rack_aware

LEADER = ReplicaView(100, 0.0, 1, "a")


@pytest.mark.parametrize(
    ("rack", "followers", "chosen"),
    [
        ("", [ReplicaView(100, 0.0, 2, "")], 1),
        ("a", [ReplicaView(100, 0.0, 2, "a")], 1),
        ("b", [], 1),
        ("b", [ReplicaView(100, 0.0, 2, None), ReplicaView(100, 0.0, 3, "c")], 1),
        ("b", [ReplicaView(10, 0.0, 2, "b"), ReplicaView(100, 0.0, 3, "c")], 2),
        ("b", [ReplicaView(10, 9.0, 2, "b"), ReplicaView(11, 0.0, 3, "b")], 3),
        ("b", [ReplicaView(10, 9.0, 2, "b"), ReplicaView(10, 8.0, 3, "b")], 2),
        ("b", [ReplicaView(10, 9.0, 2, "b"), ReplicaView(10, 9.0, 3, "b")], 3),
    ],
)
def test_the_one_in_the_rack_that_has_come_farthest(rack: str, followers: list[ReplicaView], chosen: int) -> None:
    assert rack_aware(rack, LEADER, followers) == chosen


PROPERTIES = {"broker.id": "1", "zookeeper.connect": "localhost:2181"}


@pytest.mark.parametrize(("name", "selects"), [("RackAwareReplicaSelector", True), ("LeaderSelector", False)])
def test_kafkas_selectors_are_known(name: str, selects: bool) -> None:
    text = f"org.apache.kafka.common.replica.{name}"
    config, warnings = BrokerConfig.parse({**PROPERTIES, "replica.selector.class": text})
    assert (config.replica_selector_class, warnings) == (text, [])
    assert (config.replica_selector_class in SELECTORS) is selects


def test_another_selector_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"replica\.selector\.class='com\.example\.Mine'"):
        BrokerConfig.parse({**PROPERTIES, "replica.selector.class": "com.example.Mine"})


def test_without_a_setting_consumers_stay_with_the_leader() -> None:
    assert SELECTORS.get(BrokerConfig.parse(PROPERTIES)[0].replica_selector_class) is None
