"""The observation server: probes, metrics, and what it answers when the loop or the port is not there."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import AsyncIterator

import pytest
from prometheus_client import CollectorRegistry, Counter

from odradek.app.http import ObservationServer, Probe
from odradek.base.errors import ConfigError


class Probes:
    def __init__(self) -> None:
        self.ready = Probe(False, "loading logs")

    def healthy(self) -> Probe:
        return Probe(True, "ok")

    def is_ready(self) -> Probe:
        return self.ready


def make(probes: Probes, port: int = 0) -> ObservationServer:
    registry = CollectorRegistry()
    Counter("seen", "Things seen.", registry=registry).inc()
    return ObservationServer(
        host="127.0.0.1", port=port, registry=registry, healthy=probes.healthy, ready=probes.is_ready
    )


@pytest.fixture
async def served() -> AsyncIterator[tuple[ObservationServer, Probes]]:
    probes = Probes()
    server = make(probes)
    server.start()
    yield server, probes
    await server.close()
    await server.close()


async def get(server: ObservationServer, path: str) -> tuple[int, str]:
    def ask() -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        connection.request("GET", path)
        response = connection.getresponse()
        answer = response.status, response.read().decode()
        connection.close()
        return answer

    return await asyncio.to_thread(ask)


async def test_probes(served: tuple[ObservationServer, Probes]) -> None:
    server, probes = served
    assert await get(server, "/healthz") == (200, "ok\n")
    assert await get(server, "/readyz") == (503, "loading logs\n")
    probes.ready = Probe(True, "ready")
    assert await get(server, "/readyz?verbose") == (200, "ready\n")


async def test_metrics_and_unknown_path(served: tuple[ObservationServer, Probes]) -> None:
    status, body = await get(served[0], "/metrics")
    assert status == 200
    assert "seen_total 1.0" in body
    assert (await get(served[0], "/"))[0] == 404


async def test_port_in_use_is_told(served: tuple[ObservationServer, Probes]) -> None:
    second = make(served[1], served[0].port)
    with pytest.raises(ConfigError, match=r"metrics\.port"):
        second.start()
    await second.close()
