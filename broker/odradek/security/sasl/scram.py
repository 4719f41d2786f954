"""SASL SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), with Kafka's extension `tokenauth=true` (KIP-48).

A server asks for the credential of a name by a function, which looks into memory. It never derives keys, so a step
takes microseconds. A client derives a key in its first `step`: call it in a thread.

A name without a credential gets the same answers as one with a wrong password, up to the same point and for the same
work. Its salt is derived from the name and a secret, so that it is the same at each attempt. Only the number of
iterations could be conspicuous: it is that of `Decoys`, which should be what most users have.

Channel binding is not supported, as in Kafka: the flag must be `n`. Stricter than Kafka, `c=` must match the first
message, as the RFC demands; Kafka's clients always send the right one.
"""

from __future__ import annotations

import re
import secrets
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Final

from odradek.security.sasl.credentials import (
    MIN_ITERATIONS,
    SALT_BITS,
    ScramCredential,
    ScramMechanism,
    TokenCredential,
    salt_of,
    salted_password,
)
from odradek.security.sasl.mechanism import SaslError, shown, utf8

LOGIN_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
TOKEN_EXTENSION: Final = "tokenauth"

MAX_MESSAGE: Final = 16384
"""Maximum length, in bytes, of a message from the other side. Ordinary ones have about 100."""

MAX_CLIENT_ITERATIONS: Final = 1_000_000
"""Maximum that a client does for a server: about a second of CPU time. Without it, a false server could ask for any."""

FindUser = Callable[[str], ScramCredential | None]
"""Gives the credential of a user for the mechanism of the exchange, from memory."""

FindToken = Callable[[str], TokenCredential | None]
"""Gives the credential of a delegation token that has not expired, by its id, from memory."""

