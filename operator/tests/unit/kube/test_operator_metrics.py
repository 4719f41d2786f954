"""The series that existing operator dashboards query exist from the start, and count reconciliations."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from odradek_operator.kube import operator_metrics as metrics
from odradek_operator.kube.operator_metrics import Reconciliations
from odradek_operator.objects.names import Component

TILES = (
    "Kafka",
    "KafkaUser",
    "KafkaTopic",
    "Pipeline",
    "KafkaConnect",
    "KafkaMirrorMaker2",
    "KafkaMirrorMaker",
    "KafkaNodePool",
    "KafkaBridge",
    "KafkaConnector",
    "KafkaRebalance",
)
SERIES = (
    "strimzi_resources",
    "strimzi_resources_paused",
    "strimzi_reconciliations_total",
    "strimzi_reconciliations_periodical_total",
    "strimzi_reconciliations_successful_total",
    "strimzi_reconciliations_failed_total",
    "strimzi_reconciliations_locked_total",
    "strimzi_reconciliations_duration_seconds_count",
    "strimzi_reconciliations_duration_seconds_sum",
    "strimzi_reconciliations_duration_seconds_max",
)


def begin(*namespaces: str) -> tuple[CollectorRegistry, Reconciliations]:
    registry = CollectorRegistry()
    return registry, Reconciliations(registry, namespaces)


def value(registry: CollectorRegistry, name: str, kind: str = "Kafka", namespace: str = "*") -> float | None:
    return registry.get_sample_value(name, {"kind": kind, "namespace": namespace, "selector": ""})


@pytest.mark.parametrize("name", SERIES)
def test_every_series_of_the_dashboards_starts_with_0(name: str) -> None:
    registry, _ = begin()
    assert [value(registry, name, kind) for kind in TILES] == [0.0] * len(TILES)
    registry, _ = begin("one", "two")
    assert [value(registry, name, kind, "two") for kind in TILES] == [0.0] * len(TILES)
    assert value(registry, name) is None


def test_reconciliations_are_counted_by_how_they_end() -> None:
    registry, found = begin()
    with found.one("Cluster", "shop"):
        pass
    with found.one("Cluster", "shop", periodic=True) as outcome:
        outcome.failed = True
    with pytest.raises(RuntimeError), found.one("Cluster", "shop"):
        raise RuntimeError
    counts = {name: value(registry, f"strimzi_reconciliations_{name}total") for name in ("", "periodical_", "failed_")}
    assert counts == {"": 3.0, "periodical_": 1.0, "failed_": 2.0}
    assert value(registry, "strimzi_reconciliations_successful_total") == 1.0
    assert value(registry, "strimzi_reconciliations_duration_seconds_count") == 3.0
    assert value(registry, "strimzi_reconciliations_total", "KafkaTopic") == 0.0


def test_resources_are_counted_and_forgotten() -> None:
    registry, found = begin()
    found.counted("Topic", {"one": (3, 1), "two": (2, 0)})
    assert value(registry, "strimzi_resources", "KafkaTopic") == 5.0
    assert value(registry, "strimzi_resources_paused", "KafkaTopic") == 1.0
    found.counted("Topic", {})
    assert value(registry, "strimzi_resources", "KafkaTopic") == 0.0
    assert value(registry, "strimzi_resources_paused", "KafkaTopic") == 0.0


def test_the_longest_reconciliation_of_the_last_minutes_is_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr(metrics.time, "monotonic", lambda: now)
    registry, found = begin()

    def take(seconds: float) -> None:
        nonlocal now
        with found.one("Cluster", "shop"):
            now += seconds

    def longest() -> float | None:
        return value(registry, "strimzi_reconciliations_duration_seconds_max")

    take(2.0)
    now += 100
    take(5.0)
    take(3.0)
    assert longest() == 5.0
    now += metrics.WINDOW_SECONDS - 1
    assert longest() == 3.0
    now += 2
    assert longest() == 0.0


def test_desired_and_ready_pods_are_exported_until_their_cluster_is_deleted() -> None:
    registry, reconciliations = begin()
    labels = {"cluster_namespace": "a", "strimzi_io_cluster": "demo", "component": "kafka"}
    for cluster in ("demo", "other"):
        for component in (Component.KAFKA, Component.ZOOKEEPER):
            reconciliations.pods("a", cluster, component, wanted=3, ready=2)
    assert registry.get_sample_value("odradek_pods_wanted", labels) == 3
    assert registry.get_sample_value("odradek_pods_ready", labels) == 2
    reconciliations.forget("a", "demo")
    assert registry.get_sample_value("odradek_pods_wanted", labels) is None
    assert registry.get_sample_value("odradek_pods_ready", labels | {"component": "zookeeper"}) is None
    assert registry.get_sample_value("odradek_pods_ready", labels | {"strimzi_io_cluster": "other"}) == 2
    reconciliations.forget("a", "demo")
