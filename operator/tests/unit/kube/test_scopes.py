"""Two operators in one Kubernetes cluster: at most one serves a namespace, whatever their namespaces and failures."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from http import HTTPStatus

from odradek.zk.port import ConnectionLost
from odradek_operator.kube.api.api_client import FencedError
from odradek_operator.kube.api.object_kinds import Kind, Object, Reference
from odradek_operator.kube.cluster.finalizers import FINALIZERS
from odradek_operator.kube.lease import RETRY_SECONDS, Timing
from odradek_operator.kube.scopes import ALL, ALL_LEASE, LEASE, Alone, Standing
from odradek_operator_testkit.api import Asked
from odradek_operator_testkit.store import ApiError
from odradek_operator_testkit.surroundings import NAMESPACE, Operator, World, cluster_body, topic_body, until
from odradek_testkit.loop import run_virtual

TIMES = Timing()
LONG_SECONDS = 20 * TIMES.duration


def place(asked: Asked) -> str:
    """Return the namespace of a request."""
    parts = asked.path.split("/")
    return parts[parts.index("namespaces") + 1] if "namespaces" in parts else ""


def places(operator: Operator) -> set[str]:
    """Return the namespaces that an operator has written to, except for its Leases."""
    return {place(asked) for _, asked in operator.client.landed}


def holder(world: World, namespace: str) -> str:
    which = Reference(kind=Kind.LEASE, namespace=namespace, name=LEASE)
    return holder_of(world, which)


def holder_of(world: World, which: Reference) -> str:
    path = which.kind.path(which.namespace)
    found = world.api.store.find(world.api.place(path).key(which.name))
    return "" if found is None else str(found["spec"]["holderIdentity"])


def serving(operator: Operator) -> set[str]:
    assert operator.leases is not None
    return set(operator.leases.standing().serving)


def standby(operator: Operator) -> dict[str, str]:
    assert operator.leases is not None
    return dict(operator.leases.standing().standby)


def test_a_second_operator_of_all_namespaces_is_on_standby_and_reports_it() -> None:
    async def run() -> None:
        world = World()
        async with world.living(), Operator(world, leases="a").working() as first:
            world.api.put(cluster_body())
            await until(lambda: world.ready(Kind.CLUSTER, "demo"), "the first serves it")
            async with Operator(world, leases="b").working() as second:
                await asyncio.sleep(LONG_SECONDS)
                assert second.client.landed == []
                assert standby(second) == {ALL: "is served by default/a"}
                assert serving(second) == set()
                assert serving(first) == {ALL, NAMESPACE}
                assert str(second.leases.standing()) == (  # type: ignore[union-attr]
                    "standby: the scope of all namespaces is served by default/a"
                )

    run_virtual(run())


def test_lists_that_overlap_exclude_each_other_in_each_namespace() -> None:
    async def run() -> None:
        world = World()
        for namespace in ("orders", "billing", "audit"):
            world.api.put(cluster_body(namespace=namespace))
        async with Operator(world, namespaces=("orders", "billing"), leases="a").working() as first:
            await until(lambda: serving(first) == {"orders", "billing"}, "the first serves its list")
            async with Operator(world, namespaces=("billing", "audit"), leases="b").working() as second:
                await until(lambda: places(second) == {"audit"}, "the second serves the rest")
                await asyncio.sleep(LONG_SECONDS)
                assert (places(first), places(second)) == ({"orders", "billing"}, {"audit"})
                assert standby(second) == {"billing": "is served by default/a"}

    run_virtual(run())


def test_an_operator_of_all_namespaces_does_not_write_to_namespaces_of_others() -> None:
    async def run() -> None:
        world = World()
        for namespace in ("orders", "billing"):
            world.api.put(cluster_body(namespace=namespace))
        async with Operator(world, namespaces=("billing",), leases="a").working() as first:
            await until(lambda: serving(first) == {"billing"}, "the list is served")
            async with Operator(world, leases="b").working() as second:
                await until(lambda: serving(second) == {ALL, "orders"}, "the rest is served")
                await asyncio.sleep(LONG_SECONDS)
                assert (places(first), places(second)) == ({"billing"}, {"orders"})
                assert str(second.leases.standing()) == (  # type: ignore[union-attr]
                    "serving all namespaces: orders\nstandby: namespace billing is served by default/a"
                )
            # In the reverse order, the later operator also waits for a namespace that is served.
            assert holder(world, "orders") == ""

    run_virtual(run())


def test_a_namespace_is_served_from_its_first_resource_until_its_last() -> None:
    async def run() -> None:
        world = World()
        async with Operator(world, leases="a").working() as operator:
            await until(lambda: serving(operator) == {ALL}, "it serves all namespaces, and none has resources")
            world.api.put(cluster_body(namespace="orders"))
            await until(lambda: serving(operator) == {ALL, "orders"}, "it is acquired", 5.0)
            world.api.store.delete(world.api.place(Kind.CLUSTER.path("orders")).key("demo"), {})
            await until(lambda: holder(world, "orders") == "", "it is released")
            assert serving(operator) == {ALL}
            world.api.put(cluster_body(namespace="orders"))
            await until(lambda: holder(world, "orders") == "default/a", "it is acquired again", 5.0)

    run_virtual(run())


def test_a_standby_takes_over_when_the_first_operator_ends_in_order() -> None:
    async def run() -> None:
        world, now = World(), asyncio.get_running_loop().time
        world.api.put(cluster_body())
        async with world.living(), AsyncExitStack() as stack:
            first = await stack.enter_async_context(Operator(world, leases="a").working())
            await until(lambda: world.ready(Kind.CLUSTER, "demo"), "the first serves it")
            async with Operator(world, leases="b").working() as second:
                await asyncio.sleep(LONG_SECONDS)
                began = now()
                await stack.aclose()
                await until(lambda: NAMESPACE in serving(second), "the second serves it")
                assert now() - began <= 2 * RETRY_SECONDS
                assert max(time for time, _ in first.client.landed) <= began

    run_virtual(run())


def test_a_standby_takes_over_after_the_first_operator_died() -> None:
    async def run() -> None:
        world, now = World(), asyncio.get_running_loop().time
        world.api.put(cluster_body())
        async with world.living(), Operator(world, leases="a").working() as first:
            await until(lambda: world.ready(Kind.CLUSTER, "demo"), "the first serves it")
            async with Operator(world, leases="b").working() as second:
                await asyncio.sleep(LONG_SECONDS)
                began = now()
                first.client.line.cut = first.lease_client.line.cut = True
                await until(lambda: NAMESPACE in serving(second), "the second serves it")
                # It does not wait for the Leases of namespaces, because they ended with the Lease for all namespaces.
                assert TIMES.duration - TIMES.renew <= now() - began <= TIMES.duration + 2 * RETRY_SECONDS + 1
                assert serving(first) == set()

    run_virtual(run())


def test_a_write_of_a_replaced_operator_is_not_carried_out() -> None:
    """Its Leases cannot be renewed. It sends a write each second, and each takes some time to arrive."""

    async def run(delay: float) -> None:
        world, now = World(), asyncio.get_running_loop().time
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(Operator(world, leases="a").working())
            second = await stack.enter_async_context(Operator(world, leases="b").working())
            world.api.put(cluster_body())
            await until(lambda: NAMESPACE in serving(first), "the first serves it")
            first.client.line.delay_seconds = delay
            first.lease_client.line.cut = True
            assert first.leases is not None
            client = first.client.fenced(first.leases.fence(NAMESPACE))
            writes = []
            for number in range(TIMES.duration):
                writes.append(asyncio.create_task(client.apply(config_map(f"late-{number}"))))
                await asyncio.sleep(1)
            await until(lambda: NAMESPACE in serving(second), "the second serves it")
            gained = now()
            answers = await asyncio.gather(*writes, return_exceptions=True)
            landed = [time for time, _ in first.client.landed]
            assert max(landed) < gained
            assert isinstance(answers[-1], FencedError)
            assert any(isinstance(answer, dict) for answer in answers) == (delay < TIMES.duration - 2 * TIMES.margin)

    for delay in (0.5, 3.0, 8.0, 14.0):
        run_virtual(run(delay))


def config_map(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": NAMESPACE}}


def test_a_lost_namespace_is_served_again_once_it_is_free_while_others_stay_served() -> None:
    async def run() -> None:
        world = World()
        for namespace in ("orders", "billing"):
            world.api.put(cluster_body(namespace=namespace))
        async with Operator(world, leases="a").working() as operator:
            await until(lambda: serving(operator) == {ALL, "orders", "billing"}, "both are served")
            key = world.api.place(Kind.LEASE.path("billing")).key(LEASE)
            world.api.store.merge(key, {"spec": {"holderIdentity": "thief"}})
            await until(lambda: serving(operator) == {ALL, "orders"}, "one is lost", TIMES.duration)
            assert standby(operator) == {"billing": "is served by thief"}
            before = len(operator.client.landed)
            operator.manager.cluster_changed(cluster_body(namespace="billing"), deleted=False)
            await asyncio.sleep(TIMES.duration / 2)
            assert {place(asked) for _, asked in operator.client.landed[before:]} <= {"orders"}
            await until(lambda: serving(operator) == {ALL, "orders", "billing"}, "the thief is gone")

    run_virtual(run())


def test_slow_and_limited_writes_delay_no_renewal() -> None:
    async def run() -> None:
        world = World()
        world.api.put(cluster_body())
        world.api.faults.concerns = lambda asked: "/leases/" not in asked.path
        async with Operator(world, leases="a").working() as operator:
            await until(lambda: NAMESPACE in serving(operator), "it is served")
            world.api.faults.delay_seconds = 14.0
            for _ in range(int(LONG_SECONDS)):
                await asyncio.sleep(1)
                assert NAMESPACE in serving(operator)

    run_virtual(run())


def test_topics_of_a_namespace_that_is_being_deleted_lose_their_finalizers() -> None:
    """Kubernetes deletes the Lease with the namespace, and accepts no new one."""

    async def run() -> None:
        world = World()
        world.api.put(cluster_body())
        body = topic_body("orders", deletion="Delete")
        body["metadata"]["finalizers"] = [FINALIZERS[Kind.TOPIC]]
        world.api.put(body)
        async with Operator(world, leases="a").working() as operator:
            # The operator removes finalizers without reading ZooKeeper only after it has stopped serving the namespace.
            operator.zookeeper_trouble = ConnectionLost("nobody answers")
            await until(lambda: NAMESPACE in serving(operator), "it is served")
            world.api.before_write = refuse_leases
            for kind, name in ((Kind.LEASE, LEASE), (Kind.TOPIC, "orders")):
                world.delete(kind, name)
            await until(lambda: world.find(Kind.TOPIC, "orders") is None, "its finalizer is removed")
            assert serving(operator) == {ALL}

    run_virtual(run())


def refuse_leases(asked: Asked) -> None:
    if asked.path == Kind.LEASE.path(NAMESPACE):
        message = f"unable to create new content in namespace {NAMESPACE} because it is being terminated"
        raise ApiError(HTTPStatus.FORBIDDEN, "Forbidden", message)


def test_an_operator_without_the_right_to_leases_reports_it_and_writes_nothing() -> None:
    async def run() -> None:
        world = World()
        world.api.put(cluster_body())
        world.api.faults.concerns = lambda asked: "/leases" in asked.path
        world.api.faults.status = 403
        async with Operator(world, leases="a").working() as operator:
            await asyncio.sleep(LONG_SECONDS)
            assert operator.client.landed == []
            assert "its Lease cannot be acquired: Kubernetes: GET" in standby(operator)[ALL]

    run_virtual(run())


def test_all_leases_are_released_at_the_end() -> None:
    async def run() -> None:
        world = World()
        for namespace in ("orders", "billing"):
            world.api.put(cluster_body(namespace=namespace))
        async with Operator(world, leases="a").working() as operator:
            await until(lambda: serving(operator) == {ALL, "orders", "billing"}, "both are served")
            assert holder_of(world, ALL_LEASE) == "default/a"
        assert [holder(world, namespace) for namespace in ("orders", "billing")] == ["", ""]
        assert holder_of(world, ALL_LEASE) == ""

    run_virtual(run())


def test_without_leader_election_everything_is_served() -> None:
    assert Alone().standing() == Standing(serving=(ALL,))
    assert str(Alone(("b", "a")).standing()) == "serving a, b"
    assert Alone().holds("anything") and Alone().fence("anything") is None and not Alone().is_closing("anything")
