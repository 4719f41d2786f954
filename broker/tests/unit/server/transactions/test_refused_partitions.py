"""Partitions that AddPartitionsToTxn cannot add to a transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from odradek.base.errors import (
    NONE,
    OperationNotAttemptedError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from odradek.base.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from odradek.coordinator.producer_ids import ProducerIds
from odradek.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from odradek.coordinator.transactions.transaction_values import ProducerIdAndEpoch
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.server.dispatch import RequestContext
from odradek.server.transactions.transaction_handlers import TransactionHandlers
from odradek_testkit.server import MemoryServer

NOT_ATTEMPTED = OperationNotAttemptedError.code
DENIED = TopicAuthorizationFailedError.code
UNKNOWN = UnknownTopicOrPartitionError.code
Play = Callable[..., None]


class Additions:
    """A coordinator that adds everything."""

    def __init__(self) -> None:
        self.added: list[TopicPartition] = []

    async def add_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Sequence[TopicPartition]
    ) -> None:
        self.added += partitions

    async def add_written(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        self.added += partitions
        return dict.fromkeys(partitions, NONE)


def asking(version: int, *wanted: tuple[str, int]) -> Message:
    topics = [{"name": name, "partitions": [number]} for name, number in wanted]
    if version < 4:
        fields = {"transactional_id": "id", "producer_id": 1, "producer_epoch": 0, "topics": topics}
        return {f"v3_and_below_{name}": value for name, value in fields.items()}
    one: Message = {"transactional_id": "id", "producer_id": 1, "producer_epoch": 0, "verify_only": False}
    return {"transactions": [{**one, "topics": topics}]}


@pytest.mark.parametrize("version", [0, 3, 4, 5])
@pytest.mark.parametrize("internal", [GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC])
def test_clients_cannot_add_internal_topics_and_unknown_partitions(play: Play, version: int, internal: str) -> None:
    coordinator = Additions()
    serving: list[TransactionHandlers] = []

    async def handler(context: RequestContext, request: Any) -> Message:
        return await serving[0].add_partitions(context, request)

    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        await server.announce(internal, {0: [1]})
        serving.append(
            TransactionHandlers(
                transactions=cast(TransactionCoordinator, coordinator),
                producer_ids=cast(ProducerIds, None),
                group_partition=lambda group: TopicPartition(GROUP_METADATA_TOPIC, 0),
                view=server.view,
            )
        )

        async def codes(*wanted: tuple[str, int]) -> list[int]:
            answer = await server.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, asking(version, *wanted))
            results = (
                answer.results_by_topic_v3_and_below if version < 4 else answer.results_by_transaction[0].topic_results
            )
            found = {
                (topic.name, part.partition_index): part.partition_error_code
                for topic in results
                for part in topic.results_by_partition
            }
            return [found[each] for each in wanted]

        assert await codes(("t", 0), ("t", 1)) == [NOT_ATTEMPTED, UNKNOWN]
        if version < 4:
            assert await codes(("t", 0), ("t", 1), (internal, 0)) == [NOT_ATTEMPTED, UNKNOWN, DENIED]
        else:
            assert await codes((internal, 0)) == [NONE], "only brokers use this version"
            coordinator.added.clear()
        assert coordinator.added == []
        assert await codes(("t", 0)) == [NONE]
        assert coordinator.added == [TopicPartition("t", 0)]

    play(scenario, replace={ApiKey.ADD_PARTITIONS_TO_TXN: handler})
