"""The broker settings of the group coordinator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from odradek.base.config import BrokerConfig

MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Limits and timeouts of groups and committed offsets, in milliseconds, characters and counts."""

    min_session_timeout_ms: int
    max_session_timeout_ms: int
    initial_rebalance_delay_ms: int
    max_size: int
    offset_metadata_max: int
    offsets_retention_ms: int
    retention_check_interval_ms: int

    @classmethod
    def of(cls, config: BrokerConfig) -> GroupSettings:
        """Return the settings of the group coordinator in the broker's settings."""
        return cls(
            min_session_timeout_ms=config.group_min_session_timeout_ms,
            max_session_timeout_ms=config.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            max_size=config.group_max_size,
            offset_metadata_max=config.offset_metadata_max_bytes,
            offsets_retention_ms=config.offsets_retention_minutes * MINUTE_MS,
            retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        )
