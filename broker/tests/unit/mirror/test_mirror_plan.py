"""What a mirror creates, changes and copies for given topics of both clusters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from odradek.base.types import ZERO_UUID
from odradek.client.admin_kinds import ConfigOperation, ConfigSource
from odradek.client.models import ConfigChange, ConfigEntry
from odradek.mirror.following.mirrored_topics import MirroredTopic
from odradek.mirror.mirror_config import ClusterAddress, NameFilter, SourceConfig
from odradek.mirror.mirror_plan import (
    EXCLUDED_CONFIGS,
    Clusters,
    CopiedPartition,
    MirrorPlan,
    SeenTopic,
    config_changes,
    followed_configs,
    make_plan,
)

SOURCE_ID, TARGET_ID, OTHER_ID = UUID(int=1), UUID(int=2), UUID(int=3)
EAST = SourceConfig(
    name="east", address=ClusterAddress("e:9092"), topics=NameFilter((".*",), ("secret",)), prefix="east."
)
ORDERS = SeenTopic(name="orders", topic_id=SOURCE_ID, partitions=2)
COPY = SeenTopic(name="east.orders", topic_id=TARGET_ID, partitions=2)
RECORD = MirroredTopic(
    name="east.orders",
    source="east",
    source_topic="orders",
    source_id=SOURCE_ID,
    target_id=TARGET_ID,
    origins=("cluster-e",),
)


def entry(name: str, value: str | None, source: ConfigSource = ConfigSource.TOPIC_CONFIG, **fields: Any) -> ConfigEntry:
    return ConfigEntry(name=name, value=value, source=source, **fields)


def named(*entries: ConfigEntry) -> dict[str, ConfigEntry]:
    return {each.name: each for each in entries}


def plan(
    *topics: SeenTopic,
    target: tuple[SeenTopic, ...] = (),
    records: tuple[MirroredTopic, ...] = (),
    source_records: tuple[MirroredTopic, ...] = (),
    source: SourceConfig = EAST,
) -> MirrorPlan:
    clusters = Clusters(
        source_id="cluster-e",
        target_id="cluster-t",
        source={each.name: each for each in topics},
        target={each.name: each for each in target},
        source_records={each.name: each for each in source_records},
        target_records={each.name: each for each in records},
    )
    return make_plan(source, clusters)


def copied(*numbers: int, topic_id: UUID = SOURCE_ID) -> frozenset[CopiedPartition]:
    return frozenset(CopiedPartition("east", "orders", number, topic_id, "east.orders") for number in numbers)


def test_a_missing_topic_is_created_with_its_properties() -> None:
    configs = named(entry("retention.ms", "5"), entry("segment.bytes", "9", ConfigSource.DEFAULT_CONFIG))
    found = plan(replace(ORDERS, configs=configs))
    [creation] = found.creations
    assert creation.record == replace(RECORD, target_id=None)
    assert (creation.partitions, creation.configs) == (2, (("retention.ms", "5"),))
    assert found.copied == frozenset() and not found.problems


def test_properties_are_not_followed_if_they_are_switched_off() -> None:
    orders = replace(ORDERS, configs=named(entry("retention.ms", "5")), partitions=3)
    off = replace(EAST, configurations=False, partitions=False)
    assert plan(orders, source=off).creations[0].configs == ()
    found = plan(orders, target=(replace(COPY, configs={}),), records=(RECORD,), source=off)
    assert not found.config_changes and not found.partition_counts
    assert found.copied == copied(0, 1)
    assert "partitions from 2 on are not copied" in found.problems["orders"]


def test_topics_that_are_not_chosen_are_left_out() -> None:
    names = ("secret", "__consumer_offsets", "heartbeats", "mm2-x", "odradek-mirror-topics", "b.checkpoints.internal")
    topics = [SeenTopic(name=name, partitions=1) for name in names]
    internal = SeenTopic(name="state", partitions=1, internal=True)
    assert plan(*topics, internal, SeenTopic(name="unknown-now")) == MirrorPlan()


def test_an_own_topic_is_followed() -> None:
    orders = replace(ORDERS, partitions=4, configs=named(entry("retention.ms", "5")))
    present = replace(COPY, configs=named(entry("retention.ms", "6")))
    found = plan(orders, target=(present,), records=(RECORD,))
    assert found.partition_counts == {"east.orders": 4}
    assert found.config_changes == {"east.orders": (ConfigChange(name="retention.ms", value="5"),)}
    assert found.copied == copied(0, 1)
    assert (found.owned, found.followed) == ({"east.orders": RECORD}, {"orders": "east.orders"})
    assert not found.problems


def test_a_topic_of_somebody_else_is_not_changed() -> None:
    orders = replace(ORDERS, partitions=4, configs=named(entry("retention.ms", "5")))
    present = replace(COPY, configs=named(entry("retention.ms", "6")))
    for records in ((), (replace(RECORD, target_id=OTHER_ID),)):
        found = plan(orders, target=(present,), records=records)
        assert not found.creations and not found.partition_counts and not found.config_changes and not found.owned
        assert found.copied == copied(0, 1)
        assert found.problems["orders"].endswith("Add partitions to topic east.orders")


def test_after_a_crash_the_record_gets_its_id() -> None:
    found = plan(ORDERS, target=(COPY,), records=(replace(RECORD, target_id=None),))
    assert found.completed == (RECORD,)
    assert found.owned == {"east.orders": RECORD}


def test_a_crash_before_the_creation_is_repeated() -> None:
    found = plan(ORDERS, records=(replace(RECORD, target_id=None),))
    assert [each.record.name for each in found.creations] == ["east.orders"]


def test_a_topic_that_was_created_again_in_the_source_is_a_problem() -> None:
    again = replace(ORDERS, topic_id=OTHER_ID, partitions=5)
    found = plan(again, target=(COPY,), records=(RECORD,))
    assert "would mix two topics" in found.problems["orders"]
    assert not found.partition_counts
    # The copier compares the id with that of its position, and stops.
    assert found.copied == copied(0, 1, topic_id=OTHER_ID)


def test_old_brokers_have_no_ids() -> None:
    old = replace(ORDERS, topic_id=ZERO_UUID)
    found = plan(old, target=(replace(COPY, topic_id=ZERO_UUID),), records=(RECORD,))
    assert not found.problems and found.owned


def test_a_topic_that_was_deleted_in_the_target_is_not_created_again() -> None:
    found = plan(ORDERS, records=(RECORD,))
    assert not found.creations
    assert "is missing in the target" in found.problems["orders"]


def test_two_sources_are_not_mixed_in_one_topic() -> None:
    found = plan(ORDERS, target=(COPY,), records=(replace(RECORD, source="west"),))
    assert not found.copied
    assert "set another prefix for source east" in found.problems["orders"]


@pytest.mark.parametrize("prefix", ["", "east."])
def test_records_do_not_go_round_in_a_circle(prefix: str) -> None:
    back = MirroredTopic(
        name="orders", source="t", source_topic="orders", target_id=SOURCE_ID, origins=("cluster-x", "cluster-t")
    )
    source = replace(EAST, prefix=prefix)
    assert plan(ORDERS, source_records=(back,), source=source) == MirrorPlan()
    # A topic of the same name that the mirror did not create is copied.
    assert plan(ORDERS, source_records=(replace(back, target_id=OTHER_ID),), source=source).creations


def test_the_clusters_that_records_have_passed_are_kept() -> None:
    far = MirroredTopic(name="orders", source="x", source_topic="o", target_id=SOURCE_ID, origins=("cluster-x",))
    assert plan(ORDERS, source_records=(far,)).creations[0].record.origins == ("cluster-e", "cluster-x")


def test_which_properties_are_followed() -> None:
    found = followed_configs(
        named(
            entry("retention.ms", "1"),
            entry("cleanup.policy", "compact", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            entry("segment.ms", "2", ConfigSource.DEFAULT_CONFIG),
            entry("segment.bytes", "3", ConfigSource.STATIC_BROKER_CONFIG),
            entry("flush.ms", "4", ConfigSource.UNKNOWN),
            entry("secret", "5", sensitive=True),
            entry("fixed", "6", read_only=True),
            entry("empty", None),
            *(entry(name, "7") for name in EXCLUDED_CONFIGS),
        )
    )
    assert found == {"retention.ms": "1", "cleanup.policy": "compact"}


CHANGES: Mapping[str, tuple[tuple[ConfigEntry, ...], tuple[ConfigEntry, ...], tuple[ConfigChange, ...]]] = {
    "the same": ((entry("retention.ms", "1"),), (entry("retention.ms", "1"),), ()),
    "another value": (
        (entry("retention.ms", "1"),),
        (entry("retention.ms", "2", ConfigSource.DEFAULT_CONFIG),),
        (ConfigChange(name="retention.ms", value="1"),),
    ),
    "a default again": (
        (entry("retention.ms", "1", ConfigSource.DEFAULT_CONFIG),),
        (entry("retention.ms", "2"),),
        (ConfigChange(name="retention.ms", value=None, operation=ConfigOperation.DELETE),),
    ),
    "a default of the source's brokers again": (
        (entry("retention.ms", "1", ConfigSource.STATIC_BROKER_CONFIG),),
        (entry("retention.ms", "2"),),
        (ConfigChange(name="retention.ms", value=None, operation=ConfigOperation.DELETE),),
    ),
    "unknown in the source": ((), (entry("remote.storage.enable", "true"),), ()),
    "excluded": (
        (entry("min.insync.replicas", "1", ConfigSource.DEFAULT_CONFIG),),
        (entry("min.insync.replicas", "2"),),
        (),
    ),
    "a default of the target's brokers": (
        (entry("retention.ms", "1", ConfigSource.DEFAULT_CONFIG),),
        (entry("retention.ms", "2", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),),
        (),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_changed(name: str) -> None:
    source, target, changes = CHANGES[name]
    assert config_changes(named(*source), named(*target)) == changes
