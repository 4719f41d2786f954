"""The login of one connection with SASL: which requests are allowed when, as in Kafka's `SaslServerAuthenticator`.

A `Login` replaces the handler of its connection until the client has authenticated. Then the broker's handler is back,
and the login gets the requests of SASL only, for a re-authentication (KIP-368). It waits for nothing, and touches
nothing but its connection.

    state            request             next state
    INITIAL          ApiVersions         VERSIONS_KNOWN, or INITIAL if its version is not supported
    INITIAL          SaslHandshake       EXCHANGE, RAW_EXCHANGE (version 0) or FAILED
    VERSIONS_KNOWN   SaslHandshake       EXCHANGE, RAW_EXCHANGE (version 0) or FAILED
    EXCHANGE         SaslAuthenticate    EXCHANGE, READY or FAILED
    RAW_EXCHANGE     frame without header  RAW_EXCHANGE, READY or FAILED
    READY            SaslHandshake       EXCHANGE, OTHER_MECHANISM, or READY (ILLEGAL_SASL_STATE)
    OTHER_MECHANISM  SaslAuthenticate    FAILED
    any              any other           FAILED; in READY, the broker's handler gets it

Invariants:
- Before READY no request reaches the broker's handler, and no frame is larger than `sasl.server.max.receive.size`.
- A client that is not READY at the deadline of the listener is cut.
- FAILED is final: after `connection.failed.authentication.delay.ms` the client gets the answer, if there is one, and
  the connection ends. Every failure is counted, and logged at a limited rate without secrets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from odradek.base.errors import (
    NONE,
    InvalidRequestError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from odradek.base.ports import Clock
from odradek.network.connection import Connection, Request
from odradek.network.limited_log import LimitedLog
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import Message, decode_request
from odradek.protocol.messages.cluster import ApiVersionsRequest
from odradek.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from odradek.security.principals import USER, Identity, Principal
from odradek.security.sasl.mechanism import SaslError, ServerExchange, shown
from odradek.server.dispatch import note_software, unknown_api_versions
from odradek.server.security.sasl_requests import refuse_login, respond

logger = logging.getLogger(__name__)

REAUTHENTICATION_INTERVAL_MS: Final = 1_000.0
"""A client may authenticate again once in this time, as in Kafka."""

DescribeVersions = Callable[[int, ApiVersionsRequest], Message]
"""Returns the response to ApiVersions of a version. Raises `InvalidRequestError`."""


class LoginState(Enum):
    """Progress of a login; see the table above."""

    INITIAL = auto()
    VERSIONS_KNOWN = auto()
    EXCHANGE = auto()
    RAW_EXCHANGE = auto()
    READY = auto()
    OTHER_MECHANISM = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class Mechanism:
    """An enabled mechanism of a listener."""

    new_exchange: Callable[[], ServerExchange]
    max_reauth_ms: int = 0
    """`connections.max.reauth.ms`; 0 for no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginSettings:
    """What the logins of a listener have in common."""

    protocol: str
    mechanisms: Mapping[str, Mechanism]
    """The enabled mechanisms, by name."""
    max_receive_bytes: int = 524_288
    failed_delay_ms: float = 100
    timeout_ms: float = 10_000
    """Time from accepting the socket to READY, including a TLS handshake."""


