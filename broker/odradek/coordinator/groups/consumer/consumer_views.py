"""How a consumer group looks in ListGroups and ConsumerGroupDescribe."""

from __future__ import annotations

from odradek.coordinator.groups.consumer.consumer_rules import preferred_assignor
from odradek.coordinator.groups.consumer.consumer_values import (
    NO_PARTITIONS,
    ConsumerGroupImage,
    ConsumerGroupPhase,
    ConsumerGroupSettings,
    DescribedConsumerGroup,
    DescribedConsumerMember,
    ReconciliationState,
)
from odradek.coordinator.groups.group_kinds import CONSUMER_GROUP_TYPE, CONSUMER_PROTOCOL_TYPE
from odradek.coordinator.groups.group_requests import ListedGroup


def phase(state: ConsumerGroupImage) -> ConsumerGroupPhase:
    """Return the state that clients see. A group that does not exist is Dead, which the caller has to know."""
    if state.is_empty:
        return ConsumerGroupPhase.EMPTY
    if state.epoch > state.assignment_epoch:
        return ConsumerGroupPhase.ASSIGNING
    for member in state.members.values():
        if member.state is not ReconciliationState.STABLE or member.epoch != state.assignment_epoch:
            return ConsumerGroupPhase.RECONCILING
    return ConsumerGroupPhase.STABLE


def listing(group_id: str, state: ConsumerGroupImage) -> ListedGroup:
    """Return the group for ListGroups."""
    return ListedGroup(
        group_id=group_id,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        state=phase(state).value,
        group_type=CONSUMER_GROUP_TYPE,
    )


def describe(group_id: str, state: ConsumerGroupImage, settings: ConsumerGroupSettings) -> DescribedConsumerGroup:
    """Return the group for ConsumerGroupDescribe."""
    members = state.members.values()
    return DescribedConsumerGroup(
        group_id=group_id,
        state=phase(state).value,
        epoch=state.epoch,
        assignment_epoch=state.assignment_epoch,
        assignor=preferred_assignor(members, settings),
        members=tuple(
            DescribedConsumerMember(member=member, target=state.target.get(member.member_id, NO_PARTITIONS))
            for member in members
        ),
    )
