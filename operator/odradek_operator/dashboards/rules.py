"""The alerts in the form of Prometheus. Pure.

Enters: the scope, all clusters or one. Leaves: rule groups. Called by `files` for the chart's `rules/odradek.yaml`, and
by whoever makes a PrometheusRule for one cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from odradek_operator.dashboards import broker_alerts, other_alerts
from odradek_operator.dashboards.alerts import Alert, AlertGroup
from odradek_operator.dashboards.queries import EVERY, Scope

RUNBOOK: Final = "docs/runbook.md"
"""Where the runbook is in the project; the chart puts the place of its values in its stead."""

GROUPS: Final[Sequence[AlertGroup]] = (*broker_alerts.GROUPS, *other_alerts.GROUPS)


def rule_groups(scope: Scope = EVERY) -> list[dict[str, Any]]:
    """The groups as Prometheus reads them: of all clusters and the operator, or of what `only` names."""
    groups = [group for group in GROUPS if group.of_clusters or scope is EVERY]
    return [{"name": group.name, "rules": [_rule(alert, scope) for alert in group.alerts]} for group in groups]


def anchor(name: str) -> str:
    """Where the section of an alert is in the runbook, as Markdown makes it of its heading."""
    return f"{RUNBOOK}#{name.lower()}"


def _rule(alert: Alert, scope: Scope) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": scope.fill(alert.query),
        "for": alert.lasting,
        "labels": {"severity": alert.severity.value},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook_url": anchor(alert.name),
        },
    }
