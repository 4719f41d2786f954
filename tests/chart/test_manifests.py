"""Tests the manifests for users without Helm and the examples: they are valid, and pods get only what they need."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml

from chart_files import CHART, ROOT, Object, objects, pod_specs, read, rendered, rules
from odradek_operator.crds import read_resources
from odradek_operator.crds.documents import parse_documents
from odradek_operator.crds.types import ListenerType
from odradek_operator.embedded.manifests import Manifests

MANIFESTS = ROOT / "manifests"
EXAMPLES = MANIFESTS / "examples"
OWN = [EXAMPLES / "external/cluster.yaml", EXAMPLES / "monitoring/cluster.yaml"]
PRODUCTION = EXAMPLES / "production/cluster.yaml"
SPARK = EXAMPLES / "spark/archive.yaml"


def test_an_embedded_cluster_sees_the_demonstration_alone() -> None:
    """Other examples are in subfolders, which `odradek up -f` does not read."""
    resources = Manifests([EXAMPLES]).load()
    assert [*resources.clusters] == ["demo"]
    assert [*resources.topics] == ["departures"]


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.parent.name)
def test_examples_are_taken_without_a_notice(path: Path) -> None:
    resources = read_resources(parse_documents(read(path), path.name))
    assert [*resources.clusters] == ["demo"]
    assert resources.notices == ()


def test_the_first_example_needs_nothing_that_a_fresh_kubernetes_lacks() -> None:
    """It requires neither a class for local disks nor zone labels. The example for production has both."""
    (first,) = read_resources(parse_documents(read(EXAMPLES / "cluster.yaml"), "cluster.yaml")).clusters.values()
    assert [volume.storage_class for volume in first.brokers.volumes] == [None]
    assert (first.zookeeper.storage_class, first.brokers.rack_topology_key) == (None, None)
    (production,) = read_resources(parse_documents(read(PRODUCTION), "production.yaml")).clusters.values()
    assert [volume.storage_class for volume in production.brokers.volumes] == ["local-ssd"]
    assert production.brokers.rack_topology_key == "topology.kubernetes.io/zone"


def test_examples_show_what_they_are_named_after() -> None:
    external, monitored = (read_resources(parse_documents(read(path), path.name)).clusters["demo"] for path in OWN)
    assert {listener.type for listener in external.listeners} == {ListenerType.INTERNAL, ListenerType.NODE_PORT}
    monitoring = monitored.monitoring
    assert monitoring.pod_monitors and monitoring.rules and monitoring.dashboards and monitoring.exporter


def test_every_example_is_of_the_products_version() -> None:
    version = yaml.safe_load(read(CHART / "Chart.yaml"))["appVersion"]
    for path in MANIFESTS.rglob("*.yaml"):
        named = re.findall(r"odradek/[a-z]+:([^\s\"'}]+)", read(path))
        assert {*named} <= {version}, path


def test_the_manifest_without_helm_brings_everything_into_one_namespace() -> None:
    found = objects(read(MANIFESTS / "operator.yaml"))
    assert found[0]["kind"] == "Namespace"
    assert {each["metadata"].get("namespace", "odradek-system") for each in found} == {"odradek-system"}
    kinds = [each["kind"] for each in found]
    assert "CustomResourceDefinition" not in kinds, "they are files of the chart already, applied beside it"
    assert "Pod" not in kinds, "the test's pod is Helm's"
    assert found[1:] == [each for each in rendered("default") if each["kind"] != "Pod"]


@pytest.fixture
def spark() -> list[Object]:
    """The objects of the Spark example."""
    return objects(read(SPARK))


def test_spark_satisfies_the_restricted_standard(spark: list[Object]) -> None:
    ((_, pod),) = pod_specs(spark)
    assert pod["securityContext"]["runAsNonRoot"] is True
    for container in pod["containers"]:
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_spark_may_do_what_it_needs_in_its_namespace(spark: list[Object]) -> None:
    assert {each["kind"] for each in spark}.isdisjoint({"ClusterRole", "ClusterRoleBinding"})
    given = [rule for _, rule in rules(spark)]
    assert {resource for rule in given for resource in rule["resources"]} == {
        "pods",
        "services",
        "configmaps",
        "persistentvolumeclaims",
        "networkpolicies",
    }
    assert not any("*" in rule["verbs"] for rule in given)


def test_sparks_pods_are_owned_and_as_restricted_as_the_job(spark: list[Object]) -> None:
    """The script runs here up to the call of Spark."""
    (script,) = [each["data"]["submit.py"] for each in spark if each["kind"] == "ConfigMap"]
    template = _function(script, "template", OWNER={"uid": "1"}, JOB={"odradek.dev/job": "archive"}, AFFINITY={})
    pod = template([{"uid": "1"}])
    assert pod["metadata"] == {"labels": {"odradek.dev/job": "archive"}, "ownerReferences": [{"uid": "1"}]}
    (container,) = pod["spec"]["containers"]
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_the_scripts_environment_is_what_the_job_gives(spark: list[Object]) -> None:
    (script,) = [each["data"]["submit.py"] for each in spark if each["kind"] == "ConfigMap"]
    ((_, pod),) = pod_specs(spark)
    given = {entry["name"] for entry in pod["containers"][0]["env"]}
    assert {*re.findall(r"os\.environ\[['\"](\w+)", script)} == given


def _function(script: str, name: str, **names: object) -> object:
    """Return one function of a script, with the names that it uses."""
    tree = ast.parse(script)
    (found,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    exec(compile(ast.Module([found], []), name, "exec"), names)
    return names[name]
