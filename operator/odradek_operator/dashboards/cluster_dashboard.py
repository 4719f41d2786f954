"""The dashboard of a cluster's brokers: health, throughput, latency, replication, transactions and resources. Pure."""

from __future__ import annotations

from typing import Final

from odradek_operator.dashboards import machines, queries
from odradek_operator.dashboards.grafana import Dashboard, Panel, PanelType, Query, Row, Variable, lines
from odradek_operator.dashboards.machines import LEGEND

_LED: Final = "kafka_server_replicamanager_leadercount"
_TOPICS: Final = "kafka_server_brokertopicmetrics"
_TIMES: Final = "kafka_network_requestmetrics_totaltimems"

NAMESPACE: Final = Variable(name="namespace", label="Namespace", series=_LED, value="namespace")
CLUSTER: Final = Variable(
    name="cluster", label="Cluster", series=f'{_LED}{{namespace="$namespace"}}', value="strimzi_io_cluster"
)
_PODS: Final = Variable(name="pod", label="Pod", series=f"{_LED}{{SCOPE}}", value="kubernetes_pod_name", several=True)
_CONTAINERS: Final = Variable(
    name="container", label="Container", series=f"{_LED}{{SCOPE}}", value="container", several=True
)
"""The brokers of a pod: each has a container."""


def _number(title: str, description: str, query: str, **rest: float) -> Panel:
    bad, good = rest.get("bad"), rest.get("good", 0)
    return Panel(
        title=title,
        description=description,
        queries=lines(query),
        type=PanelType.NUMBER,
        width=3,
        height=4,
        bad=bad,
        good=good,
    )


_HEALTH: Final = Row(
    title="Health",
    panels=(
        _number("Brokers", "Number of brokers that Prometheus can scrape.", f"count({_LED}{{SCOPE}})"),
        _number(
            "Controllers",
            "Brokers that are the controller. Any value but 1 for longer than a failover is a problem.",
            queries.CONTROLLERS,
            bad=0,
            good=1,
        ),
        _number(
            "Offline partitions",
            "Partitions without a leader: they cannot be written or read.",
            queries.OFFLINE_PARTITIONS,
            bad=1,
        ),
        _number(
            "Under min ISR",
            "Partitions with fewer in-sync replicas than min.insync.replicas: writes with acks=all are rejected.",
            queries.UNDER_MIN_ISR,
            bad=1,
        ),
        _number(
            "Under-replicated",
            "Partitions with a replica that is out of sync. This is normal after a restart and during reassignments.",
            queries.UNDER_REPLICATED,
            bad=1,
        ),
        _number(
            "At min ISR",
            "Partitions that reject writes with acks=all if they lose another replica.",
            "sum(kafka_server_replicamanager_atminisrpartitioncount{SCOPE})",
        ),
        _number(
            "Unclean elections",
            "Leaders elected from outside the ISR in the selected time range: acknowledged records may be lost.",
            "sum(increase(kafka_controller_controllerstats_uncleanleaderelections_total{SCOPE}[$__range]))",
            bad=1,
        ),
        _number(
            "Failed log directories",
            "Log directories that are offline after an I/O error.",
            "sum(kafka_log_logmanager_offlinelogdirectorycount{SCOPE})",
            bad=1,
        ),
    ),
)

_TRAFFIC: Final = Row(
    title="Traffic",
    panels=(
        Panel(
            title="Bytes in",
            description="Bytes that producers write, by broker, without replication.",
            queries=lines(
                f'sum by ({queries.BY_BROKER}) (rate({_TOPICS}_bytesin_total{{PODS, topic!=""}}[$__rate_interval]))',
                LEGEND,
            ),
            type=PanelType.AREAS,
            unit="Bps",
        ),
        Panel(
            title="Bytes out",
            description="Bytes that consumers read, by broker, without replication.",
            queries=lines(
                f'sum by ({queries.BY_BROKER}) (rate({_TOPICS}_bytesout_total{{PODS, topic!=""}}[$__rate_interval]))',
                LEGEND,
            ),
            type=PanelType.AREAS,
            unit="Bps",
        ),
        Panel(
            title="Records in",
            description="Records that producers write, by broker.",
            queries=lines(
                f'sum by ({queries.BY_BROKER}) (rate({_TOPICS}_messagesin_total{{PODS, topic!=""}}[$__rate_interval]))',
                LEGEND,
            ),
            type=PanelType.AREAS,
            unit="wps",
        ),
        Panel(
            title="Requests",
            description="Requests by API.",
            queries=lines(
                "sum by (request) (rate(kafka_network_requestmetrics_requests_total{PODS}[$__rate_interval]))",
                "{{request}}",
            ),
            type=PanelType.AREAS,
            unit="reqps",
        ),
        Panel(
            title="Errors in responses",
            description="Errors in responses, by error code.",
            queries=lines(
                "sum by (error) (rate(kafka_network_requestmetrics_errors_total{PODS}[$__rate_interval]))",
                "{{error}}",
            ),
            unit="ops",
        ),
        Panel(
            title="Failed produce and fetch requests",
            description="Errors by partition in produce and fetch requests.",
            queries=(
                Query(
                    text=f'sum(rate({_TOPICS}_failedproducerequests_total{{PODS, topic!=""}}[$__rate_interval]))',
                    legend="produce",
                ),
                Query(
                    text=f'sum(rate({_TOPICS}_failedfetchrequests_total{{PODS, topic!=""}}[$__rate_interval]))',
                    legend="fetch",
                ),
            ),
            unit="ops",
        ),
    ),
)

