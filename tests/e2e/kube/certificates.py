"""Keys, certificates, tokens and kubeconfigs of one cluster.

Writes files into the `pki` folder of a run. Only root may read them, and they are deleted with the run. Accounts use
bearer tokens; certificates are for the API server and for its connections to the kubelets.
"""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Final

from kube.host import run
from kube.state import Run

API_PORT: Final = 6443
_DAYS: Final = "30"
_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_AUTHORITY: Final = (
    "[req]\ndistinguished_name=name\nx509_extensions=authority\n[name]\n[authority]\n"
    "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\nsubjectKeyIdentifier=hash\n"
)
_LEAF: Final = (
    "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\nsubjectKeyIdentifier=hash\n"
    "authorityKeyIdentifier=keyid\nextendedKeyUsage={usage}\n"
)


def accounts(nodes: int) -> dict[str, tuple[str, str]]:
    """The users of the API server outside of pods: name and groups of each user, by the name of its kubeconfig."""
    found = {
        "admin": ("admin", "system:masters"),
        "controller-manager": ("system:kube-controller-manager", ""),
        "scheduler": ("system:kube-scheduler", ""),
        "proxy": ("system:kube-proxy", ""),
        "dns": ("odradek-e2e:dns", "system:masters"),
    }
    return found | {f"node{n}": (f"system:node:node{n}", "system:nodes") for n in range(1, nodes + 1)}


def api_names(run_of: Run) -> str:
    """The subject alternative names of the API server: its addresses and DNS names."""
    service = "kubernetes.default"
    names = ("kubernetes", service, f"{service}.svc", f"{service}.svc.cluster.local", "localhost")
    addresses = (run_of.plan.control_plane(), "127.0.0.1", run_of.plan.api_service())
    return ",".join([*(f"IP:{address}" for address in addresses), *(f"DNS:{name}" for name in names)])


def kubeconfig(server: str, authority: Path, token: str) -> str:
    """A kubeconfig of one user, as JSON, which is also YAML."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "e2e", "cluster": {"server": server, "certificate-authority": str(authority)}}],
            "users": [{"name": "e2e", "user": {"token": token}}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "e2e"}}],
            "current-context": "e2e",
        },
        indent=1,
    )


def build(run_of: Run) -> None:
    """Write all keys, certificates, tokens and kubeconfigs that the daemons of a run need."""
    folder = run_of.pki
    (folder / "ca.cnf").write_text(_AUTHORITY, encoding="utf-8")
    # fmt: off
    run(["openssl", "req", "-x509", *_KEY, "-config", folder / "ca.cnf", "-keyout", folder / "ca.key",
         "-out", folder / "ca.crt", "-subj", "/CN=odradek-e2e", "-days", _DAYS])
    # fmt: on
    run(
        [
            "openssl",
            "genpkey",
            "-algorithm",
            "EC",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-out",
            folder / "sa.key",
        ]
    )
    run(["openssl", "pkey", "-in", folder / "sa.key", "-pubout", "-out", folder / "sa.pub"])
    _sign(
        folder, "api", "/CN=kube-apiserver", f"{_LEAF.format(usage='serverAuth')}subjectAltName={api_names(run_of)}\n"
    )
    _sign(folder, "kubelet-client", "/O=system:masters/CN=apiserver-kubelet-client", _LEAF.format(usage="clientAuth"))
    server = f"https://{run_of.plan.control_plane()}:{API_PORT}"
    rows = []
    for name, (user, groups) in accounts(run_of.nodes).items():
        token = secrets.token_hex(16)
        rows.append(f'{token},{user},{name},"{groups}"')
        (folder / f"{name}.conf").write_text(kubeconfig(server, folder / "ca.crt", token), encoding="utf-8")
    (folder / "tokens.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def _sign(folder: Path, name: str, subject: str, extensions: str) -> None:
    key, request, settings = (folder / f"{name}.{end}" for end in ("key", "csr", "ext"))
    settings.write_text(extensions, encoding="utf-8")
    run(["openssl", "req", *_KEY, "-config", folder / "ca.cnf", "-keyout", key, "-out", request, "-subj", subject])
    # fmt: off
    run(["openssl", "x509", "-req", "-in", request, "-CA", folder / "ca.crt", "-CAkey", folder / "ca.key",
         "-CAcreateserial", "-days", _DAYS, "-extfile", settings, "-out", folder / f"{name}.crt"])
    # fmt: on
