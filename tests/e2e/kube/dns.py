"""CoreDNS beside the control plane. Pods reach it by the cluster IP that kubelets write into resolv.conf.

Creates the Service `kube-dns` for a run with an API server. CoreDNS is its only endpoint. CoreDNS runs outside of the
nodes, so that DNS survives the death of a node.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from kube.host import run as call
from kube.network import CONTROL_PLANE
from kube.state import Run

_PORTS: Final = ({"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"})
_SECONDS_TO_LIVE: Final = 2
"""Short: tests move pods between nodes and must not wait for cached answers to expire."""


def corefile(run: Run) -> str:
    """CoreDNS's configuration. It resolves the names of the cluster and no others."""
    return f""".:53 {{
  errors
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {run.pki / "dns.conf"} e2e
    pods insecure
    ttl {_SECONDS_TO_LIVE}
  }}
}}
"""


def objects(run: Run) -> list[dict[str, Any]]:
    """The Service and its endpoint."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system"},
        "spec": {"clusterIP": run.plan.dns_service(), "ports": list(_PORTS)},
    }
    endpoints = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "kube-dns-control-plane",
            "namespace": "kube-system",
            "labels": {"kubernetes.io/service-name": "kube-dns"},
        },
        "addressType": "IPv4",
        "ports": list(_PORTS),
        "endpoints": [{"addresses": [run.plan.control_plane()], "conditions": {"ready": True}}],
    }
    return [service, endpoints]


def start(run: Run, binaries: Path) -> None:
    """Start CoreDNS and create its Service in the cluster."""
    file = run.folder / "Corefile"
    file.write_text(corefile(run), encoding="utf-8")
    run.start("coredns", CONTROL_PLANE, binaries / "coredns", "-conf", file)
    wanted = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects(run)})
    call([binaries / "kubectl", "--kubeconfig", run.kubeconfig, "apply", "-f", "-"], stdin=wanted)
