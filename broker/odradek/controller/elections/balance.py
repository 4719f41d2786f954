"""Which partitions should go back to their preferred leader. Pure: the image enters, partitions leave."""

from __future__ import annotations

from collections import defaultdict

from odradek.base.types import TopicPartition
from odradek.controller.context import ControllerContext


def imbalanced_partitions(context: ControllerContext, tolerated_percentage: int) -> list[TopicPartition]:
    """Partitions to elect preferred leaders for (`auto.leader.rebalance.enable`).

    For each broker: of the partitions that prefer it, the share that it does not lead is its imbalance. Above
    `tolerated_percentage` all of those are chosen whose preferred replica is alive and in sync. Partitions that are
    being deleted or reassigned are left out: these get their leaders when that is done.
    """
    preferring: defaultdict[int, int] = defaultdict(int)
    elsewhere: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for partition in context.partitions():
        if context.is_marked_for_deletion(partition.topic) or partition in context.reassigning:
            continue
        preferred = context.assignment(partition).preferred_leader
        preferring[preferred] += 1
        leadership = context.leaderships.get(partition)
        if leadership is not None and leadership.state.leader != preferred:
            elsewhere[preferred].append(partition)
    chosen = []
    for broker, partitions in sorted(elsewhere.items()):
        if len(partitions) * 100 > tolerated_percentage * preferring[broker]:
            chosen += [partition for partition in partitions if _may_lead(context, broker, partition)]
    return chosen


def _may_lead(context: ControllerContext, broker: int, partition: TopicPartition) -> bool:
    return context.is_online(broker, partition) and broker in context.leaderships[partition].state.isr
