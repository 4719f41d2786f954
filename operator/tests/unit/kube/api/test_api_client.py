"""Whatever the server answers, a request returns an object or raises an error with the request and the reason."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from kubernetes.client import Configuration

from odradek_operator.kube.api.api_client import (
    MIN_WRITE_SECONDS,
    FencedError,
    KubernetesClient,
    KubernetesError,
    load_configuration,
)
from odradek_operator.kube.api.object_kinds import Kind, Reference
from odradek_operator_testkit.server import ApiServer, serving
from odradek_operator_testkit.surroundings import NAMESPACE, cluster_body

DEMO = Reference(kind=Kind.CLUSTER, namespace=NAMESPACE, name="demo")
PATH = "GET /apis/odradek.dev/v1/namespaces/shop/clusters/demo"


@asynccontextmanager
async def asking(url: str, seconds: float = 15.0, threads: int = 4) -> AsyncIterator[KubernetesClient]:
    client = KubernetesClient(Configuration(host=url), timeout_seconds=seconds, threads=threads)
    try:
        yield client
    finally:
        client.close()


async def failure(client: KubernetesClient) -> KubernetesError:
    with pytest.raises(KubernetesError) as caught:
        await client.get(Kind.CLUSTER, NAMESPACE, "demo")
    assert str(caught.value).startswith(f"Kubernetes: {PATH}: ")
    return caught.value


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with serving() as found:
        found.api.put(cluster_body())
        yield found


async def test_a_failure_of_the_server_is_an_error_with_its_status(server: ApiServer) -> None:
    async with asking(server.url) as client:
        for status in (401, 403, 429, 500, 503):
            server.api.faults.status = status
            assert (await failure(client)).status == status
        server.api.faults.status = 404
        assert await client.get(Kind.CLUSTER, NAMESPACE, "demo") is None


async def test_no_answer_is_an_error_without_a_status(server: ApiServer) -> None:
    async with asking(server.url, seconds=0.3) as client:
        server.api.faults.refuses = True
        assert (await failure(client)).status == 0
        server.api.faults.refuses = False
        server.api.faults.loses_answers = True
        assert (await failure(client)).status == 0
        server.api.faults.loses_answers = False
        server.api.faults.delay_seconds = 2.0
        assert (await failure(client)).status == 0
        server.api.faults.delay_seconds = 0.0
        await server.down()
        assert (await failure(client)).status == 0
        await server.up()
        assert await client.get(Kind.CLUSTER, NAMESPACE, "demo") is not None


async def test_a_write_whose_answer_is_lost_was_carried_out(server: ApiServer) -> None:
    async with asking(server.url) as client:
        server.api.faults.loses_answers = True
        with pytest.raises(KubernetesError):
            await client.create(cluster_body("other"))
        server.api.faults.loses_answers = False
        assert await client.get(Kind.CLUSTER, NAMESPACE, "other") is not None
        assert [asked.path for asked in server.api.writes] == ["/apis/odradek.dev/v1/namespaces/shop/clusters"]


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", 0, "no answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n<html/>", 0, "<html/>"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", 0, "no object"),
        (b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 7\r\n\r\n<html/>", 502, "<html/>"),
        (b"nonsense\r\n\r\n", 0, "no answer"),
    ],
)
async def test_answers_of_something_other_than_an_api_server_are_errors(answer: bytes, status: int, words: str) -> None:
    async def stranger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(stranger, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    async with listening, asking(f"http://127.0.0.1:{port}") as client:
        error = await failure(client)
    assert error.status == status
    assert words in error.reason


async def test_the_configuration_is_the_one_of_kubeconfig(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(server.kubeconfig(), encoding="utf-8")
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path))
    monkeypatch.setenv("KUBECONFIG", str(path))
    client = KubernetesClient(load_configuration())
    try:
        assert await client.get(Kind.CLUSTER, NAMESPACE, "demo") is not None
    finally:
        client.close()


def test_a_missing_configuration_is_an_error_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(KubernetesError, match="KUBECONFIG"):
        load_configuration()


async def test_a_write_without_enough_time_is_not_sent(server: ApiServer) -> None:
    async with asking(server.url) as client:
        fenced = client.fenced(lambda: MIN_WRITE_SECONDS / 2)
        with pytest.raises(FencedError, match="not sent: this operator no longer holds the Lease"):
            await fenced.merge(DEMO, {"metadata": {"labels": {"a": "b"}}})
        assert server.api.writes == []
        assert await fenced.get(Kind.CLUSTER, NAMESPACE, "demo") is not None, "reads need no Lease"
        assert await client.merge(DEMO, {"metadata": {"labels": {"a": "b"}}}) is not None


async def test_a_write_ends_before_its_fence(server: ApiServer) -> None:
    """Both sides enforce it: the request also contains a timeout for the server."""
    async with asking(server.url) as client:
        fenced = client.fenced(lambda: 1.5)
        await fenced.merge(DEMO, {"metadata": {"labels": {"a": "b"}}})
        (asked,) = server.api.writes
        assert 1_000 <= int(asked.query["timeout"].removesuffix("ms")) <= 1_500
        server.api.faults.delay_seconds = 60.0
        with pytest.raises(KubernetesError, match="no answer"):
            async with asyncio.timeout(10):
                await fenced.merge(DEMO, {"metadata": {"labels": {"a": "c"}}})


async def test_a_write_that_waited_too_long_for_a_thread_is_not_sent(server: ApiServer) -> None:
    async with asking(server.url, threads=1) as client:
        server.api.faults.delay_seconds = 1.0
        reads = [asyncio.create_task(client.get(Kind.CLUSTER, NAMESPACE, "demo")) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(FencedError):
            await client.fenced(lambda: 2.0).merge(DEMO, {"metadata": {"labels": {"a": "b"}}})
        await asyncio.gather(*reads)
        assert server.api.writes == []


async def test_an_object_that_changed_since_it_was_read_is_not_deleted(server: ApiServer) -> None:
    async with asking(server.url) as client:
        body = await client.get(Kind.CLUSTER, NAMESPACE, "demo")
        assert body is not None
        await client.merge(DEMO, {"metadata": {"labels": {"a": "b"}}})
        uid, version = body["metadata"]["uid"], body["metadata"]["resourceVersion"]
        assert not await client.delete(DEMO, uid=uid, version=version)
        assert await client.get(Kind.CLUSTER, NAMESPACE, "demo") is not None
        assert await client.delete(DEMO, uid=uid)
