"""Turns classic groups into consumer groups and back, while they have members or when they are empty (KIP-848).

`consumer/migration` computes the new group, and the consumer group writes it: its first append removes the record of
the classic group, and its last append is the record of the classic group without those of the consumer group. Here the
group in memory is replaced, and waiting members are asked to join again. Committed offsets stay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from odradek.base.errors import CoordinatorNotAvailableError, GroupIdNotFoundError, RebalanceInProgressError
from odradek.base.ports import Clock
from odradek.coordinator.groups.classic.classic_group import ClassicGroup
from odradek.coordinator.groups.classic.rebalancing import Rebalancer
from odradek.coordinator.groups.consumer import consumer_rules
from odradek.coordinator.groups.consumer.consumer_group import ConsumerGroup, ConsumerGroupServices
from odradek.coordinator.groups.consumer.consumer_records import changes
from odradek.coordinator.groups.consumer.consumer_values import (
    JOIN_EPOCH,
    NEW_GROUP,
    ConsumerGroupImage,
    ConsumerGroupPhase,
    MemberHeartbeat,
    RuleContext,
)
from odradek.coordinator.groups.consumer.consumer_views import phase
from odradek.coordinator.groups.consumer.migration import can_upgrade, upgraded
from odradek.coordinator.groups.consumer.subscriptions import check_regex
from odradek.coordinator.groups.group_records import GroupKey, GroupValue, encode_group_key

logger = logging.getLogger(__name__)


class Conversions:
    """Changes the kind of the groups of one partition."""

    def __init__(
        self,
        *,
        groups: dict[str, ClassicGroup | ConsumerGroup],
        services: ConsumerGroupServices,
        rebalancer: Rebalancer,
        clock: Clock,
    ) -> None:
        """`groups`: the groups by id, in which a group is replaced."""
        self._groups: Final = groups
        self._services: Final = services
        self._rebalancer: Final = rebalancer
        self._clock: Final = clock

    def joined_by_consumer(
        self, classic: ClassicGroup | None, request: MemberHeartbeat, may_describe: Callable[[str], bool]
    ) -> ConsumerGroup:
        """Return the consumer group for a heartbeat to a group that is none: a new one, or the upgraded classic group.

        A classic group that rebalances is upgraded, too: the waiting members get REBALANCE_IN_PROGRESS. Raises
        `GroupIdNotFoundError` if the member does not join, or if the group may not be upgraded, and the errors for
        which the member cannot join.
        """
        group_id = request.group_id
        consumer_rules.check_heartbeat(request, self._services.settings)
        if request.epoch != JOIN_EPOCH:
            what = "does not exist" if classic is None else "is not a consumer group"
            raise GroupIdNotFoundError(f"Group {group_id!r} {what}.")
        if request.regex:
            check_regex(request.regex)
        if classic is None:
            group = ConsumerGroup(group_id, self._services)
        elif classic.is_empty:
            leftover = [_classic_key(group_id)] if classic.generation else []
            group = ConsumerGroup(group_id, self._services, offsets=classic.offsets, leftover=leftover)
        else:
            group = self._upgraded(classic, request, may_describe)
        if classic is not None:
            self._rebalancer.kill(classic, RebalanceInProgressError(f"Group {group_id!r} is a consumer group now."))
        self._groups[group_id] = group
        return group

    def _upgraded(
        self, classic: ClassicGroup, request: MemberHeartbeat, may_describe: Callable[[str], bool]
    ) -> ConsumerGroup:
        services, group_id = self._services, classic.group_id
        if not can_upgrade(classic, services.settings):
            raise GroupIdNotFoundError(f"Group {group_id!r} is not a consumer group.")
        context = RuleContext(services.settings, services.topics, self._clock.wall_ms(), True, may_describe)
        state = upgraded(classic, context)
        consumer_rules.heartbeat(state, request, context)  # A member that cannot join must not change the group.
        logger.info("%r becomes a consumer group, because member %s joins", classic, request.member_id)
        # None of the records of the new group is in the log, so the first append has to write them all.
        missing = (key for key, _ in changes(group_id, NEW_GROUP, state))
        leftover = [_classic_key(group_id), *missing]
        return ConsumerGroup(group_id, services, state, offsets=classic.offsets, leftover=leftover)

    def downgrade(self, group: ConsumerGroup, state: ConsumerGroupImage, value: GroupValue) -> None:
        """Replace a consumer group by a classic group, whose record is committed. `state`: the last one of the group.

        The members must join again, unless each has its target assignment, because a static member of the consumer
        protocol has come back with the classic protocol.
        """
        if self._groups.get(group.group_id) is not group:
            return  # The partition has moved.
        self._close(group)
        classic = ClassicGroup.loaded(group.group_id, value, self._clock.wall_ms(), group.offsets)
        for member_id, member in classic.members.items():
            metadata = state.members[member_id].classic
            assert metadata is not None
            protocols = tuple((name, subscription) for name, subscription in metadata.protocols)
            timeouts_ms = (member.rebalance_timeout_ms, member.session_timeout_ms)
            classic.update(member, protocols, timeouts_ms, None)
        self._groups[group.group_id] = classic
        self._rebalancer.on_loaded(classic)
        if phase(state) is not ConsumerGroupPhase.STABLE:
            self._rebalancer.prepare_if_possible(classic, "the last member of the consumer protocol left")

    def become_classic(self, group: ConsumerGroup) -> ClassicGroup | None:
        """Replace an empty consumer group, whose records are removed, by a classic group that only stores offsets.

        Returns None if a member has joined, or if the group was replaced before.
        """
        if self._groups.get(group.group_id) is not group or group.has_records:
            return None
        self._close(group)
        classic = ClassicGroup(group.group_id, self._clock.wall_ms(), group.offsets)
        self._groups[group.group_id] = classic
        return classic

    def load(self, group_id: str, state: ConsumerGroupImage) -> None:
        """Add a consumer group that was read from the log."""
        leftover = []
        if group_id in self._groups:
            # Another broker may have written it, which does not know consumer groups.
            logger.warning("group %r has records of both kinds; those of the classic group are removed", group_id)
            leftover.append(_classic_key(group_id))
        self._groups[group_id] = ConsumerGroup(group_id, self._services, state, leftover=leftover)

    def _close(self, group: ConsumerGroup) -> None:
        # A member whose request waits sends it again.
        group.close(CoordinatorNotAvailableError(f"Group {group.group_id!r} has changed its kind: try again."))


def _classic_key(group_id: str) -> bytes:
    return encode_group_key(GroupKey(group_id))
