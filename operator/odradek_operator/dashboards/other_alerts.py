"""Alerts on ZooKeeper, consumer groups and the operator; see `broker_alerts`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from odradek_operator.dashboards import queries
from odradek_operator.dashboards.alerts import BROKER, POD, WHICH, Alert, AlertGroup, Severity
from odradek_operator.dashboards.queries import CLUSTER

_LAG_OF: Final = f"{WHICH}: group {{{{ $labels.consumergroup }}}} on {{{{ $labels.topic }}}}"
_ENSEMBLE: Final = f"max by ({CLUSTER}) (max_over_time(zookeeper_quorumsize{{SCOPE}}[1h]))"
_TOPIC_END: Final = 'kafka_topic_partition_current_offset{SCOPE, topic!~"__.+"}'

_ZOOKEEPER: Final = AlertGroup(
    name="odradek.zookeeper",
    alerts=(
        Alert(
            name="ZooKeeperQuorumAtRisk",
            severity=Severity.CRITICAL,
            # If no member answers, there is no series to count. The second operand of `or` then yields 0.
            query=f"(count by ({CLUSTER}) (zookeeper_avgrequestlatency{{SCOPE}}) or 0 * {_ENSEMBLE}) < "
            f"floor({_ENSEMBLE} / 2) + 1",
            duration="1m",
            summary=f"{WHICH}: only {{{{ $value }}}} members of the ensemble answer",
            description="There is no quorum. Brokers continue, but no leaders are elected and metadata cannot change.",
        ),
        Alert(
            name="ZooKeeperDown",
            severity=Severity.WARNING,
            query='up{SCOPE, strimzi_io_kind="Kafka", container="zookeeper"} == 0',
            duration="3m",
            summary=f"{POD} does not answer",
            description="The pod exists, but its metrics endpoint does not respond. The ensemble serves while it has "
            "a quorum.",
        ),
        Alert(
            name="AvgRequestLatency",
            severity=Severity.WARNING,
            query=f"{queries.ZOOKEEPER_LATENCY} > 10",
            duration="5m",
            summary=f"{POD}: ZooKeeper takes {{{{ $value | humanize }}}} ms for a request",
            description="Elections and ISR changes depend on it.",
        ),
        Alert(
            name="OutstandingRequests",
            severity=Severity.WARNING,
            query=f"{queries.ZOOKEEPER_OUTSTANDING} > 10",
            duration="5m",
            summary=f"{POD}: {{{{ $value }}}} requests are queued in ZooKeeper",
            description="The member cannot process requests as fast as they arrive.",
        ),
        Alert(
            name="ZooKeeperSessionsExpire",
            severity=Severity.WARNING,
            query=f"sum by ({CLUSTER}, {queries.BY_BROKER}) "
            "(increase(kafka_server_sessionexpirelistener_zookeeperexpires_total{SCOPE}[30m])) > 0",
            duration="0m",
            summary=f"{BROKER} lost its ZooKeeper session",
            description="Other brokers became leaders of its partitions, although it was running.",
        ),
    ),
)

_GROUPS: Final = AlertGroup(
    name="odradek.groups",
    alerts=(
        Alert(
            name="TooLargeConsumerGroupLag",
            severity=Severity.WARNING,
            query=f"({queries.GROUP_LAG} > 1000) and deriv(({queries.GROUP_LAG})[15m:1m]) >= 0",
            duration="15m",
            summary=f"{_LAG_OF} is {{{{ $value }}}} records behind",
            description="The lag has not decreased for 15 minutes.",
        ),
        Alert(
            name="ConsumerGroupFarBehind",
            severity=Severity.WARNING,
            query=f"{queries.GROUP_LAG_SECONDS} > 1800",
            duration="15m",
            summary=f"{_LAG_OF} is {{{{ $value | humanizeDuration }}}} behind",
            description="This is the estimated age of its oldest uncommitted record.",
        ),
        Alert(
            name="ConsumerGroupStalled",
            severity=Severity.WARNING,
            query=f"({queries.GROUP_LAG} > 0) and sum by ({CLUSTER}, consumergroup, topic) "
            "(delta(kafka_consumergroup_current_offset{SCOPE}[15m])) == 0",
            duration="15m",
            summary=f"{_LAG_OF} commits nothing and has a lag of {{{{ $value }}}} records",
            description="It has no members, or they hang.",
        ),
        Alert(
            name="NoMessageForTooLong",
            severity=Severity.INFO,
            query=f"sum by ({CLUSTER}, topic) (increase({_TOPIC_END}[10m])) == 0 and "
            f"sum by ({CLUSTER}, topic) (increase({_TOPIC_END}[1h] offset 10m)) > 0",
            duration="5m",
            summary=f"{WHICH}: no records are written to {{{{ $labels.topic }}}}",
            description="The topic got no records for ten minutes, but it did in the hour before.",
        ),
        Alert(
            name="ExporterDown",
            severity=Severity.WARNING,
            query='up{SCOPE, strimzi_io_kind="Kafka", container="exporter"} == 0',
            duration="5m",
            summary=f"{POD} does not answer",
            description="Consumer lag, and sizes in the status of topics, are not available.",
        ),
    ),
)

_OPERATOR: Final = AlertGroup(
    name="odradek.operator",
    of_clusters=False,
    alerts=(
        Alert(
            name="OperatorDown",
            severity=Severity.WARNING,
            query='absent(up{strimzi_io_kind="cluster-operator"} == 1)',
            duration="10m",
            summary="No Odradek operator is running",
            description="Clusters continue to run, but nothing is reconciled.",
        ),
        Alert(
            name="ReconciliationsFailing",
            severity=Severity.WARNING,
            query="sum by (kind) (increase(strimzi_reconciliations_failed_total[15m])) > 3",
            duration="15m",
            summary="Reconciliations of {{ $labels.kind }} resources fail",
            description="{{ $value | humanize }} failures within 15 minutes.",
        ),
        Alert(
            name="ReconciliationsStopped",
            severity=Severity.WARNING,
            query="sum(increase(strimzi_reconciliations_total[15m])) == 0 and sum(strimzi_resources) > 0",
            duration="5m",
            summary="The operator does not reconcile",
            description="It should reconcile every resource periodically, even without changes.",
        ),
        Alert(
            name="ReconciliationSlow",
            severity=Severity.INFO,
            query="max by (kind) (strimzi_reconciliations_duration_seconds_max) > 120",
            duration="15m",
            summary="The reconciliation of a {{ $labels.kind }} takes {{ $value | humanizeDuration }}",
            description="ZooKeeper, the API server or the operator itself is slow.",
        ),
        Alert(
            name="ResourcesPaused",
            severity=Severity.INFO,
            query="sum by (kind) (strimzi_resources_paused) > 0",
            duration="24h",
            summary="{{ $value }} {{ $labels.kind }} resources have been paused for a day",
            description="They are not reconciled, not even after a failure.",
        ),
    ),
)

_PIPELINE: Final = "{{ $labels.pipeline_namespace }}: pipeline {{ $labels.pipeline }}"

_PIPELINES: Final = AlertGroup(
    name="odradek.pipelines",
    of_clusters=False,
    alerts=(
        Alert(
            name="PipelineNotReady",
            severity=Severity.WARNING,
            query="max by (pipeline_namespace, pipeline) (odradek_pipeline_ready) == 0",
            duration="15m",
            summary=f"{_PIPELINE} is not ready",
            description="Its status has the reason: kubectl describe pipeline.",
        ),
        Alert(
            name="PipelineLagGrows",
            severity=Severity.WARNING,
            query=f"({queries.PIPELINE_LAG} > 1000) and deriv(({queries.PIPELINE_LAG})[15m:1m]) >= 0",
            duration="15m",
            summary=f"{_PIPELINE} is {{{{ $value }}}} records behind",
            description="The lag has not decreased for 15 minutes.",
        ),
    ),
)

GROUPS: Final[Sequence[AlertGroup]] = (_ZOOKEEPER, _GROUPS, _OPERATOR, _PIPELINES)
