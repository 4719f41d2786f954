"""The Secret of a user: what a client needs to log in. Pure, except that keys and passwords are random.

`user_files` gets what the Secret has, and returns what it must have. What is still good stays the same, byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from odradek.base.errors import ConfigError
from odradek.security.sasl.credentials import SCRAM_MECHANISMS, ScramCredential, derive, salted_password
from odradek.security.sasl.credentials import credential_from_salted as credential_of
from odradek.security.sasl.scram import LOGIN_MODULE
from odradek_operator.crds.types import TLS_LOGIN, Cluster, Listener, ListenerType, User
from odradek_operator.objects import names
from odradek_operator.objects.certificate_objects import clients_authority
from odradek_operator.objects.listener_security import protocol
from odradek_operator.objects.properties_file import render
from odradek_operator.security.authorities import CertificateAuthority, pem_of, read_authority
from odradek_operator.security.leaves import LeafNames, LeafUsage, issue, reason_to_replace
from odradek_operator.security.material import Files, new_password
from odradek_operator.security.stored_authority import CA_CERTIFICATE, given_authority

PASSWORD: Final = "password"
USER_CERTIFICATE: Final = "user.crt"
USER_KEY: Final = "user.key"
USER_STORE: Final = "user.p12"
USER_STORE_PASSWORD: Final = "user.password"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserAuthorities:
    """What the Secrets of users are made with."""

    clients: CertificateAuthority = field(repr=False)
    """Signs certificates of users."""
    certificate_days: int
    trusted: bytes
    """The authorities that clients trust, as PEM."""


def user_authorities(cluster: Cluster, clients: Files, trusted: Files) -> UserAuthorities | None:
    """Return what the Secrets of users are made with; None while the cluster does not have it.

    `clients`: the Secret of the authority of users, `trusted`: that with what clients trust. Raises `AuthorityError`.
    """
    found = given_authority(clients)
    if CA_CERTIFICATE not in trusted or found is None:
        return None
    where = f"Secret {cluster.namespace}/{clients_authority(cluster)}"
    authority = read_authority(*found, where=where, now=datetime.now(UTC))
    days = cluster.certificate_authorities.clients.certificate_days
    return UserAuthorities(clients=authority, certificate_days=days, trusted=trusted[CA_CERTIFICATE])


def is_usable_password(content: bytes) -> bool:
    """Whether a given password is text without control characters."""
    try:
        return bool(content.strip()) and content.strip().decode().isprintable()
    except UnicodeDecodeError:
        return False


def listener_for(cluster: Cluster, user: User) -> Listener | None:
    """Return the listener that the user logs in to: preferably an internal one, with TLS; None if there is none."""
    possible = [one for one in cluster.listeners if one.login == user.login]
    possible.sort(key=lambda one: (one.type is not ListenerType.INTERNAL, not one.tls))
    return possible[0] if possible else None


def user_files(
    cluster: Cluster,
    user: User,
    stored: Files,
    authorities: UserAuthorities,
    *,
    is_new: bool,
    now: datetime,
    password: bytes | None = None,
    addresses: Mapping[str, str] | None = None,
) -> dict[str, bytes]:
    """Return the data of a user's Secret.

    `stored`: what it has; empty without a Secret. `is_new`: whether a new password or certificate was requested. `now`
    has a time zone. `password`: the one that the resource names; None if the operator makes it. `addresses`: those of
    listeners for clients, by name; None for the Services of internal ones.
    """
    if user.login == TLS_LOGIN:
        found = {} if is_new else _certificate(user, stored, authorities, now)
        login = found or _new_certificate(user, authorities, now)
        properties = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": login[USER_CERTIFICATE].decode(),
            "ssl.keystore.key": login[USER_KEY].decode(),
        }
    else:
        assert user.login is not None, "it has a Secret"
        if password is None:
            password = b"" if is_new else stored.get(PASSWORD, b"").strip()
        login = {PASSWORD: password or new_password().encode()}
        text = login[PASSWORD].decode().replace("\\", "\\\\").replace('"', '\\"')
        properties = {
            "sasl.mechanism": user.login.upper(),
            "sasl.jaas.config": f'{LOGIN_MODULE} required username="{user.name}" password="{text}";',
        }
    properties |= _connection(cluster, listener_for(cluster, user), authorities, addresses)
    config = render(properties, header=f"The login of user {user.name} to cluster {cluster.name}")
    return {**login, CA_CERTIFICATE: authorities.trusted, names.CLIENT_CONFIG_FILE: config.encode()}


def _connection(
    cluster: Cluster, listener: Listener | None, authorities: UserAuthorities, addresses: Mapping[str, str] | None
) -> dict[str, str]:
    if listener is None:
        return {}
    found = {"security.protocol": protocol(listener)}
    if listener.tls:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authorities.trusted.decode()}
    if addresses is not None:
        if address := addresses.get(listener.name):
            found["bootstrap.servers"] = address
    elif listener.type is ListenerType.INTERNAL:
        host = f"{names.bootstrap_service(cluster.name)}.{cluster.namespace}.svc"
        found["bootstrap.servers"] = f"{host}:{listener.port}"
    return found


def _certificate(user: User, stored: Files, authorities: UserAuthorities, now: datetime) -> dict[str, bytes]:
    """Return the present certificate and key, if they can be used; else nothing."""
    keys = (USER_CERTIFICATE, USER_KEY, USER_STORE, USER_STORE_PASSWORD)
    if not all(stored.get(key) for key in keys):
        return {}
    try:
        certificate = x509.load_pem_x509_certificates(stored[USER_CERTIFICATE])[0]
        key = load_pem_private_key(stored[USER_KEY], password=None)
    except (ValueError, TypeError):
        return {}
    if key.public_key() != certificate.public_key():
        return {}
    if reason_to_replace(certificate, LeafNames(user.name), [authorities.clients.certificate], now) is not None:
        return {}
    return {name: stored[name] for name in keys}


def _new_certificate(user: User, authorities: UserAuthorities, now: datetime) -> dict[str, bytes]:
    issuer = authorities.clients
    leaf = issue(issuer, LeafNames(user.name), LeafUsage.CLIENT, validity_days=authorities.certificate_days, now=now)
    password = new_password()
    return {
        USER_CERTIFICATE: (leaf.certificate_pem + pem_of([issuer.certificate])).encode(),
        USER_KEY: leaf.key_pem.encode(),
        USER_STORE: leaf.pkcs12(issuer.certificate, password),
        USER_STORE_PASSWORD: password.encode(),
    }


def user_credentials(user: User, files: Files, present: Mapping[str, str]) -> dict[str, str]:
    """Return the SCRAM credentials of a user as in `/config/users`. It takes up to 4 ms of CPU time.

    `files`: the data of the Secret. `present`: the settings of the user; a credential that fits the password is kept.
    """
    if PASSWORD not in files or user.login is None:
        return {}
    mechanism = SCRAM_MECHANISMS[user.login.upper()]
    password, text = files[PASSWORD].decode(), present.get(mechanism.name)
    if text is not None:
        try:
            found = ScramCredential.from_text(mechanism, text)
        except ConfigError:
            pass  # It is replaced.
        else:
            salted = salted_password(mechanism, password, found.salt, found.iterations)
            if credential_of(mechanism, salted, found.salt, found.iterations) == found:
                return {mechanism.name: text}
    return {mechanism.name: derive(password, mechanism).to_text()}
