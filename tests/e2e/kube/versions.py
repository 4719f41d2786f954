"""Which programs are built for the cluster, from which modules, and which Debian packages it needs.

Reads the folders of Go modules and has tables for `binaries` and `packages`. Writes no files. Invariant: the cache key
changes whenever anything changes that affects a binary.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent

KUBERNETES: Final = "1.34.4"
"""Must be the version that tools/go.mod requires. A test compares them."""

OLDEST_KUBERNETES: Final = "1.29.15"
"""The oldest version that the chart supports. Must be the version that oldest/go.mod requires."""

CERT_MANAGER: Final = "1.21.2"
"""Must be the version that issuing/go.mod requires. A test compares them."""

_VERSION_PACKAGE: Final = "k8s.io/component-base/version"


@dataclass(frozen=True, slots=True, kw_only=True)
class GoModule:
    """A Go module and the programs that are built in it.

    `packages` are the Go packages of the programs. The name of a program is the last part of its package. `stamps` are
    string variables set by the linker: without them Kubernetes reports version 0.0.0, and charts refuse it.
    """

    folder: Path
    packages: tuple[str, ...]
    stamps: tuple[tuple[str, str], ...]

    @property
    def programs(self) -> tuple[str, ...]:
        """The names of the programs."""
        return tuple(package.rpartition("/")[2] for package in self.packages)

    def linker_flags(self) -> str:
        """The value of `go build -ldflags`: no symbols, and the stamps."""
        return " ".join(("-s", "-w", *(f"-X {variable}={value}" for variable, value in self.stamps)))

    def cache_key(self, go_version: str) -> str:
        """The cache key of the programs: a hash of all their inputs (sources, checksums, flags, compiler)."""
        digest = hashlib.sha256(f"{go_version}\n{self.packages!r}\n{self.stamps!r}\n".encode())
        for path in sorted(path for path in self.folder.rglob("*") if path.is_file()):
            digest.update(f"{path.relative_to(self.folder)}\n".encode())
            digest.update(path.read_bytes())
        return digest.hexdigest()[:16]


def _stamps(version: str) -> tuple[tuple[str, str], ...]:
    """The linker variables that set the version of a Kubernetes program."""
    major, minor, _ = version.split(".")
    return (
        (f"{_VERSION_PACKAGE}.gitVersion", f"v{version}"),
        (f"{_VERSION_PACKAGE}.gitMajor", major),
        (f"{_VERSION_PACKAGE}.gitMinor", minor),
        (f"{_VERSION_PACKAGE}.gitTreeState", "archive"),
    )


TOOLS: Final = GoModule(
    folder=_HERE / "tools",
    packages=(
        "./pause",
        "./etcd",
        "./coredns",
        "helm.sh/helm/v3/cmd/helm",
        "k8s.io/kubernetes/cmd/kube-apiserver",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
        "k8s.io/kubernetes/cmd/kube-scheduler",
        "k8s.io/kubernetes/cmd/kubelet",
        "k8s.io/kubernetes/cmd/kube-proxy",
        "k8s.io/kubernetes/cmd/kubectl",
    ),
    stamps=_stamps(KUBERNETES),
)
"""All programs of the cluster. They are in one module, so that packages which several of them use are compiled once."""

OLDEST: Final = GoModule(
    folder=_HERE / "oldest",
    packages=("k8s.io/kubernetes/cmd/kube-apiserver",),
    stamps=_stamps(OLDEST_KUBERNETES),
)
"""The API server of the oldest supported version. It is built separately: only one test of level full needs it."""

ISSUING: Final = GoModule(folder=_HERE / "issuing", packages=("./cert-manager",), stamps=())
"""The controllers of cert-manager. Only one test of level full needs them."""

DEBIAN_PACKAGES: Final = (
    ("containerd", "containerd"),
    ("runc", "runc"),
    ("containernetworking-plugins", "/usr/lib/cni/bridge"),
    ("iproute2", "ip"),
    ("iptables", "iptables"),
    ("conntrack", "conntrack"),
    ("nftables", "nft"),
    ("socat", "socat"),
    ("openssl", "openssl"),
    ("buildah", "buildah"),
    ("debootstrap", "debootstrap"),
)
"""The name of a package, and the program on the PATH or the file that shows that it is installed."""
