"""The quotas of a broker's clients: from the settings and the quotas in ZooKeeper to the throttle of its handlers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from odradek.base.config import BrokerConfig
from odradek.base.ports import Clock
from odradek.protocol.apis import ApiKey
from odradek.security.quotas.quota_model import CLIENTS, IPS, USERS
from odradek.server.dispatch import Handler
from odradek.server.security.quota_handlers import QuotaHandlers
from odradek.server.throttling.client_throttle import ClientThrottle, QuotaWindows
from odradek.zk.port import ZkClient
from odradek.zk.quotas import ClientQuotas


class QuotaEnforcement:
    """Follows the quotas in ZooKeeper, and throttles clients that exceed them."""

    def __init__(self, config: BrokerConfig, zk: ZkClient, clock: Clock) -> None:
        """The client of ZooKeeper may be unconnected."""
        self.quotas: Final = ClientQuotas(zk, clock)
        windows = QuotaWindows(
            count=config.quota_window_num,
            window_ms=config.quota_window_size_seconds * 1000,
            mutations_count=config.controller_quota_window_num,
            mutations_window_ms=config.controller_quota_window_size_seconds * 1000,
        )
        self.throttle: Final = ClientThrottle(self.quotas, clock, windows)

    async def start(self) -> None:
        """Read the quotas. Before, clients have none. Raises `ZkError`."""
        await self.quotas.start()

    async def close(self) -> None:
        """Stop following the quotas. Idempotent."""
        await self.quotas.close()

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """The handlers that show and change quotas."""
        return QuotaHandlers(self.quotas).handlers()

    def entity_changed(self, path: str) -> None:
        """An entity below `/config` was changed. Those that have no quotas are ignored."""
        if path.partition("/")[0] in (USERS, CLIENTS, IPS):
            self.quotas.changed(path)
