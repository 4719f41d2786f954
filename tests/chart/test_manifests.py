"""Tests the manifests for users without Helm and the examples: they are valid, and pods get only what they need."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from chart_files import CHART, ROOT, Object, objects, pod_specs, read, rendered, rules
from odradek_operator.crds import read_resources
from odradek_operator.crds.documents import parse_documents
from odradek_operator.crds.types import ListenerType
from odradek_operator.embedded.manifests import Manifests
from pyspark_odradek.pipelines import kubernetes_driver, load, rollup
from pyspark_odradek.pipelines.driver_command import DriverPod

MANIFESTS = ROOT / "manifests"
EXAMPLES = MANIFESTS / "examples"
OWN = [EXAMPLES / "external/cluster.yaml", EXAMPLES / "monitoring/cluster.yaml"]
PRODUCTION = EXAMPLES / "production/cluster.yaml"
SPARK_ACCOUNT = EXAMPLES / "spark/account.yaml"
SPARK_JOBS = [EXAMPLES / "spark/load.yaml", EXAMPLES / "spark/rollup.yaml"]
SPARK_APPLICATIONS = {"load": load.arguments_parser, "rollup": rollup.arguments_parser}


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


@pytest.fixture(params=SPARK_JOBS, ids=lambda path: path.stem)
def spark(request: pytest.FixtureRequest) -> list[Object]:
    """The objects of a Spark example."""
    return objects(read(request.param))


def test_spark_satisfies_the_restricted_standard(spark: list[Object]) -> None:
    ((_, pod),) = pod_specs(spark)
    assert pod["securityContext"]["runAsNonRoot"] is True
    for container in pod["containers"]:
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_spark_may_do_what_it_needs_in_its_namespace() -> None:
    spark = objects(read(SPARK_ACCOUNT))
    assert {each["kind"] for each in spark}.isdisjoint({"ClusterRole", "ClusterRoleBinding"})
    given = [rule for _, rule in rules(spark)]
    assert {resource for rule in given for resource in rule["resources"]} == {
        "pods",
        "services",
        "configmaps",
        "persistentvolumeclaims",
    }
    assert not any("*" in rule["verbs"] for rule in given)


def test_the_driver_has_what_the_command_needs(spark: list[Object]) -> None:
    """The arguments are taken, the variables are those of `DriverPod`, and executors mount the same volume."""
    ((_, pod),) = pod_specs(spark)
    (container,) = pod["containers"]
    environment = {entry["name"]: entry.get("value", "10.0.0.1") for entry in container["env"]}
    driver = DriverPod.of(environment)
    assert driver is not None and driver.image == container["image"]
    kind, *arguments = container["args"]
    assert kind == "run"
    parsed = kubernetes_driver.parser().parse_args(arguments)
    module, *given = parsed.application
    application = SPARK_APPLICATIONS[module.removeprefix("pyspark_odradek.pipelines.")]().parse_args(given)
    (claim,) = (volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"] if "emptyDir" not in volume)
    (mount,) = (mount["mountPath"] for mount in container["volumeMounts"] if mount["mountPath"] != "/tmp")
    assert parsed.volume == [(claim, mount)]
    places = [application.output, *([application.checkpoint] if "checkpoint" in application else [])]
    assert all(place.startswith(f"{mount}/") for place in places)


def test_executors_run_where_the_driver_is(spark: list[Object]) -> None:
    (owner,) = [each["spec"] for each in spark if each["kind"] in ("CronJob", "Deployment")]
    template = (owner["jobTemplate"]["spec"] if "jobTemplate" in owner else owner)["template"]
    parsed = kubernetes_driver.parser().parse_args(template["spec"]["containers"][0]["args"][1:])
    assert parsed.same_node
    assert dict(parsed.label).items() <= template["metadata"]["labels"].items()
    claims = [each for each in spark if each["kind"] == "PersistentVolumeClaim"]
    assert [claim["spec"]["accessModes"] for claim in claims] == [["ReadWriteOnce"]]


def test_a_streaming_driver_does_not_select_its_executors() -> None:
    """Executors have the labels of --label. A Deployment that selected them would take them for its own pods."""
    (deployment,) = [each for each in objects(read(SPARK_JOBS[1])) if each["kind"] == "Deployment"]
    parsed = kubernetes_driver.parser().parse_args(deployment["spec"]["template"]["spec"]["containers"][0]["args"][1:])
    assert not deployment["spec"]["selector"]["matchLabels"].items() <= dict(parsed.label).items()
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}


def test_no_program_is_inside_a_manifest() -> None:
    for path in MANIFESTS.rglob("*.yaml"):
        for each in objects(read(path)):
            if each["kind"] == "ConfigMap":
                assert not any(name.endswith(".py") for name in each.get("data", {})), path
