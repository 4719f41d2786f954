"""Outgoing connections with TLS and SASL, to real listeners over loopback."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek.base.errors import AuthenticationError, NetworkError
from odradek.base.ports import Timer
from odradek.base.system_ports import SystemClock
from odradek.base.types import Endpoint
from odradek.network.channel import Channel, ChannelLimits
from odradek.network.channel_security import ChannelSecurity
from odradek.network.connection import Request
from odradek.network.listener import Listener
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import Message, encode_response
from odradek.security.client_security import ClientSecurity
from odradek.security.sasl.credentials import (
    SCRAM_MECHANISMS,
    SHA_256,
    ScramCredential,
    ScramMechanism,
    TokenCredential,
    derive,
)
from odradek.security.sasl.plain import LOGIN_MODULE as PLAIN_MODULE
from odradek.security.sasl.scram import LOGIN_MODULE as SCRAM_MODULE
from odradek.server.security.listener_security import LoginPorts, SecurityMaker
from odradek.server.security.sasl_requests import sasl_handlers
from odradek_testkit.security.certificates import Authority, key_pem, pem

ROOT = Authority.root("root")
PASSWORD = "not to be shown"
CREDENTIALS = {each: derive(PASSWORD, each) for each in SCRAM_MECHANISMS.values()}
TOKENS: dict[str, TokenCredential] = {}
"""Delegation tokens by id."""
VERSIONS: Message = {
    "error_code": 0,
    "api_keys": [
        {"api_key": row.key, "min_version": row.min_version, "max_version": row.max_version}
        for row in API_TABLE.values()
    ],
}


def find(mechanism: ScramMechanism, user: str) -> ScramCredential | None:
    return CREDENTIALS[mechanism] if user == "alice" else None


def find_token(_mechanism: ScramMechanism, token_id: str) -> TokenCredential | None:
    return TOKENS.get(token_id)


class StoppedClock(SystemClock):
    """Timers run, but no session of a client ends."""

    def monotonic_ms(self) -> float:
        return 0.0

    def wall_ms(self) -> int:
        return 1_000_000

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        return SystemClock().call_later(delay_ms, callback)


class Broker:
    """A listener that answers ApiVersions and remembers who asks."""

    def __init__(self, folder: Path, protocol: str, host: str = "localhost", **properties: str) -> None:
        self.folder = folder
        issued = ROOT.issue("broker", hosts=(host,))
        (folder / "root.pem").write_text(pem(ROOT.certificate))
        (folder / "broker.pem").write_text(key_pem(issued.key) + issued.chain_pem)
        alice = ROOT.issue("alice", hosts=())
        (folder / "alice.pem").write_text(key_pem(alice.key) + alice.chain_pem)
        values = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": f"{folder}/broker.pem",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": f"{folder}/root.pem",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "connection.failed.authentication.delay.ms": "0",
            "listener.name.x.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="{PASSWORD}";',
            **{name.replace("_", "."): value for name, value in properties.items()},
        }
        ports = LoginPorts(find, find_token, lambda _version, _request: VERSIONS)
        maker = SecurityMaker(values, StoppedClock(), asyncio.to_thread, ports)
        security = maker(Endpoint("X", "localhost", 0, protocol))
        self.protocol = protocol
        self.users: list[str] = []
        self.has_token = False
        """Whether the last request was made with a delegation token."""
        self.listener = Listener("X", ("127.0.0.1", 0), self._handle, StoppedClock(), security=security)

    def _handle(self, request: Request) -> None:
        handler = sasl_handlers().get(request.api_key)
        if handler is not None:
            handler(request)
            return
        self.users.append(request.identity.principal.name)
        self.has_token = request.identity.token
        message: Message = VERSIONS if request.api_key == ApiKey.API_VERSIONS else {"error_code": 0}
        request.respond([encode_response(request.api_key, request.api_version, request.correlation_id, message)])

    def security(self, **properties: str) -> ChannelSecurity:
        """The security of a client. Names have `_` for `.`."""
        values = {
            "security.protocol": self.protocol,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": f"{self.folder}/root.pem",
            **{name.replace("_", "."): value for name, value in properties.items()},
        }
        clock = SystemClock()
        return ChannelSecurity(
            ClientSecurity.from_properties(values, clock), clock=clock, run_blocking=asyncio.to_thread
        )

    def entry(self, mechanism: str, password: str = PASSWORD, user: str = "alice") -> dict[str, str]:
        """Client properties for a login."""
        module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
        entry = f'{module} required username="{user}" password="{password}";'
        return {"sasl_mechanism": mechanism, "sasl_jaas_config": entry}


@asynccontextmanager
async def started(folder: Path, protocol: str, **options: str) -> AsyncIterator[Broker]:
    broker = Broker(folder, protocol, **options)
    await broker.listener.start()
    try:
        yield broker
    finally:
        await broker.listener.close(grace_ms=0)


@asynccontextmanager
async def connected(
    broker: Broker, security: ChannelSecurity | None, host: str = "localhost", **options: Any
) -> AsyncIterator[Channel]:
    channel = await Channel.open(host, broker.listener.port, client_id="me", security=security, **options)
    try:
        await channel.negotiate()
        yield channel
    finally:
        await channel.close()


async def beat(channel: Channel) -> None:
    response = await channel.ask(ApiKey.HEARTBEAT, 0, {"group_id": "g", "generation_id": 1, "member_id": "m"})
    assert response.error_code == 0


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_client_logs_in(tmp_path: Path, protocol: str, mechanism: str) -> None:
    async with started(tmp_path, protocol) as broker:
        security = broker.security(**broker.entry(mechanism))
        async with connected(broker, security) as channel:
            await beat(channel)
        assert broker.users == ["alice"]
        assert broker.listener.counters.authentications == 1


async def test_a_certificate_is_the_identity(tmp_path: Path) -> None:
    async with started(tmp_path, "SSL", ssl_client_auth="required") as broker:
        key = {"ssl_keystore_type": "PEM", "ssl_keystore_location": f"{tmp_path}/alice.pem"}
        async with connected(broker, broker.security(**key)) as channel:
            await beat(channel)
        assert set(broker.users) == {"CN=alice"}


async def test_a_connection_that_the_broker_ends_at_once_can_be_tried_again(tmp_path: Path) -> None:
    async with started(tmp_path, "SSL", ssl_client_auth="required") as broker:
        with pytest.raises(NetworkError, match="before it was authenticated: check protocol and certificate"):
            async with connected(broker, broker.security()):
                pass


async def test_the_alert_of_a_broker_that_requires_a_certificate_is_an_authentication_error(tmp_path: Path) -> None:
    broker = Broker(tmp_path, "SSL")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tmp_path / "root.pem")
    context.load_cert_chain(tmp_path / "broker.pem")
    context.verify_mode = ssl.CERT_REQUIRED

    def refuse() -> None:
        connection, _ = server.accept()
        tls = context.wrap_socket(connection.dup(), server_side=True, do_handshake_on_connect=False)
        with connection, tls:
            with pytest.raises(ssl.SSLError):
                tls.do_handshake()
            # Closing a socket with unread data resets the connection, which can overtake the alert.
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        refusal = asyncio.create_task(asyncio.to_thread(refuse))
        broker.listener.port = server.getsockname()[1]
        with pytest.raises(AuthenticationError, match=r"the TLS handshake with localhost:\d+ failed: .*certificate"):
            async with connected(broker, broker.security()):
                pass
        await refusal


async def test_the_certificate_must_be_for_the_host_unless_that_is_switched_off(tmp_path: Path) -> None:
    async with started(tmp_path, "SSL", host="elsewhere") as broker:
        with pytest.raises(AuthenticationError, match=r"of localhost:\d+ is not accepted: Hostname mismatch"):
            async with connected(broker, broker.security()):
                pass
        async with connected(broker, broker.security(ssl_endpoint_identification_algorithm="")) as channel:
            await beat(channel)


async def test_an_unknown_authority_is_an_authentication_error(tmp_path: Path) -> None:
    async with started(tmp_path, "SSL") as broker:
        (tmp_path / "other.pem").write_text(pem(Authority.root("other").certificate))
        security = broker.security(ssl_truststore_location=f"{tmp_path}/other.pem")
        with pytest.raises(AuthenticationError, match="is not accepted: "):
            async with connected(broker, security):
                pass


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_a_refusal_has_address_and_reason_but_no_secret(tmp_path: Path, mechanism: str) -> None:
    async with started(tmp_path, "SASL_PLAINTEXT") as broker:
        security = broker.security(**broker.entry(mechanism, password="hunter2"))
        with pytest.raises(AuthenticationError, match=r"localhost:\d+ refused the client: .*invalid cred") as caught:
            async with connected(broker, security):
                pass
        assert "hunter2" not in str(caught.value)


async def test_the_mechanisms_of_the_broker_are_named(tmp_path: Path) -> None:
    async with started(tmp_path, "SASL_PLAINTEXT", sasl_enabled_mechanisms="SCRAM-SHA-256") as broker:
        security = broker.security(**broker.entry("PLAIN"))
        with pytest.raises(AuthenticationError, match=r"does not support .* PLAIN; it supports 'SCRAM-SHA-256'"):
            async with connected(broker, security):
                pass


async def test_a_listener_without_sasl_or_tls_is_named(tmp_path: Path) -> None:
    async with started(tmp_path, "PLAINTEXT") as broker:
        broker.protocol = "SASL_PLAINTEXT"
        with pytest.raises(AuthenticationError, match=r"localhost:\d+ refused the SASL handshake \(IllegalSaslState\)"):
            async with connected(broker, broker.security(**broker.entry("PLAIN"))):
                pass


async def test_a_missing_token_can_be_tried_again(tmp_path: Path) -> None:
    async with started(tmp_path, "SASL_PLAINTEXT") as broker:
        security = broker.security(
            sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token_endpoint_url=f"file:{tmp_path}/missing"
        )
        with pytest.raises(NetworkError, match=r"the token file .*missing cannot be read"):
            async with connected(broker, security):
                pass


@pytest.mark.parametrize("in_flight", [1, 100])
async def test_requests_wait_while_the_client_authenticates_again(tmp_path: Path, in_flight: int) -> None:
    async with started(tmp_path, "SASL_PLAINTEXT", connections_max_reauth_ms="400") as broker:
        security = broker.security(**broker.entry("SCRAM-SHA-256"))
        async with connected(broker, security, limits=ChannelLimits(max_in_flight=in_flight)) as channel:
            async with asyncio.timeout(30):
                while not broker.listener.counters.reauthentications:
                    await asyncio.gather(*(beat(channel) for _ in range(5)))
            await beat(channel)
        assert set(broker.users) == {"alice"}
        assert broker.listener.counters.reauthentications == 1
        assert broker.listener.counters.sessions_expired == 0


async def test_a_client_that_cannot_authenticate_again_loses_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with started(tmp_path, "SASL_PLAINTEXT", connections_max_reauth_ms="400") as broker:
        security = broker.security(**broker.entry("SCRAM-SHA-256"))
        async with connected(broker, security) as channel:
            monkeypatch.setitem(CREDENTIALS, SCRAM_MECHANISMS["SCRAM-SHA-256"], derive("new", SHA_256))
            with pytest.raises(NetworkError, match=r"could not authenticate again: .*invalid credentials"):
                async with asyncio.timeout(30):
                    while True:
                        await beat(channel)
            assert not channel.is_open


async def test_a_session_with_a_delegation_token_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOKENS, "id", TokenCredential("alice", StoppedClock().wall_ms() + 400, CREDENTIALS[SHA_256]))
    async with started(tmp_path, "SASL_PLAINTEXT") as broker:
        entry = f'{SCRAM_MODULE} required username="id" password="{PASSWORD}" tokenauth="true";'
        security = broker.security(sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=entry)
        async with connected(broker, security) as channel:
            await beat(channel)
            assert (broker.users[-1], broker.has_token) == ("alice", True)
            monkeypatch.delitem(TOKENS, "id")
            with pytest.raises(NetworkError, match=r"could not authenticate again: .*invalid credentials"):
                async with asyncio.timeout(30):
                    while True:
                        await beat(channel)
            assert not channel.is_open
