"""Which topics of a Produce or Fetch request the client may use: decided once for each topic, never for each record."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from odradek.base.errors import TopicAuthorizationFailedError
from odradek.base.types import TopicPartition
from odradek.security.acls.model import CLUSTER_NAME, AclOperation, ResourceType
from odradek.security.principals import Identity
from odradek.server.authorization.authorizer import Authorizer
from odradek.server.authorization.guards import refusal

NO_TOPICS: Final[frozenset[str]] = frozenset()

NOT_WRITABLE: Final = TopicAuthorizationFailedError.code, str(refusal(AclOperation.WRITE, ResourceType.TOPIC))
"""Error code and message of a partition that the client may not write."""


def not_writable(
    authorizer: Authorizer, identity: Identity, entries: Iterable[tuple[TopicPartition, object]]
) -> frozenset[str]:
    """Return the topics that the client may not write."""
    topics = {topic_partition.topic for topic_partition, _ in entries}
    return authorizer.denied(identity, AclOperation.WRITE, ResourceType.TOPIC, topics, "Produce")


def not_readable(
    authorizer: Authorizer, identity: Identity, is_consumer: bool, topics: Iterable[str]
) -> frozenset[str]:
    """Return the topics that the client may not read. A follower needs ClusterAction, and reads all topics or none."""
    if is_consumer:
        return authorizer.denied(identity, AclOperation.READ, ResourceType.TOPIC, topics, "Fetch")
    cluster = (CLUSTER_NAME,)
    denied = authorizer.denied(identity, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, cluster, "Fetch")
    return frozenset(topics) if denied else NO_TOPICS
