"""Certificate authorities: new ones, renewed ones, and those of Secrets. Pure, except that keys are random.

A cluster has two authorities: one signs the certificates of brokers, members and the operator, the other those of
users. Keys are of the curve P-256, as all TLS libraries of clients support it. See design note 0025.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from odradek.base.errors import OdradekError

MAX_NAME: Final = 64
"""Maximum length of a common name (RFC 5280, ub-common-name)."""

CLOCK_SKEW: Final = timedelta(hours=1)
"""Certificates are valid from this time before they are made, because clocks of clients differ."""

_ExtensionT = TypeVar("_ExtensionT", bound=x509.ExtensionType)

SigningKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


class AuthorityError(OdradekError):
    """A certificate or key cannot be used. The text says where it is, why, and what to do. It never has the key."""


@dataclass(frozen=True, slots=True)
class CertificateAuthority:
    """A certificate that signs others, and its key."""

    certificate: x509.Certificate
    key: SigningKey = field(repr=False)

    @property
    def certificate_pem(self) -> str:
        """The certificate as PEM."""
        return pem_of([self.certificate])

    @property
    def key_identifier(self) -> x509.AuthorityKeyIdentifier:
        """The extension that names its key in the certificates that it signs. OpenSSL compares it with the authority's
        own identifier, which may be any hash of the key (RFC 7093)."""
        own = _extension(self.certificate, x509.SubjectKeyIdentifier)
        if own is None:
            return x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)

    @property
    def key_pem(self) -> str:
        """The key as PEM (PKCS#8), not encrypted. It is a secret."""
        return pem_of_key(self.key)


def new_authority(name: str, *, validity_days: int, now: datetime) -> CertificateAuthority:
    """Return a new authority with a new key, valid from an hour ago. `now` has a time zone.

    Raises `AuthorityError` if the name is longer than 64 characters.
    """
    return _signed_by_itself(distinguished_name(name), ec.generate_private_key(ec.SECP256R1()), validity_days, now)


def renewed(authority: CertificateAuthority, *, validity_days: int, now: datetime) -> CertificateAuthority:
    """Return the authority with the same key and name and a new time. What it has signed stays valid."""
    return _signed_by_itself(authority.certificate.subject, authority.key, validity_days, now)


def read_authority(certificate: bytes, key: bytes, *, where: str, now: datetime) -> CertificateAuthority:
    """Return the authority in PEM files. The first certificate is that of the authority.

    `where` names the source in errors, such as "Secret shop/company-ca". Raises `AuthorityError` if they are not PEM,
    do not belong together, are no authority, or have expired.
    """
    try:
        found = x509.load_pem_x509_certificates(certificate)
    except ValueError as error:
        raise AuthorityError(f"{where}: ca.crt has no valid certificate in PEM form") from error
    authority = CertificateAuthority(found[0], _read_key(key, where))
    if authority.certificate.public_key() != authority.key.public_key():
        raise AuthorityError(
            f"{where}: ca.key is not the key of the certificate in ca.crt: store both of one authority"
        )
    if not may_sign(authority.certificate):
        raise AuthorityError(
            f"{where}: the certificate in ca.crt must not sign others: it needs the basic constraint CA and, if it has "
            "key usages, keyCertSign"
        )
    until = authority.certificate.not_valid_after_utc
    if until <= now:
        raise AuthorityError(f"{where}: the certificate in ca.crt expired on {until:%Y-%m-%d}: store a valid one")
    return authority


def may_sign(certificate: x509.Certificate) -> bool:
    """Whether a certificate is that of an authority."""
    extensions = certificate.extensions
    try:
        constraints = extensions.get_extension_for_class(x509.BasicConstraints).value
        usage = extensions.get_extension_for_class(x509.KeyUsage).value
    except x509.ExtensionNotFound as missing:
        return missing.oid == x509.KeyUsage.oid and constraints.ca
    return constraints.ca and usage.key_cert_sign


def is_signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether an authority has signed a certificate, so that OpenSSL accepts it: the identifiers of the key agree."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    named = _extension(certificate, x509.AuthorityKeyIdentifier)
    own = _extension(authority, x509.SubjectKeyIdentifier)
    return named is None or own is None or named.key_identifier in (None, own.digest)


def issuers_of(certificate: x509.Certificate, others: Iterable[x509.Certificate]) -> tuple[x509.Certificate, ...]:
    """Return the authorities above a certificate, from its issuer to the root, as far as they are in `others`."""
    found: list[x509.Certificate] = []
    left = [each for each in others if each != certificate]
    while above := [each for each in left if is_signed_by(certificate, each)]:
        certificate = above[0]
        left = [each for each in left if each != certificate]
        found.append(certificate)
    return tuple(found)


def distinguished_name(name: str, organization: str = "") -> x509.Name:
    """Return the distinguished name CN=name, or CN=name,O=organization. Raises `AuthorityError`."""
    if not 0 < len(name) <= MAX_NAME:
        raise AuthorityError(f"the common name {name!r:.100} must have 1 to {MAX_NAME} characters")
    # A certificate has the attributes in the reverse order of the text.
    above = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)] if organization else []
    return x509.Name([*above, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def pem_of(certificates: Iterable[x509.Certificate]) -> str:
    """Return certificates as PEM, one after the other."""
    return "".join(each.public_bytes(Encoding.PEM).decode() for each in certificates)


def pem_of_key(key: SigningKey) -> str:
    """Return a key as PEM (PKCS#8), not encrypted."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _read_key(key: bytes, where: str) -> SigningKey:
    try:
        found = load_pem_private_key(key, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # The error may quote the key.
        raise AuthorityError(f"{where}: ca.key has no private key in PEM form, or an encrypted one") from None
    if not isinstance(found, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise AuthorityError(f"{where}: the key in ca.key must be one of RSA or of an elliptic curve")
    return found


def _signed_by_itself(name: x509.Name, key: SigningKey, validity_days: int, now: datetime) -> CertificateAuthority:
    public = key.public_key()
    identifier = x509.SubjectKeyIdentifier.from_public_key(public)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=validity_days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage_of(signs=True), critical=True)
        .add_extension(identifier, critical=False)
    )
    return CertificateAuthority(builder.sign(key, SHA256()), key)


def usage_of(*, signs: bool) -> x509.KeyUsage:
    """Return the key usage of an authority, or of any other certificate for TLS."""
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _extension(certificate: x509.Certificate, kind: type[_ExtensionT]) -> _ExtensionT | None:
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None
