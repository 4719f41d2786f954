"""The login of a connection: every request in every state, failures, raw frames, and re-authentication."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, cast

import pytest

from odradek.base.errors import (
    IllegalSaslStateError,
    InvalidRequestError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
)
from odradek.base.ports import Timer
from odradek.network.connection import Connection, Request
from odradek.network.limited_log import LimitedLog
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import Message, decode_response, encode_request
from odradek.security.principals import Identity, Principal
from odradek.security.sasl.mechanism import SaslError
from odradek.server.security.login import Login, LoginSettings, LoginState, Mechanism
from odradek.server.security.sasl_requests import sasl_handlers

VERSIONS: Message = {"client_software_name": "x", "client_software_version": "1"}


class StepClock:
    """A clock that the test advances; timers run in order."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.wall = 1_000_000
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def monotonic_ms(self) -> float:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.wall + int(self.now_ms)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        entry = (self.now_ms + delay_ms, callback)
        self.timers.append(entry)
        timers = self.timers

        class One:
            def cancel(self) -> None:
                if entry in timers:
                    timers.remove(entry)

        return One()

    def advance(self, delay_ms: float) -> None:
        self.now_ms += delay_ms
        for entry in sorted(self.timers, key=lambda each: each[0]):
            if entry[0] <= self.now_ms and entry in self.timers:
                self.timers.remove(entry)
                entry[1]()


class Steps:
    """An exchange: `more` is answered with `go on`, the name of a user completes it, `no` fails."""

    is_delegation_token = False

    def __init__(self, mechanism: str = "PLAIN", expiry_ms: int | None = None) -> None:
        self.mechanism = mechanism
        self.expiry_ms = expiry_ms
        self.user = ""

    @property
    def is_complete(self) -> bool:
        return bool(self.user)

    @property
    def authorization_id(self) -> str:
        return self.user

    def step(self, data: bytes) -> bytes:
        if data == b"no":
            raise SaslError(self.mechanism, "the secret reason")
        if data == b"more":
            return b"go on"
        self.user = data.decode()
        return b"welcome"


