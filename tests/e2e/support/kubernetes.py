"""The cluster under test, as the fixture `kubernetes` provides it, and pods of tests beside the product."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kube.cluster import Cluster
from support.helm import Helm
from support.kubectl import Kubectl
from support.waiting import eventually

REMOVAL_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubernetes:
    """Access to the cluster. `own` is the harness's own cluster, or None if the cluster is that of $KUBECONFIG."""

    kubectl: Kubectl
    helm: Helm
    own: Cluster | None
    _removals: dict[str, Callable[[], None]] = field(default_factory=dict)
    """The namespaces that are being deleted, each with the function to call when it is gone."""

    def make_namespace(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        """Create a namespace and wait until pods can be created in it, which needs its ServiceAccount."""
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels or {})}}
        self.kubectl.apply(made)
        within = self.kubectl.within(name)
        eventually(lambda: within.get("serviceaccount", "default"), what=f"the default ServiceAccount of {name}")

    def remove_namespace(self, name: str, then: Callable[[], None] = lambda: None) -> None:
        """Delete a namespace without waiting. Its pods may take a minute to stop; meanwhile the next test runs.

        `await_removals` waits until it is gone and then calls `then`.
        """
        self.kubectl.delete("namespace", name, wait=False)
        self._removals[name] = then

    def await_removals(self) -> None:
        """Wait until the namespaces of `remove_namespace` are gone, unless the whole cluster is deleted anyway."""
        for name, then in self._removals.items():
            eventually(
                lambda name=name: self.kubectl.get("namespace", name) is None,
                what=f"the end of namespace {name}",
                seconds=REMOVAL_SECONDS,
            )
            then()
        self._removals.clear()


def idle_pod(
    name: str,
    image: str,
    *,
    labels: Mapping[str, str] | None = None,
    mounts: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A pod that does nothing, so that a test can run commands in it. It meets the restricted security standard.

    `mounts`: volumes by the path at which the container has them, to read. `spec`: further fields of the pod.
    """
    volumes = {f"volume-{number}": (path, volume) for number, (path, volume) in enumerate((mounts or {}).items())}
    container = {
        "name": "main",
        "image": image,
        "command": ["sleep", "3600"],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": key, "mountPath": path, "readOnly": True} for key, (path, _) in volumes.items()],
    }
    user = {"runAsUser": 10001, "fsGroup": 10001, "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {
            "containers": [container],
            "volumes": [{"name": key, **volume} for key, (_, volume) in volumes.items()],
            "securityContext": user,
            "terminationGracePeriodSeconds": 0,
            **spec,
        },
    }
