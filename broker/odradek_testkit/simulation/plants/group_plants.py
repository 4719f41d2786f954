"""Planted bugs of consumer groups (KIP-848)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from odradek.coordinator.groups.consumer import consumer_rules, reconciliation
from odradek.coordinator.groups.consumer.consumer_group import ConsumerGroup
from odradek.coordinator.groups.consumer.consumer_records import StateBuilder
from odradek_testkit.simulation.plants.planting import Bite, Plant

ONE_OWNER: Final = "one-owner"


def _everything_is_free(right: Any, bite: Bite) -> Any:
    """A partition is assigned to a member while another one still has it."""

    def freedom(state: Any, member_id: str) -> Any:
        is_free = right(state, member_id)

        def is_free_here(topic_id: Any, partition: int) -> bool:
            if not is_free(topic_id, partition):
                bite()
            return True

        return is_free_here

    return freedom


def _nothing_to_revoke(right: Any, bite: Bite) -> Any:
    """Partitions count as revoked before the member has reported that it has revoked them."""

    def may_own(owned: Any, partitions: Any) -> bool:
        if right(owned, partitions):
            bite()
        return False

    return may_own


def _epochs_begin_again(right: Any, bite: Bite) -> Any:
    """A coordinator that loads a group begins with the first epoch again."""

    def build(builder: Any) -> Any:
        found = right(builder)
        if found.epoch > 1:
            bite()
        members = {member_id: replace(member, epoch=1, previous_epoch=1) for member_id, member in found.members.items()}
        return replace(found, epoch=1, assignment_epoch=1, members=members)

    return build


def _sessions_never_expire(right: Any, bite: Bite) -> Any:
    """A member that has died keeps its partitions."""

    def session_due(group: Any, member_id: str) -> None:
        session = group._sessions[member_id]
        if session.deadline_ms <= group._services.clock.monotonic_ms():
            bite()
        else:
            right(group, member_id)

    return session_due


GROUP_PLANTS: Final = (
    Plant(
        name="a partition is given away before it is free",
        seed=6,
        finds=frozenset({ONE_OWNER}),
        patches=((consumer_rules, "freedom", _everything_is_free),),
        transacts=False,
        newer_groups=True,
    ),
    Plant(
        name="partitions count as revoked at once",
        seed=70,
        finds=frozenset({ONE_OWNER}),
        patches=((reconciliation, "_may_own", _nothing_to_revoke),),
        transacts=False,
        newer_groups=True,
    ),
    Plant(
        name="the epochs of a group begin again after a load",
        seed=26,
        finds=frozenset({ONE_OWNER}),
        patches=((StateBuilder, "build", _epochs_begin_again),),
        transacts=False,
        newer_groups=True,
    ),
    Plant(
        name="sessions of consumer groups never expire",
        seed=5,
        finds=frozenset({"everything-is-read"}),
        patches=((ConsumerGroup, "_session_due", _sessions_never_expire),),
        transacts=False,
        newer_groups=True,
    ),
)
