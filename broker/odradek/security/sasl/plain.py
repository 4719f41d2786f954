"""SASL PLAIN (RFC 4616): one message with user and password, so it needs TLS.

The users of a server are options of its JAAS entry, as in Kafka: `user_alice="secret of alice"`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from hashlib import blake2b
from hmac import compare_digest
from typing import Final

from odradek.security.sasl.mechanism import PLAIN, SaslError, shown, utf8

LOGIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
USER_PREFIX: Final = "user_"
"""Beginning of an option with the password of a user."""

Verify = Callable[[str, str], bool]
"""Whether a user has a password. Must take the same time whether it has or not."""


class PlainUsers:
    """The users of a JAAS entry. It keeps keyed hashes of the passwords, all of the same length, so that a comparison
    takes the same time whatever the passwords are."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """`options` are those of the JAAS entry. Other options, such as the broker's own user, are ignored."""
        self._key: Final = secrets.token_bytes(32)
        self._nobody: Final = secrets.token_bytes(32)
        self._hashes: Final = {
            name.removeprefix(USER_PREFIX): self._hash(password)
            for name, password in options.items()
            if name.startswith(USER_PREFIX)
        }

    def __repr__(self) -> str:
        return f"PlainUsers({len(self._hashes)} users)"

    def verify(self, user: str, password: str) -> bool:
        """Return whether the user exists and has this password."""
        return compare_digest(self._hash(password), self._hashes.get(user, self._nobody))

    def _hash(self, password: str) -> bytes:
        return blake2b(password.encode("utf-8", "surrogatepass"), key=self._key, digest_size=32).digest()


class PlainServer:
    """The server's side: a `ServerExchange` of one step."""

    mechanism: Final = PLAIN
    expiry_ms: Final = None
    is_delegation_token: Final = False

    def __init__(self, verify: Verify) -> None:
        """`verify` is asked once."""
        self._verify: Final = verify
        self._user: str | None = None
        self._has_begun = False

    def __repr__(self) -> str:
        return f"PlainServer(is_complete={self.is_complete})"

    @property
    def is_complete(self) -> bool:
        """Whether the client has authenticated."""
        return self._user is not None

    @property
    def authorization_id(self) -> str:
        """Name of the user. Raises `SaslError` if the exchange is not complete."""
        if self._user is None:
            raise SaslError(PLAIN, "the exchange is not complete")
        return self._user

    def step(self, data: bytes) -> bytes:
        """Return the empty response. Raises `SaslError` for any message but the first, right one."""
        if self._has_begun:
            raise SaslError(PLAIN, "the client sent a message after the end of the exchange")
        self._has_begun = True
        requested, user, password = self._parse(data)
        if not self._verify(user, password):
            raise SaslError(PLAIN, f"the user {shown(user)} does not exist or has another password")
        if requested not in ("", user):
            raise SaslError(PLAIN, f"the user {shown(user)} asked to act as {shown(requested)}")
        self._user = user
        return b""

    @staticmethod
    def _parse(data: bytes) -> tuple[str, str, str]:
        parts = data.split(b"\0", 3)
        if len(parts) != 3 or not parts[1] or not parts[2]:
            raise SaslError(PLAIN, "the client's message does not have user and password separated by a zero byte")
        try:
            requested, user, password = (part.decode("utf-8") for part in parts)
        except UnicodeDecodeError:
            # The error would show the message, which has the password, so it is not the cause.
            raise SaslError(PLAIN, "the client's message is not UTF-8") from None
        return requested, user, password


class PlainClient:
    """The client's side."""

    mechanism: Final = PLAIN

    def __init__(self, user: str, password: str) -> None:
        """Raises `SaslError` if one of them is empty or has a character that cannot be sent."""
        if not user or not password or "\0" in user or "\0" in password:
            raise SaslError(PLAIN, "user and password must not be empty or have a zero character")
        self._message: bytes | None = utf8(PLAIN, f"\0{user}\0{password}")
        self._is_complete = False

    def __repr__(self) -> str:
        return f"PlainClient(is_complete={self._is_complete})"

    @property
    def is_complete(self) -> bool:
        """Whether the server has accepted user and password."""
        return self._is_complete

    def start(self) -> bytes:
        """Return the message. Raises `SaslError` if called twice."""
        message, self._message = self._message, None
        if message is None:
            raise SaslError(PLAIN, "the exchange has begun")
        return message

    def step(self, data: bytes) -> bytes | None:
        """Complete the exchange. Raises `SaslError` if the server sends anything."""
        if self._message is not None or self._is_complete or data:
            raise SaslError(PLAIN, "the server sent a message that is not part of the exchange")
        self._is_complete = True
        return None
