"""The client of SASL DIGEST-MD5 (RFC 2831) as far as ZooKeeper uses it: initial authentication, qop "auth".

`zk/session` uses it for each connection: the client responds to the server's challenge, then verifies the server's
proof that it knows the password. ZooKeeper always uses the same service and host, whatever its name is. Invariant: the
password is never part of a message or of an error. Pure: the caller provides the client nonce.
"""

from __future__ import annotations

import re
from hashlib import md5
from typing import Final

from odradek.base.errors import OdradekError

SERVICE: Final = "zookeeper/zk-sasl-md5"
"""Type and name of the service, which are constant in ZooKeeper."""

MAX_CHALLENGE_BYTES: Final = 2048
"""Longest challenge of RFC 2831, section 2.1.1."""

_DIRECTIVE: Final = re.compile(r'[\s,]*([a-z0-9-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))[\s,]*', re.IGNORECASE)


class DigestError(OdradekError):
    """The server's message is invalid, or the server does not know the password."""


class DigestLogin:
    """One authentication: `respond` to the challenge, then `verify` the server's proof."""

    def __init__(self, username: str, password: str, nonce: str, *, service: str = SERVICE) -> None:
        """`nonce` must be unpredictable printable text, new for each login."""
        self._username: Final = username
        self._password: Final = password
        self._nonce: Final = nonce
        self._service: Final = service
        self._proof = b""

    def respond(self, challenge: bytes) -> bytes:
        """Return the response to a challenge. Raises `DigestError` if it is not for DIGEST-MD5 or requires more than
        "auth"."""
        offered = _directives(challenge)
        server_nonce = offered.get("nonce")
        if server_nonce is None or offered.get("algorithm") != "md5-sess":
            raise DigestError("the server's challenge is not DIGEST-MD5")
        if "auth" not in offered.get("qop", "auth").replace(" ", "").split(","):
            raise DigestError(f"the server asks for SASL protection {offered['qop']!r}; only 'auth' is supported")
        realm = offered.get("realm", "")
        is_utf8 = offered.get("charset", "").lower() == "utf-8"
        secret = self._secret(realm, server_nonce, is_utf8=is_utf8)
        self._proof = self._response(secret, server_nonce, "").encode("ascii")
        parts = [
            *(["charset=utf-8"] if is_utf8 else []),
            f"username={_quoted(self._username)}",
            *([f"realm={_quoted(realm)}"] if realm else []),
            f"nonce={_quoted(server_nonce)}",
            "nc=00000001",
            f"cnonce={_quoted(self._nonce)}",
            f"digest-uri={_quoted(self._service)}",
            "maxbuf=65536",
            f"response={self._response(secret, server_nonce, 'AUTHENTICATE')}",
            "qop=auth",
        ]
        return _encoded(",".join(parts), is_utf8=is_utf8)

    def verify(self, answer: bytes) -> None:
        """Check the server's final message. Raises `DigestError` if it does not prove that the server knows the
        password."""
        if _directives(answer).get("rspauth", "").encode() != self._proof or not self._proof:
            raise DigestError("the server does not prove that it knows the password")

    def _secret(self, realm: str, server_nonce: str, *, is_utf8: bool) -> bytes:
        """H(A1) of section 2.1.2.1 in hexadecimal."""
        who = b":".join(_hashed_form(text, is_utf8=is_utf8) for text in (self._username, realm, self._password))
        return _hex(md5(who).digest() + f":{server_nonce}:{self._nonce}".encode())

    def _response(self, secret: bytes, server_nonce: str, method: str) -> str:
        what = _hex(f"{method}:{self._service}".encode())
        middle = f":{server_nonce}:00000001:{self._nonce}:auth:".encode()
        return _hex(secret + middle + what).decode("ascii")


def _directives(message: bytes) -> dict[str, str]:
    """Parse the pairs of a message, by lower-case name. The first of repeated names counts (several realms are a
    choice)."""
    if len(message) > MAX_CHALLENGE_BYTES:
        raise DigestError(f"the server's SASL message has {len(message)} bytes")
    text = message.decode("utf-8", "replace")
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _DIRECTIVE.match(text, position)
        if match is None:
            raise DigestError("the server's SASL message is not DIGEST-MD5")
        name, quoted, plain = match.groups()
        found.setdefault(name.lower(), plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        position = match.end()
    return found


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _encoded(text: str, *, is_utf8: bool) -> bytes:
    try:
        return text.encode("utf-8" if is_utf8 else "latin-1")
    except UnicodeEncodeError:
        raise DigestError("the user name has characters that the server does not accept") from None


def _hashed_form(text: str, *, is_utf8: bool) -> bytes:
    """Encode as Latin-1 if possible, even if UTF-8 was agreed (section 2.1.2.1)."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        if is_utf8:
            return text.encode("utf-8")
        raise DigestError("user name or password have characters that the server does not accept") from None


def _hex(data: bytes) -> bytes:
    return md5(data).hexdigest().encode("ascii")
