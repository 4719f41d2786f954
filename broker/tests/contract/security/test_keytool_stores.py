"""Stores that Java's `keytool` writes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from odradek.base.errors import ConfigError
from odradek.security.tls.keystores import read_keystore, read_truststore
from odradek.security.tls.stores import StoreFile
from odradek_testkit.security.certificates import Authority, pem

pytestmark = pytest.mark.java

PASSWORD = "opens it"
JKS_PASSWORD, KEY_PASSWORD = "geheim-\u00e4", "another-\u20ac"
"""Java takes only ASCII for PKCS#12."""

AUTHORITY, CLIENTS = Authority.root("authority"), Authority.root("clients")


def password_of(name: str) -> str:
    return JKS_PASSWORD if name.lower().endswith("jks") else PASSWORD


def keytool(folder: Path, command: str, *, java: tuple[str, ...] = ()) -> None:
    # The passwords have other characters than ASCII, and the locale of a test machine may be C.
    words = ["keytool", *java, "-J-Dfile.encoding=UTF-8", "-J-Dsun.jnu.encoding=UTF-8", *command.split()]
    (folder / "password").write_text(JKS_PASSWORD if "-storetype JKS" in command else PASSWORD, encoding="utf-8")
    (folder / "key-password").write_text(KEY_PASSWORD, encoding="utf-8")
    subprocess.run(
        [*words, "-storepass:file", "password"], cwd=folder, check=True, capture_output=True, timeout=60, text=True
    )


def make_store(folder: Path, name: str, kind: str, *java: str) -> None:
    """Create a keystore with a key and its chain, a second key, and a trusted certificate."""
    protection = "-keypass:file key-password" if kind in ("JKS", "JCEKS") else ""
    target = f"-keystore {name} -storetype {kind}"
    keytool(folder, f"-genkeypair -alias one -keyalg RSA -dname CN=one {target} {protection}", java=java)
    keytool(folder, f"-certreq -alias one -file {name}.csr {target} {protection}", java=java)
    request = x509.load_pem_x509_csr((folder / f"{name}.csr").read_bytes())
    signed = AUTHORITY.sign(request)
    (folder / "chain.pem").write_text(pem(signed, AUTHORITY.certificate))
    keytool(folder, f"-importcert -noprompt -alias one -file chain.pem {target} {protection}", java=java)
    keytool(folder, f"-genkeypair -alias two -keyalg EC -dname CN=two {target} {protection}", java=java)
    (folder / "clients.pem").write_text(pem(CLIENTS.certificate))
    keytool(folder, f"-importcert -noprompt -alias clients -file clients.pem {target}", java=java)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores")
    make_store(folder, "store.jks", "JKS")
    make_store(folder, "store.p12", "PKCS12")
    make_store(folder, "legacy.p12", "PKCS12", "-J-Dkeystore.pkcs12.legacy")
    shutil.copy(folder / "store.jks", folder / "one.jks")
    keytool(folder, "-delete -alias two -keystore one.jks -storetype JKS")
    for kind in ("JKS", "PKCS12", "JCEKS"):
        keytool(folder, f"-importcert -noprompt -alias x -file clients.pem -keystore trust.{kind} -storetype {kind}")
    keytool(folder, "-genseckey -alias secret -keyalg AES -keysize 128 -keystore trust.PKCS12")
    return folder


def file(path: Path, password: str | None = "", **options: str | None) -> StoreFile:
    """Return the settings of a store, by default with its password."""
    password = password_of(path.name) if password == "" else password
    return StoreFile(setting="ssl.keystore", location=str(path), password=password, **options)


def subjects(certificates: bytes) -> list[str]:
    found = x509.load_pem_x509_certificates(certificates)
    return [each.subject.rfc4514_string().removeprefix("CN=") for each in found]


def refusal(path: Path, password: str | None = "", **options: str | None) -> str:
    with pytest.raises(ConfigError) as caught:
        read_keystore(file(path, password, **options))
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
@pytest.mark.parametrize("name", ["store.p12", "legacy.p12"])
def test_the_first_key_and_its_chain_are_read(stores: Path, name: str, kind: str) -> None:
    material = read_keystore(file(stores / name, kind=kind))
    assert subjects(material.chain) == ["one", "authority"]
    (first, _) = x509.load_pem_x509_certificates(material.chain)
    assert load_pem_private_key(material.key, None).public_key() == first.public_key()
    assert isinstance(first.public_key(), RSAPublicKey)


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_keys_in_jks_have_their_own_password(stores: Path, kind: str) -> None:
    """`keytool` orders the entries of JKS by the hash values of their names."""
    material = read_keystore(file(stores / "store.jks", kind=kind, key_password=KEY_PASSWORD))
    assert subjects(material.chain) == ["two"]
    material = read_keystore(file(stores / "one.jks", kind=kind, key_password=KEY_PASSWORD))
    assert subjects(material.chain) == ["one", "authority"]


@pytest.mark.parametrize("name", ["store.jks", "store.p12", "legacy.p12"])
def test_as_a_truststore_a_keystore_trusts_its_own_certificates_and_trusted_ones(stores: Path, name: str) -> None:
    """The issuer in the chain of a key is no trust anchor in Java."""
    trust = read_truststore(file(stores / name))
    assert sorted(subjects(trust.certificates)) == ["clients", "one", "two"]
    certificates = x509.load_pem_x509_certificates(trust.certificates)
    assert sum(isinstance(each.public_key(), EllipticCurvePublicKey) for each in certificates) == 2


@pytest.mark.parametrize("name", ["trust.JKS", "trust.PKCS12"])
def test_truststores_are_read(stores: Path, name: str) -> None:
    assert read_truststore(file(stores / name, kind="JKS")).certificates.decode() == pem(CLIENTS.certificate)


def test_a_jks_truststore_needs_no_password(stores: Path) -> None:
    assert subjects(read_truststore(file(stores / "trust.JKS", None)).certificates) == ["clients"]
    with pytest.raises(ConfigError, match="needs its password"):
        read_truststore(file(stores / "trust.PKCS12", None))


def test_what_is_wrong_is_reported(stores: Path) -> None:
    assert "its password is wrong, or the file is damaged" in refusal(stores / "store.jks", "wrong")
    assert "the password of the key is wrong" in refusal(stores / "store.jks")
    assert "it needs its password" in refusal(stores / "store.jks", None)
    assert "its password is wrong" in refusal(stores / "legacy.p12", "wrong")
    assert "it has no private key" in refusal(stores / "trust.JKS")
    assert "it has no private key" in refusal(stores / "trust.PKCS12")
    assert "JCEKS file, which is not supported: convert it with `keytool" in refusal(stores / "trust.JCEKS")
    assert "it is not PEM, but JKS: set ssl.keystore.type=JKS" in refusal(stores / "store.jks", kind="PEM")


def test_javas_own_authorities_are_read() -> None:
    """Java's `cacerts`: its kind and its size are those of a large truststore."""
    settings = subprocess.run(
        ["java", "-XshowSettings:properties", "-version"], capture_output=True, text=True, check=True
    )
    (home,) = [line.split("=")[1].strip() for line in settings.stderr.splitlines() if "java.home =" in line]
    trust = read_truststore(file(Path(home) / "lib/security/cacerts", "changeit"))
    # The library `cryptography` warns of a certificate with the serial number 0, which is widely trusted.
    assert trust.certificates.count(b"BEGIN CERTIFICATE") > 50
