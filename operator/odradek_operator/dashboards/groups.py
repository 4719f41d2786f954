"""The dashboard of consumer groups: their lag and progress. Pure.

The lag comes from the cluster's only exporter, or without it from the coordinator of each group, so sums count each
partition once. Only the row of old clients needs the exporter.
"""

from __future__ import annotations

from typing import Final

from odradek_operator.dashboards import queries
from odradek_operator.dashboards.grafana import Dashboard, Panel, PanelType, Query, Row, Variable, lines

_BROKERS: Final = "kafka_server_replicamanager_leadercount"
_IN: Final = 'SCOPE, consumergroup=~"$group", topic=~"$topic"'
_GROUP: Final = "{{consumergroup}} {{topic}}"


def _rebalances(name: str) -> str:
    series = f"kafka_server_group_coordinator_metrics_{name}_count"
    return f"sum(rate({series}{{SCOPE}}[$__rate_interval]))"


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
    Variable(
        name="topic",
        label="Topic",
        series="kafka_consumergroup_current_offset{SCOPE}",
        value="topic",
        several=True,
    ),
)

_LAG: Final = Row(
    title="Lag",
    panels=(
        Panel(
            title="Largest lag in records",
            description="Groups and topics with the most uncommitted records, the top ten.",
            queries=lines(f"topk(10, {queries.GROUP_LAG})", _GROUP),
            type=PanelType.BARS,
            width=12,
            height=8,
        ),
        Panel(
            title="Largest lag in time",
            description="Groups and topics with the oldest uncommitted record, the top ten. Ages are estimates.",
            queries=lines(f"topk(10, {queries.GROUP_LAG_SECONDS})", _GROUP),
            type=PanelType.BARS,
            unit="s",
            width=12,
            height=8,
        ),
        Panel(
            title="Lag in records",
            description="Uncommitted records, summed over partitions. While this falls, the group catches up.",
            queries=lines(f"sum by (consumergroup, topic) (kafka_consumergroup_lag{{{_IN}}} >= 0)", _GROUP),
            width=12,
        ),
        Panel(
            title="Lag in time",
            description="Age of the oldest uncommitted record, maximum over partitions.",
            queries=lines(f"max by (consumergroup, topic) (odradek_consumergroup_lag_seconds{{{_IN}}})", _GROUP),
            unit="s",
            width=12,
        ),
    ),
)

_THROUGHPUT: Final = Row(
    title="Throughput",
    panels=(
        Panel(
            title="Records written",
            description="Records that producers write, by topic.",
            queries=lines(
                'sum by (topic) (rate(kafka_server_brokertopicmetrics_messagesin_total{SCOPE, topic=~"$topic"}'
                "[$__rate_interval]))",
                "{{topic}}",
            ),
            unit="wps",
        ),
        Panel(
            title="Records committed",
            description="Records that groups commit. If they commit fewer than producers write, the lag grows.",
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
        Panel(
            title="Rebalances",
            description="Rebalances of all groups, by group protocol. Members that leave and join again cause many, "
            "such as those that exceed max.poll.interval.ms.",
            queries=(
                Query(text=_rebalances("group_completed_rebalance"), legend="classic"),
                Query(text=_rebalances("consumer_group_rebalance"), legend="consumer"),
            ),
            unit="ops",
        ),
    ),
)

_PARTITIONS: Final = Row(
    title="Partitions",
    panels=(
        Panel(
            title="Lag of partitions",
            description="The twenty partitions with the largest lag. If only one lags, a member hangs or a key has "
            "too many records.",
            queries=lines(f"topk(20, kafka_consumergroup_lag{{{_IN}}})", "{{consumergroup}} {{topic}}-{{partition}}"),
            type=PanelType.BARS,
            width=12,
            height=10,
        ),
        Panel(
            title="Retained records",
            description="Records between the log start offset and the log end offset, by topic.",
            queries=lines(
                'sum by (topic) (max by (topic, partition) (kafka_log_log_logendoffset{SCOPE, topic=~"$topic"}'
                ' - kafka_log_log_logstartoffset{SCOPE, topic=~"$topic"}))',
                "{{topic}}",
            ),
            width=12,
            height=10,
        ),
    ),
)

_OLD_CLIENTS: Final = Row(
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
    rows=(_LAG, _THROUGHPUT, _PARTITIONS, _OLD_CLIENTS),
)
