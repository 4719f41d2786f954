"""The cluster under test, as tests get it from the fixture of this name."""

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
    """Ways to talk to the cluster; `own` is None where it is not the harness's, but the one of $KUBECONFIG."""

    kubectl: Kubectl
    helm: Helm
    own: Cluster | None
    _removals: dict[str, Callable[[], None]] = field(default_factory=dict)
    """Namespaces that are being deleted, and what to do when they are gone."""

    def make_namespace(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        """Make a namespace, and wait until it takes pods: it does once its ServiceAccount is there."""
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels or {})}}
        self.kubectl.apply(made)
        within = self.kubectl.within(name)
        eventually(lambda: within.get("serviceaccount", "default"), what=f"the default ServiceAccount of {name}")

    def remove_namespace(self, name: str, then: Callable[[], None] = lambda: None) -> None:
        """Delete a namespace without waiting: its pods may take a minute to stop, and the next test runs meanwhile.

        `await_removals` waits for it and then calls `then`.
        """
        self.kubectl.delete("namespace", name, wait=False)
        self._removals[name] = then

    def await_removals(self) -> None:
        """Wait for the end of namespaces given to `remove_namespace`, unless the whole cluster is deleted anyway."""
        for name, then in self._removals.items():
            eventually(
                lambda name=name: self.kubectl.get("namespace", name) is None,
                what=f"the end of namespace {name}",
                seconds=REMOVAL_SECONDS,
            )
            then()
        self._removals.clear()
