"""Builds the programs of the cluster once, into a cache folder whose name is a hash of everything that is built in.

Reads `versions` and returns the folder with the binaries. Used by `cluster` and the command. Invariants: a folder that
exists is complete, because it is renamed to its final name after the last program; of two concurrent builders one waits
for the other.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kube import versions
from kube.host import HarnessError, LongRun, run, run_long


def cache_folder() -> Path:
    """The folder for everything that is slow to build: `$XDG_CACHE_HOME/odradek-e2e`."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "odradek-e2e"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file. Wait while another process holds it; the kernel releases it when its holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def ensure(say: Callable[[str], None]) -> Path:
    """Return the folder with every program of `versions.TOOLS`. Build it if it is missing (5 to 10 minutes)."""
    what = f"Kubernetes {versions.KUBERNETES} and its tools: 5 to 10 minutes, once"
    return _ensure("bin", versions.TOOLS, what, say)


def ensure_oldest(say: Callable[[str], None]) -> Path:
    """Return the API server of the oldest supported Kubernetes. Build it if it is missing (3 to 5 minutes)."""
    what = f"the API server of Kubernetes {versions.OLDEST_KUBERNETES}: 3 to 5 minutes, once"
    return _ensure("oldest", versions.OLDEST, what, say) / "kube-apiserver"


def ensure_cert_manager(say: Callable[[str], None]) -> Path:
    """Return the program with cert-manager's controllers. Build it if it is missing (2 to 5 minutes)."""
    what = f"cert-manager {versions.CERT_MANAGER}: 2 to 5 minutes, once"
    return _ensure("issuing", versions.ISSUING, what, say) / "cert-manager"


def cert_manager_definitions() -> Path:
    """The folder with the CRDs of cert-manager: a part of its Go module."""
    module = "github.com/cert-manager/cert-manager"
    found = run(["go", "-C", versions.ISSUING.folder, "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", module])
    return Path(found.strip()) / "deploy/crds"


def _go_version() -> str:
    if shutil.which("go") is None:
        raise HarnessError("Go is needed to build Kubernetes: install it from https://go.dev/dl and put it on the PATH")
    return run(["go", "version"]).strip()


def _ensure(kind: str, module: versions.GoModule, what: str, say: Callable[[str], None]) -> Path:
    folder = cache_folder() / f"{kind}-{module.cache_key(_go_version())}"
    with locked(cache_folder() / "build.lock"):
        if not folder.exists():
            say(f"building {what}, into {folder}")
            _build(folder, module, say)
    return folder


def _build(folder: Path, module: versions.GoModule, say: Callable[[str], None]) -> None:
    unfinished = folder.with_suffix(".part")
    unfinished.mkdir(exist_ok=True)
    # `-mod=readonly`: a build verifies the checksums in the repository and never changes them.
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false -trimpath"}
    # One build of all programs: while one is linked, which takes one core, the packages of the others are compiled.
    run_long(
        ["go", "build", "-ldflags", module.linker_flags(), "-o", unfinished, *module.packages],
        what=f"building {module.folder.name}",
        say=say,
        options=LongRun(folder=module.folder, environment=environment),
    )
    unfinished.rename(folder)
