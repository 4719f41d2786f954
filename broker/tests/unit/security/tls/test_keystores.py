"""Stores made with `cryptography` and by hand. `test_keytool_stores` has those of Java."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from odradek.base.errors import ConfigError
from odradek.security.tls.keystores import MAX_STORE_BYTES, read_keystore, read_truststore
from odradek.security.tls.stores import PemKeyText, PemTrustText, StoreFile
from odradek_testkit.security.certificates import Authority, Issued, key_pem, pem, rsa_key

ROOT = Authority.root()
MIDDLE = ROOT.intermediate("middle")
BROKER = MIDDLE.issue("broker")
PASSWORD = "opens \u00e4"


def subjects(material: bytes) -> list[str]:
    return [each.subject.rfc4514_string().removeprefix("CN=") for each in x509.load_pem_x509_certificates(material)]


def store(path: Path, content: bytes | str, **options: str | None) -> StoreFile:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return StoreFile(setting="ssl.keystore", location=str(path), **options)


def refusal(source: StoreFile | PemKeyText) -> str:
    with pytest.raises(ConfigError) as caught:
        read_keystore(source)
    return str(caught.value)


def trust_refusal(source: StoreFile | PemTrustText) -> str:
    with pytest.raises(ConfigError) as caught:
        read_truststore(source)
    return str(caught.value)


def is_key_of(material: bytes, issued: Issued) -> bool:
    return load_pem_private_key(material, None).public_key() == issued.key.public_key()


class TestPem:
    def test_a_file_has_key_and_chain(self, tmp_path: Path) -> None:
        material = read_keystore(store(tmp_path / "a.pem", BROKER.pem, kind="PEM"))
        assert is_key_of(material.key, BROKER)
        assert subjects(material.chain) == ["broker", "middle"]
        assert "BEGIN" not in repr(material)

    @pytest.mark.parametrize("kind", ["JKS", "pkcs12", None])
    def test_a_file_is_recognised_although_the_type_is_another(self, tmp_path: Path, kind: str | None) -> None:
        source = store(tmp_path / "a.jks", "# comment\n" + BROKER.pem, kind=kind)
        assert subjects(read_keystore(source).chain) == ["broker", "middle"]

    def test_an_encrypted_key_needs_its_password(self, tmp_path: Path) -> None:
        text = key_pem(BROKER.key, PASSWORD) + BROKER.chain_pem
        for options in ({"key_password": PASSWORD, "password": "other"}, {"password": PASSWORD}):
            assert is_key_of(read_keystore(store(tmp_path / "a.pem", text, **options)).key, BROKER)
        assert "the private key is encrypted" in refusal(store(tmp_path / "a.pem", text))
        assert "password is wrong" in refusal(store(tmp_path / "a.pem", text, key_password="wrong"))

    def test_a_password_for_a_key_that_is_not_encrypted_does_no_harm(self, tmp_path: Path) -> None:
        assert read_keystore(store(tmp_path / "a.pem", BROKER.pem, key_password="x"))

    @pytest.mark.parametrize(
        "command",
        [
            "ec -in plain.pem -out key.pem",
            "ec -in plain.pem -aes128 -passout pass:opens -out key.pem",
            "pkcs8 -topk8 -in plain.pem -passout pass:opens -out key.pem",
            "pkcs8 -topk8 -in plain.pem -scrypt -passout pass:opens -out key.pem",
            "pkcs8 -topk8 -in plain.pem -v1 PBE-SHA1-3DES -passout pass:opens -out key.pem",
        ],
    )
    def test_keys_that_openssl_writes(self, tmp_path: Path, command: str) -> None:
        (tmp_path / "plain.pem").write_text(key_pem(BROKER.key))
        subprocess.run(["openssl", *command.split()], cwd=tmp_path, check=True, capture_output=True)
        text = (tmp_path / "key.pem").read_text() + BROKER.chain_pem
        material = read_keystore(store(tmp_path / "a.pem", text, key_password="opens"))
        assert is_key_of(material.key, BROKER)

    def test_text_may_be_on_one_line(self) -> None:
        key, chain = key_pem(BROKER.key, PASSWORD).replace("\n", " "), BROKER.chain_pem.replace("\n", "")
        source = PemKeyText(setting="ssl.keystore", key=key, chain=chain, key_password=PASSWORD)
        assert is_key_of(read_keystore(source).key, BROKER)
        trust = PemTrustText(setting="ssl.truststore", certificates=pem(ROOT.certificate).replace("\n", " "))
        assert subjects(read_truststore(trust).certificates) == ["root"]

    def test_text_shows_no_secret(self) -> None:
        source = PemKeyText(setting="ssl.keystore", key="SECRET", chain="", key_password="SECRET")
        assert "SECRET" not in repr(source) + refusal(source)
        assert "ssl.keystore.key" in refusal(source)

    def test_key_and_certificate_must_be_a_pair(self, tmp_path: Path) -> None:
        text = key_pem(BROKER.key) + pem(ROOT.certificate, BROKER.certificate)
        assert "the first certificate does not belong to the private key" in refusal(store(tmp_path / "a.pem", text))

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (BROKER.chain_pem, "it has 0 private keys"),
            (BROKER.pem + BROKER.pem, "it has 2 private keys"),
            (key_pem(BROKER.key), "it has no certificate"),
            (BROKER.pem[:-30], "has no end"),
            (BROKER.pem.replace("MI", "?!"), "is not valid Base64"),
            ("-----BEGIN ", "a BEGIN line is not complete"),
            ("no store", "neither JKS, PKCS12 nor PEM"),
            ("", "neither JKS, PKCS12 nor PEM"),
            (key_pem(BROKER.key) + "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----", "certificate 1 is"),
            (key_pem(BROKER.key) + "-----BEGIN CERTIFICATE-----\nMAU=\n-----END CERTIFICATE-----", "certificate is n"),
            ("-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----" + BROKER.chain_pem, "private key is not"),
        ],
    )
    def test_what_is_wrong_is_reported(self, tmp_path: Path, content: str, reason: str) -> None:
        text = refusal(store(tmp_path / "a.pem", content))
        assert reason in text
        assert text.startswith(f"ssl.keystore.location={tmp_path / 'a.pem'}: the ")

    def test_truststores_have_certificates_and_revocation_lists(self, tmp_path: Path) -> None:
        crl = "-----BEGIN X509 CRL-----\n" + "MAAA" * 40 + "\n-----END X509 CRL-----\n"
        trust = read_truststore(store(tmp_path / "a.pem", pem(ROOT.certificate, MIDDLE.certificate) + crl + BROKER.pem))
        assert subjects(trust.certificates) == ["root", "middle", "broker", "middle"]
        assert trust.revocation_lists.count(b"BEGIN X509 CRL") == 1
        assert repr(trust) == "TrustMaterial(4 certificates)"
        assert "no trusted certificate" in trust_refusal(store(tmp_path / "b.pem", key_pem(BROKER.key)))

    def test_trusted_certificates_of_openssl_are_read(self, tmp_path: Path) -> None:
        (tmp_path / "ca.pem").write_text(pem(ROOT.certificate))
        command = "openssl x509 -in ca.pem -addtrust serverAuth -trustout -out trusted.pem"
        subprocess.run(command.split(), cwd=tmp_path, check=True, capture_output=True)
        text = (tmp_path / "trusted.pem").read_text()
        assert "TRUSTED CERTIFICATE" in text
        assert read_truststore(store(tmp_path / "a.pem", text)).certificates.decode() == pem(ROOT.certificate)


class TestPkcs12:
    @pytest.fixture
    def file(self) -> bytes:
        others = [ROOT.certificate, MIDDLE.certificate]  # out of order
        encryption = BestAvailableEncryption(PASSWORD.encode())
        return pkcs12.serialize_key_and_certificates(b"name", BROKER.key, BROKER.certificate, others, encryption)

    @pytest.mark.parametrize("kind", ["JKS", "PKCS12", None])
    def test_the_chain_is_in_order(self, tmp_path: Path, file: bytes, kind: str | None) -> None:
        material = read_keystore(store(tmp_path / "a.p12", file, kind=kind, password=PASSWORD))
        assert is_key_of(material.key, BROKER)
        assert subjects(material.chain) == ["broker", "middle", "root"]

    def test_of_two_authorities_with_one_name_the_signer_is_taken(self, tmp_path: Path) -> None:
        old, new = Authority.root("same"), Authority.root("same")
        issued = new.issue("broker")
        encryption = BestAvailableEncryption(b"x")
        others = [old.certificate, new.certificate]
        file = pkcs12.serialize_key_and_certificates(None, issued.key, issued.certificate, others, encryption)
        material = read_keystore(store(tmp_path / "a.p12", file, password="x"))
        assert material.chain.decode() == pem(issued.certificate, new.certificate)

    def test_what_is_wrong_is_reported(self, tmp_path: Path, file: bytes) -> None:
        path = tmp_path / "a.p12"
        assert "it needs its password" in refusal(store(path, file))
        assert "password is wrong" in refusal(store(path, file, password="wrong"))
        assert "it is not PEM, but PKCS12: set ssl.keystore.type=PKCS12" in refusal(store(path, file, kind="PEM"))
        assert "damaged" in refusal(store(path, file[:-1], password=PASSWORD))
        assert "type=BCFKS is not supported" in refusal(store(path, file, kind="BCFKS"))
        assert "PKCS12 file" in refusal(store(path, file, password="wrong"))

    def test_a_key_without_its_certificate_and_certificates_without_key(self, tmp_path: Path) -> None:
        encryption = BestAvailableEncryption(b"x")
        only_key = pkcs12.serialize_key_and_certificates(None, BROKER.key, None, [ROOT.certificate], encryption)
        assert "no certificate for" in refusal(store(tmp_path / "a.p12", only_key, password="x"))
        no_key = pkcs12.serialize_key_and_certificates(None, None, None, [ROOT.certificate], encryption)
        assert "no private key" in refusal(store(tmp_path / "b.p12", no_key, password="x"))
        assert subjects(read_truststore(store(tmp_path / "b.p12", no_key, password="x")).certificates) == ["root"]

    def test_too_many_iterations_are_refused(self, tmp_path: Path) -> None:
        file = pkcs12.serialize_key_and_certificates(
            None,
            BROKER.key,
            BROKER.certificate,
            None,
            PrivateFormat.PKCS12.encryption_builder().kdf_rounds(0x123456).build(b"x"),
        )
        assert b"\x02\x03\x12\x34\x56" in file
        patched = file.replace(b"\x02\x03\x12\x34\x56", b"\x02\x03\x72\x34\x56")
        assert "iterations; at most 5000000" in refusal(store(tmp_path / "a.p12", patched, password="x"))


class TestFiles:
    def test_files_that_cannot_be_read(self, tmp_path: Path) -> None:
        for location, reason in ((tmp_path / "none", "No such file"), (tmp_path, "Is a directory")):
            text = refusal(StoreFile(setting="ssl.keystore", location=str(location)))
            assert f"ssl.keystore.location={location} cannot be read: {reason}" in text
        assert "cannot be read" in refusal(StoreFile(setting="ssl.keystore", location="a\0b"))

    def test_large_files_are_refused(self, tmp_path: Path) -> None:
        assert "it is larger than" in refusal(store(tmp_path / "a.pem", b"\x30" * (MAX_STORE_BYTES + 1)))

    def test_settings_show_no_password(self) -> None:
        shown = repr(StoreFile(setting="s", location="/a", password="SECRET", key_password="SECRET"))
        assert "SECRET" not in shown


def test_rsa_keys(tmp_path: Path) -> None:
    issued = ROOT.issue("broker", key=rsa_key())
    assert is_key_of(read_keystore(store(tmp_path / "a.pem", issued.pem)).key, issued)
    der = issued.certificate.public_bytes(Encoding.DER)
    assert "neither" in refusal(store(tmp_path / "b", b"x" + der))
