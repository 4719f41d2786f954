"""SASL OAUTHBEARER (RFC 7628, KIP-255): the client sends a bearer token, the server verifies it.

A refused token has three messages: the server sends a status as JSON, the client answers with the byte 1, and then the
exchange fails. Extensions (KIP-342) are pairs of name and value that the client may add; the broker does not use them.
As in Kafka, the token of a client without the right authorization identity is refused, and channel binding is not
supported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from odradek.base.errors import ConfigError, OdradekError
from odradek.security.sasl.mechanism import OAUTHBEARER, SaslError, shown, utf8

LOGIN_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
EXTENSION_PREFIX: Final = "extension_"
"""Beginning of a JAAS option with an extension, as in Kafka."""

MAX_MESSAGE: Final = 1 << 17
"""Maximum length, in bytes, of a client's message. Tokens with many groups have some ten thousand."""

MAX_STATUS: Final = 4096
"""Maximum length, in bytes, of a server's status that is read."""

INVALID_TOKEN: Final = "invalid_token"
"""Status of RFC 6750 for a token that is expired, revoked, malformed or not valid for another reason."""

_END: Final = b"\x01"
_NAME: Final = r"(?:[^=,\0]|=2C|=3D)+"
_KEY: Final = r"[A-Za-z]+"
_VALUE: Final = r"[\x21-\x7e \t\r\n]+"
_FIRST: Final = re.compile(rf"n,(?:a=(?P<authzid>{_NAME}))?,\x01(?P<pairs>(?:{_KEY}={_VALUE}\x01)*)\x01")
_AUTH: Final = re.compile(r"(?P<scheme>\w+) +(?P<token>[A-Za-z0-9._~+/-]+=*)")
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")


class TokenError(OdradekError):
    """A token is refused. The message is for the log; it may name claims, but has no part of the signature."""

    def __init__(self, log_text: str, *, status: str = INVALID_TOKEN) -> None:
        """`status` is what the client gets."""
        super().__init__(log_text)
        self.status: Final = status


@dataclass(frozen=True, slots=True, kw_only=True)
class BearerToken:
    """What a verified token says. The token itself is not kept."""

    principal_name: str
    expiry_ms: int
    """When it expires, in milliseconds since 1970-01-01 UTC. With clock skew, it may be in the past."""
    scopes: frozenset[str] = frozenset()


VerifyToken = Callable[[str], BearerToken]
"""Gives what a token says, or raises `TokenError`. Must not wait for anything."""


class OAuthBearerServer:
    """The server's side: a `ServerExchange` of one step, or two if it fails."""

    mechanism: Final = OAUTHBEARER
    is_delegation_token: Final = False

    def __init__(self, verify: VerifyToken) -> None:
        """`verify` is asked once."""
        self._verify: Final = verify
        self._token: BearerToken | None = None
        self._refused: TokenError | None = None
        self._has_begun = False
        self.extensions: Mapping[str, str] = MappingProxyType({})
        """What the client added, once the exchange is complete."""

    def __repr__(self) -> str:
        return f"OAuthBearerServer(is_complete={self.is_complete})"

    @property
    def is_complete(self) -> bool:
        """Whether the client has authenticated."""
        return self._token is not None

    @property
    def authorization_id(self) -> str:
        """Name of the user. Raises `SaslError` if the exchange is not complete."""
        if self._token is None:
            raise SaslError(OAUTHBEARER, "the exchange is not complete")
        return self._token.principal_name

    @property
    def expiry_ms(self) -> int | None:
        """When the token expires, in milliseconds since 1970-01-01 UTC. None: the exchange is not complete."""
        return self._token.expiry_ms if self._token else None

    def step(self, data: bytes) -> bytes:
        """Return the empty response, or a status as JSON after which the next step fails. Raises `SaslError`."""
        refused, self._refused = self._refused, None
        if refused is not None:
            raise SaslError(OAUTHBEARER, str(refused), peer_text=_status(refused))
        if self._has_begun:
            raise SaslError(OAUTHBEARER, "the client sent a message after the end of the exchange")
        self._has_begun = True
        authzid, value, extensions = _parse(data)
        try:
            token = self._verify(value)
        except TokenError as error:
            self._refused = error
            return _status(error).encode()
        if authzid not in ("", token.principal_name):
            name = shown(token.principal_name)
            raise SaslError(OAUTHBEARER, f"the token is that of {name}, who asked to act as {shown(authzid)}")
        self._token, self.extensions = token, extensions
        return b""


