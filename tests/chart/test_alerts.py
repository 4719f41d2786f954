"""Tests alerts: their series exist, they select the right clusters, and each has a section in the runbook."""

from __future__ import annotations

import re
from typing import Any

import pytest

from chart_files import ROOT, read, sections
from chart_promql import grouping_of, is_balanced, labels_of, series_of
from chart_series import KNOWN, LABELS
from odradek_operator.dashboards.queries import EVERY, Scope, only
from odradek_operator.dashboards.rules import RUNBOOK, rule_groups

RUNBOOK_TEXT = read(ROOT / "docs/runbook.md")
FIRED_BEFORE_STRIMZI_LEFT = {
    "UnderReplicatedPartitions",
    "AbnormalControllerState",
    "OfflinePartitions",
    "UnderMinIsrPartitionCount",
    "OfflineLogDirectoryCount",
    "AvgRequestLatency",
    "OutstandingRequests",
    "UnderReplicatedPartition",
    "TooLargeConsumerGroupLag",
    "NoMessageForTooLong",
    "KafkaRunningOutOfSpace",
}
"""Names that the alert routes of existing installations use."""


def every(scope: Scope = EVERY) -> dict[str, dict[str, Any]]:
    """All rules, by name."""
    found = [rule for group in rule_groups(scope) for rule in group["rules"]]
    assert len({rule["alert"] for rule in found}) == len(found)
    return {rule["alert"]: rule for rule in found}


def test_known_names_are_there() -> None:
    assert {*every()} >= FIRED_BEFORE_STRIMZI_LEFT


@pytest.mark.parametrize("scope", [EVERY, only("orders", "demo")], ids=["all", "one"])
def test_series_are_served_and_queries_whole(scope: Scope) -> None:
    for name, rule in every(scope).items():
        assert series_of(rule["expr"]), name
        assert series_of(rule["expr"]) <= KNOWN, name
        assert labels_of(rule["expr"]) <= LABELS, name
        assert is_balanced(rule["expr"]), name
        assert not re.search(r"\b[A-Z]{4,}\b|\$|\{\}|, }", rule["expr"]), name


def test_alerts_of_one_cluster_are_of_that_cluster() -> None:
    for name, rule in every(only("orders", "demo")).items():
        selectors = re.findall(r"\{([^{}]*)\}", rule["expr"])
        assert selectors, name
        for selector in selectors:
            assert 'namespace="orders"' in selector, name
            assert "demo" in selector, name


def test_alerts_of_one_cluster_are_all_but_those_of_the_operator_spark_and_mirrors() -> None:
    gone = {*every()} - {*every(only("orders", "demo"))}
    assert gone == {
        "MirrorLagGrows",
        "MirrorNotReady",
        "MirrorPartitionStopped",
        "MirrorSourceUnreachable",
        "OperatorDown",
        "ReconciliationsFailing",
        "ReconciliationsStopped",
        "ReconciliationSlow",
        "ResourcesPaused",
        "PipelineNotReady",
        "PipelineLagGrows",
        "SparkQueryFails",
        "SparkQueryLagGrows",
        "SparkQueryStalled",
    }


def test_sentences_name_labels_that_the_query_keeps() -> None:
    for name, rule in every().items():
        text = rule["annotations"]["summary"] + rule["annotations"]["description"]
        named = {*re.findall(r"\$labels\.(\w+)", text)}
        assert named <= LABELS, name
        first = re.match(r"\(?(?:sum|max|count) by \(([^)]*)\)", rule["expr"])
        if first:
            assert named <= {label.strip() for label in first[1].split(",")}, name


def test_alerts_distinguish_the_brokers_of_a_pod() -> None:
    for name, rule in every().items():
        assert 'container="kafka"' not in rule["expr"], f"{name} ignores the further brokers of a pod"
        if "kubernetes_pod_name" in grouping_of(rule["expr"]):
            assert "container" in grouping_of(rule["expr"]), name
    of_brokers = {name for name, rule in every().items() if "$labels.container" in rule["annotations"]["summary"]}
    assert of_brokers == {
        "BrokerDown",
        "BrokerSaturated",
        "ContainerRestarts",
        "FewFileDescriptors",
        "HangingTransactions",
        "LogCleanerFailing",
        "LogDirectoryRefusesWrites",
        "OfflineLogDirectoryCount",
        "ProduceSlow",
        "ZooKeeperSessionsExpire",
    }


def test_every_alert_says_what_is_the_matter() -> None:
    for name, rule in every().items():
        assert rule["labels"]["severity"] in ("critical", "warning", "info"), name
        assert re.fullmatch(r"\d+[smh]", rule["for"]), name
        assert rule["annotations"]["summary"], name
        assert rule["annotations"]["description"].endswith("."), name


def test_every_alert_has_its_section_and_no_section_is_of_none() -> None:
    alerts = every()
    titled = {*sections(RUNBOOK_TEXT)}
    assert titled == {*alerts}
    for name, rule in alerts.items():
        assert rule["annotations"]["runbook_url"] == f"{RUNBOOK}#{name.lower()}"


@pytest.mark.parametrize("name", sorted(every()))
def test_a_section_tells_what_it_means_and_what_to_do(name: str) -> None:
    section = sections(RUNBOOK_TEXT)[name]
    assert "**Means.**" in section
    assert "**Do.**" in section
    assert "```sh\n" in section, "with commands"
    assert every()[name]["labels"]["severity"] in section.partition("**Means.**")[0], "and how urgent it is"
