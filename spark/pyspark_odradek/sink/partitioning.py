"""Chooses the partitions of many rows at once, as the Java client does for one record.

Keys are hashed with murmur2. Rows without key go to one partition until a batch is full, then to another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from odradek.client.producer.partitioning import murmur2
from odradek.records.v2.encode_fields import ByteStrings, Integers

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = np.uint32(0x5BD1E995)
_WORD: Final = 4
_FEW_ROWS: Final = 16
"""A step for fewer keys costs more than hashing them one by one."""


def murmur2_of(keys: ByteStrings) -> NDArray[np.uint32]:
    """Return the hash of each key, as `odradek.client.producer.partitioning.murmur2`; null counts as empty."""
    length = np.maximum(keys.length, 0)
    order = None
    start = keys.start
    if len(length) and int(length.min()) != int(length.max()):
        # The longest keys first: those that still have a word are then always the first ones.
        order = np.argsort(-length, kind="stable")
        start, length = start[order], length[order]
    hashed = np.uint32(_SEED) ^ length.astype(np.uint32)
    words = length // _WORD
    active = len(words)
    word = 0
    single = 0
    while True:
        active = int(np.searchsorted(-words[:active], -word, side="left"))
        if active <= _FEW_ROWS and active:
            single = active
        if active <= _FEW_ROWS:
            break
        _mix_word(hashed[:active], keys.buffer, start[:active] + word * _WORD)
        word += 1
    for row in range(single):
        begin = int(start[row])
        hashed[row] = murmur2(keys.buffer[begin : begin + int(length[row])].tobytes())
    rest = slice(single, None)
    hashed[rest] = _finished(hashed[rest], keys.buffer, start[rest], length[rest])
    if order is None:
        return hashed
    result = np.empty_like(hashed)
    result[order] = hashed
    return result


def _mix_word(hashed: NDArray[np.uint32], buffer: NDArray[np.uint8], position: Integers) -> None:
    """Mix the word at each position into the hashes, in place."""
    windows: NDArray[np.uint32] = np.ndarray((len(buffer) - _WORD + 1,), dtype="<u4", buffer=buffer, strides=(1,))
    mixed = windows[position] * _MULTIPLIER
    mixed ^= mixed >> np.uint32(24)
    mixed *= _MULTIPLIER
    hashed *= _MULTIPLIER
    hashed ^= mixed


def _finished(
    hashed: NDArray[np.uint32], buffer: NDArray[np.uint8], start: Integers, length: Integers
) -> NDArray[np.uint32]:
    """Mix the last one to three bytes of each key, then the bits of the hash."""
    left = length % _WORD
    tail = np.zeros(len(length), dtype=np.uint32)
    for index in range(_WORD - 1):
        rows = np.flatnonzero(left > index)
        at = start[rows] + length[rows] - left[rows] + index
        tail[rows] |= buffer[at].astype(np.uint32) << np.uint32(8 * index)
    hashed = np.where(left > 0, (hashed ^ tail) * _MULTIPLIER, hashed)
    hashed ^= hashed >> np.uint32(13)
    hashed *= _MULTIPLIER
    hashed ^= hashed >> np.uint32(15)
    return hashed


def partitions_of_keys(keys: ByteStrings, partition_count: int) -> Integers:
    """Return the partition of each key: the hash without its sign bit, modulo the number of partitions."""
    hashed = murmur2_of(keys) & np.uint32(0x7FFFFFFF)
    return (hashed % np.uint32(partition_count)).astype(np.int64)


class StickyPartitions:
    """The partitions of rows without key, for one topic (KIP-480, KIP-794)."""

    def __init__(self, random: Callable[[], float], run_bytes: int) -> None:
        """`random` returns numbers from [0, 1). A partition gets at most `run_bytes` in a row, or one larger record."""
        self._random = random
        self._run_bytes = run_bytes
        self._partition = -1
        self._used = 0

    def choose(self, record_bytes: Integers, available: Sequence[int]) -> Integers:
        """Return partitions for records of these sizes. `available` are partitions with a leader, at least one."""
        sums = np.cumsum(record_bytes)
        chosen = np.empty(len(record_bytes), dtype=np.int64)
        if self._partition not in available:
            self._next(available)
        done = begin = 0
        while begin < len(sums):
            stop = int(np.searchsorted(sums, done + self._run_bytes - self._used, side="right"))
            if stop == begin and not self._used:
                stop = begin + 1
            if stop > begin:
                chosen[begin:stop] = self._partition
                self._used += int(sums[stop - 1]) - done
                done, begin = int(sums[stop - 1]), stop
            if begin < len(sums):
                self._next(available)
        return chosen

    def _next(self, available: Sequence[int]) -> None:
        others = [number for number in available if number != self._partition] or list(available)
        self._partition = others[int(self._random() * len(others))]
        self._used = 0


class RoundRobinPartitions:
    """The partitions of a topic one after the other, as Java's RoundRobinPartitioner."""

    def __init__(self) -> None:
        """The first row goes to the first partition."""
        self._turn = 0

    def choose(self, count: int, available: Sequence[int]) -> Integers:
        """Return partitions for `count` rows. `available` are partitions with a leader, at least one."""
        turns = np.arange(self._turn, self._turn + count, dtype=np.int64) % len(available)
        self._turn += count
        return np.array(available, dtype=np.int64)[turns]
