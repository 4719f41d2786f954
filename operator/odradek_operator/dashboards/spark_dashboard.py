"""The dashboard of streaming queries in Spark: their lag, rates and durations. Pure.

The series come from the query listener of `pyspark_odradek` in the driver of each application. They have the namespace
of the driver and no cluster: a query may read several.
"""

from __future__ import annotations

from typing import Final

from odradek_operator.dashboards import queries
from odradek_operator.dashboards.grafana import Dashboard, Panel, PanelType, Row, Variable, lines

_RUNNING: Final = "odradek_spark_query_running"
_IN: Final = 'namespace="$namespace", query=~"$query"'
_BY: Final = f"by ({queries.SPARK_QUERY})"
_QUERY: Final = "{{query}}"

_VARIABLES: Final = (
    Variable(name="namespace", label="Namespace", series=_RUNNING, value="namespace"),
    Variable(name="query", label="Query", series=f'{_RUNNING}{{namespace="$namespace"}}', value="query", several=True),
)

_STATE: Final = Row(
    title="State",
    panels=(
        Panel(
            title="Running queries",
            description="Streaming queries that run.",
            queries=lines(f"sum({_RUNNING}{{{_IN}}})"),
            type=PanelType.NUMBER,
            width=6,
            height=4,
        ),
        Panel(
            title="Ended queries",
            description="Streaming queries that have ended or failed in an application that still runs.",
            queries=lines(f"sum({_RUNNING}{{{_IN}}} == bool 0)"),
            type=PanelType.NUMBER,
            width=6,
            height=4,
            bad=1,
        ),
        Panel(
            title="Failures",
            description="Runs of queries that ended with an exception, in the selected time.",
            queries=lines(f"sum(increase(odradek_spark_query_failures_total{{{_IN}}}[$__range]))"),
            type=PanelType.NUMBER,
            width=6,
            height=4,
            bad=1,
        ),
        Panel(
            title="Time since the last progress",
            description="Time since the last micro-batch or idle event, the maximum over queries. An idle query "
            "reports every ten seconds.",
            queries=lines(f"max({queries.SPARK_SILENCE.replace('RUNNING', _IN)})"),
            type=PanelType.NUMBER,
            unit="s",
            width=6,
            height=4,
        ),
    ),
)

_LAG: Final = Row(
    title="Lag",
    panels=(
        Panel(
            title="Unread offsets",
            description="Offsets that a query has not read yet, over all partitions. Compacted and transactional "
            "topics have fewer records than offsets.",
            queries=lines(f"sum {_BY} (odradek_spark_query_total_offsets_behind_latest{{{_IN}}})", _QUERY),
        ),
        Panel(
            title="Unread offsets of a partition",
            description="Maximum and average over the partitions. If they differ widely, one partition has most of the "
            "records.",
            queries=lines(f"max {_BY} (odradek_spark_query_max_offsets_behind_latest{{{_IN}}})", f"{_QUERY} maximum")
            + lines(f"avg {_BY} (odradek_spark_query_avg_offsets_behind_latest{{{_IN}}})", f"{_QUERY} average"),
        ),
        Panel(
            title="Last micro-batch",
            description="Id of the last micro-batch of each query.",
            queries=lines(f"max {_BY} (odradek_spark_query_batch_id{{{_IN}}})", _QUERY),
        ),
    ),
)

_RATES: Final = Row(
    title="Rates",
    panels=(
        Panel(
            title="Input and processed rows",
            description="Rows that arrive and that the query can process per second, of the last micro-batch. If more "
            "arrive than it processes, the lag grows.",
            queries=lines(f"sum {_BY} (odradek_spark_query_input_rows_per_second{{{_IN}}})", f"{_QUERY} input")
            + lines(f"sum {_BY} (odradek_spark_query_processed_rows_per_second{{{_IN}}})", f"{_QUERY} processed"),
            unit="rps",
        ),
        Panel(
            title="Rows read",
            description="Rows that the queries have read per second, averaged over the interval.",
            queries=lines(f"sum {_BY} (rate(odradek_spark_query_input_rows_total{{{_IN}}}[$__rate_interval]))", _QUERY),
            unit="rps",
        ),
        Panel(
            title="Duration of a micro-batch",
            description="Duration of each phase of the last micro-batch. `addBatch` reads, computes and writes; the "
            "others are overhead.",
            queries=lines(
                f"max by ({queries.SPARK_QUERY}, phase) (odradek_spark_query_duration_ms{{{_IN}}})",
                f"{_QUERY} {{{{phase}}}}",
            ),
            unit="ms",
        ),
    ),
)

DASHBOARD: Final = Dashboard(
    name="spark",
    title="Odradek: Spark queries",
    description="Streaming queries in Spark: their lag, rates and durations.",
    variables=_VARIABLES,
    rows=(_STATE, _LAG, _RATES),
)