_NAME: Final = r"(?:[^=,\0]|=2C|=3D)+"
_EXTENSIONS: Final = r"(?:,[A-Za-z]+=[^,\0]+)*"
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64: Final = r"[A-Za-z0-9+/]*={0,2}"
_CLIENT_FIRST: Final = re.compile(
    rf"(?P<gs2>n,(?:a=(?P<authzid>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_SERVER_FIRST: Final = re.compile(
    rf"r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}}){_EXTENSIONS}"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<bare>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL: Final = re.compile(rf"(?:e=(?P<error>[^,\0]+)|v=(?P<signature>{_BASE64})){_EXTENSIONS}")


class Decoys:
    """Credentials for names that have none. One for all exchanges of a process: its secret makes the salts."""

    def __init__(self, *, iterations: int = MIN_ITERATIONS, secret: bytes | None = None) -> None:
        """`iterations` should be what most users have. Processes with the same `secret`, of at least 16 bytes, make the
        same salts; None takes a random one."""
        self.iterations: Final = iterations
        self._secret: Final = secrets.token_bytes(32) if secret is None else secret

    def __repr__(self) -> str:
        return f"Decoys(iterations={self.iterations})"

    def credential(self, mechanism: ScramMechanism, name: str) -> ScramCredential:
        """Return the credential that no password has, always with the same salt for the same name."""
        number = int.from_bytes(mechanism.hmac(self._secret, f"{mechanism.name},{name}".encode()))
        key = secrets.token_bytes(mechanism.key_bytes)
        return ScramCredential(salt_of(number & ((1 << SALT_BITS) - 1)), key, key, self.iterations)


@dataclass(frozen=True, slots=True)
class _Begun:
    """What a server knows after the first message."""

    gs2: str
    first_messages: str
    """The client's first message without its GS2 header, a comma, and the server's."""
    nonce: str
    name: str
    credential: ScramCredential = field(repr=False)
    problem: str | None
    """Why the exchange will fail whatever the proof is. None: the proof decides."""
    user: str
    expiry_ms: int | None
    is_delegation_token: bool


class ScramServer:
    """The server's side: a `ServerExchange` of two steps."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        *,
        find_user: FindUser,
        find_token: FindToken,
        decoys: Decoys,
        nonce: str | None = None,
    ) -> None:
        """`nonce` is for tests; None takes a random one."""
        self._mechanism: Final = mechanism
        self._find_user: Final = find_user
        self._find_token: Final = find_token
        self._decoys: Final = decoys
        self._nonce: Final = nonce or _new_nonce()
        self._begun: _Begun | None = None
        self._has_ended = False
        self._done: _Begun | None = None

    def __repr__(self) -> str:
        return f"ScramServer({self.mechanism}, is_complete={self.is_complete})"

    @property
    def mechanism(self) -> str:
        """Name of the mechanism."""
        return self._mechanism.name

    @property
    def is_complete(self) -> bool:
        """Whether the client has authenticated."""
        return self._done is not None

    @property
    def authorization_id(self) -> str:
        """Name of the user, or of the owner of the token. Raises `SaslError` if the exchange is not complete."""
        if self._done is None:
            raise SaslError(self.mechanism, "the exchange is not complete")
        return self._done.user

    @property
    def expiry_ms(self) -> int | None:
        """When the token expires, in milliseconds since 1970-01-01 UTC. None without a token."""
        return self._done.expiry_ms if self._done else None

    @property
    def is_delegation_token(self) -> bool:
        """Whether the client authenticated with a delegation token."""
        return self._done is not None and self._done.is_delegation_token

    def step(self, data: bytes) -> bytes:
        """Return the server's first or final message. Raises `SaslError`, after which every step does."""
        if self._has_ended:
            raise SaslError(self.mechanism, "the client sent a message after the end of the exchange")
        # Whatever is raised ends the exchange.
        self._has_ended = True
        if self._begun is None:
            response = self._first(data)
            self._has_ended = False
            return response
        return self._final(self._begun, data)

    def _first(self, data: bytes) -> bytes:
        found = _parsed(self.mechanism, _CLIENT_FIRST, data, "the client's first message")
        name = _unescaped(found["name"])
        is_token = _says_token(found["extensions"])
        token = self._find_token(name) if is_token else None
        credential = token.credential if token else None if is_token else self._find_user(name)
        problem = self._problem(name, credential, found["authzid"], is_token=is_token)
        # The decoy is made in any case, so that both cases take the same time.
        decoy = self._decoys.credential(self._mechanism, name)
        if credential is None or credential.iterations < MIN_ITERATIONS:
            credential = decoy
        nonce = f"{found['nonce']}{self._nonce}"
        response = f"r={nonce},s={b64encode(credential.salt).decode()},i={credential.iterations}"
        self._begun = _Begun(
            gs2=found["gs2"],
            first_messages=f"{found['bare']},{response}",
            nonce=nonce,
            name=name,
            credential=credential,
            problem=problem,
            user=token.owner if token else name,
            expiry_ms=token.expiry_ms if token else None,
            is_delegation_token=is_token,
        )
        return response.encode("ascii")

    def _problem(
        self, name: str, credential: ScramCredential | None, authzid: str | None, *, is_token: bool
    ) -> str | None:
        what = "delegation token" if is_token else "user"
        if credential is None:
            return f"the {what} {shown(name)} has no credentials for {self.mechanism}"
        if credential.iterations < MIN_ITERATIONS:
            return f"the credentials of {shown(name)} have fewer than {MIN_ITERATIONS} iterations"
        if authzid is not None and _unescaped(authzid) != name:
            return f"the {what} {shown(name)} asked to act as {shown(_unescaped(authzid))}"
        return None

    def _final(self, begun: _Begun, data: bytes) -> bytes:
        self._begun = None
        found = _parsed(self.mechanism, _CLIENT_FINAL, data, "the client's final message")
        proof = _base64(self.mechanism, found["proof"])
        if _base64(self.mechanism, found["binding"]) != begun.gs2.encode():
            raise SaslError(self.mechanism, "channel binding does not match the client's first message")
        # librdkafka before 2.6.1 puts its own nonce once more before this one. Kafka's brokers accept that, too.
        if not found["nonce"].endswith(begun.nonce):
            raise SaslError(self.mechanism, "the nonce in the client's final message is another one")
        messages = f"{begun.first_messages},{found['bare']}".encode()
        stored_key = begun.credential.stored_key
        signature = self._mechanism.hmac(stored_key, messages)
        key = self._mechanism.hash(_xor(signature, proof.ljust(len(signature), b"\0")[: len(signature)]))
        is_right = compare_digest(key, stored_key) and len(proof) == len(signature)
        response = b"v=" + b64encode(self._mechanism.hmac(begun.credential.server_key, messages))
        if begun.problem is not None:
            raise SaslError(self.mechanism, begun.problem)
        if not is_right:
            raise SaslError(self.mechanism, f"the password of {shown(begun.name)} is wrong")
        self._done = begun
        return response


class ScramClient:
    """The client's side."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        user: str,
        password: str,
        *,
        is_delegation_token: bool = False,
        nonce: str | None = None,
    ) -> None:
        """With `is_delegation_token`, `user` is the id of the token and `password` its HMAC in base64. `nonce` is for
        tests. Raises `SaslError` if a value is empty or cannot be sent."""
        self._mechanism: Final = mechanism
        if not user or "\0" in user or not password:
            raise SaslError(mechanism.name, "user and password must not be empty, and the user must have no zero")
        utf8(mechanism.name, password)
        self._password: Final = password
        self._nonce: Final = nonce or _new_nonce()
        escaped = user.replace("=", "=3D").replace(",", "=2C")
        self._bare: Final = f"n={escaped},r={self._nonce}" + (f",{TOKEN_EXTENSION}=true" if is_delegation_token else "")
        self._message: bytes | None = utf8(mechanism.name, f"n,,{self._bare}")
        self._has_ended = False
        self._proof_of_server: bytes | None = None
        self._is_complete = False

    def __repr__(self) -> str:
        return f"ScramClient({self.mechanism}, is_complete={self._is_complete})"

    @property
    def mechanism(self) -> str:
        """Name of the mechanism."""
        return self._mechanism.name

    @property
    def is_complete(self) -> bool:
        """Whether the server has proved that it knows the user's credentials."""
        return self._is_complete

    def start(self) -> bytes:
        """Return the first message. Raises `SaslError` if called twice."""
        message, self._message = self._message, None
        if message is None:
            raise SaslError(self.mechanism, "the exchange has begun")
        return message

    def step(self, data: bytes) -> bytes | None:
        """Return the final message, or None when the server has proved itself. Raises `SaslError`.

        The first call takes CPU time in proportion to the server's iterations: call it in a thread.
        """
        if self._message is not None or self._has_ended:
            raise SaslError(self.mechanism, "the server sent a message that is not part of the exchange")
        self._has_ended = True
        if self._proof_of_server is None:
            response = self._final(data)
            self._has_ended = False
            return response
        self._verify(self._proof_of_server, data)
        self._is_complete = True
        return None

    def _final(self, data: bytes) -> bytes:
        found = _parsed(self.mechanism, _SERVER_FIRST, data, "the server's first message")
        nonce, salt, iterations = found["nonce"], _base64(self.mechanism, found["salt"]), int(found["iterations"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise SaslError(self.mechanism, "the server's nonce does not begin with the client's, or adds nothing")
        if not MIN_ITERATIONS <= iterations <= MAX_CLIENT_ITERATIONS:
            raise SaslError(
                self.mechanism,
                f"the server asks for {iterations} iterations, but {MIN_ITERATIONS} to {MAX_CLIENT_ITERATIONS} are "
                "allowed",
            )
        salted = salted_password(self._mechanism, self._password, salt, iterations)
        bare = f"c={b64encode(b'n,,').decode()},r={nonce}"
        messages = f"{self._bare},{data.decode()},{bare}".encode()
        client_key = self._mechanism.hmac(salted, b"Client Key")
        signature = self._mechanism.hmac(self._mechanism.hash(client_key), messages)
        self._proof_of_server = self._mechanism.hmac(self._mechanism.hmac(salted, b"Server Key"), messages)
        return f"{bare},p={b64encode(_xor(client_key, signature)).decode()}".encode()

    def _verify(self, proof_of_server: bytes, data: bytes) -> None:
        found = _parsed(self.mechanism, _SERVER_FINAL, data, "the server's final message")
        if found["error"] is not None:
            raise SaslError(self.mechanism, f"the server refused with {shown(found['error'])}")
        if not compare_digest(proof_of_server, _base64(self.mechanism, found["signature"])):
            raise SaslError(self.mechanism, "the server does not know the user's credentials: it may be a false server")


def _new_nonce() -> str:
    return secrets.token_urlsafe(24)


def _parsed(mechanism: str, pattern: re.Pattern[str], data: bytes, what: str) -> re.Match[str]:
    """Match a message. The error does not show it, because it may have a proof."""
    if len(data) > MAX_MESSAGE:
        raise SaslError(mechanism, f"{what} is longer than {MAX_MESSAGE} bytes")
    try:
        found = pattern.fullmatch(data.decode("utf-8"))
    except UnicodeDecodeError:
        raise SaslError(mechanism, f"{what} is not UTF-8") from None
    if found is None:
        raise SaslError(mechanism, f"{what} does not have the form of RFC 5802, without channel binding")
    return found


def _base64(mechanism: str, text: str) -> bytes:
    """Decode a value. Only the encoding of RFC 4648 is accepted, so that no other text means the same."""
    try:
        value = b64decode(text, validate=True)
    except Base64Error:
        raise SaslError(mechanism, "a value in the other side's message is not base64") from None
    if b64encode(value).decode() != text:
        raise SaslError(mechanism, "a value in the other side's message is not base64")
    return value


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _says_token(extensions: str) -> bool:
    """Return whether the client authenticates with a delegation token. Java's booleans ignore the case."""
    values = dict(part.partition("=")[::2] for part in extensions.split(",") if part)
    return values.get(TOKEN_EXTENSION, "").lower() == "true"


def _xor(first: bytes, second: bytes) -> bytes:
    return bytes(one ^ other for one, other in zip(first, second, strict=True))
