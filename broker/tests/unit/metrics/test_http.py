"""The HTTP server of metrics and probes: responses, limits, and a blocked loop or unavailable port."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
from collections.abc import AsyncIterator
from http import HTTPStatus

import pytest
from prometheus_client import CollectorRegistry, Counter

from odradek.base.errors import ConfigError
from odradek.metrics import http as module
from odradek.metrics.http import (
    HttpRequest,
    HttpResponse,
    HttpServer,
    Probe,
    json_answer,
    metrics_route,
    parse_request,
    probe_route,
    text,
)


class Probes:
    def __init__(self) -> None:
        self.ready = Probe(False, "loading logs")

    def is_ready(self) -> Probe:
        return self.ready


async def slowly(request: HttpRequest) -> HttpResponse:
    await asyncio.sleep(0)
    return json_answer({"query": request.query})


async def never(_: HttpRequest) -> HttpResponse:
    await asyncio.Event().wait()
    raise AssertionError


def broken(_: HttpRequest) -> HttpResponse:
    raise LookupError("a secret detail")


def make(probes: Probes, port: int = 0) -> HttpServer:
    registry = CollectorRegistry()
    Counter("seen", "Things seen.", registry=registry).inc()
    routes = {
        "/metrics": metrics_route(registry),
        "/readyz": probe_route(probes.is_ready),
        "/slowly": slowly,
        "/never": never,
        "/broken": broken,
    }
    return HttpServer(host="127.0.0.1", port=port, routes=routes)


@pytest.fixture
async def served() -> AsyncIterator[tuple[HttpServer, Probes]]:
    probes = Probes()
    server = make(probes)
    server.start()
    yield server, probes
    await server.close()
    await server.close()


async def get(server: HttpServer, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    def ask() -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        answer = response.status, response.read().decode()
        connection.close()
        return answer

    return await asyncio.to_thread(ask)


async def raw(server: HttpServer, sent: bytes) -> bytes:
    """Send these bytes and return the whole response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(sent)
    try:
        return await reader.read()
    finally:
        writer.close()


async def test_probes(served: tuple[HttpServer, Probes]) -> None:
    server, probes = served
    assert await get(server, "/readyz") == (503, "loading logs\n")
    probes.ready = Probe(True, "ready")
    assert await get(server, "/readyz?verbose") == (200, "ready\n")


async def test_metrics_in_the_requested_format(served: tuple[HttpServer, Probes]) -> None:
    status, body = await get(served[0], "/metrics")
    assert status == 200
    assert "seen_total 1.0" in body
    assert "# EOF" not in body
    assert (await get(served[0], "/metrics", Accept="application/openmetrics-text"))[1].endswith("# EOF\n")


async def test_an_unknown_path_lists_the_known_ones(served: tuple[HttpServer, Probes]) -> None:
    status, body = await get(served[0], "/")
    assert status == 404
    assert "/metrics, /never, /readyz" in body


async def test_an_answer_may_be_awaited(served: tuple[HttpServer, Probes]) -> None:
    status, body = await get(served[0], "/slowly?a=1")
    assert status == 200
    assert json.loads(body) == {"query": "a=1"}


async def test_an_internal_error_is_not_exposed(served: tuple[HttpServer, Probes]) -> None:
    status, body = await get(served[0], "/broken")
    assert status == 500
    assert "secret" not in body


async def test_head_has_no_body_and_other_methods_are_refused(served: tuple[HttpServer, Probes]) -> None:
    assert await get(served[0], "/metrics", "HEAD") == (200, "")
    assert (await get(served[0], "/metrics", "POST"))[0] == 405


async def test_a_blocked_loop_is_reported(served: tuple[HttpServer, Probes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOP_ANSWER_SECONDS", 0.05)
    status, body = await get(served[0], "/never")
    assert status == 503
    assert "has not answered" in body


async def test_an_endless_header_is_refused(served: tuple[HttpServer, Probes]) -> None:
    answer = await raw(served[0], b"GET / HTTP/1.1\r\nX: " + b"y" * module.MAX_REQUEST_BYTES)
    assert answer.startswith(b"HTTP/1.1 431 ")


async def test_slow_header_is_given_up(served: tuple[HttpServer, Probes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REQUEST_SECONDS", 0.05)
    assert (await raw(served[0], b"GET / HT")).startswith(b"HTTP/1.1 408 ")


async def test_too_many_connections_are_closed_and_places_come_back(
    served: tuple[HttpServer, Probes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REQUEST_SECONDS", 120.0)  # so that no connection is released by a timeout
    server = served[0]
    held = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(module.MAX_CONNECTIONS)]
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        assert await reader.read() == b""
        writer.close()
        for _, writer in held[:2]:
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
        for reader, _ in held[:2]:
            assert (await reader.read()).startswith(b"HTTP/1.1 404 ")
    finally:
        for _, writer in held:
            writer.close()

    def is_served() -> bool:
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
            try:
                connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
                return connection.recv(12) == b"HTTP/1.1 404"
            except ConnectionError:
                return False

    async with asyncio.timeout(30):
        while not await asyncio.to_thread(is_served):
            continue


async def test_a_port_in_use_is_reported(served: tuple[HttpServer, Probes]) -> None:
    second = make(served[1], served[0].port)
    with pytest.raises(ConfigError, match=r"metrics\.port"):
        second.start()
    await second.close()


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"GET /metrics HTTP/1.1\r\nAccept: text/plain\r\n\r\n", ("GET", HttpRequest("/metrics", "", "text/plain"))),
        (b"HEAD /a?b=c?d HTTP/1.0\r\naccept: x\r\nAccept:y\r\n\r\nbody", ("HEAD", HttpRequest("/a", "b=c?d", "x,y"))),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", ("GET", HttpRequest("/", "", ""))),
    ],
)
def test_requests_are_read(head: bytes, expected: tuple[str, HttpRequest]) -> None:
    assert parse_request(head) == expected


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"GET http://x/ HTTP/1.1\r\n\r\n", 400),
        (b"GET / SPDY/1\r\n\r\n", 400),
        (b"DELETE / HTTP/1.1\r\n\r\n", 405),
    ],
)
def test_an_invalid_request_is_refused(head: bytes, status: int) -> None:
    with pytest.raises(module._BadRequestError) as caught:
        parse_request(head)
    assert caught.value.status == status


def test_answers_carry_their_kind() -> None:
    assert text("no", HTTPStatus.NOT_FOUND) == HttpResponse(HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"no\n")
    assert json_answer([1, "ä"]).body == b'[1,"\\u00e4"]\n'
