"""SCRAM: the examples of RFC 5802 and RFC 7677, and what each side refuses."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable

import pytest

from odradek.security.sasl.credentials import (
    SCRAM_MECHANISMS,
    SHA_256,
    SHA_512,
    ScramCredential,
    ScramMechanism,
    TokenCredential,
    credential_from_salted,
    derive,
    salted_password,
)
from odradek.security.sasl.mechanism import ClientExchange, SaslError, ServerExchange
from odradek.security.sasl.scram import MAX_MESSAGE, Decoys, ScramClient, ScramServer

SHA_1 = ScramMechanism("SCRAM-SHA-1", 0, "sha1")
"""Only for the example of RFC 5802."""

PASSWORD = "pencil"
CREDENTIALS = {name: derive(PASSWORD, mechanism) for name, mechanism in SCRAM_MECHANISMS.items()}
DECOYS = Decoys()
MECHANISMS = pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS.values(), ids=lambda each: each.name)


def server(
    mechanism: ScramMechanism = SHA_256,
    *,
    users: dict[str, ScramCredential] | None = None,
    tokens: dict[str, TokenCredential] | None = None,
    decoys: Decoys = DECOYS,
    nonce: str | None = None,
) -> ScramServer:
    return ScramServer(
        mechanism,
        find_user=({"user": CREDENTIALS[mechanism.name]} if users is None else users).get,
        find_token=(tokens or {}).get,
        decoys=decoys,
        nonce=nonce,
    )


EXAMPLES = [
    (
        SHA_1,
        "fyko+d2lbbFgONRv9qkxdawL",
        "3rfcNHYJY1ZVvWVs7j",
        "QSXCR+Q6sek8bf92",
        "v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        "rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    ),
    (
        SHA_256,
        "rOprNGfwEbeRWgbNEkqO",
        "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        "W22ZaJ0SNY7soEsUEjb6gQ==",
        "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ),
]


@pytest.mark.parametrize(
    ("mechanism", "client_nonce", "server_nonce", "salt", "proof", "signature"), EXAMPLES, ids=["RFC 5802", "RFC 7677"]
)
def test_examples_of_the_rfcs(
    mechanism: ScramMechanism, client_nonce: str, server_nonce: str, salt: str, proof: str, signature: str
) -> None:
    raw = b64decode(salt)
    credential = credential_from_salted(mechanism, salted_password(mechanism, PASSWORD, raw, 4096), raw, 4096)
    client: ClientExchange = ScramClient(mechanism, "user", PASSWORD, nonce=client_nonce)
    exchange: ServerExchange = server(mechanism, users={"user": credential}, nonce=server_nonce)
    first = client.start()
    assert first.decode() == f"n,,n=user,r={client_nonce}"
    challenge = exchange.step(first)
    assert challenge.decode() == f"r={client_nonce}{server_nonce},s={salt},i=4096"
    final = client.step(challenge)
    assert final is not None
    assert final.decode() == f"c=biws,r={client_nonce}{server_nonce},p={proof}"
    response = exchange.step(final)
    assert response.decode() == f"v={signature}"
    assert exchange.is_complete
    assert exchange.authorization_id == "user"
    assert client.step(response) is None
    assert client.is_complete


@MECHANISMS
@pytest.mark.parametrize("name", ["a", "a,b", "a=b", "=2C", "=3D2C", "=", ",", "ünï", "a b", "User:x"])
def test_names_arrive_unchanged(mechanism: ScramMechanism, name: str) -> None:
    client, exchange = (
        ScramClient(mechanism, name, PASSWORD),
        server(mechanism, users={name: CREDENTIALS[mechanism.name]}),
    )
    final = client.step(exchange.step(client.start()))
    assert final is not None
    assert client.step(exchange.step(final)) is None
    assert exchange.authorization_id == name
    assert exchange.expiry_ms is None
    assert not exchange.is_delegation_token


@MECHANISMS
def test_a_delegation_token_acts_for_its_owner(mechanism: ScramMechanism) -> None:
    tokens = {"id": TokenCredential("owner", 1234, CREDENTIALS[mechanism.name])}
    client = ScramClient(mechanism, "id", PASSWORD, is_delegation_token=True)
    exchange = server(mechanism, tokens=tokens)
    first = client.start()
    assert first.endswith(b",tokenauth=true")
    final = client.step(exchange.step(first))
    assert final is not None
    assert exchange.expiry_ms is None
    assert not exchange.is_delegation_token
    client.step(exchange.step(final))
    assert exchange.authorization_id == "owner"
    assert exchange.expiry_ms == 1234
    assert exchange.is_delegation_token


def messages(
    exchange: ScramServer, *, user: str = "user", password: str = PASSWORD, is_token: bool = False
) -> tuple[bytes, bytes]:
    """Run an exchange up to the client's final message, and return the server's first message and that one."""
    client = ScramClient(SHA_256, user, password, is_delegation_token=is_token, nonce="client")
    challenge = exchange.step(client.start())
    final = client.step(challenge)
    assert final is not None
    return challenge, final


@pytest.mark.parametrize(
    ("user", "is_token", "reason"),
    [
        ("user", False, "password of 'user' is wrong"),
        ("nobody", False, "user 'nobody' has no credentials"),
        ("user", True, "delegation token 'user' has no credentials"),
        ("weak", False, "fewer than 4096"),
    ],
)
def test_all_failures_look_alike(user: str, is_token: bool, reason: str) -> None:
    weak = ScramCredential(b"salt", bytes(32), bytes(32), 1000)
    exchange = server(users={"user": CREDENTIALS[SHA_256.name], "weak": weak})
    challenge, final = messages(exchange, user=user, password="wrong", is_token=is_token)
    assert challenge.endswith(b",i=4096")
    with pytest.raises(SaslError) as caught:
        exchange.step(final)
    assert reason in caught.value.log_text
    assert str(caught.value) == "Authentication failed: invalid credentials for SASL mechanism SCRAM-SHA-256"
    assert not exchange.is_complete
    with pytest.raises(SaslError):
        exchange.step(final)


def test_a_name_without_credentials_always_has_the_same_salt() -> None:
    def salt(name: str, decoys: Decoys) -> bytes:
        challenge, _ = messages(server(users={}, decoys=decoys), user=name)
        return challenge.split(b",")[1]

    assert salt("a", DECOYS) == salt("a", DECOYS) != salt("b", DECOYS)
    assert salt("a", DECOYS) != salt("a", Decoys())
    assert salt("a", Decoys(secret=b"shared by brokers")) == salt("a", Decoys(secret=b"shared by brokers"))
    assert b64decode(salt("a", DECOYS).removeprefix(b"s=")).isalnum()


def test_decoys_have_the_iterations_of_most_users() -> None:
    challenge, _ = messages(server(users={}, decoys=Decoys(iterations=8192)))
    assert challenge.endswith(b",i=8192")


def test_a_decoy_has_no_password() -> None:
    """The keys of a decoy are not derived from anything that a client knows."""
    exchange = server(users={}, decoys=DECOYS)
    _, final = messages(exchange, password="x")
    with pytest.raises(SaslError):
        exchange.step(final)
    assert DECOYS.credential(SHA_256, "a") != DECOYS.credential(SHA_256, "a")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "form"),
        (b"p=tls-unique,,n=user,r=client", "without channel binding"),
        (b"y,,n=user,r=client", "without channel binding"),
        (b"n,,m=x,n=user,r=client", "form"),
        (b"n,,n=us=er,r=client", "form"),
        (b"n,,n=user=2c,r=client", "form"),
        (b"n,,n=,r=client", "form"),
        (b"n,,n=user", "form"),
        (b"n,,n=user,r=", "form"),
        (b"n,,n=user,r=cli ent", "form"),
        (b"n,,n=user,r=client,", "form"),
        (b"n,,n=user,r=client\0", "form"),
        (b"n,,n=us\xffer,r=client", "not UTF-8"),
        (b"n,,n=" + b"x" * MAX_MESSAGE + b",r=client", "longer than"),
    ],
)
def test_bad_first_messages(message: bytes, reason: str) -> None:
    exchange = server()
    with pytest.raises(SaslError) as caught:
        exchange.step(message)
    assert reason in caught.value.log_text
    assert "client," not in caught.value.log_text
    with pytest.raises(SaslError):
        exchange.step(b"n,,n=user,r=client")


def proof_for(exchange: ScramServer, first: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """Return the final message for a first message that our client does not send. `change` applies to the part that
    the proof covers."""
    challenge = exchange.step(first)
    values = dict(part.partition(b"=")[::2] for part in challenge.split(b","))
    bare = change(b"c=" + b64encode(first[: first.index(b",n=") + 1]) + b",r=" + values[b"r"])
    salted = salted_password(SHA_256, PASSWORD, b64decode(values[b"s"]), 4096)
    key = SHA_256.hmac(salted, b"Client Key")
    covered = b",".join((first[first.index(b",n=") + 1 :], challenge, bare))
    signature = SHA_256.hmac(SHA_256.hash(key), covered)
    return bare + b",p=" + b64encode(bytes(one ^ other for one, other in zip(key, signature, strict=True)))


@pytest.mark.parametrize(
    "first", [b"n,a=user,n=user,r=c", b"n,,n=user,r=c,ext=a=b,x=y", b"n,,n=user,r=c,tokenauth=false"]
)
def test_other_clients_first_messages(first: bytes) -> None:
    exchange = server()
    exchange.step(proof_for(exchange, first, lambda bare: bare + b",more=x"))
    assert exchange.authorization_id == "user"


@pytest.mark.parametrize(
    ("first", "change", "reason"),
    [
        (b"n,a=root,n=user,r=c", lambda bare: bare, "asked to act as 'root'"),
        (b"n,a=user,n=user,r=c", lambda bare: bare.replace(b"c=bixhPXVzZXIs", b"c=biws"), "channel binding"),
        (b"n,,n=user,r=c", lambda bare: bare.replace(b"c=biws", b"c=eSws"), "channel binding"),
        (b"n,,n=user,r=c", lambda bare: bare.replace(b"c=biws", b"c=biw"), "not base64"),
        (b"n,,n=user,r=c", lambda bare: bare + b"x", "nonce"),
        (b"n,,n=user,r=c", lambda bare: bare.replace(b",r=c", b",r="), "nonce"),
    ],
)
def test_bad_final_messages_with_a_right_proof(first: bytes, change: Callable[[bytes], bytes], reason: str) -> None:
    exchange = server()
    with pytest.raises(SaslError) as caught:
        exchange.step(proof_for(exchange, first, change))
    assert reason in caught.value.log_text
    assert not exchange.is_complete


@pytest.mark.parametrize(
    "change",
    [
        lambda final: final[:-4],
        lambda final: final[: final.index(b",p=")] + b",p=",
        lambda final: final[: final.index(b",p=")] + b",p=" + b64encode(b64decode(final.split(b"p=")[1]) + b"\0"),
        lambda final: final[: final.index(b",p=")],
        lambda final: final + b",x=y",
        lambda final: b"",
    ],
)
def test_bad_proofs(change: Callable[[bytes], bytes]) -> None:
    exchange = server()
    _, final = messages(exchange)
    with pytest.raises(SaslError):
        exchange.step(change(final))
    with pytest.raises(SaslError):
        exchange.step(final)
    with pytest.raises(SaslError):
        _ = exchange.authorization_id


def test_each_exchange_has_its_own_nonce() -> None:
    first, other = messages(server())[0], messages(server())[0]
    assert first != other


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        (b"", "form"),
        (b"r=clientserver,s=c2FsdA==", "form"),
        (b"m=x,r=clientserver,s=c2FsdA==,i=4096", "form"),
        (b"r=clientserver,s=c2FsdA==,i=4095", "4095 iterations"),
        (b"r=clientserver,s=c2FsdA==,i=1000001", "1000001 iterations"),
        (b"r=clientserver,s=c2FsdA==,i=99999999999999999999", "form"),
        (b"r=clientserver,s=c2FsdA,i=4096", "not base64"),
        (b"r=serverclient,s=c2FsdA==,i=4096", "nonce"),
        (b"r=client,s=c2FsdA==,i=4096", "adds nothing"),
    ],
)
def test_the_client_refuses_bad_challenges(challenge: bytes, reason: str) -> None:
    client = ScramClient(SHA_256, "user", PASSWORD, nonce="client")
    client.start()
    with pytest.raises(SaslError) as caught:
        client.step(challenge)
    assert reason in caught.value.log_text
    with pytest.raises(SaslError):
        client.step(b"r=clientserver,s=c2FsdA==,i=4096")


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (b"v=AAAA", "false server"),
        (b"v=", "false server"),
        (b"e=other-error", "refused with 'other-error'"),
        (b"", "form"),
        (b"v=\xff", "not UTF-8"),
    ],
)
def test_the_client_refuses_a_server_without_proof(response: bytes, reason: str) -> None:
    client, exchange = ScramClient(SHA_512, "user", PASSWORD), server(SHA_512)
    client.step(exchange.step(client.start()))
    with pytest.raises(SaslError) as caught:
        client.step(response)
    assert reason in caught.value.log_text
    assert not client.is_complete
    with pytest.raises(SaslError):
        client.step(response)


@pytest.mark.parametrize(("user", "password"), [("", "x"), ("x", ""), ("x\0", "x"), ("\ud800", "x"), ("x", "\ud800")])
def test_the_client_refuses_what_it_cannot_send(user: str, password: str) -> None:
    with pytest.raises(SaslError):
        ScramClient(SHA_256, user, password)


def test_the_client_keeps_the_order() -> None:
    client = ScramClient(SHA_256, "user", PASSWORD)
    with pytest.raises(SaslError):
        client.step(b"")
    client.start()
    with pytest.raises(SaslError):
        client.start()


def test_no_secret_is_shown() -> None:
    client, exchange = ScramClient(SHA_256, "user", PASSWORD), server(decoys=Decoys(secret=b"pencil and more"))
    client.step(exchange.step(client.start()))
    assert PASSWORD not in f"{client!r} {exchange!r} {Decoys(secret=b'pencil and more')!r} {vars(exchange)!r}"


def test_a_client_may_repeat_its_nonce_in_the_final_message() -> None:
    """librdkafka before 2.6.1 does it, for example in the kcat of Debian 12."""
    credential = derive("secret", SHA_256)
    server = ScramServer(
        SHA_256, find_user=lambda _user: credential, find_token=lambda _token: None, decoys=Decoys(), nonce="theirs"
    )
    first = server.step(b"n,,n=alice,r=mine").decode()
    bare = "c=biws,r=mineminetheirs"
    salted = salted_password(SHA_256, "secret", credential.salt, credential.iterations)
    client_key = SHA_256.hmac(salted, b"Client Key")
    signature = SHA_256.hmac(credential.stored_key, f"n=alice,r=mine,{first},{bare}".encode())
    proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
    server.step(f"{bare},p={b64encode(proof).decode()}".encode())
    assert server.authorization_id == "alice"
