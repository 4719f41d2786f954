"""The process of the operator: it waits for its CRDs and Leases, reconciles, reports its state, and stops in order."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from odradek.testing.free_ports import free_ports
from odradek_operator.kube.api.object_kinds import Kind, Object
from odradek_operator.kube.scopes import ALL_LEASE, LEASE
from odradek_operator_testkit.server import ApiServer, serving
from odradek_operator_testkit.surroundings import NAMESPACE, cluster_body, condition

PROGRAM = Path(sys.executable).with_name("odradek-operator")
SECONDS = 120.0


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with serving() as found:
        yield found


class Process:
    """A running operator."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self._process = process
        self._port = port

    async def text(self, path: str) -> tuple[int, str]:
        """Return the status and the text of an answer; status 0 while nothing listens."""
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://127.0.0.1:{self._port}{path}") as answer,
            ):
                return answer.status, await answer.text()
        except aiohttp.ClientError:
            return 0, ""

    async def end(self) -> int:
        """Send SIGTERM and return the exit code."""
        self._process.send_signal(signal.SIGTERM)
        return await self.ended()

    async def ended(self) -> int:
        """Wait until the process exits, and return the exit code."""
        async with asyncio.timeout(SECONDS):
            return await self._process.wait()


@asynccontextmanager
async def running(server: ApiServer, folder: Path, name: str) -> AsyncIterator[Process]:
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(server.kubeconfig(), encoding="utf-8")
    (port,) = free_ports(1)
    options = [f"--identity={name}", "--namespace=odradek", f"--metrics-port={port}"]
    process = await asyncio.create_subprocess_exec(
        PROGRAM, "run", *options, env={"KUBECONFIG": str(kubeconfig), "HOME": str(folder), "PATH": ""}
    )
    try:
        yield Process(process, port)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def until(accept: Callable[[], object]) -> None:
    async with asyncio.timeout(SECONDS):
        while not accept():  # noqa: ASYNC110 - another process brings it about
            await asyncio.sleep(0.05)


async def reports(process: Process, path: str, message: str) -> int:
    """Wait until the text contains `message`, and return the status."""
    async with asyncio.timeout(SECONDS):
        while message not in (answer := await process.text(path))[1]:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)
    return answer[0]


def found(server: ApiServer, kind: Kind, namespace: str, name: str) -> Object | None:
    path = kind.path(namespace, name)
    return server.api.store.find(server.api.place(path).key(name))


def holder(server: ApiServer, namespace: str = "default", name: str = ALL_LEASE.name) -> str:
    lease = found(server, Kind.LEASE, namespace, name)
    return "" if lease is None else str(lease["spec"]["holderIdentity"])


async def test_it_reconciles_and_ends_in_order(server: ApiServer, tmp_path: Path) -> None:
    # Nothing listens on this port, so the operator reports that ZooKeeper is unreachable.
    (nobody,) = free_ports(1)
    server.api.put(cluster_body(zookeeper={"connect": f"127.0.0.1:{nobody}"}))
    server.api.faults.status = 404
    server.api.faults.concerns = lambda asked: "odradek.dev" in asked.path
    async with running(server, tmp_path, "operator-0") as process:
        await reports(process, "/readyz", "waiting for the resources of odradek.dev/v1")
        assert found(server, Kind.STATEFUL_SET, NAMESPACE, "demo-kafka") is None
        server.api.faults.status = 0

        def reason() -> str:
            return condition(found(server, Kind.CLUSTER, NAMESPACE, "demo"))[1]

        await until(lambda: reason() == "ZooKeeperUnreachable")
        # Without ZooKeeper, the operator does not know whether other brokers have these ids.
        assert found(server, Kind.STATEFUL_SET, NAMESPACE, "demo-kafka") is None
        server.api.store.delete(server.api.place(Kind.SERVICE.path(NAMESPACE)).key("demo-kafka-brokers"), {})
        await until(lambda: found(server, Kind.SERVICE, NAMESPACE, "demo-kafka-brokers") is not None)
        assert holder(server) == holder(server, NAMESPACE, LEASE) == "odradek/operator-0"
        assert await process.text("/readyz") == (200, "at work\nserving all namespaces: shop\n")
        assert (await process.text("/leader"))[0] == 200
        status, text = await process.text("/metrics")
        assert status == 200
        assert 'strimzi_reconciliations_failed_total{kind="Kafka",namespace="*",selector=""}' in text
        for series in ("jvm_memory_used_bytes", "jvm_gc_pause_seconds_sum", "jvm_gc_pause_seconds_count"):
            assert f"\n{series}" in text, series
        assert f'odradek_operator_leader{{scope="{NAMESPACE}"}} 1.0' in text
        assert await process.end() == 0
    assert holder(server) == holder(server, NAMESPACE, LEASE) == "", "released at once"


async def test_a_second_operator_is_on_standby_and_takes_over(server: ApiServer, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with running(server, tmp_path / "a", "a") as first:
        await until(lambda: holder(server) == "odradek/a")
        async with running(server, tmp_path / "b", "b") as second:
            message = "standby: the scope of all namespaces is served by odradek/a"
            assert await reports(second, "/readyz", message) == 200
            status, text = await second.text("/leader")
            assert (status, message in text) == (503, True)
            assert 'odradek_operator_leader{scope="*"} 0.0' in (await second.text("/metrics"))[1]
            assert await first.end() == 0
            await until(lambda: holder(server) == "odradek/b")
            assert await reports(second, "/leader", "serving all namespaces") == 200
            assert await second.end() == 0
    assert holder(server) == ""


async def test_a_namespace_whose_lease_another_holder_took_is_not_served_until_it_is_free(
    server: ApiServer, tmp_path: Path
) -> None:
    server.api.put(cluster_body())
    async with running(server, tmp_path, "a") as process:
        await until(lambda: holder(server, NAMESPACE, LEASE) == "odradek/a")
        key = server.api.place(Kind.LEASE.path(NAMESPACE)).key(LEASE)
        server.api.store.merge(key, {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 1}})
        await reports(process, "/readyz", f"standby: namespace {NAMESPACE} is served by thief")
        await until(lambda: holder(server, NAMESPACE, LEASE) == "odradek/a")
        assert await process.end() == 0
