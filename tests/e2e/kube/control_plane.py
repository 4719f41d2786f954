"""etcd, API server, controller manager and scheduler, all in one network namespace.

Starts them for a run that has its certificates. The API server can be stopped and started separately, because an
operator must survive an outage of the API server.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kube.certificates import API_PORT
from kube.host import HarnessError, Process, kill_and_wait, succeeds, until
from kube.network import CONTROL_PLANE
from kube.state import Run

_READY_SECONDS: Final = 120.0
_AUDIT_POLICY: Final = """apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
"""


def start(run: Run, binaries: Path) -> Process:
    """Start all four. Return the process of etcd: a cluster without etcd has nothing left to save."""
    etcd = run.start(
        "etcd",
        CONTROL_PLANE,
        binaries / "etcd",
        f"--data-dir={run.folder / 'etcd'}",
        "--listen-client-urls=http://127.0.0.1:2379",
        "--advertise-client-urls=http://127.0.0.1:2379",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--unsafe-no-fsync",  # the data does not outlive a boot of the machine
    )
    start_api_server(run, binaries)
    run.start(
        "controller-manager",
        CONTROL_PLANE,
        binaries / "kube-controller-manager",
        f"--kubeconfig={run.pki / 'controller-manager.conf'}",
        f"--service-account-private-key-file={run.pki / 'sa.key'}",
        f"--root-ca-file={run.pki / 'ca.crt'}",
        "--use-service-account-credentials=true",
        f"--cluster-cidr={run.plan.all_pods()}",
        "--leader-elect=false",
        "--node-monitor-grace-period=20s",
    )
    run.start(
        "scheduler",
        CONTROL_PLANE,
        binaries / "kube-scheduler",
        f"--kubeconfig={run.pki / 'scheduler.conf'}",
        "--leader-elect=false",
    )
    return etcd


def start_api_server(run: Run, binaries: Path) -> None:
    """Start the API server and wait until it is ready. Does nothing if it runs already."""
    if run.process("apiserver") is None:
        policy = run.folder / "audit-policy.yaml"
        policy.write_text(_AUDIT_POLICY, encoding="utf-8")
        run.start(
            "apiserver",
            CONTROL_PLANE,
            binaries / "kube-apiserver",
            "--etcd-servers=http://127.0.0.1:2379",
            f"--service-cluster-ip-range={run.plan.services()}",
            f"--advertise-address={run.plan.control_plane()}",
            f"--secure-port={API_PORT}",
            f"--tls-cert-file={run.pki / 'api.crt'}",
            f"--tls-private-key-file={run.pki / 'api.key'}",
            f"--client-ca-file={run.pki / 'ca.crt'}",
            f"--token-auth-file={run.pki / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={run.pki / 'sa.pub'}",
            f"--service-account-signing-key-file={run.pki / 'sa.key'}",
            "--allow-privileged=true",
            "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-client-certificate={run.pki / 'kubelet-client.crt'}",
            f"--kubelet-client-key={run.pki / 'kubelet-client.key'}",
            f"--audit-policy-file={policy}",
            f"--audit-log-path={run.audit_log}",
        )
    until(
        lambda: _answers(run, binaries),
        what=f"readiness of the API server (see {run.log('apiserver')})",
        seconds=_READY_SECONDS,
    )


def _answers(run: Run, binaries: Path) -> bool:
    """Return whether the API server reports that it is ready. Raise `HarnessError` if it has ended."""
    if succeeds([binaries / "kubectl", "--kubeconfig", run.kubeconfig, "get", "--raw", "/readyz"]):
        return True
    if run.process("apiserver") is None:
        raise HarnessError(f"the API server has ended: see {run.log('apiserver')}")
    return False


def stop_api_server(run: Run) -> None:
    """Kill the API server, as a crash would. Does nothing if it does not run."""
    if process := run.process("apiserver"):
        kill_and_wait([process])
