"""Renders the lag of a group as lines of Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from odradek.coordinator.lag.lag_values import MeasuredGroup, ObservedGroup, PartitionLag
from odradek.metrics import rendered

CURRENT_OFFSET: Final = "kafka_consumergroup_current_offset"
LAG: Final = "kafka_consumergroup_lag"
LAG_SUM: Final = "kafka_consumergroup_lag_sum"
MEMBERS: Final = "kafka_consumergroup_members"
LAG_SECONDS: Final = "odradek_consumergroup_lag_seconds"
"""The series that dashboards of kafka_exporter query, and one more. `metrics/series` describes them."""


def measured_group(group: ObservedGroup, partitions: Iterable[PartitionLag]) -> MeasuredGroup:
    """Return a group with the lines of its metrics. What is unknown has none."""
    rows = tuple(partitions)
    lines = rendered.blocks(
        {
            CURRENT_OFFSET: [(row.labels, row.committed) for row in rows],
            LAG: [(row.labels, row.records) for row in rows],
            LAG_SECONDS: [(row.labels, row.seconds) for row in rows],
            LAG_SUM: [
                ({"consumergroup": group.group_id, "topic": topic}, total) for topic, total in topic_sums(rows).items()
            ],
            MEMBERS: [({"consumergroup": group.group_id}, group.member_count)],
        }
    )
    return MeasuredGroup(group, rows, lines)


def topic_sums(partitions: Iterable[PartitionLag]) -> dict[str, int | None]:
    """Return the lag by topic; None if the lag in one of its partitions is unknown."""
    found: dict[str, int | None] = {}
    for partition in partitions:
        topic = partition.labels["topic"]
        so_far = found.get(topic, 0)
        found[topic] = None if so_far is None or partition.records is None else so_far + partition.records
    return found
