"""Placeholders in queries, and queries that dashboards and alerts share. Pure.

A placeholder in braces stands for label matchers:

    SCOPE      the series of a cluster
    PODS       the series of the cluster's selected brokers
    CLAIMS     the series of its volume claims, which come from the kubelet and have no label of the cluster
    OPERATED   the operator's series about it, which are in the operator's namespace

A `Scope` has their values. For a dashboard, these are the dashboard's variables. For alerts, they select one cluster or
all clusters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

CLUSTER: Final = "namespace, strimzi_io_cluster"
"""The labels that identify a cluster, for aggregations with `by`."""
BY_BROKER: Final = "kubernetes_pod_name, container"
"""The labels that identify a broker of a cluster, for aggregations with `by`. A pod may run several brokers."""
OF_BROKERS: Final = 'container=~"kafka(-[0-9]+)?"'
"""The matcher for the containers of brokers, as `objects/slots` names them."""

_PLACEHOLDER: Final = re.compile(r"\b(SCOPE|PODS|CLAIMS|OPERATED)\b(, )?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The label matchers for each placeholder. An empty string matches all series."""

    cluster: str = ""
    pods: str = ""
    claims: str = ""
    operated: str = ""

    def fill(self, query: str) -> str:
        """Return the query with its placeholders replaced. Empty braces are removed."""
        words = {
            "SCOPE": self.cluster,
            "PODS": self.pods,
            "CLAIMS": self.claims,
            "OPERATED": self.operated,
        }

        def word(found: re.Match[str]) -> str:
            text = words[found[1]]
            return text + (found[2] or "") if text else ""

        return _PLACEHOLDER.sub(word, query).replace("{}", "")


def _claims(cluster: str) -> str:
    """Return the matcher for the claims of clusters. `cluster`: a name or a regular expression."""
    return f'persistentvolumeclaim=~"data-([0-9]+-)?{cluster}-(kafka|zookeeper)-[0-9]+"'


def only(namespace: str, cluster: str) -> Scope:
    """Return the scope of one cluster."""
    return Scope(
        cluster=f'namespace="{namespace}", strimzi_io_cluster="{cluster}"',
        claims=f'namespace="{namespace}", {_claims(cluster)}',
        operated=f'cluster_namespace="{namespace}", strimzi_io_cluster="{cluster}"',
    )


EVERY: Final = Scope(claims=_claims(".+"))
"""All clusters."""

SELECTED: Final = replace(
    only("$namespace", "$cluster"),
    pods='namespace="$namespace", strimzi_io_cluster="$cluster", kubernetes_pod_name=~"$pod", container=~"$container"',
)
"""The cluster and brokers that users select in a dashboard."""

# Queries of both dashboards and alerts.
CONTROLLERS: Final = f"sum by ({CLUSTER}) (kafka_controller_kafkacontroller_activecontrollercount{{SCOPE}})"
OFFLINE_PARTITIONS: Final = f"sum by ({CLUSTER}) (kafka_controller_kafkacontroller_offlinepartitionscount{{SCOPE}})"
UNDER_REPLICATED: Final = f"sum by ({CLUSTER}) (kafka_server_replicamanager_underreplicatedpartitions{{SCOPE}})"
UNDER_MIN_ISR: Final = f"sum by ({CLUSTER}) (kafka_server_replicamanager_underminisrpartitioncount{{SCOPE}})"
OFFLINE_DIRECTORIES: Final = f"sum by ({CLUSTER}, {BY_BROKER}) (kafka_log_logmanager_offlinelogdirectorycount{{SCOPE}})"
LATE_TRANSACTIONS: Final = (
    f"sum by ({CLUSTER}, {BY_BROKER}) (kafka_server_replicamanager_partitionswithlatetransactionscount{{SCOPE}})"
)
LOOP_IDLE: Final = "kafka_network_socketserver_networkprocessoravgidle_percent{SCOPE}"
CLAIM_FREE: Final = "kubelet_volume_stats_available_bytes{CLAIMS} / kubelet_volume_stats_capacity_bytes{CLAIMS}"
BROKERS_CLAIM: Final = 'CLAIMS, persistentvolumeclaim=~".+-kafka-[0-9]+"'
ENSEMBLE_CLAIM: Final = 'CLAIMS, persistentvolumeclaim=~".+-zookeeper-[0-9]+"'
GROUP_LAG: Final = f"sum by ({CLUSTER}, consumergroup, topic) (kafka_consumergroup_lag{{SCOPE}} >= 0)"
GROUP_LAG_SECONDS: Final = f"max by ({CLUSTER}, consumergroup, topic) (odradek_consumergroup_lag_seconds{{SCOPE}})"
ZOOKEEPER_LATENCY: Final = "zookeeper_avgrequestlatency{SCOPE}"
ZOOKEEPER_OUTSTANDING: Final = "zookeeper_outstandingrequests{SCOPE}"
SPARK_QUERY: Final = "namespace, query"
"""The labels that identify a streaming query in Spark, for aggregations with `by`."""
SPARK_LAG: Final = f"sum by ({SPARK_QUERY}) (odradek_spark_query_total_offsets_behind_latest)"
SPARK_SILENCE: Final = "time() - odradek_spark_query_last_progress_timestamp_seconds{RUNNING}"
"""Time since the last event of a query. Queries that have ended have no such series."""
MIRROR_SOURCE: Final = "namespace, mirror, source"
"""The labels that identify a source of a mirror, for aggregations with `by`."""
MIRROR_LAG: Final = f"sum by ({MIRROR_SOURCE}) (odradek_mirror_lag_records)"
MIRROR_FAILED: Final = f"sum by ({MIRROR_SOURCE}) (odradek_mirror_partition_failed)"
PIPELINE_LAG: Final = "max by (pipeline_namespace, pipeline) (odradek_pipeline_lag_records)"
PREPARED_MS: Final = f"max by ({CLUSTER}) (odradek_transaction_coordinator_oldest_prepared_ms{{SCOPE}})"
"""Age of the oldest prepared transaction of each cluster."""
LATE_AFTER_MS: Final = 300_000
"""A leader counts no transaction as late that is younger: it adds this time to `transaction.max.timeout.ms`."""
