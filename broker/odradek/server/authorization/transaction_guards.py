"""Guards of the APIs of transactions."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, cast

from odradek.base.types import INTERNAL_TOPICS, TopicPartition
from odradek.protocol.codec import Message
from odradek.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    WriteTxnMarkersRequest,
)
from odradek.security.acls.model import CLUSTER_NAME, AclOperation, ResourceType
from odradek.server.authorization.guards import Access, Items, Proceed, refusal, rows_of
from odradek.server.authorization.topic_rights import addition_errors, addition_results

OF_BROKERS_SINCE: Final = 4
"""First AddPartitionsToTxn version that only brokers send (KIP-890)."""


async def add_partitions(
    access: Access, request: AddPartitionsToTxnRequest, proceed: Proceed[AddPartitionsToTxnRequest]
) -> Message:
    """Require Write on the transactional id and on each topic; ClusterAction from version 4 on.

    If the client may not write one of the topics, none is added to the transaction.
    """
    if access.context.api_version >= OF_BROKERS_SINCE:
        access.require(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
        return await proceed(request)
    access.require(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.v3_and_below_transactional_id)
    topics = request.v3_and_below_topics
    # The handler refuses internal topics to every client, also to those that may write them.
    names = dict.fromkeys(topic.name for topic in topics if topic.name not in INTERNAL_TOPICS)
    denied = access.denied(AclOperation.WRITE, ResourceType.TOPIC, names)
    if not denied:
        return await proceed(request)
    wanted = [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]
    codes = addition_errors(wanted, denied | INTERNAL_TOPICS, access.image)
    return {"throttle_time_ms": 0, "results_by_topic_v3_and_below": addition_results(codes)}


async def add_offsets(
    access: Access, request: AddOffsetsToTxnRequest, proceed: Proceed[AddOffsetsToTxnRequest]
) -> Message:
    """Require Write on the transactional id and Read on the group."""
    access.require(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    access.require(AclOperation.READ, ResourceType.GROUP, request.group_id)
    return await proceed(request)


async def write_markers(
    access: Access, request: WriteTxnMarkersRequest, proceed: Proceed[WriteTxnMarkersRequest]
) -> Message:
    """Require Alter on the cluster, which administrators have, or ClusterAction, which brokers have (KIP-664)."""
    if not access.allows_cluster(AclOperation.ALTER, is_logged=False):
        access.require(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    return await proceed(request)


_COMMITTED: Final[Items[TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic]] = Items(
    of=lambda request: request.topics,
    name=lambda topic: topic.name,
    keep=lambda request, topics: replace(request, topics=topics),
    answers="topics",
)


async def offset_commit(
    access: Access, request: TxnOffsetCommitRequest, proceed: Proceed[TxnOffsetCommitRequest]
) -> Message:
    """Require Write on the transactional id, Read on the group, and Read on each topic."""
    access.require(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    access.require(AclOperation.READ, ResourceType.GROUP, request.group_id)
    names = dict.fromkeys(topic.name for topic in request.topics)
    denied = access.denied(AclOperation.READ, ResourceType.TOPIC, names)
    error = refusal(AclOperation.READ, ResourceType.TOPIC)
    return await _COMMITTED.serve(access, request, proceed, denied, error)


_DESCRIBED: Final[Items[DescribeTransactionsRequest, str]] = Items(
    of=lambda request: request.transactional_ids,
    name=lambda transactional_id: transactional_id,
    keep=lambda request, ids: replace(request, transactional_ids=ids),
    answers="transaction_states",
)


async def describe_transactions(
    access: Access, request: DescribeTransactionsRequest, proceed: Proceed[DescribeTransactionsRequest]
) -> Message:
    """Require Describe on each transactional id. Topics that the client may not describe are left out."""
    denied = access.denied(
        AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, dict.fromkeys(request.transactional_ids)
    )
    error = refusal(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
    answer = await _DESCRIBED.serve(access, request, proceed, denied, error)
    states = [{**row, "topics": _visible_topics(access, row)} for row in rows_of(answer, "transaction_states")]
    return {**answer, "transaction_states": states}


def _visible_topics(access: Access, row: Message) -> list[Message]:
    topics = rows_of(row, "topics")
    names = [cast(str, topic["topic"]) for topic in topics]
    hidden = access.denied(AclOperation.DESCRIBE, ResourceType.TOPIC, names, is_logged=False)
    return [topic for topic in topics if topic["topic"] not in hidden]


async def list_transactions(
    access: Access, request: ListTransactionsRequest, proceed: Proceed[ListTransactionsRequest]
) -> Message:
    """Return the transactional ids that the client may describe."""
    answer = await proceed(request)
    rows = rows_of(answer, "transaction_states")
    names = [cast(str, row["transactional_id"]) for row in rows]
    hidden = access.denied(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, names, is_logged=False)
    return {**answer, "transaction_states": [row for row in rows if row["transactional_id"] not in hidden]}
