"""The znodes of consumer groups: members and owners, as Apache Kafka 0.8.2 and 0.9 write them.

    /consumers/GROUP/ids/CONSUMER                 ephemeral: what the consumer reads
    /consumers/GROUP/owners/TOPIC/PARTITION       ephemeral: the name of the thread that reads the partition

`group_registry` uses it; `zk/layout` has the offsets. Paths are relative to the chroot. Invalid content raises
`LayoutError`, which names the path.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from odradek.base.errors import InvalidGroupIdError
from odradek.base.types import TopicPartition
from odradek.zk.layout import CONSUMERS
from odradek.znode import ZnodeJson, is_node_name

STATIC: Final = "static"
WHITELIST: Final = "white_list"
BLACKLIST: Final = "black_list"
PATTERNS: Final = (STATIC, WHITELIST, BLACKLIST)
"""How a consumer chooses its topics: by their names, or by a regular expression."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRegistration:
    """What a consumer reads: the number of streams by topic, or of one regular expression."""

    subscription: Mapping[str, int]
    pattern: str = STATIC
    timestamp_ms: int = -1

    def encode(self) -> bytes:
        """Encode version 1."""
        node = {
            "version": 1,
            "subscription": dict(self.subscription),
            "pattern": self.pattern,
            "timestamp": str(self.timestamp_ms),
        }
        return json.dumps(node, separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def decode(cls, data: bytes, path: str) -> ConsumerRegistration:
        """Decode version 1. Raises `LayoutError` for an unknown pattern or a number of streams below 1."""
        node = ZnodeJson(path, data)
        pattern = node.text("pattern") if node.has("pattern") else STATIC
        if pattern not in PATTERNS:
            raise node.error("pattern", f"one of {', '.join(PATTERNS)}")
        subscription = node.integer_map("subscription")
        if any(count < 1 for count in subscription.values()):
            raise node.error("subscription", "numbers of streams from 1")
        if pattern != STATIC and len(subscription) != 1:
            raise node.error("subscription", "a single regular expression")
        return cls(subscription=subscription, pattern=pattern, timestamp_ms=node.integer("timestamp", -1))


def consumer_id(group_id: str, host: str, timestamp_ms: int, token: UUID) -> str:
    """Return an id as Kafka's consumers generate it: group, host, time and the first eight digits of a random UUID."""
    return f"{group_id}_{host}-{timestamp_ms}-{token.hex[:8]}"


def check_group_id(group_id: str) -> None:
    """Raise `InvalidGroupIdError` if the id cannot be the name of a znode."""
    if not is_node_name(group_id):
        raise InvalidGroupIdError(f"group.id={group_id!r} is not a name of a znode: it must not be empty or contain /")


def members_path(group_id: str) -> str:
    """Return the path of the registrations of a group."""
    return f"{CONSUMERS}/{group_id}/ids"


def member_path(group_id: str, member: str) -> str:
    """Return the path of the registration of a consumer."""
    return f"{CONSUMERS}/{group_id}/ids/{member}"


def owners_path(group_id: str, topic: str) -> str:
    """Return the path of the owners of a topic's partitions."""
    return f"{CONSUMERS}/{group_id}/owners/{topic}"


def owner_path(group_id: str, partition: TopicPartition) -> str:
    """Return the path of the owner of a partition."""
    return f"{CONSUMERS}/{group_id}/owners/{partition.topic}/{partition.partition}"
