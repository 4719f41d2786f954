"""Metrics and probes over HTTP, served from threads of their own: broker, ZooKeeper pod, exporter and operator.

Enters: a table of paths and what answers each. Leaves: answers of one request a connection. Each request asks the
event loop for its answer and waits a bounded time: a loop that stands still therefore fails its liveness probe, which
an HTTP server on the loop could not tell from a slow one. What a peer may take is bounded too: the bytes of a request,
its time, and the number of connections. Built by whoever has something to tell; GET and HEAD only, no TLS.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeoutError
from http import HTTPStatus
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import BoundedSemaphore, Thread
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from odradek.base.errors import ConfigError

logger = logging.getLogger(__name__)

LOOP_ANSWER_SECONDS: Final = 5.0
"""Longest wait for the event loop before a request is answered with 503."""

REQUEST_SECONDS: Final = 5.0
"""A peer has this long for the whole of its request, and as long again to take the answer."""

MAX_REQUEST_BYTES: Final = 16_384
"""Request line and header together; Prometheus and kubelets send under 500 bytes."""

MAX_CONNECTIONS: Final = 64
"""More at a time are closed unanswered."""

_POLL_SECONDS: Final = 0.1
_PLAIN: Final = "text/plain; charset=utf-8"
_HEADER_END: Final = b"\r\n\r\n"


class Request(NamedTuple):
    """What of a request matters to an answer."""

    path: str
    query: str
    accept: str


class Response(NamedTuple):
    """One answer."""

    status: HTTPStatus
    content_type: str
    body: bytes


class Probe(NamedTuple):
    """Whether a probe passes, and why or why not."""

    passed: bool
    reason: str


Route = Callable[[Request], Response | Awaitable[Response]]
"""Called on the event loop. What it raises becomes a 500 and a line in the log."""


class _BadRequestError(Exception):
    """The peer's request is none; the status says in which way."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status: Final = status


