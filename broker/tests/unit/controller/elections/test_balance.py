"""When leadership goes back to preferred leaders."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from odradek.base.types import TopicPartition
from odradek.controller.context import ControllerContext
from odradek.controller.elections.balance import imbalanced_partitions
from odradek.zk.layout import ReplicaAssignment

T0 = TopicPartition("t", 0)
Build = Callable[..., ControllerContext]


@pytest.mark.parametrize(
    ("elsewhere", "tolerated", "chosen"), [(1, 10, 0), (2, 10, 2), (2, 20, 0), (10, 10, 10), (1, 0, 1), (0, 0, 0)]
)
def test_the_share_decides(build: Build, elsewhere: int, tolerated: int, chosen: int) -> None:
    context = build([1, 2], {n: ((1, 2), 2 if n < elsewhere else 1, (1, 2)) for n in range(10)})
    assert imbalanced_partitions(context, tolerated) == [TopicPartition("t", n) for n in range(chosen)]


def test_only_where_it_can_be_done(build: Build) -> None:
    assert imbalanced_partitions(build([1, 2], {0: ((1, 2), 2, (2,))}), 0) == []
    assert imbalanced_partitions(build([2], {0: ((1, 2), 2, (1, 2))}), 0) == []
    context = build([1, 2], {0: ((1, 2), 2, (1, 2))})
    context.shutting_down = {1}
    assert imbalanced_partitions(context, 0) == []
    context.shutting_down = set()
    assert imbalanced_partitions(context, 0) == [T0]
    for attribute in ("deletions", "deferred_deletions"):
        setattr(context, attribute, {"t"})
        assert imbalanced_partitions(context, 0) == []
        setattr(context, attribute, set())
    context.set_assignment(T0, ReplicaAssignment(replicas=(1, 2), removing=(2,)))
    assert imbalanced_partitions(context, 0) == []
