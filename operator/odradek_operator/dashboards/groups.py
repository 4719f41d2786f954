"""The dashboard of consumer groups: who is behind, by how much, and whether they catch up. Pure.

Its series come from the cluster's exporter alone, so sums count nothing twice.
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
    title="Who is behind",
    panels=(
        Panel(
            title="Furthest behind, records",
            description="Records that each group has not committed, the largest ten.",
            queries=lines(f"topk(10, {queries.GROUP_LAG})", _GROUP),
            look=Look.BARS,
            width=12,
            height=8,
        ),
        Panel(
            title="Furthest behind, time",
            description="Estimated age of the first record that each group has not committed, the largest ten.",
            queries=lines(f"topk(10, {queries.GROUP_LAG_SECONDS})", _GROUP),
            look=Look.BARS,
            unit="s",
            width=12,
            height=8,
        ),
        Panel(
            title="Lag in records",
            description="Records not committed, summed over partitions. Falling: the group catches up.",
            queries=lines(f"sum by (consumergroup, topic) (kafka_consumergroup_lag{{{_IN}}} >= 0)", _GROUP),
            width=12,
        ),
        Panel(
            title="Lag in time",
            description="Age of the first uncommitted record of the partition that is furthest behind.",
            queries=lines(f"max by (consumergroup, topic) (odradek_consumergroup_lag_seconds{{{_IN}}})", _GROUP),
            unit="s",
            width=12,
        ),
    ),
)

_PACE: Final = Row(
    title="Who keeps pace",
    panels=(
        Panel(
            title="Records written",
            description="Growth of the topics' ends.",
            queries=lines(
                'sum by (topic) (rate(kafka_topic_partition_current_offset{SCOPE, topic=~"$topic"}[$__rate_interval]))',
                "{{topic}}",
            ),
            unit="wps",
        ),
        Panel(
            title="Records committed",
            description="Growth of the groups' committed offsets. Below what is written, the lag grows.",
            queries=lines(
                f"sum by (consumergroup, topic) (rate(kafka_consumergroup_current_offset{{{_IN}}}[$__rate_interval]))",
                _GROUP,
            ),
            unit="rps",
        ),
        Panel(
            title="Members",
            description="Members of each group. None with a lag that grows: nobody reads.",
            queries=lines('kafka_consumergroup_members{SCOPE, consumergroup=~"$group"}', "{{consumergroup}}"),
        ),
    ),
)

_PARTITIONS: Final = Row(
    title="Partitions",
    panels=(
        Panel(
            title="Lag of partitions",
            description="The twenty partitions with most uncommitted records. One alone: a stuck member or a hot key.",
            queries=lines(f"topk(20, kafka_consumergroup_lag{{{_IN}}})", "{{consumergroup}} {{topic}}-{{partition}}"),
            look=Look.BARS,
            width=12,
            height=10,
        ),
        Panel(
            title="Records that can be read",
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
    title="Groups of old clients",
    panels=(
        Panel(
            title="Lag of groups in ZooKeeper",
            description="Lag of consumers that keep their offsets in ZooKeeper, as those before 0.9 did.",
            queries=lines("sum by (consumergroup, topic) (kafka_consumergroupzookeeper_lag_zookeeper{SCOPE})", _GROUP),
            width=24,
        ),
    ),
)

DASHBOARD: Final = Dashboard(
    name="groups",
    title="Odradek: consumer groups",
    description="The consumer groups of one cluster: who is behind, by how much, and whether they catch up.",
    variables=_VARIABLES,
    rows=(_LAG, _PACE, _PARTITIONS, _OLD),
)