class Client:
    """A client with a connection whose transport is in memory, and the requests that reach the broker."""

    def __init__(self, *, max_reauth_ms: int = 0, expiry_ms: int | None = None) -> None:
        self.clock = StepClock()
        self.served: list[Request] = []
        self.written = bytearray()
        self.is_aborted = self.is_closed = False
        self.correlation_id = 0
        mechanisms = {
            name: Mechanism(lambda name=name: Steps(name, expiry_ms), max_reauth_ms)  # type: ignore[misc]
            for name in ("PLAIN", "SCRAM-SHA-256")
        }
        settings = LoginSettings(protocol="SASL_SSL", mechanisms=mechanisms, max_receive_bytes=1_000)
        clock = cast(Any, self.clock)
        log = LimitedLog(logging.getLogger("login"), clock)

        def begin(connection: Connection) -> None:
            self.login = Login(connection, settings, clock, describe_versions=self._describe, log=log)

        self.connection = Connection(self._serve, clock, listener="L", begin=begin)
        self.connection.connection_made(cast(Any, self))

    def _serve(self, request: Request) -> None:
        """The broker: answers Heartbeat, and routes SASL like the dispatcher."""
        sasl = sasl_handlers().get(request.api_key)
        if sasl is not None:
            sasl(request)
            return
        self.served.append(request)
        request.respond([b"\0\0\0\6", request.correlation_id.to_bytes(4, "big"), b"\0\0"])

    def _describe(self, version: int, request: Any) -> Message:
        if request.client_software_name == "bad name":
            raise InvalidRequestError("bad name")
        return {"error_code": 0, "api_keys": (), "throttle_time_ms": version}

    # The transport

    def get_extra_info(self, name: str) -> Any:
        return ("192.0.2.7", 50_000) if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None:
        """Everything is read at once."""

    def pause_reading(self) -> None:
        """The test sends nothing then."""

    resume_reading = pause_reading

    def write(self, data: bytes) -> None:
        self.written += data

    def writelines(self, buffers: Any) -> None:
        self.written += b"".join(buffers)

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_aborted = True

    # The client

    @property
    def is_ended(self) -> bool:
        return self.is_aborted or self.is_closed

    def send(self, frame: bytes) -> bytes:
        """Send a frame with its length; return what the broker sends at once."""
        self.written.clear()
        while frame:
            space = self.connection.get_buffer(-1)
            piece = frame[: len(space)]
            space[: len(piece)] = piece
            frame = frame[len(piece) :]
            self.connection.buffer_updated(len(piece))
        return bytes(self.written)

    def frame(self, key: ApiKey, version: int, message: Message) -> bytes:
        self.correlation_id += 1
        return encode_request(key, version, self.correlation_id, "me", message)

    def ask(self, key: ApiKey, version: int, message: Message) -> Any:
        """Return the response, or None if there is none at once."""
        answer = self.send(self.frame(key, version, message))
        return decode_response(key, version, answer[4:]) if answer else None

    def versions(self, version: int = 3, name: str = "x") -> Any:
        return self.ask(ApiKey.API_VERSIONS, version, {**VERSIONS, "client_software_name": name})

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> Any:
        return self.ask(ApiKey.SASL_HANDSHAKE, version, {"mechanism": mechanism})

    def authenticate(self, data: bytes, version: int = 2) -> Any:
        return self.ask(ApiKey.SASL_AUTHENTICATE, version, {"auth_bytes": data})

    def heartbeat(self) -> bytes:
        return self.send(self.frame(ApiKey.HEARTBEAT, 0, {"group_id": "g", "generation_id": 1, "member_id": "m"}))

    def log_in(self, user: bytes = b"alice") -> Any:
        self.handshake()
        return self.authenticate(user)

    def delayed(self, key: ApiKey, version: int) -> Any:
        """Return the answer that follows after the delay of a failure; the connection must end with it."""
        assert not self.is_ended
        assert not self.written
        self.clock.advance(99)
        assert not self.is_ended
        self.clock.advance(1)
        assert self.is_ended
        return decode_response(key, version, bytes(self.written)[4:]) if self.written else None


async def test_a_login_gives_an_identity_and_the_brokers_handler() -> None:
    client = Client()
    assert client.versions().error_code == 0
    handshake = client.handshake()
    assert (handshake.error_code, handshake.mechanisms) == (0, ("PLAIN", "SCRAM-SHA-256"))
    more = client.authenticate(b"more")
    assert (more.error_code, more.auth_bytes, more.session_lifetime_ms) == (0, b"go on", 0)
    assert client.connection.identity is None
    done = client.authenticate(b"alice")
    assert (done.error_code, done.auth_bytes, done.session_lifetime_ms) == (0, b"welcome", 0)
    assert client.heartbeat()
    (request,) = client.served
    assert request.identity == Identity(Principal("User", "alice"), "192.0.2.7", "L", "SASL_SSL", "PLAIN")
    assert client.connection.counters.authentications == 1
    assert client.connection.handler == client._serve, "nothing of the login is left in the path of a request"
    assert not client.clock.timers


@pytest.mark.parametrize(
    ("version", "name", "expected"), [(3, "odradek", True), (4, "librdkafka", False), (0, "odradek", False)]
)
async def test_clients_of_this_project_may_use_private_apis_after_the_login(
    version: int, name: str, expected: bool
) -> None:
    client = Client()
    client.versions(version, name)
    client.log_in()
    assert client.connection.identity is not None
    assert client.connection.knows_private_apis == expected


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_all_versions_of_authenticate(version: int) -> None:
    client = Client()
    client.handshake()
    assert client.authenticate(b"alice", version).error_code == 0
    assert client.heartbeat()


