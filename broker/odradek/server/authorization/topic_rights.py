"""What the client of a Produce or Fetch request may use: decided once for each topic, never for each record.
Which partitions a producer may add to its transaction."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from odradek.base.errors import (
    OperationNotAttemptedError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from odradek.base.types import TopicPartition
from odradek.cluster import ClusterImage
from odradek.network.connection import Request
from odradek.network.small_requests import SmallClient
from odradek.protocol.codec import Message
from odradek.security.acls.model import CLUSTER_NAME, AclOperation, ResourceType
from odradek.security.principals import Identity
from odradek.server.authorization.authorizer import Authorizer, audit
from odradek.server.authorization.guards import refusal
from odradek.server.client_memo import ClientMemo, memo_of

NO_TOPICS: Final[frozenset[str]] = frozenset()

NOT_WRITABLE: Final = TopicAuthorizationFailedError.code, str(refusal(AclOperation.WRITE, ResourceType.TOPIC))
"""Error code and message of a partition that the client may not write."""

MOST_WRITABLE: Final = 100
"""Maximum number of topics that a connection remembers. Beyond it, the authorizer is asked, which remembers more."""

_DEBUG: Final = logging.DEBUG


def not_writable(
    authorizer: Authorizer, request: Request, entries: Sequence[tuple[TopicPartition, object]]
) -> frozenset[str]:
    """Return the topics that the client of a Produce may not write."""
    memo, rules = memo_of(request), authorizer.generation
    if memo.rules is not rules:
        memo.rules, memo.writable = rules, NO_TOPICS
    writable = memo.writable
    for (topic, _), _ in entries:
        if topic not in writable:
            break
    else:
        if not audit.isEnabledFor(_DEBUG):
            return NO_TOPICS
    topics = {topic for (topic, _), _ in entries}
    denied = authorizer.denied(request.identity, AclOperation.WRITE, ResourceType.TOPIC, topics, "Produce")
    granted = writable | (topics - denied)
    memo.writable = granted if len(granted) <= MOST_WRITABLE else NO_TOPICS
    return denied


def known_writable(authorizer: Authorizer, connection: SmallClient) -> frozenset[str]:
    """Return the topics that the client of a connection is known to be allowed to write. `not_writable` finds them."""
    memo = connection.memo
    if (
        not isinstance(memo, ClientMemo)
        or memo.identity is not connection.identity
        or memo.rules is not authorizer.generation
        or audit.isEnabledFor(_DEBUG)  # Then every request is logged.
    ):
        return NO_TOPICS
    return memo.writable


def may_write_transactions(authorizer: Authorizer, identity: Identity, transactional_id: str) -> bool:
    """Whether the client may write records in transactions of this transactional id."""
    kind = ResourceType.TRANSACTIONAL_ID
    return not authorizer.denied(identity, AclOperation.WRITE, kind, (transactional_id,), "Produce")


def not_readable(
    authorizer: Authorizer, identity: Identity, is_consumer: bool, topics: Iterable[str]
) -> frozenset[str]:
    """Return the topics that the client may not read. A follower needs ClusterAction, and reads all topics or none."""
    if is_consumer:
        return authorizer.denied(identity, AclOperation.READ, ResourceType.TOPIC, topics, "Fetch")
    cluster = (CLUSTER_NAME,)
    denied = authorizer.denied(identity, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, cluster, "Fetch")
    return frozenset(topics) if denied else NO_TOPICS


def addition_errors(
    wanted: Iterable[TopicPartition], refused_topics: Collection[str], image: ClusterImage
) -> dict[TopicPartition, int]:
    """Return an error code per partition if one of them cannot be added to a transaction. Then none is added, and those
    without an error of their own have OPERATION_NOT_ATTEMPTED. Empty if all can be added.
    """
    codes: dict[TopicPartition, int] = {}
    is_refused = False
    for each in wanted:
        code = OperationNotAttemptedError.code
        if each.topic in refused_topics:
            code, is_refused = TopicAuthorizationFailedError.code, True
        elif image.partition(each) is None:
            code, is_refused = UnknownTopicOrPartitionError.code, True
        codes[each] = code
    return codes if is_refused else {}


def addition_results(codes: Mapping[TopicPartition, int]) -> list[Message]:
    """Return the results of AddPartitionsToTxn, by topic, with these error codes."""
    topics: defaultdict[str, list[Message]] = defaultdict(list)
    for (topic, number), code in codes.items():
        topics[topic].append({"partition_index": number, "partition_error_code": code})
    return [{"name": topic, "results_by_partition": results} for topic, results in topics.items()]
