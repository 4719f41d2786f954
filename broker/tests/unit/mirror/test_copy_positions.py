"""Positions as committed offsets, and the rules of the budget and of owned partitions."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from odradek.base.types import ZERO_UUID
from odradek.client.models import OffsetAndMetadata
from odradek.mirror.copy_positions import CopyPosition, PartitionStoppedError, check_position, decode_position
from odradek.mirror.mirror_plan import CopiedPartition
from odradek.mirror.offset_translation import OffsetRun

TOPIC_ID = UUID(int=7)
PARTITION = CopiedPartition("east", "orders", 3, TOPIC_ID, "east.orders")
POSITION = CopyPosition(offset=42, leader_epoch=5, cluster_id="c1", topic="orders", topic_id=TOPIC_ID)


def test_a_position_is_read_as_it_was_committed() -> None:
    committed = POSITION.encode()
    assert (committed.offset, committed.leader_epoch) == (42, 5)
    assert decode_position(committed) == POSITION
    assert len(committed.metadata) < 512


def test_a_position_has_the_run_that_is_not_stored_yet() -> None:
    position = replace(POSITION, runs=(OffsetRun(10, 20, 32, 5, 47), OffsetRun(42, 50, 1, 0, 51)))
    committed = position.encode()
    assert decode_position(committed) == position
    invalid = committed.metadata.replace("[10,20,32,5,47]", "[10,20,32,33,47]")
    assert decode_position(OffsetAndMetadata(42, invalid)) is None


@pytest.mark.parametrize("metadata", ["", "text", "[]", "{}", '{"mirror":2}', '{"mirror":1,"cluster":"c"}'])
def test_other_offsets_are_no_positions(metadata: str) -> None:
    assert decode_position(OffsetAndMetadata(1, metadata)) is None


@pytest.mark.parametrize(
    ("position", "cluster_id", "named"),
    [
        (POSITION, "c2", "copied from the cluster c1"),
        (replace(POSITION, topic="bills"), "c1", "copied from topic bills"),
        (replace(POSITION, topic_id=uuid4()), "c1", "deleted and created again"),
    ],
)
def test_a_mirror_never_continues_with_another_topic(position: CopyPosition, cluster_id: str, named: str) -> None:
    with pytest.raises(PartitionStoppedError, match=named) as raised:
        check_position(position, PARTITION, cluster_id, "odradek-mirror-m")
    assert "odradek-mirror-m" in str(raised.value)


@pytest.mark.parametrize(
    ("position", "cluster_id"),
    [
        (POSITION, "c1"),
        (POSITION, ""),
        (replace(POSITION, cluster_id=""), "c1"),
        (replace(POSITION, topic_id=ZERO_UUID), "c1"),
    ],
)
def test_unknown_ids_match(position: CopyPosition, cluster_id: str) -> None:
    check_position(position, PARTITION, cluster_id, "g")
