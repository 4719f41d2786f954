"""Finalized features (KIP-584): the content of `/feature` at the start of a reign, and the rules of UpdateFeatures.

Pure: takes the content of the znode and requests, and returns the next content and errors. In ZooKeeper mode, neither
Kafka nor Odradek supports a feature that could be finalized. The rules are nevertheless complete, so that features in
an existing znode are treated as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from odradek.base.errors import InvalidRequestError, ProtocolError
from odradek.zk.layout import Feature

FEATURES_SINCE: Final = (2, 7)
"""First inter-broker protocol with the feature system."""
SINGLE_LEVEL_SINCE: Final = (3, 3)
"""First inter-broker protocol whose znode has one level for each feature."""


class UpgradeType(IntEnum):
    """The change of a level that an update allows."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureUpdate:
    """An update of one feature. A level below 1 removes it, unless it is an upgrade."""

    feature: str
    level: int
    upgrade_type: int

    @property
    def removes(self) -> bool:
        """Whether the update removes the finalized feature."""
        return self.level < 1 and self.upgrade_type != UpgradeType.UPGRADE


def initial(protocol: tuple[int, int], current: Feature | None) -> Feature:
    """Return the content of `/feature` for an inter-broker protocol. Features are enabled from 2.7 on, and finalized
    features are kept."""
    enabled = protocol >= FEATURES_SINCE
    kept = current.features if current is not None and current.enabled and enabled else {}
    return Feature(enabled=enabled, features=kept, version=2 if protocol >= SINGLE_LEVEL_SINCE else 1)


def updated(
    finalized: Mapping[str, int], updates: Iterable[FeatureUpdate]
) -> tuple[dict[str, int], dict[str, ProtocolError | None]]:
    """Return the levels after the updates, and the error of each update. A refused update changes nothing."""
    levels = dict(finalized)
    results: dict[str, ProtocolError | None] = {}
    for update in updates:
        reason = _refusal(update, finalized.get(update.feature))
        results[update.feature] = None if reason is None else InvalidRequestError(reason)
        if reason is None:
            levels.pop(update.feature, None)
    return levels, results


def _refusal(update: FeatureUpdate, existing: int | None) -> str | None:
    """Return the error of an update that is refused. Only removals can succeed, because brokers do not support any
    feature."""
    if not update.feature:
        return "A feature must have a name."
    if update.upgrade_type not in list(UpgradeType):
        return f"Upgrade type {update.upgrade_type} does not exist."
    if update.removes:
        return "A feature that is not finalized cannot be removed." if existing is None else None
    if update.level < 1:
        return "A level below 1 removes the feature. This requires a downgrade."
    if existing is not None:
        if update.level == existing:
            return f"The finalized level is already {existing}."
        if update.level < existing and update.upgrade_type != UpgradeType.SAFE_DOWNGRADE:
            return f"The finalized level is {existing}. A lower level requires a safe downgrade."
        if update.level > existing and update.upgrade_type != UpgradeType.UPGRADE:
            return f"The finalized level is {existing}. A higher level requires an upgrade."
    return "Brokers of this cluster do not support the feature."
