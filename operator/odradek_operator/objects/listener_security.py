"""TLS, authentication and authorization of a cluster's listeners: properties of brokers, and their certificates. Pure.

A cluster in which no listener has TLS or authentication has none of this, and the same objects as before. Otherwise
the brokers first change to TLS among themselves (`BrokerLink`). Then they serve the secured listeners and have the
authorizer. Clients of a listener without authentication may do everything, as before: remove such listeners to close a
cluster.
"""

from __future__ import annotations

from typing import Final

from odradek.security.sasl.mechanism import OAUTHBEARER
from odradek_operator.crds.types import (
    OAUTH_LOGIN,
    SERVICE_ACCOUNT_LOGIN,
    TLS_LOGIN,
    TOKEN_LOGINS,
    Cluster,
    Listener,
    ListenerAuthentication,
)
from odradek_operator.objects import names
from odradek_operator.objects.names import BrokerLink
from odradek_operator.objects.parts import Object

PLAINTEXT: Final = "PLAINTEXT"
AUTHORIZER: Final = "kafka.security.authorizer.AclAuthorizer"
ANONYMOUS: Final = "User:ANONYMOUS"
"""Clients of a listener without authentication."""
_VOLUME: Final = "certificates"
_MODE: Final = 0o440
"""File mode: readable by the pod's group, which is `fsGroup`."""
_SUPER_USERS: Final = "super.users"


def protocol(listener: Listener) -> str:
    """Return Kafka's security protocol of a listener."""
    encrypted = "SSL" if listener.tls else PLAINTEXT
    if listener.login in (None, TLS_LOGIN):
        return encrypted
    return f"SASL_{encrypted}"


def has_certificates(cluster: Cluster) -> bool:
    """Whether the brokers have certificates."""
    return cluster.broker_link.listens_tls or cluster.ensemble_link.connects_tls


def is_closed(cluster: Cluster) -> bool:
    """Whether the brokers serve secured listeners and have the authorizer."""
    return cluster.broker_link is BrokerLink.TLS


def properties(cluster: Cluster) -> dict[str, str]:
    """Return the properties of the brokers, except those that only their pods know. The resource may override them."""
    if not cluster.broker_link.listens_tls:
        return {}
    found = {
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": f"{names.CERTIFICATES_FOLDER}/{names.CLUSTER_CA_FILE}",
        f"listener.name.{names.SECURE_REPLICATION_LISTENER}.ssl.client.auth": "required",
    }
    if not is_closed(cluster):
        return found
    found["authorizer.class.name"] = AUTHORIZER
    for listener in cluster.listeners:
        found |= of_listener(cluster, listener)
    return found


def fixed(cluster: Cluster) -> dict[str, str]:
    """Return the properties that the resource can only extend: the super users."""
    if not is_closed(cluster):
        return {}
    users = [principal(names.broker_identity(cluster.name)), principal(names.operator_identity(cluster.name))]
    if any(listener.authentication is None for listener in cluster.listeners):
        users.append(ANONYMOUS)
    if given := cluster.brokers.config.get(_SUPER_USERS):
        users.insert(0, given)
    return {_SUPER_USERS: ";".join(users)}


def principal(identity: str) -> str:
    """Return the user with a certificate of the cluster. `identity`: its common name."""
    return f"User:{names.subject(identity)}"


def of_listener(cluster: Cluster, listener: Listener, folder: str = names.CERTIFICATES_FOLDER) -> dict[str, str]:
    """Return the properties of one listener. `folder`: that of the certificates."""
    prefix = f"listener.name.{listener.name}"
    authentication = listener.authentication
    if authentication is None:
        return {}
    if authentication.type == TLS_LOGIN:
        return {
            f"{prefix}.ssl.client.auth": "required",
            f"{prefix}.ssl.truststore.location": f"{folder}/{names.CLIENTS_CA_FILE}",
        }
    if authentication.type in TOKEN_LOGINS:
        rules = _token_rules(cluster, authentication)
        return {f"{prefix}.sasl.enabled.mechanisms": OAUTHBEARER} | {
            f"{prefix}.sasl.oauthbearer.{key}": value for key, value in rules.items() if value is not None
        }
    return {f"{prefix}.sasl.enabled.mechanisms": authentication.type.upper()}


def _token_rules(cluster: Cluster, authentication: ListenerAuthentication) -> dict[str, str | None]:
    """Return what tokens need to be accepted."""
    if authentication.type == OAUTH_LOGIN:
        return {
            "jwks.endpoint.url": authentication.jwks_url,
            "expected.issuer": authentication.issuer,
            "expected.audience": authentication.audience,
            "sub.claim.name": authentication.principal_claim,
        }
    # A token for another cluster, or for the API server, must not be accepted: its audience differs.
    return {
        "jwks.endpoint.url": f"file://{names.CERTIFICATES_FOLDER}/{names.SERVICE_ACCOUNT_KEYS_FILE}",
        "expected.audience": names.token_audience(cluster.name, cluster.namespace),
    }


def needs_service_account_keys(cluster: Cluster) -> bool:
    """Whether the brokers verify tokens of ServiceAccounts."""
    return any(listener.login == SERVICE_ACCOUNT_LOGIN for listener in cluster.listeners)


def mounts(cluster: Cluster) -> list[Object]:
    """Return the volume mounts of the certificates in the containers of brokers."""
    return certificate_mounts() if has_certificates(cluster) else []


def volumes(cluster: Cluster) -> list[Object]:
    """Return the volumes of the certificates in the pods of brokers."""
    return certificate_volumes(names.kafka_certs(cluster.name)) if has_certificates(cluster) else []


def exporter_mounts(cluster: Cluster) -> list[Object]:
    """Return the volume mounts of the exporter's certificate."""
    return certificate_mounts() if _has_exporter_certificate(cluster) else []


def exporter_volumes(cluster: Cluster) -> list[Object]:
    """Return the volumes of the exporter's certificate, which is that of the operator."""
    return certificate_volumes(names.operator_certs(cluster.name)) if _has_exporter_certificate(cluster) else []


def _has_exporter_certificate(cluster: Cluster) -> bool:
    return is_closed(cluster) or cluster.ensemble_link.connects_tls


def certificate_mounts() -> list[Object]:
    """Return the volume mount of certificates in a container."""
    return [{"name": _VOLUME, "mountPath": names.CERTIFICATES_FOLDER, "readOnly": True}]


def certificate_volumes(secret: str) -> list[Object]:
    """Return the volume with the certificates of a Secret."""
    return [{"name": _VOLUME, "secret": {"secretName": secret, "defaultMode": _MODE}}]