async def test_frames_without_headers_follow_handshake_0() -> None:
    client = Client()
    assert client.handshake(version=0).error_code == 0
    assert client.send(b"\0\0\0\4more") == b"\0\0\0\5go on"
    assert client.send(b"\0\0\0\5alice") == b"\0\0\0\7welcome"
    assert client.heartbeat()
    assert client.served[0].identity.principal.name == "alice"


async def test_a_failure_of_raw_frames_ends_the_connection_without_an_answer() -> None:
    client = Client()
    client.handshake(version=0)
    assert client.send(b"\0\0\0\2no\0\0\0\5alice") == b""
    assert client.delayed(ApiKey.SASL_AUTHENTICATE, 0) is None
    assert client.connection.identity is None
    assert client.connection.counters.failed_authentications == 1


async def test_a_failure_is_answered_after_a_delay_without_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    client = Client()
    client.handshake()
    assert client.authenticate(b"no") is None
    answer = client.delayed(ApiKey.SASL_AUTHENTICATE, 2)
    assert answer.error_code == SaslAuthenticationFailedError.code
    assert "secret reason" not in answer.error_message
    assert "secret reason" in caplog.text
    assert client.connection.counters.failed_authentications == 1


async def test_a_mechanism_that_is_not_enabled_is_refused_with_those_that_are() -> None:
    client = Client()
    assert client.handshake("GSSAPI") is None
    answer = client.delayed(ApiKey.SASL_HANDSHAKE, 1)
    assert (answer.error_code, answer.mechanisms) == (UnsupportedSaslMechanismError.code, ("PLAIN", "SCRAM-SHA-256"))


async def test_versions_can_be_asked_again_only_after_a_refusal() -> None:
    client = Client()
    frame = bytearray(client.frame(ApiKey.API_VERSIONS, 4, VERSIONS))
    frame[6:8] = (99).to_bytes(2, "big")
    answer = decode_response(ApiKey.API_VERSIONS, 0, client.send(bytes(frame))[4:])
    assert answer.error_code == UnsupportedVersionError.code
    assert client.versions(name="bad name").error_code == InvalidRequestError.code
    assert client.versions(0).error_code == 0
    assert client.versions() is None
    assert client.delayed(ApiKey.API_VERSIONS, 3) is None


ALLOWED = {
    LoginState.INITIAL: {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE},
    LoginState.VERSIONS_KNOWN: {ApiKey.SASL_HANDSHAKE},
    LoginState.EXCHANGE: {ApiKey.SASL_AUTHENTICATE},
    LoginState.OTHER_MECHANISM: set(),
}


def in_state(state: LoginState) -> Client:
    client = Client()
    if state is LoginState.VERSIONS_KNOWN:
        client.versions()
    elif state is LoginState.EXCHANGE:
        client.handshake()
    elif state is LoginState.OTHER_MECHANISM:
        client.log_in()
        client.handshake("SCRAM-SHA-256")
    assert client.login.state is state
    return client


@pytest.mark.parametrize(
    ("state", "key"), [(state, key) for state, allowed in ALLOWED.items() for key in API_TABLE if key not in allowed]
)
async def test_any_other_request_ends_the_connection(state: LoginState, key: ApiKey) -> None:
    client = in_state(state)
    head = key.to_bytes(2, "big") + b"\0\0" + b"\0\0\0\x09" + b"\0\2me" + b"\0" * 20
    client.send(len(head).to_bytes(4, "big") + head)
    is_sasl = key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
    answer = client.delayed(key, 0)
    assert client.served == []
    if state is not LoginState.OTHER_MECHANISM:
        assert client.connection.identity is None
        assert (answer.error_code if is_sasl else answer) == (IllegalSaslStateError.code if is_sasl else None)
    client.heartbeat()
    assert client.served == []


async def test_frames_before_the_login_are_limited() -> None:
    client = Client()
    client.handshake()
    client.send((1_001).to_bytes(4, "big"))
    assert client.is_aborted
    client = Client()
    client.log_in()
    assert client.send((1_001).to_bytes(4, "big")) == b""
    assert not client.is_aborted


