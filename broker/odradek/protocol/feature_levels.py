"""The features that this broker supports, and their levels (KIP-584, KIP-890).

The registration of the broker and ApiVersions show them, the controller checks them before it finalizes a level, and
the parts that depend on a feature compare its finalized level. In ZooKeeper mode, Apache Kafka supports no feature.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

TRANSACTION_VERSION: Final = "transaction.version"
"""The feature that enables newer transactions (KIP-890). Level 1: newer records of `__transaction_state`. Level 2: each
transaction has its own epoch, and the first write adds a partition to it."""


class FeatureRange(NamedTuple):
    """The levels of a feature that a broker supports."""

    lowest: int
    highest: int


SUPPORTED_FEATURES: Final[Mapping[str, FeatureRange]] = MappingProxyType({TRANSACTION_VERSION: FeatureRange(0, 2)})
"""The range of each feature. Level 0 is that of a feature that is not finalized."""

LOWEST_IN_REGISTRATIONS: Final = 1
"""Lowest level in registrations and in ApiVersions before version 4: their readers reject 0 (KAFKA-17011)."""


def registered_features() -> dict[str, dict[str, int]]:
    """Return the supported features in the form of the registration of a broker."""
    return {
        name: {"min_version": max(lowest, LOWEST_IN_REGISTRATIONS), "max_version": highest}
        for name, (lowest, highest) in SUPPORTED_FEATURES.items()
    }


def supports(registered: Mapping[str, Mapping[str, int]], feature: str, level: int) -> bool:
    """Whether a broker with these registered features supports a level above 0."""
    levels = registered.get(feature)
    return levels is not None and levels.get("min_version", 0) <= level <= levels.get("max_version", -1)
