"""Random sequences of frames never reach the broker before the client has authenticated."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.network.connection import Connection, Request
from odradek.network.limited_log import LimitedLog
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import Message, encode_request
from odradek.security.sasl.plain import PlainServer
from odradek.server.security.login import Login, LoginSettings, LoginState, Mechanism
from odradek_testkit.loop import VirtualClock, run_virtual

RIGHT, WRONG = b"\0alice\0secret", b"\0alice\0other"
VERSIONS: Message = {"client_software_name": "x", "client_software_version": "1"}


class Broker:
    """A connection in memory, and what the broker's handler gets."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.served = 0
        self.is_ended = False
        mechanism = Mechanism(lambda: PlainServer(lambda user, password: (user, password) == ("alice", "secret")))
        options = LoginSettings(protocol="SASL_PLAINTEXT", mechanisms={"PLAIN": mechanism}, max_receive_bytes=500)
        log = LimitedLog(logging.getLogger("login"), self.clock)

        def begin(connection: Connection) -> None:
            self.login = Login(
                connection, options, self.clock, describe_versions=lambda *_: {"error_code": 0, "api_keys": ()}, log=log
            )

        self.connection = Connection(self._serve, self.clock, begin=begin)
        self.connection.connection_made(cast(Any, self))

    def _serve(self, request: Request) -> None:
        assert self.login.state is LoginState.READY
        assert request.identity.principal.name == "alice"
        self.served += 1
        request.respond_nothing()

    def get_extra_info(self, name: str) -> Any:
        return ("192.0.2.7", 50_000) if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None:
        """Everything is read at once."""

    def pause_reading(self) -> None:
        """The client goes on sending."""

    resume_reading = pause_reading

    def write(self, data: object) -> None:
        """The client ignores it."""

    writelines = write

    def abort(self) -> None:
        self.is_ended = True

    close = abort

    def send(self, data: bytes) -> None:
        while data and not self.is_ended:
            space = self.connection.get_buffer(-1)
            piece = data[: len(space)]
            space[: len(piece)] = piece
            data = data[len(piece) :]
            self.connection.buffer_updated(len(piece))


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def request(key: ApiKey, version: int, message: Message) -> bytes:
    return encode_request(key, version, 1, "me", message)


anything = st.one_of(
    st.sampled_from([request(ApiKey.API_VERSIONS, version, VERSIONS) for version in (0, 3)]),
    st.sampled_from([request(ApiKey.SASL_HANDSHAKE, version, {"mechanism": "PLAIN"}) for version in (0, 1)]),
    st.sampled_from([request(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": data}) for data in (RIGHT, WRONG)]),
    st.sampled_from([framed(RIGHT), framed(WRONG), framed(b"x")]),
    st.builds(
        lambda key, version, rest: framed(key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0" * 6 + rest),
        st.sampled_from(list(API_TABLE)),
        st.integers(0, 20),
        st.binary(max_size=30),
    ),
    st.binary(max_size=40).map(framed),
    st.binary(max_size=40),
)


@settings(max_examples=400)
@given(frames=st.lists(anything, max_size=8), waits=st.booleans())
def test_no_frame_reaches_the_broker_before_the_login(frames: list[bytes], waits: bool) -> None:
    async def main() -> None:
        broker = Broker()
        for frame in frames:
            broker.send(frame)
            if waits:
                await asyncio.sleep(0)
            is_known = broker.connection.identity is not None
            assert is_known or not broker.served
        if broker.connection.identity is None:
            await broker.clock.sleep_ms(20_000)
            assert broker.is_ended, "a client that does not authenticate is cut"
        broker.connection.connection_lost(None)

    run_virtual(main())
