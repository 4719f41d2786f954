"""Chooses the partitions of records: by default as the Java client does, so that all clients agree on those of a key.

`producer` calls it once per record.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Final

from odradek.base.errors import ConfigError

Partitioner = Callable[[str, bytes | None, bytes | None, Sequence[int], Sequence[int]], int]
"""Returns the partition of a record, from its topic, serialized key and value, all partitions of the topic, and those
that have a leader."""

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


def partitioner_function(given: Partitioner | str | None, random: Callable[[], float]) -> Partitioner | None:
    """Return the function of a partitioner, or of one that is named. None stands for the default partitioner.

    The names are those of librdkafka's setting `partitioner`, besides `default` and `round_robin`. Raises `ConfigError`
    for an unknown name.
    """
    if callable(given):
        return given
    name = (given or "default").replace("-", "_")
    named: dict[str, Callable[[], Partitioner | None]] = {
        "default": lambda: None,
        "consistent": lambda: _consistent,
        "consistent_random": lambda: _or_random(_consistent, random, empty_too=True),
        "murmur2": lambda: _murmur2,
        "murmur2_random": lambda: _or_random(_murmur2, random, empty_too=False),
        "random": lambda: _random(random),
        "round_robin": _RoundRobin,
    }
    if name not in named:
        raise ConfigError(f"partitioner={given!r} is not allowed: it must be a function or one of {', '.join(named)}")
    return named[name]()


def _murmur2(
    topic: str, key: bytes | None, value: bytes | None, partitions: Sequence[int], available: Sequence[int]
) -> int:
    """Hash the key as the Java client does. All records without key have the same partition."""
    return partition_of_key(key or b"", len(partitions))


def _consistent(
    topic: str, key: bytes | None, value: bytes | None, partitions: Sequence[int], available: Sequence[int]
) -> int:
    """Hash the key with CRC-32, as librdkafka does. All records without key have the same partition."""
    return zlib.crc32(key or b"") % len(partitions)


def _random(random: Callable[[], float]) -> Partitioner:
    def choose(
        topic: str, key: bytes | None, value: bytes | None, partitions: Sequence[int], available: Sequence[int]
    ) -> int:
        choices = available or partitions
        return choices[int(random() * len(choices))]

    return choose


def _or_random(hashing: Partitioner, random: Callable[[], float], *, empty_too: bool) -> Partitioner:
    """Choose random partitions for records without key, and with `empty_too` for those with an empty one."""
    at_random = _random(random)

    def choose(
        topic: str, key: bytes | None, value: bytes | None, partitions: Sequence[int], available: Sequence[int]
    ) -> int:
        use_hash = key is not None and (len(key) > 0 or not empty_too)
        return (hashing if use_hash else at_random)(topic, key, value, partitions, available)

    return choose


class _RoundRobin:
    """Uses the partitions of a topic one after the other, whatever the key, as Java's RoundRobinPartitioner."""

    def __init__(self) -> None:
        self._turns: dict[str, int] = {}

    def __call__(
        self, topic: str, key: bytes | None, value: bytes | None, partitions: Sequence[int], available: Sequence[int]
    ) -> int:
        turn = self._turns[topic] = self._turns.get(topic, -1) + 1
        choices = available or partitions
        return choices[turn % len(choices)]
