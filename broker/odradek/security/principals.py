"""Principals and identities: who a client is.

`User` is the only type that Kafka's authentication creates. Other types are kept as they are.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from odradek.base.errors import ConfigError

USER: Final = "User"
WILDCARD: Final = "*"
"""Name that stands for every principal in a rule."""


class Principal(NamedTuple):
    """A type and a name. The text form is `User:alice`."""

    type: str
    name: str

    def __str__(self) -> str:
        """The text form, as in access rules and in `super.users`."""
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""The principal of a connection without authentication."""

EVERYONE: Final = Principal(USER, WILDCARD)
"""In a rule: every principal."""


class Identity(NamedTuple):
    """Who a connection is, from the end of its authentication until the next one."""

    principal: Principal
    host: str
    """The client's address as text, which rules and quotas compare, as `normal_address` returns it."""
    listener: str
    """The name of the listener that accepted the connection."""
    protocol: str
    """The security protocol of the listener: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
    mechanism: str | None = None
    """The SASL mechanism; None without SASL."""
    token: bool = False
    """Whether a delegation token authenticated the client, which may then not manage tokens (KIP-48)."""


def parse_principal(text: str) -> Principal:
    """Return the principal in `Type:name`; the name may contain colons. Raises `ConfigError`."""
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise ConfigError(f"{text!r:.200} is not a principal: write Type:name, for example User:alice")
    return Principal(kind, name)


def parse_principals(text: str) -> frozenset[Principal]:
    """Return the principals of `super.users`, which separates them by semicolons: names of certificates have commas.

    Raises `ConfigError`.
    """
    return frozenset(parse_principal(part.strip()) for part in text.split(";") if part.strip())
