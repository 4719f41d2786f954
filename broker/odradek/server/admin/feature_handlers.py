"""Features of a cluster in ZooKeeper mode (KIP-584): the finalized features, and UpdateFeatures.

The controller writes `/feature`. Every broker watches it and returns its content in ApiVersions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, Protocol

from odradek.base.errors import NONE, ProtocolError
from odradek.base.ports import Clock
from odradek.controller.features import FeatureUpdate, UpgradeType
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.messages.cluster import UpdateFeaturesRequest, UpdateFeaturesRequestFeatureUpdateKey
from odradek.server.configs.config_store import persist
from odradek.server.dispatch import Handler, RequestContext, route
from odradek.zk.layout import FEATURE, Feature, LayoutError
from odradek.zk.port import Watch, ZkClient

logger = logging.getLogger(__name__)


class Finalized(NamedTuple):
    """Feature levels supported by all brokers of the cluster, and their epoch, the version of the znode."""

    epoch: int
    levels: Mapping[str, int]


NOTHING_FINALIZED: Final = Finalized(-1, {})
"""The value while the inter-broker protocol disables features, or before they are read."""


class FinalizedFeatures:
    """Watches `/feature`."""

    def __init__(self, zk: ZkClient, clock: Clock) -> None:
        """Create the view without features; `start` reads them."""
        self._zk = zk
        self._clock = clock
        self.current = NOTHING_FINALIZED
        self._watch: Watch | None = None
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def level(self, feature: str) -> int:
        """Return the finalized level of a feature; 0 if it is not finalized."""
        return self.current.levels.get(feature, 0)

    async def start(self) -> None:
        """Read the znode and watch it. Raises `ZkError`."""
        self._watch = self._zk.watch_data(FEATURE, self._wanted.set)
        await self._read()
        self._task = asyncio.create_task(self._follow(), name="finalized-features")

    async def close(self) -> None:
        """Stop watching. Idempotent."""
        if self._watch is not None:
            self._watch.cancel()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _follow(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            await persist(self._read, self._clock)

    async def _read(self) -> None:
        found = await self._zk.get_or_none(FEATURE)
        if found is None:
            self.current = NOTHING_FINALIZED
            return
        try:
            feature = Feature.decode(found[0])
        except LayoutError as error:
            logger.error("the finalized features cannot be read and count as unknown: %s", error)
            self.current = NOTHING_FINALIZED
            return
        self.current = Finalized(found[1].version, feature.features) if feature.enabled else NOTHING_FINALIZED


class FeatureUpdater(Protocol):
    """The port of this handler to the controller in this process."""

    async def update_features(
        self, updates: Collection[FeatureUpdate], *, validate_only: bool
    ) -> dict[str, ProtocolError | None]:
        """Change finalized features. Returns the error of each; raises `NotControllerError` and
        `InvalidRequestError`."""
        ...


class FeatureHandlers:
    """The handler of UpdateFeatures."""

    def __init__(self, *, controller: FeatureUpdater) -> None:
        """`controller` handles the request if it is the active one."""
        self._controller = controller

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """The handlers by API."""
        return dict([route(UpdateFeaturesRequest, self.update_features)])

    async def update_features(self, context: RequestContext, request: UpdateFeaturesRequest) -> Message:
        """Handle UpdateFeatures: finalize, downgrade or delete features. The failure of one does not affect the
        others."""
        updates = [
            FeatureUpdate(
                feature=item.feature,
                level=item.max_version_level,
                upgrade_type=_upgrade_type(item, context.api_version),
            )
            for item in request.feature_updates
        ]
        results = await self._controller.update_features(updates, validate_only=request.validate_only)
        return {
            "throttle_time_ms": 0,
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


def _upgrade_type(item: UpdateFeaturesRequestFeatureUpdateKey, version: int) -> int:
    """Return whether the update may be a downgrade. Version 0 has a flag for it, later versions a type of update."""
    if version == 0:
        return UpgradeType.SAFE_DOWNGRADE if item.allow_downgrade else UpgradeType.UPGRADE
    return item.upgrade_type
