"""Encoded topics: cached while the image does not change, encoded again after a change."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest

from odradek.base.types import ZERO_UUID, Endpoint, TopicPartition
from odradek.cluster import AnnouncedBroker, ClusterImage, PartitionMetadata
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import EncodedElements, decode_response, encode_response
from odradek.security.acls.model import ResourceType
from odradek.server.authorization.authorizer import all_operations
from odradek.server.topic_entries import (
    FORMS,
    PARTITIONS_AT_A_TIME,
    Absent,
    TopicEntries,
    TopicEntryForm,
)

FORM = TopicEntryForm(version=12, listener="CLIENTS", operations=None)


def brokers(*ids: int, listeners: Sequence[str] = ("CLIENTS", "OTHERS")) -> list[AnnouncedBroker]:
    return [
        AnnouncedBroker(broker_id=each, endpoints=tuple(Endpoint(name, "h", 9000 + each) for name in listeners))
        for each in ids
    ]


def image(sizes: dict[str, int], *, live: Sequence[AnnouncedBroker] = (), leader: int = 1) -> ClusterImage:
    return ClusterImage().updated(
        controller_id=1,
        brokers=live or brokers(1, 2),
        partitions=[
            (
                TopicPartition(topic, number),
                UUID(int=len(topic)),
                PartitionMetadata(leader=leader, leader_epoch=4, isr=(1, 2), replicas=(1, 2)),
            )
            for topic, size in sizes.items()
            for number in range(size)
        ],
    )


def changed(before: ClusterImage, topic: str, *, leader: int, live: Sequence[AnnouncedBroker] = ()) -> ClusterImage:
    state = PartitionMetadata(leader=leader, leader_epoch=5, isr=(leader,), replicas=(1, 2))
    return before.updated(
        controller_id=1,
        brokers=live or brokers(1, 2),
        partitions=[(TopicPartition(topic, 0), ZERO_UUID, state)] if topic else [],
    )


def partitions_of(topics: EncodedElements, version: int = 12) -> dict[str, list[int]]:
    """Return the leaders by topic, as a client decodes them."""
    frame = encode_response(ApiKey.METADATA, version, 1, {"brokers": [], "controller_id": 1, "topics": topics})
    found = decode_response(ApiKey.METADATA, version, frame[4:]).topics
    return {topic.name: [row.leader_id for row in topic.partitions] for topic in found}


async def test_encoded_topics_are_cached_while_the_image_does_not_change() -> None:
    entries, now = TopicEntries(), image({"a": 2, "bb": 1})
    first = await entries.every(now, FORM)
    assert await entries.every(now, FORM) is first
    assert partitions_of(first) == {"a": [1, 1], "bb": [1]}
    again = await entries.every(changed(now, "", leader=0), FORM)
    assert (again, again is first) == (first, False)


async def test_a_changed_topic_is_encoded_again() -> None:
    entries, now = TopicEntries(), image({"a": 2, "bb": 1})
    await entries.every(now, FORM)
    later = changed(now, "a", leader=2)
    assert partitions_of(await entries.every(later, FORM)) == {"a": [2, 1], "bb": [1]}
    assert partitions_of(await entries.some(later, FORM, [later.topics["a"]])) == {"a": [2, 1]}
    assert partitions_of(await entries.every(now, FORM)) == {"a": [1, 1], "bb": [1]}


async def test_a_dead_or_moved_broker_changes_the_encoded_topics() -> None:
    entries, now = TopicEntries(), image({"a": 1})
    assert partitions_of(await entries.every(now, FORM)) == {"a": [1]}
    gone = changed(now, "", leader=0, live=brokers(2))
    assert gone.topics["a"] is now.topics["a"]
    assert partitions_of(await entries.every(gone, FORM)) == {"a": [-1]}
    assert partitions_of(await entries.some(gone, FORM, gone.topics.values())) == {"a": [-1]}
    hidden = changed(now, "", leader=0, live=brokers(1, 2, listeners=("OTHERS",)))
    assert partitions_of(await entries.every(hidden, FORM)) == {"a": [-1]}
    assert partitions_of(await entries.every(now, FORM)) == {"a": [1]}


async def test_a_deleted_topic_is_not_encoded() -> None:
    entries, now = TopicEntries(), image({"a": 1, "bb": 1, "ccc": 1})
    await entries.every(now, FORM)
    left = image({"a": 1})
    assert partitions_of(await entries.some(left, FORM, [left.topics["a"], Absent("bb", ZERO_UUID, 3)])) == {
        "a": [1],
        "bb": [],
    }
    assert partitions_of(await entries.every(left, FORM)) == {"a": [1]}


async def test_forms_do_not_mix() -> None:
    entries, now = TopicEntries(), image({"a": 1}, live=brokers(1, 2, listeners=("CLIENTS",)))
    plain = await entries.every(now, FORM)
    elsewhere = await entries.every(now, FORM._replace(listener="OTHERS"))
    older = await entries.every(now, FORM._replace(version=1))
    every_operation = all_operations(ResourceType.TOPIC)
    permitted = await entries.every(now, FORM._replace(version=10, operations=every_operation))
    assert partitions_of(plain) == {"a": [1]}
    assert partitions_of(elsewhere) == {"a": [-1]}
    assert partitions_of(older, 1) == {"a": [1]}
    message = {"brokers": [], "controller_id": 1, "cluster_id": None, "topics": permitted}
    (topic,) = decode_response(ApiKey.METADATA, 10, encode_response(ApiKey.METADATA, 10, 1, message)[4:]).topics
    assert topic.topic_authorized_operations == every_operation


async def test_the_most_recently_used_forms_are_cached() -> None:
    entries, now = TopicEntries(), image({"a": 1})
    used = await entries.every(now, FORM)
    for number in range(2 * FORMS):
        await entries.every(now, FORM._replace(listener=f"L{number}"))
        assert await entries.every(now, FORM) is used
    for number in range(FORMS):
        await entries.every(now, FORM._replace(listener=f"L{number}"))
    assert await entries.every(now, FORM) is not used


@pytest.mark.parametrize(
    "sizes", [{"a": 5 * PARTITIONS_AT_A_TIME}, {f"t{n}": 2 for n in range(3 * PARTITIONS_AT_A_TIME)}]
)
async def test_other_tasks_run_while_thousands_of_partitions_are_encoded(sizes: dict[str, int]) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    now = image(sizes)
    task = asyncio.create_task(others())
    found = await TopicEntries().every(now, FORM)
    task.cancel()
    assert turns >= 4
    assert partitions_of(found) == {topic: [1] * size for topic, size in sizes.items()}


async def test_requests_at_the_same_time_see_an_image_each() -> None:
    entries, before = TopicEntries(), image({"a": 2 * PARTITIONS_AT_A_TIME, "bb": 1})
    after = changed(before, "bb", leader=2, live=brokers(2))
    answers = await asyncio.gather(*(entries.every(each, FORM) for each in (before, after, before, after)))
    living = [1] * (2 * PARTITIONS_AT_A_TIME)
    assert [partitions_of(answer) for answer in answers] == [
        {"a": living, "bb": [1]},
        {"a": [-1] * len(living), "bb": [2]},
    ] * 2
