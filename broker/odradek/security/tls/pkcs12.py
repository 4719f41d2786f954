"""Reads PKCS#12 files (RFC 7292), which `keytool` writes since Java 9, and `openssl pkcs12`.

The library `cryptography` decodes them, also with the old algorithms (RC2, triple DES, SHA-1) of Java 8 and of
`keytool -J-Dkeystore.pkcs12.legacy`. It knows one password for file and keys, and so does `keytool`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates, load_pkcs12

from odradek.security.tls.der import iteration_counts
from odradek.security.tls.material import KeyMaterial, StoreError, TrustMaterial, key_material, trust_material

MAX_ITERATIONS: Final = 5_000_000
"""Java refuses more, too (`sun.security.pkcs12.PKCS12KeyStore`). A damaged number would otherwise take hours."""


def read_pkcs12_key(data: bytes, password: str | None) -> KeyMaterial:
    """Return the first key of a file, and its certificates up to the last issuer in the file. Raises `StoreError`."""
    if password is None:
        raise StoreError("it needs its password")
    store = _open(data, password)
    if store.key is None:
        raise StoreError("it has no private key")
    if store.cert is None:
        raise StoreError("it has no certificate for the private key")
    others = [each.certificate for each in store.additional_certs]
    return key_material(store.key, [_der(each) for each in _chain(store.cert.certificate, others)])


def read_pkcs12_trust(data: bytes, password: str | None) -> TrustMaterial:
    """Return the certificates to trust. Raises `StoreError`.

    A file without a key is a truststore: all its certificates are trusted, also those that lack the attribute by which
    Java recognises a trusted certificate and which `openssl` does not write. In a file with a key, the certificates of
    issuers that belong to the chain of the key are no trust anchors in Java. `keytool` gives them no name or, when it
    writes the file again, their distinguished name; keys and trusted certificates have an alias.
    """
    store = _open(data, password)
    entries = list(store.additional_certs)
    if store.key is not None:
        entries = [each for each in entries if each.friendly_name and b"=" not in each.friendly_name]
    if store.cert is not None:
        entries.insert(0, store.cert)
    return trust_material(_der(each.certificate) for each in entries)


def check_iterations(data: bytes) -> None:
    """Raise `StoreError` if decrypting would take too long."""
    largest = max(iteration_counts(data), default=0)
    if largest > MAX_ITERATIONS:
        raise StoreError(f"it asks for {largest:.3g} iterations; at most {MAX_ITERATIONS} are allowed")


def _open(data: bytes, password: str | None) -> PKCS12KeyAndCertificates:
    check_iterations(data)
    try:
        return load_pkcs12(data, None if password is None else password.encode())
    except UnsupportedAlgorithm as error:
        raise StoreError("it uses an algorithm that is not supported") from error
    except (ValueError, TypeError) as error:
        if password is None:
            raise StoreError("it needs its password, or it is damaged") from error
        raise StoreError("its password is wrong, its keys have another password, or it is damaged") from error


def _chain(leaf: x509.Certificate, others: Sequence[x509.Certificate]) -> list[x509.Certificate]:
    """Return the leaf and its issuers. The order in the file is not defined."""
    chain, left = [leaf], [each for each in others if each != leaf]
    while chain[-1].issuer != chain[-1].subject:
        issuers = [each for each in left if each.subject == chain[-1].issuer]
        if not issuers:
            break
        # A renewed authority has the same name as before. Only one of them has signed.
        issuer = next((each for each in issuers if _has_signed(each, chain[-1])), issuers[0])
        chain.append(issuer)
        left.remove(issuer)
    return chain


def _der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.DER)


def _has_signed(issuer: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, ValueError, TypeError, UnsupportedAlgorithm):
        return False
    return True
