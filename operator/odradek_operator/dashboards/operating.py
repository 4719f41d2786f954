"""The dashboard of the operator: what it looks after, whether it succeeds, how long it takes. Pure.

Its own label `namespace` collides with the target's, so Prometheus shows the resource's as `exported_namespace`.
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
    title="What it looks after",
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
            description="Resources that the operator leaves alone, by the annotation odradek.dev/paused.",
            queries=lines(f"sum(strimzi_resources_paused{{{_ITS}}})"),
            look=Look.NUMBER,
            width=4,
            height=4,
        ),
        Panel(
            title="Operators",
            description="Operators that Prometheus reaches; one of them works.",
            queries=lines(f'sum(up{{{_ITS}, strimzi_io_kind="cluster-operator"}})'),
            look=Look.NUMBER,
            width=4,
            height=4,
            bad=0,
            good=1,
        ),
        Panel(
            title="Failed in the last hour",
            description="Reconciliations that ended in an error. Each is tried again; an Event says why.",
            queries=lines(f"sum(increase(strimzi_reconciliations_failed_total{{{_ITS}}}[1h]))"),
            look=Look.NUMBER,
            width=8,
            height=4,
            bad=1,
        ),
    ),
)

_WORK: Final = Row(
    title="Reconciliations in an hour",
    panels=(
        _reconciliations("Started", "Looks at a resource, whatever the cause.", "total"),
        _reconciliations(
            "By the timer", "Looks that no change caused. They go on even when nothing else does.", "periodical_total"
        ),
        _reconciliations(
            "Successful", "Looks after which the resource was, or became, as it is wanted.", "successful_total"
        ),
        _reconciliations("Given up: busy", "Attempts while another was still at the same resource.", "locked_total"),
    ),
)

_PACE: Final = Row(
    title="How long it takes",
    panels=(
        Panel(
            title="Longest reconciliation",
            description="The longest in the last minutes. Rolls and drains are many short ones, none long.",
            queries=lines(f"max by (kind) (strimzi_reconciliations_duration_seconds_max{{{_ITS}}})", "{{kind}}"),
            unit="s",
        ),
        Panel(
            title="95 of 100 reconciliations",
            description="Most reconciliations take no longer.",
            queries=lines(
                "histogram_quantile(0.95, sum by (kind, le) (rate(strimzi_reconciliations_duration_seconds_bucket"
                f"{{{_ITS}}}[$__rate_interval])))",
                "{{kind}}",
            ),
            unit="s",
        ),
        Panel(
            title="Mean reconciliation",
            description="Time spent by the number of reconciliations.",
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
            description="Resident memory. It grows with the number of resources.",
            queries=lines(
                f'sum by (pod) (jvm_memory_used_bytes{{{_ITS}, container="strimzi-cluster-operator"}})', "{{pod}}"
            ),
            unit="bytes",
        ),
        Panel(
            title="CPU",
            description="Processors in use.",
            queries=lines(
                "sum by (pod) (rate(container_cpu_usage_seconds_total"
                f'{{{_ITS}, container="strimzi-cluster-operator"}}[$__rate_interval]))',
                "{{pod}}",
            ),
        ),
        Panel(
            title="Garbage collection",
            description="Share of time that Python's collector takes, and how often it runs.",
            queries=(
                Query(text=f"sum(rate(jvm_gc_pause_seconds_sum{{{_ITS}}}[$__rate_interval]))", legend="share"),
                Query(
                    text=f"sum(rate(jvm_gc_pause_seconds_count{{{_ITS}}}[$__rate_interval]))", legend="runs a second"
                ),
            ),
        ),
    ),
)

DASHBOARD: Final = Dashboard(
    name="operator",
    title="Odradek: operator",
    description="The operator: what it looks after, whether it succeeds, how long it takes.",
    variables=(_NAMESPACE,),
    rows=(_RESOURCES_ROW, _WORK, _PACE, _PROCESS),
)
