"""Tests that the oldest supported Kubernetes accepts the CRDs, the chart, the examples and the operator's objects.

The tests use a real API server of that version with its etcd, without nodes. They show what it refuses; pods do not
run.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from kubernetes import config
from kubernetes.client import Configuration

from kube import api_only, binaries, versions
from odradek_operator.crds import Cluster, read_object
from odradek_operator.kube.api.api_client import KubernetesClient
from odradek_operator.kube.api.object_kinds import Kind, Object
from odradek_operator.objects.podspec import ImageSettings
from odradek_operator.objects.wanted import wanted_objects
from support.helm import Helm
from support.images import ROOT
from support.kubectl import Kubectl, KubectlError
from support.product import CHART, CLUSTER, CRDS, EXAMPLES, NAMESPACE

pytestmark = [pytest.mark.e2e, pytest.mark.e2e_full, pytest.mark.timeout(1800)]

FOREIGN = "monitoring.coreos.com/v1"
"""Kinds of the Prometheus operator, which is not installed here."""


@pytest.fixture(scope="module")
def programs(say: Callable[[str], None]) -> Path:
    """The folder with kubectl, helm and etcd."""
    return binaries.ensure(say)


@pytest.fixture(scope="module")
def kubeconfig(programs: Path, say: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of the oldest supported API server."""
    with api_only.serving(programs, binaries.ensure_oldest(say), tmp_path_factory.mktemp("oldest")) as path:
        yield path


@pytest.fixture(scope="module")
def kubectl(programs: Path, kubeconfig: Path) -> Kubectl:
    """kubectl in the namespace default."""
    return Kubectl(program=str(programs / "kubectl"), kubeconfig=kubeconfig, namespace="default")


@pytest.fixture(scope="module")
def installed(programs: Path, kubeconfig: Path, kubectl: Kubectl) -> Helm:
    """The chart, installed by Helm. Its pods do not run."""
    helm = Helm(program=str(programs / "helm"), kubeconfig=kubeconfig)
    helm.run("install", "odradek", str(CHART), "--namespace", NAMESPACE, "--create-namespace")
    for name in CRDS:
        kubectl.run("wait", "--for=condition=Established", "crd", name, "--timeout=60s")
    return helm


def test_it_is_the_version_that_the_chart_names(kubectl: Kubectl) -> None:
    named = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["kubeVersion"]
    minor = ".".join(versions.OLDEST_KUBERNETES.split(".")[:2])
    assert named == f">={minor}.0-0"
    assert f"v{versions.OLDEST_KUBERNETES}" in kubectl.run("version")


def test_the_chart_is_installed_without_what_came_later(installed: Helm, kubectl: Kubectl) -> None:
    (release,) = installed.releases(namespace=NAMESPACE)
    assert release.status == "deployed"
    manifest = installed.run("get", "manifest", "odradek", "--namespace", NAMESPACE)
    kinds = set(re.findall(r"^kind: (\w+)$", manifest, re.MULTILINE))
    assert {"Deployment", "ClusterRole", "CustomResourceDefinition"} <= kinds
    assert "ValidatingAdmissionPolicy" not in kinds
    for name in CRDS:
        conditions = {one["type"]: one["status"] for one in kubectl.require("crd", name)["status"]["conditions"]}
        assert "True" not in (conditions.get("NonStructuralSchema"), conditions.get("Terminating"))


def test_every_option_of_the_chart_is_taken(installed: Helm) -> None:
    """Except the kinds of the Prometheus operator."""
    options = [
        "--set=replicas=2,podDisruptionBudget.enabled=true,networkPolicy.enabled=true",
        "--set=monitoring.dashboards.enabled=true,crds.install=false",
    ]
    installed.run("install", "second", str(CHART), "--namespace", "second", "--create-namespace", *options)
    reader = installed.run("get", "manifest", "second", "--namespace", "second")
    assert "name: odradek-node-reader\n" not in reader, "the first release has made it"


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("folder", [".", "external", "mirror", "monitoring", "pipelines", "spark"])
def test_examples_are_taken(folder: str, kubectl: Kubectl) -> None:
    """Validation is strict: a field that this version does not know is an error."""
    kubectl.run("apply", "--validate=strict", "--filename", str(EXAMPLES / folder))


@pytest.mark.usefixtures("installed")
def test_rules_about_quantities_are_in_force(kubectl: Kubectl) -> None:
    """The rules need a CEL function that earlier versions of Kubernetes do not know."""
    kubectl.run("apply", "--filename", str(EXAMPLES))
    body = kubectl.require(CLUSTER, "demo")
    body["spec"]["brokers"]["storage"]["volumes"][0]["size"] = "1Ki"
    with pytest.raises(KubectlError, match="volumes"):
        kubectl.run("replace", "--filename", "-", stdin=yaml.safe_dump(body))


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("folder", [".", "external", "monitoring"])
def test_what_the_operator_makes_of_the_examples_is_taken(folder: str, kubectl: Kubectl, kubeconfig: Path) -> None:
    kubectl.run("apply", "--filename", str(EXAMPLES / folder))
    body: Object = {"apiVersion": "odradek.dev/v1", "kind": "Cluster", **kubectl.require(CLUSTER, "demo")}
    cluster = read_object(body)
    assert isinstance(cluster, Cluster)
    wanted = wanted_objects(cluster, settings=ImageSettings(), broker_count=3, operator_namespace=NAMESPACE)

    async def apply() -> set[str]:
        configuration = Configuration()
        config.load_kube_config(str(kubeconfig), client_configuration=configuration)  # type: ignore[no-untyped-call]
        client = KubernetesClient(configuration, writes_per_second=1_000)
        try:
            # The operator sends its writes in this way: with a time limit for the server.
            fenced = client.fenced(lambda: 10.0)
            bodies = [item.body for item in wanted if item.api_version != FOREIGN]
            return {(await fenced.apply(body))["kind"] for body in bodies}
        finally:
            client.close()

    assert {Kind.STATEFUL_SET.word, Kind.DISRUPTION_BUDGET.word, Kind.NETWORK_POLICY.word} <= asyncio.run(apply())


@pytest.mark.usefixtures("installed")
def test_the_manifest_without_helm_is_taken_without_its_policies(kubectl: Kubectl) -> None:
    """The comment at the top of the manifest says so."""
    documents = yaml.safe_load_all((ROOT / "manifests/operator.yaml").read_text(encoding="utf-8"))
    known = [body for body in documents if not body["kind"].startswith("ValidatingAdmissionPolicy")]
    kubectl.within("").run(
        "apply",
        "--server-side",
        "--force-conflicts",
        "--dry-run=server",
        "--filename",
        "-",
        stdin=yaml.safe_dump_all(known),
    )
