"""A certificate authority of the operator as its Secret stores it, also in the middle of a replacement. Pure.

`ca.crt` and `ca.key` are the authority that signs. During a replacement, the Secret also has the new authority in
`next.crt` and `next.key` until it signs, and then the certificate of the former one in `former.crt` until it is not
trusted any more. `rotation` decides the steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Self

from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256

from odradek_operator.security.authorities import (
    AuthorityError,
    CertificateAuthority,
    new_authority,
    pem_of,
    read_authority,
    renewed,
)
from odradek_operator.security.rotation import Rotation, RotationStep, StoredTrust, TrustedAuthority

CA_CERTIFICATE: Final = "ca.crt"
CA_KEY: Final = "ca.key"
TLS_CERTIFICATE: Final = "tls.crt"
TLS_KEY: Final = "tls.key"
"""The keys of Secrets of the type kubernetes.io/tls, such as those of cert-manager. There, ca.crt is the issuer."""
NEXT_CERTIFICATE: Final = "next.crt"
NEXT_KEY: Final = "next.key"
FORMER_CERTIFICATE: Final = "former.crt"
CHANGED: Final = "changed"
"""When the last step was, in ISO 8601."""
REPLACED: Final = "replaced"
"""The last request that was carried out: the value of the Cluster's annotation."""
_EARLIEST: Final = datetime.min.replace(tzinfo=UTC)


def given_authority(files: Mapping[str, bytes]) -> tuple[bytes, bytes] | None:
    """Return certificate and key of an authority that the operator has not made; None if a Secret has neither form."""
    if TLS_KEY in files and TLS_CERTIFICATE in files:
        return files[TLS_CERTIFICATE], files[TLS_KEY]
    if CA_KEY in files and CA_CERTIFICATE in files:
        return files[CA_CERTIFICATE], files[CA_KEY]
    return None


def issuer_files(files: Mapping[str, bytes], where: str) -> list[x509.Certificate]:
    """Return what a Secret of the type kubernetes.io/tls has in `ca.crt`. Raises `AuthorityError` if it is damaged."""
    if TLS_KEY not in files or not files.get(CA_CERTIFICATE):
        return []  # cert-manager leaves the file empty if the issuer does not tell its own certificate.
    try:
        return x509.load_pem_x509_certificates(files[CA_CERTIFICATE])
    except ValueError as error:
        raise AuthorityError(f"{where}: {CA_CERTIFICATE} has no valid certificate in PEM form") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAuthority:
    """An authority that the operator made."""

    signing: CertificateAuthority
    following: CertificateAuthority | None = None
    """The new one, which is trusted and does not sign yet."""
    former: x509.Certificate | None = None
    """The one before, which is still trusted."""
    changed: datetime
    replaced: str = ""

    @classmethod
    def new(cls, name: str, *, validity_days: int, request: str, now: datetime) -> Self:
        """Return a new authority. `request`: the present value of the annotation, which asks for nothing more."""
        return cls(signing=new_authority(name, validity_days=validity_days, now=now), changed=now, replaced=request)

    @classmethod
    def read(cls, files: Mapping[str, bytes], where: str) -> Self:
        """Return what a Secret has. An authority that has expired is read as well. `where` names the Secret in errors.

        Raises `AuthorityError` if something is missing or cannot be used.
        """
        following = None
        if NEXT_CERTIFICATE in files or NEXT_KEY in files:
            following = _read(files, NEXT_CERTIFICATE, NEXT_KEY, where)
        try:
            former = files.get(FORMER_CERTIFICATE)
            return cls(
                signing=_read(files, CA_CERTIFICATE, CA_KEY, where),
                following=following,
                former=None if former is None else x509.load_pem_x509_certificate(former),
                # A Secret of an earlier version has neither.
                changed=datetime.fromisoformat(files.get(CHANGED, _EARLIEST.isoformat().encode()).decode()),
                replaced=files.get(REPLACED, b"").decode(),
            )
        except ValueError as error:
            raise AuthorityError(f"{where}: {FORMER_CERTIFICATE} or {CHANGED} is damaged: remove it") from error

    @property
    def files(self) -> dict[str, bytes]:
        """The content of the Secret."""
        found = {CA_CERTIFICATE: self.signing.certificate_pem, CA_KEY: self.signing.key_pem}
        if self.following is not None:
            found |= {NEXT_CERTIFICATE: self.following.certificate_pem, NEXT_KEY: self.following.key_pem}
        if self.former is not None:
            found[FORMER_CERTIFICATE] = pem_of([self.former])
        found |= {CHANGED: self.changed.isoformat(), REPLACED: self.replaced}
        return {key: text.encode() for key, text in found.items()}

    @property
    def trusted(self) -> tuple[x509.Certificate, ...]:
        """The authorities to trust, the newest first."""
        following = [] if self.following is None else [self.following.certificate]
        former = [] if self.former is None else [self.former]
        return (*following, self.signing.certificate, *former)

    @property
    def trust(self) -> StoredTrust:
        """The same for `next_rotation`."""
        trusted = tuple(TrustedAuthority(fingerprint(one), one.not_valid_after_utc) for one in self.trusted)
        return StoredTrust(trusted, fingerprint(self.signing.certificate), self.changed)

    @property
    def is_being_replaced(self) -> bool:
        """Whether a replacement has begun and not ended."""
        return self.following is not None or self.former is not None

    def stepped(self, rotation: Rotation, name: str, *, validity_days: int, request: str, now: datetime) -> Self:
        """Return the authority after a step. `name`: that of a new authority."""
        match rotation.step:
            case RotationStep.RENEW:
                return replace(self, signing=renewed(self.signing, validity_days=validity_days, now=now), changed=now)
            case RotationStep.BEGIN:
                following = new_authority(name, validity_days=validity_days, now=now)
                return replace(self, following=following, changed=now, replaced=request)
            case RotationStep.ISSUE:
                assert self.following is not None, "a new authority is trusted"
                former = self.signing.certificate
                return replace(self, signing=self.following, following=None, former=former, changed=now)
            case RotationStep.END:
                return replace(self, former=None, changed=now)
            case RotationStep.KEEP:
                return self


def is_being_replaced(files: Mapping[str, bytes]) -> bool:
    """Whether the Secret of an authority is in the middle of a replacement."""
    return NEXT_CERTIFICATE in files or FORMER_CERTIFICATE in files


def fingerprint(certificate: x509.Certificate) -> str:
    """Return the SHA-256 fingerprint, as brokers show it at `/tls`."""
    return certificate.fingerprint(SHA256()).hex()


def renewal_time(*, renewal_days: int, validity_days: int) -> timedelta:
    """Return how long before its end an authority is renewed: half of its validity at most."""
    return min(timedelta(days=renewal_days), timedelta(days=validity_days) / 2)


def needed(files: Mapping[str, bytes], key: str, where: str) -> bytes:
    """Return a file of an authority's Secret. Raises `AuthorityError` if it is missing."""
    try:
        return files[key]
    except KeyError:
        raise AuthorityError(f"{where} has no {key}: store {CA_CERTIFICATE} and {CA_KEY} of one authority") from None


def _read(files: Mapping[str, bytes], certificate: str, key: str, where: str) -> CertificateAuthority:
    """Read an authority, which may have expired: it is renewed then."""
    return read_authority(needed(files, certificate, where), needed(files, key, where), where=where, now=_EARLIEST)
