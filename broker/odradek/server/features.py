"""UpdateFeatures (KIP-584), as the controller of a cluster in ZooKeeper mode answers it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

from odradek.base.errors import NONE, ProtocolError
from odradek.controller.features import FeatureUpdate, UpgradeType
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.server.dispatch import Handler, RequestContext
from odradek.server.fields import field


class FeatureUpdater(Protocol):
    """What is needed of the controller of this process."""

    async def update_features(
        self, updates: Collection[FeatureUpdate], *, validate_only: bool
    ) -> dict[str, ProtocolError | None]:
        """Change what is finalized; the error of each. `NotControllerError`, `InvalidRequestError` when disabled."""
        ...


class FeatureHandlers:
    """The handler of UpdateFeatures."""

    def __init__(self, *, controller: FeatureUpdater) -> None:
        """`controller` answers when it is the active one."""
        self._controller = controller

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """The handlers by API."""
        return {ApiKey.UPDATE_FEATURES: self.update_features}

    async def update_features(self, context: RequestContext, request: Any) -> Message:
        """Finalize, lower or remove features, each for itself."""
        updates = [
            FeatureUpdate(feature=item.feature, level=int(item.max_version_level), upgrade_type=_upgrade_type(item))
            for item in request.feature_updates
        ]
        results = await self._controller.update_features(
            updates, validate_only=bool(field(request, "validate_only", False))
        )
        return {
            "throttle_time": 0,
            "error_code": NONE,
            "error_message": None,
            "results": [
                {
                    "feature": feature,
                    "error_code": NONE if error is None else error.code,
                    "error_message": None if error is None else str(error),
                }
                for feature, error in results.items()
            ],
        }


def _upgrade_type(item: Any) -> int:
    """Version 0 only says whether the level may become lower."""
    if hasattr(item, "allow_downgrade"):
        return UpgradeType.SAFE_DOWNGRADE if item.allow_downgrade else UpgradeType.UPGRADE
    return int(item.upgrade_type)
