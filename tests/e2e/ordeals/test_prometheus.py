"""Tests that a real Prometheus scrapes the pods by their PodMonitors, and that dashboard and rule queries have data."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from confluent_kafka import Consumer

from kube.cluster import Cluster
from odradek_operator.crds import Cluster as ClusterResource
from odradek_operator.crds import read_object
from odradek_operator.objects.monitoring_objects import monitoring_objects
from ordeals.conftest import Loaded
from support.figures import tell
from support.product import CHART, EXAMPLES, NAMESPACE, Demo, Release
from support.prometheus import (
    SCRAPE_SECONDS,
    Prometheus,
    check_rules,
    kubelet_jobs,
    programs,
    scrape_job,
    scraping,
)
from support.waiting import eventually

pytestmark = pytest.mark.e2e_full

RULES: Final = CHART / "rules" / "odradek.yaml"
DASHBOARDS: Final = sorted((CHART / "dashboards").glob("*.json"))
GROUP: Final = "readers"
ANSWERED_SECONDS: Final = 180.0
OLD_GROUP: Final = "old-readers"
TROUBLE: Final = re.compile(r"\s*> 0$")
"""The comparison at the end of a query that returns only problems. It is removed: a healthy cluster has no problems."""
_ZOOKEEPER: Final = "import sys; from kazoo.client import KazooClient; zk = KazooClient(sys.argv[1]); zk.start(); "
COMMIT: Final = f"{_ZOOKEEPER}zk.create(sys.argv[2], b'0', makepath=True); zk.stop()"
"""Creates the znode that a consumer of Kafka 0.8 creates when it commits for the first time."""
FORGET: Final = f"{_ZOOKEEPER}zk.delete(sys.argv[2], recursive=True); zk.stop()"


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return programs(tmp_path_factory.mktemp("prometheus-package"))


def cluster_monitor(demo: Demo) -> dict[str, Any]:
    """The PodMonitor of a cluster with monitoring."""
    wanted = yaml.safe_load((EXAMPLES / "monitoring" / "cluster.yaml").read_text(encoding="utf-8"))
    wanted["metadata"] = {"name": demo.name, "namespace": demo.kubectl.namespace}
    cluster = read_object(wanted)
    assert isinstance(cluster, ClusterResource)
    found = monitoring_objects(cluster, rule_groups=[], dashboards={})
    return next(one for one in found if one["kind"] == "PodMonitor")


def operator_monitor(release: Release) -> dict[str, Any]:
    """The PodMonitor of the chart."""
    options = ["--kube-version=1.34.0", "--set=monitoring.podMonitor.enabled=true", f"--namespace={NAMESPACE}"]
    text = release.helm.run("template", release.name, str(CHART), *options, "--show-only=templates/podmonitor.yaml")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


@pytest.fixture
def prometheus(
    demo: Demo, release: Release, own_cluster: Cluster, tools: dict[str, str], tmp_path: Path
) -> Iterator[Prometheus]:
    pki = own_cluster.run.pki
    nodes = [own_cluster.node_address(number) for number in own_cluster.run.numbers]
    jobs = [
        scrape_job(cluster_monitor(demo), demo.kubectl.list("pods")),
        scrape_job(operator_monitor(release), release.kubectl.list("pods")),
        *kubelet_jobs(nodes, pki / "kubelet-client.crt", pki / "kubelet-client.key"),
    ]
    with scraping(tools["prometheus"], tmp_path, jobs, RULES) as made:
        yield made


def test_promtool_accepts_the_rules(tools: dict[str, str]) -> None:
    assert "SUCCESS" in check_rules(tools["promtool"], RULES)


def panels(found: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """All panels, including those in rows."""
    for panel in found:
        yield panel
        yield from panels(panel.get("panels", []))


def filled(query: str, namespace: str) -> str:
    """A dashboard query whose variables are replaced as Grafana replaces them.

    The namespace and the cluster are those under test. Every other selection is "all".
    """
    for name, value in {"namespace": namespace, "cluster": "demo", "__rate_interval": "1m", "__range": "5m"}.items():
        query = re.sub(rf"\$\{{?{name}\b\}}?", value, query)
    return re.sub(r"\$\{?\w+\}?", ".*", query)


def dashboard_queries(namespace: str) -> list[tuple[str, str]]:
    """The place and the text of each dashboard query."""
    return [
        (
            f"{path.stem}: {panel['title']}",
            TROUBLE.sub("", filled(target["expr"], NAMESPACE if path.stem == "operator" else namespace)),
        )
        for path in DASHBOARDS
        for panel in panels(json.loads(path.read_text(encoding="utf-8"))["panels"])
        for target in panel.get("targets", [])
    ]


def rule_queries() -> list[tuple[str, str]]:
    """The name of each alert and each series selector in it. The alert itself returns nothing in a healthy cluster."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [
        (rule["alert"], part)
        for group in groups
        for rule in group["rules"]
        for part in sorted(set(re.findall(r"\b[a-z][a-z0-9]*_\w+(?:\{[^{}]*\})?(?=[\s)\[]|$)", rule["expr"])))
        if not part.startswith(("strimzi_io", "kubernetes_pod_name", "min_over", "max_over", "predict_", "label_"))
    ]


def unanswered(prometheus: Prometheus, queries: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(where, query) for where, query in queries if not prometheus.query(query)]


@pytest.fixture
def group(bootstrap: str, topic: str) -> Iterator[Consumer]:
    """A consumer group that reads and commits, so that a lag exists."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    yield consumer
    consumer.close()


@pytest.fixture
def old_group(demo: Demo, topic: str) -> Iterator[str]:
    """A consumer group that keeps its offsets in ZooKeeper, as in Kafka 0.8. It has read no record yet."""

    def ask(what: str, path: str) -> None:
        python = ("python3", "-c", what, f"{demo.name}-zookeeper-client:2181", path)
        demo.kubectl.execute(f"{demo.name}-kafka-0", *python, container="kafka")

    group = f"/consumers/{OLD_GROUP}"
    ask(COMMIT, f"{group}/offsets/{topic}/0")
    yield OLD_GROUP
    ask(FORGET, group)


@pytest.mark.usefixtures("old_group")
def test_every_query_has_an_answer(demo: Demo, prometheus: Prometheus, loaded: Loaded, group: Consumer) -> None:
    asked = dashboard_queries(demo.kubectl.namespace) + rule_queries()
    with loaded():

        def looked() -> list[tuple[str, str]]:
            group.poll(SCRAPE_SECONDS)
            return unanswered(prometheus, asked)

        eventually(
            lambda: [one["lastError"] for one in prometheus.targets() if one["health"] != "up"] or prometheus.targets(),
            lambda found: len(found) >= 15 and not any(isinstance(one, str) for one in found),
            what="all scraped: three brokers, three members, the exporter, two operators, six times a kubelet",
        )
        eventually(looked, lambda left: not left, what="an answer to every query", seconds=ANSWERED_SECONDS)
        tell(f"all of {len(asked)} queries answered")

        rules = [rule for one in prometheus.rule_groups() for rule in one["rules"]]
        assert rules
        assert [rule["name"] for rule in rules if rule["health"] == "err"] == []
        firing = [rule["name"] for rule in rules if rule["state"] == "firing"]
        assert firing == [], "alerts of a healthy cluster"
