"""Builders that several components share: metadata, ServiceAccounts, Services, disruption budgets, restrictions. Pure.

The objects are meant for server-side apply. The merge keys of lists (ports, environment, mounts) are complete and
include `protocol`, so that a second application of the same object changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from odradek_operator.crds.types import API_VERSION, Cluster
from odradek_operator.objects import names
from odradek_operator.objects.names import Component

Object = dict[str, Any]
"""A Kubernetes object or a part of it, as JSON."""


def metadata(cluster: Cluster, component: Component, name: str) -> Object:
    """Return the metadata of an object that Kubernetes deletes together with the Cluster resource."""
    return {
        "name": name,
        "namespace": cluster.namespace,
        "labels": object_labels(cluster, component),
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": "Cluster",
                "name": cluster.name,
                "uid": cluster.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }


def object_labels(cluster: Cluster, component: Component) -> dict[str, str]:
    """Return the labels of every object. The operator uses them to find obsolete objects."""
    return {**names.labels(cluster.name, component), names.NAMESPACE_LABEL: cluster.namespace}


def service_account(cluster: Cluster, component: Component, name: str, *, token: bool) -> Object:
    """Return a ServiceAccount. `token`: whether its pods get a token for the API server."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(cluster, component, name),
        "automountServiceAccountToken": token,
    }


def config_map(cluster: Cluster, component: Component, name: str, data: Mapping[str, str]) -> Object:
    """Return a ConfigMap. `data`: contents of its files, by name."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(cluster, component, name),
        "data": dict(data),
    }


def port(name: str, number: int) -> Object:
    """Return a port of a Service. The pods listen on the same port."""
    return {"name": name, "port": number, "targetPort": number, "protocol": "TCP"}


def service(cluster: Cluster, component: Component, name: str, ports: Sequence[Object], **spec: object) -> Object:
    """Return a Service of a component's pods. `spec` adds or replaces fields."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(cluster, component, name),
        "spec": {
            "type": "ClusterIP",
            "selector": names.selector(cluster.name, component),
            "ports": list(ports),
            **spec,
        },
    }


def headless_service(cluster: Cluster, component: Component, name: str, ports: Sequence[Object]) -> Object:
    """Return a headless Service.

    It also publishes the DNS names of pods that are not ready, because pods need each other to become ready.
    """
    return service(cluster, component, name, ports, clusterIP="None", publishNotReadyAddresses=True)


def disruption_budget(cluster: Cluster, component: Component, name: str) -> Object:
    """Return a PodDisruptionBudget that allows one eviction at a time."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(cluster, component, name),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": names.selector(cluster.name, component)}},
    }


def restricted_container() -> Object:
    """Return the security context of a container, as the standard "restricted" of Kubernetes requires it."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def restricted_pod() -> Object:
    """Return the security context of a pod, as the standard "restricted" of Kubernetes requires it."""
    return {
        "runAsNonRoot": True,
        "runAsUser": names.USER_ID,
        "runAsGroup": names.USER_ID,
        "fsGroup": names.USER_ID,
        # Kubernetes' default changes the group of all files at each start, which takes minutes for a large log.
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
