"""The project's images on the nodes of the cluster under test.

Enters: names of images. Leaves: docker-archive files in the cache, and nodes that have them. Building is the work of
`images/build.py`, which also knows by a hash of everything that goes into an image whether there is anything to do.
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
"""The image to build on; without it a Debian is made by debootstrap, which needs no registry."""
READY: Final = "ODRADEK_E2E_IMAGES"
"""A folder of archives that are ready: nothing is built then, whatever has changed."""


class ImagesError(Exception):
    """An archive that should be ready is missing."""


def reference(name: str) -> str:
    """What a pod calls an image."""
    return f"{PREFIX}/{name}:{VERSION}"


def build_command(names: Sequence[str], output: Path, environment: Mapping[str, str]) -> list[str]:
    """How images are built."""
    command = [sys.executable, str(ROOT / "images" / "build.py"), "--output", str(output), "--version", VERSION]
    command += ["--prefix", PREFIX, "--base", environment.get(BASE, "debian")]
    for name in names:
        command += ["--only", name]
    return command


def ensure(names: Sequence[str], say: Callable[[str], None]) -> dict[str, Path]:
    """Archives of images by name, as the sources are now; those that are up to date are not built again."""
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
    """Images on the nodes of a cluster, each brought there once a session.

    On a cluster that is not the harness's own nothing is brought: its nodes must be able to pull the images.
    """

    def __init__(self, own: Cluster | None, say: Callable[[str], None]) -> None:
        self._own: Final = own
        self._say: Final = say
        self._loaded: set[str] = set()

    def bring(self, *names: str) -> dict[str, str]:
        """References by name, once all nodes have the images. Raises `HarnessError` if one cannot be built."""
        if self._own is not None:
            missing = [name for name in names if name not in self._loaded]
            for name, archive in ensure(missing, self._say).items():
                self._say(f"loading {name} into the nodes")
                self._own.load(archive)
            self._loaded.update(missing)
        return {name: reference(name) for name in names}
