"""The certificate authorities of a company: a root, and those that it has signed, as cert-manager issues them."""

from __future__ import annotations

from datetime import datetime, timedelta
from hashlib import sha256

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from odradek_operator.security.authorities import CLOCK_SKEW, CertificateAuthority, distinguished_name, usage_of


def company_authority(
    name: str, *, now: datetime, above: CertificateAuthority | None = None, days: int = 30
) -> CertificateAuthority:
    """Return an authority that `above` has signed, or a root. It may sign other authorities."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = distinguished_name(name)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if above is None else above.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage_of(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier(_identifier(key)), critical=False)
    )
    if above is not None:
        builder = builder.add_extension(above.key_identifier, critical=False)
    return CertificateAuthority(builder.sign(key if above is None else above.key, SHA256()), key)


def _identifier(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Another hash of the key than that of the operator's own authorities, as cert-manager makes it (RFC 7093)."""
    point = key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    return sha256(point).digest()[:20]
