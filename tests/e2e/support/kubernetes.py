"""The cluster under test, as tests get it from the fixture of this name."""

from __future__ import annotations

from dataclasses import dataclass

from kube.cluster import Cluster
from support.helm import Helm
from support.kubectl import Kubectl


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubernetes:
    """Ways to talk to the cluster; `own` is None where it is not the harness's, but the one of $KUBECONFIG."""

    kubectl: Kubectl
    helm: Helm
    own: Cluster | None
