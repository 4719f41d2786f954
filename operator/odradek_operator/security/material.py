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
from odradek_operator.objects.certificate_objects import clients_authority, cluster_authority, given_secret
from odradek_operator.objects.ensemble_security import member_hosts
from odradek_operator.objects.listener_security import needs_service_account_keys
from odradek_operator.objects.properties_file import render
from odradek_operator.security.authorities import (
    AuthorityError,
    CertificateAuthority,
    issuers_of,
    pem_of,
    read_authority,
)
from odradek_operator.security.leaves import (
    LATEST_SHARE,
    URGENT_SHARE,
    Leaf,
    LeafNames,
    LeafUsage,
    issue,
    reason_to_replace,
)
from odradek_operator.security.rotation import PodTrust, next_rotation
from odradek_operator.security.stored_authority import (
    CA_CERTIFICATE,
    CA_KEY,
    StoredAuthority,
    given_authority,
    issuer_files,
    renewal_time,
)
from odradek_operator.security.windows import is_open

Files = Mapping[str, bytes]
"""The data of a Secret: contents by key."""

CA_TRUSTSTORE: Final = "ca.p12"
CA_PASSWORD: Final = "ca.password"
PASSWORD_LENGTH: Final = 32
_LETTERS: Final = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True, kw_only=True)
class _Signer:
    """An authority, whom to trust, and the validity of certificates."""

    authority: CertificateAuthority
    trusted: tuple[x509.Certificate, ...]
    """The authorities whose certificates are accepted, also as logins."""
    issuers: tuple[x509.Certificate, ...] = ()
    """The authorities above the one of a company or of cert-manager. They sign certificates of others, too, so brokers
    do not accept these. But most clients accept the certificate of a broker only if they know all authorities up to the
    root."""
    certificate_days: int

    @property
    def trusted_pem(self) -> bytes:
        """The trusted authorities as PEM."""
        return pem_of(self.trusted).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacementState:
    """What decides about the replacement of an authority: a request, and how far the pods are."""

    request: str = ""
    """The value of the Cluster's annotation. Each new value asks for a replacement; empty does not."""
    pods: tuple[PodTrust, ...] | None = None
    """The pods that have to trust the authority, or have certificates of it. None: they were not asked, so that a
    replacement does not go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFiles:
    """What the Secrets of a cluster must have."""

    secrets: Mapping[str, dict[str, bytes]]
    """Their data by name, without those of given authorities."""
    notices: tuple[str, ...]
    """What replacements of authorities wait for, and requests that have no effect."""
    is_replacing: bool
    """Whether an authority is being replaced: the pods should be asked again soon."""


_NOTHING: Final = ReplacementState()
_UNASKED: Final = (PodTrust("the brokers"),)


def secrets_of(cluster: Cluster) -> frozenset[str]:
    """Return the names of the Secrets that `cluster_files` needs to know: those that it makes, and those given."""
    return frozenset(
        {
            cluster_authority(cluster),
            clients_authority(cluster),
            names.cluster_ca_cert(cluster.name),
            names.clients_ca_cert(cluster.name),
            names.kafka_certs(cluster.name),
            names.operator_certs(cluster.name),
            *([names.zookeeper_certs(cluster.name)] if cluster.zookeeper.connect is None else []),
        }
    )


def cluster_files(
    cluster: Cluster,
    hosts: Mapping[int, Iterable[str]],
    stored: Mapping[str, Files],
    *,
    of_cluster: ReplacementState = _NOTHING,
    of_clients: ReplacementState = _NOTHING,
    token_keys: bytes | None = None,
    now: datetime,
) -> ClusterFiles:
    """Return what the cluster's Secrets must have.

    `hosts`: the host names and addresses of each broker, by id. `stored`: what the Secrets have, of those that exist.
    `token_keys`: the keys that verify tokens of ServiceAccounts; None keeps those that the brokers have. `now` has a
    time zone. Raises `AuthorityError` if an authority cannot be used.
    """
    maker = _Maker(cluster, stored, now)
    made = maker.made(hosts, of_cluster, of_clients)
    if needs_service_account_keys(cluster):
        secret, key = names.kafka_certs(cluster.name), names.SERVICE_ACCOUNT_KEYS_FILE
        token_keys = token_keys or stored.get(secret, {}).get(key)
        made[secret] |= {} if token_keys is None else {key: token_keys}
    return ClusterFiles(secrets=made, notices=tuple(maker.notices), is_replacing=maker.is_replacing)


class _Maker:
    """Makes the content of the Secrets of one cluster."""

    def __init__(self, cluster: Cluster, stored: Mapping[str, Files], now: datetime) -> None:
        self._cluster = cluster
        self._stored = stored
        self._now = now
        self.notices: Final[list[str]] = []
        self.is_replacing = False

    def made(
        self, hosts: Mapping[int, Iterable[str]], cluster_state: ReplacementState, clients_state: ReplacementState
    ) -> dict[str, dict[str, bytes]]:
        """Return the data of all Secrets."""
        sources, name = self._cluster.certificate_authorities, self._cluster.name
        made: dict[str, dict[str, bytes]] = {}
        of_cluster = self._signer(sources.cluster, "cluster", cluster_state, made)
        of_clients = self._signer(sources.clients, "clients", clients_state, made)
        if self._cluster.zookeeper.connect is None:
            made[names.zookeeper_certs(name)] = self._members(of_cluster)
        return made | {
            names.cluster_ca_cert(name): self._trust(
                names.cluster_ca_cert(name), (*of_cluster.trusted, *of_cluster.issuers)
            ),
            names.clients_ca_cert(name): self._trust(names.clients_ca_cert(name), of_clients.trusted),
            names.kafka_certs(name): self._brokers(hosts, of_cluster, of_clients),
            names.operator_certs(name): self._operator(of_cluster),
        }

    def _signer(
        self, source: CertificateAuthoritySource, kind: str, state: ReplacementState, made: dict[str, dict[str, bytes]]
    ) -> _Signer:
        """Return the given authority, which is never changed, or the one of the operator, and add its Secret to `made`.

        That one is as it was, new, renewed, or a step further in its replacement. `kind`: cluster or clients.
        """
        secret_of = names.cluster_ca if kind == "cluster" else names.clients_ca
        secret, name, now = secret_of(self._cluster.name), f"{self._cluster.name} {kind} CA", self._now
        if (given := given_secret(secret, source)) is not None:
            if state.request:
                self.notices.append(
                    f"The annotation {names.replace_ca(kind)} has no effect: the operator did not make the {kind} "
                    f"authority in Secret {given}. Replace it there."
                )
            return self._given(given, source)
        validity, stored = source.validity_days, self._stored.get(secret)
        if stored is None:
            found = StoredAuthority.new(name, validity_days=validity, request=state.request, now=now)
        else:
            found = StoredAuthority.read(stored, self._where(secret))
            rotation = next_rotation(
                found.trust,
                _UNASKED if state.pods is None else state.pods,
                renewal=renewal_time(renewal_days=source.renewal_days, validity_days=validity),
                grace=timedelta(hours=source.grace_hours),
                is_replacement_wanted=state.request not in ("", found.replaced),
                now=now,
            )
            if rotation.waiting is not None:
                self.notices.append(f"The replacement of the {kind} authority waits: {rotation.waiting}.")
            # Another name than that of the former one, so that no client takes one for the other.
            name = f"{name} {now:%Y-%m-%d}"
            found = found.stepped(rotation, name, validity_days=validity, request=state.request, now=now)
        self.is_replacing |= found.is_being_replaced
        made[secret] = found.files
        return _Signer(authority=found.signing, trusted=found.trusted, certificate_days=source.certificate_days)

    def _given(self, secret: str, source: CertificateAuthoritySource) -> _Signer:
        stored, where = self._stored.get(secret), self._where(secret)
        if stored is None:
            how = (
                f"create it with {CA_CERTIFICATE} and {CA_KEY} of the authority"
                if source.issuer_ref is None
                else f"cert-manager has not issued it yet, see the Certificate {secret.removesuffix('-issued')}"
            )
            raise AuthorityError(f"{where} does not exist: {how}")
        found = given_authority(stored)
        if found is None:
            raise AuthorityError(f"{where} has neither {CA_CERTIFICATE} and {CA_KEY} nor tls.crt and tls.key")
        authority = read_authority(*found, where=where, now=self._now)
        known = x509.load_pem_x509_certificates(found[0])
        issuers = issuers_of(authority.certificate, [*known, *issuer_files(stored, where)])
        return _Signer(
            authority=authority,
            trusted=tuple(one for one in known if one not in issuers),
            issuers=issuers,
            certificate_days=source.certificate_days,
        )

    def _where(self, secret: str) -> str:
        return f"Secret {self._cluster.namespace}/{secret}"

    def _trust(self, secret: str, known: tuple[x509.Certificate, ...]) -> dict[str, bytes]:
        """Return authorities as PEM, and as a store for Java with its password."""
        stored, pem = self._stored.get(secret, {}), pem_of(known).encode()
        if stored.get(CA_CERTIFICATE) == pem and stored.get(CA_TRUSTSTORE) and stored.get(CA_PASSWORD):
            return {key: stored[key] for key in (CA_CERTIFICATE, CA_TRUSTSTORE, CA_PASSWORD)}
        password = stored.get(CA_PASSWORD) or new_password().encode()
        entries = [PKCS12Certificate(one, f"ca-{number}".encode()) for number, one in enumerate(known)]
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

    def _members(self, of_cluster: _Signer) -> dict[str, bytes]:
        """Return what the members of the ensemble need. They share one certificate, because they share a Secret."""
        cluster, key = self._cluster, names.ZOOKEEPER_KEYSTORE
        hosts = tuple(sorted(member_hosts(cluster)))
        identity = LeafNames(names.zookeeper_identity(cluster.name), hosts, names.ORGANIZATION)
        present = self._stored.get(names.zookeeper_certs(cluster.name), {})
        # New files restart the members, so what is only getting old waits for a window.
        may_restart = is_open(cluster.maintenance_windows, self._now)
        share = LATEST_SHARE if may_restart else URGENT_SHARE
        files = {
            names.CLUSTER_CA_FILE: of_cluster.trusted_pem,
            key: self._keystore(present.get(key), identity, LeafUsage.BROKER, of_cluster, latest_share=share),
        }
        if not may_restart and files[key] == present.get(key) and _is_renewed_only(files, present):
            return dict(present)
        return files

    def _operator(self, of_cluster: _Signer) -> dict[str, bytes]:
        present, keystore = self._stored.get(names.operator_certs(self._cluster.name), {}), names.OPERATOR_KEYSTORE
        identity = LeafNames(names.operator_identity(self._cluster.name), (), names.ORGANIZATION)
        properties = {
            "security.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": f"{names.CERTIFICATES_FOLDER}/{names.OPERATOR_KEYSTORE}",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": f"{names.CERTIFICATES_FOLDER}/{names.CLUSTER_CA_FILE}",
        }
        return {
            keystore: self._keystore(present.get(keystore), identity, LeafUsage.CLIENT, of_cluster),
            names.CLUSTER_CA_FILE: of_cluster.trusted_pem,
            names.CLIENT_CONFIG_FILE: render(properties, header="The login of the operator").encode(),
        }

    def _keystore(
        self,
        present: bytes | None,
        identity: LeafNames,
        usage: LeafUsage,
        signer: _Signer,
        *,
        latest_share: int = LATEST_SHARE,
    ) -> bytes:
        """Return the key, the certificate and its issuer as one file: the present one as long as it is good."""
        if present is not None and _is_good(present, identity, signer, self._now, latest_share=latest_share):
            return present
        leaf = issue(signer.authority, identity, usage, validity_days=signer.certificate_days, now=self._now)
        return keystore_pem(leaf, signer.authority.certificate)


def new_password() -> str:
    """Return a random password of letters and digits, with about 190 bits."""
    return "".join(secrets.choice(_LETTERS) for _ in range(PASSWORD_LENGTH))


def keystore_pem(leaf: Leaf, issuer: x509.Certificate) -> bytes:
    """Return a key, its certificate and its issuer in one PEM file, as `ssl.keystore.type=PEM` expects it."""
    return f"{leaf.key_pem}{leaf.certificate_pem}{pem_of([issuer])}".encode()


def _is_renewed_only(files: Files, present: Files) -> bool:
    """Whether the authorities of these files have the same keys as those of the present ones, which are still valid:
    members need not restart for them."""
    try:
        new, old = (x509.load_pem_x509_certificates(each.get(names.CLUSTER_CA_FILE, b"")) for each in (files, present))
    except ValueError:
        return False
    return [one.public_key() for one in new] == [one.public_key() for one in old]


def _is_good(present: bytes, identity: LeafNames, signer: _Signer, now: datetime, *, latest_share: int) -> bool:
    """Whether a keystore has a usable key and certificate. Somebody may have changed it."""
    try:
        certificate = x509.load_pem_x509_certificates(present)[0]
        key = load_pem_private_key(present, password=None)
    except (ValueError, TypeError):
        return False
    if key.public_key() != certificate.public_key():
        return False
    reason = reason_to_replace(certificate, identity, [signer.authority.certificate], now, latest_share=latest_share)
    return reason is None
