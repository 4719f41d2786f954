"""A damaged store gives a `ConfigError`, or a result if the damage is where nothing is checked."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from hashlib import sha1
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.errors import ConfigError
from odradek.security.tls.der import DerError, elements, iteration_counts
from odradek.security.tls.keystores import read_keystore, read_truststore
from odradek.security.tls.material import KeyMaterial, TrustMaterial
from odradek.security.tls.stores import StoreFile
from odradek_testkit.security.certificates import Authority, key_pem, pem

PASSWORD = "secret"
ROOT = Authority.root()
BROKER = ROOT.issue()


def jks(*, with_key: bool) -> bytes:
    """Return a file as `keytool` would write it. `test_keytool_stores` reads real ones."""
    password = PASSWORD.encode("utf-16-be")

    def block(data: bytes, size: int = 4) -> bytes:
        return len(data).to_bytes(size) + data

    def certificate(issued: Authority) -> bytes:
        return block(b"X.509", 2) + block(issued.certificate.public_bytes(Encoding.DER))

    entries = [b"\0\0\0\2" + block(b"ca", 2) + bytes(8) + certificate(ROOT)]
    if with_key:
        key = BROKER.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
        salt = part = bytes(range(20))
        stream = b""
        while len(stream) < len(key):
            part = sha1(password + part).digest()
            stream += part
        masked = bytes(left ^ right for left, right in zip(key, stream, strict=False))
        secret = salt + masked + sha1(password + key).digest()
        oid = bytes.fromhex("300e060a2b060104012a021101010500")
        protected = oid + b"\x04\x82" + block(secret, 2)
        protected = b"\x30\x82" + block(protected, 2)
        leaf = Authority(BROKER.key, BROKER.certificate)
        chain = b"\0\0\0\2" + certificate(leaf) + certificate(ROOT)
        entries.insert(0, b"\0\0\0\1" + block(b"own", 2) + bytes(8) + block(protected) + chain)
    content = b"\xfe\xed\xfe\xed\0\0\0\2" + len(entries).to_bytes(4) + b"".join(entries)
    return content + sha1(password + b"Mighty Aphrodite" + content).digest()


@cache
def store(kind: str) -> bytes:
    if kind == "JKS":
        return jks(with_key=True)
    if kind == "PKCS12":
        encryption = BestAvailableEncryption(PASSWORD.encode())
        return pkcs12.serialize_key_and_certificates(
            b"x", BROKER.key, BROKER.certificate, [ROOT.certificate], encryption
        )
    return (key_pem(BROKER.key, PASSWORD) + pem(BROKER.certificate, ROOT.certificate)).encode()


Read = Callable[[StoreFile], KeyMaterial | TrustMaterial]


def read(content: bytes, reader: Read, password: str | None = PASSWORD) -> KeyMaterial | TrustMaterial | None:
    with tempfile.NamedTemporaryFile() as file, warnings.catch_warnings():
        # The library warns of certificates that break rules and will refuse them later.
        warnings.simplefilter("ignore")
        Path(file.name).write_bytes(content)
        try:
            return reader(StoreFile(setting="ssl.keystore", location=file.name, password=password))
        except ConfigError as error:
            assert file.name in str(error)
            assert PASSWORD not in str(error)
            return None


KINDS = pytest.mark.parametrize("kind", ["JKS", "PKCS12", "PEM"])
READERS = pytest.mark.parametrize("reader", [read_keystore, read_truststore])


@KINDS
@READERS
def test_whole_stores_are_read(kind: str, reader: Read) -> None:
    assert read(store(kind), reader) is not None


@KINDS
@READERS
@given(data=st.data())
def test_cut_stores(kind: str, reader: Read, data: st.DataObject) -> None:
    whole = store(kind)
    size = data.draw(st.integers(0, len(whole) - 1))
    found = read(whole[:size], reader)
    # What is missing at the end of a PEM file may be a certificate, or the last line break.
    assert kind == "PEM" or found is None


@KINDS
@READERS
@given(data=st.data())
def test_flipped_bits(kind: str, reader: Read, data: st.DataObject) -> None:
    content = bytearray(store(kind))
    for bit in data.draw(st.lists(st.integers(0, len(content) * 8 - 1), min_size=1, max_size=4, unique=True)):
        content[bit // 8] ^= 1 << bit % 8
    found = read(bytes(content), reader)
    assert kind != "JKS" or found is None


@given(data=st.data())
def test_a_jks_file_that_is_not_checked(data: st.DataObject) -> None:
    """Without a password, nothing but the structure is checked."""
    content = bytearray(jks(with_key=data.draw(st.booleans())))
    for bit in data.draw(st.lists(st.integers(0, len(content) * 8 - 1), max_size=4, unique=True)):
        content[bit // 8] ^= 1 << bit % 8
    read(bytes(content[: data.draw(st.integers(0, len(content)))]), read_truststore, None)


@given(
    st.binary(max_size=400),
    st.sampled_from([b"", b"\x30", b"\xfe\xed\xfe\xed\0\0\0\2", b"-----BEGIN PRIVATE KEY-----"]),
)
def test_random_bytes(content: bytes, start: bytes) -> None:
    for reader in (read_keystore, read_truststore):
        assert read(start + content, reader) is None


@given(st.binary(max_size=200))
def test_der_of_any_bytes(data: bytes) -> None:
    assert all(count >= 0 for count in iteration_counts(data))
    try:
        assert b"".join(element.encoded for element in elements(data)) == data
    except DerError:
        return


def test_deep_nesting_is_not_followed() -> None:
    data = b"\x04\x01\x00\x02\x01\x07"
    for _ in range(60):
        data = b"\x30" + (bytes([len(data)]) if len(data) < 128 else b"\x82" + len(data).to_bytes(2)) + data
    assert list(iteration_counts(data)) == []
    assert list(iteration_counts(b"\x04\x01\x00\x02\x01\x07")) == [7]
