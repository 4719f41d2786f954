"""/metrics, /healthz and /readyz, served from a thread of their own.

Each request asks the event loop for its answer and waits a bounded time: a loop that stands still therefore fails its
liveness probe, which an HTTP server on the loop could not tell from a slow one. Built and stopped by `app/broker`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import TimeoutError as FutureTimeoutError
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from odradek.base.errors import ConfigError

logger = logging.getLogger(__name__)

LOOP_ANSWER_SECONDS: Final = 5.0
"""Longest wait for the event loop before a probe is answered with 503."""


class Probe(NamedTuple):
    """Whether a probe passes, and why not."""

    passed: bool
    reason: str


class ObservationServer:
    """The HTTP side of one broker; `start` and `close` are called on the event loop."""

    def __init__(
        self,
        *,
        host: str,
        port: int,
        registry: CollectorRegistry,
        healthy: Callable[[], Probe],
        ready: Callable[[], Probe],
    ) -> None:
        """`port` 0 takes a free one. `healthy`, `ready` and the registry's collectors run on the event loop."""
        self._address = (host, port)
        self._registry = registry
        self._probes = {"/healthz": healthy, "/readyz": ready}
        self._server: ThreadingHTTPServer | None = None
        self._thread: Thread | None = None

    def start(self) -> None:
        """Listen. Raises `ConfigError` when the address is taken."""
        loop = asyncio.get_running_loop()
        try:
            server = ThreadingHTTPServer(self._address, _handler(self._answer, loop))
        except OSError as error:
            host, port = self._address
            raise ConfigError(
                f"metrics.port={port}: cannot listen on {host}:{port} ({error.strerror}); free it or choose another"
            ) from error
        server.daemon_threads = True
        self._server = server
        self._thread = Thread(target=server.serve_forever, name="observation-http", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that is listened on."""
        if self._server is None:
            return self._address[1]
        return int(self._server.server_address[1])

    async def close(self) -> None:
        """Stop listening; idempotent."""
        server, thread, self._server, self._thread = self._server, self._thread, None, None
        if server is None or thread is None:
            return
        await asyncio.to_thread(server.shutdown)
        server.server_close()
        await asyncio.to_thread(thread.join)

    async def _answer(self, path: str, accept: str) -> tuple[HTTPStatus, str, bytes]:
        probe = self._probes.get(path)
        if probe is not None:
            passed, reason = probe()
            status = HTTPStatus.OK if passed else HTTPStatus.SERVICE_UNAVAILABLE
            return status, "text/plain; charset=utf-8", f"{reason}\n".encode()
        if path == "/metrics":
            encode, content_type = choose_encoder(accept)
            return HTTPStatus.OK, content_type, encode(self._registry)
        return HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"Here are /metrics, /healthz and /readyz.\n"


def _handler(
    answer: Callable[[str, str], Coroutine[Any, Any, tuple[HTTPStatus, str, bytes]]], loop: asyncio.AbstractEventLoop
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = LOOP_ANSWER_SECONDS

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            future = asyncio.run_coroutine_threadsafe(answer(path, self.headers.get("Accept", "")), loop)
            try:
                status, content_type, body = future.result(LOOP_ANSWER_SECONDS)
            except FutureTimeoutError:
                future.cancel()
                status, content_type = HTTPStatus.SERVICE_UNAVAILABLE, "text/plain; charset=utf-8"
                body = f"The event loop has not answered for {LOOP_ANSWER_SECONDS:.0f} s.\n".encode()
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
            logger.debug("%s %s", self.address_string(), format % args)

    return Handler
