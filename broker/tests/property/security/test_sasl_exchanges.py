"""Whatever the other side sends, an exchange gives a response or a `SaslError`, and no secret is in the error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.errors import ConfigError
from odradek.security.sasl.bearer_tokens import BearerSettings, TokenVerifier
from odradek.security.sasl.credentials import SHA_256, SHA_512, ScramCredential, ScramMechanism, TokenCredential, derive
from odradek.security.sasl.jaas import parse_jaas
from odradek.security.sasl.key_sets import KeySetError, VerificationKeys, parse_key_set
from odradek.security.sasl.mechanism import SaslError, ServerExchange
from odradek.security.sasl.oauthbearer import OAuthBearerClient, OAuthBearerServer, TokenError
from odradek.security.sasl.plain import PlainClient, PlainServer, PlainUsers
from odradek.security.sasl.scram import Decoys, ScramClient, ScramServer
from odradek_testkit.security.issuers import Issuer, key_set, unsigned_token

PASSWORD = "geheim"
DECOYS = Decoys()
USERS = PlainUsers({"user_tim": PASSWORD})
NAMES = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), min_size=1, max_size=30)
MAX_RESPONSE = 40_000
"""A response repeats at most the nonce of one message."""


@cache
def credential(mechanism: ScramMechanism) -> ScramCredential:
    return derive(PASSWORD, mechanism)


def plain() -> ServerExchange:
    return PlainServer(USERS.verify)


def scram(mechanism: ScramMechanism) -> ServerExchange:
    return ScramServer(
        mechanism,
        find_user={"tim": credential(mechanism)}.get,
        find_token={"tim": TokenCredential("owner", 1, credential(mechanism))}.get,
        decoys=DECOYS,
    )


def bearer() -> ServerExchange:
    return OAuthBearerServer(verifier())


@cache
def verifier() -> TokenVerifier:
    keys = VerificationKeys("file:///keys", lambda: key_set(Issuer().jwk()))
    keys.refresh()
    return TokenVerifier(BearerSettings(jwks_url="file:///keys"), keys)


SERVERS = {
    "PLAIN": plain,
    SHA_256.name: lambda: scram(SHA_256),
    SHA_512.name: lambda: scram(SHA_512),
    "OAUTHBEARER": bearer,
}
SERVER = pytest.mark.parametrize("make", SERVERS.values(), ids=SERVERS)

PIECES = st.sampled_from(
    [
        b"n,,",
        b"y,,",
        b"n=tim",
        b"r=",
        b",",
        b"=",
        b"\0",
        b"tim",
        b"a=",
        b"c=biws",
        b"p=",
        b"i=4096",
        b"s=",
        b"tokenauth=true",
        b"\x01",
        b"auth=Bearer ",
        b"host=x",
        b"\xc3\xa9",
    ]
)
MESSAGES = st.one_of(st.binary(), st.lists(st.one_of(PIECES, st.binary(max_size=3)), max_size=12).map(b"".join))


@SERVER
@given(messages=st.lists(MESSAGES, min_size=1, max_size=4))
def test_servers_survive_any_messages(make: Callable[[], ServerExchange], messages: Sequence[bytes]) -> None:
    exchange = make()
    failed = False
    for message in messages:
        was_complete = exchange.is_complete
        try:
            response = exchange.step(message)
        except SaslError as error:
            failed = True
            assert PASSWORD not in f"{error} {error.log_text}"
            assert len(error.log_text) < 500
        else:
            assert not failed and not was_complete
            assert len(response) <= MAX_RESPONSE
    assert not exchange.is_complete or PASSWORD.encode() in messages[0]


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512], ids=lambda each: each.name)
@given(data=st.data())
def test_damage_to_a_scram_message_is_noticed(mechanism: ScramMechanism, data: st.DataObject) -> None:
    """Only what the exchange ignores may change: the case of `tokenauth`, and unknown extensions."""
    client, exchange = ScramClient(mechanism, "tim", PASSWORD), scram(mechanism)
    damaged_step = data.draw(st.integers(0, 3))
    damage = data.draw(st.tuples(st.integers(0, 1000), st.integers(1, 255)))

    def sent(step: int, message: bytes) -> bytes:
        if step != damaged_step:
            return message
        position = damage[0] % len(message)
        return message[:position] + bytes([message[position] ^ damage[1]]) + message[position + 1 :]

    with pytest.raises(SaslError):
        final = client.step(sent(1, exchange.step(sent(0, client.start()))))
        assert final is not None
        client.step(sent(3, exchange.step(sent(2, final))))
    assert not client.is_complete


@given(messages=st.lists(MESSAGES, min_size=1, max_size=3))
def test_clients_survive_any_messages(messages: Sequence[bytes]) -> None:
    for client in (
        PlainClient("tim", PASSWORD),
        ScramClient(SHA_256, "tim", PASSWORD, nonce="c"),
        OAuthBearerClient(PASSWORD),
    ):
        client.start()
        for message in messages:
            try:
                client.step(message)
            except SaslError as error:
                assert PASSWORD not in f"{error} {error.log_text}"


@given(name=NAMES, password=NAMES)
def test_plain_carries_any_text(name: str, password: str) -> None:
    exchange = PlainServer(PlainUsers({f"user_{name}": password}).verify)
    exchange.step(PlainClient(name, password).start())
    assert exchange.authorization_id == name


@given(name=NAMES)
def test_scram_carries_any_name(name: str) -> None:
    asked: list[str] = []
    exchange = ScramServer(SHA_256, find_user=asked.append, find_token=asked.append, decoys=DECOYS)
    exchange.step(ScramClient(SHA_256, name, PASSWORD).start())
    assert asked == [name]


@given(text=st.text())
def test_credentials_are_read_or_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        ScramCredential.from_text(SHA_256, text)


@given(text=st.one_of(st.text(), st.lists(st.sampled_from("a=\"';/*\\ \n1{"), max_size=30).map("".join)))
def test_jaas_entries_are_read_or_refused(text: str) -> None:
    for entry in (text, f"module required {text};"):
        try:
            parse_jaas("setting", entry)
        except ConfigError as error:
            assert str(error).startswith("setting")


@given(options=st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_.$-]*", fullmatch=True), st.text(), max_size=4))
def test_quoted_values_arrive_unchanged(options: dict[str, str]) -> None:
    def quoted(value: str) -> str:
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
        return f'"{escaped}"'

    text = "module required " + " ".join(f"{name}={quoted(value)}" for name, value in options.items()) + ";"
    assert parse_jaas("setting", text).options == options


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=6,
)
CLAIMS = st.dictionaries(st.sampled_from(["sub", "exp", "iat", "nbf", "aud", "iss", "scope", "jti"]), JSON)
HEADERS = st.fixed_dictionaries(
    {},
    optional={"alg": st.one_of(st.sampled_from(["RS256", "none", "HS256", "ES256"]), JSON), "kid": JSON, "crit": JSON},
)


@given(claims=CLAIMS)
def test_signed_tokens_are_accepted_or_refused(claims: dict[str, object]) -> None:
    try:
        token = Issuer().token(**claims)
    except TypeError:
        # PyJWT does not make a token with such an issuer.
        token = unsigned_token({"alg": "RS256", "kid": "key-1"}, b"x", **claims)
    try:
        accepted = verifier()(token)
    except TokenError as error:
        assert len(str(error)) < 500
    else:
        assert accepted.principal_name
        assert 0 < accepted.expiry_ms < 1 << 48


@given(header=HEADERS, claims=CLAIMS, signature=st.binary(max_size=300))
def test_forged_tokens_are_refused(header: dict[str, object], claims: dict[str, object], signature: bytes) -> None:
    with pytest.raises(TokenError):
        verifier()(unsigned_token(header, signature, **claims))


@given(text=st.text(st.characters(max_codepoint=127), max_size=200))
def test_any_text_is_refused_as_a_token(text: str) -> None:
    with pytest.raises(TokenError):
        verifier()(text)


@given(entry=st.dictionaries(st.sampled_from(["kty", "alg", "use", "kid", "n", "e", "crv", "x", "y", "d"]), JSON))
def test_key_sets_are_read_or_refused(entry: dict[str, object]) -> None:
    for jwk in (entry, Issuer().jwk() | entry):
        try:
            keys = parse_key_set(key_set(jwk))
        except KeySetError as error:
            assert len(str(error)) < 500
        else:
            assert len(keys) == 1
