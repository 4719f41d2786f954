"""Writes columns of numbers and of byte strings into a buffer, one vectorised step for all records.

`encode` uses it. Invariant: no step runs once per record; the number of steps depends only on the largest value.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Bytes = NDArray[np.uint8]

_GROUP_BITS: Final = 7
_LAST_THRESHOLD: Final = 1 << 63
_COPY_BYTES: Final = 1 << 18
"""Bytes that one step copies: they pass through a temporary array, which must fit into the processor's cache."""


class ByteStrings(NamedTuple):
    """Byte strings as ranges of a buffer, one for each record; a length of -1 means null."""

    buffer: Bytes
    start: Integers
    length: Integers

    def take(self, rows: Integers) -> ByteStrings:
        """Return the strings of some rows, in their order."""
        return ByteStrings(self.buffer, self.start[rows], self.length[rows])


def zigzag(values: Integers) -> NDArray[np.uint64]:
    """Return the unsigned numbers whose 7-bit groups are the zigzag varints of `values`."""
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def varint_sizes(values: Integers) -> Integers:
    """Return the number of bytes of each value as a zigzag varint, from 1 to 10."""
    numbers = zigzag(values)
    sizes = np.ones(len(values), dtype=np.int64)
    largest = int(numbers.max()) if len(numbers) else 0
    threshold = 1 << _GROUP_BITS
    while threshold <= largest:
        sizes += numbers >= np.uint64(threshold)
        if threshold == _LAST_THRESHOLD:
            break
        threshold <<= _GROUP_BITS
    return sizes


def put_varints(target: Bytes, position: Integers, values: Integers) -> Integers:
    """Write each value as a zigzag varint at its position. Return the positions after them."""
    numbers = zigzag(values)
    after = position + 1
    rest = numbers >> np.uint64(_GROUP_BITS)
    target[position] = (numbers & np.uint64(0x7F)).astype(np.uint8) | ((rest > 0).astype(np.uint8) << 7)
    longer = np.flatnonzero(rest)
    while len(longer):
        numbers = rest[longer]
        following = numbers >> np.uint64(_GROUP_BITS)
        target[after[longer]] = (numbers & np.uint64(0x7F)).astype(np.uint8) | ((following > 0).astype(np.uint8) << 7)
        after[longer] += 1
        rest[longer] = following
        longer = longer[following > 0]
    return after


def put_strings(target: Bytes, position: Integers, strings: ByteStrings) -> Integers:
    """Copy each byte string to its position. Return the positions after them; a null string takes no space.

    Strings whose lengths have the same number of bits are copied together. For lengths from 64 to 127, these are the
    first 64 bytes of each, and the last 64 bytes of each, which may overlap.
    """
    lengths = np.maximum(strings.length, 0)
    # The exponent is the number of bits of a length: exact, because lengths are far below 2**53.
    bits = np.frexp(lengths.astype(np.float64))[1]
    for count in np.flatnonzero(np.bincount(bits)):
        if count == 0:
            continue
        size = 1 << (int(count) - 1)
        group = np.flatnonzero(bits == count)
        source_at, target_at = strings.start[group], position[group]
        shift = lengths[group] - size
        _copy(target, target_at, strings.buffer, source_at, size)
        if shift.any():
            _copy(target, target_at + shift, strings.buffer, source_at + shift, size)
    return position + lengths


def _copy(target: Bytes, target_at: Integers, source: Bytes, source_at: Integers, size: int) -> None:
    """Copy `size` bytes for each pair of positions."""
    to, of = _windows(target, size), _windows(source, size)
    step = max(1, _COPY_BYTES // size)
    for begin in range(0, len(target_at), step):
        to[target_at[begin : begin + step]] = of[source_at[begin : begin + step]]


def _windows(buffer: Bytes, size: int) -> NDArray[np.void]:
    """Return an array over `buffer` whose element i is its `size` bytes from i on."""
    return np.ndarray((len(buffer) - size + 1,), dtype=f"V{size}", buffer=buffer, strides=(1,))
