"""The headers of all batches in a buffer as numpy columns, read at once and without an object per batch.

`frame_columns` and the raw fetches of the client use it for whole fetch responses. Invariant: every batch of a table is
complete, of format 2, and has passed the same checks as in `read_header`.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from odradek.base.errors import CorruptMessageError
from odradek.base.ports import Buffer
from odradek.records.formats import MAGIC_AT, MIN_ENTRY_SIZE
from odradek.records.record_cursors import Bytes, Integers
from odradek.records.v2.batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    BatchHeader,
    check_crc,
    read_header,
)

_HEADER: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
_LENGTH: Final = Struct(">i")
_LENGTH_AT: Final = 8
_LENGTH_END: Final = 12
_CRC_FROM: Final = 21
_MAX_OFFSET: Final = (1 << 63) - 2
_FEWEST_ALIKE: Final = 4
_MOST_ALIKE: Final = 1 << 14
"""Bounds of the number of entries whose lengths are compared in one step."""


def entry_positions(buffer: Buffer) -> tuple[Integers, int]:
    """Return the positions of the whole entries in `buffer` and the end of the last one. Only lengths are read.

    The entries can have any record format. Raises `CorruptMessageError` for a length that is too small.
    """
    view = memoryview(buffer)
    end = len(view)
    parts: list[Integers] = [np.zeros(0, dtype=np.int64)]
    alone: list[int] = []
    position, ahead = 0, _FEWEST_ALIKE
    while end - position >= MIN_ENTRY_SIZE:
        (length,) = _LENGTH.unpack_from(view, position + _LENGTH_AT)
        size = _LENGTH_END + length
        if size < MIN_ENTRY_SIZE:
            raise CorruptMessageError(f"an entry of {size} bytes is smaller than its header")
        possible = (end - position) // size
        if not possible:
            break
        alone.append(position)
        position += size
        if len(alone) < ahead or possible < _FEWEST_ALIKE:
            continue
        # Batches of one size, as those of one record often are, are found together.
        count = _count_of_size(view, position, length, min((end - position) // size, _MOST_ALIKE))
        # After a failed attempt the next one follows later, so that uneven sizes cost little.
        ahead = _FEWEST_ALIKE if count >= _FEWEST_ALIKE else min(2 * ahead, _MOST_ALIKE)
        parts += [np.array(alone, dtype=np.int64), np.arange(position, position + count * size, size, dtype=np.int64)]
        alone = []
        position += count * size
    return np.concatenate([*parts, np.array(alone, dtype=np.int64)]), position


def _count_of_size(view: memoryview, position: int, length: int, possible: int) -> int:
    """Return how many entries from `position` on have that length; `possible` of them fit into the buffer."""
    if possible < 1:
        return 0
    lengths: NDArray[np.int32] = np.ndarray(
        shape=(possible,),
        dtype=">i4",
        buffer=view,
        offset=position + _LENGTH_AT,
        strides=(_LENGTH_END + length,),
    )
    other = lengths != length
    return int(other.argmax()) if other.any() else possible


class BatchTable:
    """The batches of a buffer, in order; each attribute is a column. Positions are those of the buffer."""

    __slots__ = (
        "array",
        "attributes",
        "base_offset",
        "base_timestamp",
        "crc",
        "end",
        "last_offset_delta",
        "max_timestamp",
        "position",
        "record_count",
        "view",
    )

    def __init__(self, buffer: Buffer, position: Integers) -> None:
        """Read the headers at `position`, whose batches are complete (`entry_positions`).

        Raises `CorruptMessageError` if a header is invalid or is not of format 2.
        """
        self.view: Final = memoryview(buffer)
        self.array: Final[Bytes] = np.frombuffer(self.view, dtype=np.uint8)
        self.position: Final = position
        gathered = self.array.take(position[:, None] + np.arange(HEADER_SIZE), mode="clip")
        fields = gathered.view(_HEADER).reshape(len(position))
        self.base_offset: Final = fields["base_offset"].astype(np.int64)
        self.attributes: Final = fields["attributes"].astype(np.int64)
        self.last_offset_delta: Final = fields["last_offset_delta"].astype(np.int64)
        self.base_timestamp: Final = fields["base_timestamp"].astype(np.int64)
        self.max_timestamp: Final = fields["max_timestamp"].astype(np.int64)
        self.record_count: Final = fields["record_count"].astype(np.int64)
        self.crc: Final = fields["crc"]
        length = fields["batch_length"].astype(np.int64)
        self.end: Final = position + _LENGTH_END + length
        invalid = (
            (fields["magic"] != MAGIC)
            | (length < HEADER_SIZE - _LENGTH_END)
            | (self.base_offset < 0)
            | (self.last_offset_delta < 0)
            | (self.base_offset > _MAX_OFFSET - self.last_offset_delta)
            | (self.record_count < 0)
        )
        if invalid.any():
            first = int(position[invalid.argmax()])
            header = read_header(self.view, first)
            raise CorruptMessageError(f"the batch at position {first} has an invalid header: {header}")

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self.position)

    @property
    def section(self) -> Integers:
        """Position of the records section of each batch."""
        return self.position + HEADER_SIZE

    @property
    def next_offset(self) -> Integers:
        """The offset after each batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Integers:
        """The number of each batch's codec; it may be unknown."""
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> NDArray[np.bool_]:
        """Which batches contain transaction markers."""
        return (self.attributes & CONTROL_FLAG).astype(np.bool_)

    @property
    def timestamp_type(self) -> Integers:
        """The timestamp type of each batch: 0 create time, 1 log append time."""
        return (self.attributes & LOG_APPEND_TIME_FLAG) // LOG_APPEND_TIME_FLAG

    def header(self, index: int) -> BatchHeader:
        """Return one header as an object."""
        return read_header(self.view, int(self.position[index]))

    def check_crcs(self, batches: Integers) -> None:
        """Raise `CorruptMessageError` for the first of the given batches whose CRC-32C is wrong."""
        view = self.view
        starts, ends = (self.position[batches] + _CRC_FROM).tolist(), self.end[batches].tolist()
        actual = [crc32c(view[start:end]) for start, end in zip(starts, ends, strict=True)]
        wrong = self.crc[batches] != np.array(actual, dtype=np.uint32)
        if wrong.any():
            index = int(batches[wrong.argmax()])
            check_crc(self.view, int(self.position[index]), self.header(index))


def has_old_formats(buffer: Buffer, positions: Integers) -> bool:
    """Whether an entry at one of `positions` has record format 0 or 1."""
    array = np.frombuffer(buffer, dtype=np.uint8)
    return bool((array[positions + MAGIC_AT] < MAGIC).any())


def spread(values: Integers, counts: Integers) -> Integers:
    """Return a value of each batch for all its records."""
    return np.repeat(values, counts)


def rows_before(counts: Integers) -> Integers:
    """Return the number of records before each batch, and after the last one the total."""
    positions = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=positions[1:])
    return positions
