"""The fields of ConsumerGroupHeartbeat requests: all of them at first and after an error, later only changes (KIP-848).

`ConsumerProtocolMember` builds its requests with it. Invariant: a field that a request lacks has the value that the
coordinator has received before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from odradek.protocol.codec import Message
from odradek.protocol.messages.consumer_groups import ConsumerGroupHeartbeatResponseAssignment

JOIN_EPOCH: Final = 0
"""Member epoch of a request that joins the group."""
LEAVE_EPOCH: Final = -1
"""Member epoch of a request that leaves the group."""
LEAVE_STATIC_EPOCH: Final = -2
"""Member epoch with which a static member leaves for a while: it keeps its partitions until the session ends."""

_OWNED: Final = "topic_partitions"

TopicIdPartition = tuple[UUID, int]
"""A partition, with the id of its topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatFields:
    """What a member tells its coordinator about itself, besides its identity."""

    rebalance_timeout_ms: int
    """Time that the member has for giving up partitions, in milliseconds."""
    rack_id: str | None = None
    topics: tuple[str, ...] = ()
    """Names of the subscribed topics, sorted."""
    regex: str | None = None
    """Regular expression of the subscription, which the coordinator resolves; None without one. A member that has one
    keeps it or replaces it by another."""
    server_assignor: str | None = None
    """Name of the coordinator's assignor that the member prefers; None for the coordinator's choice."""
    owned: tuple[TopicIdPartition, ...] = ()
    """The assigned partitions, sorted."""
    reached: int = 0
    """Number of the last target that was put into effect. The coordinator waits for the owned partitions after each
    target, also if they are the same as before."""


def heartbeat_changes(fields: HeartbeatFields, sent: HeartbeatFields | None, *, joining: bool) -> Message:
    """Return the fields that a request must have. `sent` is what the coordinator knows, None if that is uncertain."""
    if joining or sent is None:
        return _full(fields)
    known = _full(sent)
    changed = {name: value for name, value in _full(fields).items() if value != known[name]}
    if fields.reached != sent.reached:
        changed[_OWNED] = _by_topic(fields.owned)
    return changed


def _full(fields: HeartbeatFields) -> dict[str, object]:
    return {
        "rebalance_timeout_ms": fields.rebalance_timeout_ms,
        "rack_id": fields.rack_id,
        "subscribed_topic_names": fields.topics,
        "subscribed_topic_regex": fields.regex,
        "server_assignor": fields.server_assignor,
        _OWNED: _by_topic(fields.owned),
    }


def _by_topic(partitions: Iterable[TopicIdPartition]) -> list[dict[str, object]]:
    grouped: dict[UUID, list[int]] = {}
    for topic_id, number in partitions:
        grouped.setdefault(topic_id, []).append(number)
    return [{"topic_id": topic_id, "partitions": numbers} for topic_id, numbers in grouped.items()]


def assigned_partitions(assignment: ConsumerGroupHeartbeatResponseAssignment) -> frozenset[TopicIdPartition]:
    """Return the partitions of an assignment."""
    return frozenset((topic.topic_id, number) for topic in assignment.topic_partitions for number in topic.partitions)
