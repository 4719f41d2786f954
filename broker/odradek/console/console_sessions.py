"""Who uses the console: logins, their connections to the cluster, and their end.

A session holds the credentials in memory only, because its connections may have to be opened again. It is found by a
random token of 256 bits, which the browser has as a cookie. On a cluster without logins, all visitors share one
session.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from odradek.base.errors import OdradekError
from odradek.base.ports import Clock
from odradek.client.admin import Admin
from odradek.client.settings import ClientSettings
from odradek.console.console_settings import ConsoleSettings, Credentials

MAX_SCANS: Final = 8
"""Searches at the same time, of all sessions."""
MAX_SCANS_OF_SESSION: Final = 4
MAX_LOGINS: Final = 8
"""Logins that the cluster is checking at the same time."""


class ConsoleBusyError(OdradekError):
    """The console does as much as it may at the same time."""


@dataclass(slots=True, kw_only=True)
class ConsoleSession:
    """A user, or all visitors of a cluster without logins."""

    user: str
    """Name for the page; empty without logins."""
    settings: ClientSettings = field(repr=False)
    admin: Admin = field(repr=False)
    form_token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    """What each form of this session must send, so that no other site can."""
    opened_ms: float
    used_ms: float
    scans: int = 0
    """Searches in progress."""


class SessionStore:
    """All sessions. `close` ends them."""

    def __init__(self, settings: ConsoleSettings, clock: Clock) -> None:
        """Nothing is connected before the first request."""
        self._settings = settings
        self._clock = clock
        self._sessions: dict[str, ConsoleSession] = {}
        self._shared: ConsoleSession | None = None
        self._sharing = asyncio.Lock()
        self._logins = 0
        self._scans = 0
        self.login_token: Final = secrets.token_urlsafe(32)
        """What the form of the login page must send."""

    def __len__(self) -> int:
        return len(self._sessions)

    async def shared(self) -> ConsoleSession:
        """Return the session of a cluster without logins. Raises `OdradekError` if no broker answers."""
        async with self._sharing:
            if self._shared is None:
                self._shared = await self._connect(None)
            return self._shared

    async def open(self, credentials: Credentials) -> str:
        """Log in to the cluster, and return the token of the new session.

        Raises `AuthenticationError` if the cluster refuses the credentials, `ConfigError` if they cannot be sent, and
        `ConsoleBusyError`.
        """
        if self._logins >= MAX_LOGINS:
            raise ConsoleBusyError("Too many logins are in progress: try again in a few seconds")
        self._logins += 1
        try:
            session = await self._connect(credentials)
        finally:
            self._logins -= 1
        await self.end_expired()
        while len(self._sessions) >= self._settings.max_sessions:
            await self.end(min(self._sessions, key=lambda token: self._sessions[token].used_ms))
        token = secrets.token_urlsafe(32)
        self._sessions[token] = session
        return token

    async def _connect(self, credentials: Credentials | None) -> ConsoleSession:
        settings = self._settings.client_settings(credentials)
        admin = Admin(settings)
        try:
            await admin.start()
        except BaseException:
            await admin.close(timeout_ms=0)
            raise
        now_ms = self._clock.monotonic_ms()
        user = "" if credentials is None else credentials.user or "bearer of a token"
        return ConsoleSession(user=user, settings=settings, admin=admin, opened_ms=now_ms, used_ms=now_ms)

    def find(self, token: str) -> ConsoleSession | None:
        """Return the session of a token, and note that it is used; None if it does not exist or has ended."""
        session = self._sessions.get(token)
        if session is None or self._is_expired(session):
            return None
        session.used_ms = self._clock.monotonic_ms()
        return session

    def _is_expired(self, session: ConsoleSession) -> bool:
        now_ms = self._clock.monotonic_ms()
        limits = self._settings
        return now_ms - session.used_ms >= limits.idle_ms or now_ms - session.opened_ms >= limits.session_ms

    async def end(self, token: str) -> None:
        """End a session and close its connections. Idempotent."""
        session = self._sessions.pop(token, None)
        if session is not None:
            await session.admin.close(timeout_ms=0)

    async def end_expired(self) -> None:
        """End all sessions whose time is over."""
        for token in [token for token, session in self._sessions.items() if self._is_expired(session)]:
            await self.end(token)

    @contextmanager
    def scanning(self, session: ConsoleSession) -> Iterator[None]:
        """Count a search. Raises `ConsoleBusyError` if too many are in progress."""
        if self._scans >= MAX_SCANS or session.scans >= MAX_SCANS_OF_SESSION:
            raise ConsoleBusyError("Too many searches are in progress: wait until one of them has ended")
        self._scans += 1
        session.scans += 1
        try:
            yield
        finally:
            self._scans -= 1
            session.scans -= 1

    async def close(self) -> None:
        """End all sessions. Idempotent."""
        for token in list(self._sessions):
            await self.end(token)
        shared, self._shared = self._shared, None
        if shared is not None:
            await shared.admin.close(timeout_ms=0)
