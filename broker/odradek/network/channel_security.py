"""What secures an outgoing connection: its TLS context, and the SASL login of the client.

Reasons that a retry cannot remove are an `AuthenticationError` with the address of the broker: the broker refuses the
client, its certificate is not trusted or is for another host, or one of them has no TLS.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable
from typing import Final, Protocol

from odradek.base.errors import (
    NONE,
    AuthenticationError,
    NetworkError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
    error_for,
)
from odradek.base.ports import Clock, RunBlocking
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message, Response
from odradek.protocol.messages.sasl import SaslAuthenticateResponse, SaslHandshakeResponse
from odradek.security.client_security import ClientSecurity
from odradek.security.sasl.mechanism import ClientExchange, NewExchange, SaslError, TokenSourceError, shown
from odradek.security.tls.contexts import ReloadingContext, UsedCertificates, client_context

MAX_STEPS: Final = 10
"""Maximum number of messages that a login sends. Mechanisms need one or two."""

_HANDSHAKE_VERSION: Final = 1
"""The version after which SaslAuthenticate requests follow (KIP-152)."""

_EARLIEST_RENEWAL: Final = 0.85
_RENEWAL_SPREAD: Final = 0.1
"""A client authenticates again after 85 to 95 percent of its session, as in Kafka (KIP-368)."""


class Asks(Protocol):
    """The part of a channel that a login uses."""

    @property
    def peer(self) -> str:
        """Address of the broker."""
        ...

    def pick(self, api_key: ApiKey) -> int:
        """Return the highest version that both sides support."""
        ...

    def ask_for_login(self, expected: type[Response], version: int, message: Message) -> Awaitable[Response]:
        """Send a request of a login and return its response."""
        ...


class ChannelSecurity:
    """The security of the connections of one client or broker."""

    def __init__(self, security: ClientSecurity, *, clock: Clock, run_blocking: RunBlocking) -> None:
        """Read the keystores. Raises `ConfigError`. `run_blocking` gets tokens, derives keys and reads changed
        keystores."""
        self._security: Final = security
        self._clock: Final = clock
        self._run_blocking: Final = run_blocking
        self._contexts: Final = (
            None
            if security.tls is None
            else ReloadingContext(security.tls, client_context, clock=clock, run_blocking=run_blocking)
        )

    @property
    def has_login(self) -> bool:
        """Whether connections authenticate with SASL."""
        return self._security.new_exchange is not None

    async def context(self) -> ssl.SSLContext | None:
        """Return the TLS context of the next connection; None without TLS."""
        return None if self._contexts is None else await self._contexts.current()

    async def certificates(self) -> UsedCertificates | None:
        """Return the certificates of the next connection; None without TLS."""
        return None if self._contexts is None else await self._contexts.used()

    async def log_in(self, channel: Asks) -> float | None:
        """Authenticate, also again. Return after how many milliseconds it must be done again; None for never.

        Raises `AuthenticationError`, or an error of the connection, which a retry may remove.
        """
        new_exchange = self._security.new_exchange
        assert new_exchange is not None, "there is a login"
        try:
            lifetime_ms = await self._exchange(channel, new_exchange)
        except SaslError as error:
            raise AuthenticationError(f"{channel.peer}: authentication failed: {error.log_text}") from error
        except TokenSourceError as error:
            raise NetworkError(f"cannot authenticate to {channel.peer}: {error}") from error
        if lifetime_ms <= 0:
            return None
        return lifetime_ms * (_EARLIEST_RENEWAL + _RENEWAL_SPREAD * self._clock.random())

    async def _exchange(self, channel: Asks, new_exchange: NewExchange) -> int:
        """Return the lifetime of the session in milliseconds; 0 for no limit."""
        exchange = await self._run_blocking(new_exchange)
        await _choose(channel, exchange.mechanism)
        version = channel.pick(ApiKey.SASL_AUTHENTICATE)
        data: bytes | None = exchange.start()
        for _ in range(MAX_STEPS):
            response = await channel.ask_for_login(SaslAuthenticateResponse, version, {"auth_bytes": data})
            _check(channel, response)
            data = await self._step(exchange, bytes(response.auth_bytes))
            if data is None:
                break
        if not exchange.is_complete:
            raise SaslError(exchange.mechanism, "the broker did not complete the exchange")
        return response.session_lifetime_ms

    async def _step(self, exchange: ClientExchange, data: bytes) -> bytes | None:
        return await self._run_blocking(lambda: exchange.step(data))


async def _choose(channel: Asks, mechanism: str) -> None:
    response = await channel.ask_for_login(SaslHandshakeResponse, _HANDSHAKE_VERSION, {"mechanism": mechanism})
    if response.error_code == UnsupportedSaslMechanismError.code:
        enabled = ", ".join(shown(each) for each in response.mechanisms)
        raise AuthenticationError(
            f"{channel.peer} does not support the SASL mechanism {mechanism}; it supports {enabled}"
        )
    if response.error_code != NONE:
        name = type(error_for(response.error_code, "")).__name__.removesuffix("Error")
        raise AuthenticationError(
            f"{channel.peer} refused the SASL handshake ({name}): check that its listener authenticates with SASL"
        )


def _check(channel: Asks, response: SaslAuthenticateResponse) -> None:
    """Raise the error of a response. What the broker writes is shown, it is the reason for people."""
    if response.error_code == NONE:
        return
    reason = response.error_message or f"error code {response.error_code}"
    if response.error_code == SaslAuthenticationFailedError.code:
        raise AuthenticationError(f"{channel.peer} refused the client: {reason}")
    error = error_for(response.error_code, f"{channel.peer} did not complete the authentication: {reason}")
    raise error if error.retriable else AuthenticationError(str(error))


def tls_failure(peer: str, error: ssl.SSLError) -> AuthenticationError | NetworkError:
    """Return the error for a failure of TLS with a broker."""
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ssl.SSLSyscallError):
        return NetworkError(f"the connection to {peer} ended during the TLS handshake")
    if isinstance(error, ssl.SSLCertVerificationError):
        return AuthenticationError(f"the certificate of {peer} is not accepted: {error.verify_message}")
    reason = (error.reason or str(error)).replace("_", " ").lower()
    return AuthenticationError(f"the TLS handshake with {peer} failed: {reason}")
