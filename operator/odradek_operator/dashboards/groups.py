"""The dashboard of consumer groups: their lag and progress. Pure.

All series come from the cluster's exporter, so sums count nothing twice.
"""

from __future__ import annotations

from typing import Final

from odradek_operator.dashboards import queries
from odradek_operator.dashboards.grafana import Dashboard, Look, Panel, Row, Variable, lines

_BROKERS: Final = "kafka_broker_info"
_IN: Final = 'SCOPE, consumergroup=~"$group", topic=~"$topic"'
_GROUP: Final = "{{consumergroup}} {{topic}}"

_VARIABLES: Final = (
    Variable(name="namespace", label="Namespace", series=_BROKERS, value="namespace"),
    Variable(
        name="cluster", label="Cluster", series=f'{_BROKERS}{{namespace="$namespace"}}', value="strimzi_io_cluster"
    ),
    Variable(
        name="group",
        label="Group",
        series="kafka_consumergroup_current_offset{SCOPE}",
        value="consumergroup",
        several=True,
    ),
    Variable(name="topic", label="Topic", series="kafka_topic_partitions{SCOPE}", value="topic", several=True),
)

_LAG: Final = Row(
    title="Lag",
    panels=(
        Panel(
            title="Largest lag in records",
            description="Records not committed, the ten largest.",
            queries=lines(f"topk(10, {queries.GROUP_LAG})", _GROUP),
            look=Look.BARS,
            width=12,
            height=8,
        ),
        Panel(
            title="Largest lag in time",
            description="Estimated age of the first record that is not committed, the ten largest.",
            queries=lines(f"topk(10, {queries.GROUP_LAG_SECONDS})", _GROUP),
            look=Look.BARS,
            unit="s",
            width=12,
            height=8,
        ),
        Panel(
            title="Lag in records",
            description="Records not committed, sum of the partitions. If it falls, the group catches up.",
            queries=lines(f"sum by (consumergroup, topic) (kafka_consumergroup_lag{{{_IN}}} >= 0)", _GROUP),
            width=12,
        ),
        Panel(
            title="Lag in time",
            description="Age of the first record that is not committed, maximum of the partitions.",
            queries=lines(f"max by (consumergroup, topic) (odradek_consumergroup_lag_seconds{{{_IN}}})", _GROUP),
            unit="s",
            width=12,
        ),
    ),
)

_PACE: Final = Row(
    title="Throughput",
    panels=(
        Panel(
            title="Records written",
            description="Records written to the topics.",
            queries=lines(
                'sum by (topic) (rate(kafka_topic_partition_current_offset{SCOPE, topic=~"$topic"}[$__rate_interval]))',
                "{{topic}}",
            ),
            unit="wps",
        ),
        Panel(
            title="Records committed",
            description="Records committed by the groups. If fewer than are written, the lag grows.",
            queries=lines(
                f"sum by (consumergroup, topic) (rate(kafka_consumergroup_current_offset{{{_IN}}}[$__rate_interval]))",
                _GROUP,
            ),
            unit="rps",
        ),
        Panel(
            title="Members",
            description="Members of each group. Zero with a growing lag means that no consumer runs.",
            queries=lines('kafka_consumergroup_members{SCOPE, consumergroup=~"$group"}', "{{consumergroup}}"),
        ),
    ),
)

_PARTITIONS: Final = Row(
    title="Partitions",
    panels=(
        Panel(
            title="Lag of partitions",
            description="The twenty partitions with the largest lag. If only one lags, a member hangs or a key is hot.",
            queries=lines(f"topk(20, kafka_consumergroup_lag{{{_IN}}})", "{{consumergroup}} {{topic}}-{{partition}}"),
            look=Look.BARS,
            width=12,
            height=10,
        ),
        Panel(
            title="Retained records",
            description="Records between the start and the end of each topic's logs.",
            queries=lines(
                'sum by (topic) (kafka_topic_partition_current_offset{SCOPE, topic=~"$topic"}'
                ' - kafka_topic_partition_oldest_offset{SCOPE, topic=~"$topic"})',
                "{{topic}}",
            ),
            width=12,
            height=10,
        ),
    ),
)

_OLD: Final = Row(
    title="Old clients",
    panels=(
        Panel(
            title="Lag of groups in ZooKeeper",
            description="Lag of consumers that store offsets in ZooKeeper, as before Kafka 0.9.",
            queries=lines("sum by (consumergroup, topic) (kafka_consumergroupzookeeper_lag_zookeeper{SCOPE})", _GROUP),
            width=24,
        ),
    ),
)

DASHBOARD: Final = Dashboard(
    name="groups",
    title="Odradek: consumer groups",
    description="The consumer groups of one cluster: their lag and progress.",
    variables=_VARIABLES,
    rows=(_LAG, _PACE, _PARTITIONS, _OLD),
)