_LATENCY: Final = Row(
    title="Latency",
    panels=(
        Panel(
            title="Produce, 99th percentile",
            description="Time from the arrival of a produce request to its response, including replication.",
            queries=lines(
                f'max by ({queries.BY_BROKER}) ({_TIMES}{{PODS, request="Produce", quantile="0.99"}})', LEGEND
            ),
            unit="ms",
        ),
        Panel(
            title="Fetch, 99th percentile",
            description="Time from the arrival of a fetch request to its response, including the wait for new records.",
            queries=lines(f'max by ({queries.BY_BROKER}) ({_TIMES}{{PODS, request="Fetch", quantile="0.99"}})', LEGEND),
            unit="ms",
        ),
        Panel(
            title="Slowest APIs, 99th percentile",
            description="The ten slowest APIs of all brokers.",
            queries=lines(f'topk(10, max by (request) ({_TIMES}{{PODS, quantile="0.99"}}))', "{{request}}"),
            unit="ms",
        ),
    ),
)

_REPLICATION: Final = Row(
    title="Replication",
    panels=(
        Panel(
            title="ISR shrinks and expansions",
            description="Repeated changes mean that a follower, a disk or a network is overloaded.",
            queries=(
                Query(
                    text="sum(rate(kafka_server_replicamanager_isrshrinks_total{PODS}[$__rate_interval]))",
                    legend="shrinks",
                ),
                Query(
                    text="sum(rate(kafka_server_replicamanager_isrexpands_total{PODS}[$__rate_interval]))",
                    legend="expansions",
                ),
            ),
            unit="ops",
            width=6,
        ),
        Panel(
            title="Largest follower lag",
            description="Maximum lag of a follower on each broker, in records.",
            queries=lines(f"max by ({queries.BY_BROKER}) (kafka_server_replicafetchermanager_maxlag{{PODS}})", LEGEND),
            width=6,
        ),
        Panel(
            title="Reassigning partitions",
            description="Partitions that are being reassigned, by leader.",
            queries=lines(
                f"sum by ({queries.BY_BROKER}) (kafka_server_replicamanager_reassigningpartitions{{PODS}})", LEGEND
            ),
            type=PanelType.AREAS,
            width=6,
        ),
        Panel(
            title="Throttled replication",
            description="Throttled replication traffic, which is that of reassignments.",
            queries=(
                Query(text="sum(kafka_server_leaderreplication_byte_rate{PODS})", legend="sent"),
                Query(text="sum(kafka_server_followerreplication_byte_rate{PODS})", legend="fetched"),
            ),
            unit="Bps",
            width=6,
        ),
        Panel(
            title="Leaders",
            description="Partitions that each broker leads. If this stays uneven, the preferred leaders do not lead.",
            queries=lines(f"sum by ({queries.BY_BROKER}) ({_LED}{{PODS}})", LEGEND),
            type=PanelType.AREAS,
            width=12,
        ),
        Panel(
            title="Replicas",
            description="Replicas on each broker, both leaders and followers.",
            queries=lines(f"sum by ({queries.BY_BROKER}) (kafka_server_replicamanager_partitioncount{{PODS}})", LEGEND),
            type=PanelType.AREAS,
            width=12,
        ),
    ),
)

