"""PLAIN: RFC 4616."""

from __future__ import annotations

import pytest

from odradek.security.sasl.mechanism import ClientExchange, SaslError, ServerExchange, shown
from odradek.security.sasl.plain import PlainClient, PlainServer, PlainUsers

USERS = PlainUsers({"username": "broker", "password": "of the broker", "user_tim": "tanstaaftanstaaf", "user_ü": "ß "})


def server() -> PlainServer:
    return PlainServer(USERS.verify)


@pytest.mark.parametrize(
    ("message", "user"),
    [
        (b"\0tim\0tanstaaftanstaaf", "tim"),
        (b"tim\0tim\0tanstaaftanstaaf", "tim"),
        ("\0ü\0ß ".encode(), "ü"),
    ],
)
def test_users_authenticate(message: bytes, user: str) -> None:
    exchange: ServerExchange = server()
    assert not exchange.is_complete
    assert exchange.step(message) == b""
    assert exchange.is_complete
    assert exchange.authorization_id == user
    assert exchange.expiry_ms is None
    assert not exchange.is_delegation_token


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "separated by a zero byte"),
        (b"\0tim", "separated by a zero byte"),
        (b"\0\0tanstaaftanstaaf", "separated by a zero byte"),
        (b"\0tim\0", "separated by a zero byte"),
        (b"\0tim\0tanstaaftanstaaf\0", "separated by a zero byte"),
        (b"\0tim\0tanstaaftanstaaf\xff", "not UTF-8"),
        (b"\0tim\0tanstaaftanstaa", "'tim'"),
        (b"\0nobody\0tanstaaftanstaaf", "'nobody'"),
        (b"\0username\0broker", "'username'"),
        (b"\0broker\0of the broker", "'broker'"),
        (b"root\0tim\0tanstaaftanstaaf", "'root'"),
    ],
)
def test_others_do_not(message: bytes, reason: str) -> None:
    exchange = server()
    with pytest.raises(SaslError) as caught:
        exchange.step(message)
    assert reason in caught.value.log_text
    assert "tanstaaf" not in caught.value.log_text
    assert str(caught.value) == "Authentication failed: invalid credentials for SASL mechanism PLAIN"
    assert not exchange.is_complete
    with pytest.raises(SaslError, match="PLAIN"):
        exchange.step(b"\0tim\0tanstaaftanstaaf")
    with pytest.raises(SaslError):
        _ = exchange.authorization_id


def test_a_complete_exchange_takes_nothing_more() -> None:
    exchange = server()
    exchange.step(b"\0tim\0tanstaaftanstaaf")
    with pytest.raises(SaslError):
        exchange.step(b"\0tim\0tanstaaftanstaaf")


def test_client_and_server_agree() -> None:
    client: ClientExchange = PlainClient("ü", "ß ")
    exchange = server()
    assert client.step(exchange.step(client.start())) is None
    assert client.is_complete
    assert exchange.authorization_id == "ü"


@pytest.mark.parametrize(
    ("user", "password"), [("", "x"), ("x", ""), ("x\0", "x"), ("x", "\0x"), ("x\ud800", "x"), ("x", "\udfff")]
)
def test_the_client_refuses_what_it_cannot_send(user: str, password: str) -> None:
    with pytest.raises(SaslError) as caught:
        PlainClient(user, password)
    assert caught.value.__cause__ is None


def test_the_client_keeps_the_order() -> None:
    client = PlainClient("tim", "x")
    with pytest.raises(SaslError):
        client.step(b"")
    client.start()
    with pytest.raises(SaslError):
        client.start()
    with pytest.raises(SaslError):
        client.step(b"what?")
    assert not client.is_complete


def test_no_secret_is_shown() -> None:
    client, exchange = PlainClient("tim", "tanstaaftanstaaf"), server()
    exchange.step(client.start())
    assert "tanstaaf" not in f"{client!r} {exchange!r} {USERS!r} {vars(USERS)!r}"


def test_names_in_logs_are_short_and_on_one_line() -> None:
    assert shown("a\n\x1b[1m") == r"'a\n\x1b[1m'"
    assert len(shown("x" * 1_000_000)) == 105
