"""The dashboard of topics: throughput, size and replication. Pure."""

from __future__ import annotations

from typing import Final

from odradek_operator.dashboards.cluster_dashboard import CLUSTER, NAMESPACE
from odradek_operator.dashboards.grafana import Dashboard, Panel, PanelType, Query, Row, Variable, lines

_TOPICS: Final = "kafka_server_brokertopicmetrics"
_TOPIC: Final = "{{topic}}"
_IN: Final = 'SCOPE, topic=~"$topic", topic!=""'
"""Matchers for the selected topics. Brokers also export series with an empty topic, which are totals."""

_SELECTED_TOPICS: Final = Variable(
    name="topic", label="Topic", series="kafka_cluster_partition_replicascount{SCOPE}", value="topic", several=True
)


def _rate(series: str) -> str:
    return f"sum by (topic) (rate({_TOPICS}_{series}{{{_IN}}}[$__rate_interval]))"


_OVERVIEW: Final = Row(
    title="Overview",
    panels=(
        Panel(
            title="Topics",
            description="Number of selected topics.",
            queries=lines(f"count(count by (topic) (kafka_cluster_partition_replicascount{{{_IN}}} > 0))"),
            type=PanelType.NUMBER,
            width=4,
            height=4,
        ),
        Panel(
            title="Partitions",
            description="Number of partitions with a leader.",
            queries=lines(f"count(kafka_cluster_partition_replicascount{{{_IN}}} > 0)"),
            type=PanelType.NUMBER,
            width=4,
            height=4,
        ),
        Panel(
            title="Replicas",
            description="Number of assigned replicas.",
            queries=lines(f"sum(kafka_cluster_partition_replicascount{{{_IN}}})"),
            type=PanelType.NUMBER,
            width=4,
            height=4,
        ),
        Panel(
            title="Replicas out of sync",
            description="Replicas that are not in the ISR.",
            queries=lines(
                'sum(kafka_topic_partition_replicas{SCOPE, topic=~"$topic"})'
                ' - sum(kafka_topic_partition_in_sync_replica{SCOPE, topic=~"$topic"})'
            ),
            type=PanelType.NUMBER,
            width=4,
            height=4,
            bad=1,
        ),
        Panel(
            title="Not led by the preferred leader",
            description="Partitions that another replica than the preferred leader leads. Usually it leads again "
            "within minutes.",
            queries=lines('sum(kafka_topic_partition_leader_is_preferred{SCOPE, topic=~"$topic"} < bool 1)'),
            type=PanelType.NUMBER,
            width=4,
            height=4,
        ),
        Panel(
            title="Size of all replicas",
            description="Size of all logs of the selected topics on all brokers.",
            queries=lines(f"sum(kafka_log_log_size{{{_IN}}})"),
            type=PanelType.NUMBER,
            unit="bytes",
            width=4,
            height=4,
        ),
    ),
)

_TRAFFIC: Final = Row(
    title="Traffic",
    panels=(
        Panel(
            title="Records in",
            description="Records that producers write.",
            queries=lines(_rate("messagesin_total"), _TOPIC),
            type=PanelType.AREAS,
            unit="wps",
        ),
        Panel(
            title="Bytes in",
            description="Bytes that producers write, without replication.",
            queries=lines(_rate("bytesin_total"), _TOPIC),
            type=PanelType.AREAS,
            unit="Bps",
        ),
        Panel(
            title="Bytes out",
            description="Bytes that consumers read, without replication.",
            queries=lines(_rate("bytesout_total"), _TOPIC),
            type=PanelType.AREAS,
            unit="Bps",
        ),
        Panel(
            title="Produce requests",
            description="Each partition in a produce request counts. If there are many for few records, raise "
            "linger.ms in producers.",
            queries=lines(_rate("totalproducerequests_total"), _TOPIC),
            unit="ops",
        ),
        Panel(
            title="Fetch requests",
            description="Each partition in a fetch request of a consumer or follower counts.",
            queries=lines(_rate("totalfetchrequests_total"), _TOPIC),
            unit="ops",
        ),
        Panel(
            title="Failed requests",
            description="Each partition with an error counts. Errors of a former leader after an election are normal.",
            queries=(
                Query(text=_rate("failedproducerequests_total"), legend="{{topic}} produce"),
                Query(text=_rate("failedfetchrequests_total"), legend="{{topic}} fetch"),
            ),
            unit="ops",
        ),
    ),
)

_STORED: Final = Row(
    title="Storage",
    panels=(
        Panel(
            title="Largest topics",
            description="Size of one copy of each topic: the sum of the largest replicas of its partitions.",
            queries=lines(
                f"topk(15, sum by (topic) (max by (topic, partition) (kafka_log_log_size{{{_IN}}})))", _TOPIC
            ),
            type=PanelType.BARS,
            unit="bytes",
            width=12,
            height=9,
        ),
        Panel(
            title="Largest partitions",
            description="Size of the largest replica. If one partition is much larger than others, many records share "
            "a key.",
            queries=lines(
                f"topk(15, max by (topic, partition) (kafka_log_log_size{{{_IN}}}))", "{{topic}}-{{partition}}"
            ),
            type=PanelType.BARS,
            unit="bytes",
            width=12,
            height=9,
        ),
        Panel(
            title="Size over time",
            description="Size of all replicas.",
            queries=lines(f"sum by (topic) (kafka_log_log_size{{{_IN}}})", _TOPIC),
            type=PanelType.AREAS,
            unit="bytes",
            width=12,
        ),
        Panel(
            title="Segments",
            description="Segments of all replicas. The newest of each replica is open, the others when they are read.",
            queries=lines(f"sum by (topic) (kafka_log_log_numlogsegments{{{_IN}}})", _TOPIC),
            type=PanelType.AREAS,
            width=12,
        ),
    ),
)

_REPLICATION: Final = Row(
    title="Replication",
    panels=(
        Panel(
            title="Under-replicated partitions",
            description="Partitions of each topic with a replica that is out of sync.",
            queries=lines(
                'sum by (topic) (kafka_topic_partition_under_replicated_partition{SCOPE, topic=~"$topic"}) > 0', _TOPIC
            ),
        ),
        Panel(
            title="Partitions at min ISR",
            description="Partitions of each topic that reject writes with acks=all if they lose another replica.",
            queries=lines(f"sum by (topic) (kafka_cluster_partition_atminisr{{{_IN}}}) > 0", _TOPIC),
        ),
        Panel(
            title="Partitions under min ISR",
            description="Partitions of each topic that reject writes with acks=all.",
            queries=lines(f"sum by (topic) (kafka_cluster_partition_underminisr{{{_IN}}}) > 0", _TOPIC),
        ),
    ),
)

DASHBOARD: Final = Dashboard(
    name="topics",
    title="Odradek: topics",
    description="The topics of one cluster: throughput, size and replication.",
    variables=(NAMESPACE, CLUSTER, _SELECTED_TOPICS),
    rows=(_OVERVIEW, _TRAFFIC, _STORED, _REPLICATION),
)
