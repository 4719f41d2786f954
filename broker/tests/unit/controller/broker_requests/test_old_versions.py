"""Requests in old versions have the same content as those in new versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.types import TopicPartition
from odradek.controller.broker_requests.old_versions import is_grouped, messages_for
from odradek.controller.broker_requests.request_batch import BrokerRequest, RequestBatch
from odradek.controller.context import ControllerContext
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import decode_header, decode_request, encode_request

ROLES, METADATA, STOP = ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA, ApiKey.STOP_REPLICA
Build = Callable[..., ControllerContext]
BatchOf = Callable[[ControllerContext], RequestBatch]


def sent(request: BrokerRequest, version: int) -> list[Any]:
    """Return the requests as a broker decodes them."""
    entities = []
    for message in messages_for(request.api_key, version, request.message):
        frame = memoryview(encode_request(request.api_key, version, 1, "me", message)[4:])
        entities.append(decode_request(*_headed(frame)))
    return entities


def _headed(frame: memoryview) -> tuple[Any, memoryview, int]:
    header, position = decode_header(frame)
    return header, frame, position


def states_of(entity: Any) -> list[tuple[TopicPartition, int, bool]]:
    flat = [(state.topic_name, state) for state in entity.ungrouped_partition_states]
    flat += [(topic.topic_name, state) for topic in entity.topic_states for state in topic.partition_states]
    return [
        (TopicPartition(topic, state.partition_index), state.leader_epoch, getattr(state, "is_new", False))
        for topic, state in flat
    ]


@pytest.fixture
def requests(build: Build, batch_of: BatchOf) -> dict[ApiKey, BrokerRequest]:
    batch = batch_of(build([1, 2], {0: ([1, 2], 1, [1, 2]), 1: ([2, 1], 2, [2])}))
    for number in (0, 1):
        batch.leader_and_isr([2], TopicPartition("t", number), is_new=False)
    batch.stop_replica(2, TopicPartition("t", 0), delete=True)
    batch.stop_replica(2, TopicPartition("t", 1), delete=False)
    return {request.api_key: request for request in batch.take() if request.broker == 2}


@pytest.mark.parametrize("api_key", [ROLES, METADATA])
def test_every_partition_has_a_result_in_every_version(requests: dict[ApiKey, BrokerRequest], api_key: ApiKey) -> None:
    request = requests[api_key]
    for version in range(1, API_TABLE[api_key].max_version + 1):
        (entity,) = sent(request, version)
        assert states_of(entity) == [(TopicPartition("t", 0), 5, False), (TopicPartition("t", 1), 5, False)]
        assert entity.broker_epoch > 0 or not is_grouped(api_key, version)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_deletions_are_in_a_separate_last_request(requests: dict[ApiKey, BrokerRequest], version: int) -> None:
    kept, deleted = sent(requests[STOP], version)
    for entity, number, delete in ((kept, 1, False), (deleted, 0, True)):
        assert entity.delete_partitions is delete
        if version:
            assert [(topic.name, tuple(topic.partition_indexes)) for topic in entity.topics] == [("t", (number,))]
        else:
            assert [(one.topic_name, one.partition_index) for one in entity.ungrouped_partitions] == [("t", number)]


@given(
    st.dictionaries(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), st.booleans(), min_size=1),
    st.sampled_from([0, 1, 2]),
)
def test_stops_are_not_lost(wanted: dict[tuple[str, int], bool], version: int) -> None:
    topics = [
        {
            "topic_name": name,
            "partition_states": [
                {"partition_index": number, "leader_epoch": 1, "delete_partition": delete}
                for (topic, number), delete in wanted.items()
                if topic == name
            ],
        }
        for name in sorted({topic for topic, _ in wanted})
    ]
    found: dict[tuple[str, int], bool] = {}
    for message in messages_for(STOP, version, {"topic_states": topics}):
        some: Any = message.get("topics") or message.get("ungrouped_partitions")
        for one in some:
            keys = [(one["name"], n) for n in one["partition_indexes"]] if version else [tuple(one.values())]
            found |= dict.fromkeys(keys, bool(message["delete_partitions"]))
    assert found == wanted
