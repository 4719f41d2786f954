"""Reads the entries of a log in any record format.

`log`, `records/admission`, compaction, the clients and the tools use it for record sets and logs in memory. An entry is
a batch (magic 2) or a message, which may be a wrapper (magic 0 and 1). All have their magic byte at the same position,
and all headers are returned as a `BatchHeader`. Invariant: a walk by `size` works for any sequence of formats, and
reads no records.

The header of an old message: `base_offset` is its offset (for a wrapper, that of the *last* message inside) and
`last_offset_delta` is 0, so that `last_offset` and `next_offset` are right. Leader epoch, producer id and sequence are
-1, and timestamps are -1 in format 0. `record_count` is 1, or -1 for a wrapper. Only `first_offset` returns where a
wrapper begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from odradek.base.errors import CorruptMessageError
from odradek.base.ports import Buffer
from odradek.records.legacy.message_set import (
    MIN_MESSAGE_SIZE,
    check_message_crc,
    first_message_offset,
    iterate_message,
    read_message,
)
from odradek.records.v2.batch import HEADER_SIZE, MAGIC, BatchHeader, check_crc, read_header
from odradek.records.v2.record import Record, iterate_batch

MIN_ENTRY_SIZE: Final = MIN_MESSAGE_SIZE
"""Minimum size of an entry of any format, and enough bytes to read the header of an old message."""

ENTRY_PREFIX: Final = 27
"""Bytes that contain offset, size and magic of any entry, and the last offset delta of a batch."""

MAGIC_AT: Final = 16
"""Position of the magic byte in all formats."""


def read_entry(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Return the header of the entry at `position`; the rest of the entry need not be in `buffer`.

    Raises `CorruptMessageError` if the header (61 bytes for a batch, 26 for a message) is incomplete, the format is
    unknown, or a field is invalid.
    """
    if len(buffer) - position < MIN_ENTRY_SIZE:
        raise CorruptMessageError(
            f"an entry has at least {MIN_ENTRY_SIZE} bytes, but only {len(buffer) - position} are available"
        )
    if buffer[position + MAGIC_AT] >= MAGIC:
        return read_header(buffer, position)
    return read_message(buffer, position)


def iterate_entries(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each whole entry; stops before an incomplete one, as fetches may truncate the last.

    Raises `CorruptMessageError` at the first invalid header.
    """
    position = 0
    end = len(buffer)
    while end - position >= MIN_ENTRY_SIZE:
        if buffer[position + MAGIC_AT] >= MAGIC:
            if end - position < HEADER_SIZE and buffer[position + MAGIC_AT] == MAGIC:
                return
            header = read_header(buffer, position)
        else:
            header = read_message(buffer, position)
        following = position + header.size
        if following > end:
            return
        yield position, header
        position = following


def check_entry(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Raise `CorruptMessageError` unless the whole entry is in `buffer` and its CRC is correct."""
    if header.magic == MAGIC:
        check_crc(buffer, position, header)
    else:
        check_message_crc(buffer, position, header)


def iterate_records(buffer: Buffer, position: int, header: BatchHeader, *, limit: int) -> Iterator[Record]:
    """Yield the records of the entry at `position` in order; `limit` is its decompressed size. Does not check the CRC.

    Raises `CorruptMessageError` for corrupt data, `InvalidRecordError` for a wrapper that breaks the rules of its
    format (empty, nested twice, mixed formats, zstd). A batch may yield valid records before the error; an old message
    or wrapper does not.
    """
    if header.magic == MAGIC:
        return iterate_batch(buffer, position, header, limit=limit)
    return iterate_message(buffer, position, header, limit=limit)


def first_offset(buffer: Buffer, position: int, header: BatchHeader, *, limit: int) -> int:
    """Return the first offset of the entry; decompresses only wrappers (to at most `limit` bytes).

    For a batch it is the base offset, even if that record no longer exists. Raises as `iterate_records`.
    """
    if header.magic == MAGIC:
        return header.base_offset
    return first_message_offset(buffer, position, header, limit=limit)
