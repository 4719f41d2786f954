"""The behaviour of watches that the operator depends on, tested with kopf and the operator's handlers.

A subclass provides the fixtures `client`, `namespace` and `kubeconfig`, the path of a kubeconfig. Like `api_contract`,
it runs against the in-memory API server and against a real one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import kopf
import pytest

from odradek_operator.kube import handlers
from odradek_operator.kube.api.api_client import KubernetesClient
from odradek_operator.kube.api.object_kinds import Kind, Object, Reference
from odradek_operator.objects import names

from .api_contract import SECONDS, config_map, topic

WatchEvent = tuple[str, str, bool]
"""Kind and name, and whether it was deleted."""


class Listener:
    """Replaces the manager, and records the events of one namespace."""

    def __init__(self, namespace: str) -> None:
        self.events: list[WatchEvent] = []
        self.bodies: list[Object] = []
        self.nodes = 0
        self.cache_events: list[tuple[str, str, bool, bool]] = []
        """Kind and name, whether it was deleted, and whether it comes from a list."""
        self._namespace = namespace
        self._changed = asyncio.Event()

    def cluster_changed(self, body: Object, *, deleted: bool) -> None:
        self._note(body, deleted)

    def topic_changed(self, body: Object, *, deleted: bool) -> None:
        self._note(body, deleted)

    def user_changed(self, body: Object, *, deleted: bool) -> None:
        self._note(body, deleted)

    def pipeline_changed(self, body: Object, *, deleted: bool) -> None:
        self._note(body, deleted)

    def mirror_changed(self, body: Object, *, deleted: bool) -> None:
        self._note(body, deleted)

    def object_changed(self, body: Object, *, deleted: bool) -> None:
        self._note(body, deleted)

    def node_readiness_changed(self) -> None:
        self.nodes += 1

    def watch_event(self, body: Object, *, deleted: bool, listed: bool) -> None:
        self.cache_events.append((body["kind"], body["metadata"]["name"], deleted, listed))

    def _note(self, body: Object, deleted: bool) -> None:
        if body["metadata"]["namespace"] == self._namespace:
            self.events.append((body["kind"], body["metadata"]["name"], deleted))
            self.bodies.append(body)
            self._changed.set()

    async def await_events(self, condition: Callable[[list[WatchEvent]], object]) -> None:
        async with asyncio.timeout(SECONDS):
            while not condition(self.events):
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def watching(listener: Listener, *namespaces: str) -> AsyncIterator[None]:
    """Run kopf inside the block."""
    stop = asyncio.Event()
    task = asyncio.create_task(
        kopf.operator(
            registry=handlers.registry(listener),  # type: ignore[arg-type]
            settings=handlers.settings(),
            standalone=True,
            clusterwide=not namespaces,
            namespaces=list(namespaces),
            stop_flag=stop,
        )
    )
    try:
        yield
    finally:
        stop.set()
        await asyncio.wait([task])


def labelled(namespace: str, name: str) -> Object:
    body = config_map(namespace, name, a="1")
    body["metadata"]["labels"] = {names.CLUSTER_LABEL: "demo"}
    return body


class WatchContract:
    """Watches report changes, and kopf writes nothing to the objects."""

    @pytest.fixture(autouse=True)
    def _environment(self, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))

    @pytest.mark.parametrize("everywhere", [True, False])
    async def test_changes_are_reported(self, client: KubernetesClient, namespace: str, *, everywhere: bool) -> None:
        listener = Listener(namespace)
        there = await client.create(topic(namespace, "early"))
        async with watching(listener, *(() if everywhere else (namespace,))):
            await listener.await_events(lambda events: ("Topic", "early", False) in events)
            made = await client.create(labelled(namespace, "ours"))
            await client.create(config_map(namespace, "theirs"))
            await listener.await_events(lambda events: ("ConfigMap", "ours", False) in events)
            count = len(listener.events)
            await client.merge(Reference.of(made), {"data": {"a": "2"}})
            await listener.await_events(lambda events: len(events) > count)
            assert listener.bodies[-1]["data"] == {"a": "2"}
            await client.delete(Reference.of(made))
            await listener.await_events(lambda events: ("ConfigMap", "ours", True) in events)
            count = len(listener.events)
            await client.merge(Reference.of(there), {"status": {"partitions": 3}}, sub="status")
            await listener.await_events(lambda events: len(events) > count)
        assert not [one for one in listener.events if one[1] == "theirs"]
        assert ("Topic", "early", False, True) in listener.cache_events, "a watch begins with a list, and says so"
        assert ("ConfigMap", "ours", False, False) in listener.cache_events, "later events come from the stream"
        after = await client.get(Kind.TOPIC, namespace, "early")
        assert after is not None
        assert "annotations" not in after["metadata"] and "finalizers" not in after["metadata"]

    async def test_versions_of_events_and_lists_can_be_compared(self, client: KubernetesClient, namespace: str) -> None:
        """The cache compares the versions of an event and a list, and keeps the newer object."""
        listener = Listener(namespace)
        made = await client.create(labelled(namespace, "ours"))
        found, listed_at = await client.list_with_version(Kind.CONFIG_MAP, namespace, fields="metadata.name=ours")
        assert [one["metadata"]["resourceVersion"] for one in found] == [made["metadata"]["resourceVersion"]]
        assert _version(made) <= int(listed_at)
        async with watching(listener, namespace):
            await listener.await_events(lambda events: ("ConfigMap", "ours", False) in events)
            changed = await client.merge(Reference.of(made), {"data": {"a": "2"}})
            assert changed is not None
            assert _version(changed) > int(listed_at)
            await listener.await_events(lambda _: listener.bodies[-1]["data"] == {"a": "2"})
            await client.delete(Reference.of(made))
            await listener.await_events(lambda events: ("ConfigMap", "ours", True) in events)
        assert _version(listener.bodies[-1]) > _version(changed), "a deletion has a new version"
        found, emptied_at = await client.list_with_version(Kind.CONFIG_MAP, namespace, fields="metadata.name=ours")
        assert (found, int(emptied_at) >= _version(listener.bodies[-1])) == ([], True)

    async def test_an_object_that_loses_the_label_is_reported_as_deleted(
        self, client: KubernetesClient, namespace: str
    ) -> None:
        listener = Listener(namespace)
        async with watching(listener):
            made = await client.create(labelled(namespace, "ours"))
            await listener.await_events(lambda events: ("ConfigMap", "ours", False) in events)
            await client.merge(Reference.of(made), {"metadata": {"labels": {names.CLUSTER_LABEL: None}}})
            await listener.await_events(lambda events: ("ConfigMap", "ours", True) in events)


def _version(body: Object) -> int:
    return int(body["metadata"]["resourceVersion"])
