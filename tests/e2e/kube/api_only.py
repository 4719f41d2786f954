"""An API server with its etcd on the loopback interface: no nodes, no controllers, no root.

The tests of the oldest supported Kubernetes and of cert-manager use it. They pass the programs and get a kubeconfig.
"""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final

from kube.host import HarnessError, run, succeeds, until

_READY_SECONDS: Final = 120.0


@contextmanager
def serving(programs: Path, api_server: Path, folder: Path) -> Iterator[Path]:
    """Run an API server for the duration of the block. Yield the kubeconfig of an administrator.

    `programs` is the folder with etcd and kubectl. `folder` is an empty folder for data and logs.
    """
    clients, peers, port = _free_ports(3)
    with ExitStack() as stack:
        etcd = f"http://127.0.0.1:{clients}"
        start(
            stack,
            folder,
            [
                programs / "etcd",
                f"--data-dir={folder / 'etcd'}",
                f"--listen-client-urls={etcd}",
                f"--advertise-client-urls={etcd}",
                f"--listen-peer-urls=http://127.0.0.1:{peers}",
                "--unsafe-no-fsync",
            ],
        )
        kubeconfig = _accounts(folder, port)
        process = start(
            stack,
            folder,
            [
                api_server,
                f"--etcd-servers={etcd}",
                "--bind-address=127.0.0.1",
                f"--secure-port={port}",
                f"--cert-dir={folder / 'certificates'}",
                "--service-cluster-ip-range=10.0.0.0/24",
                f"--token-auth-file={folder / 'tokens.csv'}",
                "--authorization-mode=RBAC",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={folder / 'accounts.pub'}",
                f"--service-account-signing-key-file={folder / 'accounts.key'}",
            ],
        )

        def answers() -> bool:
            if process.poll() is not None:
                raise HarnessError(f"the API server has ended: see {folder}/{api_server.name}.log")
            return succeeds([programs / "kubectl", "--kubeconfig", kubeconfig, "get", "--raw", "/readyz"])

        until(answers, what=f"readiness of the API server (see {folder})", seconds=_READY_SECONDS)
        yield kubeconfig


def start(stack: ExitStack, folder: Path, command: Sequence[str | Path]) -> subprocess.Popen[bytes]:
    """Start a daemon that ends when the stack is closed."""
    log = stack.enter_context((folder / f"{Path(command[0]).name}.log").open("wb"))
    process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    stack.enter_context(process)
    stack.callback(process.kill)
    return process


def _accounts(folder: Path, port: int) -> Path:
    """Write the key of service accounts and an administrator's token. Return the administrator's kubeconfig."""
    key, token, path = folder / "accounts.key", secrets.token_hex(16), folder / "kubeconfig"
    run(["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-out", key])
    run(["openssl", "pkey", "-in", key, "-pubout", "-out", folder / "accounts.pub"])
    (folder / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n', encoding="utf-8")
    # The API server signs its certificate itself and appends the certificate of the authority to the file.
    authority = str(folder / "certificates" / "apiserver.crt")
    server = {"server": f"https://127.0.0.1:{port}", "certificate-authority": authority}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "only", "cluster": server}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "only", "context": {"cluster": "only", "user": "admin"}}],
        "current-context": "only",
    }
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(closing(socket.socket())) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
