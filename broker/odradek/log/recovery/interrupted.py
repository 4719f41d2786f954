"""Completes or undoes file operations that a crash interrupted, before a log is loaded.

`log/recovery/log_recovery` calls it first; afterwards the directory of the log contains only whole segments. The files
of a swap go through three names (see `log/segments/replacement`): `.cleaned` while they are written, `.swap` once
complete, and no suffix when the segments that they replace are `.deleted`. Invariant: an interrupted run may be
repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from odradek.base.ports import Files
from odradek.log.segments.entries import walk_headers
from odradek.log.segments.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    offset_of,
)

logger = logging.getLogger(__name__)

_LOG_SWAP = LOG_SUFFIX + SWAP_SUFFIX


def finish_interrupted(files: Files, directory: str) -> None:
    """Remove deleted and incomplete files, and put complete replacements in place. Raises `StorageError`.

    A `.cleaned` file that still exists shows that the replacements from its offset on are incomplete.
    """
    names = files.list(directory)
    cleaned = [offset for name in names if name.endswith(CLEANED_SUFFIX) and (offset := offset_of(name)) is not None]
    swaps = [(offset, name) for name in names if name.endswith(SWAP_SUFFIX) and (offset := offset_of(name)) is not None]
    first_incomplete = min(cleaned, default=None)
    complete = [name for offset, name in swaps if first_incomplete is None or offset < first_incomplete]
    # Remove incomplete replacements before the `.cleaned` files that show that they are incomplete.
    for offset, name in swaps:
        if first_incomplete is not None and offset >= first_incomplete:
            files.remove(f"{directory}/{name}")
    for name in names:
        if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX)):
            files.remove(f"{directory}/{name}")
    if complete:
        logger.info("%s: completing an interrupted compaction: %d files are renamed", directory, len(complete))
        _remove_replaced(files, directory, complete)
        # Rename the log before its indexes: while a `.log.swap` exists, a repeated run removes its index files.
        for name in sorted(complete, key=lambda name: not name.endswith(_LOG_SWAP)):
            files.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP_SUFFIX)}")


def _remove_replaced(files: Files, directory: str, swaps: Iterable[str]) -> None:
    """Remove all files of the segments from the first replacement's start to the last replacement's end.

    Old segments after the last remaining record may stay: cleaning them again gives the same result.
    """
    begins, ends = [], []
    for name in swaps:
        offset = offset_of(name)
        if offset is not None and name.endswith(_LOG_SWAP):
            begins.append(offset)
            ends.append(_end_offset(files, f"{directory}/{name}", offset))
    if not begins:
        return
    replaced = range(min(begins), max(*ends, min(begins) + 1))
    for name in files.list(directory):
        offset = offset_of(name)
        if offset is not None and offset in replaced and not name.endswith(SWAP_SUFFIX):
            files.remove(f"{directory}/{name}")


def _end_offset(files: Files, path: str, base_offset: int) -> int:
    end_offset = base_offset
    file = files.open(path, read_only=True)
    try:
        for _, header in walk_headers(file, 0, file.size()):
            end_offset = header.next_offset
    finally:
        file.close()
    return end_offset
