"""What each `group.consumer.migration.policy` allows and refuses, as in the group coordinator of Apache Kafka 4.1.

The policy concerns groups that have members: a consumer that joins a classic group (upgrade), and the last consumer
that leaves a group with classic members (downgrade). Groups without members change their kind with every policy, and
classic members join a consumer group with every policy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from odradek.base.config import BrokerConfig
from odradek.base.errors import NONE, GroupIdNotFoundError, InconsistentGroupProtocolError
from odradek.base.types import TopicPartition
from odradek.client.consumer.group_protocol import Subscription, encode_subscription
from odradek.coordinator.groups.classic.classic_group import ClassicGroup
from odradek.coordinator.groups.consumer.consumer_group import ConsumerGroup
from odradek.coordinator.groups.group_requests import GroupSettings, JoinResult, OffsetToCommit
from odradek_testkit.groups import SETTINGS, GroupLab, Reply, image_of

PLACE = TopicPartition("events", 0)
CLASSIC, CONSUMER, REFUSED = "classic", "consumer", "GROUP_ID_NOT_FOUND"
BOTH = (("cooperative-sticky", encode_subscription(Subscription(topics=("events",)), 3)),)


def lab(policy: str) -> GroupLab:
    properties = {
        "broker.id": "1",
        "zookeeper.connect": "zk:2181",
        "group.consumer.migration.policy": policy,
    }
    consumer = GroupSettings.of(BrokerConfig.parse(properties)[0]).consumer
    return GroupLab(image=image_of(events=4), settings=replace(SETTINGS, consumer=consumer))


def consumer_joins(office: GroupLab, member_id: str = "new") -> None:
    reply = office.consumer_heartbeat(member_id, 0)
    office.log.settle()
    assert reply.value.epoch > 0


def classic_joins(office: GroupLab) -> JoinResult:
    reply: Reply[JoinResult] = office.join(protocols=BOTH)
    office.log.settle()
    while reply.is_parked:
        office.clock.advance(SETTINGS.initial_rebalance_delay_ms)
        office.log.settle()
    assert reply.value.error_code == NONE
    return reply.value


def leave(office: GroupLab, member_id: str = "new") -> None:
    office.consumer_heartbeat(member_id, -1)
    office.log.settle()


def no_group(office: GroupLab) -> None:
    """Nothing happens before."""


def only_offsets(office: GroupLab) -> None:
    office.commit({PLACE: OffsetToCommit(offset=5)})
    office.log.settle()


def classic_group(office: GroupLab) -> None:
    joined = classic_joins(office)
    office.sync(joined.member_id, joined.generation, {joined.member_id: b""})
    office.log.settle()


def consumer_group(office: GroupLab) -> None:
    consumer_joins(office)


def empty_consumer_group(office: GroupLab) -> None:
    consumer_joins(office)
    leave(office)


def mixed_group(office: GroupLab) -> None:
    consumer_joins(office)
    classic_joins(office)


def kind(office: GroupLab) -> str:
    group = office.shard.groups["group"]
    assert isinstance(group, ClassicGroup | ConsumerGroup)
    return group.group_type


POLICIES = ("bidirectional", "upgrade", "downgrade", "disabled")
ALWAYS_CLASSIC, ALWAYS_CONSUMER = (CLASSIC,) * 4, (CONSUMER,) * 4
Step = Callable[[GroupLab], object]
TABLE: list[tuple[Step, Step, tuple[str, str, str, str]]] = [
    # before, event, the kind of the group afterwards for each of `POLICIES`
    (no_group, consumer_joins, ALWAYS_CONSUMER),
    (no_group, classic_joins, ALWAYS_CLASSIC),
    (only_offsets, consumer_joins, ALWAYS_CONSUMER),
    (classic_group, consumer_joins, (CONSUMER, CONSUMER, REFUSED, REFUSED)),
    (classic_group, classic_joins, ALWAYS_CLASSIC),
    (consumer_group, consumer_joins, ALWAYS_CONSUMER),
    (consumer_group, classic_joins, ALWAYS_CONSUMER),
    (empty_consumer_group, consumer_joins, ALWAYS_CONSUMER),
    (empty_consumer_group, classic_joins, ALWAYS_CLASSIC),
    (mixed_group, classic_joins, ALWAYS_CONSUMER),
    (mixed_group, leave, (CLASSIC, CONSUMER, CLASSIC, CONSUMER)),
]
CASES = [
    pytest.param(policy, before, event, outcome, id=f"{policy}-{before.__name__}-{event.__name__}")
    for before, event, outcomes in TABLE
    for policy, outcome in zip(POLICIES, outcomes, strict=True)
]


@pytest.mark.parametrize(("policy", "before", "event", "outcome"), CASES)
def test_the_kind_of_a_group_after_an_event(policy: str, before: Step, event: Step, outcome: str) -> None:
    office = lab(policy)
    before(office)
    if outcome == REFUSED:
        was = kind(office)
        with pytest.raises(GroupIdNotFoundError):
            event(office)
        assert kind(office) == was
    else:
        event(office)
        assert kind(office) == outcome


@pytest.mark.parametrize("policy", POLICIES)
def test_a_classic_member_of_another_protocol_is_refused_by_a_consumer_group(policy: str) -> None:
    office = lab(policy)
    consumer_group(office)
    with pytest.raises(InconsistentGroupProtocolError):
        _ = office.join(protocol_type="connect", protocols=(("default", b""),)).value
    assert kind(office) == CONSUMER
