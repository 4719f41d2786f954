"""Maps keys to partitions as the Java client does, so that all clients agree on the partition of a key.

`producer` calls it once per record.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_CACHED_KEYS: Final = 65_536


def murmur2(data: bytes) -> int:
    """Return the 32-bit MurmurHash2 (Austin Appleby) with the Java client's seed, as an unsigned number."""
    length = len(data)
    hashed = _SEED ^ length
    whole = length & ~3
    for (word,) in struct.iter_unpack("<I", memoryview(data)[:whole]):
        mixed = (word * _MULTIPLIER) & _MASK
        mixed = ((mixed ^ (mixed >> 24)) * _MULTIPLIER) & _MASK
        hashed = ((hashed * _MULTIPLIER) & _MASK) ^ mixed
    if whole != length:
        hashed = ((hashed ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER) & _MASK
    hashed = ((hashed ^ (hashed >> 13)) * _MULTIPLIER) & _MASK
    return hashed ^ (hashed >> 15)


def partition_of_key(key: bytes, partition_count: int) -> int:
    """Return the partition of a key: the hash without its sign bit, modulo the number of partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class DefaultPartitioner:
    """Hashes keys; records without key go to one random partition until `sticky_bytes` were sent (KIP-480, KIP-794)."""

    def __init__(self, random: Callable[[], float], sticky_bytes: int) -> None:
        """`random` returns numbers from [0, 1); `sticky_bytes` is the batch size."""
        self._random = random
        self._sticky_bytes = sticky_bytes
        self._sticky: dict[str, tuple[int, int]] = {}
        self._hashes: dict[bytes, int] = {}

    def of_key(self, key: bytes, partition_count: int) -> int:
        """Like `partition_of_key`, with a cache of recent keys: a hash costs microseconds."""
        hashed = self._hashes.get(key)
        if hashed is None:
            if len(self._hashes) >= _CACHED_KEYS:
                self._hashes.clear()
            hashed = self._hashes[key] = murmur2(key) & 0x7FFFFFFF
        return hashed % partition_count

    def without_key(self, topic: str, available: Sequence[int], size_bytes: int) -> int:
        """Return the partition for records without key. `available` are the partitions with a leader, at least one."""
        current = self._sticky.get(topic)
        if current is None or current[1] >= self._sticky_bytes or current[0] not in available:
            current = (self._next(current, available), 0)
        partition, sent = current
        self._sticky[topic] = (partition, sent + size_bytes)
        return partition

    def _next(self, current: tuple[int, int] | None, available: Sequence[int]) -> int:
        others = [p for p in available if current is None or p != current[0]] or list(available)
        return others[int(self._random() * len(others))]
