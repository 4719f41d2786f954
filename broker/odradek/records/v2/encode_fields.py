"""Writes columns of numbers and of byte strings into a buffer, one vectorised step for all records.

`encode` uses it. Invariant: no step runs once per record; the number of steps depends only on the largest value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Bytes = NDArray[np.uint8]

_GROUP_BITS: Final = 7
_LAST_THRESHOLD: Final = 1 << 63
_COPY_BYTES: Final = 1 << 18
"""Bytes that one step copies: they pass through a temporary array, which must fit into the processor's cache."""
_WORD_BYTES: Final = 8
SLACK_BYTES: Final = _WORD_BYTES
"""Bytes that a target needs after its last record: `put_words` writes whole words."""


class ByteStrings(NamedTuple):
    """Byte strings as ranges of a buffer, one for each record; a length of -1 means null."""

    buffer: Bytes
    start: Integers
    length: Integers

    def take(self, rows: Integers | slice) -> ByteStrings:
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


class Words(NamedTuple):
    """Up to 8 bytes for each record: the lowest `size` bytes of `word`, little-endian. The others are 0."""

    word: NDArray[np.uint64] | np.uint64
    size: Integers | int
    largest: int
    """The largest size."""


def constant_word(content: bytes) -> Words:
    """Return at most 8 bytes that are the same for all records."""
    return Words(np.uint64(int.from_bytes(content, "little")), len(content), len(content))


def varint_words(values: Integers) -> list[Words]:
    """Return each value as a zigzag varint: in one word, or in two if a varint has more than 8 bytes."""
    numbers = zigzag(values)
    sizes = varint_sizes(values)
    largest = int(sizes.max())
    if largest <= _WORD_BYTES:
        return [Words(_varint_bytes(numbers, largest), sizes, largest)]
    rest = numbers >> np.uint64(_GROUP_BITS * _WORD_BYTES)
    low = _varint_bytes(numbers, _WORD_BYTES) | (rest > 0).astype(np.uint64) << np.uint64(63)
    high = _varint_bytes(rest, largest - _WORD_BYTES)
    return [
        Words(low, np.minimum(sizes, _WORD_BYTES), _WORD_BYTES),
        Words(high, np.maximum(sizes - _WORD_BYTES, 0), largest - _WORD_BYTES),
    ]


def _varint_bytes(numbers: NDArray[np.uint64], count: int) -> NDArray[np.uint64]:
    """Return the first `count` bytes of the varint of each number as a word."""
    word = numbers & np.uint64(0x7F)
    for index in range(1, count):
        rest = numbers >> np.uint64(_GROUP_BITS * index)
        word |= (rest & np.uint64(0x7F)) << np.uint64(8 * index)
        # The highest bit of a byte tells that another one follows.
        word |= (rest > 0).astype(np.uint64) << np.uint64(8 * index - 1)
    return word


def joined_words(fields: Iterable[Words]) -> list[Words]:
    """Join fields that follow each other, as many in one word as fit for all records."""
    joined: list[Words] = []
    for field in fields:
        if joined and joined[-1].largest + field.largest <= _WORD_BYTES:
            word, size, largest = joined[-1]
            shift = np.asarray(size, dtype=np.uint64) << np.uint64(3)
            joined[-1] = Words(word | (field.word << shift), size + field.size, largest + field.largest)
        else:
            joined.append(field)
    return joined


def placed_words(places: Sequence[tuple[Integers, Words]]) -> tuple[Integers, NDArray[np.uint64]]:
    """Return the positions and the words of all records, as a row of each for each record."""
    shape = (len(places[0][0]), len(places))
    positions = np.empty(shape, dtype=np.int64)
    words = np.empty(shape, dtype="<u8")
    for column, (position, field) in enumerate(places):
        positions[:, column] = position
        words[:, column] = field.word
    return positions, words


def put_words(target: Bytes, positions: Integers, words: NDArray[np.uint64]) -> None:
    """Write words at their positions, which ascend from word to word and from record to record.

    Each word takes 8 bytes, so it may overwrite what follows it: the next words come later, and strings must.
    """
    _windows(target, _WORD_BYTES)[positions.ravel()] = words.view(f"V{_WORD_BYTES}").ravel()


def put_strings(target: Bytes, position: Integers, strings: ByteStrings) -> Integers:
    """Copy each byte string to its position. Return the positions after them; a null string takes no space.

    Strings whose lengths have the same number of bits are copied together. For lengths from 64 to 127, these are the
    first 64 bytes of each, and the last 64 bytes of each, which may overlap. Strings of one length need one copy.
    """
    lengths = np.maximum(strings.length, 0)
    if len(lengths):
        shortest, longest = int(lengths.min()), int(lengths.max())
        if shortest.bit_length() == longest.bit_length():
            _copy_group(target, position, strings.buffer, strings.start, lengths)
        else:
            # The exponent is the number of bits of a length: exact, because lengths are far below 2**53.
            bits = np.frexp(lengths.astype(np.float64))[1]
            for count in np.flatnonzero(np.bincount(bits)):
                group = np.flatnonzero(bits == count)
                _copy_group(target, position[group], strings.buffer, strings.start[group], lengths[group])
    return position + lengths


def _copy_group(target: Bytes, target_at: Integers, source: Bytes, source_at: Integers, lengths: Integers) -> None:
    """Copy strings whose lengths have the same number of bits."""
    shortest, longest = int(lengths.min()), int(lengths.max())
    if shortest == longest:
        if longest:
            _copy(target, target_at, source, source_at, longest)
        return
    size = 1 << (longest.bit_length() - 1)
    shift = lengths - size
    _copy(target, target_at, source, source_at, size)
    _copy(target, target_at + shift, source, source_at + shift, size)


def _copy(target: Bytes, target_at: Integers, source: Bytes, source_at: Integers, size: int) -> None:
    """Copy `size` bytes for each pair of positions."""
    to, of = _windows(target, size), _windows(source, size)
    step = max(1, _COPY_BYTES // size)
    for begin in range(0, len(target_at), step):
        to[target_at[begin : begin + step]] = of[source_at[begin : begin + step]]


def _windows(buffer: Bytes, size: int) -> NDArray[np.void]:
    """Return an array over `buffer` whose element i is its `size` bytes from i on."""
    return np.ndarray((len(buffer) - size + 1,), dtype=f"V{size}", buffer=buffer, strides=(1,))
