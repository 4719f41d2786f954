"""Evicts the files of a folder from the page cache, and measures how much of a file is in it.

Needs no privileges: posix_fadvise(2) drops clean pages of a readable file, mincore(2) reports the pages of a mapping.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)


def log_files(folders: Iterable[Path]) -> list[Path]:
    """Return all segments under the folders."""
    return sorted(path for folder in folders for path in folder.rglob("*.log") if path.is_file())


def drop(paths: Iterable[Path]) -> None:
    """Write the dirty pages of the files to disk, and drop all of their pages that are not mapped."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def cached_share(paths: Iterable[Path]) -> float:
    """Return the fraction of the files' pages in memory, 0 to 1; 0 for empty files."""
    cached = pages = 0
    for path in paths:
        found = _resident(path)
        cached += sum(found)
        pages += len(found)
    return cached / pages if pages else 0.0


def _resident(path: Path) -> list[int]:
    """Return 1 or 0 for each page of the file."""
    size = path.stat().st_size
    if not size:
        return []
    count = -(-size // mmap.PAGESIZE)
    vector = ctypes.create_string_buffer(count)
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) as mapping:
        # The mapping is private and writable because ctypes needs that to get its address; nothing is written.
        view = (ctypes.c_char * size).from_buffer(mapping)
        try:
            if _LIBC.mincore(ctypes.addressof(view), size, vector) != 0:
                raise OSError(ctypes.get_errno(), "mincore", str(path))
        finally:
            del view
    return [byte & 1 for byte in vector.raw]
