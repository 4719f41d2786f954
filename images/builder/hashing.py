"""The hash of everything that an image is built from. If it has not changed since the last build, no build is needed.

The input is a list of files, and values such as the version. The hash covers names, contents and execute permissions of
files, but not their times. Byte code and caches are ignored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

IGNORED: Final = frozenset({"__pycache__", ".mypy_cache", ".ruff_cache"})


def files_below(path: Path) -> Iterator[Path]:
    """Yield a file, or all files in a folder, sorted by name."""
    if path.is_file():
        yield path
        return
    for entry in sorted(path.iterdir()):
        if entry.name not in IGNORED:
            yield from files_below(entry)


def content_hash(root: Path, paths: Iterable[Path], values: Iterable[str]) -> str:
    """Return the hash of files and folders below `root`, and of `values`. The order of the paths does not matter."""
    digest = hashlib.sha256()
    for path in sorted({file for given in paths for file in files_below(given)}):
        _add(digest, path.relative_to(root).as_posix().encode())
        _add(digest, b"x" if path.stat().st_mode & 0o100 else b"-")
        _add(digest, path.read_bytes())
    for value in values:
        _add(digest, value.encode())
    return digest.hexdigest()


def _add(digest: hashlib._Hash, part: bytes) -> None:
    """Add a part with its length, so that different lists of parts never result in the same bytes."""
    digest.update(len(part).to_bytes(8, "big"))
    digest.update(part)


def is_fresh(archive: Path, wanted: str) -> bool:
    """Whether the archive exists and was built from input with this hash."""
    note = hash_file(archive)
    return archive.is_file() and note.is_file() and note.read_text(encoding="ascii").strip() == wanted


def hash_file(archive: Path) -> Path:
    """Return the path of the file with the hash of an archive."""
    return archive.with_name(archive.name + ".hash")
