"""One HTTP request, for key sets and tokens. Blocks: callers run it in a thread.

Only `http` and `https`. Redirects are not followed, so that neither keys nor secrets come from or go to an address that
nobody configured. The size of a response, with its headers, and the time for all of it are limited. Proxies are not
supported.
"""

from __future__ import annotations

import io
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import TYPE_CHECKING, Final, Protocol, cast
from urllib.parse import SplitResult, urlsplit

from odradek.base.errors import ConfigError
from odradek.security.tls.contexts import client_context
from odradek.security.tls.tls_settings import TlsSettings

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAX_RESPONSE: Final = 1 << 20
"""Maximum length, in bytes, of a response with its headers."""

_READ_BYTES: Final = 1 << 16


class HttpError(OSError):
    """There is no response, or it is too long. The message has no part of it."""


@dataclass(frozen=True, slots=True)
class OutboundRequest:
    """A GET, or with a body a POST."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class OutboundResponse:
    """A response with any status."""

    status: int
    body: bytes = field(repr=False)


class Http(Protocol):
    """Sends a request. `HttpClient` does it; tests replace it."""

    def __call__(self, request: OutboundRequest, /) -> OutboundResponse:
        """Return the response. Raises `HttpError`, or another `OSError`."""
        ...


def issuer_context(options: Mapping[str, str]) -> ssl.SSLContext | None:
    """Return the context for `https` to the issuer of tokens, from the options `ssl.*` of a JAAS entry, as in Kafka.

    None without such options: the authorities of the system are trusted. Reads files. Raises `ConfigError`.
    """
    given = {name: value for name, value in options.items() if name.startswith("ssl.")}
    return client_context(TlsSettings.from_properties(given)) if given else None


class HttpClient:
    """Sends each request on a new connection."""

    def __init__(
        self, *, context: ssl.SSLContext | None = None, connect_ms: int = 10_000, read_ms: int = 10_000
    ) -> None:
        """`context` is for `https`; None verifies with the authorities of the system. `connect_ms` limits the time
        until there is a connection, `read_ms` the time for the request and that for the whole response."""
        self._context: Final = context
        self._connect_ms: Final = connect_ms
        self._read_ms: Final = read_ms

    def __call__(self, request: OutboundRequest, /) -> OutboundResponse:
        """Return the response. Raises `HttpError`, or another `OSError`."""
        parts = checked_url("the address", request.url, "http", "https")
        connection = self._connection(parts)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        try:
            connection.connect()
            connection.sock.settimeout(self._read_ms / 1000)
            headers = {"Accept": "application/json", "Cache-Control": "no-cache", **request.headers}
            connection.request("GET" if request.body is None else "POST", path, request.body, headers)
            with self._response(connection.sock) as response:
                return OutboundResponse(response.status, _body(response))
        except IncompleteRead:
            raise HttpError("the response ends too early") from None
        except HTTPException as error:
            raise HttpError(f"the response is not valid HTTP: {type(error).__name__}") from error
        except UnicodeError as error:
            raise HttpError("the name of the host is not valid") from error
        finally:
            connection.close()

    def _response(self, sock: socket.socket) -> HTTPResponse:
        """Return a response of which the status and the headers have been read."""
        limited = _LimitedSocket(sock, self._read_ms)
        # Of its socket, a response uses `makefile` only.
        response = HTTPResponse(cast("socket.socket", limited))
        try:
            response.begin()
        except BaseException:
            response.close()
            raise
        return response

    def _connection(self, parts: SplitResult) -> HTTPConnection:
        timeout, host = self._connect_ms / 1000, parts.hostname or ""
        if parts.scheme == "https":
            context = self._context or ssl.create_default_context()
            return HTTPSConnection(host, parts.port, timeout=timeout, context=context)
        return HTTPConnection(host, parts.port, timeout=timeout)


def _body(response: HTTPResponse) -> bytes:
    """Read the body. In parts, because Python reserves memory for the length that the server announces."""
    body = bytearray()
    while part := response.read1(_READ_BYTES):
        body += part
    if response.length:
        raise HttpError("the response ends too early")
    return bytes(body)


class _LimitedSocket(io.RawIOBase):
    """Reads of a socket at most `MAX_RESPONSE` bytes, and only until a time.

    `http.client` has neither limit: it reads any number of interim responses and trailers, and its timeout starts again
    with each part that arrives.
    """

    def __init__(self, sock: socket.socket, limit_ms: int) -> None:
        self._socket: Final = sock
        self._limit_ms: Final = limit_ms
        self._until: Final = time.monotonic() + limit_ms / 1000
        self._left = MAX_RESPONSE

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return the file that a response reads."""
        assert mode == "rb"
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """It can be read."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read what has arrived. Raises `HttpError` when a limit is reached."""
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            raise self._late()
        self._socket.settimeout(left_s)
        try:
            count = self._socket.recv_into(buffer)
        except TimeoutError:
            raise self._late() from None
        self._left -= count
        if self._left < 0:
            raise HttpError(f"the response is longer than {MAX_RESPONSE} bytes")
        return count

    def _late(self) -> HttpError:
        return HttpError(f"the response takes longer than {self._limit_ms} ms")


def checked_url(setting: str, url: str, *schemes: str) -> SplitResult:
    """Return the parts of an address; the path of a file is used as it is. Raises `ConfigError` if the scheme or the
    form is not allowed; the error does not show the address, which may have a password."""
    try:
        parts = urlsplit(url.strip())
        _ = parts.port
    except ValueError:
        # The error may show a password.
        raise ConfigError(f"{setting} is not a valid URL") from None
    if parts.scheme not in schemes:
        raise ConfigError(f"{setting} must be a URL that begins with {', '.join(f'{each}:' for each in schemes)}")
    if parts.scheme == "file" and (parts.netloc or not parts.path.startswith("/")):
        raise ConfigError(f"{setting} must be file:// and an absolute path")
    if parts.scheme != "file" and (not parts.hostname or not url.isascii()):
        raise ConfigError(f"{setting} must be a URL with a host and only ASCII characters")
    if parts.scheme != "file" and any(character.isspace() or not character.isprintable() for character in url.strip()):
        raise ConfigError(f"{setting} must be a URL without spaces and control characters")
    if parts.username is not None or parts.password is not None:
        raise ConfigError(f"{setting} must be a URL without user and password")
    return parts
