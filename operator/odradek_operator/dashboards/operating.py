"""The dashboard of the operator: its resources, and the results and durations of reconciliations. Pure.

The label `namespace` collides with that of the target, so Prometheus renames the resource's to `exported_namespace`.
"""

from __future__ import annotations

from typing import Final

from odradek_operator.dashboards.grafana import Dashboard, Look, Panel, Query, Row, Variable, lines

_RESOURCES: Final = "strimzi_resources"
_ITS: Final = 'namespace="$namespace"'

_NAMESPACE: Final = Variable(name="namespace", label="Operator's namespace", series=_RESOURCES, value="namespace")


def _per_hour(ending: str) -> str:
    return f"sum by (kind) (increase(strimzi_reconciliations_{ending}{{{_ITS}}}[1h]))"


def _reconciliations(title: str, description: str, ending: str) -> Panel:
    return Panel(title=title, description=description, queries=lines(_per_hour(ending), "{{kind}}"), width=6)


_RESOURCES_ROW: Final = Row(
    title="Resources",
    panels=(
        Panel(
            title="Clusters",
            description="Cluster resources.",
            queries=lines(f'sum({_RESOURCES}{{{_ITS}, kind="Kafka"}})'),
            look=Look.NUMBER,
            width=4,
            height=4,
        ),
        Panel(
            title="Topics",
            description="Topic resources.",
            queries=lines(f'sum({_RESOURCES}{{{_ITS}, kind="KafkaTopic"}})'),
            look=Look.NUMBER,
            width=4,
            height=4,
        ),
        Panel(
            title="Paused",
            description="Resources with the annotation odradek.dev/paused, which are not reconciled.",
            queries=lines(f"sum(strimzi_resources_paused{{{_ITS}}})"),
            look=Look.NUMBER,
            width=4,
            height=4,
        ),
        Panel(
            title="Operators",
            description="Operators that Prometheus can scrape; one of them is active.",
            queries=lines(f'sum(up{{{_ITS}, strimzi_io_kind="cluster-operator"}})'),
            look=Look.NUMBER,
            width=4,
            height=4,
            bad=0,
            good=1,
        ),
        Panel(
            title="Failed in the last hour",
            description="Failed reconciliations. Each is retried; an Event has the reason.",
            queries=lines(f"sum(increase(strimzi_reconciliations_failed_total{{{_ITS}}}[1h]))"),
            look=Look.NUMBER,
            width=8,
            height=4,
            bad=1,
        ),
    ),
)

_WORK: Final = Row(
    title="Reconciliations per hour",
    panels=(
        _reconciliations("Started", "All reconciliations.", "total"),
        _reconciliations("Periodic", "Reconciliations by the timer, without a change.", "periodical_total"),
        _reconciliations("Successful", "Reconciliations without an error.", "successful_total"),
        _reconciliations(
            "Locked", "Attempts while another reconciliation of the resource was in progress.", "locked_total"
        ),
    ),
)

_PACE: Final = Row(
    title="Duration",
    panels=(
        Panel(
            title="Longest reconciliation",
            description="The longest in the last minutes. Rolling restarts and drains consist of many short ones.",
            queries=lines(f"max by (kind) (strimzi_reconciliations_duration_seconds_max{{{_ITS}}})", "{{kind}}"),
            unit="s",
        ),
        Panel(
            title="95th percentile",
            description="Duration of 95 % of the reconciliations.",
            queries=lines(
                "histogram_quantile(0.95, sum by (kind, le) (rate(strimzi_reconciliations_duration_seconds_bucket"
                f"{{{_ITS}}}[$__rate_interval])))",
                "{{kind}}",
            ),
            unit="s",
        ),
        Panel(
            title="Mean reconciliation",
            description="Average duration.",
            queries=lines(
                f"sum by (kind) (rate(strimzi_reconciliations_duration_seconds_sum{{{_ITS}}}[$__rate_interval])) / "
                f"sum by (kind) (rate(strimzi_reconciliations_duration_seconds_count{{{_ITS}}}[$__rate_interval]))",
                "{{kind}}",
            ),
            unit="s",
        ),
    ),
)

_PROCESS: Final = Row(
    title="Its process",
    panels=(
        Panel(
            title="Memory",
            description="Resident memory, which grows with the number of resources.",
            queries=lines(
                f'sum by (pod) (jvm_memory_used_bytes{{{_ITS}, container="strimzi-cluster-operator"}})', "{{pod}}"
            ),
            unit="bytes",
        ),
        Panel(
            title="CPU",
            description="CPU usage in cores.",
            queries=lines(
                "sum by (pod) (rate(container_cpu_usage_seconds_total"
                f'{{{_ITS}, container="strimzi-cluster-operator"}}[$__rate_interval]))',
                "{{pod}}",
            ),
        ),
        Panel(
            title="Garbage collection",
            description="Share of time and number of runs of Python's garbage collector.",
            queries=(
                Query(text=f"sum(rate(jvm_gc_pause_seconds_sum{{{_ITS}}}[$__rate_interval]))", legend="share"),
                Query(
                    text=f"sum(rate(jvm_gc_pause_seconds_count{{{_ITS}}}[$__rate_interval]))", legend="runs per second"
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
    rows=(_RESOURCES_ROW, _WORK, _PACE, _PROCESS),
)
