"""Tests that Helm refuses to install while a CRD is being deleted, and that the guide's remedy completes the deletion.

The CRD is deleted while no operator runs. The test uses a real API server with its etcd, without nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kube import api_only, binaries
from support.guide import run_guide
from support.helm import Helm, HelmError
from support.kubectl import Kubectl
from support.product import CHART, NAMESPACE, TOPIC, topic_of
from support.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.e2e_short, pytest.mark.timeout(600)]

TOPICS = "topics.odradek.dev"


@pytest.fixture
def programs(say: Callable[[str], None]) -> Path:
    """The folder with kubectl, helm, etcd and the API server."""
    return binaries.ensure(say)


@pytest.fixture
def kubectl(programs: Path, tmp_path: Path) -> Iterator[Kubectl]:
    """kubectl in the namespace default."""
    with api_only.serving(programs, programs / "kube-apiserver", tmp_path) as kubeconfig:
        yield Kubectl(program=str(programs / "kubectl"), kubeconfig=kubeconfig, namespace="default")


def test_definitions_that_are_being_deleted_are_let_go_and_installed_again(programs: Path, kubectl: Kubectl) -> None:
    helm = Helm(program=str(programs / "helm"), kubeconfig=kubectl.kubeconfig)
    install = ("install", "odradek", str(CHART), "--namespace", NAMESPACE, "--create-namespace")
    helm.run(*install)
    kubectl.run("wait", "--for=condition=Established", "crd", TOPICS, "--timeout=60s")
    for name, finalizers in {"held": ["odradek.dev/topic"], "free": []}.items():
        topic = topic_of(name, deletion="Delete")
        kubectl.apply({**topic, "metadata": {"name": name, "finalizers": finalizers}})
    helm.run("uninstall", "odradek", "--namespace", NAMESPACE)
    kubectl.delete("crd", TOPICS, wait=False)
    eventually(lambda: kubectl.get(TOPIC, "free") is None, what="the end of a Topic that nothing holds")

    with pytest.raises(HelmError) as refused:
        helm.run(*install)

    assert f"CustomResourceDefinition {TOPICS} is being deleted" in str(refused.value)
    assert f"kubectl get {TOPICS} --all-namespaces" in str(refused.value)
    assert not helm.releases(namespace=NAMESPACE), "nothing was installed"
    assert kubectl.get(TOPIC, "held") is not None, "it waits for an operator"

    run_guide(kubectl, "11. Remove a cluster or the operator", containing="while read")

    eventually(lambda: kubectl.get("crd", TOPICS) is None, what="the end of the definition")
    helm.run(*install)
    kubectl.run("wait", "--for=condition=Established", "crd", TOPICS, "--timeout=60s")
    eventually(lambda: kubectl.list(TOPICS), lambda found: found == [], what="a definition without resources")
