"""The results of reading a store: a private key with its certificates, or certificates to trust.

Everything is PEM, which the module `ssl` takes. The key is decrypted, so it must not reach a log or an error: `repr`
shows no key, and errors never contain the content of a store.
"""

from __future__ import annotations

import ssl
from binascii import b2a_base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
    load_der_public_key,
)

from odradek.security.tls.der import DerError, certificate_parts


class StoreError(Exception):
    """Why a store cannot be used, without its name. `security/tls/keystores` makes a `ConfigError` of it."""


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """What a side of a connection proves its identity with."""

    key: bytes = field(repr=False)
    """Private key, PKCS#8 in PEM, not encrypted."""
    chain: bytes = field(repr=False)
    """The certificate of the key, then those of its issuers, in PEM."""

    def __repr__(self) -> str:
        return f"KeyMaterial({self.chain.count(b'-----BEGIN ')} certificates)"


@dataclass(frozen=True, slots=True)
class TrustMaterial:
    """What the certificate of the other side is verified with. Every certificate is a trust anchor, as in Java."""

    certificates: bytes = field(repr=False)
    """Certificates in PEM."""
    revocation_lists: bytes = field(default=b"", repr=False)
    """CRLs in PEM. Only PEM stores can have them."""

    def __repr__(self) -> str:
        return f"TrustMaterial({self.certificates.count(b'-----BEGIN ')} certificates)"


def check_certificate(der: bytes, position: int) -> bytes:
    """Return a certificate that OpenSSL accepts. `position`, from 1, is for the error. Raises `StoreError`."""
    try:
        certificate_parts(der)
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=der)
    except (DerError, ssl.SSLError) as error:
        raise StoreError(f"certificate {position} is not valid") from error
    return der


def check_certificates(ders: Iterable[bytes]) -> list[bytes]:
    """Return certificates that OpenSSL accepts. Raises `StoreError`."""
    return [check_certificate(der, position) for position, der in enumerate(ders, 1)]


def load_key(der: bytes, password: str | None = None) -> PrivateKeyTypes:
    """Decode a private key: PKCS#8, also encrypted, PKCS#1 or SEC 1. Raises `StoreError`."""
    try:
        return load_der_private_key(der, None if password is None else password.encode())
    except UnsupportedAlgorithm as error:
        raise StoreError("the algorithm of the private key or of its encryption is not supported") from error
    except (ValueError, TypeError) as error:
        what = "is not valid" if password is None else "is not valid, or its password is wrong"
        raise StoreError(f"the private key {what}") from error


def key_material(key: PrivateKeyTypes, chain: Sequence[bytes]) -> KeyMaterial:
    """Return a key with its certificates. Raises `StoreError` if the first certificate is not the key's."""
    if not chain:
        raise StoreError("it has no certificate for the private key")
    check_certificates(chain)
    try:
        is_pair = load_der_public_key(certificate_parts(chain[0]).public_key) == key.public_key()
        encoded = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise StoreError("the algorithm of the private key or of its certificate is not supported") from error
    if not is_pair:
        raise StoreError("the first certificate does not belong to the private key")
    return KeyMaterial(encoded, pem_text("CERTIFICATE", *chain))


def trust_material(certificates: Iterable[bytes], revocation_lists: Iterable[bytes] = ()) -> TrustMaterial:
    """Return certificates to trust. Raises `StoreError` if one is not valid."""
    trusted = check_certificates(certificates)
    return TrustMaterial(pem_text("CERTIFICATE", *trusted), pem_text("X509 CRL", *revocation_lists))


def pem_text(label: str, *ders: bytes) -> bytes:
    """Return PEM blocks, with lines of 64 characters (RFC 7468)."""
    lines = []
    for der in ders:
        text = b2a_base64(der, newline=False).decode()
        lines += [f"-----BEGIN {label}-----", *(text[start : start + 64] for start in range(0, len(text), 64))]
        lines.append(f"-----END {label}-----")
    return "".join(f"{line}\n" for line in lines).encode()
