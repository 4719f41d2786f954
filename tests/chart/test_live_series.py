"""Tests queries against real processes: they serve the series of the queries, with the labels that the queries use."""

from __future__ import annotations

import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Mapping

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from chart_promql import grouping_of, selections_of, series_of
from chart_series import KUBERNETES, MIRROR, OPERATED, SPARK
from odradek.metrics.series import SERIES
from odradek.testing.plugin import ClusterFactory
from odradek.testing.running_cluster import RunningCluster
from odradek.testing.waiting import wait_until
from odradek_operator.dashboards.files import DASHBOARDS
from odradek_operator.dashboards.grafana import model
from odradek_operator.dashboards.rules import rule_groups

pytestmark = [pytest.mark.java, pytest.mark.slow]

OF_PROMETHEUS = {
    "namespace",
    "pod",
    "container",
    "kubernetes_pod_name",
    "strimzi_io_cluster",
    "strimzi_io_kind",
    "strimzi_io_name",
}
"""The labels that the PodMonitor's relabelling and the target add."""
BY_OCCASION = {
    "kafka_network_requestmetrics_errors_total",
    "kafka_log_logcleanermanager_uncleanable_partitions_count",
    "kafka_consumergroupzookeeper_lag_zookeeper",
}
"""The series that have no sample while there is no problem."""


def queries() -> Iterator[str]:
    """All queries of dashboards and alerts."""
    for dashboard in DASHBOARDS:
        for panel in model(dashboard)["panels"]:
            yield from (target["expr"] for target in panel.get("targets", ()))
    for group in rule_groups():
        yield from (rule["expr"] for rule in group["rules"])


@pytest.fixture(scope="module")
def labels(odradek_cluster: RunningCluster) -> Mapping[str, set[str]]:
    """The labels of each series of all brokers, after a record was written and replicated."""
    admin = AdminClient({"bootstrap.servers": odradek_cluster.bootstrap})
    admin.create_topics([NewTopic("labels", 1, 3)])["labels"].result(60)
    producer = confluent_kafka.Producer({"bootstrap.servers": odradek_cluster.bootstrap, "acks": "all"})
    producer.produce("labels", b"value")
    assert producer.flush(120) == 0
    found: dict[str, set[str]] = defaultdict(set)
    for url in odradek_cluster.metrics_urls:
        with urllib.request.urlopen(url, timeout=120) as answer:
            for family in text_string_to_metric_families(answer.read().decode()):
                for sample in family.samples:
                    found[sample.name] |= {*sample.labels}
    admin.delete_topics(["labels"])["labels"].result(60)
    return found


def test_brokers_serve_what_queries_name(labels: Mapping[str, set[str]]) -> None:
    named = {series for query in queries() for series in series_of(query)} & {*SERIES}
    assert len(named) > 30
    assert named - BY_OCCASION <= {*labels}


def test_queries_choose_and_group_by_labels_that_there_are(labels: Mapping[str, set[str]]) -> None:
    looked_at = 0
    for query in queries():
        of_brokers = (series_of(query) & {*SERIES}) - BY_OCCASION
        for series, chosen in selections_of(query):
            if series in of_brokers:
                assert chosen <= labels[series] | OF_PROMETHEUS, query
                looked_at += 1
        for series in of_brokers:
            if series_of(query) == {series}:
                assert grouping_of(query) <= labels[series] | OF_PROMETHEUS, query
    assert looked_at > 50


OF_KUBERNETES = KUBERNETES - {"up"}
"""The series of the kubelet, which exist only on a Kubernetes node."""


def names_at(url: str) -> set[str]:
    with urllib.request.urlopen(url, timeout=120) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {sample.name for family in families for sample in family.samples}


def test_an_embedded_cluster_serves_the_series_of_every_dashboard(
    odradek_cluster_factory: ClusterFactory,
) -> None:
    cluster = odradek_cluster_factory(brokers=1, topics={"orders": {"partitions": 1, "replicas": 1}}, monitoring=True)
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce("orders", b"value")
    assert producer.flush(120) == 0
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "shop"})
    consumer.commit(offsets=[confluent_kafka.TopicPartition("orders", 0, 0)], asynchronous=False)
    consumer.close()
    urls = [*cluster.metrics_urls, *cluster.monitoring_urls.values()]
    named = {series for query in queries() for series in series_of(query)}
    # Those of streaming queries are served by the drivers of Spark, and those of mirrors by their pods.
    named -= BY_OCCASION | OF_KUBERNETES | SPARK | MIRROR | OPERATED | {"up"}

    missing: set[str] = set()

    def served() -> bool:
        missing.clear()
        missing.update(named - {name for url in urls for name in names_at(url)})
        return not missing

    try:
        wait_until(served, what="that every series is served")
    except AssertionError as error:
        raise AssertionError(f"not served: {sorted(missing)}") from error
