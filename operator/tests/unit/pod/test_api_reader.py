"""Reads from a real HTTP server whose answers are correct, wrong, late, too large or missing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from odradek.testing.free_ports import free_ports
from odradek_operator.errors import PodError
from odradek_operator.pod import api_reader as api
from odradek_operator.pod.addresses import Json
from odradek_operator.pod.api_reader import ApiReader, ApiReadError, read_patiently


class Server(ThreadingHTTPServer):
    """A server that answers every GET in the same way and records the requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status, self.body = 200, b"{}"
        self.asked: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
        """Log nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def test_objects_are_read_with_the_token_of_the_service_account(server: Server, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    reader = ApiReader(server.url, token=token)
    server.body = b'{"kind": "Node"}'
    assert reader.node("a") == {"kind": "Node"}
    token.write_text("renewed")
    reader.service("events", "s")
    assert server.asked == [
        ("/api/v1/nodes/a", "Bearer secret"),
        ("/api/v1/namespaces/events/services/s", "Bearer renewed"),
    ]


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (403, b"{}", "403 Forbidden: the pod's service account may not read it"),
        (404, b"{}", "404 Not Found: it does not exist"),
        (500, b"", "500 Internal Server Error"),
        (200, b"<html>", "not JSON"),
        (200, b"[]", "not a JSON object"),
        (200, b"\xff", "not JSON"),
    ],
)
def test_an_answer_that_is_not_an_object_is_an_error(server: Server, status: int, body: bytes, message: str) -> None:
    server.status, server.body = status, body
    with pytest.raises(ApiReadError, match=message):
        ApiReader(server.url).node("a")


def test_an_endless_answer_is_cut_off(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "MAX_ANSWER_BYTES", 8)
    server.body = b'{"a": "bcdefg"}'
    with pytest.raises(ApiReadError, match="longer than 8 bytes"):
        ApiReader(server.url).node("a")


def test_an_unreachable_server_is_an_error() -> None:
    (port,) = free_ports(1)
    with pytest.raises(ApiReadError, match="cannot be reached"):
        ApiReader(f"http://127.0.0.1:{port}").node("a")


def test_a_missing_token_is_an_error(server: Server, tmp_path: Path) -> None:
    with pytest.raises(ApiReadError, match="token"):
        ApiReader(server.url, token=tmp_path / "token").node("a")


def test_a_pod_without_a_service_account_is_an_error(tmp_path: Path) -> None:
    variables = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(PodError, match="automountServiceAccountToken"):
        ApiReader.in_pod(variables, tmp_path)
    with pytest.raises(PodError, match="KUBERNETES_SERVICE_HOST"):
        ApiReader.in_pod({}, tmp_path)


class Time:
    """A clock that only pauses advance."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def clock(self) -> float:
        return self.now


def test_reads_are_retried_with_growing_pauses() -> None:
    time, failures = Time(), iter(range(6))

    def read() -> Json:
        if next(failures, None) is not None:
            raise ApiReadError("it cannot be reached")
        return {"kind": "Node"}

    assert read_patiently("node a", read, pause=time.pause, clock=time.clock) == {"kind": "Node"}
    assert time.pauses == [0.5, 1, 2, 4, 8, 8]


def test_retries_end_with_the_last_error() -> None:
    time = Time()

    def read() -> Json:
        raise ApiReadError("it answers 403 Forbidden")

    with pytest.raises(
        PodError, match="node a could not be read from the API server for 120 s: it answers 403 Forbidden"
    ):
        read_patiently("node a", read, pause=time.pause, clock=time.clock)
    assert 110 < time.now <= 120
