"""Random states of consumer groups for tests: `random_state` keeps the invariants of `ConsumerGroupImage`."""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import Final
from uuid import UUID

from odradek.coordinator.groups.consumer.consumer_values import (
    ClassicMetadata,
    ClassicProtocol,
    ConsumerGroupImage,
    ConsumerMember,
    PartitionSet,
    ReconciliationState,
    ResolvedRegex,
    TopicShape,
)

TOPICS: Final = tuple(
    TopicShape(UUID(int=(7 << 120) + number), name, count, racks)
    for number, (name, count, racks) in enumerate(
        [
            ("arrivals", 3, ()),
            ("departures", 4, (frozenset({"a", "b"}), frozenset({"b"}), frozenset(), frozenset({"a"}))),
            ("gates", 1, ()),
        ]
    )
)
MEMBER_IDS: Final = ("m-1", "m-2", "m-ü", "")
NAMES: Final = (None, "one", "zwölf")
REGEXES: Final = (None, "arr.*", "[a-z]+")


def random_state(random: Random) -> ConsumerGroupImage:
    """Return a group with up to four members, in which each partition has at most one owner."""
    member_ids = random.sample(MEMBER_IDS, random.randrange(len(MEMBER_IDS) + 1))
    assigned, revoking = _dealt(random, member_ids), dict[str, PartitionSet]()
    for member_id in member_ids:
        topics = dict(assigned.get(member_id, {}))
        if topics and random.random() < 0.4:
            topic_id = random.choice(list(topics))
            revoking[member_id] = {topic_id: topics.pop(topic_id)}
        assigned[member_id] = topics
    epoch = 1 + random.randrange(20)
    targets = _dealt(random, member_ids)
    return ConsumerGroupImage(
        epoch=epoch,
        assignment_epoch=1 + random.randrange(epoch),
        members={each: _member(random, each, assigned[each], revoking.get(each, {})) for each in member_ids},
        target={each: targets.get(each, {}) for each in member_ids if random.random() < 0.8},
        topics={topic.name: topic for topic in TOPICS if random.random() < 0.6},
        regexes={
            regex: ResolvedRegex(frozenset(random.sample(["x", "y"], random.randrange(3))), random.randrange(99), 7)
            for regex in REGEXES
            if regex and random.random() < 0.4
        },
    )


def _dealt(random: Random, member_ids: list[str]) -> dict[str, PartitionSet]:
    """Distribute a part of the partitions among the members."""
    dealt: dict[str, dict[UUID, frozenset[int]]] = defaultdict(dict)
    for topic in TOPICS:
        for partition in range(topic.partition_count):
            if member_ids and random.random() < 0.7:
                topics = dealt[random.choice(member_ids)]
                topics[topic.topic_id] = topics.get(topic.topic_id, frozenset()) | {partition}
    return dict(dealt)


def _member(random: Random, member_id: str, assigned: PartitionSet, revoking: PartitionSet) -> ConsumerMember:
    classic = ClassicMetadata(session_timeout_ms=45_000, protocols=(ClassicProtocol("range", b"\x00\x01"),))
    return ConsumerMember(
        member_id=member_id,
        instance_id=random.choice(NAMES),
        rack_id=random.choice(NAMES),
        client_id=random.choice(["", "client"]),
        client_host="/127.0.0.1",
        topics=frozenset(topic.name for topic in TOPICS if random.random() < 0.5),
        regex=random.choice(REGEXES),
        rebalance_timeout_ms=random.choice([-1, 300_000]),
        assignor=random.choice(NAMES),
        classic=random.choice([None, classic]),
        epoch=random.choice([-2, 0, 5, 2**31 - 1]),
        previous_epoch=random.choice([-1, 0, 4]),
        state=random.choice(list(ReconciliationState)),
        assigned=assigned,
        revoking=revoking,
    )
