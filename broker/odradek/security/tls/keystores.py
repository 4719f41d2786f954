"""Reads keystores and truststores as Kafka does: PEM as file or text, PKCS#12, and JKS.

Kafka's default for the type is JKS. Java then accepts a PKCS#12 file as well, and the other way round
(`keystore.type.compat`), so for these two types the content of the file decides, and PEM is recognised, too. With the
type PEM, the file must be PEM.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from odradek.base.errors import ConfigError
from odradek.security.tls.jks import JCEKS_MAGIC, JKS_MAGIC, read_jks_key, read_jks_trust
from odradek.security.tls.material import KeyMaterial, StoreError, TrustMaterial
from odradek.security.tls.pem import read_pem_key, read_pem_trust
from odradek.security.tls.pkcs12 import read_pkcs12_key, read_pkcs12_trust
from odradek.security.tls.stores import STORE_KINDS, PemKeyText, PemTrustText, StoreFile

MAX_STORE_BYTES: Final = 4 << 20
"""Maximum size of a file. All public authorities together need 250 KB."""


def read_keystore(source: StoreFile | PemKeyText) -> KeyMaterial:
    """Return a key and its certificates; the first key if there are several. Raises `ConfigError`."""
    if isinstance(source, PemKeyText):
        with _explained(f"{source.setting}.key and {source.setting}.certificate.chain: the PEM text"):
            return read_pem_key(source.key, source.chain, source.key_password)
    data, kind = _read(source)
    with _explained(_name(source, kind)):
        if kind == "JKS":
            return read_jks_key(data, source.password, source.key_password)
        if kind == "PKCS12":
            return read_pkcs12_key(data, source.password)
        text = data.decode("latin-1")
        return read_pem_key(text, text, source.password if source.key_password is None else source.key_password)


def read_truststore(source: StoreFile | PemTrustText) -> TrustMaterial:
    """Return the trusted certificates, at least one. Raises `ConfigError`."""
    if isinstance(source, PemTrustText):
        with _explained(f"{source.setting}.certificates: the PEM text"):
            return _not_empty(read_pem_trust(source.certificates))
    data, kind = _read(source)
    with _explained(_name(source, kind)):
        if kind == "JKS":
            return _not_empty(read_jks_trust(data, source.password))
        if kind == "PKCS12":
            return _not_empty(read_pkcs12_trust(data, source.password))
        return _not_empty(read_pem_trust(data.decode("latin-1")))


def _not_empty(material: TrustMaterial) -> TrustMaterial:
    if not material.certificates:
        raise StoreError("it has no trusted certificate")
    return material


def _read(source: StoreFile) -> tuple[bytes, str]:
    """Return the content of a file and its kind."""
    declared = None if source.kind is None else source.kind.upper()
    if declared is not None and declared not in STORE_KINDS:
        raise ConfigError(f"{source.setting}.type={source.kind} is not supported: it must be JKS, PKCS12 or PEM")
    try:
        with Path(source.location).open("rb") as file:
            data = file.read(MAX_STORE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        raise ConfigError(f"{source.setting}.location={source.location} cannot be read: {reason}") from error
    with _explained(_name(source, declared)):
        if len(data) > MAX_STORE_BYTES:
            raise StoreError(f"it is larger than {MAX_STORE_BYTES} bytes")
        kind = _recognise(data)
        if declared == "PEM" and kind != "PEM":
            raise StoreError(f"it is not PEM{f', but {kind}: set {source.setting}.type={kind}' if kind else ''}")
        if kind is None:
            raise StoreError("it is neither JKS, PKCS12 nor PEM")
    return data, kind


def _recognise(data: bytes) -> str | None:
    if data.startswith(JKS_MAGIC):
        return "JKS"
    if data.startswith(JCEKS_MAGIC):
        raise StoreError(
            "it is a JCEKS file, which is not supported: convert it with "
            "`keytool -importkeystore -srcstoretype JCEKS -deststoretype PKCS12 -srckeystore ... -destkeystore ...`"
        )
    if b"-----BEGIN " in data:
        return "PEM"
    return "PKCS12" if data.startswith(b"\x30") else None


def _name(source: StoreFile, kind: str | None) -> str:
    return f"{source.setting}.location={source.location}: the {f'{kind} ' if kind else ''}file"


@contextmanager
def _explained(name: str) -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        raise ConfigError(f"{name} cannot be used: {error}") from error
