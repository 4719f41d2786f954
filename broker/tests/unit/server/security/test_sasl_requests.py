"""Requests of SASL on a listener without authentication."""

from __future__ import annotations

from collections.abc import Callable

from odradek.base.errors import IllegalSaslStateError
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.sasl import SaslAuthenticateRequest
from odradek_testkit.server import MemoryServer


def test_they_are_refused_and_the_connection_stays_open(play: Callable[..., None]) -> None:
    async def scenario(server: MemoryServer) -> None:
        for _ in range(2):
            handshake = await server.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
            assert (handshake.error_code, handshake.mechanisms) == (IllegalSaslStateError.code, ())
            for version in range(3):
                answer = await server.ask(ApiKey.SASL_AUTHENTICATE, version, {"auth_bytes": b"\0alice\0secret"})
                assert answer.error_code == IllegalSaslStateError.code

    play(scenario)


def test_messages_do_not_show_secrets() -> None:
    assert "secret" not in repr(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"))
