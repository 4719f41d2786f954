"""A cached Metadata entry always equals a newly created one, after any changes of the cluster and any requests."""

from __future__ import annotations

import asyncio
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from odradek.base.types import Endpoint, TopicPartition
from odradek.cluster import LEADER_DURING_DELETE, AnnouncedBroker, ClusterImage, PartitionMetadata
from odradek.server.topic_entries import TopicEntries, TopicEntryForm

NAMES = ("a", "b", "c")
FORMS = [TopicEntryForm(version, listener, False) for version in (0, 5, 12) for listener in ("X", "Y")]

brokers = st.lists(
    st.builds(
        lambda number, listeners: AnnouncedBroker(
            broker_id=number, endpoints=tuple(Endpoint(listener, "h", 9000 + number) for listener in sorted(listeners))
        ),
        st.integers(0, 3),
        st.sets(st.sampled_from(["X", "Y"]), min_size=1),
    ),
    unique_by=lambda broker: broker.broker_id,
)
states = st.builds(
    PartitionMetadata,
    leader=st.sampled_from([LEADER_DURING_DELETE, -1, 0, 1, 2, 3]),
    leader_epoch=st.integers(0, 3),
    isr=st.lists(st.integers(0, 3), unique=True).map(tuple),
    replicas=st.lists(st.integers(0, 3), unique=True, min_size=1).map(tuple),
    offline_replicas=st.lists(st.integers(0, 3), unique=True).map(tuple),
)
partitions = st.lists(
    st.tuples(
        st.builds(TopicPartition, st.sampled_from(NAMES), st.integers(0, 2)),
        st.sampled_from([UUID(int=1), UUID(int=2)]),
        states,
    ),
    max_size=4,
)
steps = st.lists(st.tuples(brokers, partitions, st.sampled_from(FORMS), st.booleans()), max_size=12)


@given(steps)
def test_a_cached_entry_equals_a_new_one(
    history: list[
        tuple[list[AnnouncedBroker], list[tuple[TopicPartition, UUID, PartitionMetadata]], TopicEntryForm, bool]
    ],
) -> None:
    async def play() -> None:
        entries, image = TopicEntries(), ClusterImage()
        for live, changes, form, is_for_all in history:
            image = image.updated(controller_id=1, brokers=live, partitions=changes)
            if is_for_all:
                assert await entries.every(image, form) == await TopicEntries().every(image, form)
            else:
                wanted = list(image.topics.values())[:2]
                assert await entries.some(image, form, wanted) == await TopicEntries().some(image, form, wanted)

    asyncio.run(play())
