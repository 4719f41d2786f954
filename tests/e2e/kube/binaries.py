"""Builds the programs of the cluster once, into a cache that is named by what goes into them.

Enters: `versions`. Leaves: the folder of binaries. Called by `cluster` and the command. Invariants: a folder that
exists is whole (it is renamed into place after the last program); of two builders at once one waits for the other.
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
    """Where everything is kept that is slow to make: `$XDG_CACHE_HOME/odradek-e2e`."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "odradek-e2e"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file's lock, waiting for whoever has it; a process that dies gives it back."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def ensure(say: Callable[[str], None]) -> Path:
    """The folder with every program of `versions.program_names`, built if it is not there yet (5-10 minutes, once)."""
    folder = cache_folder() / f"bin-{versions.cache_key(_go_version())}"
    what = f"Kubernetes {versions.KUBERNETES} and its helpers into {folder}: 5 to 10 minutes, once"
    return _ensure(folder, versions.GO_TOOLS, what, say)


def ensure_oldest(say: Callable[[str], None]) -> Path:
    """The API server of the oldest supported Kubernetes, built if it is not there yet (3-5 minutes, once)."""
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
        # `-mod=readonly`: the sums in the repository decide, a build never changes them.
        environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false -trimpath"}
        run_long(
            ["go", "build", "-ldflags", versions.linker_flags(tool), "-o", unfinished / name, package],
            what=what,
            say=say,
            options=LongRun(folder=versions.TOOLS / tool.folder, environment=environment),
        )
    unfinished.rename(folder)
