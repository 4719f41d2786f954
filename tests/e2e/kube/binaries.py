"""Builds the programs of the cluster once, into a cache folder whose name is a hash of everything that is built in.

Reads `versions` and returns the folder with the binaries. Used by `cluster` and the command. Invariants: a folder that
exists is complete, because it is renamed to its final name after the last program; of two concurrent builders one waits
for the other.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
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
    """Return the folder with every program of `versions.program_names`. Build it if it is missing (5 to 10 minutes)."""
    folder = cache_folder() / f"bin-{versions.cache_key(_go_version())}"
    what = f"Kubernetes {versions.KUBERNETES} and its helpers into {folder}: 5 to 10 minutes, once"
    return _ensure(folder, versions.GO_TOOLS, what, say)


def ensure_oldest(say: Callable[[str], None]) -> Path:
    """Return the API server of the oldest supported Kubernetes. Build it if it is missing (3 to 5 minutes)."""
    folder = cache_folder() / f"oldest-{versions.oldest_key(_go_version())}"
    what = f"the API server of Kubernetes {versions.OLDEST_KUBERNETES} into {folder}: 3 to 5 minutes, once"
    return _ensure(folder, (versions.OLDEST,), what, say) / "kube-apiserver"


def _go_version() -> str:
    if shutil.which("go") is None:
        raise HarnessError("Go is needed to build Kubernetes: install it from https://go.dev/dl and put it on the PATH")
    return run(["go", "version"]).strip()


def _ensure(folder: Path, tools: Sequence[versions.Tool], what: str, say: Callable[[str], None]) -> Path:
    with locked(cache_folder() / "build.lock"):
        if not folder.exists():
            say(f"building {what}")
            _build_all(folder, tools, say)
    return folder


def _build_all(folder: Path, tools: Sequence[versions.Tool], say: Callable[[str], None]) -> None:
    unfinished = folder.with_suffix(".part")
    unfinished.mkdir(exist_ok=True)
    programs = [(tool, name, package) for tool in tools for name, package in tool.programs]
    for number, (tool, name, package) in enumerate(programs, start=1):
        what = f"[{number}/{len(programs)}] building {name}"
        say(what)
        # `-mod=readonly`: a build verifies the checksums in the repository and never changes them.
        environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false -trimpath"}
        run_long(
            ["go", "build", "-ldflags", versions.linker_flags(tool), "-o", unfinished / name, package],
            what=what,
            say=say,
            options=LongRun(folder=versions.TOOLS / tool.folder, environment=environment),
        )
    unfinished.rename(folder)
