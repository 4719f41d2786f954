"""The HTTP client against a server on the loopback interface."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from odradek.base.errors import ConfigError
from odradek.security.sasl.http_client import (
    MAX_RESPONSE,
    HttpClient,
    HttpError,
    OutboundRequest,
    OutboundResponse,
    issuer_context,
)
from odradek_testkit.security.certificates import Authority, pem

AUTHORITY = Authority.root()

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ENDLESS = {
    "/interim": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "/chunks": (CHUNKED, b"5\r\n12345\r\n"),
    "/trailers": (CHUNKED + b"0\r\n", b"a: b\r\n"),
    "/no-length": (b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 1000),
}
"""Responses without end: their beginning, and what is repeated."""

SLOW = {"/slow-headers": (b"HTTP/1.1 200 OK\r\n", b"a"), "/slow-body": (b"HTTP/1.1 200 OK\r\n\r\n", b"x")}
"""Responses whose parts come one at a time: their beginning, and the part."""

CLAIMS = {
    "/terabyte": b"Content-Length: 1000000000000\r\n\r\npart",
    "/terabyte-chunk": b"Transfer-Encoding: chunked\r\n\r\nffffffffff\r\npart",
    "/half-chunk": b"Transfer-Encoding: chunked\r\n\r\n5\r\n12",
    "/no-chunk": b"Transfer-Encoding: chunked\r\n\r\nx\r\n12",
}
"""Responses that end before the length that they have announced."""


class Answers(BaseHTTPRequestHandler):
    """Answers by path, and with the request where nothing else is asked for."""

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if self.path == "/moved":
            self.answer(302, b"", Location="/keys")
        elif self.path == "/long":
            self.answer(200, b"x" * (MAX_RESPONSE + 1))
        elif self.path == "/cut":
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"part")
        elif self.path == "/nonsense":
            self.wfile.write(b"nonsense\r\n\r\n")
        elif self.path in ENDLESS:
            self.repeat(*ENDLESS[self.path])
        elif self.path in CLAIMS:
            self.wfile.write(b"HTTP/1.1 200 OK\r\n" + CLAIMS[self.path])
        elif self.path in SLOW:
            self.drip(*SLOW[self.path])
        elif self.path == "/silent":
            # The client closes the connection.
            self.rfile.read(1)
        else:
            self.answer(200, f"{self.path} {self.headers['Accept']}".encode())

    def repeat(self, start: bytes, part: bytes) -> None:
        """Send until the client closes the connection."""
        self.wfile.write(start)
        with contextlib.suppress(ConnectionError):
            while True:
                self.wfile.write(part)

    def drip(self, start: bytes, part: bytes) -> None:
        """Send a part every 10 ms, until the client closes the connection."""
        self.wfile.write(start)
        with contextlib.suppress(ConnectionError):
            while True:
                self.connection.settimeout(0.01)
                try:
                    if not self.connection.recv(1):
                        return
                except TimeoutError:
                    self.wfile.write(part)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(401, b" ".join((self.headers["Authorization"].encode(), body)))

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Print nothing."""


@pytest.fixture
def serve() -> Iterator[Callable[[ssl.SSLContext | None], str]]:
    started: list[tuple[ThreadingHTTPServer, threading.Thread]] = []

    def start(context: ssl.SSLContext | None = None) -> str:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        started.append((server, thread))
        return f"http{'s' if context else ''}://localhost:{server.server_port}"

    yield start
    for server, thread in started:
        server.shutdown()
        thread.join()
        server.server_close()


def test_get_and_post(serve: Callable[[], str]) -> None:
    address, http = serve(), HttpClient()
    assert http(OutboundRequest(f"{address}/keys?a=b")) == OutboundResponse(200, b"/keys?a=b application/json")
    assert http(OutboundRequest(address)).body == b"/ application/json"
    posted = http(OutboundRequest(address, {"Authorization": "Basic x"}, b"body"))
    assert posted == OutboundResponse(401, b"Basic x body")


def test_redirects_are_not_followed(serve: Callable[[], str]) -> None:
    assert HttpClient()(OutboundRequest(f"{serve()}/moved")).status == 302


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/long", "longer than"),
        *((path, "longer than") for path in ENDLESS),
        ("/cut", "ends too early"),
        *((path, "ends too early") for path in CLAIMS),
        ("/nonsense", "not valid HTTP"),
    ],
)
def test_bad_responses(serve: Callable[[], str], path: str, reason: str) -> None:
    with pytest.raises(HttpError, match=reason):
        HttpClient()(OutboundRequest(serve() + path))


def test_a_server_that_does_not_answer(serve: Callable[[], str]) -> None:
    with pytest.raises(HttpError, match="takes longer than 50 ms"):
        HttpClient(read_ms=50)(OutboundRequest(f"{serve()}/silent"))


@pytest.mark.parametrize("path", SLOW)
def test_the_time_is_that_of_the_whole_response(serve: Callable[[], str], path: str) -> None:
    with pytest.raises(HttpError, match="takes longer than 150 ms"):
        HttpClient(read_ms=150)(OutboundRequest(serve() + path))


def test_a_server_that_is_not_there(serve: Callable[[], str]) -> None:
    with pytest.raises(OSError):
        HttpClient()(OutboundRequest("http://localhost:1/"))
    with pytest.raises(HttpError, match="name of the host"):
        HttpClient()(OutboundRequest(f"http://{'x' * 100}.example/"))


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://localhost/", "localhost", "http://localhost/a\nb"])
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        HttpClient()(OutboundRequest(url))


def test_https_verifies_the_server(serve: Callable[[ssl.SSLContext], str], tmp_path: Path) -> None:
    issued = AUTHORITY.issue()
    (tmp_path / "server.pem").write_text(issued.pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    address = serve(context)
    trusting = ssl.create_default_context(cadata=pem(AUTHORITY.certificate))
    assert HttpClient(context=trusting)(OutboundRequest(f"{address}/keys")).status == 200

    assert issuer_context({"clientId": "alice"}) is None
    (tmp_path / "ca.pem").write_text(pem(AUTHORITY.certificate))
    options = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(tmp_path / "ca.pem")}
    assert HttpClient(context=issuer_context(options))(OutboundRequest(f"{address}/keys")).status == 200
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location"):
        issuer_context({**options, "ssl.truststore.location": str(tmp_path / "missing.pem")})
    with pytest.raises(ssl.SSLCertVerificationError):
        HttpClient()(OutboundRequest(f"{address}/keys"))


def test_no_secret_is_shown() -> None:
    shown = (
        f"{OutboundRequest('http://x/', {'Authorization': 'geheim'}, b'geheim')!r} {OutboundResponse(200, b'geheim')!r}"
    )
    assert "geheim" not in shown
