"""The cluster under test, as tests get it from the fixture of this name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kube.cluster import Cluster
from support.helm import Helm
from support.kubectl import Kubectl
from support.waiting import eventually


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubernetes:
    """Ways to talk to the cluster; `own` is None where it is not the harness's, but the one of $KUBECONFIG."""

    kubectl: Kubectl
    helm: Helm
    own: Cluster | None

    def make_namespace(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        """Make a namespace, and wait until it takes pods: it does once its ServiceAccount is there."""
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels or {})}}
        self.kubectl.apply(made)
        within = self.kubectl.within(name)
        eventually(lambda: within.get("serviceaccount", "default"), what=f"the default ServiceAccount of {name}")
