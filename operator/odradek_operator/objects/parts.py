"""Objects that brokers, ensemble and exporter have alike: metadata, accounts, Services, budgets. Pure.

Enters: a Cluster and what differs. Leaves: whole objects as plain dicts, ready for server-side apply. Keys of lists by
which the API server merges (ports, environment, mounts) are given in full, `protocol` too, so that applying an object
twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from odradek_operator.crds.types import API_VERSION, Cluster
from odradek_operator.objects import names
from odradek_operator.objects.names import Component

Object = dict[str, Any]
"""A Kubernetes object or a part of one, as JSON has it."""


def metadata(cluster: Cluster, component: Component, name: str) -> Object:
    """Name, labels and owner of an object in the cluster's namespace. It goes when the Cluster resource goes."""
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
    """Labels of every object, by which those that are wanted no longer are found."""
    return {**names.labels(cluster.name, component), names.NAMESPACE_LABEL: cluster.namespace}


def service_account(cluster: Cluster, component: Component, name: str, *, token: bool) -> Object:
    """An account. `token` says whether pods under it get a token for the API server."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(cluster, component, name),
        "automountServiceAccountToken": token,
    }


def config_map(cluster: Cluster, component: Component, name: str, data: Mapping[str, str]) -> Object:
    """A ConfigMap with files."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(cluster, component, name),
        "data": dict(data),
    }


def port(name: str, number: int) -> Object:
    """A port of a Service, which is the same in the pods."""
    return {"name": name, "port": number, "targetPort": number, "protocol": "TCP"}


def service(cluster: Cluster, component: Component, name: str, ports: Sequence[Object], **spec: object) -> Object:
    """A Service over the pods of a component; `spec` adds fields or replaces them."""
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
    """A name in DNS for each pod of a StatefulSet, ready or not: they must find each other in order to become ready."""
    return service(cluster, component, name, ports, clusterIP="None", publishNotReadyAddresses=True)


def disruption_budget(cluster: Cluster, component: Component, name: str) -> Object:
    """One pod at a time may be evicted, as by the drain of a node."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(cluster, component, name),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": names.selector(cluster.name, component)}},
    }
