"""Kafka's SASL classes against ours, in both directions, and what both read: JAAS entries, credentials and tokens."""

from __future__ import annotations

import subprocess
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from odradek.base.errors import ConfigError
from odradek.security.sasl.bearer_tokens import BearerSettings, TokenVerifier
from odradek.security.sasl.credentials import (
    SCRAM_MECHANISMS,
    SHA_256,
    ScramCredential,
    ScramMechanism,
    TokenCredential,
    credential_from_salted,
    derive,
    salted_password,
)
from odradek.security.sasl.jaas import parse_jaas
from odradek.security.sasl.key_sets import VerificationKeys, file_loader
from odradek.security.sasl.mechanism import ClientExchange, SaslError, ServerExchange
from odradek.security.sasl.oauthbearer import OAuthBearerClient, OAuthBearerServer, TokenError
from odradek.security.sasl.plain import PlainClient, PlainServer, PlainUsers
from odradek.security.sasl.scram import Decoys, ScramClient, ScramServer
from odradek_testkit.interop.apache import QUICK_START, compile_java, java_command
from odradek_testkit.security.certificates import rsa_key
from odradek_testkit.security.issuers import Issuer, key_set, unsigned_token

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]

SOURCE: Final = Path(__file__).with_name("java") / "SaslSide.java"
PASSWORD: Final = "p=a,ß w\u00adord"
NAME: Final = "a,b=c"
MECHANISMS = pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS.values(), ids=lambda each: each.name)


class JavaError(Exception):
    """The class and the message of a Java exception."""


class Outcome(NamedTuple):
    """The result of a step of the Java side."""

    response: bytes
    is_complete: bool
    name: str
    lifetime: str


