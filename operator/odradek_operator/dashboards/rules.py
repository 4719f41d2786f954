"""Converts alerts into rules for Prometheus. Pure.

`files` calls it with the scope of all clusters, for `rules/odradek.yaml` in the chart. With another scope, it returns
the alerts for one cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from odradek_operator.dashboards import broker_alerts, mirror_alerts, other_alerts, spark_alerts
from odradek_operator.dashboards.alerts import Alert, AlertGroup
from odradek_operator.dashboards.queries import EVERY, Scope

RUNBOOK: Final = "docs/runbook.md"
"""Path of the runbook in the project. The chart replaces it with the URL in its values."""

GROUPS: Final[Sequence[AlertGroup]] = (
    *broker_alerts.GROUPS,
    *other_alerts.GROUPS,
    spark_alerts.GROUP,
    mirror_alerts.GROUP,
)


def rule_groups(scope: Scope = EVERY) -> list[dict[str, Any]]:
    """Return the rule groups for Prometheus. The scope `EVERY` includes those about the operator, Spark and mirrors."""
    groups = [group for group in GROUPS if group.of_clusters or scope is EVERY]
    return [{"name": group.name, "rules": [_rule(alert, scope) for alert in group.alerts]} for group in groups]


def anchor(name: str) -> str:
    """Return the path and anchor of an alert's section in the runbook."""
    return f"{RUNBOOK}#{name.lower()}"


def _rule(alert: Alert, scope: Scope) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": scope.fill(alert.query),
        "for": alert.duration,
        "labels": {"severity": alert.severity.value},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook_url": anchor(alert.name),
        },
    }
