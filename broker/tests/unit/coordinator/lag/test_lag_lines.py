"""The lag of a group as text."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from odradek.coordinator.lag.lag_lines import measured_group, topic_sums
from odradek.coordinator.lag.lag_values import PartitionLag
from odradek.metrics.series import RENDERED


def test_what_is_unknown_of_a_lag_has_no_sample() -> None:
    def row(topic: str, partition: int, records: int | None, seconds: float | None) -> PartitionLag:
        labels = {"consumergroup": "g", "topic": topic, "partition": str(partition)}
        return PartitionLag(labels, 5, records, seconds)

    group: Any = SimpleNamespace(group_id="g", member_count=3)
    rows = [row("a", 0, 7, 1.5), row("a", 1, 2, None), row("b", 0, 4, 0.0), row("b", 1, None, None)]
    measured = measured_group(group, rows)
    assert topic_sums(rows) == {"a": 9, "b": None}
    assert {name: lines.decode().splitlines() for name, lines in measured.lines.items()} == {
        "kafka_consumergroup_current_offset": [
            f'kafka_consumergroup_current_offset{{consumergroup="g",topic="{topic}",partition="{partition}"}} 5'
            for topic in "ab"
            for partition in (0, 1)
        ],
        "kafka_consumergroup_lag": [
            'kafka_consumergroup_lag{consumergroup="g",topic="a",partition="0"} 7',
            'kafka_consumergroup_lag{consumergroup="g",topic="a",partition="1"} 2',
            'kafka_consumergroup_lag{consumergroup="g",topic="b",partition="0"} 4',
        ],
        "kafka_consumergroup_lag_sum": ['kafka_consumergroup_lag_sum{consumergroup="g",topic="a"} 9'],
        "kafka_consumergroup_members": ['kafka_consumergroup_members{consumergroup="g"} 3'],
        "odradek_consumergroup_lag_seconds": [
            'odradek_consumergroup_lag_seconds{consumergroup="g",topic="a",partition="0"} 1.5',
            'odradek_consumergroup_lag_seconds{consumergroup="g",topic="b",partition="0"} 0.0',
        ],
    }
    assert measured.lines.keys() == RENDERED.keys()