class JavaSide:
    """A process that runs one side of exchanges."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process: Final = process

    def ask(self, command: str, *arguments: str | bytes) -> list[bytes]:
        """Run a command and return its results. Raises `JavaError`."""
        given = [each.encode() if isinstance(each, str) else each for each in arguments]
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join([command, *(b64encode(each).decode() for each in given)]) + "\n")
        self._process.stdin.flush()
        status, *results = self._process.stdout.readline().rstrip("\n").split(" ")
        decoded = [b64decode(each) for each in results]
        if status != "ok":
            raise JavaError(decoded[0].decode() if decoded else "the process has ended")
        return decoded

    def step(self, data: bytes) -> Outcome:
        """Pass a message of the other side. Raises `JavaError`."""
        response, is_complete, name, lifetime = self.ask("step", data)
        return Outcome(response, is_complete == b"true", name.decode(), lifetime.decode())


@pytest.fixture(scope="module")
def java(kafka_jars: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaSide]:
    _, folder = kafka_jars
    classes = tmp_path_factory.mktemp("classes")
    compile_java(folder, [SOURCE], classes)
    command = java_command(folder, "SaslSide", heap="96m", options=QUICK_START)
    command[command.index("-cp") + 1] += f":{classes}"
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        yield JavaSide(process)


def run_our_client(client: ClientExchange, java: JavaSide) -> Outcome:
    """Run an exchange in which the server is Java, and return its last step."""
    outcome = java.step(client.start())
    while (answer := client.step(outcome.response)) is not None:
        outcome = java.step(answer)
    assert client.is_complete
    assert outcome.is_complete
    return outcome


def run_our_server(server: ServerExchange, java: JavaSide, first: bytes) -> None:
    """Run an exchange in which the client is Java."""
    message = first
    while True:
        outcome = java.step(server.step(message))
        if outcome.is_complete:
            assert server.is_complete
            return
        message = outcome.response


def scram_server(mechanism: ScramMechanism, credential: ScramCredential, owner: str | None = None) -> ScramServer:
    return ScramServer(
        mechanism,
        find_user={NAME: credential}.get if owner is None else lambda name: None,
        find_token={NAME: TokenCredential(owner, 1234, credential)}.get if owner else lambda name: None,
        decoys=Decoys(),
    )


def test_plain_with_our_client(java: JavaSide) -> None:
    entry = f'org.apache.kafka.common.security.plain.PlainLoginModule required "user_{NAME}"="{PASSWORD}";'
    java.ask("plain-server", entry)
    assert run_our_client(PlainClient(NAME, PASSWORD), java).name == NAME
    java.ask("plain-server", entry)
    with pytest.raises(JavaError, match="Invalid username or password"):
        java.step(PlainClient(NAME, "wrong").start())


def test_plain_with_our_server(java: JavaSide) -> None:
    (first,) = java.ask("plain-client", NAME, PASSWORD)
    server = PlainServer(PlainUsers({f"user_{NAME}": PASSWORD}).verify)
    # The JDK's client is complete when it has sent its only message.
    assert server.step(first) == b""
    assert server.authorization_id == NAME


@MECHANISMS
def test_scram_with_our_client(java: JavaSide, mechanism: ScramMechanism) -> None:
    text = derive(PASSWORD, mechanism, 5000).to_text()
    java.ask("scram-server", mechanism.name, NAME, text, "", "")
    outcome = run_our_client(ScramClient(mechanism, NAME, PASSWORD), java)
    assert (outcome.name, outcome.lifetime) == (NAME, "null")
    java.ask("scram-server", mechanism.name, NAME, text, "owner", "1234")
    outcome = run_our_client(ScramClient(mechanism, NAME, PASSWORD, is_delegation_token=True), java)
    assert (outcome.name, outcome.lifetime) == ("owner", "1234")
    java.ask("scram-server", mechanism.name, NAME, text, "", "")
    with pytest.raises(JavaError, match="Invalid client credentials"):
        run_our_client(ScramClient(mechanism, NAME, "wrong"), java)


@MECHANISMS
def test_scram_with_our_server(java: JavaSide, mechanism: ScramMechanism) -> None:
    credential = derive(PASSWORD, mechanism, 5000)
    (first,) = java.ask("scram-client", mechanism.name, NAME, PASSWORD, "false")
    server = scram_server(mechanism, credential)
    run_our_server(server, java, first)
    assert (server.authorization_id, server.is_delegation_token) == (NAME, False)
    (first,) = java.ask("scram-client", mechanism.name, NAME, PASSWORD, "true")
    server = scram_server(mechanism, credential, "owner")
    run_our_server(server, java, first)
    assert (server.authorization_id, server.expiry_ms, server.is_delegation_token) == ("owner", 1234, True)
    for name, password in ((NAME, "wrong"), ("nobody", PASSWORD)):
        (first,) = java.ask("scram-client", mechanism.name, name, password, "false")
        with pytest.raises(SaslError):
            run_our_server(scram_server(mechanism, credential), java, first)


@MECHANISMS
def test_credentials_are_the_same(java: JavaSide, mechanism: ScramMechanism) -> None:
    (text,) = java.ask("credential", mechanism.name, PASSWORD, "8192")
    theirs = ScramCredential.from_text(mechanism, text.decode())
    salted = salted_password(mechanism, PASSWORD, theirs.salt, theirs.iterations)
    ours = credential_from_salted(mechanism, salted, theirs.salt, theirs.iterations)
    assert ours == theirs
    assert ours.to_text() == text.decode()
    assert abs(len(theirs.salt) - len(derive(PASSWORD, mechanism).salt)) <= 3


MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.mark.parametrize(
    "text",
    [
        f"{MODULE} required;",
        f"  {MODULE}\n\tREQUIRED a=b c-d_e.f$='g h' ;",
        f"{MODULE} required a=\"x;='y\" b='\"';",
        f'{MODULE} required a="q\\"\\\\\\t\\n\\x\\101\\7\\4012";',
        f"{MODULE} optional // a=b\n c=d /* e=f;\n */ ; // the end",
        f'{MODULE} required a="1" a="2";',
        f'{MODULE} required a="" ü="ß\u20ac" "quoted name"=b;',
        f'{MODULE} required a="//" b="/*";',
        "",
        f"{MODULE}",
        f"{MODULE} always;",
        f"{MODULE} required a=b",
        f"{MODULE} required a;",
        f"{MODULE} required a=;",
        f"{MODULE} required; {MODULE} required;",
    ],
)
def test_jaas_entries_are_read_alike(java: JavaSide, text: str) -> None:
    try:
        module, *options = (each.decode() for each in java.ask("jaas", text))
    except JavaError:
        with pytest.raises(ConfigError):
            parse_jaas("sasl.jaas.config", text)
    else:
        entry = parse_jaas("sasl.jaas.config", text)
        assert entry.login_module == module
        assert sorted(f"{name}={value}" for name, value in entry.options.items()) == sorted(options)


ISSUER: Final = Issuer()
CURVE: Final = Issuer(ec.generate_private_key(ec.SECP256R1()), "ES256", "key-2")


OUR_REFUSAL: Final = b'{"status":"invalid_token"}'


def seconds_from_now(seconds: int) -> int:
    return int(time.time()) + seconds


ALIKE: Final[Mapping[str, Callable[[], str]]] = {
    "valid": lambda: ISSUER.token(),
    "another algorithm of the same key": lambda: Issuer(algorithm="PS256").token(),
    "a curve": lambda: CURVE.token(),
    "a subject with spaces": lambda: ISSUER.token(sub=" alice "),
    "an expiry within the skew": lambda: ISSUER.token(iat=seconds_from_now(-600), exp=seconds_from_now(-5)),
    "expired": lambda: ISSUER.token(iat=seconds_from_now(-900), exp=seconds_from_now(-600)),
    "not yet valid": lambda: ISSUER.token(nbf=seconds_from_now(600)),
    "no expiry": lambda: ISSUER.token(exp=None),
    "no issue time": lambda: ISSUER.token(iat=None),
    "no subject": lambda: ISSUER.token(sub=None),
    "an empty subject": lambda: ISSUER.token(sub=" "),
    "an expiry as text": lambda: ISSUER.token(exp=str(seconds_from_now(60))),
    "scopes in a list": lambda: ISSUER.token(scope=["a", "b"]),
    "an audience": lambda: ISSUER.token(aud="kafka"),
    "one of two audiences": lambda: ISSUER.token(aud=["x", "kafka"]),
    "another audience": lambda: ISSUER.token(aud="x"),
    "an issuer": lambda: ISSUER.token(iss="https://issuer"),
    "another issuer": lambda: ISSUER.token(iss="https://other"),
    "an unknown key": lambda: Issuer(rsa_key(3072), key_id="key-3").token(),
    "another key of the same name": lambda: Issuer(rsa_key(3072)).token(),
    "no signature": lambda: unsigned_token(),
    "an empty signature": lambda: unsigned_token({"alg": "RS256", "kid": "key-1"}),
    "an unknown critical header": lambda: ISSUER.token(headers={"crit": ["x"], "x": 1}),
    "not a token": lambda: "abc",
}


@pytest.mark.parametrize("rules", [("", ""), ("kafka,other", ""), ("", "https://issuer")], ids=["none", "aud", "iss"])
@pytest.mark.parametrize("make", ALIKE.values(), ids=ALIKE)
def test_tokens_are_accepted_alike(
    java: JavaSide, tmp_path: Path, make: Callable[[], str], rules: tuple[str, str]
) -> None:
    token = make()
    path = tmp_path / "keys.json"
    path.write_bytes(key_set(ISSUER.jwk(alg=None), CURVE.jwk()))
    audience, issuer = rules
    properties = {
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{path}",
        "sasl.oauthbearer.expected.audience": audience,
        "sasl.oauthbearer.expected.issuer": issuer,
    }
    keys = VerificationKeys(str(path), file_loader(str(path)))
    keys.refresh()
    verify = TokenVerifier(BearerSettings.from_properties(properties), keys)
    java.ask("bearer-server", f"file://{path}", audience, issuer)
    outcome = java.step(OAuthBearerClient(token).start())
    try:
        verified = verify(token)
    except TokenError:
        assert not outcome.is_complete
        assert outcome.response == OUR_REFUSAL
        with pytest.raises(JavaError, match="invalid_token"):
            java.step(b"\x01")
    else:
        assert outcome == Outcome(b"", True, verified.principal_name, str(verified.expiry_ms))


def test_oauthbearer_with_our_server(java: JavaSide) -> None:
    keys = VerificationKeys("keys", lambda: key_set(ISSUER.jwk()))
    keys.refresh()
    verifier = TokenVerifier(BearerSettings(jwks_url="file:///keys"), keys)
    (first,) = java.ask("bearer-client", ISSUER.token(), "a b=c")
    server = OAuthBearerServer(verifier)
    run_our_server(server, java, first)
    assert server.authorization_id == "alice"
    assert server.extensions == {"trace": "a b=c"}
    (first,) = java.ask("bearer-client", unsigned_token(), "")
    server = OAuthBearerServer(verifier)
    refusal = server.step(first)
    assert refusal == OUR_REFUSAL
    answer = java.step(refusal)
    assert (answer.response, answer.is_complete) == (b"\x01", False)
    with pytest.raises(SaslError, match="invalid_token"):
        server.step(answer.response)


def test_kafka_s_minimum_of_iterations_is_ours(java: JavaSide) -> None:
    weak = ScramCredential(b"salt", bytes(32), bytes(32), 4095)
    java.ask("scram-server", SHA_256.name, NAME, weak.to_text(), "", "")
    with pytest.raises(JavaError, match="less than the minimum 4096"):
        java.step(ScramClient(SHA_256, NAME, PASSWORD).start())
