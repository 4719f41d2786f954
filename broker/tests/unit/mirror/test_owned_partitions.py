"""The states of the partitions that a process copies."""

from __future__ import annotations

from uuid import UUID

from odradek.base.errors import OdradekError
from odradek.base.types import TopicPartition
from odradek.mirror.copy_positions import CopyPosition
from odradek.mirror.mirror_plan import CopiedPartition
from odradek.mirror.owned_partitions import CopyState, OwnedPartition, OwnedPartitions

PARTITION = CopiedPartition("east", "t", 0, UUID(int=1), "east.t")
POSITION = CopyPosition(offset=1, cluster_id="c", topic="t")


def owned() -> tuple[OwnedPartitions, OwnedPartition]:
    partitions = OwnedPartitions()
    partitions.add(PARTITION)
    found = partitions.find(PARTITION)
    assert found is not None and found.target == TopicPartition("east.t", 0)
    return partitions, found


def test_pauses_double_and_end_with_a_success() -> None:
    partitions, one = owned()
    pauses = []
    for _ in range(4):
        one.failed(OdradekError("x"), 0.0, 0.5)
        pauses.append(one.retry_at_ms)
        partitions.retry_due(one.retry_at_ms - 1)
        assert one.state is CopyState.FAILED
        partitions.retry_due(one.retry_at_ms)
        assert one.state is CopyState.WAITING
    assert pauses == [5_000, 10_000, 20_000, 40_000]
    one.started(POSITION)
    assert one.error is not None, "only a committed round proves that the error has passed"
    one.moved(POSITION)
    assert (one.error, one.failures) == (None, 0)


def test_only_what_is_copied_starts_again_after_an_aborted_round() -> None:
    _, one = owned()
    one.started(POSITION)
    one.must_restart()
    assert one.state is CopyState.WAITING
    one.failed(OdradekError("x"), 0.0, 0.5)
    one.must_restart()
    assert one.state is CopyState.FAILED


def test_a_partition_of_a_new_topic_is_another_one() -> None:
    partitions, one = owned()
    assert partitions.find(CopiedPartition("east", "t", 0, UUID(int=2), "east.t")) is None
    assert partitions.in_state(CopyState.WAITING, "east") == [one] and not partitions.in_state(CopyState.WAITING, "w")
    assert partitions.remove(one.target) is one and partitions.find(PARTITION) is None
