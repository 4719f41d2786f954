"""The cluster under test, as the fixture `kubernetes` provides it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

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
