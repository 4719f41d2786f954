"""The certificates of a cluster, as the content of its Secrets. Pure, except that keys are random.

`cluster_files` gets what the Secrets have, and returns what they must have. What is still good stays the same, byte for
byte, so an unchanged cluster changes no Secret. See design note 0025.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore

from odradek_operator.crds.types import CertificateAuthoritySource, Cluster
from odradek_operator.objects import names
from odradek_operator.objects.listener_security import needs_service_account_keys
from odradek_operator.objects.properties_file import render
from odradek_operator.security.authorities import (
    AuthorityError,
    CertificateAuthority,
    new_authority,
    pem_of,
    read_authority,
    renewed,
)
from odradek_operator.security.leaves import Leaf, LeafNames, LeafUsage, issue, reason_to_replace

Files = Mapping[str, bytes]
"""The data of a Secret: contents by key."""

CA_CERTIFICATE: Final = "ca.crt"
CA_KEY: Final = "ca.key"
CA_TRUSTSTORE: Final = "ca.p12"
CA_PASSWORD: Final = "ca.password"
OPERATOR_KEYSTORE: Final = "operator.pem"
PASSWORD_LENGTH: Final = 32
_LETTERS: Final = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True, kw_only=True)
class _Signer:
    """An authority, everything that clients of its certificates have to trust, and the validity of certificates."""

    authority: CertificateAuthority
    trusted: tuple[x509.Certificate, ...]
    certificate_days: int

    @property
    def trusted_pem(self) -> bytes:
        """The trusted authorities as PEM."""
        return pem_of(self.trusted).encode()


def secrets_of(cluster: Cluster) -> frozenset[str]:
    """Return the names of the Secrets that `cluster_files` needs to know: those that it makes, and those given."""
    authorities = cluster.certificate_authorities
    return frozenset(
        {
            authorities.cluster.secret_name or names.cluster_ca(cluster.name),
            authorities.clients.secret_name or names.clients_ca(cluster.name),
            names.cluster_ca_cert(cluster.name),
            names.clients_ca_cert(cluster.name),
            names.kafka_certs(cluster.name),
            names.operator_certs(cluster.name),
        }
    )


def cluster_files(
    cluster: Cluster,
    hosts: Mapping[int, Iterable[str]],
    stored: Mapping[str, Files],
    *,
    token_keys: bytes | None = None,
    now: datetime,
) -> dict[str, dict[str, bytes]]:
    """Return the data of the cluster's Secrets by name, without those of given authorities.

    `hosts`: the host names and addresses of each broker, by id. `stored`: what the Secrets have, of those that exist.
    `token_keys`: the keys that verify tokens of ServiceAccounts; None keeps those that the brokers have. `now` has a
    time zone. Raises `AuthorityError` if an authority cannot be used.
    """
    made = _Maker(cluster, stored, now).made(hosts)
    if needs_service_account_keys(cluster):
        secret, key = names.kafka_certs(cluster.name), names.SERVICE_ACCOUNT_KEYS_FILE
        token_keys = token_keys or stored.get(secret, {}).get(key)
        made[secret] |= {} if token_keys is None else {key: token_keys}
    return made


class _Maker:
    """Makes the content of the Secrets of one cluster."""

    def __init__(self, cluster: Cluster, stored: Mapping[str, Files], now: datetime) -> None:
        self._cluster = cluster
        self._stored = stored
        self._now = now

    def made(self, hosts: Mapping[int, Iterable[str]]) -> dict[str, dict[str, bytes]]:
        """Return the data of all Secrets."""
        sources, name = self._cluster.certificate_authorities, self._cluster.name
        of_cluster = self._signer(sources.cluster, names.cluster_ca(name), f"{name} cluster CA")
        of_clients = self._signer(sources.clients, names.clients_ca(name), f"{name} clients CA")
        made = {
            names.cluster_ca_cert(name): self._trust(names.cluster_ca_cert(name), of_cluster),
            names.clients_ca_cert(name): self._trust(names.clients_ca_cert(name), of_clients),
            names.kafka_certs(name): self._brokers(hosts, of_cluster, of_clients),
            names.operator_certs(name): self._operator(of_cluster),
        }
        for source, secret, signer in (
            (sources.cluster, names.cluster_ca(name), of_cluster),
            (sources.clients, names.clients_ca(name), of_clients),
        ):
            if source.secret_name is None:
                authority = signer.authority
                made[secret] = {CA_CERTIFICATE: authority.certificate_pem.encode(), CA_KEY: authority.key_pem.encode()}
        return made

    def _signer(self, source: CertificateAuthoritySource, secret: str, common_name: str) -> _Signer:
        """Return the given authority, which is never changed, or the one of the operator: as it is, new or renewed."""
        if source.secret_name is not None:
            return self._given(source.secret_name, source.certificate_days)
        stored, now = self._stored.get(secret), self._now
        if stored is None:
            authority = new_authority(common_name, validity_days=source.validity_days, now=now)
        else:
            # One that has expired is renewed like one that expires soon.
            authority = self._read(secret, stored, now=datetime.min.replace(tzinfo=now.tzinfo))
            renewal = min(timedelta(days=source.renewal_days), timedelta(days=source.validity_days) / 2)
            if authority.certificate.not_valid_after_utc - now <= renewal:
                authority = renewed(authority, validity_days=source.validity_days, now=now)
        days = source.certificate_days
        return _Signer(authority=authority, trusted=(authority.certificate,), certificate_days=days)

    def _given(self, secret: str, certificate_days: int) -> _Signer:
        stored = self._stored.get(secret)
        if stored is None:
            raise AuthorityError(
                f"{self._where(secret)} does not exist: create it with {CA_CERTIFICATE} and {CA_KEY} of the authority"
            )
        authority = self._read(secret, stored, now=self._now)
        trusted = tuple(x509.load_pem_x509_certificates(stored[CA_CERTIFICATE]))
        return _Signer(authority=authority, trusted=trusted, certificate_days=certificate_days)

    def _read(self, secret: str, stored: Files, *, now: datetime) -> CertificateAuthority:
        where = self._where(secret)
        certificate, key = _needed(stored, CA_CERTIFICATE, where), _needed(stored, CA_KEY, where)
        return read_authority(certificate, key, where=where, now=now)

    def _where(self, secret: str) -> str:
        return f"Secret {self._cluster.namespace}/{secret}"

    def _trust(self, secret: str, signer: _Signer) -> dict[str, bytes]:
        """Return what clients need to trust certificates: as PEM, and as a store for Java with its password."""
        stored, pem = self._stored.get(secret, {}), signer.trusted_pem
        if stored.get(CA_CERTIFICATE) == pem and stored.get(CA_TRUSTSTORE) and stored.get(CA_PASSWORD):
            return {key: stored[key] for key in (CA_CERTIFICATE, CA_TRUSTSTORE, CA_PASSWORD)}
        password = stored.get(CA_PASSWORD) or new_password().encode()
        entries = [PKCS12Certificate(one, f"ca-{number}".encode()) for number, one in enumerate(signer.trusted)]
        truststore = serialize_java_truststore(entries, BestAvailableEncryption(password))
        return {CA_CERTIFICATE: pem, CA_TRUSTSTORE: truststore, CA_PASSWORD: password}

    def _brokers(
        self, hosts: Mapping[int, Iterable[str]], of_cluster: _Signer, of_clients: _Signer
    ) -> dict[str, bytes]:
        present = self._stored.get(names.kafka_certs(self._cluster.name), {})
        made = {names.CLUSTER_CA_FILE: of_cluster.trusted_pem, names.CLIENTS_CA_FILE: of_clients.trusted_pem}
        for broker, of_broker in sorted(hosts.items()):
            key = names.broker_keystore(broker)
            identity = LeafNames(names.broker_identity(self._cluster.name), tuple(of_broker), names.ORGANIZATION)
            made[key] = self._keystore(present.get(key), identity, LeafUsage.BROKER, of_cluster)
        return made

    def _operator(self, of_cluster: _Signer) -> dict[str, bytes]:
        present = self._stored.get(names.operator_certs(self._cluster.name), {})
        identity = LeafNames(names.operator_identity(self._cluster.name), (), names.ORGANIZATION)
        properties = {
            "security.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": f"{names.CERTIFICATES_FOLDER}/{OPERATOR_KEYSTORE}",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": f"{names.CERTIFICATES_FOLDER}/{names.CLUSTER_CA_FILE}",
        }
        return {
            OPERATOR_KEYSTORE: self._keystore(present.get(OPERATOR_KEYSTORE), identity, LeafUsage.CLIENT, of_cluster),
            names.CLUSTER_CA_FILE: of_cluster.trusted_pem,
            names.CLIENT_CONFIG_FILE: render(properties, header="The login of the operator").encode(),
        }

    def _keystore(self, present: bytes | None, identity: LeafNames, usage: LeafUsage, signer: _Signer) -> bytes:
        """Return the key, the certificate and its issuer as one file: the present one as long as it is good."""
        if present is not None and _is_good(present, identity, signer, self._now):
            return present
        leaf = issue(signer.authority, identity, usage, validity_days=signer.certificate_days, now=self._now)
        return keystore_pem(leaf, signer.authority.certificate)


def _needed(stored: Files, key: str, where: str) -> bytes:
    try:
        return stored[key]
    except KeyError:
        raise AuthorityError(f"{where} has no {key}: store {CA_CERTIFICATE} and {CA_KEY} of one authority") from None


def new_password() -> str:
    """Return a random password of letters and digits, with about 190 bits."""
    return "".join(secrets.choice(_LETTERS) for _ in range(PASSWORD_LENGTH))


def keystore_pem(leaf: Leaf, issuer: x509.Certificate) -> bytes:
    """Return a key, its certificate and its issuer in one PEM file, as `ssl.keystore.type=PEM` expects it."""
    return f"{leaf.key_pem}{leaf.certificate_pem}{pem_of([issuer])}".encode()


def _is_good(present: bytes, identity: LeafNames, signer: _Signer, now: datetime) -> bool:
    """Whether a keystore has a usable key and certificate. Somebody may have changed it."""
    try:
        certificate = x509.load_pem_x509_certificates(present)[0]
        key = load_pem_private_key(present, password=None)
    except (ValueError, TypeError):
        return False
    if key.public_key() != certificate.public_key():
        return False
    return reason_to_replace(certificate, identity, [signer.authority.certificate], now) is None
