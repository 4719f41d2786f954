"""TLS of a cluster's own ensemble: properties of members and brokers, ports, and certificates. Pure.

Only a cluster with a secured listener has it. `EnsembleLink` says how far the change from plaintext is. All members
have the same certificate. Clients need one of the cluster's authority, so only brokers, operator and exporter can
connect.

Java does not follow changed files, so members with new certificates restart: the digest of the certificates is part of
their pod template.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from odradek_operator.crds.types import Cluster
from odradek_operator.objects import listener_security, names
from odradek_operator.objects.names import EnsembleLink
from odradek_operator.objects.parts import Object
from odradek_operator.objects.podspec import variable

_PROTOCOLS: Final = "TLSv1.2,TLSv1.3"
_AUTHENTICATION: Final = "org.apache.zookeeper.server.auth.X509AuthenticationProvider"


def client_ports(link: EnsembleLink) -> dict[str, int]:
    """Return the ports for clients in other pods, by name."""
    plain = {"tcp-client": names.ZOOKEEPER_CLIENT_PORT} if link.accepts_plain else {}
    return plain | ({"tcp-clienttls": names.ZOOKEEPER_TLS_PORT} if link.accepts_tls else {})


def client_port(cluster: Cluster) -> int:
    """Return the port to which brokers, operator and exporter connect."""
    return names.ZOOKEEPER_TLS_PORT if cluster.ensemble_link.connects_tls else names.ZOOKEEPER_CLIENT_PORT


def member_properties(cluster: Cluster) -> dict[str, str]:
    """Return the properties of members for TLS; none without.

    The port without TLS stays for the pod itself, which reads its metrics there. The operator is the super user, so
    that it can also manage znodes that belong to brokers.
    """
    link = cluster.ensemble_link
    if not link.accepts_tls:
        return {}
    keystore = f"{names.CERTIFICATES_FOLDER}/{names.ZOOKEEPER_KEYSTORE}"
    truststore = f"{names.CERTIFICATES_FOLDER}/{names.CLUSTER_CA_FILE}"
    found = {
        "secureClientPort": str(names.ZOOKEEPER_TLS_PORT),
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "authProvider.x509": _AUTHENTICATION,
        "X509AuthenticationProvider.superUser": names.subject(names.operator_identity(cluster.name)),
        "sslQuorum": _flag(link.connects_tls),
        "portUnification": _flag(link.accepts_plain),
    }
    for prefix in ("ssl", "ssl.quorum"):
        found |= {
            f"{prefix}.clientAuth": "need",
            f"{prefix}.enabledProtocols": _PROTOCOLS,
            f"{prefix}.keyStore.location": keystore,
            f"{prefix}.keyStore.type": "PEM",
            f"{prefix}.trustStore.location": truststore,
            f"{prefix}.trustStore.type": "PEM",
        }
    return found | ({"clientPortAddress": "127.0.0.1"} if link.is_closed else {})


def broker_properties(cluster: Cluster) -> dict[str, str]:
    """Return the properties with which brokers connect to the ensemble with TLS, except the location of the keystore,
    which pods add; none without TLS."""
    if not cluster.ensemble_link.connects_tls:
        return {}
    found = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper.ssl.keystore.type": "PEM",
        "zookeeper.ssl.truststore.location": f"{names.CERTIFICATES_FOLDER}/{names.CLUSTER_CA_FILE}",
        "zookeeper.ssl.truststore.type": "PEM",
    }
    return found | ({"zookeeper.set.acl": "true"} if cluster.ensemble_link.is_closed else {})


def owner(cluster: Cluster) -> tuple[str, str]:
    """Return the scheme and the identity that own the znodes of a closed ensemble: the brokers."""
    return "x509", names.subject(names.broker_identity(cluster.name))


def environment(cluster: Cluster) -> list[Object]:
    """Return the environment variables of members for TLS."""
    link = cluster.ensemble_link
    if not link.accepts_tls:
        return []
    # The template does not change when the znodes get owners, so that no member restarts.
    shown = EnsembleLink.TLS if link.is_closed else link
    return [
        variable(names.ENSEMBLE_LINK, shown.value),
        variable(names.CERTIFICATES_DIGEST, cluster.ensemble_certificates),
    ]


def mounts(cluster: Cluster) -> list[Object]:
    """Return the volume mounts of the certificates of members."""
    return listener_security.certificate_mounts() if cluster.ensemble_link.accepts_tls else []


def volumes(cluster: Cluster) -> list[Object]:
    """Return the volumes of the certificates of members."""
    secret = names.zookeeper_certs(cluster.name)
    return listener_security.certificate_volumes(secret) if cluster.ensemble_link.accepts_tls else []


def member_hosts(cluster: Cluster) -> Iterable[str]:
    """Yield the names at which clients and members reach a member."""
    nodes = names.zookeeper_nodes_service(cluster.name)
    pods = [names.zookeeper_pod(cluster.name, member) for member in range(cluster.zookeeper.replicas)]
    for suffix in names.service_suffixes(cluster.namespace):
        yield from (f"{pod}.{nodes}{suffix}" for pod in pods)
        yield f"{names.zookeeper_client_service(cluster.name)}{suffix}"


def _flag(value: bool) -> str:
    return "true" if value else "false"
