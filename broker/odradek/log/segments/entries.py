"""Entries in a segment file or a record set: their places, and walks by their headers."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from odradek.base.errors import CorruptMessageError
from odradek.base.ports import Buffer, File
from odradek.records.formats import MAGIC_AT, MIN_ENTRY_SIZE, read_entry
from odradek.records.v2.batch import HEADER_SIZE, MAGIC, BatchHeader

SCAN_BYTES: Final = 8192
"""Bytes per read when batch headers are scanned; twice the default distance between index entries."""

LENGTH_OVERHEAD: Final = 12
"""Bytes of an entry that its length field does not count."""

SMALLEST_LENGTH: Final = HEADER_SIZE - LENGTH_OVERHEAD
SMALLEST_OLD_LENGTH: Final = MIN_ENTRY_SIZE - LENGTH_OVERHEAD

_OFFSET_AND_LENGTH: Final = Struct(">qi")


class BatchPlace(NamedTuple):
    """Position of a batch in a segment, with its size and offsets.

    Reads of a log create it with `tuple.__new__`, because its constructor is interpreted in the compiled form as well.
    """

    position: int
    size: int
    base_offset: int
    last_offset: int


NOT_IN_MEMORY: Final = BatchPlace(-1, 0, -1, -1)
"""Result of a lookup that would have to wait for the disk."""


def whole_batches(records: Buffer) -> int:
    """Return the length of the whole batches in a fetched record set; a fetch may truncate the last batch."""
    size = len(records)
    position = 0
    while size - position > MAGIC_AT:
        _, length = _OFFSET_AND_LENGTH.unpack_from(records, position)
        following = position + length + LENGTH_OVERHEAD
        # Keep an impossible length in the result: validation of the batch then reports what is wrong with it.
        if length < SMALLEST_LENGTH and (records[position + MAGIC_AT] >= MAGIC or length < SMALLEST_OLD_LENGTH):
            return size
        if following > size:
            break
        position = following
    return position


def walk_headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each batch from `position`, a batch boundary, to `end`.

    Raises `CorruptMessageError` if the bytes are not batches, `StorageError` if they cannot be read.
    """
    while end - position >= MIN_ENTRY_SIZE:
        chunk = file.pread(min(SCAN_BYTES, end - position), position)
        # Old messages are shorter than a current header, but only the last entry has nothing after it.
        needed = HEADER_SIZE if position + len(chunk) < end else MIN_ENTRY_SIZE
        at = 0
        while len(chunk) - at >= needed:
            header = read_entry(chunk, at)
            yield position + at, header
            at += header.batch_length + LENGTH_OVERHEAD
        if at == 0:
            raise CorruptMessageError(f"{file.path} has no batch at position {position}")
        position += at
