"""Reads JKS, Java's own keystore format until version 8.

The format is not specified; this module follows what `keytool` writes, and the tests compare with it. All numbers are
big-endian, texts are a length of two bytes and modified UTF-8.

    magic FEEDFEED, version 1 or 2, number of entries
    entry 1, a key:                alias, date, protected key, number of certificates, certificates
    entry 2, a trusted certificate: alias, date, certificate
    certificate:                   type (version 2), length, DER
    SHA-1 of the password in UTF-16BE, the text "Mighty Aphrodite", and everything before

A protected key is an EncryptedPrivateKeyInfo (RFC 5208) with an algorithm of Sun: a salt of 20 bytes, the PKCS#8 key
XORed with SHA-1(password, previous 20 bytes) beginning with the salt, and SHA-1(password, key). That is weak, so such
files must be protected by their permissions.
"""

from __future__ import annotations

import hmac
from hashlib import sha1
from typing import Final

from odradek.security.tls.der import OCTET_STRING, SEQUENCE, DerError, children, content_of, element_at
from odradek.security.tls.material import KeyMaterial, StoreError, TrustMaterial, key_material, load_key, trust_material

JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
JCEKS_MAGIC: Final = b"\xce\xce\xce\xce"

_DIGEST_BYTES: Final = 20
_WHITENER: Final = b"Mighty Aphrodite"
_KEY, _TRUSTED = 1, 2
_SUN_KEY_PROTECTION: Final = bytes.fromhex("060a2b060104012a02110101")
"""OBJECT IDENTIFIER 1.3.6.1.4.1.42.2.17.1.1"""


class _Store:
    """The entries of a file: protected keys with their chains, and trusted certificates, all as DER."""

    def __init__(self, data: bytes) -> None:
        self.keys: list[tuple[bytes, list[bytes]]] = []
        self.trusted: list[bytes] = []
        self._data = data
        self._offset = len(JKS_MAGIC)
        self._version = self._number()
        if self._version not in (1, 2):
            raise StoreError(f"version {self._version} of the format is not known")
        for _ in range(self._number()):
            self._entry()
        if self._offset != len(data):
            raise StoreError("more bytes follow the last entry")

    def _take(self, count: int) -> bytes:
        taken = self._data[self._offset : self._offset + count]
        if len(taken) < count:
            raise StoreError("the file is cut off")
        self._offset += count
        return taken

    def _number(self, size: int = 4) -> int:
        return int.from_bytes(self._take(size))

    def _entry(self) -> None:
        kind = self._number()
        if kind not in (_KEY, _TRUSTED):
            raise StoreError(f"an entry has the unknown kind {kind}; only keys and trusted certificates are supported")
        self._take(self._number(2))
        self._take(8)
        if kind == _TRUSTED:
            self.trusted.append(self._certificate())
        else:
            key = self._take(self._number())
            self.keys.append((key, [self._certificate() for _ in range(self._number())]))

    def _certificate(self) -> bytes:
        kind = self._take(self._number(2)) if self._version == 2 else b"X.509"
        if kind not in (b"X.509", b"X509"):
            raise StoreError(f"a certificate is of the type {kind.decode('latin-1')[:40]!r}, not X.509")
        return self._take(self._number())


def read_jks_key(data: bytes, password: str | None, key_password: str | None) -> KeyMaterial:
    """Return the first key of a file. Raises `StoreError`.

    The password of the key is that of the file if there is none, as in Kafka.
    """
    if password is None:
        raise StoreError("it needs its password")
    store = _open(data, password)
    if not store.keys:
        raise StoreError("it has no private key")
    protected, chain = store.keys[0]
    key = load_key(_unprotect(protected, password if key_password is None else key_password))
    return key_material(key, chain)


def read_jks_trust(data: bytes, password: str | None) -> TrustMaterial:
    """Return the trusted certificates, and the own certificate of each key, which Java trusts, too.

    Without a password the digest is not checked, as in Java. Raises `StoreError`.
    """
    store = _open(data, password)
    return trust_material([*store.trusted, *(chain[0] for _, chain in store.keys if chain)])


def _open(data: bytes, password: str | None) -> _Store:
    content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if len(content) < 12:
        raise StoreError("the file is cut off")
    if password is not None:
        expected = sha1(_utf16(password) + _WHITENER + content, usedforsecurity=False).digest()
        if not hmac.compare_digest(expected, digest):
            raise StoreError("its password is wrong, or the file is damaged")
    return _Store(content)


def _unprotect(protected: bytes, password: str) -> bytes:
    try:
        algorithm, data = children(element_at(protected), SEQUENCE, 2)[:2]
        oid = children(algorithm, SEQUENCE, 1)[0].encoded
        secret = content_of(data, OCTET_STRING)
    except DerError as error:
        raise StoreError("the protected key is damaged") from error
    if oid != _SUN_KEY_PROTECTION:
        raise StoreError("the key is protected by an algorithm that is not the one of JKS")
    if len(secret) < 2 * _DIGEST_BYTES:
        raise StoreError("the protected key is damaged")
    secret_password = _utf16(password)
    block, masked, check = secret[:_DIGEST_BYTES], secret[_DIGEST_BYTES:-_DIGEST_BYTES], secret[-_DIGEST_BYTES:]
    stream = bytearray()
    while len(stream) < len(masked):
        block = sha1(secret_password + block, usedforsecurity=False).digest()
        stream += block
    key = bytes(left ^ right for left, right in zip(masked, stream, strict=False))
    if not hmac.compare_digest(sha1(secret_password + key, usedforsecurity=False).digest(), check):
        raise StoreError("the password of the key is wrong")
    return key


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")
