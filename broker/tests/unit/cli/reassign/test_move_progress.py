"""The progress of reassignments, and the tables of plans."""

from __future__ import annotations

from odradek.base.types import TopicPartition
from odradek.cli.reassign.move_progress import (
    MoveProgress,
    WatchedMoves,
    move_table,
    move_value,
    plan_table,
    progress_of,
)
from odradek.client.models import LogDirDescription, PartitionReassignment, ReplicaSize

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)
MOVE = PartitionReassignment(replicas=(3, 1, 2), adding=(3,), removing=(1,))


def directory(partition: TopicPartition, size: int, *, future: bool = False) -> LogDirDescription:
    replicas = {partition: ReplicaSize(size_bytes=size, offset_lag=0, future=future)}
    return LogDirDescription(path="/a", error_code=0, replicas=replicas, total_bytes=-1, usable_bytes=-1)


def test_the_progress_is_the_size_of_new_replicas_compared_with_the_leader() -> None:
    sizes = {
        1: [directory(ZERO, 4096)],
        2: [directory(ZERO, 9999)],
        3: [directory(ZERO, 1024), directory(ZERO, 7, future=True)],
    }
    (move,) = progress_of({ZERO: MOVE}, {ZERO: 1}, sizes)
    assert (move.copied_bytes, move.total_bytes) == (1024, 4096)
    assert move_table([move]).rows == (("orders", "0", "3,1,2", "3", "1", "1.0 KiB", "4.0 KiB"),)
    assert move_value(move)["copiedBytes"] == 1024


def test_a_new_replica_may_be_larger_and_a_leader_may_be_unknown() -> None:
    (larger,) = progress_of({ZERO: MOVE}, {ZERO: 1}, {1: [directory(ZERO, 10)], 3: [directory(ZERO, 20)]})
    assert (larger.copied_bytes, larger.total_bytes) == (10, 10)
    (unknown,) = progress_of({ZERO: MOVE}, {}, {2: [directory(ZERO, 30)], 3: [directory(ZERO, 20)]})
    assert (unknown.copied_bytes, unknown.total_bytes) == (20, 30)
    (nothing,) = progress_of({ZERO: MOVE}, {}, {})
    assert (nothing.copied_bytes, nothing.total_bytes) == (0, 0)


def progress(name: TopicPartition, copied: int, total: int) -> MoveProgress:
    return MoveProgress(partition=name, replicas=(), adding=(), removing=(), copied_bytes=copied, total_bytes=total)


def test_partitions_that_are_no_longer_moving_are_complete() -> None:
    watched = WatchedMoves()
    watched.update([progress(ZERO, 10, 100), progress(ONE, 0, 50)])
    assert not watched.is_done
    assert watched.text() == "0 of 2 partitions moved, 10 B of 150 B copied"
    watched.update([progress(ONE, 20, 60)])
    assert watched.value() == {"partitions": 2, "done": 1, "copiedBytes": 120, "totalBytes": 160}
    watched.update([])
    assert watched.is_done
    assert watched.text() == "2 of 2 partitions moved, 160 B of 160 B copied"


def test_a_plan_tells_what_is_copied() -> None:
    table = plan_table({ZERO: (1, 2), ONE: (1, 2)}, {ZERO: (2, 3), ONE: (2, 1)}, {ZERO: 2048})
    assert table.title == "2 partitions change, 1 replica is copied (2.0 KiB)"
    assert table.rows == (
        ("orders", "0", "1,2", "2,3", "3", "1", "2.0 KiB"),
        ("orders", "1", "1,2", "2,1", "-", "-", "0 B"),
    )
    assert plan_table({}, {}, {}).empty == "No replica has to move."
