"""Every series that a query may name: those that our processes declare, and those of Kubernetes and Prometheus.

This file lists the series of the kubelet and cAdvisor and Prometheus' own `up`, because our code does not declare them.
"""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry

from odradek.metrics.series import SERIES as BROKER_SERIES
from odradek.metrics.series import SeriesType
from odradek_operator.ensemble.mntr import SERIES as ZOOKEEPER_SERIES
from odradek_operator.exporter.series import SERIES as EXPORTER_SERIES
from odradek_operator.kube.operator_metrics import Reconciliations
from odradek_operator.kube.resource_metrics import MirrorMetrics, PipelineMetrics
from odradek_operator.objects.names import Component
from odradek_operator.pipelines.job_report import JobReport
from pyspark_odradek.observation.query_metrics import QueryCollector, QueryTable
from pyspark_odradek.observation.query_states import QueryState, apply_progress

PROCESS: Final = frozenset(
    """
    process_open_fds process_max_fds process_start_time_seconds jvm_memory_used_bytes jvm_threads_current
    jvm_gc_collection_seconds_sum jvm_gc_collection_seconds_count
    jvm_gc_pause_seconds_sum jvm_gc_pause_seconds_count
    """.split()
)
KUBERNETES: Final = frozenset(
    """
    up kubelet_volume_stats_available_bytes kubelet_volume_stats_capacity_bytes container_cpu_usage_seconds_total
    """.split()
)


def _broker() -> frozenset[str]:
    names = set(BROKER_SERIES)
    for name, series in BROKER_SERIES.items():
        if series.kind is SeriesType.SUMMARY:
            names |= {f"{name}_count", f"{name}_sum"}
    return frozenset(names)


def _operator() -> frozenset[str]:
    registry = CollectorRegistry()
    Reconciliations(registry, ()).pods("namespace", "cluster", Component.KAFKA, wanted=1, ready=1)
    return frozenset(sample.name for family in registry.collect() for sample in family.samples)


def _of_kubernetes_only() -> frozenset[str]:
    registry = CollectorRegistry()
    PipelineMetrics(registry).show(
        "namespace", "pipeline", JobReport(lag=1, rate=1, input_rate=1, batch=1), is_ready=True
    )
    MirrorMetrics(registry).show_ready("namespace", "mirror", is_ready=True)
    return frozenset(sample.name for family in registry.collect() for sample in family.samples)


def _spark() -> frozenset[str]:
    """The series of a query with one progress."""
    table = QueryTable()
    state = table.states["query"] = QueryState(query_id="id", name="query")
    source = {"endOffset": {"t": {"0": 1}}, "latestOffset": {"t": {"0": 2}}}
    rates = {"inputRowsPerSecond": 1.0, "processedRowsPerSecond": 1.0, "durationMs": {"addBatch": 1}}
    apply_progress(state, {"batchId": 0, "sources": [source], **rates}, 0.0)
    return frozenset(sample.name for family in QueryCollector(table).collect() for sample in family.samples)


SPARK: Final = _spark()
"""The series of the query listener of the Spark connector."""

OPERATED: Final = _of_kubernetes_only()
"""The series of the operator about Pipelines and Mirrors, which embedded clusters do not run."""

MIRROR: Final = frozenset(
    """
    odradek_mirror_lag_records odradek_mirror_lag_seconds odradek_mirror_partition_failed odradek_mirror_records_total
    odradek_mirror_bytes_total odradek_mirror_transactions_total odradek_mirror_source_connected
    """.split()
)
"""The series of a process of a mirror."""

KNOWN: Final = (
    _broker()
    | _operator()
    | SPARK
    | MIRROR
    | OPERATED
    | {series.name for series in EXPORTER_SERIES}
    | {series.name for series in ZOOKEEPER_SERIES}
    | PROCESS
    | KUBERNETES
)

LABELS: Final = frozenset(
    """
    namespace pod container kubernetes_pod_name strimzi_io_cluster strimzi_io_kind strimzi_io_name
    topic partition request error quantile listener delayedOperation directory consumergroup kind le
    persistentvolumeclaim cluster_namespace component query phase mirror source end pipeline_namespace pipeline
    mirror_namespace
    """.split()
)
"""The labels of these series that queries may use: those of the processes, the PodMonitors and the kubelet."""
