"""The in-memory API server fulfils the contracts of a real one, over HTTP and within the process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from kubernetes.client import Configuration

from odradek_operator.kube.api.api_client import KubernetesClient
from odradek_operator.kube.handlers import LABELLED
from odradek_operator.objects import names
from odradek_operator_testkit.api import KubernetesApi
from odradek_operator_testkit.client import MemoryClient
from odradek_operator_testkit.server import ApiServer, serving

from .api_contract import ApiContract, topic
from .watch_contract import Listener, WatchContract, watching

FAST = 10_000.0
"""Permitted writes per second: no limit in practice, as only the tests use this server."""


@pytest.fixture
def namespace() -> str:
    return "shop"


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with serving() as found:
        yield found


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[KubernetesClient]:
    found = KubernetesClient(Configuration(host=server.url), writes_per_second=FAST)
    yield found
    found.close()


@pytest.fixture
def kubeconfig(server: ApiServer, tmp_path: Path) -> Path:
    path = tmp_path / "kubeconfig"
    path.write_text(server.kubeconfig(), encoding="utf-8")
    return path


class TestOverHttp(ApiContract):
    """The contract with the operator's client over HTTP."""


class TestWatches(WatchContract):
    """The contract of watches with kopf."""

    async def test_watches_continue_after_an_outage(
        self, server: ApiServer, client: KubernetesClient, namespace: str
    ) -> None:
        listener = Listener(namespace)
        async with watching(listener):
            await client.create(topic(namespace, "before"))
            await listener.await_events(lambda events: ("Topic", "before", False) in events)
            await server.down()
            server.api.put(topic(namespace, "during"))
            await server.up()
            await listener.await_events(lambda events: ("Topic", "during", False) in events)

    async def test_watches_start_again_with_a_list_when_the_history_is_gone(
        self, server: ApiServer, client: KubernetesClient, namespace: str
    ) -> None:
        listener = Listener(namespace)
        async with watching(listener):
            await client.create(topic(namespace, "before"))
            await listener.await_events(lambda events: ("Topic", "before", False) in events)
            await server.down()
            server.api.put(topic(namespace, "during"))
            server.api.store.forget_history()
            listener.cache_events.clear()
            await server.up()
            await listener.await_events(lambda events: ("Topic", "during", False) in events)
            await _eventually(lambda: ("Topic", "before", False, True) in listener.cache_events)

    async def test_there_is_one_watch_for_each_kind_and_only_for_objects_with_the_label(
        self, server: ApiServer, client: KubernetesClient, namespace: str
    ) -> None:
        listener = Listener(namespace)
        async with watching(listener):
            await client.create(topic(namespace, "before"))
            await _eventually(lambda: server.watches >= 7 + len(LABELLED))
        watches = [asked for asked in server.api.reads if asked.is_watch]
        selectors = {server.api.place(one.path).resource.plural: one.query.get("labelSelector") for one in watches}
        for kind in LABELLED:
            assert selectors.pop(kind.plural) == names.CLUSTER_LABEL
        assert {
            selectors[kind]
            for kind in ("clusters", "topics", "users", "pipelines", "mirrors", "nodes", "persistentvolumes")
        } == {None}

    async def test_node_updates_without_a_change_of_readiness_wake_no_loop(
        self, server: ApiServer, namespace: str
    ) -> None:
        listener = Listener(namespace)
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}}
        key = server.api.place("/api/v1/nodes").key("node")

        def report(status: str, seen: int) -> None:
            conditions = [{"type": "Ready", "status": status, "lastHeartbeatTime": f"{seen}"}]
            server.api.store.merge(key, {"status": {"conditions": conditions}}, status_only=True)

        server.api.put(node)
        async with watching(listener):
            await _eventually(lambda: listener.nodes == 1)
            report("True", 0)
            await _eventually(lambda: listener.nodes == 2)
            for number in range(10):
                report("True", number)
            report("False", 11)
            await _eventually(lambda: listener.nodes >= 3)
            server.api.store.delete(key, {})
            await _eventually(lambda: listener.nodes >= 4)
        assert listener.nodes == 4


async def _eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - kopf offers nothing to wait for
            await asyncio.sleep(0.02)


class TestWithinTheProcess(ApiContract):
    @pytest.fixture
    def client(self) -> KubernetesClient:
        return MemoryClient(KubernetesApi(), writes_per_second=FAST)
