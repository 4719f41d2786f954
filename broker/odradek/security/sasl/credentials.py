"""What a broker knows of a SCRAM password (RFC 5802, section 3): salt, iterations and two keys, not the password.

The text form is the value of the property `SCRAM-SHA-256` or `SCRAM-SHA-512` in `/config/users/NAME`. As in Kafka,
passwords are used as they are, without SASLprep. Deriving keys costs CPU time in proportion to the iterations (at 4096,
1 ms for SHA-256 and 2 ms for SHA-512), so callers run `derive` and `salted_password` in a thread; both release the
GIL.
"""

from __future__ import annotations

import hmac
import re
import secrets
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from dataclasses import dataclass, field
from hashlib import new as new_hash
from hashlib import pbkdf2_hmac
from types import MappingProxyType
from typing import Final

from odradek.base.errors import ConfigError
from odradek.security.sasl.mechanism import SCRAM_SHA_256, SCRAM_SHA_512

MIN_ITERATIONS: Final = 4096
"""Minimum of RFC 7677 and of Kafka, for both mechanisms."""

MAX_ITERATIONS: Final = 16384
"""Kafka's maximum for a password that is set by AlterUserScramCredentials (KIP-554)."""

SALT_BITS: Final = 130
"""Randomness of a salt, as in Kafka."""

_BASE_36: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_MAX_TEXT: Final = 4096
_FIELDS: Final = frozenset({"salt", "stored_key", "server_key", "iterations"})


@dataclass(frozen=True, slots=True)
class ScramMechanism:
    """SCRAM with one hash function."""

    name: str
    """Name in SaslHandshake and of the property in `/config/users`."""
    number: int
    """Number in AlterUserScramCredentials (KIP-554)."""
    hash_name: str

    @property
    def key_bytes(self) -> int:
        """Length of the keys."""
        return new_hash(self.hash_name).digest_size

    def hash(self, data: bytes) -> bytes:
        """H() of RFC 5802."""
        return new_hash(self.hash_name, data).digest()

    def hmac(self, key: bytes, data: bytes) -> bytes:
        """HMAC() of RFC 5802."""
        return hmac.digest(key, data, self.hash_name)


SHA_256: Final = ScramMechanism(SCRAM_SHA_256, 1, "sha256")
SHA_512: Final = ScramMechanism(SCRAM_SHA_512, 2, "sha512")
SCRAM_MECHANISMS: Final = MappingProxyType({each.name: each for each in (SHA_256, SHA_512)})


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The keys of one user for one mechanism."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    """Hash of the client key, with which a server verifies a client."""
    server_key: bytes = field(repr=False)
    """With it, a server proves to a client that it knows the user."""
    iterations: int

    def to_text(self) -> str:
        """Return the value in `/config/users`. It is a secret: with it, a server can be imitated."""
        parts = {"salt": self.salt, "stored_key": self.stored_key, "server_key": self.server_key}
        return "".join(f"{name}={b64encode(key).decode()}," for name, key in parts.items()) + (
            f"iterations={self.iterations}"
        )

    @classmethod
    def from_text(cls, mechanism: ScramMechanism, text: str) -> ScramCredential:
        """Parse a value of `/config/users`, in any order. Raises `ConfigError`, which does not show it."""
        pairs = [part.partition("=") for part in text[:_MAX_TEXT].split(",")]
        values = {name: value for name, _, value in pairs}
        try:
            if len(text) > _MAX_TEXT or len(pairs) != len(_FIELDS) or values.keys() != _FIELDS:
                raise ValueError
            salt, stored_key, server_key = (
                b64decode(values[name], validate=True) for name in ("salt", "stored_key", "server_key")
            )
            iterations = int(values["iterations"]) if re.fullmatch("[0-9]{1,9}", values["iterations"]) else 0
        except (ValueError, Base64Error):
            # The error would show the text.
            raise ConfigError(
                f"{mechanism.name} is not valid: it must be salt=,stored_key=,server_key=,iterations=, in base64"
            ) from None
        if not salt or {len(stored_key), len(server_key)} != {mechanism.key_bytes}:
            raise ConfigError(f"{mechanism.name} is not valid: each key must have {mechanism.key_bytes} bytes")
        if iterations < 1:
            raise ConfigError(f"{mechanism.name} is not valid: iterations must be a positive number")
        return cls(salt, stored_key, server_key, iterations)


@dataclass(frozen=True, slots=True)
class TokenCredential:
    """The keys of a delegation token (KIP-48). Its id is the name of the exchange and its HMAC, in base64, the
    password."""

    owner: str
    """Name of the user for whom the token acts."""
    expiry_ms: int
    """When the token expires, in milliseconds since 1970-01-01 UTC."""
    credential: ScramCredential


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Return Hi() of RFC 5802. Call it in a thread. Raises `ValueError`, without the password, if it is not text."""
    try:
        encoded = password.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("the password has a character that UTF-8 cannot represent") from None
    return pbkdf2_hmac(mechanism.hash_name, encoded, salt, iterations)


def credential_from_salted(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Return the keys of a salted password, which is what AlterUserScramCredentials has (KIP-554)."""
    stored_key = mechanism.hash(mechanism.hmac(salted, b"Client Key"))
    return ScramCredential(salt, stored_key, mechanism.hmac(salted, b"Server Key"), iterations)


def derive(password: str, mechanism: ScramMechanism, iterations: int = MIN_ITERATIONS) -> ScramCredential:
    """Return the keys of a password with a new salt. Call it in a thread: it takes milliseconds of CPU time.

    Raises `ConfigError` if the iterations are below `MIN_ITERATIONS` or above `MAX_ITERATIONS`, or if the password is
    empty or not text.
    """
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise ConfigError(
            f"iterations={iterations} is not allowed for {mechanism.name}: it must be from {MIN_ITERATIONS} to "
            f"{MAX_ITERATIONS}"
        )
    if not password:
        raise ConfigError("the password must not be empty")
    salt = new_salt()
    try:
        salted = salted_password(mechanism, password, salt, iterations)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return credential_from_salted(mechanism, salted, salt, iterations)


def new_salt() -> bytes:
    """Return a random salt in Kafka's form: a number of `SALT_BITS` bits with base 36, in ASCII."""
    return salt_of(secrets.randbits(SALT_BITS))


def salt_of(number: int) -> bytes:
    """Return a salt in Kafka's form. Salts of users that do not exist must have the form of those that do."""
    digits = []
    while number:
        number, digit = divmod(number, len(_BASE_36))
        digits.append(_BASE_36[digit])
    return "".join(reversed(digits or "0")).encode("ascii")
