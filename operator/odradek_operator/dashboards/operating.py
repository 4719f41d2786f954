"""The dashboard of the operator: its resources, and the results and durations of reconciliations. Pure.

The label `namespace` is the namespace of the operator's pod. Prometheus renames the series' own label of that name to
`exported_namespace`.
"""

from __future__ import annotations

from typing import Final

from odradek_operator.dashboards.grafana import Dashboard, Panel, PanelType, Query, Row, Variable, lines

_RESOURCES: Final = "strimzi_resources"
_SCOPE: Final = 'namespace="$namespace"'

_NAMESPACE: Final = Variable(name="namespace", label="Operator's namespace", series=_RESOURCES, value="namespace")


def _per_hour(ending: str) -> str:
    return f"sum by (kind) (increase(strimzi_reconciliations_{ending}{{{_SCOPE}}}[1h]))"


def _reconciliations(title: str, description: str, ending: str) -> Panel:
    return Panel(title=title, description=description, queries=lines(_per_hour(ending), "{{kind}}"), width=6)


_RESOURCES_ROW: Final = Row(
    title="Resources",
    panels=(
        Panel(
            title="Clusters",
            description="Number of Cluster resources.",
            queries=lines(f'sum({_RESOURCES}{{{_SCOPE}, kind="Kafka"}})'),
            type=PanelType.NUMBER,
            width=4,
            height=4,
        ),
        Panel(
            title="Topics",
            description="Number of Topic resources.",
            queries=lines(f'sum({_RESOURCES}{{{_SCOPE}, kind="KafkaTopic"}})'),
            type=PanelType.NUMBER,
            width=4,
            height=4,
        ),
        Panel(
            title="Paused",
            description="Resources with the annotation odradek.dev/paused, which are not reconciled.",
            queries=lines(f"sum(strimzi_resources_paused{{{_SCOPE}}})"),
            type=PanelType.NUMBER,
            width=4,
            height=4,
        ),
        Panel(
            title="Operators",
            description="Operator pods that Prometheus can scrape. One of them is active.",
            queries=lines(f'sum(up{{{_SCOPE}, strimzi_io_kind="cluster-operator"}})'),
            type=PanelType.NUMBER,
            width=4,
            height=4,
            bad=0,
            good=1,
        ),
        Panel(
            title="Failed in the last hour",
            description="Failed reconciliations. Each one is retried, and an Event contains the reason.",
            queries=lines(f"sum(increase(strimzi_reconciliations_failed_total{{{_SCOPE}}}[1h]))"),
            type=PanelType.NUMBER,
            width=8,
            height=4,
            bad=1,
        ),
    ),
)

_RECONCILIATIONS: Final = Row(
    title="Reconciliations per hour",
    panels=(
        _reconciliations("Started", "All reconciliations.", "total"),
        _reconciliations("Periodic", "Reconciliations that a timer started, not a change.", "periodical_total"),
        _reconciliations("Successful", "Reconciliations without an error.", "successful_total"),
        _reconciliations(
            "Locked", "Attempts while another reconciliation of the resource was in progress.", "locked_total"
        ),
    ),
)

_DURATION: Final = Row(
    title="Duration",
    panels=(
        Panel(
            title="Longest reconciliation",
            description="Maximum duration in the last minutes. Rolling restarts and drains consist of many short "
            "reconciliations.",
            queries=lines(f"max by (kind) (strimzi_reconciliations_duration_seconds_max{{{_SCOPE}}})", "{{kind}}"),
            unit="s",
        ),
        Panel(
            title="95th percentile",
            description="95 % of the reconciliations take at most this long.",
            queries=lines(
                "histogram_quantile(0.95, sum by (kind, le) (rate(strimzi_reconciliations_duration_seconds_bucket"
                f"{{{_SCOPE}}}[$__rate_interval])))",
                "{{kind}}",
            ),
            unit="s",
        ),
        Panel(
            title="Mean reconciliation",
            description="Average duration of reconciliations.",
            queries=lines(
                f"sum by (kind) (rate(strimzi_reconciliations_duration_seconds_sum{{{_SCOPE}}}[$__rate_interval])) / "
                f"sum by (kind) (rate(strimzi_reconciliations_duration_seconds_count{{{_SCOPE}}}[$__rate_interval]))",
                "{{kind}}",
            ),
            unit="s",
        ),
    ),
)

_PROCESS: Final = Row(
    title="Operator process",
    panels=(
        Panel(
            title="Memory",
            description="Resident memory, which grows with the number of resources.",
            queries=lines(
                f'sum by (pod) (jvm_memory_used_bytes{{{_SCOPE}, container="strimzi-cluster-operator"}})', "{{pod}}"
            ),
            unit="bytes",
        ),
        Panel(
            title="CPU",
            description="CPU usage in cores.",
            queries=lines(
                "sum by (pod) (rate(container_cpu_usage_seconds_total"
                f'{{{_SCOPE}, container="strimzi-cluster-operator"}}[$__rate_interval]))',
                "{{pod}}",
            ),
        ),
        Panel(
            title="Garbage collection",
            description="Share of time spent in Python's garbage collector, and its runs per second.",
            queries=(
                Query(text=f"sum(rate(jvm_gc_pause_seconds_sum{{{_SCOPE}}}[$__rate_interval]))", legend="share"),
                Query(
                    text=f"sum(rate(jvm_gc_pause_seconds_count{{{_SCOPE}}}[$__rate_interval]))",
                    legend="runs per second",
                ),
            ),
        ),
    ),
)

DASHBOARD: Final = Dashboard(
    name="operator",
    title="Odradek: operator",
    description="The operator: its resources, and the results and durations of reconciliations.",
    variables=(_NAMESPACE,),
    rows=(_RESOURCES_ROW, _RECONCILIATIONS, _DURATION, _PROCESS),
)
