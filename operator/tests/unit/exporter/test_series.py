"""The text of /metrics: names, labels and values of a known snapshot, line by line."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from odradek_operator.exporter.series import SERIES, render
from odradek_operator.exporter.snapshot import (
    Broker,
    ExporterSnapshot,
    GroupReading,
    PartitionReading,
    Position,
    TopicReading,
)

SNAPSHOT = ExporterSnapshot(
    brokers=(Broker(1, "host:9092"),),
    topics=(
        TopicReading(
            name="t",
            partitions=(PartitionReading(0, 1, (1, 2), 2, 5, 50, 500), PartitionReading(1, -1, (2, 1), 1)),
        ),
    ),
    groups=(
        GroupReading(name="g", members=2, positions=(Position("t", 0, 40, 10, 2.5), Position("t", 1, -1))),
        GroupReading(name="h", members=None),
    ),
    zookeeper_groups=(GroupReading(name="old", members=None, positions=(Position("t", 0, 45, 5, 1.0),)),),
)

LINES = """\
kafka_brokers 1
kafka_broker_info{id="1",address="host:9092"} 1
kafka_topic_partitions{topic="t"} 2
kafka_topic_partition_replicas{topic="t",partition="0"} 2
kafka_topic_partition_replicas{topic="t",partition="1"} 2
kafka_topic_partition_in_sync_replica{topic="t",partition="0"} 2
kafka_topic_partition_in_sync_replica{topic="t",partition="1"} 1
kafka_topic_partition_under_replicated_partition{topic="t",partition="0"} 0
kafka_topic_partition_under_replicated_partition{topic="t",partition="1"} 1
kafka_topic_partition_leader_is_preferred{topic="t",partition="0"} 1
kafka_topic_partition_leader_is_preferred{topic="t",partition="1"} 0
kafka_topic_partition_leader{topic="t",partition="0"} 1
kafka_topic_partition_leader{topic="t",partition="1"} -1
kafka_topic_partition_current_offset{topic="t",partition="0"} 50
kafka_topic_partition_oldest_offset{topic="t",partition="0"} 5
kafka_consumergroup_current_offset{consumergroup="g",topic="t",partition="0"} 40
kafka_consumergroup_current_offset{consumergroup="g",topic="t",partition="1"} -1
kafka_consumergroup_lag{consumergroup="g",topic="t",partition="0"} 10
odradek_consumergroup_lag_seconds{consumergroup="g",topic="t",partition="0"} 2.5
kafka_consumergroup_current_offset_sum{consumergroup="g",topic="t"} 40
kafka_consumergroup_lag_sum{consumergroup="g",topic="t"} 10
kafka_consumergroup_members{consumergroup="g"} 2
kafka_consumergroupzookeeper_lag_zookeeper{consumergroup="old",topic="t",partition="0"} 5
""".splitlines()


def test_the_lines_of_a_snapshot() -> None:
    assert [line for line in render(SNAPSHOT).decode().splitlines() if not line.startswith("#")] == LINES


def test_every_series_is_declared_even_without_samples() -> None:
    families = list(text_string_to_metric_families(render(ExporterSnapshot()).decode()))
    assert [(family.name, family.type, family.documentation) for family in families] == [
        (series.name, "gauge", series.help) for series in SERIES
    ]
    assert not any(family.samples for family in families)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\r"), min_size=1))
def test_any_name_of_a_group_is_read_back(name: str) -> None:
    groups = (GroupReading(name=name, members=3),)
    text = render(ExporterSnapshot(groups=groups)).decode()
    members = [
        sample
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "kafka_consumergroup_members"
    ]
    assert [(sample.labels, sample.value) for sample in members] == [({"consumergroup": name}, 3)]
