"""Searches the archive of an image for byte strings that must not be in it.

The search covers every file of every layer, and the history. After each build, `job` searches for the mark that every
file of the build secret contains, and for the hosts of private package sources. Files are read in pieces, so the memory
does not grow with the image.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Final, NamedTuple
from urllib.parse import urlsplit

PIECE: Final = 4 << 20

PUBLIC_HOSTS: Final = frozenset(
    {"deb.debian.org", "security.debian.org", "snapshot.debian.org", "pypi.org", "files.pythonhosted.org"}
)
"""Hosts of public package sources."""


class Leak(NamedTuple):
    """A byte string that was found, and the file in which it is."""

    place: str
    what: bytes


def private_hosts(texts: Iterable[str]) -> set[bytes]:
    """Return the hosts of the URLs in these texts, without those of public package sources."""
    words = (word.strip("\"';,[]") for text in texts for word in text.split())
    found = set()
    for word in words:
        if "://" in word:
            host = urlsplit(word).hostname
            if host and host not in PUBLIC_HOSTS and not host.endswith(".debian.org"):
                found.add(host.encode())
    return found


def leaks(archive: Path, needles: Iterable[bytes]) -> list[Leak]:
    """Return each occurrence of one of the byte strings in the archive."""
    wanted = tuple(needles)
    with tarfile.open(archive) as tar:
        return list(_search(tar, "", wanted))


def _search(tar: tarfile.TarFile, prefix: str, needles: tuple[bytes, ...]) -> Iterator[Leak]:
    for entry in tar:
        place = prefix + entry.name
        names = f"{entry.name} {entry.linkname}".encode(errors="surrogateescape")
        yield from (Leak(f"{place} (its name)", needle) for needle in needles if needle in names)
        file = tar.extractfile(entry) if entry.isfile() else None
        if file is None:
            continue
        if not prefix and _is_layer(entry.name, file):
            with tarfile.open(fileobj=file) as layer:
                yield from _search(layer, f"{place}: ", needles)
        else:
            yield from (Leak(place, needle) for needle in _contained(file, needles))


def _is_layer(name: str, file: IO[bytes]) -> bool:
    """Whether a file of an archive is a tar itself, by its content."""
    if name.endswith(".json"):
        return False
    start = file.read(512)
    file.seek(0)
    return start[257:262] == b"ustar" or start[:2] == b"\x1f\x8b"


def _contained(file: IO[bytes], needles: tuple[bytes, ...]) -> Iterator[bytes]:
    """Yield the byte strings that a file contains, also those that extend over two pieces."""
    overlap = max((len(needle) for needle in needles), default=1) - 1
    missing, tail = set(needles), b""
    while missing and (piece := file.read(PIECE)):
        window = tail + piece
        for needle in sorted(missing):
            if needle in window:
                missing.discard(needle)
                yield needle
        tail = window[-overlap:] if overlap else b""
