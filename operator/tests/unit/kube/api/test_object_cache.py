"""The cache of lists: events keep it up to date, and it is never older than a list or a write that it has seen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from odradek_operator.kube.api.object_cache import ListQuery, ObjectCache
from odradek_operator.kube.api.object_kinds import Kind, Object, Reference
from odradek_operator_testkit.api import KubernetesApi
from odradek_operator_testkit.client import MemoryClient
from odradek_operator_testkit.store import key_of
from odradek_testkit.loop import run_virtual

LABEL = ("odradek.dev/test", "demo")
QUERY = ListQuery(kind=Kind.CONFIG_MAP, namespace="shop", label=LABEL)
NAMED = ListQuery(kind=Kind.CONFIG_MAP, namespace="shop", name="one")
LONG = 1_000_000.0


def config_map(name: str, value: str, *, namespace: str = "shop", label: str = "demo") -> Object:
    metadata = {"name": name, "namespace": namespace, "labels": {LABEL[0]: label}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": value}}


class Server:
    """An API server with a cache, and the changes of another client."""

    def __init__(self) -> None:
        self.api = KubernetesApi()
        self.client = MemoryClient(self.api, writes_per_second=100_000)
        self.cache = ObjectCache(self.client)

    def put(self, name: str, value: str, **where: str) -> Object:
        return self.api.put(config_map(name, value, **where))

    def change(self, body: Object, value: str) -> Object:
        return self.api.store.merge(key_of(body), {"data": {"value": value}})

    def delete(self, body: Object) -> Object:
        """Delete an object. Returns it as the watch event of the deletion shows it."""
        self.api.store.delete(key_of(body), {})
        gone = self.api.store.changes[-1].before
        assert gone is not None
        return gone

    async def values(self, query: ListQuery = QUERY, *, max_age: float = LONG) -> dict[str, str]:
        found = await self.cache.list(query, max_age=max_age)
        return {body["metadata"]["name"]: body["data"]["value"] for body in found}


def play(steps: Callable[[Server], Awaitable[None]]) -> None:
    async def run() -> None:
        await steps(Server())

    run_virtual(run())


def test_a_list_is_requested_once_and_kept_up_to_date_by_events() -> None:
    async def steps(server: Server) -> None:
        one = server.put("one", "a")
        assert await server.values() == {"one": "a"}
        server.cache.observe(server.change(one, "b"), deleted=False)
        server.cache.observe(server.put("two", "c"), deleted=False)
        assert await server.values() == {"one": "b", "two": "c"}
        server.cache.observe(server.delete(one), deleted=True)
        assert await server.values() == {"two": "c"}
        assert server.api.lists() == ["configmaps"]

    play(steps)


def test_items_have_their_kind() -> None:
    async def steps(server: Server) -> None:
        server.put("one", "a")
        for query in (QUERY, NAMED):
            (body,) = await server.cache.list(query, max_age=LONG)
            assert Reference.of(body) == Reference(kind=Kind.CONFIG_MAP, namespace="shop", name="one")

    play(steps)


def test_a_list_is_requested_again_after_its_age_and_for_a_fresh_read() -> None:
    async def steps(server: Server) -> None:
        one = server.put("one", "a")
        await server.values()
        server.change(one, "unheard of")
        await asyncio.sleep(10)
        assert await server.values(max_age=20) == {"one": "a"}
        assert await server.values(max_age=10) == {"one": "unheard of"}
        server.change(one, "again")
        assert await server.values(max_age=0) == {"one": "again"}
        assert len(server.api.lists()) == 3

    play(steps)


@pytest.mark.parametrize("deleted", [False, True])
def test_an_event_that_is_older_than_the_list_changes_nothing(deleted: bool) -> None:
    async def steps(server: Server) -> None:
        late = server.put("one", "a")
        if deleted:
            late = server.delete(late)
            server.put("one", "b")
        else:
            server.change(late, "b")
        assert await server.values() == {"one": "b"}
        server.cache.observe(late, deleted=deleted)
        assert await server.values() == {"one": "b"}

    play(steps)


def test_an_event_about_an_object_that_the_list_did_not_have_any_more_changes_nothing() -> None:
    async def steps(server: Server) -> None:
        late = server.put("one", "a")
        server.delete(late)
        assert await server.values() == {}
        server.cache.observe(late, deleted=False)
        assert await server.values() == {}

    play(steps)


def test_an_event_that_is_newer_than_the_list_stays() -> None:
    """The event arrives after the server has read the list, and before the response arrives."""

    async def steps(server: Server) -> None:
        one = server.put("one", "a")
        server.api.faults.delay_seconds = 0.0
        list_of_now, version = await server.client.list_with_version(Kind.CONFIG_MAP, "shop")
        await server.values()
        server.cache.observe(server.change(one, "b"), deleted=False)
        answers = iter([(list_of_now, version)])

        async def late(*_: object, **__: object) -> tuple[list[Object], str]:
            return next(answers)

        server.client.list_with_version = late  # type: ignore[method-assign]
        assert await server.values(max_age=0) == {"one": "b"}

    play(steps)


def test_an_object_that_loses_its_label_leaves_the_list() -> None:
    async def steps(server: Server) -> None:
        one = server.put("one", "a")
        await server.values()
        changed = server.api.store.merge(key_of(one), {"metadata": {"labels": {LABEL[0]: "other"}}})
        server.cache.observe(changed, deleted=False)
        assert await server.values() == {}

    play(steps)


def test_objects_of_other_lists_are_not_kept() -> None:
    async def steps(server: Server) -> None:
        await server.values()
        await server.values(NAMED)
        server.cache.observe(server.put("one", "a", label="other"), deleted=False)
        server.cache.observe(server.put("two", "b", namespace="elsewhere"), deleted=False)
        assert await server.values() == {}
        assert await server.values(NAMED) == {"one": "a"}

    play(steps)


def test_the_answer_to_a_write_updates_the_cache_also_through_a_copy_of_the_client() -> None:
    async def steps(server: Server) -> None:
        await server.values()
        made = await server.client.checked(lambda: None).fenced(lambda: 60.0).create(config_map("one", "a"))
        assert await server.values() == {"one": "a"}
        await server.client.merge(Reference.of(made), {"data": {"value": "b"}})
        assert await server.values() == {"one": "b"}
        assert len(server.api.lists()) == 1

    play(steps)


def test_a_watch_that_begins_again_makes_the_cache_list_again() -> None:
    """kopf does not report what was deleted while the watch was interrupted."""

    async def steps(server: Server) -> None:
        one, two = server.put("one", "a"), server.put("two", "b")
        await server.values()
        server.delete(one)
        assert await server.values() == {"one": "a", "two": "b"}
        server.cache.doubt(Kind.CONFIG_MAP)
        server.cache.observe(two, deleted=False)
        assert await server.values() == {"two": "b"}

    play(steps)


def test_lists_that_are_dropped_are_requested_again() -> None:
    async def steps(server: Server) -> None:
        await server.values()
        server.cache.forget(QUERY, NAMED)
        server.put("one", "a")
        assert await server.values() == {"one": "a"}

    play(steps)


def test_what_is_large_and_unused_is_not_kept() -> None:
    async def steps(server: Server) -> None:
        status = {"images": [{"names": ["large"]}], "conditions": [{"type": "Ready", "status": "True"}]}
        server.api.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}, "status": status})
        (node,) = await server.cache.list(ListQuery(kind=Kind.NODE), max_age=LONG)
        assert node["status"] == {"conditions": status["conditions"]}

    play(steps)
