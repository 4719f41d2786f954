"""The port of SASL exchanges (RFC 4422): what listeners and clients need of each mechanism.

An exchange takes and returns the bytes of SaslAuthenticate requests and responses; the caller limits their size
(`sasl.server.max.receive.size`). An exchange belongs to one connection. A re-authentication (KIP-368) has a new one.
A failed exchange stays failed: every later step raises a `SaslError`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from odradek.base.errors import OdradekError

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"

MECHANISMS: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)
"""All mechanisms, with the names that SaslHandshake uses. GSSAPI is not supported (docs/design/0024)."""

MAX_SHOWN: Final = 100
"""Maximum length, in characters, of what a log shows of a name that the other side sent."""


class SaslError(OdradekError):
    """An exchange failed. `str` is the text for the other side: it reveals nothing about users, tokens or settings.

    `log_text` is for the log of this side. It may have the name of a user, but never a password, key or token.
    """

    def __init__(self, mechanism: str, log_text: str, *, peer_text: str | None = None) -> None:
        """`peer_text` replaces the text for the other side, which by default is the same for every cause."""
        text = f"Authentication failed: invalid credentials for SASL mechanism {mechanism}"
        super().__init__(text if peer_text is None else peer_text)
        self.mechanism: Final = mechanism
        self.log_text: Final = log_text


class TokenSourceError(OdradekError):
    """A client has no token to log in with. The message has no part of a token or secret."""


class ServerExchange(Protocol):
    """The server's side of an exchange."""

    @property
    def mechanism(self) -> str:
        """Name of the mechanism, such as `SCRAM-SHA-256`."""
        ...

    def step(self, data: bytes) -> bytes:
        """Return the response to what the client sent; it may be empty. Does not wait for anything.

        Raises `SaslError` if the client did not authenticate, and if the exchange has ended.
        """
        ...

    @property
    def is_complete(self) -> bool:
        """Whether the client has authenticated. The response to its last step must still be sent."""
        ...

    @property
    def authorization_id(self) -> str:
        """Name of the user. Raises `SaslError` if the exchange is not complete."""
        ...

    @property
    def expiry_ms(self) -> int | None:
        """When the credentials expire, in milliseconds since 1970-01-01 UTC. None: they do not, or the exchange is not
        complete."""
        ...

    @property
    def is_delegation_token(self) -> bool:
        """Whether the client used a delegation token (KIP-48) to authenticate."""
        ...


class ClientExchange(Protocol):
    """The client's side of an exchange."""

    @property
    def mechanism(self) -> str:
        """Name of the mechanism."""
        ...

    def start(self) -> bytes:
        """Return the first message. Raises `SaslError` if called twice."""
        ...

    def step(self, data: bytes) -> bytes | None:
        """Return the answer to what the server sent, or None if nothing is to be sent. SCRAM derives a key here, which
        takes milliseconds of CPU time.

        Raises `SaslError` if the server refuses, or does not prove that it knows the credentials.
        """
        ...

    @property
    def is_complete(self) -> bool:
        """Whether the server has accepted the client and, with SCRAM, has proved that it knows the credentials."""
        ...


NewExchange = Callable[[], ClientExchange]
"""Begins a login. It may read a file or ask the issuer of tokens, so call it in a thread. Raises `SaslError`, or
`TokenSourceError` if there is no token."""


def shown(name: str) -> str:
    """Return a name from the other side for a log: quoted, without control characters, `MAX_SHOWN` characters."""
    return repr(name if len(name) <= MAX_SHOWN else f"{name[:MAX_SHOWN]}...")


def is_utf8(text: str) -> bool:
    """Return whether a text can be sent. Half a surrogate pair cannot; JSON and properties may have one."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def utf8(mechanism: str, text: str) -> bytes:
    """Return the bytes of a message. Raises `SaslError` if the text has half a surrogate pair."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        # The error would show the text, which may have a password, so it is not the cause.
        raise SaslError(mechanism, "a name, password or token has a character that UTF-8 cannot represent") from None