_OF_TRANSACTIONS: Final = (
    "InitProducerId|AddPartitionsToTxn|AddOffsetsToTxn|TxnOffsetCommit|PrepareTxn|EndTxn|WriteTxnMarkers"
)
_MARKERS: Final = "kafka_coordinator_transaction_transactionmarkerchannelmanager"
_VERIFICATION: Final = "kafka_server_addpartitionstotxnmanager"

_TRANSACTIONS: Final = Row(
    title="Transactions",
    panels=(
        Panel(
            title="Partitions with a hanging transaction",
            description="Partitions, by leader, with a transaction that is open five minutes after "
            "transaction.max.timeout.ms, also if it is prepared. Consumers with isolation.level=read_committed get no "
            "newer records.",
            queries=lines(
                f"sum by ({queries.BY_BROKER}) "
                "(kafka_server_replicamanager_partitionswithlatetransactionscount{PODS})",
                LEGEND,
            ),
            type=PanelType.AREAS,
        ),
        Panel(
            title="Requests of transactions",
            description="Requests by API. InitProducerId is also sent by producers without transactions.",
            queries=lines(
                "sum by (request) (rate(kafka_network_requestmetrics_requests_total"
                f'{{PODS, request=~"{_OF_TRANSACTIONS}"}}[$__rate_interval]))',
                "{{request}}",
            ),
            type=PanelType.AREAS,
            unit="reqps",
        ),
        Panel(
            title="End of a transaction, 99th percentile",
            description="Time from the arrival of EndTxn to its response, when the decision is replicated. The markers "
            "follow.",
            queries=lines(
                f'max by ({queries.BY_BROKER}) ({_TIMES}{{PODS, request="EndTxn", quantile="0.99"}})', LEGEND
            ),
            unit="ms",
        ),
        Panel(
            title="Transactions that cannot be completed",
            description="Markers that wait for the leader of a partition, and transactions whose last record cannot be "
            "appended to __transaction_state.",
            queries=(
                Query(text=f"sum({_MARKERS}_unknowndestinationqueuesize{{PODS}})", legend="no leader"),
                Query(text=f"sum({_MARKERS}_logappendretryqueuesize{{PODS}})", legend="no append"),
            ),
            type=PanelType.AREAS,
            width=6,
        ),
        Panel(
            title="Prepared transactions",
            description="Transactions that wait, without a timeout, until their owner commits or aborts them.",
            queries=lines(f"sum by ({queries.BY_BROKER}) (odradek_transaction_coordinator_prepared{{PODS}})", LEGEND),
            type=PanelType.AREAS,
            width=6,
        ),
        Panel(
            title="Age of the oldest prepared transaction",
            description="Time since the start of the transaction that has been prepared and waits for its end.",
            queries=lines(
                f"max by ({queries.BY_BROKER}) (odradek_transaction_coordinator_oldest_prepared_ms{{PODS}})", LEGEND
            ),
            unit="ms",
            width=6,
        ),
        Panel(
            title="Failed verifications",
            description="Partitions that a transaction did not include, or whose coordinator did not answer. The "
            "records are rejected.",
            queries=lines(
                f"sum by ({queries.BY_BROKER}) "
                f"(rate({_VERIFICATION}_verificationfailurerate_total{{PODS}}[$__rate_interval]))",
                LEGEND,
            ),
            unit="ops",
            width=6,
        ),
        Panel(
            title="Verification, 99th percentile",
            description="Time in which the coordinator confirms to a leader that a transaction is open, before the "
            "first records of the transaction are appended to a partition.",
            queries=lines(
                f'max by ({queries.BY_BROKER}) ({_VERIFICATION}_verificationtimems{{PODS, quantile="0.99"}})',
                LEGEND,
            ),
            unit="ms",
            width=6,
        ),
        Panel(
            title="Producer ids",
            description="Producer ids that the replicas of each broker know. They grow if clients do not reuse their "
            "producers.",
            queries=lines(
                f"sum by ({queries.BY_BROKER}) (kafka_server_replicamanager_produceridcount{{PODS}})", LEGEND
            ),
            type=PanelType.AREAS,
            width=6,
        ),
    ),
)

DASHBOARD: Final = Dashboard(
    name="cluster",
    title="Odradek: cluster",
    description="The brokers of one cluster: health, throughput, latency, replication, transactions and resources.",
    variables=(NAMESPACE, CLUSTER, _PODS, _CONTAINERS),
    rows=(_HEALTH, _TRAFFIC, _LATENCY, _REPLICATION, _TRANSACTIONS, machines.LOAD, machines.DISKS, machines.ZOOKEEPER),
)
