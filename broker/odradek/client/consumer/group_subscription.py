"""What a subscription of a consumer needs: the member of the group, and the pattern.

`consumer` calls it. `group.protocol` chooses the class of the member.
"""

from __future__ import annotations

from collections.abc import Callable
from re import Pattern
from typing import Final

from odradek.base.errors import ConfigError
from odradek.client.cluster_client import Cluster
from odradek.client.consumer.consumer_protocol.consumer_protocol_member import ConsumerProtocolMember
from odradek.client.consumer.group_member import GroupMember
from odradek.client.consumer.member_contract import MemberEvents
from odradek.client.consumer.topic_pattern import TopicPattern
from odradek.client.models import SubscriptionPattern

Member = GroupMember | ConsumerProtocolMember
"""A member of a group, under either protocol."""
_MEMBERS: Final[dict[str, type[Member]]] = {"classic": GroupMember, "consumer": ConsumerProtocolMember}


def new_member(cluster: Cluster, group_id: str, events: MemberEvents, *, on_news: Callable[[], None]) -> Member:
    """Return a member of a group under the protocol of the settings."""
    return _MEMBERS[cluster.settings.group_protocol](cluster, group_id, events, on_news=on_news)


def new_pattern(
    cluster: Cluster,
    pattern: str | Pattern[str] | SubscriptionPattern | None,
    current: TopicPattern | SubscriptionPattern | None,
    on_topics: Callable[[frozenset[str]], None],
) -> TopicPattern | SubscriptionPattern | None:
    """Return the pattern of a subscription, which the client or, for a `SubscriptionPattern`, the brokers resolve.

    `current` is the pattern until now. Raises `ConfigError` if `pattern` is invalid, of the other kind than `current`,
    or to be resolved by brokers in a group under the classic protocol.
    """
    if pattern is None:
        return None
    by_brokers = isinstance(pattern, SubscriptionPattern)
    if current is not None and by_brokers != isinstance(current, SubscriptionPattern):
        raise ConfigError("a consumer cannot subscribe to patterns of both kinds: unsubscribe first")
    if not isinstance(pattern, SubscriptionPattern):
        return TopicPattern(cluster, pattern, on_topics)
    if cluster.settings.group_protocol != "consumer":
        raise ConfigError("group.protocol=classic is not allowed with a SubscriptionPattern: it must be consumer")
    return pattern
