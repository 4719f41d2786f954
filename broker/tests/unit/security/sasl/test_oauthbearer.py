"""OAUTHBEARER: RFC 7628."""

from __future__ import annotations

import json

import pytest

from odradek.base.errors import ConfigError
from odradek.security.sasl.mechanism import ClientExchange, SaslError, ServerExchange
from odradek.security.sasl.oauthbearer import (
    MAX_MESSAGE,
    BearerToken,
    OAuthBearerClient,
    OAuthBearerServer,
    TokenError,
    extensions_of,
)

TOKEN = "vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg=="
"""Of the example in RFC 7628, section 4.1."""


def verify(token: str) -> BearerToken:
    if token != TOKEN:
        raise TokenError("the token is another one")
    return BearerToken(principal_name="user@example.com", expiry_ms=1234, scopes=frozenset({"read"}))


def server() -> OAuthBearerServer:
    return OAuthBearerServer(verify)


def test_the_example_of_the_rfc() -> None:
    exchange: ServerExchange = server()
    first = f"n,a=user@example.com,\x01host=server.example.com\x01port=143\x01auth=Bearer {TOKEN}\x01\x01"
    assert exchange.step(first.encode()) == b""
    assert exchange.is_complete
    assert exchange.authorization_id == "user@example.com"
    assert exchange.expiry_ms == 1234
    assert not exchange.is_delegation_token


def test_client_and_server_agree() -> None:
    client: ClientExchange = OAuthBearerClient(TOKEN, {"traceId": "a b=c"})
    exchange = server()
    assert client.step(exchange.step(client.start())) is None
    assert client.is_complete
    assert exchange.extensions == {"traceId": "a b=c"}


def test_a_refused_token_has_three_messages() -> None:
    client, exchange = OAuthBearerClient("other"), server()
    status = exchange.step(client.start())
    assert json.loads(status) == {"status": "invalid_token"}
    answer = client.step(status)
    assert answer == b"\x01"
    with pytest.raises(SaslError) as caught:
        exchange.step(answer)
    assert str(caught.value) == status.decode()
    assert caught.value.log_text == "the token is another one"
    assert not exchange.is_complete
    assert not client.is_complete
    assert exchange.expiry_ms is None
    with pytest.raises(SaslError) as refused:
        client.step(b"")
    assert "invalid_token" in refused.value.log_text


def test_nothing_follows_a_refused_token() -> None:
    exchange = server()
    exchange.step(OAuthBearerClient("other").start())
    with pytest.raises(SaslError):
        exchange.step(OAuthBearerClient(TOKEN).start())
    with pytest.raises(SaslError):
        exchange.step(OAuthBearerClient(TOKEN).start())
    with pytest.raises(SaslError):
        _ = exchange.authorization_id


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "form"),
        (b"\x01", "form"),
        (f"y,,\x01auth=Bearer {TOKEN}\x01\x01".encode(), "form"),
        (f"n,,\x01auth=Bearer {TOKEN}\x01".encode(), "form"),
        (f"n,,\x01auth=Bearer {TOKEN}\x01\x01\x01".encode(), "form"),
        (f"n,,\x01auth=Bearer {TOKEN}\x01a1=b\x01\x01".encode(), "form"),
        (f"n,,\x01auth=Bearer {TOKEN}\x01a=\x01\x01".encode(), "form"),
        (f"n,,\x01auth=Bearer {TOKEN}\x01auth=Bearer {TOKEN}\x01\x01".encode(), "twice"),
        (b"n,,\x01\x01", "no bearer token"),
        (f"n,,\x01auth=Basic {TOKEN}\x01\x01".encode(), "no bearer token"),
        (f"n,,\x01auth=Bearer{TOKEN}\x01\x01".encode(), "no bearer token"),
        (f"n,,\x01auth=Bearer {TOKEN} x\x01\x01".encode(), "no bearer token"),
        (f"n,,\x01auth=Bearer {TOKEN}\x01a=\xff\x01\x01".encode("latin-1"), "not UTF-8"),
        (b"n,,\x01auth=Bearer " + b"x" * MAX_MESSAGE, "longer than"),
        (f"n,a=root,\x01auth=Bearer {TOKEN}\x01\x01".encode(), "asked to act as 'root'"),
    ],
)
def test_bad_messages(message: bytes, reason: str) -> None:
    exchange = server()
    with pytest.raises(SaslError) as caught:
        exchange.step(message)
    assert reason in caught.value.log_text
    assert TOKEN not in f"{caught.value} {caught.value.log_text}"
    assert not exchange.is_complete
    with pytest.raises(SaslError):
        exchange.step(OAuthBearerClient(TOKEN).start())


@pytest.mark.parametrize(
    ("token", "extensions"),
    [
        ("", {}),
        ("a\x01b", {}),
        ("a b", {}),
        ("ä", {}),
        (TOKEN, {"auth": "Bearer x"}),
        (TOKEN, {"a1": "b"}),
        (TOKEN, {"a": "\x01"}),
        (TOKEN, {"a": ""}),
    ],
)
def test_the_client_refuses_what_it_cannot_send(token: str, extensions: dict[str, str]) -> None:
    with pytest.raises(SaslError):
        OAuthBearerClient(token, extensions)


def test_the_client_keeps_the_order() -> None:
    client = OAuthBearerClient(TOKEN)
    with pytest.raises(SaslError):
        client.step(b"")
    client.start()
    with pytest.raises(SaslError):
        client.start()
    client.step(b"")
    with pytest.raises(SaslError):
        client.step(b"")


def test_extensions_are_options_of_the_jaas_entry() -> None:
    options = {"extension_logicalCluster": "lkc-1", "clientId": "x"}
    assert extensions_of("sasl.jaas.config", options) == {"logicalCluster": "lkc-1"}


@pytest.mark.parametrize(("name", "value"), [("auth", "x"), ("a-b", "x"), ("", "x"), ("a", ""), ("a", "ä")])
def test_bad_extensions(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=r"^sasl\.jaas\.config: the option extension_"):
        extensions_of("sasl.jaas.config", {f"extension_{name}": value})


def test_no_secret_is_shown() -> None:
    client, exchange = OAuthBearerClient(TOKEN), server()
    exchange.step(client.start())
    assert TOKEN not in f"{client!r} {exchange!r} {vars(exchange)!r}"
