"""The web server of the console: `start` listens, `close` ends all connections."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Final

from aiohttp import web

from odradek.base.errors import ConfigError
from odradek.base.ports import Clock
from odradek.base.system_ports import SystemClock
from odradek.base.tasks import TaskOwner
from odradek.console.console_sessions import SessionStore
from odradek.console.console_settings import ConsoleSettings
from odradek.console.web_guard import MAX_FORM_BYTES, STATIC, WebGuard
from odradek.console.web_pages import Activity, WebPages

_LOG: Final = logging.getLogger(__name__)
_UPKEEP_SECONDS: Final = 60.0
"""How often expired sessions are closed, and the files of the certificate are looked at."""
_SHUTDOWN_SECONDS: Final = 2.0
"""How long `close` waits for requests in progress."""


class ConsoleServer:
    """Serves the console on the running event loop. `close` is idempotent."""

    def __init__(self, settings: ConsoleSettings, *, activity: Activity = tuple, clock: Clock | None = None) -> None:
        """`activity` returns what the operator reports about the cluster, newest first. `clock` is for tests."""
        self._settings = settings
        clock = clock or SystemClock()
        self.sessions: Final = SessionStore(settings, clock)
        pages = WebPages(settings, self.sessions, clock, activity)
        guard = WebGuard(settings, self.sessions, pages.render_error)
        app = web.Application(middlewares=[guard.__call__], client_max_size=MAX_FORM_BYTES)
        pages.add_to(app)
        app.router.add_static(STATIC, Path(__file__).parent / "static")
        # A search ends when the browser closes the connection.
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=_SHUTDOWN_SECONDS
        )
        self._tasks = TaskOwner()
        self._context: ssl.SSLContext | None = None
        self._loaded_ns: tuple[int, ...] = ()
        self.port = 0
        """The port, after `start`."""

    @property
    def url(self) -> str:
        """The address for browsers on this machine, after `start`."""
        scheme = "http" if self._settings.certificate is None else "https"
        host = self._settings.host
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}/"

    async def start(self) -> None:
        """Listen. Raises `ConfigError` if the port is in use, or the certificate is not valid."""
        settings = self._settings
        if settings.certificate is not None:
            self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self._load_certificate(self._context)
        await self._runner.setup()
        site = web.TCPSite(self._runner, settings.host, settings.port, ssl_context=self._context)
        try:
            await site.start()
        except OSError as error:
            await self.close()
            raise ConfigError(
                f"The console cannot listen on {settings.host}:{settings.port}: {error.strerror or error}. "
                "Choose another address with --host and --port"
            ) from error
        self.port = self._runner.addresses[0][1]
        self._tasks.spawn(self._upkeep(), name="console upkeep")

    def _load_certificate(self, context: ssl.SSLContext) -> None:
        """Load the certificate if its files have changed. Raises `ConfigError`."""
        certificate, key = self._settings.certificate, self._settings.key
        assert certificate is not None, "only with a certificate"
        try:
            changed = tuple(path.stat().st_mtime_ns for path in (certificate, key) if path is not None)
            if changed != self._loaded_ns:
                context.load_cert_chain(certificate, key)
                self._loaded_ns = changed
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"The certificate of the web server in {certificate} cannot be used: {error.strerror or error}. "
                "It must be a PEM file with the certificate chain; --tls-key names the file of the private key"
            ) from error

    async def _upkeep(self) -> None:
        while True:
            await asyncio.sleep(_UPKEEP_SECONDS)
            await self.sessions.end_expired()
            if self._context is None:
                continue
            try:
                self._load_certificate(self._context)
            except ConfigError as error:
                # The files may be in the middle of a change. The previous certificate stays in use until the next look.
                _LOG.warning("%s", error)

    async def close(self) -> None:
        """Stop listening, end requests in progress, and close all connections to the cluster."""
        await self._tasks.close()
        await self._runner.cleanup()
        await self.sessions.close()
