"""Loads the project's images into the nodes of the cluster under test.

Builds docker-archive files in the cache and loads them. `images/build.py` does the build. It skips images that are up
to date: it compares a hash of all inputs of an image.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from kube.binaries import cache_folder, locked
from kube.cluster import Cluster
from kube.host import LongRun, run_long

ROOT: Final = Path(__file__).resolve().parents[3]
PREFIX: Final = "odradek"
VERSION: Final = "0.1.0"
BASE: Final = "ODRADEK_E2E_BASE"
"""The name of the base image. Without it debootstrap creates a Debian base, which needs no registry."""
READY: Final = "ODRADEK_E2E_IMAGES"
"""A folder with finished archives. If it is set, nothing is built, whatever has changed."""


class ImagesError(Exception):
    """A finished archive is missing."""


def reference(name: str) -> str:
    """The name that a pod uses for an image."""
    return f"{PREFIX}/{name}:{VERSION}"


def build_command(names: Sequence[str], output: Path, environment: Mapping[str, str]) -> list[str]:
    """The command that builds images."""
    command = [sys.executable, str(ROOT / "images" / "build.py"), "--output", str(output), "--version", VERSION]
    command += ["--prefix", PREFIX, "--base", environment.get(BASE, "debian")]
    for name in names:
        command += ["--only", name]
    return command


def ensure(names: Sequence[str], say: Callable[[str], None]) -> dict[str, Path]:
    """Build the images that are out of date. Return the archives by the name of the image."""
    if ready := os.environ.get(READY):
        return {name: _ready(Path(ready) / f"{name}.tar") for name in names}
    output = cache_folder() / "images"
    if names:
        with locked(cache_folder() / "images.lock"):
            say(f"images of {', '.join(names)}: building what has changed")
            options = LongRun(folder=ROOT, show_output=True)
            run_long(build_command(names, output, os.environ), what="building images", say=say, options=options)
    return {name: output / f"{name}.tar" for name in names}


def _ready(archive: Path) -> Path:
    if not archive.is_file():
        raise ImagesError(f"{READY} names a folder without {archive.name}: {archive.parent}")
    return archive


class Images:
    """Loads images into the nodes of a cluster, each at most once per session.

    On a foreign cluster nothing is loaded: its nodes must be able to pull the images.
    """

    def __init__(self, own: Cluster | None, say: Callable[[str], None]) -> None:
        self._own: Final = own
        self._say: Final = say
        self._loaded: set[str] = set()

    def bring(self, *names: str) -> dict[str, str]:
        """Load images into all nodes. Return their references by name. Raise `HarnessError` if one cannot be built."""
        if self._own is not None:
            missing = [name for name in names if name not in self._loaded]
            for name, archive in ensure(missing, self._say).items():
                self._say(f"loading {name} into the nodes")
                self._own.load(archive)
            self._loaded.update(missing)
        return {name: reference(name) for name in names}
