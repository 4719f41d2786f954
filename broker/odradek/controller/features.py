"""Finalized features (KIP-584): what `/feature` says at the start of a reign, and what UpdateFeatures may change.

Pure: the znode's content and requests enter, its next content and errors leave. Brokers of a cluster in ZooKeeper mode,
Kafka's as well as these, support no feature that could be finalized; the rules are kept whole, so that what another
make once finalized is treated as Kafka treats it.
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
"""First inter-broker protocol whose znode has one level a feature."""


class UpgradeType(IntEnum):
    """Which way a level may go."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureUpdate:
    """What is wanted of one feature; a level below 1 removes it, unless it is an upgrade."""

    feature: str
    level: int
    upgrade_type: int

    @property
    def removes(self) -> bool:
        """Whether the feature shall no longer be finalized."""
        return self.level < 1 and self.upgrade_type != UpgradeType.UPGRADE


def initial(protocol: tuple[int, int], current: Feature | None) -> Feature:
    """What `/feature` must say under an inter-broker protocol: enabled from 2.7 on, keeping what is finalized."""
    enabled = protocol >= FEATURES_SINCE
    kept = current.features if current is not None and current.enabled and enabled else {}
    return Feature(enabled=enabled, features=kept, version=2 if protocol >= SINGLE_LEVEL_SINCE else 1)


def updated(
    finalized: Mapping[str, int], updates: Iterable[FeatureUpdate]
) -> tuple[dict[str, int], dict[str, ProtocolError | None]]:
    """The levels after the updates, and the error of each; one that is refused changes nothing."""
    levels = dict(finalized)
    results: dict[str, ProtocolError | None] = {}
    for update in updates:
        reason = _refusal(update, finalized.get(update.feature))
        results[update.feature] = None if reason is None else InvalidRequestError(reason)
        if reason is None:
            levels.pop(update.feature, None)
    return levels, results


def _refusal(update: FeatureUpdate, existing: int | None) -> str | None:
    """Why an update is refused; only a removal never is, since no broker supports any level of anything."""
    if not update.feature:
        return "A feature must have a name."
    if update.upgrade_type not in list(UpgradeType):
        return f"There is no upgrade type {update.upgrade_type}."
    if update.removes:
        return "A feature that is not finalized cannot be removed." if existing is None else None
    if update.level < 1:
        return "A level below 1 removes a feature: that needs a downgrade."
    if existing is not None:
        if update.level == existing:
            return f"The finalized level is {existing} already."
        if update.level < existing and update.upgrade_type != UpgradeType.SAFE_DOWNGRADE:
            return f"The finalized level is {existing}: a lower one needs a safe downgrade."
        if update.level > existing and update.upgrade_type != UpgradeType.UPGRADE:
            return f"The finalized level is {existing}: a higher one needs an upgrade."
    return "Brokers of this cluster do not support the feature."
