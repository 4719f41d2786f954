"""Certificates of brokers, members, the operator and users: issued by an authority, and checked. Pure, except that keys
are random.

A certificate is replaced when its names, its issuer or its time do not fit any more. The key is a new one each time.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from odradek_operator.security.authorities import (
    CLOCK_SKEW,
    CertificateAuthority,
    SigningKey,
    distinguished_name,
    is_signed_by,
    pem_of,
    pem_of_key,
    usage_of,
)

LATEST_SHARE: Final = 3
"""A certificate is replaced when less than a third of its time is left."""
URGENT_SHARE: Final = 10
"""A certificate whose replacement restarts pods is replaced in a maintenance window, or at the latest when less than a
tenth of its time is left."""


class LeafUsage(Enum):
    """What a certificate is for."""

    BROKER = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
    """Brokers and members of the ensemble accept connections and open them."""
    CLIENT = (ExtendedKeyUsageOID.CLIENT_AUTH,)
    """Users and the operator."""


@dataclass(frozen=True, slots=True)
class LeafNames:
    """Who a certificate is for."""

    name: str
    """The common name, up to 64 characters. Brokers accept a user with the principal CN=name."""
    hosts: tuple[str, ...] = ()
    """DNS names and IP addresses at which clients reach a server, in any order."""
    organization: str = ""
    """Users have none, so that no user has the name of a broker or of the operator."""

    def __str__(self) -> str:
        """Return the distinguished name."""
        return f"CN={self.name},O={self.organization}" if self.organization else f"CN={self.name}"


@dataclass(frozen=True, slots=True)
class Leaf:
    """A certificate that signs nothing, and its key."""

    certificate: x509.Certificate
    key: SigningKey = field(repr=False)

    @property
    def certificate_pem(self) -> str:
        """The certificate as PEM."""
        return pem_of([self.certificate])

    @property
    def key_pem(self) -> str:
        """The key as PEM (PKCS#8), not encrypted. It is a secret."""
        return pem_of_key(self.key)

    def pkcs12(self, issuer: x509.Certificate, password: str) -> bytes:
        """Return key, certificate and issuer as a PKCS#12 file, which Java clients read."""
        encryption = BestAvailableEncryption(password.encode())
        return serialize_key_and_certificates(b"user", self.key, self.certificate, [issuer], encryption)


def issue(
    authority: CertificateAuthority, names: LeafNames, usage: LeafUsage, *, validity_days: int, now: datetime
) -> Leaf:
    """Return a certificate with a new key, valid from an hour ago, and not longer than its issuer.

    Raises `AuthorityError` if the name is longer than 64 characters.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = authority.certificate
    until = min(now + timedelta(days=validity_days), issuer.not_valid_after_utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(distinguished_name(names.name, names.organization))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage_of(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(list(usage.value)), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(authority.key_identifier, critical=False)
    )
    if names.hosts:
        hosts = [_host(host) for host in sorted(set(names.hosts))]
        builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
    return Leaf(builder.sign(authority.key, SHA256()), key)


def reason_to_replace(
    certificate: x509.Certificate,
    names: LeafNames,
    trusted: Iterable[x509.Certificate],
    now: datetime,
    *,
    latest_share: int = LATEST_SHARE,
) -> str | None:
    """Return why a certificate has to be replaced, or None: as a sentence for a log.

    `trusted` are the authorities that may have signed it. `latest_share`: which part of its time may be left.
    """
    found = _names_of(certificate)
    if (found.name, found.organization) != (names.name, names.organization):
        return f"It is for {found}, not {names}."
    missing = sorted(set(names.hosts) - set(found.hosts))
    if missing:
        return f"It lacks the names {', '.join(missing)}."
    if not any(is_signed_by(certificate, authority) for authority in trusted):
        return "No trusted authority has signed it."
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if end - now < (end - begin) / latest_share:
        return f"It expires on {end:%Y-%m-%d}."
    return None


def _names_of(certificate: x509.Certificate) -> LeafNames:
    try:
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        hosts: tuple[str, ...] = ()
    else:
        addresses = (str(address) for address in alternatives.get_values_for_type(x509.IPAddress))
        hosts = (*alternatives.get_values_for_type(x509.DNSName), *addresses)
    name, organization = (
        next((str(one.value) for one in certificate.subject.get_attributes_for_oid(kind)), "")
        for kind in (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME)
    )
    return LeafNames(name, hosts, organization)


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
