"""Objects that belong to a Pipeline or a Mirror. Pure.

Kubernetes deletes the objects together with their resource. Those of a Cluster are built with `objects/parts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from odradek_operator.crds.types import API_VERSION
from odradek_operator.objects.names import METRICS_PORT_NAME
from odradek_operator.objects.parts import Object
from odradek_operator.objects.wanted import WantedObject

_TOKEN_SECONDS: Final = 3_600
_META: Final = "__meta_kubernetes"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceOwner:
    """A resource that owns objects."""

    kind: str
    name: str
    namespace: str
    uid: str
    labels: Mapping[str, str]
    """Labels of all objects other than pods."""

    def reference(self) -> Object:
        """Return the reference with which Kubernetes deletes an object together with the resource."""
        return {
            "apiVersion": API_VERSION,
            "kind": self.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }

    def object(self, api_version: str, kind: str, name: str, **content: Any) -> Object:
        """Return an object that the resource owns."""
        metadata = {
            "name": name,
            "namespace": self.namespace,
            "labels": dict(self.labels),
            "ownerReferences": [self.reference()],
        }
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}


def wanted_object(body: Object) -> WantedObject:
    """Return an owned object in the form in which it is applied."""
    metadata = body["metadata"]
    return WantedObject(
        api_version=body["apiVersion"],
        kind=body["kind"],
        name=metadata["name"],
        namespace=metadata["namespace"],
        body=body,
        owned=True,
    )


def pod_monitor(owner: ResourceOwner, name: str, selector: Mapping[str, str], label: str, pod_label: str) -> Object:
    """Return the PodMonitor of the selected pods.

    Series get the labels that dashboards use for pods, and `label` with the value of the pod's `pod_label`, in the
    form of Prometheus: `odradek_dev_pipeline`.
    """
    copied = {
        "namespace": "namespace",
        "kubernetes_pod_name": "pod_name",
        "node_name": "pod_node_name",
        label: f"pod_label_{pod_label}",
    }
    relabelings = [
        {"action": "replace", "sourceLabels": [f"{_META}_{source}"], "targetLabel": target}
        for target, source in copied.items()
    ]
    spec = {
        "selector": {"matchLabels": dict(selector)},
        "podMetricsEndpoints": [{"port": METRICS_PORT_NAME, "path": "/metrics", "relabelings": relabelings}],
    }
    return owner.object("monitoring.coreos.com/v1", "PodMonitor", name, spec=spec)


def login_volume(name: str, authority: str, audience: str | None) -> Object:
    """Return the volume with `ca.crt`, the authority of the brokers, and with an audience `token`, a login to them.

    `authority`: Secret with `ca.crt`. The kubelet renews the token.
    """
    sources: list[Object] = [{"secret": {"name": authority, "items": [{"key": "ca.crt", "path": "ca.crt"}]}}]
    if audience is not None:
        token = {"audience": audience, "expirationSeconds": _TOKEN_SECONDS, "path": "token"}
        sources.append({"serviceAccountToken": token})
    return {"name": name, "projected": {"sources": sources}}
