"""The part of a plan for the consumer group: its protocol and its assignor."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
"""The protocol of KIP-848."""

SESSION_MS: Final = 6000
CONSUMER_SHARE: Final = 0.45
"""Share of the plans whose members use the protocol of KIP-848."""
COOPERATIVE_SHARE: Final = 0.5
"""Share of the other plans whose members rebalance cooperatively."""

_LIMITS: Final = {
    "session.timeout.ms": SESSION_MS,
    "min.session.timeout.ms": SESSION_MS,
    "heartbeat.interval.ms": SESSION_MS // 3,
    "min.heartbeat.interval.ms": SESSION_MS // 3,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """How the members of the group rebalance."""

    protocol: str = CLASSIC
    assignor: str = "range"
    properties: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Settings of the brokers."""

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the members."""
        if self.protocol == CONSUMER:
            return {"group_protocol": CONSUMER, "group_remote_assignor": self.assignor}
        return {
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": SESSION_MS // 3,
            "partition_assignment_strategy": (self.assignor,),
        }


def draw_group(seed: int) -> GroupPlan:
    """Return the group of a seed. It does not depend on the other choices, and they not on it."""
    chance = random.Random(f"group-{seed}")
    if chance.random() < CONSUMER_SHARE:
        properties = {f"group.consumer.{name}": str(value) for name, value in _LIMITS.items()}
        properties["inter.broker.protocol.version"] = "3.9"  # Older versions do not have the protocol.
        return GroupPlan(
            protocol=CONSUMER, assignor=chance.choice(("uniform", "range")), properties=MappingProxyType(properties)
        )
    return GroupPlan(assignor="cooperative-sticky" if chance.random() < COOPERATIVE_SHARE else "range")
