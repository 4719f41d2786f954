"""What the operator relies upon of the API server, judged by a real one: the suite of the operator's own tests."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from operator.tests.contract.api_contract import ApiContract

import pytest
from kubernetes import config
from kubernetes.client import Configuration

from odradek_operator.crds.schema import definitions
from odradek_operator.kube.client import KubernetesClient
from support.kubernetes import Kubernetes
from support.waiting import eventually


@pytest.fixture(scope="module")
def definitions_there(kubernetes: Kubernetes) -> Iterator[None]:
    """The project's CRDs. Where they are not there, they are for this module only: the chart brings them otherwise."""
    kubectl = kubernetes.kubectl
    missing = [body for body in definitions().values() if kubectl.get("crd", body["metadata"]["name"]) is None]
    for body in missing:
        kubectl.run("create", "-f", "-", stdin=json.dumps(body))
    for body in definitions().values():
        kubectl.run("wait", "--for=condition=Established", "crd", body["metadata"]["name"], "--timeout=60s")
    eventually(lambda: kubectl.list("topics.odradek.dev"), lambda _: True, what="topics are served")
    yield
    for body in missing:
        kubectl.delete("crd", body["metadata"]["name"])


@pytest.fixture
async def client(kubernetes: Kubernetes, definitions_there: None) -> AsyncIterator[KubernetesClient]:
    configuration = Configuration()
    config.load_kube_config(str(kubernetes.kubectl.kubeconfig), client_configuration=configuration)
    client = KubernetesClient(configuration, writes_per_second=1_000)
    yield client
    client.close()


class TestRealServer(ApiContract):
    """Every test of the suite."""
