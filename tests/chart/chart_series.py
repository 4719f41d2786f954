"""Every series that a query may name: what the broker and the exporter declare in code, and what others serve.

The tables are those of the facts that existing dashboards were read for; ZooKeeper's come from its answer to `mntr`,
the operator's from its own metrics, the rest from the kubelet, from cAdvisor, kube-state-metrics and Prometheus itself.
"""

from __future__ import annotations

from typing import Final

from odradek.metrics.series import SERIES as BROKER_SERIES
from odradek.metrics.series import Kind
from odradek_operator.exporter.series import SERIES as EXPORTER_SERIES

PROCESS: Final = frozenset(
    """
    process_open_fds process_max_fds jvm_memory_used_bytes jvm_threads_current
    jvm_gc_collection_seconds_sum jvm_gc_collection_seconds_count
    """.split()
)
ZOOKEEPER: Final = frozenset(
    """
    zookeeper_quorumsize zookeeper_numaliveconnections zookeeper_outstandingrequests zookeeper_avgrequestlatency
    zookeeper_minrequestlatency zookeeper_maxrequestlatency zookeeper_inmemorydatatree_nodecount
    zookeeper_inmemorydatatree_watchcount
    """.split()
)
OPERATOR: Final = frozenset(
    """
    strimzi_resources strimzi_resources_paused strimzi_reconciliations_total strimzi_reconciliations_periodical_total
    strimzi_reconciliations_successful_total strimzi_reconciliations_failed_total strimzi_reconciliations_locked_total
    strimzi_reconciliations_duration_seconds_max strimzi_reconciliations_duration_seconds_bucket
    strimzi_reconciliations_duration_seconds_sum strimzi_reconciliations_duration_seconds_count
    jvm_gc_pause_seconds_sum jvm_gc_pause_seconds_count
    """.split()
)
KUBERNETES: Final = frozenset(
    """
    up kubelet_volume_stats_available_bytes kubelet_volume_stats_capacity_bytes container_cpu_usage_seconds_total
    kube_statefulset_replicas kube_statefulset_status_replicas_ready kube_pod_container_status_restarts_total
    """.split()
)


def _broker() -> frozenset[str]:
    names = set(BROKER_SERIES)
    for name, series in BROKER_SERIES.items():
        if series.kind is Kind.SUMMARY:
            names |= {f"{name}_count", f"{name}_sum"}
    return frozenset(names)


KNOWN: Final = _broker() | {series.name for series in EXPORTER_SERIES} | PROCESS | ZOOKEEPER | OPERATOR | KUBERNETES

LABELS: Final = frozenset(
    """
    namespace pod container kubernetes_pod_name strimzi_io_cluster strimzi_io_kind strimzi_io_name
    topic partition request error quantile listener delayedOperation directory consumergroup kind le
    persistentvolumeclaim statefulset
    """.split()
)
"""Labels of these series that queries may go by: the processes' own, the PodMonitors', the kubelet's."""
