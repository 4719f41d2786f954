"""Reads PEM (RFC 7468): private keys, certificates and revocation lists.

Line breaks do not matter, because Kafka's properties often have the whole text on one line. Text between the blocks is
ignored, and so are blocks of other kinds.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from odradek.security.tls.der import DerError, element_at
from odradek.security.tls.material import KeyMaterial, StoreError, TrustMaterial, key_material, load_key, trust_material
from odradek.security.tls.pkcs12 import check_iterations

_BEGIN: Final = "-----BEGIN "
_DASHES: Final = "-----"
_KEY_LABEL_END: Final = "PRIVATE KEY"
_ENCRYPTED_LABEL: Final = "ENCRYPTED PRIVATE KEY"
_CERTIFICATE_LABELS: Final = frozenset({"CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE"})
_LIST_LABEL: Final = "X509 CRL"


class _Block(NamedTuple):
    label: str
    body: str

    def der(self) -> bytes:
        try:
            return binascii.a2b_base64("".join(self.body.split()), strict_mode=True)
        except ValueError as error:
            raise StoreError(f"a block {self.label} is not valid Base64") from error


def read_pem_key(key: str, chain: str, password: str | None) -> KeyMaterial:
    """Return the one private key of a text, and the certificates of another, or of the same. Raises `StoreError`.

    The password is not used if the key is not encrypted.
    """
    keys = [block for block in _blocks(key) if block.label.endswith(_KEY_LABEL_END)]
    if len(keys) != 1:
        raise StoreError(f"it has {len(keys)} private keys; it must have one")
    blocks = _certificates(_blocks(chain))
    if not blocks:
        raise StoreError("it has no certificate for the private key")
    return key_material(_load(keys[0], password), [_first(block) for block in blocks])


def read_pem_trust(text: str) -> TrustMaterial:
    """Return all certificates and revocation lists of a text. Raises `StoreError`."""
    blocks = list(_blocks(text))
    lists = [block.der() for block in blocks if block.label == _LIST_LABEL]
    return trust_material([_first(block) for block in _certificates(blocks)], lists)


def _certificates(blocks: Sequence[_Block] | Iterator[_Block]) -> list[_Block]:
    return [block for block in blocks if block.label in _CERTIFICATE_LABELS]


def _first(block: _Block) -> bytes:
    """Return the certificate of a block. In a TRUSTED CERTIFICATE of OpenSSL, its settings follow."""
    try:
        return element_at(block.der()).encoded
    except DerError as error:
        raise StoreError("a certificate is not valid") from error


def _load(block: _Block, password: str | None) -> PrivateKeyTypes:
    if ":" in block.body:
        return _load_traditional(block, password)
    if block.label != _ENCRYPTED_LABEL:
        return load_key(block.der())
    if password is None:
        raise StoreError("the private key is encrypted, and there is no password for it")
    der = block.der()
    check_iterations(der)
    return load_key(der, password)


def _load_traditional(block: _Block, password: str | None) -> PrivateKeyTypes:
    """Decode a key with headers: OpenSSL's own encryption, before PKCS#8."""
    if password is None:
        raise StoreError("the private key is encrypted, and there is no password for it")
    text = f"{_BEGIN}{block.label}{_DASHES}\n{block.body.strip()}\n-----END {block.label}{_DASHES}\n"
    try:
        return load_pem_private_key(text.encode(), password.encode())
    except UnsupportedAlgorithm as error:
        raise StoreError("the algorithm of the private key or of its encryption is not supported") from error
    except (ValueError, TypeError) as error:
        raise StoreError("the private key is not valid, or its password is wrong") from error


def _blocks(text: str) -> Iterator[_Block]:
    offset = 0
    while (begin := text.find(_BEGIN, offset)) >= 0:
        start = begin + len(_BEGIN)
        stop = text.find(_DASHES, start, start + 64)
        if stop < 0:
            raise StoreError("a BEGIN line is not complete")
        label = text[start:stop]
        ending = f"-----END {label}{_DASHES}"
        end = text.find(ending, stop)
        if end < 0:
            raise StoreError(f"a block {label!r} has no end")
        yield _Block(label, text[stop + len(_DASHES) : end])
        offset = end + len(ending)