@pytest.mark.parametrize("steps", range(4))
async def test_a_client_that_stops_is_cut_at_the_deadline(steps: int) -> None:
    client = Client()
    for step in [client.versions, client.handshake, lambda: client.authenticate(b"more")][:steps]:
        step()
    client.clock.advance(9_999)
    assert not client.is_ended
    client.clock.advance(1)
    assert client.is_aborted
    assert client.connection.counters.failed_authentications == 1


async def test_a_closed_connection_leaves_no_timer() -> None:
    client = Client()
    client.connection.connection_lost(None)
    assert not client.clock.timers


# Re-authentication (KIP-368)


@pytest.mark.parametrize(
    ("max_reauth_ms", "expiry_ms", "lifetime_ms"),
    [(5_000, None, 5_000), (0, 1_003_000, 3_000), (2_000, 1_003_000, 2_000), (5_000, 1_003_000, 3_000), (0, 1, 0)],
)
async def test_a_session_ends_unless_the_client_authenticates_again(
    max_reauth_ms: int, expiry_ms: int | None, lifetime_ms: int
) -> None:
    client = Client(max_reauth_ms=max_reauth_ms, expiry_ms=expiry_ms)
    assert client.log_in().session_lifetime_ms == lifetime_ms
    if lifetime_ms:
        client.clock.advance(lifetime_ms - 1)
        assert client.heartbeat()
        client.clock.advance(1)
    served = len(client.served)
    client.heartbeat()
    assert client.is_aborted
    assert len(client.served) == served
    assert client.connection.counters.sessions_expired == 1


async def test_a_client_authenticates_again_also_after_the_end_of_its_session() -> None:
    client = Client(max_reauth_ms=5_000)
    client.log_in()
    for _ in range(3):
        client.clock.advance(5_001)
        assert client.handshake().error_code == 0
        assert client.authenticate(b"more").auth_bytes == b"go on"
        assert client.authenticate(b"alice").session_lifetime_ms == 5_000
        client.clock.advance(4_000)
        assert client.heartbeat()
    counters = client.connection.counters
    assert (counters.authentications, counters.reauthentications) == (1, 3)
    assert not client.clock.timers


async def test_another_user_cannot_take_over_a_connection() -> None:
    client = Client()
    client.log_in()
    client.handshake()
    assert client.authenticate(b"bob") is None
    answer = client.delayed(ApiKey.SASL_AUTHENTICATE, 2)
    assert answer.error_code == SaslAuthenticationFailedError.code
    assert "User:bob" in answer.error_message
    assert client.connection.counters.failed_reauthentications == 1
    assert client.connection.identity is not None
    assert client.connection.identity.principal.name == "alice"


async def test_the_mechanism_cannot_change() -> None:
    client = Client()
    client.log_in()
    assert client.handshake("SCRAM-SHA-256").error_code == 0
    assert client.authenticate(b"alice") is None
    assert client.delayed(ApiKey.SASL_AUTHENTICATE, 2).error_code == SaslAuthenticationFailedError.code


async def test_nothing_else_is_served_during_a_re_authentication() -> None:
    client = Client()
    client.log_in()
    client.handshake()
    client.heartbeat()
    assert client.delayed(ApiKey.HEARTBEAT, 0) is None
    assert client.served == []


async def test_what_a_ready_connection_refuses_keeps_it_open() -> None:
    client = Client()
    client.log_in()
    assert client.authenticate(b"alice").error_code == IllegalSaslStateError.code
    assert client.handshake(version=0).error_code == IllegalSaslStateError.code
    assert client.log_in().error_code == 0
    assert client.handshake().error_code == IllegalSaslStateError.code, "twice in a second"
    assert client.heartbeat()


async def test_a_re_authentication_has_a_deadline() -> None:
    client = Client()
    client.log_in()
    client.clock.advance(60_000)
    assert not client.is_ended
    client.handshake()
    client.clock.advance(10_000)
    assert client.is_aborted
    assert client.connection.counters.failed_reauthentications == 1
