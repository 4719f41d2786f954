"""The partition of an internal topic that coordinates a group or transactional id.

All clients and brokers of a cluster must agree on it, so it is exactly Java's string hash. The coordinators and
FindCoordinator use it.
"""

from __future__ import annotations

from array import array
from sys import byteorder
from typing import Final

_LOWEST: Final = -(1 << 31)


def java_string_hash(text: str) -> int:
    """Return `java.lang.String.hashCode`: over UTF-16 code units, as a signed 32-bit number."""
    units = array("H", text.encode("utf-16-le" if byteorder == "little" else "utf-16-be"))
    value = 0
    for unit in units:
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(identifier: str, partitions: int) -> int:
    """Return the partition of a group or transactional id; `partitions` is that of the internal topic, at least 1.

    The lowest 32-bit number has no positive counterpart; Kafka maps it to 0.
    """
    value = java_string_hash(identifier)
    return 0 if value == _LOWEST else abs(value) % partitions
