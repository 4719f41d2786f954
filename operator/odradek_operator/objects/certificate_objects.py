"""The authorities of a cluster that cert-manager issues: their Certificates, and the Secret of each authority. Pure.

https://cert-manager.io/docs/reference/api-docs/#cert-manager.io/v1.Certificate
"""

from __future__ import annotations

from odradek_operator.crds.types import CertificateAuthoritySource, Cluster
from odradek_operator.objects import names, parts
from odradek_operator.objects.names import Component
from odradek_operator.objects.parts import Object

API_VERSION = "cert-manager.io/v1"
KIND = "Certificate"
_DAY_HOURS = 24


def certificate_objects(cluster: Cluster) -> list[Object]:
    """Return a Certificate for each authority with an issuer; none in a cluster without a secured listener."""
    if not cluster.is_secured:
        return []
    sources = cluster.certificate_authorities
    wanted = ((names.cluster_ca(cluster.name), sources.cluster), (names.clients_ca(cluster.name), sources.clients))
    return [
        _certificate(cluster, name, source)
        for name, source in wanted
        if source.issuer_ref is not None and source.secret_name is None
    ]


def given_secret(authority: str, source: CertificateAuthoritySource) -> str | None:
    """Return the Secret of an authority that the operator does not make; None if it does.

    `authority`: the name of the Secret if it did.
    """
    return source.secret_name or (None if source.issuer_ref is None else names.issued_ca(authority))


def cluster_authority(cluster: Cluster) -> str:
    """Return the Secret of the authority of brokers."""
    own = names.cluster_ca(cluster.name)
    return given_secret(own, cluster.certificate_authorities.cluster) or own


def clients_authority(cluster: Cluster) -> str:
    """Return the Secret of the authority of users."""
    own = names.clients_ca(cluster.name)
    return given_secret(own, cluster.certificate_authorities.clients) or own


def _certificate(cluster: Cluster, name: str, source: CertificateAuthoritySource) -> Object:
    assert source.issuer_ref is not None, "others have no Certificate"
    renewal_days = min(source.renewal_days, source.validity_days // 2)
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": parts.metadata(cluster, Component.KAFKA, name),
        "spec": {
            "isCA": True,
            "commonName": f"{name} of {cluster.namespace}"[:64],
            "secretName": names.issued_ca(name),
            "duration": f"{source.validity_days * _DAY_HOURS}h",
            "renewBefore": f"{max(1, renewal_days * _DAY_HOURS)}h",
            # A renewal keeps the key, so the certificates of brokers and users stay valid.
            "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Never"},
            "issuerRef": {
                "name": source.issuer_ref.name,
                "kind": source.issuer_ref.kind,
                "group": source.issuer_ref.group,
            },
        },
    }
