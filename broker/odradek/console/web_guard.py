"""What every request to the console passes: host, session, origin of changes, errors, and headers of the response.

- The name in the Host header must be known. Otherwise another website could reach a console on this machine through a
  host name that resolves to 127.0.0.1 (DNS rebinding).
- A request that changes something must come from a page of the console: its Origin is the console's, and its form has
  the token of the session.
- Browsers neither run scripts nor load anything from elsewhere (Content-Security-Policy), and store nothing.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import Final
from urllib.parse import quote, urlsplit

from aiohttp import web

from odradek.base.errors import (
    AuthenticationError,
    ConfigError,
    GroupIdNotFoundError,
    NetworkError,
    OdradekError,
    ProtocolError,
    RequestTimedOutError,
    SaslAuthenticationFailedError,
    UnknownTopicOrPartitionError,
)
from odradek.console.cluster_reads import NOT_ALLOWED
from odradek.console.console_sessions import ConsoleBusyError, ConsoleSession, SessionStore
from odradek.console.console_settings import ConsoleSettings

_LOG: Final = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
RenderError = Callable[[web.Request, int, str], web.Response]

COOKIE: Final = "odradek-console"
SESSION: Final = web.RequestKey("session", ConsoleSession)
MAX_FORM_BYTES: Final = 128 << 10
_FORM_SECONDS: Final = 10.0
OPEN_PATHS: Final = ("/login", "/healthz")
STATIC: Final = "/static/"
API: Final = "/api/"

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With "no-referrer", browsers send the forms of the console with the Origin "null".
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class WebGuard:
    """The middleware of the console."""

    def __init__(self, settings: ConsoleSettings, sessions: SessionStore, render_error: RenderError) -> None:
        """`render_error` makes the page of an error with its status and text."""
        self._settings = settings
        self._sessions = sessions
        self._render_error = render_error
        self._names = {name.lower() for name in ("localhost", settings.host, *settings.host_names)}

    @web.middleware
    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Serve a request, or answer with the reason why not."""
        try:
            response = await self._serve(request, handler)
        except web.HTTPException as error:
            response = self._error(request, error.status, error.reason)
        except OdradekError as error:
            response = await self._answer(request, error)
        response.headers.update(HEADERS)
        if not request.path.startswith(STATIC):
            response.headers["Cache-Control"] = "no-store"
        if self._settings.uses_https:
            response.headers["Strict-Transport-Security"] = "max-age=31536000"
        return response

    async def _serve(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not self._is_known_host(request.host):
            text = (
                f"The console does not serve the host name {request.host[:200]!r}. If browsers shall use this name, "
                "start the console with --host-name."
            )
            return self._error(request, 421, text)
        if request.method not in ("GET", "HEAD", "POST"):
            return self._error(request, 405, "The console serves GET and POST only.")
        if request.path.startswith(STATIC) or request.path == "/healthz":
            return await handler(request)
        session = await self._session(request)
        if session is not None:
            request[SESSION] = session
        elif request.path not in OPEN_PATHS:
            return self._login_first(request)
        if request.method == "POST":
            await self._check_form(request, session)
        return await handler(request)

    def _is_known_host(self, host: str) -> bool:
        name = urlsplit(f"//{host}").hostname or ""
        try:
            ip_address(name)
        except ValueError:
            return name in self._names
        return True

    async def _session(self, request: web.Request) -> ConsoleSession | None:
        if self._settings.needs_login:
            return self._sessions.find(request.cookies.get(COOKIE, ""))
        return None if request.path in OPEN_PATHS else await self._sessions.shared()

    def _login_first(self, request: web.Request) -> web.StreamResponse:
        if request.path.startswith(API):
            return self._error(request, 401, "Log in on the page /login first, and send the cookie that it sets.")
        there = quote(request.path_qs, safe="/") if request.method == "GET" else "/"
        return redirect(f"/login?next={there}")

    async def _check_form(self, request: web.Request, session: ConsoleSession | None) -> None:
        """Raise `HTTPForbidden` unless the request comes from a form of the console."""
        origin = urlsplit(request.headers.get("Origin", ""))
        if origin.netloc.lower() != request.host.lower() or origin.scheme not in ("http", "https"):
            raise web.HTTPForbidden(reason="The form was not sent by a page of the console.")
        async with asyncio.timeout(_FORM_SECONDS):
            form = await request.post()
        wanted = self._sessions.login_token if session is None else session.form_token
        given = form.get("form_token", "")
        if not isinstance(given, str) or not secrets.compare_digest(given.encode(), wanted.encode()):
            raise web.HTTPForbidden(reason="The form is too old. Go back, load the page again and repeat it.")

    async def _answer(self, request: web.Request, error: OdradekError) -> web.StreamResponse:
        """Answer a request that failed. A login that is no longer valid ends the session."""
        if isinstance(error, AuthenticationError | SaslAuthenticationFailedError) and self._settings.needs_login:
            await self._sessions.end(request.cookies.get(COOKIE, ""))
            return self._login_first(request)
        status = status_of(error)
        if status >= 500:
            _LOG.warning("A request to the console failed: %s", error)
        return self._error(request, status, str(error) or type(error).__name__)

    def _error(self, request: web.Request, status: int, text: str) -> web.Response:
        if request.path.startswith(API):
            return web.json_response({"error": text}, status=status)
        return self._render_error(request, status, text)


def redirect(there: str) -> web.Response:
    """Return a response that leads to a path of the console."""
    return web.Response(status=303, headers={"Location": there})


def status_of(error: OdradekError) -> int:
    """Return the HTTP status for an error."""
    if isinstance(error, NOT_ALLOWED):
        return 403
    if isinstance(error, UnknownTopicOrPartitionError | GroupIdNotFoundError):
        return 404
    if isinstance(error, NetworkError | RequestTimedOutError | ConsoleBusyError | AuthenticationError):
        return 503
    return 400 if isinstance(error, ConfigError | ProtocolError) else 500
