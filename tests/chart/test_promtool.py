"""Checks every query and the behaviour of alerts over time with Debian's promtool."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from support.prometheus import programs

from chart_files import CHART, ROOT
from odradek_operator.dashboards.files import DASHBOARDS
from odradek_operator.dashboards.grafana import model
from odradek_operator.dashboards.queries import only
from odradek_operator.dashboards.rules import rule_groups

pytestmark = [pytest.mark.e2e, pytest.mark.e2e_full]

CASES = ROOT / "tests/chart/alert_cases.yaml"


@pytest.fixture(scope="session")
def promtool(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of promtool. It is unpacked for this session if the machine lacks it."""
    return programs(tmp_path_factory.mktemp("promtool"))["promtool"]


def run(*command: str) -> None:
    """Run a command. Fail with its output if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def in_grafana(query: str) -> str:
    """A query as Grafana sends it, with its variables replaced."""
    return re.sub(r"\$\w+", "x", query.replace("$__rate_interval", "5m").replace("$__range", "1h"))


def test_alerts_are_taken(promtool: str, tmp_path: Path) -> None:
    one = tmp_path / "one.yaml"
    one.write_text(yaml.safe_dump({"groups": rule_groups(only("orders", "demo"))}), encoding="utf-8")
    run(promtool, "check", "rules", str(CHART / "rules/odradek.yaml"), str(one))


def test_queries_of_dashboards_are_taken(promtool: str, tmp_path: Path) -> None:
    queries = [
        in_grafana(target["expr"])
        for dashboard in DASHBOARDS
        for panel in model(dashboard)["panels"]
        for target in panel.get("targets", ())
    ]
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}), encoding="utf-8")
    run(promtool, "check", "rules", str(file))


def test_alerts_fire_when_they_should_and_only_then(promtool: str) -> None:
    run(promtool, "test", "rules", str(CASES))


def test_there_is_a_case_for_every_alert_of_more_than_one_series() -> None:
    """Labels must match where an alert compares two series. Only a test case can show that they do."""
    tried = {
        case["alertname"]
        for test in yaml.safe_load(CASES.read_text("utf-8"))["tests"]
        for case in test["alert_rule_test"]
    }
    compared = {
        rule["alert"]
        for group in rule_groups()
        for rule in group["rules"]
        if re.search(r"\band\b|\bor\b|[<>] [a-z0-9.]*[a-z(]|\* |/ ", rule["expr"])
    }
    assert compared - tried == set()
