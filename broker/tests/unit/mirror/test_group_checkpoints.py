"""When a group gets a checkpoint, and when its offset is committed in the target."""

from __future__ import annotations

from odradek.base.types import TopicPartition
from odradek.client.models import OffsetAndMetadata
from odradek.mirror.following.group_checkpoints import new_checkpoints, offsets_to_commit
from odradek.mirror.mm2_records import Checkpoint

ORDERS, COPY = TopicPartition("orders", 0), TopicPartition("east.orders", 0)


def checkpoints(offset: int, last: Checkpoint | None = None) -> list[tuple[int, int]]:
    """Return the offsets of the new checkpoints. The target has every other record, from offset 10 on."""
    found = new_checkpoints(
        "billing",
        {
            ORDERS: OffsetAndMetadata(offset, "note"),
            TopicPartition("other", 0): OffsetAndMetadata(3),
            TopicPartition("orders", 1): OffsetAndMetadata(3),
        },
        target_of=lambda topic: f"east.{topic}" if topic == "orders" else None,
        translate=lambda partition, at: at // 2 if partition == ORDERS and at >= 10 else None,
        last={} if last is None else {COPY: last},
    )
    assert all((each.group, each.partition, each.metadata) == ("billing", COPY, "note") for each in found)
    return [(each.source_offset, each.target_offset) for each in found]


def checkpoint(source: int, target: int) -> Checkpoint:
    return Checkpoint("billing", COPY, source, target, "note")


def test_only_copied_and_translatable_offsets_get_a_checkpoint() -> None:
    assert checkpoints(20) == [(20, 10)]
    assert checkpoints(9) == [] and checkpoints(-1) == []


def test_a_checkpoint_is_written_if_it_moves_the_group() -> None:
    assert checkpoints(22, checkpoint(20, 10)) == [(22, 11)]
    assert checkpoints(21, checkpoint(20, 10)) == []
    assert checkpoints(20, checkpoint(20, 12)) == [], "a less exact translation does not move the group back"
    assert checkpoints(12, checkpoint(20, 10)) == [(12, 6)], "the group has gone back in the source"


def test_an_offset_that_is_as_late_stays() -> None:
    wanted = [checkpoint(20, 10)]
    assert offsets_to_commit(wanted, {}) == {COPY: OffsetAndMetadata(10, "note")}
    assert offsets_to_commit(wanted, {COPY: OffsetAndMetadata(9)}) == {COPY: OffsetAndMetadata(10, "note")}
    assert offsets_to_commit(wanted, {COPY: OffsetAndMetadata(10)}) == {}
    assert offsets_to_commit(wanted, {COPY: OffsetAndMetadata(11)}) == {}