def text(body: str, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """An answer of plain text, ended by a line feed."""
    return Response(status, _PLAIN, f"{body}\n".encode())


def json_answer(value: object, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """An answer of JSON; `value` is of what `json.dumps` takes."""
    return Response(status, "application/json", json.dumps(value, separators=(",", ":")).encode() + b"\n")


def probe_route(probe: Callable[[], Probe]) -> Route:
    """A path that answers 200 while the probe passes, else 503, with its reason."""

    def answer(_: Request) -> Response:
        passed, reason = probe()
        return text(reason, HTTPStatus.OK if passed else HTTPStatus.SERVICE_UNAVAILABLE)

    return answer


def metrics_route(registry: CollectorRegistry) -> Route:
    """A path for Prometheus, in the text format that its Accept header asks for; collectors run on the event loop."""

    def answer(request: Request) -> Response:
        encode, content_type = choose_encoder(request.accept)
        return Response(HTTPStatus.OK, content_type, encode(registry))

    return answer


class HttpServer:
    """Serves a table of paths; `start` and `close` are called on the event loop."""

    def __init__(self, *, host: str, port: int, routes: Mapping[str, Route], setting: str = "metrics.port") -> None:
        """`port` 0 takes a free one; `setting` names the port in errors."""
        self._address: Final = (host, port)
        self._routes: Final = dict(routes)
        self._setting: Final = setting
        self._server: _Server | None = None
        self._thread: Thread | None = None

    def start(self) -> None:
        """Listen. Raises `ConfigError` when the address cannot be had."""
        host, port = self._address
        try:
            server = _Server(self._address, self._answer, asyncio.get_running_loop())
        except OSError as error:
            raise ConfigError(
                f"{self._setting}={port}: cannot listen on {host}:{port} ({error.strerror}); free it or choose another"
            ) from error
        self._server = server
        self._thread = Thread(target=server.serve_forever, args=(_POLL_SECONDS,), name="http", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._address[1] if self._server is None else int(self._server.server_address[1])

    async def close(self) -> None:
        """Stop listening; idempotent. Requests under way are not waited for."""
        server, thread, self._server, self._thread = self._server, self._thread, None, None
        if server is None or thread is None:
            return
        await asyncio.to_thread(server.shutdown)
        server.server_close()
        await asyncio.to_thread(thread.join)

    async def _answer(self, request: Request) -> Response:
        route = self._routes.get(request.path)
        if route is None:
            return text(f"Here are {', '.join(sorted(self._routes))}.", HTTPStatus.NOT_FOUND)
        try:
            answer = route(request)
            return await answer if inspect.isawaitable(answer) else answer
        except Exception:
            # Whatever a collector raises is a bug of its own: the peer is told, the server goes on.
            logger.exception("%s cannot be answered", request.path)
            return text("The answer failed: see the log.", HTTPStatus.INTERNAL_SERVER_ERROR)


class _Server(ThreadingTCPServer):
    """A thread for each connection, up to `MAX_CONNECTIONS`."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = MAX_CONNECTIONS

    def __init__(
        self,
        address: tuple[str, int],
        answer: Callable[[Request], Coroutine[None, None, Response]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self._answer = answer
        self._loop = loop
        self._free = BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(address, _Connection)

    def process_request(self, request: object, client_address: object) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)  # type: ignore[arg-type]
            return
        try:
            super().process_request(request, client_address)  # type: ignore[arg-type]
        except RuntimeError:  # no thread could be begun, so none gives its place back
            self._free.release()
            raise

    def process_request_thread(self, request: object, client_address: object) -> None:
        try:
            super().process_request_thread(request, client_address)  # type: ignore[arg-type]
        finally:
            self._free.release()

    def handle_error(self, request: object, client_address: object) -> None:
        logger.debug("a connection of %s broke", client_address, exc_info=True)

    def ask_loop(self, request: Request) -> Response:
        """The loop's answer, or that it did not give one."""
        future = asyncio.run_coroutine_threadsafe(self._answer(request), self._loop)
        try:
            return future.result(LOOP_ANSWER_SECONDS)
        except (FutureTimeoutError, CancelledError):
            future.cancel()
            return text(
                f"The event loop has not answered for {LOOP_ANSWER_SECONDS:.0f} s.", HTTPStatus.SERVICE_UNAVAILABLE
            )


class _Connection(BaseRequestHandler):
    """One request, one answer, and the end."""

    request: socket.socket
    server: _Server

    def handle(self) -> None:
        method, response = "GET", None
        try:
            method, request = parse_request(self._receive())
            response = self.server.ask_loop(request)
        except _BadRequestError as error:
            response = text(str(error), error.status)
        self.request.settimeout(REQUEST_SECONDS)
        self.request.sendall(_head(response) + (b"" if method == "HEAD" else response.body))

    def _receive(self) -> bytes:
        """Everything up to the empty line, within the bounds."""
        deadline = time.monotonic() + REQUEST_SECONDS
        received = b""
        while _HEADER_END not in received:
            left = deadline - time.monotonic()
            if left <= 0:
                raise _BadRequestError(HTTPStatus.REQUEST_TIMEOUT)
            self.request.settimeout(left)
            try:
                chunk = self.request.recv(4096)
            except TimeoutError:
                continue
            if not chunk:
                raise _BadRequestError(HTTPStatus.BAD_REQUEST)
            received += chunk
            if len(received) > MAX_REQUEST_BYTES:
                raise _BadRequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        return received


def parse_request(received: bytes) -> tuple[str, Request]:
    """Method and request of a head that is complete; a body after it is not looked at."""
    lines = received.partition(_HEADER_END)[0].decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
        raise _BadRequestError(HTTPStatus.BAD_REQUEST)
    if words[0] not in ("GET", "HEAD"):
        raise _BadRequestError(HTTPStatus.METHOD_NOT_ALLOWED)
    fields = (line.partition(":") for line in lines[1:])
    accept = ",".join(value.strip() for name, _, value in fields if name.lower() == "accept")
    path, _, query = words[1].partition("?")
    return words[0], Request(path, query, accept)


def _head(response: Response) -> bytes:
    status = response.status
    return (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        f"Content-Type: {response.content_type}\r\n"
        f"Content-Length: {len(response.body)}\r\n"
        "Connection: close\r\n\r\n"
    ).encode("latin-1")
