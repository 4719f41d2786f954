"""Which programs are built for the cluster, from which modules, and which Debian packages it needs.

Reads the folder of go.mod files and has tables for `binaries` and `packages`. Writes no files. Invariant: the cache key
changes whenever anything changes that affects a binary.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TOOLS: Final = Path(__file__).parent / "tools"

KUBERNETES: Final = "1.34.4"
"""Must be the version that tools/kubernetes/go.mod requires. A test compares them."""

OLDEST_KUBERNETES: Final = "1.29.15"
"""The oldest version that the chart supports. Must be the version that oldest/go.mod requires."""

_VERSION_PACKAGE: Final = "k8s.io/component-base/version"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One Go module of `tools` and the programs that are built in it.

    `programs` maps the name of a binary to its Go package. `stamps` are string variables set by the linker: without
    them Kubernetes reports version 0.0.0, and charts refuse it.
    """

    folder: str
    programs: tuple[tuple[str, str], ...]
    stamps: tuple[tuple[str, str], ...] = ()


def _stamps(version: str) -> tuple[tuple[str, str], ...]:
    """The linker variables that set the version of a Kubernetes program."""
    major, minor, _ = version.split(".")
    return (
        (f"{_VERSION_PACKAGE}.gitVersion", f"v{version}"),
        (f"{_VERSION_PACKAGE}.gitMajor", major),
        (f"{_VERSION_PACKAGE}.gitMinor", minor),
        (f"{_VERSION_PACKAGE}.gitTreeState", "archive"),
    )


GO_TOOLS: Final = (
    Tool(folder="pause", programs=(("pause", "."),)),
    Tool(folder="etcd", programs=(("etcd", "go.etcd.io/etcd/server/v3"),)),
    Tool(
        folder="kubernetes",
        programs=tuple(
            (name, f"k8s.io/kubernetes/cmd/{name}")
            for name in (
                "kube-apiserver",
                "kube-controller-manager",
                "kube-scheduler",
                "kubelet",
                "kube-proxy",
                "kubectl",
            )
        ),
        stamps=_stamps(KUBERNETES),
    ),
    Tool(folder="helm", programs=(("helm", "helm.sh/helm/v3/cmd/helm"),)),
    Tool(folder="coredns", programs=(("coredns", "."),)),
)
"""In the order of building: small modules first, so that a broken proxy is noticed early."""

OLDEST: Final = Tool(
    folder="../oldest",
    programs=(("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),),
    stamps=_stamps(OLDEST_KUBERNETES),
)
"""The API server of the oldest supported version. It is built separately: only one test of level full needs it."""

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


def program_names() -> tuple[str, ...]:
    """The names of all binaries of a build."""
    return tuple(name for tool in GO_TOOLS for name, _ in tool.programs)


def linker_flags(tool: Tool) -> str:
    """The value of `go build -ldflags`: no symbols, and the stamps of the tool."""
    return " ".join(("-s", "-w", *(f"-X {variable}={value}" for variable, value in tool.stamps)))


def oldest_key(go_version: str) -> str:
    """A cache key like `cache_key`, for the oldest API server."""
    digest = hashlib.sha256(f"{go_version}\n{OLDEST!r}\n".encode())
    for name in ("go.mod", "go.sum"):
        digest.update((TOOLS / OLDEST.folder / name).read_bytes())
    return digest.hexdigest()[:16]


def cache_key(go_version: str, tools: Path = TOOLS) -> str:
    """The cache key of the binaries: a hash of all their inputs (sources, checksums, flags, compiler)."""
    digest = hashlib.sha256(f"{go_version}\n{GO_TOOLS!r}\n".encode())
    for path in sorted(tools.glob("*/*")):
        digest.update(f"{path.relative_to(tools)}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
