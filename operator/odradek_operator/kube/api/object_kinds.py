"""The kinds of Kubernetes objects that the operator uses, and their API paths. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

Object = dict[str, Any]
"""A Kubernetes object as JSON."""


class Kind(Enum):
    """A kind: group and version, plural name, and whether it is namespaced."""

    CLUSTER = ("odradek.dev/v1", "Cluster", "clusters", True)
    TOPIC = ("odradek.dev/v1", "Topic", "topics", True)
    USER = ("odradek.dev/v1", "User", "users", True)
    PIPELINE = ("odradek.dev/v1", "Pipeline", "pipelines", True)
    MIRROR = ("odradek.dev/v1", "Mirror", "mirrors", True)
    POD = ("v1", "Pod", "pods", True)
    NODE = ("v1", "Node", "nodes", False)
    SERVICE = ("v1", "Service", "services", True)
    CONFIG_MAP = ("v1", "ConfigMap", "configmaps", True)
    SECRET = ("v1", "Secret", "secrets", True)
    SERVICE_ACCOUNT = ("v1", "ServiceAccount", "serviceaccounts", True)
    CLAIM = ("v1", "PersistentVolumeClaim", "persistentvolumeclaims", True)
    VOLUME = ("v1", "PersistentVolume", "persistentvolumes", False)
    EVENT = ("v1", "Event", "events", True)
    STATEFUL_SET = ("apps/v1", "StatefulSet", "statefulsets", True)
    DEPLOYMENT = ("apps/v1", "Deployment", "deployments", True)
    DISRUPTION_BUDGET = ("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", True)
    NETWORK_POLICY = ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", True)
    ROLE = ("rbac.authorization.k8s.io/v1", "Role", "roles", True)
    ROLE_BINDING = ("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", True)
    CLUSTER_ROLE_BINDING = ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", False)
    LEASE = ("coordination.k8s.io/v1", "Lease", "leases", True)
    CERTIFICATE = ("cert-manager.io/v1", "Certificate", "certificates", True)
    POD_MONITOR = ("monitoring.coreos.com/v1", "PodMonitor", "podmonitors", True)
    PROMETHEUS_RULE = ("monitoring.coreos.com/v1", "PrometheusRule", "prometheusrules", True)

    def __init__(self, api_version: str, word: str, plural: str, namespaced: bool) -> None:
        """Split the tuple."""
        self.api_version = api_version
        self.word = word
        self.plural = plural
        self.namespaced = namespaced

    def path(self, namespace: str | None, name: str | None = None, sub: str | None = None) -> str:
        """Return the path of an object, or of the collection without a name. `namespace` None means all namespaces."""
        prefix = "/api/v1" if self.api_version == "v1" else f"/apis/{self.api_version}"
        within = f"/namespaces/{namespace}" if self.namespaced and namespace is not None else ""
        return "/".join(part for part in (f"{prefix}{within}/{self.plural}", name, sub) if part)


_BY_WORD: Final = {(kind.api_version, kind.word): kind for kind in Kind}


def kind_named(api_version: str, word: str) -> Kind:
    """Return the kind with these names. Raises `KeyError` for an unknown kind."""
    return _BY_WORD[api_version, word]


def kind_of(body: Mapping[str, Any]) -> Kind:
    """Return the kind of an object. Raises `KeyError` for an unknown kind."""
    return kind_named(body["apiVersion"], body["kind"])


def complete(kind: Kind, body: Object) -> Object:
    """Return an item of a list with its kind, which the API server omits there."""
    return {"apiVersion": kind.api_version, "kind": kind.word, **body}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Identifies an object."""

    kind: Kind
    namespace: str | None
    name: str

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Reference:
        """Return the reference of an object."""
        metadata = body["metadata"]
        return cls(kind=kind_of(body), namespace=metadata.get("namespace"), name=metadata["name"])

    def __str__(self) -> str:
        """Return a text such as `StatefulSet default/demo-kafka`."""
        return f"{self.kind.word} {self.namespace}/{self.name}" if self.namespace else f"{self.kind.word} {self.name}"
