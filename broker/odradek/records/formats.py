"""Entries of a log in any record format: what everything that walks a log reads it with.

Memory of a log or a record set enters; headers and records leave. `log`, `records/admission`, compaction, the clients
and the tools call it. An entry is a batch (magic 2) or a message, which may be a wrapper (magic 0 and 1); all three
have their magic byte at the same place, and all three are told as a `BatchHeader`. Invariant: a walk by `size` is
right for any sequence of formats, and looks at no record.

What a header says of an old message: `base_offset` is its offset (of a wrapper: that of the *last* message inside),
`last_offset_delta` 0, so that `last_offset` and `next_offset` are true; leader epoch, producer id and sequence -1;
timestamps -1 in format 0; `record_count` 1, of a wrapper -1. Only `first_offset` tells where a wrapper begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from odradek.base.errors import CorruptMessageError
from odradek.base.ports import Buffer
from odradek.records.batch import HEADER_SIZE, MAGIC, BatchHeader, check_crc, read_header
from odradek.records.message_set import (
    MIN_MESSAGE_SIZE,
    check_message_crc,
    first_message_offset,
    iterate_message,
    read_message,
)
from odradek.records.record import Record, iterate_batch

MIN_ENTRY_SIZE: Final = MIN_MESSAGE_SIZE
"""No entry of any format is smaller, and so many bytes are enough to read the header of an old message."""

ENTRY_PREFIX: Final = 27
"""Bytes that tell offset, size and magic of any entry, and of a batch the delta of its last offset."""

MAGIC_AT: Final = 16
"""Where the magic byte stands, in all formats."""


def read_entry(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header of the entry at `position`; the rest of the entry need not be in `buffer`.

    `CorruptMessageError` when the header (61 bytes of a batch, 26 of a message) is not all there, the format is unknown
    or a field cannot be true.
    """
    if len(buffer) - position < MIN_ENTRY_SIZE:
        raise CorruptMessageError(
            f"an entry takes at least {MIN_ENTRY_SIZE} bytes, only {len(buffer) - position} are there"
        )
    if buffer[position + MAGIC_AT] >= MAGIC:
        return read_header(buffer, position)
    return read_message(buffer, position)


def iterate_entries(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole entry; an incomplete one at the end, as fetches may cut it, ends the walk.

    `CorruptMessageError` at the first header that cannot be true.
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
    """`CorruptMessageError` unless the whole entry is in `buffer` and its CRC (CRC-32, of a batch CRC-32C) fits."""
    if header.magic == MAGIC:
        check_crc(buffer, position, header)
    else:
        check_message_crc(buffer, position, header)


def iterate_records(buffer: Buffer, position: int, header: BatchHeader, *, limit: int) -> Iterator[Record]:
    """The records of the entry at `position` in order; `limit` bounds its unpacked bytes. The CRC is the caller's.

    `CorruptMessageError` when something does not fit; `InvalidRecordError` when a wrapper breaks the rules of its
    format (empty, nested twice, formats mixed, zstd). A batch may have yielded sound records before the error, an old
    message or wrapper has not.
    """
    if header.magic == MAGIC:
        return iterate_batch(buffer, position, header, limit=limit)
    return iterate_message(buffer, position, header, limit=limit)


def first_offset(buffer: Buffer, position: int, header: BatchHeader, *, limit: int) -> int:
    """Offset at which the entry begins; unpacks a wrapper (to at most `limit` bytes), and only that.

    Of a batch it is the base offset, whether or not that record is still there. Errors: as `iterate_records`.
    """
    if header.magic == MAGIC:
        return header.base_offset
    return first_message_offset(buffer, position, header, limit=limit)
