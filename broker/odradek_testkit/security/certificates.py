"""Certificate authorities and certificates for tests."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

SigningKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@cache
def rsa_key(bits: int = 2048) -> rsa.RSAPrivateKey:
    """Return the RSA key that all tests of a process share, because making one takes long."""
    return rsa.generate_private_key(65537, bits)


def common_name(name: str) -> x509.Name:
    """Return the distinguished name CN=name."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def key_pem(key: PrivateKeyTypes, password: str | None = None) -> str:
    """Return a key as PKCS#8, encrypted if there is a password."""
    encryption: KeySerializationEncryption = NoEncryption()
    if password is not None:
        encryption = BestAvailableEncryption(password.encode())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()


def pem(*certificates: x509.Certificate) -> str:
    """Return certificates as PEM."""
    return "".join(each.public_bytes(Encoding.PEM).decode() for each in certificates)


@dataclass(frozen=True)
class Issued:
    """A key, its certificate and the certificates of its issuers, the nearest first."""

    key: SigningKey
    certificate: x509.Certificate
    issuers: tuple[x509.Certificate, ...] = ()

    @property
    def chain_pem(self) -> str:
        """The certificate and those of the issuers, without the root."""
        return pem(self.certificate, *(each for each in self.issuers if each.issuer != each.subject))

    @property
    def pem(self) -> str:
        """Key and certificates as one PEM file."""
        return key_pem(self.key) + self.chain_pem


@dataclass(frozen=True)
class Authority(Issued):
    """A certificate authority."""

    @classmethod
    def root(cls, name: str = "root", key: SigningKey | None = None) -> Self:
        """Create an authority that signs its own certificate."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        certificate = _builder(common_name(name), common_name(name), key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        return cls(key, certificate.sign(key, SHA256()))

    def intermediate(self, name: str) -> Authority:
        """Create an authority below this one."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(common_name(name), self.certificate.subject, key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        return Authority(key, builder.sign(self.key, SHA256()), (self.certificate, *self.issuers))

    def issue(
        self,
        name: str | x509.Name = "broker",
        *,
        hosts: Sequence[str] = ("localhost",),
        valid_days: int = 2,
        key: SigningKey | None = None,
    ) -> Issued:
        """Issue a certificate for names of hosts. With negative `valid_days`, it expired so many days ago."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        subject = common_name(name) if isinstance(name, str) else name
        builder = _builder(subject, self.certificate.subject, key.public_key(), valid_days)
        if hosts:
            names = [_host(each) for each in hosts]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return Issued(key, builder.sign(self.key, SHA256()), (self.certificate, *self.issuers))

    def sign(self, request: x509.CertificateSigningRequest) -> x509.Certificate:
        """Return the certificate for a request."""
        key = request.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey | rsa.RSAPublicKey)
        return _builder(request.subject, self.certificate.subject, key).sign(self.key, SHA256())


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey, valid_days: int = 2
) -> x509.CertificateBuilder:
    end = datetime.now(UTC) + timedelta(days=valid_days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(end - timedelta(days=30))
        .not_valid_after(end)
    )
