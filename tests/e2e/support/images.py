"""The project's images, built once for each state of the sources and kept in the cache.

Enters: names of images. Leaves: docker-archive files, and nodes that have them. Building is the work of
`images/build.py`; this knows only when it has to be done.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from kube.binaries import cache_folder, locked
from kube.cluster import Cluster

ROOT: Final = Path(__file__).resolve().parents[3]
PREFIX: Final = "odradek"
VERSION: Final = "0.1.0"
SOURCES: Final = (
    "images",
    "broker/odradek",
    "operator/odradek_operator",
    "spark/pyspark_odradek",
    "pyproject.toml",
    "constraints.txt",
    "README.md",
)
"""Everything that goes into an image."""

_KEPT_STATES: Final = 2
_BUILD_SECONDS: Final = 3600.0
_NO_SOURCE: Final = frozenset({"__pycache__", ".mypy_cache"})


class ImagesError(Exception):
    """An image could not be built."""


def reference(name: str) -> str:
    """What a pod calls an image."""
    return f"{PREFIX}/{name}:{VERSION}"


def source_files(root: Path) -> Iterable[Path]:
    """Files that go into images, in a fixed order."""
    for source in SOURCES:
        path = root / source
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (file for file in found if file.is_file() and not _NO_SOURCE.intersection(file.parts))


def content_key(root: Path = ROOT) -> str:
    """Names a state of the sources by their paths and bytes."""
    digest = hashlib.sha256()
    for path in source_files(root):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root)}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def ensure(names: Iterable[str], say: Callable[[str], None]) -> dict[str, Path]:
    """Archives of images by name; what this state of the sources lacks is built."""
    cache = cache_folder()
    folder = cache / f"images-{content_key()}"
    wanted = {name: folder / f"{name}.tar" for name in names}
    with locked(cache / "images.lock"):
        missing = [name for name, path in wanted.items() if not path.exists()]
        if missing:
            say(f"building images: {', '.join(missing)}")
            _build(missing, folder)
        folder.touch()
        prune(cache)
    return wanted


def _build(names: list[str], folder: Path) -> None:
    part = folder.with_name(f"{folder.name}.part")
    part.mkdir(parents=True, exist_ok=True)
    folder.mkdir(exist_ok=True)
    command = [sys.executable, str(ROOT / "images" / "build.py"), "--output", str(part)]
    for name in names:
        command += ["--only", name]
    done = subprocess.run(
        command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False, timeout=_BUILD_SECONDS
    )
    if done.returncode != 0:
        raise ImagesError(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-6000:]}")
    for name in names:
        (part / f"{name}.tar").rename(folder / f"{name}.tar")
    shutil.rmtree(part)


def prune(cache: Path, keep: int = _KEPT_STATES) -> None:
    """Forget all states but the ones used last."""
    states = [path for path in cache.glob("images-*") if path.is_dir() and not path.name.endswith(".part")]
    for path in sorted(states, key=lambda state: state.stat().st_mtime, reverse=True)[keep:]:
        shutil.rmtree(path)


class Images:
    """Images on the nodes of a cluster, each brought there once.

    On a cluster that is not the harness's own nothing is brought: its nodes must be able to pull the images.
    """

    def __init__(self, own: Cluster | None, say: Callable[[str], None]) -> None:
        self._own: Final = own
        self._say: Final = say
        self._loaded: set[str] = set()

    def bring(self, *names: str) -> dict[str, str]:
        """References by name, once all nodes have the images."""
        if self._own is not None:
            for name, archive in ensure([name for name in names if name not in self._loaded], self._say).items():
                self._own.load(archive)
                self._loaded.add(name)
        return {name: reference(name) for name in names}
