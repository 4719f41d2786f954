"""Where a key or trusted certificates are: in a file, or in the text of a property. `keystores` reads them.

Every client has such settings. They do not import `cryptography`, which takes 20 ms and which only `keystores` needs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

STORE_KINDS: Final = ("JKS", "PKCS12", "PEM")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFile:
    """A file with a key or with trusted certificates."""

    setting: str
    """The beginning of the names of its properties, for errors: `ssl.keystore`."""
    location: str
    kind: str | None = None
    """JKS, PKCS12 or PEM. None: the content decides, as it does between JKS and PKCS12."""
    password: str | None = field(default=None, repr=False)
    """Password of the file. For a PEM file, it decrypts the key if there is no other password."""
    key_password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PemKeyText:
    """A key and its certificates as the values of properties."""

    setting: str
    key: str = field(repr=False)
    chain: str = field(repr=False)
    key_password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PemTrustText:
    """Trusted certificates as the value of a property."""

    setting: str
    certificates: str = field(repr=False)
