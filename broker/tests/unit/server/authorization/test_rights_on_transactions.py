"""Requests about transactions of a client that has some of the rights, in front of handlers that allow everything."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from odradek.base.errors import (
    NONE,
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    OperationNotAttemptedError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from odradek.base.types import GROUP_METADATA_TOPIC
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.messages.groups import FindCoordinatorRequest
from odradek.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from odradek.security.acls.model import AclOperation, ResourceType
from odradek.server.dispatch import RequestContext, route
from odradek_testkit.security.grants import MINE, SECRET, Grants, two_topics
from odradek_testkit.server import MemoryServer

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTION = ResourceType.TRANSACTIONAL_ID
DENIED = TopicAuthorizationFailedError.code
GROUP_DENIED = GroupAuthorizationFailedError.code
TRANSACTION_DENIED = TransactionalIdAuthorizationFailedError.code
CLUSTER_DENIED = ClusterAuthorizationFailedError.code
UNKNOWN = UnknownTopicOrPartitionError.code
Play = Callable[..., None]


def results(topics: Iterable[Any]) -> dict[tuple[str, int], int]:
    """The error code of each partition in a response of AddPartitionsToTxn."""
    return {
        (topic.name, part.partition_index): part.partition_error_code
        for topic in topics
        for part in topic.results_by_partition
    }


async def add_partitions(context: RequestContext, request: AddPartitionsToTxnRequest) -> Message:
    def added(numbers: Iterable[int]) -> list[Message]:
        return [{"partition_index": each, "partition_error_code": NONE} for each in numbers]

    topics = [
        {"name": topic.name, "results_by_partition": added(topic.partitions)} for topic in request.v3_and_below_topics
    ]
    return {"error_code": NONE, "results_by_transaction": (), "results_by_topic_v3_and_below": topics}


def adding(transactional_id: str, *topics: str) -> Message:
    return {
        "v3_and_below_transactional_id": transactional_id,
        "v3_and_below_producer_id": 1,
        "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": [{"name": name, "partitions": [0, 1]} for name in topics],
    }


@pytest.mark.parametrize("version", [0, 3])
def test_all_or_no_partitions_are_added_to_a_transaction(play: Play, version: int) -> None:
    grants = Grants((AclOperation.WRITE, TRANSACTION), (AclOperation.WRITE, TOPIC))

    async def scenario(server: MemoryServer) -> None:
        await two_topics(server)

        async def added(transactional_id: str, *topics: str) -> dict[tuple[str, int], int]:
            answer = await server.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, adding(transactional_id, *topics))
            return results(answer.results_by_topic_v3_and_below)

        assert await added(MINE, MINE) == {(MINE, 0): NONE, (MINE, 1): NONE}
        assert await added(MINE, MINE, SECRET, "nowhere", GROUP_METADATA_TOPIC) == {
            (MINE, 0): OperationNotAttemptedError.code,
            (MINE, 1): UNKNOWN,
            **{(name, each): DENIED for name in (SECRET, "nowhere", GROUP_METADATA_TOPIC) for each in (0, 1)},
        }
        assert {*grants.logged} == {SECRET, "nowhere"}
        assert set((await added(SECRET, MINE)).values()) == {TRANSACTION_DENIED}

    play(scenario, authorizer=grants, replace=dict([route(AddPartitionsToTxnRequest, add_partitions)]))


def test_brokers_need_cluster_action_for_the_transactions_of_clients(play: Play) -> None:
    grants = Grants((AclOperation.WRITE, TRANSACTION), (AclOperation.WRITE, TOPIC))
    one: Message = {"transactional_id": MINE, "producer_id": 1, "producer_epoch": 0, "topics": ()}

    async def scenario(server: MemoryServer) -> None:
        for version in (4, 5):
            answer = await server.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, {"transactions": [one]})
            assert (answer.error_code, answer.results_by_transaction) == (CLUSTER_DENIED, ())
        grants.allowed = {(AclOperation.CLUSTER_ACTION, CLUSTER)}
        answer = await server.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 4, {"transactions": [one]})
        assert answer.error_code == NONE

    play(scenario, authorizer=grants, replace=dict([route(AddPartitionsToTxnRequest, add_partitions)]))


async def write_markers(context: RequestContext, request: WriteTxnMarkersRequest) -> Message:
    return {"markers": [{"producer_id": marker.producer_id, "topics": ()} for marker in request.markers]}


@pytest.mark.parametrize("operation", [AclOperation.ALTER, AclOperation.CLUSTER_ACTION, AclOperation.DESCRIBE])
def test_brokers_and_administrators_write_markers(play: Play, operation: AclOperation) -> None:
    marker: Message = {
        "producer_id": 4,
        "producer_epoch": 0,
        "transaction_result": False,
        "topics": [{"name": MINE, "partition_indexes": [0]}],
        "coordinator_epoch": 0,
    }

    async def scenario(server: MemoryServer) -> None:
        (written,) = (await server.ask(ApiKey.WRITE_TXN_MARKERS, 1, {"markers": [marker]})).markers
        found = [part.error_code for topic in written.topics for part in topic.partitions]
        assert (written.producer_id, found) == (4, [CLUSTER_DENIED] if operation is AclOperation.DESCRIBE else [])

    handlers = dict([route(WriteTxnMarkersRequest, write_markers)])
    play(scenario, authorizer=Grants((operation, CLUSTER)), replace=handlers)


async def add_offsets(context: RequestContext, request: AddOffsetsToTxnRequest) -> Message:
    return {"error_code": NONE}


async def commit_offsets(context: RequestContext, request: TxnOffsetCommitRequest) -> Message:
    part: Message = {"partition_index": 0, "error_code": NONE}
    return {"topics": [{"name": topic.name, "partitions": [part]} for topic in request.topics]}


def test_offsets_of_a_transaction_need_rights_on_three_kinds_of_resources(play: Play) -> None:
    grants = Grants((AclOperation.WRITE, TRANSACTION), (AclOperation.READ, GROUP), (AclOperation.READ, TOPIC))
    handlers = dict([route(AddOffsetsToTxnRequest, add_offsets), route(TxnOffsetCommitRequest, commit_offsets)])
    cases = [
        (MINE, MINE, NONE, {MINE: NONE, SECRET: DENIED}),
        (SECRET, SECRET, TRANSACTION_DENIED, dict.fromkeys((MINE, SECRET), TRANSACTION_DENIED)),
        (MINE, SECRET, GROUP_DENIED, dict.fromkeys((MINE, SECRET), GROUP_DENIED)),
    ]

    async def scenario(server: MemoryServer) -> None:
        for transactional_id, group, of_addition, of_commit in cases:
            sender: Message = {
                "transactional_id": transactional_id,
                "group_id": group,
                "producer_id": 1,
                "producer_epoch": 0,
            }
            answer = await server.ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, sender)
            assert answer.error_code == of_addition
            part: Message = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
            topics = [{"name": name, "partitions": [part]} for name in (SECRET, MINE)]
            answer = await server.ask(ApiKey.TXN_OFFSET_COMMIT, 3, {**sender, "topics": topics})
            assert {topic.name: topic.partitions[0].error_code for topic in answer.topics} == of_commit

    play(scenario, authorizer=grants, replace=handlers)


async def describe_transactions(context: RequestContext, request: DescribeTransactionsRequest) -> Message:
    numbers = ("error_code", "transaction_timeout_ms", "transaction_start_time_ms", "producer_id", "producer_epoch")
    topics = [{"topic": name, "partitions": [0]} for name in (SECRET, MINE)]
    rest: Message = {"transaction_state": "Ongoing", **dict.fromkeys(numbers, 0), "topics": topics}
    return {"transaction_states": [{"transactional_id": each, **rest} for each in request.transactional_ids]}


async def list_transactions(context: RequestContext, request: ListTransactionsRequest) -> Message:
    states = [{"transactional_id": each, "producer_id": 1, "transaction_state": "Ongoing"} for each in (SECRET, MINE)]
    return {"error_code": NONE, "unknown_state_filters": (), "transaction_states": states}


async def find_coordinators(context: RequestContext, request: FindCoordinatorRequest) -> Message:
    place: Message = {"node_id": 1, "host": "h", "port": 1, "error_code": NONE, "error_message": ""}
    return {**place, "coordinators": [{"key": key, **place} for key in request.coordinator_keys]}


def test_transactions_and_their_topics_that_may_be_described(play: Play) -> None:
    grants = Grants((AclOperation.DESCRIBE, TRANSACTION), (AclOperation.DESCRIBE, TOPIC))
    handlers = dict(
        [
            route(DescribeTransactionsRequest, describe_transactions),
            route(ListTransactionsRequest, list_transactions),
            route(FindCoordinatorRequest, find_coordinators),
        ]
    )

    async def scenario(server: MemoryServer) -> None:
        answer = await server.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [SECRET, MINE]})
        found = {
            state.transactional_id: (state.error_code, [topic.topic for topic in state.topics])
            for state in answer.transaction_states
        }
        assert found == {MINE: (NONE, [MINE]), SECRET: (TRANSACTION_DENIED, [])}
        assert grants.logged == [SECRET], "the client has not named the topics"
        every: Message = {"state_filters": (), "producer_id_filters": ()}
        for version in (0, 1):
            listed = await server.ask(ApiKey.LIST_TRANSACTIONS, version, every)
            assert [state.transactional_id for state in listed.transaction_states] == [MINE]
        assert grants.logged == [SECRET], "the client has not named the transactional ids"
        keys: Message = {"key_type": 1, "coordinator_keys": [SECRET, MINE]}
        coordinators = (await server.ask(ApiKey.FIND_COORDINATOR, 4, keys)).coordinators
        assert {(one.key, one.error_code) for one in coordinators} == {(MINE, NONE), (SECRET, TRANSACTION_DENIED)}

    play(scenario, authorizer=grants, replace=handlers)
