"""An HTTP server for metrics and probes with its own threads: for broker, ZooKeeper pod, exporter and operator.

Each connection serves one request, GET or HEAD, without TLS. The server passes a request to the route's function on the
event loop and waits a limited time. So a blocked loop fails its liveness probe, while a server on the loop could not
answer at all. The size and time of a request and the number of connections are limited as well.
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
from odradek.metrics.rendered import RenderedGauges

logger = logging.getLogger(__name__)

LOOP_ANSWER_SECONDS: Final = 5.0
"""Maximum wait for the event loop before a request is answered with 503."""

REQUEST_SECONDS: Final = 5.0
"""Time for a peer to send its whole request, and again to receive the response."""

MAX_REQUEST_BYTES: Final = 16_384
"""Request line and headers together; Prometheus and kubelets send less than 500 bytes."""

MAX_CONNECTIONS: Final = 64
"""Further connections are closed without an answer."""

_POLL_SECONDS: Final = 0.1
_PLAIN: Final = "text/plain; charset=utf-8"
_HEADER_END: Final = b"\r\n\r\n"


class HttpRequest(NamedTuple):
    """The parts of a request that routes use."""

    path: str
    query: str
    accept: str


class HttpResponse(NamedTuple):
    """One response."""

    status: HTTPStatus
    content_type: str
    body: bytes


class Probe(NamedTuple):
    """Whether a probe passes, and why."""

    passed: bool
    reason: str


Route = Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]
"""Called on the event loop. An exception is logged and answered with status 500."""


class _BadRequestError(Exception):
    """The request is invalid; the status says how."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status: Final = status


def text(body: str, status: HTTPStatus = HTTPStatus.OK) -> HttpResponse:
    """Return a response of plain text that ends with a line feed."""
    return HttpResponse(status, _PLAIN, f"{body}\n".encode())


def json_answer(value: object, status: HTTPStatus = HTTPStatus.OK) -> HttpResponse:
    """Return a response of JSON. `value` must be supported by `json.dumps`."""
    return HttpResponse(status, "application/json", json.dumps(value, separators=(",", ":")).encode() + b"\n")


def probe_route(probe: Callable[[], Probe]) -> Route:
    """Return a route that answers 200 if the probe passes and 503 otherwise, with its message."""

    def answer(_: HttpRequest) -> HttpResponse:
        passed, reason = probe()
        return text(reason, HTTPStatus.OK if passed else HTTPStatus.SERVICE_UNAVAILABLE)

    return answer


def metrics_route(registry: CollectorRegistry, rendered: RenderedGauges | None = None) -> Route:
    """Return a route for Prometheus, in the text format of its Accept header. Collectors run on the event loop."""

    def answer(request: HttpRequest) -> HttpResponse:
        encode, content_type = choose_encoder(request.accept)
        body = encode(registry)
        return HttpResponse(HTTPStatus.OK, content_type, body if rendered is None else rendered.added_to(body))

    return answer


class HttpServer:
    """Serves routes by path. Call `start` and `close` on the event loop."""

    def __init__(self, *, host: str, port: int, routes: Mapping[str, Route], setting: str = "metrics.port") -> None:
        """`port` 0 chooses a free port; `setting` is the name of the port's setting in errors."""
        self._address: Final = (host, port)
        self._routes: Final = dict(routes)
        self._setting: Final = setting
        self._server: _Server | None = None
        self._thread: Thread | None = None

    def start(self) -> None:
        """Listen. Raises `ConfigError` if the address is not available."""
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
        """The port that it listens on."""
        return self._address[1] if self._server is None else int(self._server.server_address[1])

    async def close(self) -> None:
        """Stop listening. Does not wait for requests in progress. Idempotent."""
        server, thread, self._server, self._thread = self._server, self._thread, None, None
        if server is None or thread is None:
            return
        await asyncio.to_thread(server.shutdown)
        server.server_close()
        await asyncio.to_thread(thread.join)

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        route = self._routes.get(request.path)
        if route is None:
            return text(f"Here are {', '.join(sorted(self._routes))}.", HTTPStatus.NOT_FOUND)
        try:
            answer = route(request)
            return await answer if inspect.isawaitable(answer) else answer
        except Exception:
            # An exception of a collector is a bug there: answer with an error, and go on serving.
            logger.exception("%s cannot be answered", request.path)
            return text("The answer failed: see the log.", HTTPStatus.INTERNAL_SERVER_ERROR)


class _Server(ThreadingTCPServer):
    """One thread per connection, up to `MAX_CONNECTIONS`."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = MAX_CONNECTIONS

    def __init__(
        self,
        address: tuple[str, int],
        answer: Callable[[HttpRequest], Coroutine[None, None, HttpResponse]],
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

    def ask_loop(self, request: HttpRequest) -> HttpResponse:
        """Return the response of the event loop, or 503 if it does not answer in time."""
        future = asyncio.run_coroutine_threadsafe(self._answer(request), self._loop)
        try:
            return future.result(LOOP_ANSWER_SECONDS)
        except (FutureTimeoutError, CancelledError):
            future.cancel()
            return text(
                f"The event loop has not answered for {LOOP_ANSWER_SECONDS:.0f} s.", HTTPStatus.SERVICE_UNAVAILABLE
            )


class _Connection(BaseRequestHandler):
    """One request and its response."""

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
        """Read up to the empty line, within the limits."""
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


def parse_request(received: bytes) -> tuple[str, HttpRequest]:
    """Return method and request of complete headers; a body is ignored."""
    lines = received.partition(_HEADER_END)[0].decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
        raise _BadRequestError(HTTPStatus.BAD_REQUEST)
    if words[0] not in ("GET", "HEAD"):
        raise _BadRequestError(HTTPStatus.METHOD_NOT_ALLOWED)
    fields = (line.partition(":") for line in lines[1:])
    accept = ",".join(value.strip() for name, _, value in fields if name.lower() == "accept")
    path, _, query = words[1].partition("?")
    return words[0], HttpRequest(path, query, accept)


def _head(response: HttpResponse) -> bytes:
    status = response.status
    return (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        f"Content-Type: {response.content_type}\r\n"
        f"Content-Length: {len(response.body)}\r\n"
        "Connection: close\r\n\r\n"
    ).encode("latin-1")
