"""The versioned features of a cluster as admin clients see and change them (KIP-584). `Admin` inherits from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from odradek.base.errors import ProtocolError, error_for
from odradek.client.administration.admin_parts import AdminPart, check_answer
from odradek.network.channel import SOFTWARE
from odradek.protocol.messages.cluster import ApiVersionsResponse, UpdateFeaturesResponse

_FEATURES_SINCE: Final = 3
"""First version of ApiVersions with features."""
_VALIDATION_SINCE: Final = 1
"""First version of UpdateFeatures that can only validate, and that distinguishes downgrades."""


class VersionRange(NamedTuple):
    """The lowest and the highest version of a feature."""

    lowest: int
    highest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureMetadata:
    """The features of a cluster."""

    finalized: Mapping[str, VersionRange]
    """The version levels that are in use in the whole cluster."""
    finalized_epoch: int | None
    """Grows with each change of `finalized`. None if the broker does not know the finalized features."""
    supported: Mapping[str, VersionRange]
    """The versions that the broker which answered supports."""


class FeatureUpgrade(IntEnum):
    """The change of a version level that an update allows (KIP-778)."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    """A lower level, if no metadata is lost."""
    UNSAFE_DOWNGRADE = 3
    """A lower level, even if metadata may be lost."""


class FeatureLevel(NamedTuple):
    """The version level that a feature gets."""

    level: int
    """0 removes the feature; this requires a downgrade."""
    upgrade: FeatureUpgrade = FeatureUpgrade.UPGRADE


class FeatureAdmin(AdminPart):
    """Describes and updates features."""

    async def describe_features(self) -> FeatureMetadata:
        """Return the finalized features of the cluster, and those that one of its brokers supports."""
        answer = await self._ask_any(ApiVersionsResponse, SOFTWARE, at_least=_FEATURES_SINCE)
        check_answer(answer.error_code, None, "the features cannot be described")
        return FeatureMetadata(
            finalized={
                row.name: VersionRange(row.min_version_level, row.max_version_level)
                for row in answer.finalized_features
            },
            finalized_epoch=answer.finalized_features_epoch if answer.finalized_features_epoch >= 0 else None,
            supported={row.name: VersionRange(row.min_version, row.max_version) for row in answer.supported_features},
        )

    async def update_features(
        self, levels: Mapping[str, FeatureLevel], *, validate_only: bool = False
    ) -> dict[str, ProtocolError | None]:
        """Change the version levels of features. Return the error of each; None means success.

        With `validate_only`, the controller only checks the updates. Raises `UnsupportedVersionError` if the controller
        is older than Kafka 3.3 and the call uses `validate_only` or an unsafe downgrade, and
        `ClusterAuthorizationFailedError`.
        """
        message = {
            "timeout_ms": self._cluster.settings.request_timeout_ms,
            "feature_updates": [
                {
                    "feature": name,
                    "max_version_level": wanted.level,
                    "allow_downgrade": wanted.upgrade is not FeatureUpgrade.UPGRADE,
                    "upgrade_type": int(wanted.upgrade),
                }
                for name, wanted in levels.items()
            ],
            "validate_only": validate_only,
        }

        unsafe = any(wanted.upgrade is FeatureUpgrade.UNSAFE_DOWNGRADE for wanted in levels.values())
        lowest = _VALIDATION_SINCE if validate_only or unsafe else 0

        async def attempt() -> dict[str, ProtocolError | None]:
            response = await self._cluster.ask_controller(UpdateFeaturesResponse, message, at_least=lowest)
            check_answer(response.error_code, response.error_message, "features cannot be updated")
            return {
                row.feature: error_for(row.error_code, f"{row.feature}: {row.error_message or 'refused'}")
                if row.error_code
                else None
                for row in response.results
            }

        return await self._retrying(attempt, "updating features")
