"""What the load writes, and what it remembers of it: the value of a record, and the entry of an acknowledgement. Pure.

Each partition has one writer, whose records are numbered from 0 without a gap. A value names its partition and its
number and has a checksum, so that any reader knows what should be there. Acknowledgements are kept as an array of
`ACK` entries on disk: 22 bytes each, a million and a half of them in half an hour.
"""

from __future__ import annotations

import struct
from typing import Final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

_VALUE: Final = struct.Struct(">HQ")
_CHECK: Final = struct.Struct(">I")

ACK: Final = np.dtype([("partition", "<u2"), ("number", "<u4"), ("offset", "<i8"), ("at", "<f8")])
"""An acknowledgement: `at` is the monotonic time in seconds; an offset of -1 was not told."""
_ENTRY: Final = struct.Struct("<HIqd")

Acks = NDArray[np.void]
UNKNOWN_OFFSET: Final = -1


class ForeignRecordError(ValueError):
    """A value that no writer of this run made."""


def value_of(partition: int, number: int) -> bytes:
    """What is written."""
    head = _VALUE.pack(partition, number)
    return head + _CHECK.pack(crc32(head))


def read_value(value: bytes | None) -> tuple[int, int]:
    """Partition and number. Raises `ForeignRecordError`."""
    if value is None or len(value) != _VALUE.size + _CHECK.size:
        raise ForeignRecordError(f"a value of {len(value or b'')} bytes")
    if _CHECK.unpack_from(value, _VALUE.size)[0] != crc32(value[: _VALUE.size]):
        raise ForeignRecordError(f"the value {value.hex()} has a wrong checksum")
    partition, number = _VALUE.unpack_from(value)
    return partition, number


def entry_of(partition: int, number: int, offset: int, at: float) -> bytes:
    """The bytes of one acknowledgement."""
    return _ENTRY.pack(partition, number, offset, at)


def read_acks(content: bytes) -> Acks:
    """All whole entries; one that is just being written is left out."""
    return np.frombuffer(content, ACK, count=len(content) // ACK.itemsize)
