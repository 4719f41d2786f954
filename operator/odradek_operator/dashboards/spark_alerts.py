"""Alerts on streaming queries in Spark; see `broker_alerts`. Pure."""

from __future__ import annotations

from typing import Final

from odradek_operator.dashboards import queries
from odradek_operator.dashboards.alerts import Alert, AlertGroup, Severity

_WHICH: Final = "{{ $labels.namespace }}: query {{ $labels.query }}"

GROUP: Final = AlertGroup(
    name="odradek.spark",
    of_clusters=False,
    alerts=(
        Alert(
            name="SparkQueryLagGrows",
            severity=Severity.WARNING,
            query=f"({queries.SPARK_LAG} > 1000) and deriv(({queries.SPARK_LAG})[15m:1m]) >= 0",
            duration="15m",
            summary=f"{_WHICH} is {{{{ $value }}}} offsets behind",
            description="The lag has not decreased for 15 minutes.",
        ),
        Alert(
            name="SparkQueryStalled",
            severity=Severity.WARNING,
            query=f"max by ({queries.SPARK_QUERY}) ({queries.SPARK_SILENCE.replace('{RUNNING}', '')}) > 900",
            duration="5m",
            summary=f"{_WHICH} has made no progress for {{{{ $value | humanizeDuration }}}}",
            description="Its micro-batch takes longer than usual, or it hangs.",
        ),
        Alert(
            name="SparkQueryFails",
            severity=Severity.WARNING,
            query=f"sum by ({queries.SPARK_QUERY}) (increase(odradek_spark_query_failures_total[30m])) > 0",
            duration="0m",
            summary=f"{_WHICH} ended with an exception",
            description="It processes nothing until it is started again.",
        ),
    ),
)