class OAuthBearerClient:
    """The client's side."""

    mechanism: Final = OAUTHBEARER

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        """Raises `SaslError` if the token or an extension cannot be sent."""
        if not _TOKEN.fullmatch(token):
            raise SaslError(OAUTHBEARER, "the token has a character that is not allowed, or is empty")
        pairs = {"auth": f"Bearer {token}", **(extensions or {})}
        if pairs["auth"] != f"Bearer {token}" or not all(
            re.fullmatch(_KEY, name) and re.fullmatch(_VALUE, value) for name, value in pairs.items()
        ):
            raise SaslError(OAUTHBEARER, "a SASL extension has a character that is not allowed, or the name `auth`")
        text = "".join(f"{name}={value}\x01" for name, value in pairs.items())
        self._message: bytes | None = utf8(OAUTHBEARER, f"n,,\x01{text}\x01")
        self._has_ended = False
        self._is_complete = False
        self._status: str | None = None

    def __repr__(self) -> str:
        return f"OAuthBearerClient(is_complete={self._is_complete})"

    @property
    def is_complete(self) -> bool:
        """Whether the server has accepted the token."""
        return self._is_complete

    def start(self) -> bytes:
        """Return the first message. Raises `SaslError` if called twice."""
        message, self._message = self._message, None
        if message is None:
            raise SaslError(OAUTHBEARER, "the exchange has begun")
        return message

    def step(self, data: bytes) -> bytes | None:
        """Complete the exchange, or answer a refusal, after which the server ends the exchange. Raises `SaslError` if
        it does not."""
        if self._status is not None:
            raise SaslError(OAUTHBEARER, f"the server refused the token with the status {shown(self._status)}")
        if self._message is not None or self._has_ended:
            raise SaslError(OAUTHBEARER, "the server sent a message that is not part of the exchange")
        if data:
            self._status = data[:MAX_STATUS].decode("utf-8", "replace")
            return _END
        self._has_ended = self._is_complete = True
        return None


def extensions_of(setting: str, options: Mapping[str, str]) -> Mapping[str, str]:
    """Return the extensions among the options of a JAAS entry, without their prefix. Raises `ConfigError`."""
    found = {
        name.removeprefix(EXTENSION_PREFIX): value
        for name, value in options.items()
        if name.startswith(EXTENSION_PREFIX)
    }
    for name, value in found.items():
        if name == "auth" or not re.fullmatch(_KEY, name):
            raise ConfigError(f"{setting}: the option {EXTENSION_PREFIX}{name} must have a name of letters, not `auth`")
        if not re.fullmatch(_VALUE, value):
            raise ConfigError(f"{setting}: the option {EXTENSION_PREFIX}{name} must have printable ASCII characters")
    return MappingProxyType(found)


def is_bearer_token(text: str) -> bool:
    """Return whether a text has the form of a token (RFC 6750, section 2.1)."""
    return _TOKEN.fullmatch(text) is not None


def _status(error: TokenError) -> str:
    # Kafka's answer has no spaces either.
    return json.dumps({"status": error.status}, separators=(",", ":"))


def _parse(data: bytes) -> tuple[str, str, Mapping[str, str]]:
    """Return the authorization identity, the token and the extensions. Errors show nothing of the message."""
    if len(data) > MAX_MESSAGE:
        raise SaslError(OAUTHBEARER, f"the client's message is longer than {MAX_MESSAGE} bytes")
    try:
        found = _FIRST.fullmatch(data.decode("utf-8"))
    except UnicodeDecodeError:
        raise SaslError(OAUTHBEARER, "the client's message is not UTF-8") from None
    if found is None:
        raise SaslError(OAUTHBEARER, "the client's message does not have the form of RFC 7628, without channel binding")
    pairs: dict[str, str] = {}
    for pair in found["pairs"].split("\x01")[:-1]:
        name, _, value = pair.partition("=")
        if name in pairs:
            raise SaslError(OAUTHBEARER, "the client's message has a name twice")
        pairs[name] = value
    auth = _AUTH.fullmatch(pairs.pop("auth", ""))
    if auth is None or auth["scheme"].lower() != "bearer":
        raise SaslError(OAUTHBEARER, "the client's message has no bearer token")
    authzid = (found["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
    return authzid, auth["token"], MappingProxyType(pairs)
