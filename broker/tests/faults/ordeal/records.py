"""Encodes the values of records and the entries of acknowledgements. Pure.

Each partition has one writer, whose records are numbered from 0 without a gap. A value names its partition and its
number and has a checksum, so that any reader can check it. Acknowledgements are stored on disk as an array of `ACK`
entries of 22 bytes, a million and a half of them in half an hour.
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
"""An acknowledgement. `at` is the monotonic time in seconds. The offset is -1 if it is unknown."""
_ENTRY: Final = struct.Struct("<HIqd")

Acks = NDArray[np.void]
UNKNOWN_OFFSET: Final = -1


class ForeignRecordError(ValueError):
    """A value that no writer of this run has written."""


def value_of(partition: int, number: int) -> bytes:
    """Return the value of a record."""
    head = _VALUE.pack(partition, number)
    return head + _CHECK.pack(crc32(head))


def read_value(value: bytes | None) -> tuple[int, int]:
    """Return partition and number of a value. Raises `ForeignRecordError`."""
    if value is None or len(value) != _VALUE.size + _CHECK.size:
        raise ForeignRecordError(f"a value of {len(value or b'')} bytes")
    if _CHECK.unpack_from(value, _VALUE.size)[0] != crc32(value[: _VALUE.size]):
        raise ForeignRecordError(f"the value {value.hex()} has a wrong checksum")
    partition, number = _VALUE.unpack_from(value)
    return partition, number


def entry_of(partition: int, number: int, offset: int, at: float) -> bytes:
    """Return the bytes of one acknowledgement."""
    return _ENTRY.pack(partition, number, offset, at)


def read_acks(content: bytes) -> Acks:
    """Return all complete entries. An entry that is being written is ignored."""
    return np.frombuffer(content, ACK, count=len(content) // ACK.itemsize)
