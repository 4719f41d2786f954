"""What an image follows from, as one hash: with the hash of the last build it says whether anything is to be done.

Enters: files, and values such as the version. Leaves: hexadecimal digits. Names and contents of files count, their
times do not; byte code and caches are left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

LEFT_OUT: Final = frozenset({"__pycache__", ".mypy_cache", ".ruff_cache"})


def files_below(path: Path) -> Iterator[Path]:
    """A file itself, or every file of a folder, in the order of names."""
    if path.is_file():
        yield path
        return
    for entry in sorted(path.iterdir()):
        if entry.name not in LEFT_OUT:
            yield from files_below(entry)


def content_hash(root: Path, paths: Iterable[Path], values: Iterable[str]) -> str:
    """The hash of files and folders under `root` and of further values; the order of the paths does not matter."""
    digest = hashlib.sha256()
    for path in sorted({file for given in paths for file in files_below(given)}):
        _add(digest, path.relative_to(root).as_posix().encode())
        _add(digest, b"x" if path.stat().st_mode & 0o100 else b"-")
        _add(digest, path.read_bytes())
    for value in values:
        _add(digest, value.encode())
    return digest.hexdigest()


def _add(digest: hashlib._Hash, part: bytes) -> None:
    """With its length, so that no two lists of parts run together to the same bytes."""
    digest.update(len(part).to_bytes(8, "big"))
    digest.update(part)


def is_fresh(archive: Path, wanted: str) -> bool:
    """Whether an archive is there that was built from what has this hash."""
    note = hash_file(archive)
    return archive.is_file() and note.is_file() and note.read_text(encoding="ascii").strip() == wanted


def hash_file(archive: Path) -> Path:
    """Where the hash of an archive is noted."""
    return archive.with_name(archive.name + ".hash")
