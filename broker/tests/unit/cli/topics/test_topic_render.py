"""Tables and JSON values of topics."""

from __future__ import annotations

from uuid import UUID

import pytest

from odradek.base.types import TopicPartition
from odradek.cli.topics import topic_render
from odradek.client.models import (
    ConfigEntry,
    LogDirDescription,
    PartitionDescription,
    ReplicaSize,
    TopicDescription,
)

SOUND = PartitionDescription(partition=0, leader=1, leader_epoch=4, replicas=(1, 2, 0), isr=(0, 1, 2))
BEHIND = PartitionDescription(partition=1, leader=2, leader_epoch=5, replicas=(2, 0, 1), isr=(2,))
OFFLINE = PartitionDescription(
    partition=2, leader=-1, leader_epoch=6, replicas=(0, 1), isr=(0,), offline_replicas=(0, 1)
)
TOPIC_ID = UUID("aaaaaaaa-0000-4000-8000-000000000000")
TROUBLED = TopicDescription(name="orders", topic_id=TOPIC_ID, partitions=(SOUND, BEHIND, OFFLINE))
FINE = TopicDescription(name="fine", partitions=(SOUND,))


@pytest.mark.parametrize(("partition", "state"), [(SOUND, "in sync"), (BEHIND, "2 behind"), (OFFLINE, "offline")])
def test_the_state_of_a_partition(partition: PartitionDescription, state: str) -> None:
    assert topic_render.partition_state(partition) == state


def test_a_list_of_topics_highlights_those_not_in_sync() -> None:
    table = topic_render.topic_list([FINE, TROUBLED, TopicDescription(name="empty")])
    assert table.rows == (
        ("fine", "1", "3", "in sync"),
        ("orders", "3", "3", "2 of 3 not in sync"),
        ("empty", "0", "0", "in sync"),
    )
    assert table.marked == {1}


def test_a_topic_in_detail() -> None:
    table = topic_render.topic_detail(TROUBLED, {"retention.ms": "5", "cleanup.policy": "compact"})
    assert (
        table.title == "Topic orders, id qqqqqgAAQACAAAAAAAAAAA, 3 partitions, cleanup.policy=compact, retention.ms=5"
    )
    assert table.rows == (
        ("0", "1", "4", "1,2,0", "0,1,2", "in sync"),
        ("1", "2", "5", "2,0,1", "2", "2 behind"),
        ("2", "none", "6", "0,1", "0", "offline"),
    )
    assert table.marked == {1, 2}
    assert topic_render.topic_detail(FINE, {}).title == "Topic fine, 1 partition"


def test_only_the_partitions_that_are_not_in_sync() -> None:
    assert topic_render.only_troubled(TROUBLED).partitions == (BEHIND, OFFLINE)
    assert topic_render.only_troubled(FINE).partitions == ()


def test_only_what_was_set_on_the_topic_is_an_override() -> None:
    entries = [
        ConfigEntry(name="retention.ms", value="5", source=1),
        ConfigEntry(name="segment.bytes", value="9", source=5),
        ConfigEntry(name="hidden", value=None, source=1, sensitive=True),
    ]
    assert topic_render.overrides(entries) == {"retention.ms": "5", "hidden": ""}


def test_a_topic_for_programs() -> None:
    value = topic_render.topic_value(TROUBLED, {"retention.ms": "5"})
    assert (value["name"], value["id"], value["config"]) == ("orders", "qqqqqgAAQACAAAAAAAAAAA", {"retention.ms": "5"})
    assert value["partitions"][2] == {  # type: ignore[index]
        "partition": 2,
        "leader": -1,
        "leader_epoch": 6,
        "replicas": [0, 1],
        "isr": [0],
        "offline_replicas": [0, 1],
    }
    assert "config" not in topic_render.topic_value(FINE)
    assert topic_render.topic_value(FINE)["id"] is None


def directory(**sizes: int) -> LogDirDescription:
    """A log directory with replicas of partitions of orders; names are `p` and the partition."""
    replicas = {
        TopicPartition("orders", int(name[1:])): ReplicaSize(size_bytes=size, offset_lag=0, future=False)
        for name, size in sizes.items()
    }
    return LogDirDescription(path="/a", error_code=0, replicas=replicas, total_bytes=-1, usable_bytes=-1)


def test_offsets_and_sizes_of_a_topic() -> None:
    zero, one, two = (TopicPartition("orders", number) for number in range(3))
    copy = LogDirDescription(
        path="/b",
        error_code=0,
        replicas={zero: ReplicaSize(size_bytes=7, offset_lag=1, future=True)},
        total_bytes=-1,
        usable_bytes=-1,
    )
    measured = topic_render.extents(
        [TROUBLED], {zero: 5, one: 0}, {zero: 9, one: 2}, {0: [directory(p0=2048), copy], 1: [directory(p0=1024)]}
    )
    assert measured == {zero: (5, 9, {0: 2048, 1: 1024}), one: (0, 2, {}), two: (None, None, {})}
    table = topic_render.topic_detail(TROUBLED, {}, measured)
    assert table.title == "Topic orders, id qqqqqgAAQACAAAAAAAAAAA, 3 partitions, unknown"
    assert [column.heading for column in table.columns][5:] == ["START", "END", "SIZE", "STATE"]
    assert [row[5:] for row in table.rows] == [
        ("5", "9", "1.0 KiB", "in sync"),
        ("0", "2", "unknown", "2 behind"),
        ("unknown", "unknown", "unknown", "offline"),
    ]
    value = topic_render.topic_value(TROUBLED, {}, measured)
    assert value["size_bytes"] is None
    first = value["partitions"][0]  # type: ignore[index]
    assert (first["start_offset"], first["end_offset"], first["size_bytes"]) == (5, 9, 1024)
    assert first["replica_sizes"] == {"0": 2048, "1": 1024}
