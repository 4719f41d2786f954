"""The files of the chart that are made from this package. Pure.

Leaves: the text of each, by its path below the chart. Called by `generate`, by the test that holds them fresh, and by
whoever hands dashboards to Grafana without the chart.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import yaml

from odradek_operator.dashboards import cluster_dashboard as cluster
from odradek_operator.dashboards import groups, operating
from odradek_operator.dashboards import topics_dashboard as topics
from odradek_operator.dashboards import zookeeper_dashboard as zookeeper
from odradek_operator.dashboards.grafana import Dashboard, model
from odradek_operator.dashboards.rules import rule_groups

DASHBOARDS: Final[Sequence[Dashboard]] = (
    cluster.DASHBOARD,
    topics.DASHBOARD,
    groups.DASHBOARD,
    operating.DASHBOARD,
    zookeeper.DASHBOARD,
)

RULES: Final = "rules/odradek.yaml"

_RULES_HEAD: Final = """\
# Alerts for Prometheus, of all clusters and the operator: `rule_files` takes this file as it is, the chart makes a
# PrometheusRule of it. What each means and what to do: docs/runbook.md.
# Made by `make crds` from operator/odradek_operator/dashboards/: change it there.
"""


def dashboard_texts() -> dict[str, str]:
    """The JSON text of every dashboard, by its name."""
    return {each.name: json.dumps(model(each), indent=1) + "\n" for each in DASHBOARDS}


def files() -> dict[str, str]:
    """The text of every file, by its path below the chart."""
    rules = yaml.safe_dump({"groups": rule_groups()}, sort_keys=False, width=110, allow_unicode=True)
    return {f"dashboards/{name}.json": text for name, text in dashboard_texts().items()} | {RULES: _RULES_HEAD + rules}
