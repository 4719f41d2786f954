"""What the operator relies upon of the API server, judged by a real one: the suite of the operator's own tests."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from operator.tests.contract.api_contract import ApiContract

import pytest
from kubernetes import config
from kubernetes.client import Configuration

from odradek_operator.crds.schema import definitions
from odradek_operator.kube.client import KubernetesClient
from support.kubernetes import Kubernetes
from support.waiting import eventually

KIND = "crd"


@pytest.fixture(scope="session")
def definitions_there(kubernetes: Kubernetes) -> None:
    """The project's CRDs, as the chart brings them; they stay, as other tests need them, too."""
    for body in definitions().values():
        kubernetes.kubectl.run("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(body))
    for body in definitions().values():
        name = body["metadata"]["name"]
        kubernetes.kubectl.run("wait", "--for=condition=Established", KIND, name, "--timeout=60s")
    eventually(lambda: kubernetes.kubectl.list("topics.odradek.dev"), lambda _: True, what="topics are served")


@pytest.fixture
async def client(kubernetes: Kubernetes, definitions_there: None) -> AsyncIterator[KubernetesClient]:
    configuration = Configuration()
    config.load_kube_config(str(kubernetes.kubectl.kubeconfig), client_configuration=configuration)
    client = KubernetesClient(configuration, writes_per_second=1_000)
    yield client
    client.close()


class TestRealServer(ApiContract):
    """Every test of the suite."""