class Login:
    """The login of one connection."""

    __slots__ = (
        "_begun_ms",
        "_clock",
        "_connection",
        "_describe_versions",
        "_exchange",
        "_expires_ms",
        "_log",
        "_mechanism",
        "_serve",
        "_settings",
        "state",
    )

    def __init__(
        self,
        connection: Connection,
        settings: LoginSettings,
        clock: Clock,
        *,
        describe_versions: DescribeVersions,
        log: LimitedLog,
    ) -> None:
        """Take over the requests of a connection that has just been opened."""
        self.state = LoginState.INITIAL
        self._connection: Final = connection
        self._settings: Final = settings
        self._clock: Final = clock
        self._describe_versions: Final = describe_versions
        self._log: Final = log
        self._serve: Final = connection.handler
        self._exchange: ServerExchange | None = None
        self._mechanism = ""
        self._begun_ms: float | None = None
        """When the last re-authentication began."""
        self._expires_ms = 0.0
        """When the session ends, on the monotonic clock. It has a meaning with `_serve_in_session` only."""
        connection.login = self.handle
        self._take_over()
        left_ms = settings.timeout_ms - (clock.monotonic_ms() - connection.created_ms)
        connection.timer = clock.call_later(max(0.0, left_ms), self._late)

    def _take_over(self) -> None:
        self._connection.handler = self.handle
        self._connection.limit_frames(self._settings.max_receive_bytes)

    @property
    def _is_again(self) -> bool:
        return self._connection.identity is not None

    # Requests

    def handle(self, request: Request) -> None:
        """Take a request: any before READY, and of READY those of SASL. Raises `MalformedFrameError`."""
        if self.state is LoginState.FAILED:
            return  # The connection ends soon.
        step = _STEPS.get((self.state, request.api_key))
        if step is not None:
            step(self, request)
        elif self.state is LoginState.READY:
            refuse_login(request)
        else:
            self._refuse(request)

    def _refuse(self, request: Request) -> None:
        """A request that is not allowed now. Only those of SASL get an answer: others are not decoded."""
        name = API_TABLE[request.api_key].name
        text = f"the client sent {name} in the state {self.state.name}"
        if request.api_key not in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
            self._fail(text)
            return
        self._fail(text, lambda: refuse_login(request))

    def _tell_versions(self, request: Request) -> None:
        if not API_TABLE[ApiKey.API_VERSIONS].serves(request.api_version):
            request.respond([unknown_api_versions(request.correlation_id)])
            return
        decoded = decode_request(request.header, request.frame, request.position)
        try:
            message = self._describe_versions(request.api_version, decoded)
        except InvalidRequestError as error:
            respond(request, {"error_code": error.code, "api_keys": ()})
            return
        self.state = LoginState.VERSIONS_KNOWN
        note_software(request, decoded)
        respond(request, message)

    def _shake_hands(self, request: Request) -> None:
        wanted = self._mechanism_of(request)
        mechanisms = tuple(self._settings.mechanisms)
        if wanted not in self._settings.mechanisms:
            error = UnsupportedSaslMechanismError.code
            self._fail(
                f"the client asked for the mechanism {shown(wanted)}; {', '.join(mechanisms)} are enabled",
                lambda: respond(request, {"error_code": error, "mechanisms": mechanisms}),
            )
            return
        self._mechanism = wanted
        self._exchange = self._settings.mechanisms[wanted].new_exchange()
        if request.api_version == 0:
            self.state = LoginState.RAW_EXCHANGE
            self._connection.raw = self._handle_raw
        else:
            self.state = LoginState.EXCHANGE
        respond(request, {"error_code": NONE, "mechanisms": mechanisms})

    @staticmethod
    def _mechanism_of(request: Request) -> str:
        decoded: SaslHandshakeRequest = decode_request(request.header, request.frame, request.position)
        return decoded.mechanism

    def _authenticate(self, request: Request) -> None:
        decoded: SaslAuthenticateRequest = decode_request(request.header, request.frame, request.position)
        try:
            data = self._step(decoded.auth_bytes)
            lifetime_ms = self._complete() if self._is_complete() else 0
        except SaslError as error:
            text = str(error)
            self._fail(error.log_text, lambda: self._answer(request, SaslAuthenticationFailedError.code, text))
            return
        self._answer(request, NONE, None, data, lifetime_ms)

    @staticmethod
    def _answer(request: Request, code: int, text: str | None, data: bytes = b"", lifetime_ms: int = 0) -> None:
        message = {
            "error_code": code,
            "error_message": text,
            "auth_bytes": data,
            "session_lifetime_ms": lifetime_ms,
        }
        respond(request, message)

    def _handle_raw(self, frame: bytes) -> None:
        if self.state is not LoginState.RAW_EXCHANGE:
            return  # It has failed: the connection ends soon.
        try:
            data = self._step(frame)
            if self._is_complete():
                self._complete()
        except SaslError as error:
            self._fail(error.log_text)
            return
        self._connection.send(len(data).to_bytes(4, "big") + data)

    def _step(self, data: bytes) -> bytes:
        assert self._exchange is not None, "a mechanism was chosen"
        return self._exchange.step(data)

    def _is_complete(self) -> bool:
        return self._exchange is not None and self._exchange.is_complete

    # The end of a login

    def _complete(self) -> int:
        """The client has authenticated. Return the lifetime of the session in milliseconds, 0 for no limit.

        Raises `SaslError` if a client that authenticates again is another user.
        """
        exchange, connection, settings = self._exchange, self._connection, self._settings
        assert exchange is not None, "a mechanism was chosen"
        identity = Identity(
            Principal(USER, exchange.authorization_id),
            connection.peer_host,
            connection.listener,
            settings.protocol,
            self._mechanism,
            exchange.is_delegation_token,
        )
        self._check_same_user(identity)
        if self._is_again:
            connection.counters.reauthentications += 1
        else:
            connection.counters.authentications += 1
        if connection.timer is not None:
            connection.timer.cancel()
        self.state = LoginState.READY
        self._exchange = None
        connection.identity = identity
        connection.raw = None
        connection.limit_frames(_UNLIMITED)
        lifetime_ms = self._lifetime_ms(exchange, settings.mechanisms[self._mechanism])
        if lifetime_ms is None:
            connection.handler = self._serve
            return 0
        self._expires_ms = self._clock.monotonic_ms() + lifetime_ms
        connection.handler = self._serve_in_session
        return lifetime_ms

    def _check_same_user(self, identity: Identity) -> None:
        before = self._connection.identity
        if before is not None and before.principal != identity.principal:
            text = f"Cannot change principals during re-authentication from {before.principal} to {identity.principal}"
            raise SaslError(
                self._mechanism,
                f"the user {shown(before.principal.name)} authenticated again as {shown(identity.principal.name)}",
                peer_text=text,
            )

    def _lifetime_ms(self, exchange: ServerExchange, mechanism: Mechanism) -> int | None:
        """Return after which time the client must authenticate again: the limit of the listener or the expiry of its
        credentials, whichever is earlier. None without both."""
        limits = [mechanism.max_reauth_ms] if mechanism.max_reauth_ms else []
        if exchange.expiry_ms is not None:
            limits.append(max(0, exchange.expiry_ms - self._clock.wall_ms()))
        return min(limits) if limits else None

    def _serve_in_session(self, request: Request) -> None:
        """Handler of a connection whose session has an end."""
        if request.api_key != ApiKey.SASL_HANDSHAKE and self._clock.monotonic_ms() >= self._expires_ms:
            self._connection.counters.sessions_expired += 1
            request.fail("the client did not authenticate again before the end of its session")
            return
        self._serve(request)

    def _begin_again(self, request: Request) -> None:
        now_ms = self._clock.monotonic_ms()
        is_too_early = self._begun_ms is not None and now_ms - self._begun_ms < REAUTHENTICATION_INTERVAL_MS
        if request.api_version == 0 or is_too_early:
            refuse_login(request)
            return
        self._begun_ms = now_ms
        before = self._mechanism
        self._take_over()
        wanted = self._mechanism_of(request)
        if wanted in self._settings.mechanisms and wanted != before:
            # As in Kafka, the client gets to know it in the next answer.
            self.state = LoginState.OTHER_MECHANISM
            respond(request, {"error_code": NONE, "mechanisms": tuple(self._settings.mechanisms)})
        else:
            self._shake_hands(request)
        if self.state is not LoginState.FAILED:
            self._connection.timer = self._clock.call_later(self._settings.timeout_ms, self._late)

    def _refuse_mechanism(self, request: Request) -> None:
        text = f"The mechanism cannot be changed during re-authentication: it is {self._mechanism}"
        self._fail(
            "the client chose another mechanism to authenticate again",
            lambda: self._answer(request, SaslAuthenticationFailedError.code, text),
        )

    def _late(self) -> None:
        self._count_failure(
            f"it has not authenticated within {self._settings.timeout_ms:.0f} ms (connection.handshake.timeout.ms)"
        )
        self.state = LoginState.FAILED
        self._connection.abort("it has not authenticated in time")

    def _fail(self, log_text: str, answer: Callable[[], None] | None = None) -> None:
        """End the connection after the delay; `answer` sends what the client gets before."""
        self._count_failure(log_text)
        self.state = LoginState.FAILED
        connection = self._connection
        if connection.timer is not None:
            connection.timer.cancel()

        def end() -> None:
            if answer is None:
                connection.abort("the client has not authenticated")
            else:
                answer()
                connection.close()

        connection.timer = self._clock.call_later(self._settings.failed_delay_ms, end)

    def _count_failure(self, log_text: str) -> None:
        counters = self._connection.counters
        if self._is_again:
            counters.failed_reauthentications += 1
        else:
            counters.failed_authentications += 1
        self._log.warn("%s: authentication failed: %s", self._connection, log_text)


_UNLIMITED: Final = 2**31 - 1
"""The connection has its own limit."""

_STEPS: Final[Mapping[tuple[LoginState, int], Callable[[Login, Request], None]]] = {
    (LoginState.INITIAL, ApiKey.API_VERSIONS): Login._tell_versions,
    (LoginState.INITIAL, ApiKey.SASL_HANDSHAKE): Login._shake_hands,
    (LoginState.VERSIONS_KNOWN, ApiKey.SASL_HANDSHAKE): Login._shake_hands,
    (LoginState.EXCHANGE, ApiKey.SASL_AUTHENTICATE): Login._authenticate,
    (LoginState.READY, ApiKey.SASL_HANDSHAKE): Login._begin_again,
    (LoginState.OTHER_MECHANISM, ApiKey.SASL_AUTHENTICATE): Login._refuse_mechanism,
}
