"""Computes the partition of an internal topic whose leader coordinates a group or transactional id.

All brokers of a cluster must compute the same partition, so the hash is exactly that of Java's strings. The
coordinators and FindCoordinator use it.
"""

from __future__ import annotations

from array import array
from sys import byteorder
from typing import Final

_LOWEST: Final = -(1 << 31)


def java_string_hash(text: str) -> int:
    """Return the hash of `java.lang.String.hashCode`: of the UTF-16 code units, as a signed 32-bit number."""
    units = array("H", text.encode("utf-16-le" if byteorder == "little" else "utf-16-be"))
    value = 0
    for unit in units:
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(identifier: str, partitions: int) -> int:
    """Return the partition of a group or transactional id. `partitions` is the number of partitions of the topic.

    `partitions` must be at least 1. The smallest 32-bit number has no absolute value, so Kafka maps it to 0.
    """
    value = java_string_hash(identifier)
    return 0 if value == _LOWEST else abs(value) % partitions
