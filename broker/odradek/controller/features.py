"""Finalized features (KIP-584): the content of `/feature` at the start of a reign, and the rules of UpdateFeatures.

Pure: takes the content of the znode, the registrations of the brokers and requests, and returns the next content and
errors. A level is finalized only if every live broker supports it. In ZooKeeper mode, Apache Kafka supports no feature,
so nothing can be finalized while one of its brokers is in the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from odradek.base.errors import InvalidRequestError, ProtocolError
from odradek.protocol.feature_levels import SUPPORTED_FEATURES, supports
from odradek.zk.layout import Feature

FEATURES_SINCE: Final = (2, 7)
"""First inter-broker protocol with the feature system."""
SINGLE_LEVEL_SINCE: Final = (3, 3)
"""First inter-broker protocol whose znode has one level for each feature."""


RegisteredFeatures = Mapping[str, Mapping[str, int]]
"""The features in the registration of a broker: the lowest and the highest level of each."""


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
    finalized: Mapping[str, int], updates: Iterable[FeatureUpdate], brokers: Mapping[int, RegisteredFeatures]
) -> tuple[dict[str, int], dict[str, ProtocolError | None]]:
    """Return the levels after the updates, and the error of each update. A refused update changes nothing.

    `brokers`: the features that each live broker supports.
    """
    levels = dict(finalized)
    results: dict[str, ProtocolError | None] = {}
    for update in updates:
        reason = _refusal(update, finalized.get(update.feature), brokers)
        results[update.feature] = None if reason is None else InvalidRequestError(reason)
        if reason is None and update.removes:
            levels.pop(update.feature, None)
        elif reason is None:
            levels[update.feature] = update.level
    return levels, results


def raised(
    finalized: Mapping[str, int], wanted: Mapping[str, int], brokers: Mapping[int, RegisteredFeatures]
) -> dict[str, int]:
    """Return the levels after those that the settings want are finalized as far as all brokers support them. None of
    them is lowered."""
    levels = dict(finalized)
    for feature, level in wanted.items():
        if level > levels.get(feature, 0) and not without_support(brokers, feature, level):
            levels[feature] = level
    return levels


def without_support(brokers: Mapping[int, RegisteredFeatures], feature: str, level: int) -> list[int]:
    """Return the ids of the brokers that do not support a level of a feature."""
    return sorted(broker for broker, registered in brokers.items() if not supports(registered, feature, level))


def _refusal(update: FeatureUpdate, existing: int | None, brokers: Mapping[int, RegisteredFeatures]) -> str | None:
    """Return the error of an update that is refused."""
    if not update.feature:
        return "A feature must have a name."
    if update.upgrade_type not in list(UpgradeType):
        return f"Upgrade type {update.upgrade_type} does not exist."
    if update.removes:
        return "A feature that is not finalized cannot be removed." if existing is None else None
    if update.level < 1:
        return "A level below 1 removes the feature. This requires a downgrade."
    return _refusal_of_level(update, existing, brokers)


def _refusal_of_level(
    update: FeatureUpdate, existing: int | None, brokers: Mapping[int, RegisteredFeatures]
) -> str | None:
    """Return the error of an update to a level above 0 that is refused."""
    if existing is not None:
        if update.level == existing:
            return f"The finalized level is already {existing}."
        if update.level < existing and update.upgrade_type != UpgradeType.SAFE_DOWNGRADE:
            return f"The finalized level is {existing}. A lower level requires a safe downgrade."
        if update.level > existing and update.upgrade_type != UpgradeType.UPGRADE:
            return f"The finalized level is {existing}. A higher level requires an upgrade."
    if update.feature not in SUPPORTED_FEATURES:
        return "Brokers of this cluster do not support the feature."
    unable = without_support(brokers, update.feature, update.level)
    if unable:
        return f"Level {update.level} is not supported by the brokers {', '.join(map(str, unable))}."
    return None
