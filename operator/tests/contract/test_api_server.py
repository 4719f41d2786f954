"""The API server in memory is one, as far as the operator can tell: over HTTP and within the process."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from kubernetes.client import Configuration

from odradek_operator.kube.client import KubernetesClient
from odradek_operator.testing.api import KubernetesApi
from odradek_operator.testing.client import MemoryClient
from odradek_operator.testing.server import serving

from .api_contract import ApiContract

FAST = 10_000.0
"""Writes a second: nobody else uses this server."""


@pytest.fixture
def namespace() -> str:
    return "shop"


class TestOverHttp(ApiContract):
    @pytest.fixture
    async def client(self) -> AsyncIterator[KubernetesClient]:
        async with serving() as server:
            client = KubernetesClient(Configuration(host=server.url), writes_per_second=FAST)
            yield client
            client.close()


class TestWithinTheProcess(ApiContract):
    @pytest.fixture
    def client(self) -> KubernetesClient:
        return MemoryClient(KubernetesApi(), writes_per_second=FAST)
